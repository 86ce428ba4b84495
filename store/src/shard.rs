//! One lockable share of the data: a partition, its lock table and who waits for its keys, behind one short mutex.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use store_engine::wait::Verdict;
use store_engine::{Effects, Partition, Partitions};
use tokio::sync::oneshot;

use crate::invalidations::Invalidations;
use crate::lock::{LockTable, Mode, TxnId};
use crate::memory::{Account, Usage};
use crate::wait::{Queues, Waiter};

/// Aligned to two cache lines, so that neighbours do not slow each other down.
#[repr(align(128))]
pub(crate) struct Shard {
    state: Mutex<ShardState>,
    account: Arc<Account>,
    invalidations: Arc<Invalidations>,
}

/// A locked shard. When it is let go, the node's account learns of its size, and clients that keep copies of what has
/// changed.
pub(crate) struct ShardGuard<'a> {
    state: MutexGuard<'a, ShardState>,
    account: &'a Account,
    invalidations: &'a Arc<Invalidations>,
}

impl Deref for ShardGuard<'_> {
    type Target = ShardState;

    fn deref(&self) -> &ShardState {
        &self.state
    }
}

impl DerefMut for ShardGuard<'_> {
    fn deref_mut(&mut self) -> &mut ShardState {
        &mut self.state
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.account.is_kept() || self.invalidations.are_enabled() {
            self.publish();
        }
    }
}

impl ShardGuard<'_> {
    #[inline(never)] // Mostly no client keeps copies, and that is known at once.
    fn publish(&mut self) {
        if self.account.is_kept() {
            self.state.publish(self.account);
        }
        if self.invalidations.are_enabled() {
            self.invalidations.publish(&mut self.state.partition);
        }
    }
}

#[derive(Default)]
pub(crate) struct ShardState {
    pub partition: Partition,
    pub locks: LockTable,
    pub queues: Queues,
    /// Of the call that runs; kept for its memory.
    pub effects: Effects,
    /// What there is while everything was taken out by a long call.
    pub away: Option<Usage>,
    /// Bytes as the account knows them.
    reported_bytes: usize,
    waiting: HashMap<TxnId, oneshot::Sender<()>>,
}

impl Shard {
    pub fn new(partition: Partition, account: &Arc<Account>, invalidations: &Arc<Invalidations>) -> Shard {
        let state = Mutex::new(ShardState { partition, ..ShardState::default() });
        let shard = Shard { state, account: account.clone(), invalidations: invalidations.clone() };
        // The account learns of what is there already.
        drop(shard.lock());
        shard
    }

    pub fn lock(&self) -> ShardGuard<'_> {
        ShardGuard { state: self.state.lock(), account: &self.account, invalidations: &self.invalidations }
    }
}

impl ShardState {
    /// Adds what has changed since the last time to the account.
    fn publish(&mut self, account: &Account) {
        if self.away.is_some() {
            return;
        }
        let bytes = self.partition.bytes();
        account.changed(std::mem::replace(&mut self.reported_bytes, bytes), bytes);
    }

    /// How many keys there are and what they take.
    pub fn usage(&self) -> Usage {
        if let Some(away) = self.away {
            return away;
        }
        let mut usage = Usage { bytes: self.partition.bytes(), ..Usage::default() };
        for (db, space) in self.partition.databases.iter().enumerate() {
            usage.keys[db] = space.len();
            usage.expiring[db] = space.expiring();
            usage.sticky[db] = space.sticky();
        }
        usage
    }

    /// The size with which an account begins.
    pub fn reported_bytes(&mut self) -> usize {
        self.reported_bytes = self.usage().bytes;
        self.reported_bytes
    }

    /// Whether a call that is no transaction may touch this key now. Not if that could serve a waiter.
    pub fn allows(&self, db: usize, key: &[u8], mode: Mode) -> bool {
        (self.locks.is_idle() || self.locks.allows(db, key, mode))
            && (self.queues.is_empty() || mode == Mode::Shared || !self.queues.awaits(db, key))
    }

    /// The first one behind number `after` in the queue of this key whose waiting its present value ends, and how.
    pub fn next_waiter(
        &self,
        db: usize,
        key: &[u8],
        after: u64,
        now_ms: u64,
    ) -> Option<(Arc<Waiter>, Verdict)> {
        let entry = self.partition.databases[db].peek(key, now_ms);
        self.queues.next(db, key, after, entry.map(|entry| &entry.value), now_ms)
    }

    /// Where `txn`, which has just queued for a lock, hears that it was granted.
    pub fn await_grant(&mut self, txn: TxnId) -> oneshot::Receiver<()> {
        let (granted, hears) = oneshot::channel();
        self.waiting.insert(txn, granted);
        hears
    }

    /// Tells those transactions that the lock they waited for is theirs.
    pub fn wake(&mut self, granted: &[TxnId]) {
        for txn in granted {
            if let Some(waiter) = self.waiting.remove(txn) {
                // A waiter that is gone gives the lock back when its transaction is dropped.
                let _ = waiter.send(());
            }
        }
    }

    /// Forgets a waiter that gives up.
    pub fn forget(&mut self, txn: TxnId) {
        self.waiting.remove(&txn);
    }
}

/// Locked shards with their numbers, ascending.
pub(crate) type Guards<'a> = SmallVec<[(usize, ShardGuard<'a>); 8]>;

/// Several of `total` locked shards, as commands see them.
pub(crate) fn partitions_of<'a>(guards: &'a mut [(usize, ShardGuard<'_>)], total: usize) -> Partitions<'a> {
    let held = guards.iter_mut().map(|(number, shard)| (*number, &mut shard.partition)).collect();
    Partitions::Some { held, total }
}
