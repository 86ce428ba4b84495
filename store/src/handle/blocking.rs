//! Calls that wait for their keys, wherever these are.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use store_engine::{CommandError, Protocol, Reply};
use tokio::sync::Notify;

use super::Store;
use crate::call::Call;
use crate::client::{Backoff, Cluster};
use crate::node::Node;
use crate::wait::Waiter;

/// A call that waits, for a caller that ends the waiting in another way.
#[derive(Clone)]
pub enum Blocked {
    /// On the node of this process.
    Local(Arc<Waiter>),
    /// On nodes in other processes, or for no key at all.
    Remote(Arc<Ending>),
}

impl Blocked {
    /// Whether the call has no answer yet.
    pub fn is_waiting(&self) -> bool {
        match self {
            Blocked::Local(waiter) => waiter.is_waiting(),
            Blocked::Remote(ending) => ending.reply.lock().is_none(),
        }
    }

    /// Ends the waiting with this reply; `false` if the call has an answer.
    pub fn answer(&self, reply: Vec<u8>) -> bool {
        match self {
            Blocked::Local(waiter) => waiter.answer(reply),
            Blocked::Remote(ending) => ending.answer(reply),
        }
    }
}

/// How the waiting of a call is ended by others than the nodes.
#[derive(Default)]
pub struct Ending {
    reply: Mutex<Option<Vec<u8>>>,
    has_reply: Notify,
}

impl Ending {
    fn answer(&self, reply: Vec<u8>) -> bool {
        let mut first = self.reply.lock();
        let is_first = first.is_none();
        if is_first {
            *first = Some(reply);
            self.has_reply.notify_one();
        }
        is_first
    }

    /// The reply with which the waiting is ended, when there is one.
    pub async fn reply(&self) -> Vec<u8> {
        self.has_reply.notified().await;
        self.reply.lock().clone().unwrap_or_default()
    }
}

impl Store {
    /// Lets a blocking call, which has just found nothing, wait for its keys. `began` receives the handle by which others can
    /// end the waiting. Calls of one `sequence` that touch the same keys are run in their order. `clock` returns the Unix time in
    /// milliseconds. Dropping the future gives the call's place up.
    pub async fn block(
        &self,
        call: &Call<'_>,
        protocol: Protocol,
        sequence: u64,
        clock: impl Fn() -> u64,
        began: impl FnOnce(Blocked),
    ) -> Result<Vec<u8>, CommandError> {
        match self {
            Store::Local(node) => block_local(node, call, protocol, clock, began).await,
            Store::Distributed(cluster) => block_remote(cluster, call, protocol, sequence, began).await,
        }
    }

    /// How many calls wait for keys, if this process knows that.
    pub fn blocked(&self) -> Option<usize> {
        self.node().map(|node| node.waiting())
    }
}

async fn block_local(
    node: &Arc<Node>,
    call: &Call<'_>,
    protocol: Protocol,
    clock: impl Fn() -> u64,
    began: impl FnOnce(Blocked),
) -> Result<Vec<u8>, CommandError> {
    let mut blocked = node.block(call, protocol);
    began(Blocked::Local(blocked.waiter().clone()));
    let failed = CommandError::new("ERR internal error: the task that executed this call failed");
    blocked.reply(clock).await.ok_or(failed)
}

async fn block_remote(
    cluster: &Arc<Cluster>,
    call: &Call<'_>,
    protocol: Protocol,
    sequence: u64,
    began: impl FnOnce(Blocked),
) -> Result<Vec<u8>, CommandError> {
    let ending = Arc::<Ending>::default();
    began(Blocked::Remote(ending.clone()));
    let mut backoff = Backoff::default();
    loop {
        let waiting = cluster.wait(call, protocol);
        let (notify_only, map) = (waiting.notify_only, waiting.map.clone());
        let (reply, cancel) = waiting.reply(cluster);
        let mut reply = pin!(reply);
        if notify_only {
            // Only now, as the nodes report whatever comes from here on.
            let mut out = Reply::new(protocol);
            cluster.execute(call, sequence, &mut 0, &mut out).await;
            if !out.is_null_from(0) {
                return Ok(out.buf);
            }
            if *cluster.map() != *map {
                // Other nodes may have the keys now.
                continue;
            }
        }
        tokio::select! {
            biased;
            wakeup = &mut reply => match wakeup? {
                Some(wakeup) if notify_only && wakeup.is_empty() => continue,
                Some(reply) => return Ok(reply.to_vec()),
                None => {}
            },
            end = ending.reply() => {
                if notify_only {
                    return Ok(end);
                }
                cancel.cancel();
                let last = reply.await?.unwrap_or_default();
                let nothing = last.is_empty() || Reply::append_to(last.to_vec(), protocol).is_null_from(0);
                return Ok(if nothing { end } else { last.to_vec() });
            }
        }
        // Slots have moved, and the call waits where they are now.
        tokio::select! {
            biased;
            again = backoff.again() => again?,
            end = ending.reply() => return Ok(end),
        }
    }
}
