//! How a transaction ends: its locks are released, its changes are committed or rolled back. A large transaction ends on a
//! thread that serves no connections.

use std::collections::VecDeque;

use smallvec::SmallVec;
use store_engine::discard::discard;
use store_engine::keyspace::Key;
use store_engine::wait::Verdict;
use store_engine::{Effects, Reply};
use tokio::runtime::Handle;

use super::locks::Locks;
use super::{Conflict, LocalTransaction, MANY, TxnLimits};
use crate::call::Call;
use crate::catalog::CatalogChanges;
use crate::journal::LARGE_RECORD_BYTES;
use crate::lock::Mode;

impl LocalTransaction {
    /// Commits all changes, serves the calls that wait for them, and unlocks the keys.
    pub fn commit(mut self: Box<Self>) {
        self.keep_part();
        self.limits = TxnLimits::default();
        self.node.record_with(&mut self.effects, std::mem::take(&mut self.records));
        self.node.notifier.publish(&mut self.events);
        self.undo.notify_watchers();
        let mut undo = std::mem::take(&mut self.undo);
        let bytes = undo.bytes();
        if self.node.waiting() == 0 {
            // A call that has just begun to wait looks once more when the keys are unlocked.
            return discard(undo, bytes);
        }
        let everywhere = undo.is_everywhere();
        let mut changed: VecDeque<_> = undo.take_keys().into_iter().collect();
        discard(undo, bytes);
        if everywhere {
            let shards = 0..self.node.shards();
            changed.extend(
                shards.flat_map(|number| self.node.shard(number).lock().queues.keys().collect::<Vec<_>>()),
            );
        }
        self.serve(changed, self.now_ms);
    }

    /// Serves the calls that wait for the keys in `changed`, all of which are locked: key by key in the order of their
    /// change, as Redis does, and for each key in the order in which the calls began to wait. An element that moves from one
    /// list to another may serve more calls.
    ///
    /// A call that cannot be served because its destination is locked looks again when it gets that lock; the calls behind
    /// it do not wait for it.
    pub(crate) fn serve(&mut self, mut changed: VecDeque<(usize, Key)>, now_ms: u64) {
        let node = self.node.clone();
        while let Some((db, key)) = changed.pop_front() {
            let shard = node.shard(node.shard_of(&key));
            let mut after = 0;
            loop {
                let next = shard.lock().next_waiter(db, &key, after, now_ms);
                let Some((waiter, verdict)) = next else { break };
                after = waiter.number();
                if let Verdict::Refuse(error) = verdict {
                    waiter.refuse(&error);
                    continue;
                }
                if waiter.is_notify_only() {
                    waiter.wake();
                    continue;
                }
                waiter.with_call_on(&key, now_ms, |call| {
                    if self.secure(call).is_err() || self.is_long(call) {
                        return waiter.wake();
                    }
                    let Some(answer) = waiter.claim() else { return };
                    shard.lock().queues.leave(db, &key, after);
                    let mut out = Reply::new(waiter.protocol());
                    let done = self.execute(call, Mode::Exclusive, &mut 0, &mut out);
                    debug_assert!(done.is_ok(), "everything that it needs is locked");
                    match answer.send(out.buf) {
                        Ok(()) => {
                            self.node.record(&mut self.effects);
                            self.node.notifier.publish(&mut self.events);
                            self.undo.notify_watchers();
                            let mut undo = std::mem::take(&mut self.undo);
                            changed.extend(undo.take_keys());
                            let bytes = undo.bytes();
                            discard(undo, bytes);
                        }
                        // Its client has gone in this moment.
                        Err(_) => {
                            self.effects.clear();
                            self.events.clear();
                            self.roll_back();
                        }
                    }
                });
            }
        }
    }

    /// Locks what `call` needs, as far as that is free.
    fn secure(&mut self, call: &Call<'_>) -> Result<(), Conflict> {
        let mut guards = self.node.lock_shards_of(call);
        self.locks.secure_all(&self.node, &mut guards, call, Mode::Exclusive).map(drop)
    }

    /// Whether it takes long to roll it back, or to release its keys.
    fn is_large(&self) -> bool {
        self.undo.steps() + self.locks.keys.len() > MANY
    }

    /// [`LocalTransaction::commit`], on a thread for what takes long if it does. After a large record it waits for the writer of the
    /// journal.
    pub async fn commit_any(self: Box<Self>) {
        let is_large = self.recorded_bytes + self.effects.as_bytes().len() >= LARGE_RECORD_BYTES;
        let node = is_large.then(|| self.node.clone());
        self.commit_somewhere().await;
        if let Some(journal) = node.as_ref().and_then(|node| node.journal()) {
            journal.make_room().await;
        }
    }

    async fn commit_somewhere(self: Box<Self>) {
        if !self.is_large() {
            return self.commit();
        }
        // It goes on if its caller is cancelled.
        if let Err(error) = tokio::task::spawn_blocking(move || self.commit()).await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    /// What is left to be rolled back and released, for another thread.
    fn take_apart(&mut self) -> LocalTransaction {
        let empty =
            Locks { id: self.locks.id, gates: SmallVec::new(), keys: SmallVec::new(), whole: false, last: 0 };
        LocalTransaction {
            node: self.node.clone(),
            locks: std::mem::replace(&mut self.locks, empty),
            undo: std::mem::take(&mut self.undo),
            effects: Effects::default(),
            records: CatalogChanges::default(),
            before: None,
            limits: self.limits,
            data_bytes: self.data_bytes,
            recorded_bytes: 0,
            events: Vec::new(),
            now_ms: self.now_ms,
            is_apart: true,
        }
    }
}

impl Drop for LocalTransaction {
    fn drop(&mut self) {
        self.keep_part();
        if self.is_large()
            && !self.is_apart
            && let Ok(runtime) = Handle::try_current()
        {
            let rest = self.take_apart();
            runtime.spawn_blocking(move || drop(rest));
            return;
        }
        if !self.undo.is_empty() {
            self.roll_back();
        }
        let mut woken = Vec::new();
        for &number in &self.locks.gates {
            let mut shard = self.node.shard(number).lock();
            for held in self.locks.keys.iter().filter(|held| held.shard == number) {
                shard.locks.leave_key(self.locks.id, held.request.db, &held.request.key, &mut woken);
            }
            shard.locks.leave_gate(self.locks.id, &mut woken);
            shard.forget(self.locks.id);
            shard.wake(&woken);
            woken.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store_engine::effect::EntryMeta;

    use super::*;
    use crate::lock::LockRequest;
    use crate::node::Node;
    use crate::txn::Found;

    fn request(key: usize, mode: Mode) -> LockRequest {
        LockRequest { db: 0, key: key.to_string().into_bytes().into(), mode }
    }

    /// A transaction that has put something under so many keys.
    async fn writer(node: &Arc<Node>, keys: usize) -> Box<LocalTransaction> {
        let requests = (0..keys).map(|key| request(key, Mode::Exclusive)).collect();
        let mut txn = LocalTransaction::begin(node, requests).await;
        let mut changes = Effects::default();
        for key in 0..keys {
            changes.put_string(0, key.to_string().as_bytes(), b"value", EntryMeta::default());
        }
        txn.apply(changes.as_bytes(), 1).expect("sound changes");
        txn
    }

    #[tokio::test]
    async fn transactions_of_any_size_end_as_a_whole() {
        for keys in [10, MANY + 10, 3 * MANY] {
            let node = Node::new(4);
            drop(writer(&node, keys).await);
            // Another transaction gets a key when the last change is rolled back.
            for key in [0, keys / 2, keys - 1] {
                let reader = LocalTransaction::begin(&node, vec![request(key, Mode::Shared)]).await;
                assert_eq!(
                    reader.value(0, key.to_string().as_bytes(), 100, 2),
                    Found::Nothing,
                    "{key} of {keys}"
                );
            }
            assert_eq!(LocalTransaction::begin_whole(&node).await.node.usage().keys[0], 0);
            writer(&node, keys).await.commit_any().await;
            let whole = LocalTransaction::begin_whole(&node).await;
            assert_eq!(whole.node.usage().keys[0], keys);
            assert!(matches!(whole.value(0, b"0", 100, 2), Found::Entry(_)));
        }
    }
}
