//! A call that waits, until its reply comes or its client leaves: its place in the queues of [`crate::wait`].

use std::sync::Arc;

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
    pub async fn received(&mut self) -> Option<Vec<u8>> {
        tokio::select! {
            biased;
            reply = &mut self.hears => reply.ok(),
            () = self.waiter.wakeup() => Some(Vec::new()),
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
            }
        }
    }
}

/// Locks everything that the call may use and serves the calls that wait for its keys.
async fn look(node: &Arc<Node>, waiter: &Waiter, clock: &impl Fn() -> u64) {
    let mut txn = LocalTransaction::begin(node, waiter.locks()).await;
    txn.serve(waiter.keys().into(), clock());
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
