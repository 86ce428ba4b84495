//! Which transaction holds and which one awaits which key of one shard. Pure: it decides, its caller wakes.
//!
//! A transaction takes its locks in one global order (shards ascending, in a shard first the gate, then keys
//! ascending) and waits for one lock at a time, so there is no deadlock. The gate stands for the whole shard:
//! holders of keys pass it in [`Mode::Shared`], a transaction over everything takes it in [`Mode::Exclusive`].

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::hash_map::EntryRef;
use smallvec::{SmallVec, smallvec};

/// Identity of a transaction on its node. Never reused.
pub type TxnId = u64;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

impl Mode {
    /// Whether a lock held like this suffices for `need`.
    pub fn covers(self, need: Mode) -> bool {
        self == Mode::Exclusive || need == Mode::Shared
    }
}

/// A key to be locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Its database.
    pub db: usize,
    /// Its bytes.
    pub key: Box<[u8]>,
    /// How.
    pub mode: Mode,
}

/// A key of a database, as the table keeps it.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct OwnedKey(pub usize, pub Box<[u8]>);

/// The same without owning it, to look it up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyRef<'a>(pub usize, pub &'a [u8]);

impl hashbrown::Equivalent<OwnedKey> for KeyRef<'_> {
    fn equivalent(&self, held: &OwnedKey) -> bool {
        self.0 == held.0 && *self.1 == *held.1
    }
}

/// Holders and waiters of one thing, first come first served.
#[derive(Default, Debug)]
struct Lock {
    holders: SmallVec<[(TxnId, Mode); 1]>,
    queue: VecDeque<(TxnId, Mode)>,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    fn admits(&self, mode: Mode) -> bool {
        self.holders.is_empty()
            || (mode == Mode::Shared && self.holders.iter().all(|(_, held)| *held == Mode::Shared))
    }

    /// Whether a newcomer gets it at once: no holder in its way and no waiter before it.
    fn is_open(&self, mode: Mode) -> bool {
        self.queue.is_empty() && self.admits(mode)
    }

    fn take(&mut self, txn: TxnId, mode: Mode) -> bool {
        let open = self.is_open(mode);
        if open {
            self.holders.push((txn, mode))
        } else {
            self.queue.push_back((txn, mode))
        }
        open
    }

    /// Lets `txn` go, holding or waiting, and hands over to those at the head of the queue.
    fn leave(&mut self, txn: TxnId, woken: &mut Vec<TxnId>) {
        self.holders.retain(|(holder, _)| *holder != txn);
        self.queue.retain(|(waiter, _)| *waiter != txn);
        while let Some(&(next, mode)) = self.queue.front() {
            if !self.admits(mode) {
                break;
            }
            self.queue.pop_front();
            self.holders.push((next, mode));
            woken.push(next);
        }
    }
}

/// The locks of one shard.
#[derive(Default, Debug)]
pub struct LockTable {
    gate: Lock,
    keys: hashbrown::HashMap<OwnedKey, Lock, RandomState>,
}

impl LockTable {
    /// Whether no transaction holds or awaits anything here.
    pub fn is_idle(&self) -> bool {
        self.gate.is_free()
    }

    /// Whether a call that is no transaction may touch this key now.
    pub fn allows(&self, db: usize, key: &[u8], mode: Mode) -> bool {
        self.gate.is_open(Mode::Shared)
            && self.keys.get(&KeyRef(db, key)).is_none_or(|lock| lock.is_open(mode))
    }

    /// Whether any transaction holds this key: eviction and expiry keep off it.
    pub fn is_held(&self, db: usize, key: &[u8]) -> bool {
        !self.gate.admits(Mode::Shared)
            || self.keys.get(&KeyRef(db, key)).is_some_and(|lock| !lock.holders.is_empty())
    }

    /// Whether a transaction may be changing this key.
    pub fn is_written(&self, db: usize, key: &[u8]) -> bool {
        let alone = |lock: &Lock| lock.holders.iter().any(|(_, mode)| *mode == Mode::Exclusive);
        alone(&self.gate) || self.keys.get(&KeyRef(db, key)).is_some_and(alone)
    }

    /// Asks for the gate; `false`: `txn` waits in its queue.
    pub fn take_gate(&mut self, txn: TxnId, mode: Mode) -> bool {
        self.gate.take(txn, mode)
    }

    /// Asks for a key; `false`: `txn` waits in its queue.
    pub fn take_key(&mut self, txn: TxnId, db: usize, key: &[u8], mode: Mode) -> bool {
        match self.keys.entry_ref(&KeyRef(db, key)) {
            EntryRef::Occupied(mut entry) => entry.get_mut().take(txn, mode),
            EntryRef::Vacant(entry) => {
                let lock = Lock { holders: smallvec![(txn, mode)], ..Lock::default() };
                entry.insert_with_key(OwnedKey(db, key.into()), lock);
                true
            }
        }
    }

    /// Takes a key if that is possible without waiting, and the gate with it if `txn` has not passed it yet.
    pub fn try_take_key(&mut self, txn: TxnId, db: usize, key: &[u8], mode: Mode, passed_gate: bool) -> bool {
        if !(passed_gate || self.gate.is_open(Mode::Shared)) {
            return false;
        }
        if self.keys.get(&KeyRef(db, key)).is_some_and(|lock| !lock.is_open(mode)) {
            return false;
        }
        if !passed_gate {
            self.gate.take(txn, Mode::Shared);
        }
        self.take_key(txn, db, key, mode)
    }

    /// How `txn` holds `key`, if it does.
    pub fn mode_of(&self, txn: TxnId, db: usize, key: &[u8]) -> Option<Mode> {
        let lock = self.keys.get(&KeyRef(db, key))?;
        lock.holders.iter().find(|(holder, _)| *holder == txn).map(|(_, mode)| *mode)
    }

    /// Lets `txn` go from the gate, held or awaited. Adds to `woken` the transactions that get their locks because of that.
    pub fn leave_gate(&mut self, txn: TxnId, woken: &mut Vec<TxnId>) {
        self.gate.leave(txn, woken);
    }

    /// Lets `txn` go from a key, held or awaited. Adds to `woken` the transactions that get their locks because of that.
    pub fn leave_key(&mut self, txn: TxnId, db: usize, key: &[u8], woken: &mut Vec<TxnId>) {
        if let EntryRef::Occupied(mut entry) = self.keys.entry_ref(&KeyRef(db, key)) {
            entry.get_mut().leave(txn, woken);
            if entry.get().is_free() {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"k";

    fn leave(table: &mut LockTable, txn: TxnId) -> Vec<TxnId> {
        let mut woken = Vec::new();
        table.leave_key(txn, 0, KEY, &mut woken);
        woken
    }

    #[test]
    fn readers_share_and_writers_wait_in_order() {
        let mut table = LockTable::default();
        assert!(table.take_key(1, 0, KEY, Mode::Shared));
        assert!(table.take_key(2, 0, KEY, Mode::Shared));
        assert!(!table.take_key(3, 0, KEY, Mode::Exclusive));
        // Behind a writer, so that it is not starved.
        assert!(!table.take_key(4, 0, KEY, Mode::Shared));
        assert!(leave(&mut table, 1).is_empty());
        assert_eq!(leave(&mut table, 2), [3]);
        assert_eq!(leave(&mut table, 3), [4]);
        assert!(leave(&mut table, 4).is_empty());
        assert!(table.keys.is_empty());
    }

    #[test]
    fn whoever_gives_up_waiting_is_in_nobodys_way() {
        let mut table = LockTable::default();
        assert!(table.take_key(1, 0, KEY, Mode::Shared));
        assert!(!table.take_key(2, 0, KEY, Mode::Exclusive));
        assert!(!table.take_key(3, 0, KEY, Mode::Shared));
        assert_eq!(leave(&mut table, 2), [3]);
    }

    #[test]
    fn the_gate_keeps_everybody_out() {
        let mut table = LockTable::default();
        assert!(table.take_gate(1, Mode::Exclusive));
        assert!(!table.allows(0, KEY, Mode::Shared));
        assert!(!table.try_take_key(2, 0, KEY, Mode::Shared, false));
        let mut woken = Vec::new();
        table.leave_gate(1, &mut woken);
        assert!(table.allows(0, KEY, Mode::Exclusive));
        assert!(table.is_idle());
    }

    #[test]
    fn databases_are_apart() {
        let mut table = LockTable::default();
        assert!(table.take_key(1, 0, KEY, Mode::Exclusive));
        assert!(table.take_key(2, 1, KEY, Mode::Exclusive));
    }

    proptest! {
        /// Whatever happens, holders are compatible, no waiter is forgotten, and an abandoned table is empty.
        #[test]
        fn holders_are_compatible_and_everybody_is_served(
            steps in proptest::collection::vec((0u64..6, any::<bool>(), any::<bool>()), 0..200)
        ) {
            let mut table = LockTable::default();
            let mut present: Vec<TxnId> = Vec::new();
            for (txn, join, exclusive) in steps {
                let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
                if join && !present.contains(&txn) {
                    table.take_key(txn, 0, KEY, mode);
                    present.push(txn);
                } else if !join && present.contains(&txn) {
                    leave(&mut table, txn);
                    present.retain(|other| *other != txn);
                }
                let Some(lock) = table.keys.get(&KeyRef(0, KEY)) else {
                    prop_assert!(present.is_empty());
                    continue;
                };
                prop_assert_eq!(lock.holders.len() + lock.queue.len(), present.len());
                prop_assert!(!lock.holders.is_empty(), "somebody always holds it");
                let exclusive = lock.holders.iter().any(|(_, mode)| *mode == Mode::Exclusive);
                prop_assert!(!exclusive || lock.holders.len() == 1);
            }
        }
    }
}
