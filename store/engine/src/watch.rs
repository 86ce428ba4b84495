//! WATCH: who wants to know whether a key changes.
//!
//! A change that may be taken back breaks a watch only when it stays: until then the watch lies in the undo log, and goes
//! back to its place with the change. Nobody can see the key meanwhile, as the transaction has locked it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::keyspace::{Key, Partition};
use crate::{Ctx, Partitions};

/// Raised when a key changes, expires or is removed.
pub type Flag = Arc<AtomicBool>;

fn raise(flags: &[Flag]) {
    flags.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
}

/// The watches of one database's share of a partition.
#[derive(Default, Debug)]
pub(crate) struct Watches {
    by_key: HashMap<Key, Vec<Flag>>,
    /// Those of keys that changed, while it is open whether that stays.
    held: Option<Vec<(Key, Vec<Flag>)>>,
}

impl Watches {
    /// Whether nobody watches anything.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Adds one.
    pub fn add(&mut self, key: &[u8], flag: Flag) {
        self.by_key.entry(key.into()).or_default().push(flag);
    }

    /// Forgets every watch by `flag` on `key`.
    pub fn remove(&mut self, key: &[u8], flag: &Flag) {
        if let Some(flags) = self.by_key.get_mut(key) {
            flags.retain(|held| !Arc::ptr_eq(held, flag));
            if flags.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// `key` has changed.
    pub fn touch(&mut self, key: &[u8]) {
        if let Some((key, flags)) = self.by_key.remove_entry(key) {
            match &mut self.held {
                Some(held) => held.push((key, flags)),
                None => raise(&flags),
            }
        }
    }

    /// All keys have changed that `changes` says this of.
    pub fn touch_all(&mut self, changes: impl Fn(&[u8]) -> bool) {
        let held = &mut self.held;
        for (key, flags) in self.by_key.extract_if(|key, _| changes(key)) {
            match held {
                Some(held) => held.push((key, flags)),
                None => raise(&flags),
            }
        }
    }

    /// `key` has gone for good.
    pub fn lose(&mut self, key: &[u8]) {
        if let Some(flags) = self.by_key.remove(key) {
            raise(&flags);
        }
    }
}

/// The watches of a key that was changed by a transaction.
#[derive(Debug)]
pub(crate) struct Broken {
    db: usize,
    key: Key,
    flags: Vec<Flag>,
}

impl Broken {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The change stays.
    pub fn tell(self) {
        raise(&self.flags);
    }

    /// The change was taken back.
    pub fn restore(mut self, partitions: &mut Partitions<'_>) {
        // Those whose session has forgotten them meanwhile are held by nobody else.
        self.flags.retain(|flag| Arc::strong_count(flag) > 1);
        for flag in self.flags {
            partitions.partition(&self.key).watch(self.db, &self.key, flag);
        }
    }
}

impl Partition {
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
        self.databases.iter_mut().for_each(|space| space.watches().held = Some(Vec::new()));
    }

    fn take_held(&mut self, broken: &mut Vec<Broken>) {
        self.is_watched = false;
        for (db, space) in self.databases.iter_mut().enumerate() {
            let watches = space.watches();
            let held = watches.held.take().unwrap_or_default();
            broken.extend(held.into_iter().map(|(key, flags)| Broken { db, key, flags }));
            self.is_watched |= !watches.is_empty();
        }
    }
}

impl Partitions<'_> {
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
    pub(crate) fn take_broken(&mut self, broken: &mut Vec<Broken>) {
        (0..self.len()).for_each(|at| self.nth(at).take_held(broken));
    }
}

impl Ctx<'_> {
    /// Does `work`. If there is an undo log, the watches that this breaks are kept there.
    #[inline(always)] // A context would be moved.
    pub fn watched<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        if self.undo.is_none() || !self.partitions.is_watched() {
            return work(self);
        }
        self.partitions.hold_watches();
        let open = Open(self);
        work(open.0)
    }
}

/// It is open whether changes stay until this is dropped, by a panic too.
struct Open<'c, 'a>(&'c mut Ctx<'a>);

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        let Ctx { partitions, undo: Some(undo), .. } = &mut *self.0 else { return };
        partitions.take_broken(undo.broken());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The watches that are broken by a change of `k`.
    fn broken_by_change(partition: &mut Partition) -> Vec<Broken> {
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
        broken.into_iter().for_each(|broken| broken.restore(&mut Partitions::One(&mut partition)));
        assert!(partition.is_watched);
        let broken = broken_by_change(&mut partition);
        assert_eq!(broken.iter().map(|broken| broken.flags.len()).sum::<usize>(), 1);
        assert!(!stays.load(Ordering::Relaxed));
        broken.into_iter().for_each(Broken::tell);
        assert!(stays.load(Ordering::Relaxed) && partition.databases[3].watches().is_empty());
    }
}
