//! A call that waits, until its reply comes or its client leaves: its place in the queues of [`crate::wait`].

use std::sync::Arc;
use std::time::Duration;

use store_engine::Protocol;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::node::Node;
use crate::txn::LocalTransaction;
use crate::wait::Waiter;

impl Node {
    /// Lets a blocking call, which has just found nothing, wait for its keys.
    pub fn block(self: &Arc<Self>, call: &Call<'_>, protocol: Protocol) -> BlockedCall {
        BlockedCall::new(self, call, protocol, false)
    }

    /// Lets a blocking call wait that this node cannot serve, as its other keys are on other nodes: it is notified when
    /// something comes to a key that is here. Those behind it in a queue do not wait with it.
    pub fn block_for_wakeup(self: &Arc<Self>, call: &Call<'_>, protocol: Protocol) -> BlockedCall {
        BlockedCall::new(self, call, protocol, true)
    }
}

/// A place in the queues of the keys that a call waits for. It is given up when this is dropped.
pub struct BlockedCall {
    node: Arc<Node>,
    waiter: Arc<Waiter>,
    hears: oneshot::Receiver<Vec<u8>>,
}

impl BlockedCall {
    pub(crate) fn new(
        node: &Arc<Node>,
        call: &Call<'_>,
        protocol: Protocol,
        notify_only: bool,
    ) -> BlockedCall {
        let (answer, hears) = oneshot::channel();
        let waiter =
            Arc::new(Waiter::new(node.next_txn(), call, protocol, node.waiting.clone(), notify_only));
        for (db, key) in waiter.keys() {
            node.shard(node.shard_of(&key)).lock().queues.join(db, &key, &waiter);
        }
        // Only now can it be served: a waiter that is counted stands in all its queues.
        waiter.begin(answer);
        BlockedCall { node: node.clone(), waiter, hears }
    }

    /// The waiter, for a caller that ends the waiting in another way.
    pub fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Waits until one of its keys has changed, and returns an empty reply; or the reply that ended the waiting.
    pub async fn received(&mut self, clock: impl Fn() -> u64) -> Option<Vec<u8>> {
        let BlockedCall { node, waiter, hears } = self;
        tokio::select! {
            biased;
            reply = hears => reply.ok(),
            () = waiter.wakeup() => Some(Vec::new()),
            () = until_claimable(node, waiter, &clock) => Some(Vec::new()),
        }
    }

    /// The reply, when it comes; `None` if the task that was about to send it failed. `clock` returns the Unix time in
    /// milliseconds.
    pub async fn reply(&mut self, clock: impl Fn() -> u64) -> Option<Vec<u8>> {
        let BlockedCall { node, waiter, hears } = self;
        loop {
            // At first because something may have come before the place in the queue was taken.
            tokio::select! {
                biased;
                reply = &mut *hears => return reply.ok(),
                () = look(node, waiter, &clock) => {}
            }
            tokio::select! {
                biased;
                reply = &mut *hears => return reply.ok(),
                () = waiter.wakeup() => {}
                () = until_claimable(node, waiter, &clock) => {}
            }
        }
    }
}

/// Locks everything that the call may use and serves the calls that wait for its keys.
async fn look(node: &Arc<Node>, waiter: &Waiter, clock: &impl Fn() -> u64) {
    let mut txn = LocalTransaction::begin(node, waiter.locks()).await;
    txn.serve(waiter.keys().into(), clock());
}

/// The shortest and longest pauses, in milliseconds, after which one that claims entries looks when it can. It looks at all that
/// are pending, and a client can reset the idle time of an entry.
const PAUSE_MS: (u64, u64) = (20, 10_000);

/// Waits until there is an entry that the call can claim. For ever, if it claims none.
async fn until_claimable(node: &Node, waiter: &Waiter, clock: &impl Fn() -> u64) {
    let Some(claim_ms) = waiter.claim_ms() else { return std::future::pending().await };
    loop {
        let now_ms = clock();
        let first = |(db, key): (usize, Box<[u8]>)| {
            let shard = node.shard(node.shard_of(&key)).lock();
            let entry = shard.partition.databases[db].peek(&key, now_ms);
            waiter.claimable_ms(&key, entry.map(|entry| &entry.value))
        };
        let first = waiter.keys().into_iter().filter_map(first).min();
        // Those that are delivered from now on cannot be claimed earlier than that.
        let pause = first.map_or(claim_ms, |at| at.saturating_sub(now_ms).min(claim_ms));
        tokio::time::sleep(Duration::from_millis(pause.clamp(PAUSE_MS.0, PAUSE_MS.1))).await;
        if first.is_some_and(|at| at <= clock()) {
            return;
        }
    }
}

impl Drop for BlockedCall {
    fn drop(&mut self) {
        drop(self.waiter.claim());
        for (db, key) in self.waiter.keys() {
            let mut shard = self.node.shard(self.node.shard_of(&key)).lock();
            shard.queues.leave(db, &key, self.waiter.number());
        }
    }
}
