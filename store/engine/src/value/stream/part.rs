//! Parts of a stream: what the journal, the checkpoint and the undo log know of it one by one.

use super::{Group, Id, Meta, Node, Stream};
use crate::Work;
use crate::coding::{Input, Malformed, put_bytes, put_number};

/// Names a part. Its bytes are in the order in which parts can be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// What is known of the whole.
    Meta,
    /// The node with this ID.
    Node(Id),
    /// A consumer group, by itself.
    Group(&'a [u8]),
    /// A consumer of a group.
    Consumer(&'a [u8], &'a [u8]),
    /// An entry that is pending in a group.
    Pending(&'a [u8], Id),
}

/// First bytes of parts. They stand in files: never given a second meaning.
mod tag {
    pub const META: u8 = 0;
    pub const NODE: u8 = 1;
    pub const GROUP: u8 = 2;
    pub const CONSUMER: u8 = 3;
    pub const PENDING: u8 = 4;
}

impl<'a> Part<'a> {
    /// As bytes.
    pub fn encoded(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Part::Meta => out.push(tag::META),
            Part::Node(id) => {
                out.push(tag::NODE);
                out.extend_from_slice(&id.to_bytes());
            }
            Part::Group(group) => {
                out.push(tag::GROUP);
                out.extend_from_slice(group);
            }
            Part::Consumer(group, consumer) => {
                out.push(tag::CONSUMER);
                put_bytes(group, &mut out);
                out.extend_from_slice(consumer);
            }
            Part::Pending(group, id) => {
                out.push(tag::PENDING);
                put_bytes(group, &mut out);
                out.extend_from_slice(&id.to_bytes());
            }
        }
        out
    }

    /// What [`Part::encoded`] made.
    pub fn decoded(bytes: &'a [u8]) -> Result<Part<'a>, Malformed> {
        let mut input = Input(bytes);
        let id = |bytes: &[u8]| bytes.try_into().map(Id::from_bytes).map_err(|_| Malformed);
        Ok(match input.byte()? {
            tag::META if input.is_empty() => Part::Meta,
            tag::NODE => Part::Node(id(input.0)?),
            tag::GROUP => Part::Group(input.0),
            tag::CONSUMER => {
                let group = input.bytes()?;
                Part::Consumer(group, input.0)
            }
            tag::PENDING => {
                let group = input.bytes()?;
                Part::Pending(group, id(input.0)?)
            }
            _ => return Err(Malformed),
        })
    }
}

/// What parts of groups hold.
impl Part<'_> {
    /// Of a group.
    pub fn group_bytes(last_id: Id, entries_read: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        put_id(last_id, &mut out);
        // One more than it is, so that none is 0.
        put_number(entries_read.map_or(0, |read| read.saturating_add(1)), &mut out);
        out
    }

    /// Of a consumer.
    pub fn consumer_bytes(seen_ms: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(seen_ms.cast_unsigned(), &mut out);
        out
    }

    /// Of an entry that is pending.
    pub fn pending_bytes(consumer: &[u8], delivered_ms: i64, count: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(delivered_ms.cast_unsigned(), &mut out);
        put_number(count, &mut out);
        out.extend_from_slice(consumer);
        out
    }
}

/// Writes an ID, small ones in few bytes.
pub fn put_id(id: Id, out: &mut Vec<u8>) {
    put_number(id.ms, out);
    put_number(id.seq, out);
}

/// What [`put_id`] wrote.
pub fn id(input: &mut Input<'_>) -> Result<Id, Malformed> {
    Ok(Id { ms: input.number()?, seq: input.number()? })
}

impl Meta {
    fn encoded(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_id(self.last_id, &mut out);
        put_number(self.entries_added, &mut out);
        put_id(self.max_deleted_id, &mut out);
        out
    }

    fn decoded(input: &mut Input<'_>) -> Result<Meta, Malformed> {
        Ok(Meta { last_id: id(input)?, entries_added: input.number()?, max_deleted_id: id(input)? })
    }
}

impl Stream {
    /// How many parts there are.
    pub fn part_count(&self) -> usize {
        let groups = self.groups().map(|(_, group)| 1 + group.consumers().len() + group.pending_len());
        1 + self.node_count() + groups.sum::<usize>()
    }

    /// The bytes of a part, if it is there.
    pub fn part(&self, part: Part<'_>) -> Option<Vec<u8>> {
        match part {
            Part::Meta => Some(self.meta().encoded()),
            Part::Node(id) => Some(self.node(id)?.as_bytes().to_vec()),
            Part::Group(group) => {
                let Group { last_id, entries_read, .. } = self.group(group)?;
                Some(Part::group_bytes(*last_id, *entries_read))
            }
            Part::Consumer(group, consumer) => {
                Some(Part::consumer_bytes(self.group(group)?.consumer(consumer)?.seen_ms))
            }
            Part::Pending(group, id) => {
                let pending = self.group(group)?.pending_of(id)?;
                Some(Part::pending_bytes(pending.consumer(), pending.delivered_ms, pending.count))
            }
        }
    }

    /// Puts a part in its place.
    pub(crate) fn put_part(&mut self, part: Part<'_>, bytes: &[u8]) -> Result<(), Malformed> {
        let mut input = Input(bytes);
        match part {
            Part::Meta => self.set_meta(Meta::decoded(&mut input)?),
            Part::Node(id) => {
                let node = Node::checked(id, bytes.to_vec(), &Work::unlimited()).map_err(|_| Malformed)?;
                return self.put_node(id, node);
            }
            Part::Group(name) => {
                let (last_id, read) = (id(&mut input)?, input.number()?.checked_sub(1));
                if self.group(name).is_none() {
                    self.put_group(name, Group::default());
                }
                self.change_group(name, |group| (group.last_id, group.entries_read) = (last_id, read));
            }
            Part::Consumer(group, consumer) => {
                let seen_ms = input.number()?.cast_signed();
                self.change_group(group, |group| group.see(consumer, seen_ms)).ok_or(Malformed)?;
            }
            Part::Pending(group, id) => {
                let (delivered_ms, count) = (input.number()?.cast_signed(), input.number()?);
                let consumer = input.take(input.0.len())?;
                let done = self.change_group(group, |group| group.deliver(id, consumer, delivered_ms, count));
                return if done == Some(true) { Ok(()) } else { Err(Malformed) };
            }
        }
        if input.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// Takes a part away, with all that cannot be without it.
    pub(crate) fn remove_part(&mut self, part: Part<'_>) {
        match part {
            Part::Meta => {}
            Part::Node(id) => drop(self.take_node(id)),
            Part::Group(group) => drop(self.take_group(group)),
            Part::Consumer(group, consumer) => drop(self.change_group(group, |group| group.forget(consumer))),
            Part::Pending(group, id) => drop(self.change_group(group, |group| group.settle(id))),
        }
    }

    /// The first part behind this one, in an order in which they can be put together.
    pub fn part_after(&self, part: Option<Part<'_>>) -> Option<Part<'_>> {
        let of_group = |group: Option<&[u8]>| self.group_after(group).map(Part::Group);
        let node_after = |id: Option<Id>| self.node_after(id).map(Part::Node);
        let pending_from = |name: &[u8], from: Id| {
            let (name, group) = self.named_group(name)?;
            Some(Part::Pending(name, group.pending(from).next()?.0))
        };
        let consumer_after = |name: &[u8], consumer: Option<&[u8]>| {
            let (name, group) = self.named_group(name)?;
            Some(Part::Consumer(name, group.consumer_after(consumer)?))
        };
        match part {
            None => Some(Part::Meta),
            Some(Part::Meta) => node_after(None).or_else(|| of_group(None)),
            Some(Part::Node(id)) => node_after(Some(id)).or_else(|| of_group(None)),
            Some(Part::Group(group)) => consumer_after(group, None)
                .or_else(|| pending_from(group, Id::MIN))
                .or_else(|| of_group(Some(group))),
            Some(Part::Consumer(group, consumer)) => consumer_after(group, Some(consumer))
                .or_else(|| pending_from(group, Id::MIN))
                .or_else(|| of_group(Some(group))),
            Some(Part::Pending(group, id)) => {
                id.next().and_then(|id| pending_from(group, id)).or_else(|| of_group(Some(group)))
            }
        }
    }

    /// All parts, in an order in which they can be put together.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        std::iter::successors(Some(Part::Meta), |part| self.part_after(Some(*part)))
    }
}
