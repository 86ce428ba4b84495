//! Changes of a document. Each names a place and what becomes of it, and has an inverse of the same kind: a journal keeps the
//! one, an undo log the other.

use super::node::{Member, Node, Object, insert_runs, member_heap, remove_runs};
use super::{Json, MAX_DEPTH};
use crate::coding::{Input, Malformed, put_bytes, put_number};

/// The positions of elements and members that lead from the root to a value.
pub type Place = Vec<usize>;

/// A change of one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// Where.
    pub place: Place,
    /// What.
    pub change: Change,
}

/// What becomes of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is another.
    Replace(Node),
    /// Elements or members are put between those that are there: runs in order, each with the position that its first has
    /// afterwards. Elements have empty names.
    Insert(Vec<(usize, Vec<Member>)>),
    /// Elements or members go: runs in order, each with its position before and its length.
    Remove(Vec<(usize, usize)>),
}

impl Change {
    /// How many arrays and objects of what it brings lie in each other, with those that it brings it to.
    fn depth(&self) -> usize {
        match self {
            Change::Replace(node) => node.depth(),
            Change::Insert(runs) => {
                let members = runs.iter().flat_map(|(_, members)| members);
                1 + members.map(|(_, node)| node.depth()).max().unwrap_or(0)
            }
            Change::Remove(_) => 0,
        }
    }
}

const REPLACE: u8 = 0;
const INSERT: u8 = 1;
const REMOVE: u8 = 2;

impl Edit {
    /// Bytes on the heap, about.
    pub fn heap(&self) -> usize {
        let change = match &self.change {
            Change::Replace(node) => node.heap(),
            Change::Insert(runs) => {
                let members = runs.iter().flat_map(|(_, members)| members);
                members.map(|member| size_of::<Member>() + member_heap(member)).sum()
            }
            Change::Remove(runs) => size_of_val(&**runs),
        };
        size_of_val(&*self.place) + change
    }

    /// As bytes, for [`Edit::decoded`].
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(self.place.len() as u64, &mut out);
        self.place.iter().for_each(|at| put_number(*at as u64, &mut out));
        match &self.change {
            Change::Replace(node) => {
                out.push(REPLACE);
                put_node(node, &mut out);
            }
            Change::Insert(runs) => {
                out.push(INSERT);
                put_number(runs.len() as u64, &mut out);
                for (at, members) in runs {
                    put_number(*at as u64, &mut out);
                    put_number(members.len() as u64, &mut out);
                    members.iter().for_each(|member| put_member(member, &mut out));
                }
            }
            Change::Remove(runs) => {
                out.push(REMOVE);
                put_number(runs.len() as u64, &mut out);
                for (at, count) in runs {
                    put_number(*at as u64, &mut out);
                    put_number(*count as u64, &mut out);
                }
            }
        }
        out
    }

    /// Reads what [`Edit::encoded`] wrote.
    pub fn decoded(bytes: &[u8]) -> Result<Edit, Malformed> {
        let mut input = Input(bytes);
        let place = (0..input.count()?).map(|_| input.count()).collect::<Result<Place, Malformed>>()?;
        let change = match input.byte()? {
            REPLACE => Change::Replace(read_node(&mut input, 0)?),
            INSERT => {
                let mut runs = Vec::new();
                for _ in 0..input.count()? {
                    let (at, mut members) = (input.count()?, Vec::new());
                    for _ in 0..input.count()? {
                        members.push(read_member(&mut input, 0)?);
                    }
                    runs.push((at, members));
                }
                Change::Insert(runs)
            }
            REMOVE => {
                let mut runs = Vec::new();
                for _ in 0..input.count()? {
                    runs.push((input.count()?, input.count()?));
                }
                Change::Remove(runs)
            }
            _ => return Err(Malformed),
        };
        if input.is_empty() { Ok(Edit { place, change }) } else { Err(Malformed) }
    }
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const STRING: u8 = 5;
const ARRAY: u8 = 6;
const OBJECT: u8 = 7;

/// Writes a value with all that is in it.
pub fn put_node(node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.push(NULL),
        Node::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Node::Int(number) => {
            out.push(INT);
            // The sign is the last bit, so that small numbers of either sign are short.
            put_number((number << 1 ^ number >> 63).cast_unsigned(), out);
        }
        Node::Float(number) => {
            out.push(FLOAT);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Node::String(text) => {
            out.push(STRING);
            put_bytes(text.as_bytes(), out);
        }
        Node::Array(elements) => {
            out.push(ARRAY);
            put_number(elements.len() as u64, out);
            elements.iter().for_each(|element| put_node(element, out));
        }
        Node::Object(object) => {
            out.push(OBJECT);
            put_number(object.len() as u64, out);
            object.iter().for_each(|member| put_member(member, out));
        }
    }
}

fn put_member((name, node): &Member, out: &mut Vec<u8>) {
    put_bytes(name.as_bytes(), out);
    put_node(node, out);
}

/// Reads what [`put_node`] wrote; `depth` arrays and objects are around it.
pub fn read_node(input: &mut Input<'_>, depth: usize) -> Result<Node, Malformed> {
    Ok(match input.byte()? {
        NULL => Node::Null,
        FALSE => Node::Bool(false),
        TRUE => Node::Bool(true),
        INT => {
            let bits = input.number()?;
            Node::Int((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
        }
        FLOAT => {
            let bits = input.take(8)?.try_into().map_err(|_| Malformed)?;
            let number = f64::from_le_bytes(bits);
            if !number.is_finite() {
                return Err(Malformed);
            }
            Node::Float(number)
        }
        STRING => Node::String(read_text(input)?),
        ARRAY | OBJECT if depth == MAX_DEPTH => return Err(Malformed),
        ARRAY => {
            let mut elements = Vec::new();
            for _ in 0..input.count()? {
                elements.push(read_node(input, depth + 1)?);
            }
            Node::Array(elements)
        }
        OBJECT => {
            let mut object = Box::<Object>::default();
            for _ in 0..input.count()? {
                let (name, node) = read_member(input, depth + 1)?;
                object.set(name, node);
            }
            Node::Object(object)
        }
        _ => return Err(Malformed),
    })
}

fn read_member(input: &mut Input<'_>, depth: usize) -> Result<Member, Malformed> {
    Ok((read_text(input)?, read_node(input, depth)?))
}

fn read_text(input: &mut Input<'_>) -> Result<Box<str>, Malformed> {
    std::str::from_utf8(input.bytes()?).map(Box::from).map_err(|_| Malformed)
}

impl Json {
    /// Makes a change; gives back its inverse. `None`: there is no such place, or the value would lie in too many others, and
    /// nothing has changed.
    pub fn apply(&mut self, edit: Edit) -> Option<Edit> {
        let Edit { place, change } = edit;
        if place.len() + change.depth() > MAX_DEPTH {
            return None;
        }
        let target = place.iter().try_fold(&mut self.0.root, |node, at| node.child_mut(*at))?;
        let (before, after, change) = match change {
            Change::Replace(node) => {
                let after = node.heap();
                let old = std::mem::replace(target, node);
                (old.heap(), after, Change::Replace(old))
            }
            Change::Insert(runs) => {
                if !can_insert(target, &runs) {
                    return None;
                }
                let inverse = runs.iter().map(|(at, members)| (*at, members.len())).collect();
                let added = runs.iter().flat_map(|(_, members)| members).map(member_heap).sum::<usize>();
                let before = target.own_heap();
                match target {
                    Node::Object(object) => object.insert(runs),
                    Node::Array(elements) => insert_runs(elements, unnamed(runs)),
                    _ => return None,
                }
                (before, target.own_heap() + added, Change::Remove(inverse))
            }
            Change::Remove(runs) => {
                if !can_remove(target, &runs) {
                    return None;
                }
                let before = target.own_heap();
                let removed = match target {
                    Node::Object(object) => object.remove(&runs),
                    Node::Array(elements) => named(remove_runs(elements, &runs)),
                    _ => return None,
                };
                let gone = removed.iter().flat_map(|(_, members)| members).map(member_heap).sum::<usize>();
                (before + gone, target.own_heap(), Change::Insert(removed))
            }
        };
        self.0.bytes = self.0.bytes + after - before;
        Some(Edit { place, change })
    }
}

fn can_insert(target: &Node, runs: &[(usize, Vec<Member>)]) -> bool {
    let mut len = target.len();
    // Each begins behind the one before, and no further than there is something to stand behind.
    let mut least = 0;
    let fits = runs.iter().all(|(at, members)| {
        let fits = (least..=len).contains(at);
        least = at.saturating_add(members.len());
        len += members.len();
        fits
    });
    let is_new = |(name, _): &Member| match target {
        Node::Object(object) => object.find(name).is_none(),
        _ => name.is_empty(),
    };
    target.is_container() && fits && runs.iter().flat_map(|(_, members)| members).all(is_new)
}

fn can_remove(target: &Node, runs: &[(usize, usize)]) -> bool {
    let mut least = 0;
    let fits = runs.iter().all(|(at, count)| {
        let end = at.saturating_add(*count);
        let fits = *at >= least && end <= target.len();
        least = end;
        fits
    });
    target.is_container() && fits
}

fn unnamed(runs: Vec<(usize, Vec<Member>)>) -> Vec<(usize, Vec<Node>)> {
    runs.into_iter().map(|(at, run)| (at, run.into_iter().map(|(_, node)| node).collect())).collect()
}

fn named(runs: Vec<(usize, Vec<Node>)>) -> Vec<(usize, Vec<Member>)> {
    runs.into_iter()
        .map(|(at, run)| (at, run.into_iter().map(|node| (Box::default(), node)).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::print::printed;
    use super::*;
    use crate::steps::Work;

    const TEXT: &str = r#"{"a":[1,-2,[true,null]],"b":{"c":"text","d":2.5},"e":{}}"#;

    fn node(text: &str) -> Node {
        parse(text.as_bytes(), &Work::unlimited()).expect("it is right")
    }

    fn member(name: &str, text: &str) -> Member {
        (name.into(), node(text))
    }

    /// Edits with what becomes of the document.
    fn edits() -> Vec<(Edit, &'static str)> {
        let edit = |place: &[usize], change| Edit { place: place.to_vec(), change };
        vec![
            (edit(&[], Change::Replace(node("[9]"))), "[9]"),
            (
                edit(&[0, 2, 1], Change::Replace(node("{\"x\":[]}"))),
                r#"{"a":[1,-2,[true,{"x":[]}]],"b":{"c":"text","d":2.5},"e":{}}"#,
            ),
            (
                edit(
                    &[0],
                    Change::Insert(vec![
                        (0, vec![member("", "0")]),
                        (3, vec![member("", "7"), member("", "8")]),
                    ]),
                ),
                r#"{"a":[0,1,-2,7,8,[true,null]],"b":{"c":"text","d":2.5},"e":{}}"#,
            ),
            (
                edit(&[1], Change::Insert(vec![(1, vec![member("n", "1")])])),
                r#"{"a":[1,-2,[true,null]],"b":{"c":"text","n":1,"d":2.5},"e":{}}"#,
            ),
            (
                edit(&[2], Change::Insert(vec![(0, vec![member("n", "1"), member("m", "[]")])])),
                r#"{"a":[1,-2,[true,null]],"b":{"c":"text","d":2.5},"e":{"n":1,"m":[]}}"#,
            ),
            (edit(&[], Change::Remove(vec![(0, 1), (2, 1)])), r#"{"b":{"c":"text","d":2.5}}"#),
            (edit(&[0], Change::Remove(vec![(0, 3)])), r#"{"a":[],"b":{"c":"text","d":2.5},"e":{}}"#),
        ]
    }

    #[test]
    fn edits_are_made_repeated_and_taken_back() {
        for (edit, wanted) in edits() {
            let before = Json::new(node(TEXT));
            let mut json = before.clone();
            let again = Edit::decoded(&edit.encoded()).expect("it was encoded here");
            assert_eq!(again, edit);
            let inverse = json.apply(again).expect("there is such a place");
            assert_eq!(printed(json.root()), wanted);
            assert_eq!(json, Json::new(node(wanted)), "the bytes of {wanted}");
            let encoded = inverse.encoded();
            json.apply(Edit::decoded(&encoded).expect("it was encoded here")).expect("it was just made");
            assert_eq!(printed(json.root()), TEXT);
            assert_eq!(json, before, "the bytes after taking back {wanted}");
            assert!((0..encoded.len()).all(|len| Edit::decoded(&encoded[..len]).is_err()));
        }
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let deep = |depth: usize| node(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        let element = || vec![member("", "1")];
        for (place, change) in [
            (vec![3], Change::Replace(Node::Null)),
            (vec![0, 0, 0], Change::Replace(Node::Null)),
            (vec![0], Change::Replace(deep(MAX_DEPTH))),
            (vec![0], Change::Insert(vec![(0, vec![(Box::default(), deep(MAX_DEPTH - 1))])])),
            (vec![0], Change::Insert(vec![(4, element())])),
            (vec![0], Change::Insert(vec![(1, element()), (1, element())])),
            (vec![0], Change::Insert(vec![(0, vec![member("name", "1")])])),
            (vec![0, 0], Change::Insert(vec![(0, element())])),
            (vec![1], Change::Insert(vec![(0, vec![member("c", "1")])])),
            (vec![0], Change::Remove(vec![(3, 1)])),
            (vec![0], Change::Remove(vec![(1, 1), (0, 1)])),
            (vec![0], Change::Remove(vec![(0, usize::MAX)])),
            (vec![1, 0], Change::Remove(vec![(0, 0)])),
        ] {
            let mut json = Json::new(node(TEXT));
            assert_eq!(json.apply(Edit { place, change }), None);
            assert_eq!(json, Json::new(node(TEXT)));
        }
    }
}
