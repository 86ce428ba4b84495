//! Streams: entries in packed nodes, in the order of their IDs, and the groups that read them.

mod group;
mod id;
mod node;
mod part;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};

pub use group::{Consumer, Group, Pending};
pub use id::{Id, Spelled, parse};
pub use node::{Fields, Node, StreamEntry};
pub use part::{Part, id as read_id, put_id};

use crate::coding::Malformed;
use crate::size::{allocated, tree};

/// Redis' `stream-node-max-bytes`.
const NODE_BYTES: usize = 4096;
/// Redis' `stream-node-max-entries`.
pub const NODE_ENTRIES: usize = 100;

/// What is known of a stream beside its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meta {
    /// The highest ID there ever was.
    pub last_id: Id,
    /// How many entries were ever added.
    pub entries_added: u64,
    /// The highest ID that XDEL has removed.
    pub max_deleted_id: Id,
}

/// A stream value.
#[derive(Clone, Default, PartialEq)]
pub struct Stream(Box<StreamData>);

#[derive(Clone, Default, PartialEq)]
struct StreamData {
    meta: Meta,
    len: usize,
    nodes: BTreeMap<Id, Node>,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// What nodes and groups take on the heap beside their trees.
    weight: usize,
}

fn group_bytes(name: &[u8], group: &Group) -> usize {
    allocated(name.len()) + group.bytes()
}

impl Stream {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none. It may stay so.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        allocated(size_of::<StreamData>())
            + tree(self.0.nodes.len(), size_of::<(Id, Node)>())
            + tree(self.0.groups.len(), size_of::<(Box<[u8]>, Group)>())
            + self.0.weight
    }

    /// What is known of it.
    pub fn meta(&self) -> Meta {
        self.0.meta
    }

    /// The ID of the first entry, or the least.
    pub fn first_id(&self) -> Id {
        self.range(Id::MIN, Id::MAX).next().map_or(Id::MIN, |entry| entry.id)
    }

    /// The ID of the last entry, or the least.
    pub fn top_id(&self) -> Id {
        self.range_back(Id::MIN, Id::MAX).next().map_or(Id::MIN, |entry| entry.id)
    }

    /// The entry of this ID.
    pub fn get(&self, id: Id) -> Option<StreamEntry<'_>> {
        let (own, node) = self.node_of(id)?;
        node.find(own, id).filter(|entry| !entry.is_deleted())
    }

    /// The entries from one ID to another, both included.
    pub fn range(&self, from: Id, to: Id) -> impl Iterator<Item = StreamEntry<'_>> {
        let first = self.0.nodes.range(..=from).next_back().map_or(from, |(own, _)| *own);
        let entries = self.0.nodes.range(first..).flat_map(|(own, node)| node.entries(*own));
        let behind = entries.skip_while(move |entry| entry.id < from);
        behind.take_while(move |entry| entry.id <= to).filter(|entry| !entry.is_deleted())
    }

    /// The same, the last one first.
    pub fn range_back(&self, from: Id, to: Id) -> impl Iterator<Item = StreamEntry<'_>> {
        let nodes = self.0.nodes.range(..=to).rev();
        let entries = nodes.flat_map(|(own, node)| {
            let entries: Vec<StreamEntry<'_>> = node.entries(*own).collect();
            entries.into_iter().rev()
        });
        let before = entries.skip_while(move |entry| entry.id > to);
        before.take_while(move |entry| entry.id >= from).filter(|entry| !entry.is_deleted())
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.0.nodes.len()
    }

    /// The nodes with their IDs.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (Id, &Node)> {
        self.0.nodes.iter().map(|(own, node)| (*own, node))
    }

    /// The node with this ID.
    pub fn node(&self, own: Id) -> Option<&Node> {
        self.0.nodes.get(&own)
    }

    /// The first node behind this one, or of all.
    fn node_after(&self, own: Option<Id>) -> Option<Id> {
        let from = own.map_or(Unbounded, Excluded);
        self.0.nodes.range((from, Unbounded)).next().map(|(own, _)| *own)
    }

    /// The node that has, or would have, the entry of this ID, and its own ID.
    pub fn node_of(&self, id: Id) -> Option<(Id, &Node)> {
        self.0.nodes.range(..=id).next_back().map(|(own, node)| (*own, node))
    }

    /// The ID of the node that takes a new last entry: that of the entry if it gets a new one.
    pub fn node_for(&self, id: Id, fields: Fields<'_>) -> Id {
        let texts: usize = fields.pairs().map(|(name, value)| name.len() + value.len()).sum();
        match self.0.nodes.last_key_value() {
            Some((own, node))
                if node.as_bytes().len() + texts < NODE_BYTES && node.entry_count() < NODE_ENTRIES =>
            {
                *own
            }
            _ => id,
        }
    }

    /// The groups by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.0.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.0.groups.get(name)
    }

    fn named_group(&self, name: &[u8]) -> Option<(&[u8], &Group)> {
        self.0.groups.get_key_value(name).map(|(name, group)| (&**name, group))
    }

    fn group_after(&self, name: Option<&[u8]>) -> Option<&[u8]> {
        let from = name.map_or(Unbounded, Excluded);
        self.0.groups.range::<[u8], _>((from, Unbounded)).next().map(|(name, _)| &**name)
    }
}

/// Changes, for [`crate::edit`], the undo log and those who read a stream from somewhere.
impl Stream {
    pub(crate) fn set_meta(&mut self, meta: Meta) {
        self.0.meta = meta;
    }

    /// Puts a node in its place, if its entries fit between those of its neighbours.
    pub(crate) fn put_node(&mut self, own: Id, node: Node) -> Result<(), Malformed> {
        let ends_at = |own: Id, node: &Node| node.entries(own).last().map(|entry| entry.id);
        let before = self.0.nodes.range(..own).next_back();
        let begins = before.and_then(|(own, node)| ends_at(*own, node)).is_none_or(|last| last < own);
        let next = self.node_after(Some(own));
        let ends = ends_at(own, &node).is_some_and(|last| next.is_none_or(|next| last < next));
        if !begins || !ends {
            return Err(Malformed);
        }
        self.take_node(own);
        self.0.len += node.live();
        self.0.weight += node.bytes();
        self.0.nodes.insert(own, node);
        Ok(())
    }

    /// Takes a node away with all its entries.
    pub(crate) fn take_node(&mut self, own: Id) -> Option<Node> {
        let node = self.0.nodes.remove(&own)?;
        self.0.len -= node.live();
        self.0.weight -= node.bytes();
        Some(node)
    }

    /// Changes a node that is there.
    pub(crate) fn change_node<R>(&mut self, own: Id, change: impl FnOnce(&mut Node) -> R) -> Option<R> {
        let inner = &mut *self.0;
        let node = inner.nodes.get_mut(&own)?;
        let (live, bytes) = (node.live(), node.bytes());
        let done = change(node);
        inner.len = inner.len - live + node.live();
        inner.weight = inner.weight - bytes + node.bytes();
        Some(done)
    }

    /// Adds an entry behind all others, in this node or as the first of a new one. Nothing happens if that is not
    /// its place.
    pub(crate) fn append(&mut self, own: Id, id: Id, fields: Fields<'_>) {
        let inner = &mut *self.0;
        let last = inner.nodes.last_key_value().map(|(own, _)| *own);
        if id <= inner.meta.last_id || (own != id && last != Some(own)) {
            return;
        }
        if own == id {
            let node = Node::new(fields);
            inner.len += 1;
            inner.weight += node.bytes();
            inner.nodes.insert(own, node);
        } else {
            self.change_node(own, |node| node.append(own, id, fields));
        }
        let meta = &mut self.0.meta;
        meta.last_id = id;
        meta.entries_added = meta.entries_added.wrapping_add(1);
    }

    /// Puts a group in its place.
    pub(crate) fn put_group(&mut self, name: &[u8], group: Group) {
        self.0.weight += group_bytes(name, &group);
        if let Some(old) = self.0.groups.insert(name.into(), group) {
            self.0.weight -= group_bytes(name, &old);
        }
    }

    /// Takes a group away.
    pub(crate) fn take_group(&mut self, name: &[u8]) -> Option<Group> {
        let group = self.0.groups.remove(name)?;
        self.0.weight -= group_bytes(name, &group);
        Some(group)
    }

    /// Changes a group that is there.
    fn change_group<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let inner = &mut *self.0;
        let group = inner.groups.get_mut(name)?;
        let bytes = group.bytes();
        let done = change(group);
        inner.weight = inner.weight - bytes + group.bytes();
        Some(done)
    }
}

/// How much of a stream lies before an entry, as far as Redis 7.0 finds that out.
impl Stream {
    /// Whether XDEL has removed something at or behind this ID, and the first entry.
    pub fn has_tombstone_from(&self, from: Id) -> bool {
        let max_deleted_id = self.0.meta.max_deleted_id;
        max_deleted_id != Id::MIN
            && from <= max_deleted_id
            && !self.is_empty()
            && self.first_id() <= max_deleted_id
    }

    /// How many entries, of all that were ever added, lie up to this ID; `None` if nobody knows.
    pub fn added_up_to(&self, id: Id) -> Option<u64> {
        let Meta { last_id, entries_added, max_deleted_id } = self.0.meta;
        if entries_added == 0 || (self.is_empty() && id <= last_id) || id == last_id {
            return Some(entries_added);
        }
        if id > last_id {
            return None;
        }
        let first = self.first_id();
        let before = entries_added.wrapping_sub(self.0.len as u64);
        match id.cmp(&first) {
            _ if max_deleted_id != Id::MIN && max_deleted_id >= first => None,
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before.wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// How many entries a group has not read yet; `None` if nobody knows.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let added = self.0.meta.entries_added;
        if added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !self.has_tombstone_from(group.last_id));
        let read = read.or_else(|| self.added_up_to(group.last_id))?;
        Some(added.wrapping_sub(read).cast_signed())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_map();
        for part in self.parts() {
            parts.entry(&part, &self.part(part).unwrap_or_default().escape_ascii().to_string());
        }
        parts.finish()
    }
}

#[cfg(test)]
mod tests;
