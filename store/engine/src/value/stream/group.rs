//! Consumer groups: how far a stream was read, by whom, and what was read but not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Id;
use crate::size::{allocated, tree};

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The last entry that was delivered.
    pub last_id: Id,
    /// How many entries, of all that were ever added, lie up to that one; `None` if nobody knows.
    pub entries_read: Option<u64>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    pending: BTreeMap<Id, Pending>,
    /// What the consumers take on the heap beside their tree.
    weight: usize,
}

/// One who reads in a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    /// Unix time in milliseconds when it last asked for something.
    pub seen_ms: i64,
    pending: BTreeSet<Id>,
}

impl Consumer {
    /// What it has read and not acknowledged, from this ID on.
    pub fn pending(&self, from: Id) -> impl Iterator<Item = Id> {
        self.pending.range(from..).copied()
    }

    /// How much that is.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    fn weight(&self) -> usize {
        tree(self.pending.len(), size_of::<Id>())
    }
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    consumer: Arc<[u8]>,
    /// Unix time in milliseconds of the newest delivery.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub count: u64,
}

impl Pending {
    /// To whom.
    pub fn consumer(&self) -> &[u8] {
        &self.consumer
    }
}

/// What the name of a consumer takes: its bytes and two counts.
fn name_bytes(name: &[u8]) -> usize {
    allocated(name.len() + 16)
}

impl Group {
    /// A group that has read up to an entry.
    pub fn new(last_id: Id, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.weight
            + tree(self.consumers.len(), size_of::<(Arc<[u8]>, Consumer)>())
            + tree(self.pending.len(), size_of::<(Id, Pending)>())
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&[u8], &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (&**name, consumer))
    }

    /// The first consumer behind this name.
    pub(super) fn consumer_after(&self, name: Option<&[u8]>) -> Option<&[u8]> {
        match name {
            None => self.consumers.keys().next(),
            Some(name) => {
                use std::ops::Bound::{Excluded, Unbounded};
                self.consumers.range::<[u8], _>((Excluded(name), Unbounded)).map(|(name, _)| name).next()
            }
        }
        .map(|name| &**name)
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// What is pending from this ID on.
    pub fn pending(&self, from: Id) -> impl Iterator<Item = (Id, &Pending)> {
        self.pending.range(from..).map(|(id, pending)| (*id, pending))
    }

    /// The last that is pending.
    pub fn last_pending(&self) -> Option<Id> {
        self.pending.last_key_value().map(|(id, _)| *id)
    }

    /// How many are pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// What is known of an entry that is pending.
    pub fn pending_of(&self, id: Id) -> Option<&Pending> {
        self.pending.get(&id)
    }

    /// Notes that a consumer was there at this time.
    pub(super) fn see(&mut self, name: &[u8], seen_ms: i64) {
        match self.consumers.get_mut(name) {
            Some(consumer) => consumer.seen_ms = seen_ms,
            None => {
                self.weight += name_bytes(name);
                self.consumers.insert(name.into(), Consumer { seen_ms, ..Consumer::default() });
            }
        }
    }

    /// Forgets a consumer with all that is pending for it; whether it was there.
    pub(super) fn forget(&mut self, name: &[u8]) -> bool {
        let Some(consumer) = self.consumers.remove(name) else { return false };
        self.weight -= name_bytes(name) + consumer.weight();
        consumer.pending.iter().for_each(|id| drop(self.pending.remove(id)));
        true
    }

    /// Makes an entry pending for a consumer and for nobody else; whether there is this consumer.
    pub(super) fn deliver(&mut self, id: Id, consumer: &[u8], delivered_ms: i64, count: u64) -> bool {
        let Some((name, _)) = self.consumers.get_key_value(consumer) else { return false };
        let pending = Pending { consumer: name.clone(), delivered_ms, count };
        if let Some(before) = self.pending.insert(id, pending) {
            self.with_consumer(&before.consumer, |consumer| consumer.pending.remove(&id));
        }
        self.with_consumer(consumer, |consumer| consumer.pending.insert(id));
        true
    }

    /// Nobody waits for an entry's acknowledgement any more; whether somebody did.
    pub(super) fn settle(&mut self, id: Id) -> bool {
        let Some(before) = self.pending.remove(&id) else { return false };
        self.with_consumer(&before.consumer, |consumer| consumer.pending.remove(&id));
        true
    }

    fn with_consumer(&mut self, name: &[u8], change: impl FnOnce(&mut Consumer) -> bool) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            let before = consumer.weight();
            change(consumer);
            self.weight = self.weight - before + consumer.weight();
        }
    }
}
