//! What a path selects. Every value that is looked at counts as a step of the work, and no value is selected twice by one segment
//! of a path, as in valkey-json: hence a path of some segments looks at each value some times at most, filters apart.

use std::cmp::Ordering;
use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::edit::Place;
use super::node::Node;
use super::path::{Operator, Segment, Selector, Term, Test};
use super::pattern::Pattern;
use crate::error::CommandError;
use crate::steps::{CANCELLED, Work};

/// A value that was selected.
#[derive(Clone, Copy)]
pub struct Found<'d> {
    /// The value.
    pub node: &'d Node,
    /// Where the trail has its last step.
    step: u32,
}

/// The values that a path selects, in the order of their document as far as the path has no other.
pub struct Matches<'d> {
    /// The values.
    pub found: Vec<Found<'d>>,
    /// Steps from values to those in them: where the step before is, and the position. The first is the root.
    trail: Vec<(u32, u32)>,
}

impl Matches<'_> {
    /// Where a value is.
    pub fn place(&self, found: Found<'_>) -> Place {
        let (mut place, mut step) = (Place::new(), found.step);
        while step != 0 {
            let (before, at) = self.trail[step as usize];
            place.push(at as usize);
            step = before;
        }
        place.reverse();
        place
    }

    /// Where all values are.
    pub fn places(&self) -> Vec<Place> {
        self.found.iter().map(|found| self.place(*found)).collect()
    }
}

/// Drops places that are within others. The rest is in the order of the document.
pub fn prune(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_unstable();
    places.dedup_by(|next, kept| next.starts_with(kept));
    places
}

/// The values that a path selects from `root`.
///
/// Errors: the end of the work.
pub fn select<'d>(segments: &[Segment], root: &'d Node, work: &Work) -> Result<Matches<'d>, CommandError> {
    let mut walk = Walk { root, work, trail: Some(vec![(0, 0)]) };
    let found = walk.follow(segments, root)?;
    Ok(Matches { found, trail: walk.trail.unwrap_or_default() })
}

/// Values by their addresses.
type Seen = HashSet<*const Node, RandomState>;

struct Walk<'d, 'w> {
    root: &'d Node,
    work: &'w Work,
    /// As in [`Matches`], if it is wanted.
    trail: Option<Vec<(u32, u32)>>,
}

impl<'d> Walk<'d, '_> {
    fn count(&self, steps: usize) -> Result<(), CommandError> {
        if self.work.step(steps as u64) { Ok(()) } else { Err(CANCELLED) }
    }

    fn follow(&mut self, segments: &[Segment], from: &'d Node) -> Result<Vec<Found<'d>>, CommandError> {
        let mut found = vec![Found { node: from, step: 0 }];
        for segment in segments {
            let mut next = Vec::new();
            // One value may be within another.
            let mut seen = (segment.descends && found.len() > 1).then(Seen::default);
            for at in found {
                match segment.descends {
                    true => self.descend(at, &segment.selectors, &mut seen, &mut next)?,
                    false => self.children(at, segment, &mut next)?,
                }
            }
            found = next;
        }
        Ok(found)
    }

    /// The step from `at` to its child at a position.
    fn step(&mut self, at: Found<'d>, position: usize) -> u32 {
        let Some(trail) = &mut self.trail else { return 0 };
        // A document has fewer values than its text has bytes.
        trail.push((at.step, position as u32));
        trail.len() as u32 - 1
    }

    fn descend(
        &mut self,
        at: Found<'d>,
        selectors: &[Selector],
        seen: &mut Option<Seen>,
        next: &mut Vec<Found<'d>>,
    ) -> Result<(), CommandError> {
        if !at.node.is_container() || seen.as_mut().is_some_and(|seen| !seen.insert(at.node)) {
            return self.count(1);
        }
        self.select_from(at, selectors, next)?;
        for position in 0..at.node.len() {
            let Some(node) = at.node.child(position) else { break };
            let (steps, found) = (self.trail.as_ref().map_or(0, Vec::len), next.len());
            let step = self.step(at, position);
            self.descend(Found { node, step }, selectors, seen, next)?;
            // What leads to nothing is forgotten.
            if let Some(trail) = self.trail.as_mut().filter(|_| next.len() == found) {
                trail.truncate(steps);
            }
        }
        Ok(())
    }

    fn children(
        &mut self,
        at: Found<'d>,
        segment: &Segment,
        next: &mut Vec<Found<'d>>,
    ) -> Result<(), CommandError> {
        // As in RedisJSON a filter of a scalar asks about the scalar itself.
        if let ([Selector::Filter(test)], false) = (&*segment.selectors, at.node.is_container()) {
            if self.is_true(test, at.node)? {
                next.push(at);
            }
            return Ok(());
        }
        self.select_from(at, &segment.selectors, next)
    }

    fn select_from(
        &mut self,
        at: Found<'d>,
        selectors: &[Selector],
        next: &mut Vec<Found<'d>>,
    ) -> Result<(), CommandError> {
        let (from, len) = (next.len(), at.node.len());
        for selector in selectors {
            self.count(1)?;
            match (selector, at.node) {
                (Selector::Name(name), Node::Object(object)) => {
                    if let Some(position) = object.find(name) {
                        self.add(at, position, from, next)?;
                    }
                }
                (Selector::Index(index), Node::Array(_)) => {
                    self.add(at, position(*index, len), from, next)?;
                }
                (Selector::Slice(start, end, step), Node::Array(_)) => {
                    let end = end.map_or(len, |end| position(end, len));
                    let start = start.map_or(0, |start| position(start, len));
                    for position in (start..end).step_by(*step) {
                        self.add(at, position, next.len(), next)?;
                    }
                }
                (Selector::All, _) => {
                    for position in 0..len {
                        self.add(at, position, next.len(), next)?;
                    }
                }
                (Selector::Filter(test), _) => {
                    for position in 0..len {
                        let Some(node) = at.node.child(position) else { break };
                        if self.is_true(test, node)? {
                            self.add(at, position, next.len(), next)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the child at a position, if there is one that is not among those from `from` on.
    fn add(
        &mut self,
        at: Found<'d>,
        position: usize,
        from: usize,
        next: &mut Vec<Found<'d>>,
    ) -> Result<(), CommandError> {
        self.count(1 + next.len() - from)?;
        if let Some(node) = at.node.child(position)
            && !next[from..].iter().any(|other| std::ptr::eq(other.node, node))
        {
            let step = self.step(at, position);
            next.push(Found { node, step });
        }
        Ok(())
    }

    fn is_true(&self, test: &Test, node: &'d Node) -> Result<bool, CommandError> {
        self.count(1)?;
        match test {
            Test::Any(tests) => {
                for test in tests {
                    if self.is_true(test, node)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Test::All(tests) => {
                for test in tests {
                    if !self.is_true(test, node)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Test::Exists(Term::Constant(_)) => Ok(true),
            Test::Exists(Term::Current(path)) => Ok(!self.within(path, node)?.is_empty()),
            Test::Exists(Term::Root(path)) => Ok(!self.within(path, self.root)?.is_empty()),
            Test::Matches(left, pattern) => Ok(match self.value(left, node)? {
                Some(Node::String(text)) => pattern.matches(text, self.work),
                _ => false,
            }),
            Test::Compare(left, operator, right) => {
                let (left, right) = (self.value(left, node)?, self.value(right, node)?);
                Ok(self.compare(left, *operator, right))
            }
        }
    }

    fn within(&self, path: &[Segment], from: &'d Node) -> Result<Vec<Found<'d>>, CommandError> {
        Walk { root: self.root, work: self.work, trail: None }.follow(path, from)
    }

    /// The value of a term: none if a path selects none or several.
    fn value<'t>(&self, term: &'t Term, node: &'d Node) -> Result<Option<&'t Node>, CommandError>
    where
        'd: 't,
    {
        let found = match term {
            Term::Constant(node) => return Ok(Some(node)),
            Term::Current(path) => self.within(path, node)?,
            Term::Root(path) => self.within(path, self.root)?,
        };
        Ok(match &*found {
            [one] => Some(one.node),
            _ => None,
        })
    }

    fn compare(&self, left: Option<&Node>, operator: Operator, right: Option<&Node>) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return operator == Operator::NotEqual };
        if operator == Operator::Matches {
            return match (left, right) {
                (Node::String(text), Node::String(pattern)) => {
                    self.work.step(pattern.len() as u64) && Pattern::new(pattern).matches(text, self.work)
                }
                _ => false,
            };
        }
        let order = match (left, right) {
            (Node::Int(left), Node::Int(right)) => Some(left.cmp(right)),
            (Node::Int(left), Node::Float(right)) => (*left as f64).partial_cmp(right),
            (Node::Float(left), Node::Int(right)) => left.partial_cmp(&(*right as f64)),
            (Node::Float(left), Node::Float(right)) => left.partial_cmp(right),
            (Node::String(left), Node::String(right)) => {
                self.work.step_bytes(left.len().min(right.len()));
                Some(left.cmp(right))
            }
            (Node::Bool(left), Node::Bool(right)) => Some(left.cmp(right)),
            (left, right) => left.equals(right, self.work).then_some(Ordering::Equal),
        };
        match operator {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            // Above.
            Operator::Matches => false,
        }
    }
}

/// A position of a path in an array of `len` elements. As in RedisJSON what is before the first is the first, and what is
/// behind the last is none.
fn position(index: i64, len: usize) -> usize {
    match usize::try_from(index) {
        Ok(index) => index.min(len),
        Err(_) => len.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::path::Path;
    use super::super::print::printed;
    use super::*;
    use crate::steps::CancelFlag;

    const STORE: &str = r#"{"store":{
        "book":[
            {"category":"reference","author":"Nigel Rees","title":"Sayings of the Century","price":8.95},
            {"category":"fiction","author":"Evelyn Waugh","title":"Sword of Honour","price":12.99},
            {"category":"fiction","author":"Herman Melville","title":"Moby Dick","isbn":"0-553","price":8.99},
            {"category":"fiction","author":"J. R. R. Tolkien","title":"The Lord","isbn":"0-395","price":22.99}],
        "bicycle":{"color":"red","price":19.95}},
        "limit":10,"name with blank":1,"list":[[1,2],[3,[4]],5],"mixed":[null,true,1,1.0,"1","a\"b"]}"#;

    fn selected(path: &str) -> String {
        let work = Work::unlimited();
        let root = parse(STORE.as_bytes(), &work).expect("it is right");
        let read = Path::parse(path.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
        let matches = select(&read.segments, &root, &work).expect("nothing ends it");
        let json = crate::value::Json::new(root.clone());
        for found in &matches.found {
            let place = matches.place(*found);
            assert_eq!(json.node(&place), Some(found.node), "{path}: {place:?}");
        }
        matches.found.iter().map(|found| printed(found.node)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn paths_select() {
        for (path, wanted) in [
            ("$.limit", "10"),
            ("limit", "10"),
            (".store.bicycle.color", r#""red""#),
            ("$['name with blank']", "1"),
            ("$.none", ""),
            ("$.limit.none", ""),
            ("$.store.book[0].price", "8.95"),
            ("$.store.book[-1].price", "22.99"),
            ("$.store.book[4].price", ""),
            ("$.store.book[-9].price", "8.95"),
            ("$.store.book[*].price", "8.95 12.99 8.99 22.99"),
            ("$.store.book.*.price", "8.95 12.99 8.99 22.99"),
            ("$.store.book[1,0, 1].price", "12.99 8.95"),
            ("$.store.book[:2].price", "8.95 12.99"),
            ("$.store.book[1:].price", "12.99 8.99 22.99"),
            ("$.store.book[-2:].price", "8.99 22.99"),
            ("$.store.book[0:-1:2].price", "8.95 8.99"),
            ("$.store.book[::3].price", "8.95 22.99"),
            ("$.store.book[3:1].price", ""),
            ("$..price", "8.95 12.99 8.99 22.99 19.95"),
            ("$.store..color", r#""red""#),
            ("$..bicycle['color', \"price\",'color']", r#""red" 19.95"#),
            ("$..book[0].title", r#""Sayings of the Century""#),
            ("$.list[*]", "[1,2] [3,[4]] 5"),
            ("$.list..[0]", "[1,2] 1 3 4"),
            ("$.list..*", "[1,2] [3,[4]] 5 1 2 3 [4] 4"),
            ("$.list..*..*", "1 2 3 [4] 4"),
            ("$.store.book[?(@.isbn)].price", "8.99 22.99"),
            ("$.store.book[?@.price<10].price", "8.95 8.99"),
            ("$.store.book[?(@.price<$.limit)].price", "8.95 8.99"),
            ("$.store.book[?(@.price>=8.99 && @.price<=12.99)].price", "12.99 8.99"),
            ("$.store.book[?(@.price<8.96||@.isbn&&@.price>20)].price", "8.95 22.99"),
            ("$.store.book[?((@.price<8.96||@.isbn)&&@.price>8.96)].price", "8.99 22.99"),
            ("$.store.book[?(@.category==\"reference\")].price", "8.95"),
            ("$.store.book[?('reference'!=@.category)].price", "12.99 8.99 22.99"),
            ("$.store.book[?(@.author =~ \"(?i)^h.*le$\")].price", "8.99"),
            ("$.store.book[?(@.author =~ \"(\")].price", ""),
            ("$.store.book[?(@.none == 1)].price", ""),
            ("$.store.book[?(@.none != 1)].price", "8.95 12.99 8.99 22.99"),
            ("$..[?(@.price>20)].title", r#""The Lord""#),
            ("$.store[?(@.color)].price", "19.95"),
            ("$.limit[?(@==10)]", "10"),
            ("$.mixed[?(@==1)]", "1 1.0"),
            ("$.mixed[?(@==\"1\")]", r#""1""#),
            ("$.mixed[?(@==true)]", "true"),
            ("$.mixed[?(@==null)]", "null"),
            ("$.mixed[?(@==\"a\\\"b\")]", r#""a\"b""#),
            ("$.mixed[?(@>0.5)]", "1 1.0"),
            ("$.mixed[?(@>\"1\")]", r#""a\"b""#),
            ("$.list[?(@==$.list[0])]", "[1,2]"),
            ("$.list[?(@[0]==3)]", "[3,[4]]"),
            ("$.list[?(@[?(@==1)])]", "[1,2]"),
        ] {
            assert_eq!(selected(path), wanted, "{path}");
        }
        assert!(selected("$").len() > 500 && selected(".") == selected("$"));
    }

    #[test]
    fn places_within_others_are_dropped() {
        let places = vec![vec![1, 2], vec![0, 1, 5], vec![1], vec![0, 1], vec![2, 0], vec![0, 10]];
        assert_eq!(prune(places), [vec![0, 1], vec![0, 10], vec![1], vec![2, 0]]);
        assert_eq!(prune(vec![vec![3], vec![]]), [Vec::<usize>::new()]);
    }

    /// Hundreds of values, each of which paths without bounds would reach by many ways.
    #[test]
    fn work_is_bounded_by_the_path_and_the_document() {
        let text = format!("{}1{}", "[0,".repeat(100), "]".repeat(100));
        let root = parse(text.as_bytes(), &Work::unlimited()).expect("it is right");
        for path in [&"..*".repeat(20), &"[0,0,1,1]".repeat(100), &"..[1]".repeat(50)] {
            let work = Work::unlimited();
            let read = Path::parse(format!("${path}").as_bytes()).expect(path);
            assert!(select(&read.segments, &root, &work).is_ok());
            assert!(work.steps() < 50_000, "{path}: {} steps", work.steps());
        }
    }

    #[test]
    fn the_end_of_the_work_ends_every_path() {
        let text = format!("[{}1]", "[1,2,3],".repeat(20_000));
        let root = parse(text.as_bytes(), &Work::unlimited()).expect("it is right");
        for path in ["$[*]", "$..*", "$[0:20000]", "$[?(@[0]==1)]", "$[?(@==$..[?(@[?(@==4)])])]"] {
            let work = Work::until(CancelFlag::new(true.into()));
            let read = Path::parse(path.as_bytes()).expect(path);
            assert_eq!(select(&read.segments, &root, &work).err(), Some(CANCELLED), "{path}");
            assert!(work.steps() < 20_000, "{path}: {} steps", work.steps());
        }
    }
}
