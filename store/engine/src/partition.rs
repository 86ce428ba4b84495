//! Partitions: what one lock guards, and those that a call has locked.

use std::sync::Arc;

use crate::entry::Entry;
use crate::keyspace::{DATABASES, Keyspace};
use crate::slot;
use crate::watch::{BrokenWatch, Flag};

/// All databases' share of the keys of one shard: what one lock guards.
#[derive(Default)]
pub struct Partition {
    /// By database number.
    pub databases: [Keyspace; DATABASES],
    /// Whether somebody may watch a key.
    is_watched: bool,
}

impl Partition {
    /// Bytes of all databases.
    pub fn bytes(&self) -> usize {
        self.databases.iter().map(Keyspace::bytes).sum()
    }

    /// Raises `flag` when `key` next changes, expires or is removed, once that stays.
    pub fn watch(&mut self, db: usize, key: &[u8], flag: Flag) {
        self.is_watched = true;
        self.databases[db].watches().add(key, flag);
    }

    /// Forgets every watch by `flag` on `key`.
    pub fn unwatch(&mut self, db: usize, key: &[u8], flag: &Flag) {
        self.databases[db].watches().remove(key, flag);
    }

    fn hold_watches(&mut self) {
        self.databases.iter_mut().for_each(|space| space.watches().hold());
    }

    fn take_held(&mut self, broken: &mut Vec<BrokenWatch>) {
        self.is_watched = false;
        for (db, space) in self.databases.iter_mut().enumerate() {
            let watches = space.watches();
            let held = watches.take_held();
            broken.extend(held.into_iter().map(|(key, flags)| BrokenWatch { db, key, flags }));
            self.is_watched |= !watches.is_empty();
        }
    }
}

/// The partitions a call has locked.
pub enum Partitions<'a> {
    /// All keys of the call live here.
    One(&'a mut Partition),
    /// Several of `total` partitions, with their numbers, ascending.
    Some {
        /// The locked ones.
        held: Vec<(usize, &'a mut Partition)>,
        /// How many partitions the node has.
        total: usize,
    },
}

/// Which of `total` partitions a key belongs to.
pub fn partition_of(key: &[u8], total: usize) -> usize {
    usize::from(slot::slot(key)) % total
}

impl Partitions<'_> {
    /// The keyspace of database `db` that `key` belongs to. Its partition must be held: callers lock what
    /// [`crate::keys::keys_of`] names.
    pub fn keyspace(&mut self, db: usize, key: &[u8]) -> &mut Keyspace {
        &mut self.partition(key).databases[db]
    }

    /// The partition that `key` belongs to, which must be held.
    pub(crate) fn partition(&mut self, key: &[u8]) -> &mut Partition {
        match self {
            Partitions::One(partition) => partition,
            Partitions::Some { held, total } => {
                let wanted = partition_of(key, *total);
                let at = held.binary_search_by_key(&wanted, |(number, _)| *number);
                held[at.expect("the partition of every key of the call is locked")].1
            }
        }
    }

    /// The entry under `key`, without removing it if it has expired: for commands that look at several keys at
    /// once. As with [`Partitions::keyspace`], the key's partition must be held.
    pub fn peek(&self, db: usize, key: &[u8], now_ms: u64) -> Option<&Entry> {
        let partition = match self {
            Partitions::One(partition) => &**partition,
            Partitions::Some { held, total } => {
                let wanted = partition_of(key, *total);
                let at = held.binary_search_by_key(&wanted, |(number, _)| *number);
                &*held[at.expect("the partition of every key of the call is locked")].1
            }
        };
        partition.databases[db].peek(key, now_ms)
    }

    /// Number of partitions held.
    pub fn len(&self) -> usize {
        match self {
            Partitions::One(_) => 1,
            Partitions::Some { held, .. } => held.len(),
        }
    }

    /// Number of partitions there are.
    pub fn total(&self) -> usize {
        match self {
            Partitions::One(_) => 1,
            Partitions::Some { total, .. } => *total,
        }
    }

    /// The partition of this number, which must be held.
    pub fn numbered(&mut self, number: usize) -> &mut Partition {
        match self {
            Partitions::One(partition) => partition,
            Partitions::Some { held, .. } => {
                let at = held.binary_search_by_key(&number, |(held, _)| *held);
                held[at.expect("the caller locked it")].1
            }
        }
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says of every held partition whether keys of database `db` that have expired stay:
    /// [`Keyspace::hold_expired`].
    pub fn hold_expired(&mut self, db: usize, held: bool) {
        (0..self.len()).for_each(|at| self.nth(at).databases[db].hold_expired(held));
    }

    /// [`Keyspace::hold_stamps`].
    pub fn hold_stamps(&mut self, db: usize, held: bool) {
        (0..self.len()).for_each(|at| self.nth(at).databases[db].hold_stamps(held));
    }

    /// Exchanges two databases in every held partition.
    pub(crate) fn swap_databases(&mut self, first: usize, second: usize) {
        for at in 0..self.len() {
            if let Ok([one, other]) = self.nth(at).databases.get_disjoint_mut([first, second]) {
                one.swap(other);
            }
        }
    }

    /// The `at`th held partition, for commands that walk over everything.
    pub fn nth(&mut self, at: usize) -> &mut Partition {
        match self {
            Partitions::One(partition) => partition,
            Partitions::Some { held, .. } => held[at].1,
        }
    }

    /// Whether somebody may watch a key of these.
    pub(crate) fn is_watched(&self) -> bool {
        match self {
            Partitions::One(partition) => partition.is_watched,
            Partitions::Some { held, .. } => held.iter().any(|(_, partition)| partition.is_watched),
        }
    }

    /// From now on it is open whether changes stay.
    pub(crate) fn hold_watches(&mut self) {
        (0..self.len()).for_each(|at| self.nth(at).hold_watches());
    }

    /// Gives the watches of what has changed since then to `broken`. Changes stay again.
    pub(crate) fn take_broken(&mut self, broken: &mut Vec<BrokenWatch>) {
        (0..self.len()).for_each(|at| self.nth(at).take_held(broken));
    }

    /// Puts the watches of a change that was taken back in their places again.
    pub(crate) fn restore_watches(&mut self, mut broken: BrokenWatch) {
        // Those whose session has forgotten them meanwhile are held by nobody else.
        broken.flags.retain(|flag| Arc::strong_count(flag) > 1);
        for flag in broken.flags {
            self.partition(&broken.key).watch(broken.db, &broken.key, flag);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// The watches that are broken by a change of `k`.
    fn broken_by_change(partition: &mut Partition) -> Vec<BrokenWatch> {
        let mut broken = Vec::new();
        partition.hold_watches();
        partition.databases[3].touch(b"k");
        partition.take_held(&mut broken);
        broken
    }

    #[test]
    fn a_watch_that_is_forgotten_while_it_may_be_broken_does_not_come_back() {
        let (mut partition, stays) = (Partition::default(), Flag::default());
        let goes = Flag::default();
        partition.watch(3, b"k", stays.clone());
        partition.watch(3, b"k", goes.clone());
        let broken = broken_by_change(&mut partition);
        assert!(!partition.is_watched);
        partition.unwatch(3, b"k", &goes);
        drop(goes);
        broken.into_iter().for_each(|broken| Partitions::One(&mut partition).restore_watches(broken));
        assert!(partition.is_watched);
        let broken = broken_by_change(&mut partition);
        assert_eq!(broken.iter().map(|broken| broken.flags.len()).sum::<usize>(), 1);
        assert!(!stays.load(Ordering::Relaxed));
        broken.into_iter().for_each(BrokenWatch::raise_flags);
        assert!(stays.load(Ordering::Relaxed) && partition.databases[3].watches().is_empty());
    }
}
