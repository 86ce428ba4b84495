//! The values of a document.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::size::{allocated, doubling};
use crate::steps::Work;

/// A value, with all that is in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent, if 64 bits hold it.
    Int(i64),
    /// Any other number; finite.
    Float(f64),
    /// A string.
    String(Box<str>),
    /// An array.
    Array(Vec<Node>),
    /// An object.
    Object(Box<Object>),
}

// Every element of an array takes as much.
const _: () = assert!(size_of::<Node>() == 24);

/// A member of an object.
pub type Member = (Box<str>, Node);

impl Node {
    /// As JSON.TYPE answers.
    pub fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "boolean",
            Node::Int(_) => "integer",
            Node::Float(_) => "number",
            Node::String(_) => "string",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        }
    }

    /// Bytes on the heap, by what it holds.
    pub fn heap(&self) -> usize {
        let inside = match self {
            Node::Array(elements) => elements.iter().map(Node::heap).sum(),
            Node::Object(object) => object.members.iter().map(member_heap).sum(),
            _ => 0,
        };
        self.own_heap() + inside
    }

    /// The same without what its elements or members take.
    pub fn own_heap(&self) -> usize {
        match self {
            Node::Null | Node::Bool(_) | Node::Int(_) | Node::Float(_) => 0,
            Node::String(text) => allocated(text.len()),
            Node::Array(elements) => doubling(elements.len(), size_of::<Node>()),
            Node::Object(object) => object.own_heap(),
        }
    }

    /// How many arrays and objects lie in each other: 0 of a scalar.
    pub fn depth(&self) -> usize {
        match self {
            Node::Array(elements) => 1 + elements.iter().map(Node::depth).max().unwrap_or(0),
            Node::Object(object) => 1 + object.iter().map(|(_, node)| node.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// How many elements or members it has.
    pub fn len(&self) -> usize {
        match self {
            Node::Array(elements) => elements.len(),
            Node::Object(object) => object.len(),
            _ => 0,
        }
    }

    /// Whether it has neither elements nor members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is an array or object.
    pub fn is_container(&self) -> bool {
        matches!(self, Node::Array(_) | Node::Object(_))
    }

    /// The element or member at this position.
    pub fn child(&self, at: usize) -> Option<&Node> {
        match self {
            Node::Array(elements) => elements.get(at),
            Node::Object(object) => object.members.get(at).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn child_mut(&mut self, at: usize) -> Option<&mut Node> {
        match self {
            Node::Array(elements) => elements.get_mut(at),
            Node::Object(object) => object.members.get_mut(at).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Whether both are the same, numbers of the same kind only. Ends with the work.
    pub fn equals(&self, other: &Node, work: &Work) -> bool {
        if !work.step(1) {
            return false;
        }
        match (self, other) {
            (Node::String(one), Node::String(other)) => {
                one.len() == other.len() && work.step_bytes(one.len()) && one == other
            }
            (Node::Array(one), Node::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.equals(other, work))
            }
            (Node::Object(one), Node::Object(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .all(|(name, one)| other.get(name).is_some_and(|other| one.equals(other, work)))
            }
            (one, other) => !one.is_container() && one == other,
        }
    }
}

/// Bytes on the heap of a member.
pub fn member_heap((name, node): &Member) -> usize {
    allocated(name.len()) + node.heap()
}

/// From this many members on there is an index of their names. Fewer are found as quickly without.
const INDEXED_FROM: usize = 17;

/// An object: its members in the order in which they were added.
#[derive(Clone, Default)]
pub struct Object {
    members: Vec<Member>,
    /// Where the member of a name is, if there are many.
    index: Option<Box<Index>>,
}

#[derive(Clone, Default)]
struct Index {
    positions: HashTable<u32>,
    hasher: RandomState,
}

impl Index {
    fn add(&mut self, members: &[Member], at: usize) {
        let Index { positions, hasher } = self;
        let hash_at = |at: &u32| hasher.hash_one(&*members[*at as usize].0);
        // As long as its text: there are no more members than a string has bytes.
        let at = at as u32;
        positions.insert_unique(hash_at(&at), at, hash_at);
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.members.iter().map(|(name, node)| (name, node))).finish()
    }
}

/// The order of members does not matter.
impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.len() == other.len() && self.iter().all(|(name, node)| other.get(name) == Some(node))
    }
}

impl Object {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All members.
    pub fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.members.iter()
    }

    /// All members, taken out.
    pub fn into_members(self) -> Vec<Member> {
        self.members
    }

    /// Position of the member called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        match &self.index {
            None => self.members.iter().position(|(held, _)| **held == *name),
            Some(index) => {
                let is_it = |at: &u32| *self.members[*at as usize].0 == *name;
                index.positions.find(index.hasher.hash_one(name), is_it).map(|at| *at as usize)
            }
        }
    }

    /// The value of the member called `name`.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.find(name).map(|at| &self.members[at].1)
    }

    /// Gives the member called `name` this value, in its place or behind all others; gives back what it had.
    pub fn set(&mut self, name: Box<str>, node: Node) -> Option<Node> {
        match self.find(&name) {
            Some(at) => Some(std::mem::replace(&mut self.members[at].1, node)),
            None => {
                self.members.push((name, node));
                self.index_last();
                None
            }
        }
    }

    /// Takes the member behind all others into the index.
    fn index_last(&mut self) {
        match &mut self.index {
            Some(index) => index.add(&self.members, self.members.len() - 1),
            None => self.reindex(),
        }
    }

    /// Builds the index from the members.
    fn reindex(&mut self) {
        self.index = (self.members.len() >= INDEXED_FROM).then(|| {
            let mut index = Box::<Index>::default();
            (0..self.members.len()).for_each(|at| index.add(&self.members, at));
            index
        });
    }

    /// Puts members between those that are there: [`insert_runs`].
    pub(super) fn insert(&mut self, runs: Vec<(usize, Vec<Member>)>) {
        if let [(at, members)] = &*runs
            && *at == self.members.len()
            && members.len() == 1
        {
            self.members.extend(runs.into_iter().flat_map(|(_, members)| members));
            return self.index_last();
        }
        insert_runs(&mut self.members, runs);
        self.reindex();
    }

    /// Takes members out: [`remove_runs`].
    pub(super) fn remove(&mut self, runs: &[(usize, usize)]) -> Vec<(usize, Vec<Member>)> {
        let indexed = self.index.as_mut().filter(|_| self.members.len() > INDEXED_FROM);
        match (runs, indexed) {
            (&[(at, 1)], Some(index)) => {
                let hash = index.hasher.hash_one(&*self.members[at].0);
                if let Ok(held) = index.positions.find_entry(hash, |held| *held as usize == at) {
                    held.remove();
                }
                index.positions.iter_mut().for_each(|held| *held -= u32::from(*held as usize > at));
                remove_runs(&mut self.members, runs)
            }
            _ => {
                let removed = remove_runs(&mut self.members, runs);
                self.reindex();
                removed
            }
        }
    }

    fn own_heap(&self) -> usize {
        let index = match self.len() {
            0..INDEXED_FROM => 0,
            // A position and a byte for each bucket, of which seven eighths may be in use, and one group of bytes more.
            len => {
                let buckets = (len * 8 / 7).next_power_of_two();
                allocated(size_of::<Index>()) + allocated(buckets * (size_of::<u32>() + 1) + 16)
            }
        };
        allocated(size_of::<Object>()) + doubling(self.len(), size_of::<Member>()) + index
    }
}

/// A list with room for as many elements as one has that has grown one by one, as the byte account assumes.
fn with_room<T>(len: usize) -> Vec<T> {
    Vec::with_capacity(if len == 0 { 0 } else { len.next_power_of_two().max(4) })
}

/// Puts runs of elements between those that are there: each has the position at which its first element stands afterwards.
pub(super) fn insert_runs<T>(held: &mut Vec<T>, runs: Vec<(usize, Vec<T>)>) {
    if let [(at, _)] = &*runs
        && *at == held.len()
    {
        return held.extend(runs.into_iter().flat_map(|(_, run)| run));
    }
    let mut all = with_room(held.len() + runs.iter().map(|(_, run)| run.len()).sum::<usize>());
    let mut old = std::mem::take(held).into_iter();
    for (at, run) in runs {
        let before = at - all.len();
        all.extend(old.by_ref().take(before));
        all.extend(run);
    }
    all.extend(old);
    *held = all;
}

/// Takes runs of elements out, each with its position before and its length; gives back what [`insert_runs`] needs to put them
/// back.
pub(super) fn remove_runs<T>(held: &mut Vec<T>, runs: &[(usize, usize)]) -> Vec<(usize, Vec<T>)> {
    if let &[(at, count)] = runs {
        let removed = vec![(at, held.drain(at..at + count).collect())];
        let room = if held.is_empty() { 0 } else { held.len().next_power_of_two().max(4) };
        held.shrink_to(room);
        return removed;
    }
    let mut kept = with_room(held.len() - runs.iter().map(|(_, count)| count).sum::<usize>());
    let (mut old, mut at, mut removed) = (std::mem::take(held).into_iter(), 0, Vec::new());
    for &(from, count) in runs {
        kept.extend(old.by_ref().take(from - at));
        removed.push((from, old.by_ref().take(count).collect()));
        at = from + count;
    }
    kept.extend(old);
    *held = kept;
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(names: std::ops::Range<usize>) -> Object {
        let mut object = Object::default();
        for number in names {
            assert_eq!(object.set(number.to_string().into(), Node::Int(number as i64)), None);
        }
        object
    }

    #[track_caller]
    fn check(object: &Object, wanted: &[usize]) {
        let names: Vec<usize> = object.iter().map(|(name, _)| name.parse().expect("a number")).collect();
        assert_eq!(names, wanted);
        for (at, number) in wanted.iter().enumerate() {
            assert_eq!(object.find(&number.to_string()), Some(at));
            assert_eq!(object.get(&number.to_string()), Some(&Node::Int(*number as i64)));
        }
        assert_eq!(object.find("none"), None);
        assert_eq!(object.index.is_some(), object.len() >= INDEXED_FROM);
    }

    #[test]
    fn members_are_found_in_small_and_large_objects() {
        for len in [0, 1, 5, INDEXED_FROM - 1, INDEXED_FROM, INDEXED_FROM + 1, 1000] {
            let all: Vec<usize> = (0..len).collect();
            let mut whole = object(0..len);
            check(&whole, &all);
            for runs in [&[(0, 1)][..], &[(2, 1)], &[(1, 3)], &[(0, 2), (3, 1)], &[(0, len)]] {
                let end = runs.last().map_or(0, |(at, count)| at + count);
                if end > len || len == 0 {
                    continue;
                }
                let removed = whole.remove(runs);
                let left: Vec<usize> = all
                    .iter()
                    .copied()
                    .filter(|number| !runs.iter().any(|(at, count)| (*at..at + count).contains(number)))
                    .collect();
                check(&whole, &left);
                whole.insert(removed);
                check(&whole, &all);
            }
        }
    }

    #[test]
    fn equality_ignores_the_order_of_members_and_not_the_kind_of_numbers() {
        let work = Work::unlimited();
        let (mut one, mut other) = (Object::default(), Object::default());
        for name in ["a", "b"] {
            one.set(name.into(), Node::Null);
        }
        for name in ["b", "a"] {
            other.set(name.into(), Node::Null);
        }
        let (one, other) = (Node::Object(one.into()), Node::Object(other.into()));
        assert!(one == other && one.equals(&other, &work));
        let (array, longer) = (Node::Array(vec![one.clone()]), Node::Array(vec![one.clone(), one.clone()]));
        assert!(array.equals(&array.clone(), &work) && !array.equals(&longer, &work));
        assert!(!Node::Int(1).equals(&Node::Float(1.0), &work));
        assert!(!array.equals(&one, &work) && !one.equals(&Node::Null, &work));
    }
}
