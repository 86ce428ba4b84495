//! One lockable share of the data: a partition and its lock table behind one short mutex.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use store_engine::Partition;
use tokio::sync::oneshot;

use crate::lock::{LockTable, TxnId};

/// Aligned to two cache lines, so that neighbours do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Shard {
    state: Mutex<ShardState>,
}

#[derive(Default)]
pub(crate) struct ShardState {
    pub partition: Partition,
    pub locks: LockTable,
    waiting: HashMap<TxnId, oneshot::Sender<()>>,
}

impl Shard {
    pub fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock()
    }
}

impl ShardState {
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
