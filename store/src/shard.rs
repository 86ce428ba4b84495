//! One lockable share of the data: a partition, its lock table and who waits for its keys, behind one short mutex.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use store_engine::{Effects, Partition};
use tokio::sync::oneshot;

use crate::lock::{LockTable, Mode, TxnId};
use crate::wait::{Queues, Waiter};

/// Aligned to two cache lines, so that neighbours do not slow each other down.
#[repr(align(128))]
pub(crate) struct Shard {
    state: Mutex<ShardState>,
}

#[derive(Default)]
pub(crate) struct ShardState {
    pub partition: Partition,
    pub locks: LockTable,
    pub queues: Queues,
    /// Of the call that runs; kept for its memory.
    pub effects: Effects,
    waiting: HashMap<TxnId, oneshot::Sender<()>>,
}

impl Shard {
    pub fn new(partition: Partition) -> Shard {
        Shard { state: Mutex::new(ShardState { partition, ..ShardState::default() }) }
    }

    pub fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock()
    }
}

impl ShardState {
    /// Whether a call that is no transaction may touch this key now. Not if that could serve somebody who waits.
    pub fn allows(&self, db: usize, key: &[u8], mode: Mode) -> bool {
        (self.locks.is_idle() || self.locks.allows(db, key, mode))
            && (self.queues.is_empty() || mode == Mode::Shared || !self.queues.awaits(db, key))
    }

    /// The first one behind number `after` in the queue of this key whom its present value would serve.
    pub fn next_waiter(&self, db: usize, key: &[u8], after: u64, now_ms: u64) -> Option<Arc<Waiter>> {
        let entry = self.partition.databases[db].peek(key, now_ms)?;
        self.queues.next(db, key, after, &entry.value)
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
