//! The calls of a script without atomicity: performed as if a client sent them.

use std::time::Duration;

use script::{CallFlags, HostCall};
use store::{Call, Store};
use store_engine::work::LONG_CALL_STEPS;
use store_engine::{CommandError, Protocol, Reply};

use super::{Common, Locking, Performed, ScriptHost};
use crate::admission::{Admitted, ScriptMemory};
use crate::scripting::answer::can_wait;
use crate::scripting::channels::{Asking, answer_count, reply_channels};
use crate::scripting::queue::Queue;
use crate::scripting::slices::Pace;
use crate::server::gateways;
use crate::session::pubsub::Message;
use crate::telemetry::counters::{unix_ms, unix_time};

/// The state of a script that gave up atomicity.
pub(in crate::scripting) struct Unlocked {
    seed: u64,
    /// Bytes by which the data may exceed `maxmemory` before calls that need memory are refused.
    oom_slack_bytes: usize,
    /// Calls that wait to be sent.
    queue: Queue,
    /// How many of them were sent already.
    sent: usize,
    /// Whether calls of `redis.call` are collected, or only those of `redis.acall`.
    collects: bool,
    /// The call that waits for its keys, with the protocol of its reply.
    waiting: Option<(Queue, Protocol)>,
    /// Steps of collected calls that are not paid for yet.
    unpaid_steps: u64,
    /// The error of a collected call: the script ends with it before its next call.
    pub failed: Option<CommandError>,
    /// How the script gives way.
    pace: Pace,
}

impl Locking for Unlocked {
    fn memory(&self) -> ScriptMemory {
        ScriptMemory::Present { slack_bytes: self.oom_slack_bytes }
    }

    fn clock(&mut self) -> Option<Duration> {
        Some(unix_time())
    }

    fn publish(&mut self, common: &Common, asking: Asking, out: &mut Reply) -> Result<Performed, Asking> {
        // Behind what was written before it.
        let is_sent = self.send(&common.server.store);
        match asking {
            Asking::Publish(message) if is_sent && !common.server.store.is_shared() => {
                if self.failed.is_some() {
                    return Ok(Performed::Stopped(HostCall::Stop));
                }
                let Message { shard, channel, text } = message;
                out.count(common.server.sessions.pubsub.publish(shard, &channel, &text));
                Ok(Performed::Answered { fine: true })
            }
            asking => Err(asking),
        }
    }

    fn execute(
        &mut self,
        common: &Common,
        admitted: Admitted<'_>,
        flags: CallFlags,
        out: &mut Reply,
    ) -> Performed {
        let (server, db) = (&common.server, common.db);
        let performed =
            if flags.unused() && (self.collects || flags.explicitly_async()) && can_wait(&admitted) {
                self.queue.push(&admitted, db, flags.protected());
                let is_full = self.queue.bytes() >= server.config.script_queue_max.get_usize();
                if is_full && !self.send(&server.store) {
                    return Performed::Waits;
                }
                Performed::Collected
            } else {
                let is_sent = self.send(&server.store) && !server.store.is_far_ahead_of_disk();
                if self.failed.is_some() {
                    return Performed::Stopped(HostCall::Stop);
                }
                let call = admitted.at(db, unix_ms());
                let done = if is_sent { server.store.try_execute(&call, &mut self.seed, out) } else { None };
                let Some(fine) = done else {
                    let mut alone = Queue::default();
                    alone.push(&admitted, db, true);
                    self.waiting = Some((alone, out.protocol));
                    return Performed::Waits;
                };
                Performed::Answered { fine }
            };
        out.steps += std::mem::take(&mut self.unpaid_steps);
        if self.failed.is_some() { Performed::Stopped(HostCall::Stop) } else { performed }
    }

    async fn finish(
        &mut self,
        common: &Common,
        asking: Option<Asking>,
        out: &mut Reply,
    ) -> Result<(), HostCall> {
        let server = &common.server;
        self.send_all(common).await;
        if self.failed.is_some() {
            return Err(HostCall::Stop);
        }
        out.steps = std::mem::take(&mut self.unpaid_steps);
        match asking {
            Some(Asking::Publish(Message { shard, channel, text })) => {
                answer_count(gateways::publish(server, shard, &channel, &text).await, out);
            }
            Some(Asking::Channels(call, protocol)) => reply_channels(server, &call, protocol, out).await,
            None => {}
        }
        if let Some((call, protocol)) = self.waiting.take() {
            out.protocol = protocol;
            let store = &server.store;
            store.wait_for_disk().await;
            store.execute(&call.get(0).at(0), common.caller.client, unix_ms, &mut self.seed, out).await;
        }
        Ok(())
    }

    fn slice_fuel(&self) -> Option<u64> {
        Some(self.pace.slice_fuel())
    }
}

impl ScriptHost<Unlocked> {
    /// Sends collected calls, and waits for keys where that is needed.
    pub async fn send_all(&mut self) {
        self.locking.send_all(&self.common).await;
    }
}

/// The error of a call whose reply is not read.
fn error_in(reply: &[u8]) -> CommandError {
    let text = String::from_utf8_lossy(reply);
    CommandError::owned(text.trim_start_matches('-').trim_end().to_owned())
}

impl Unlocked {
    /// For a run that begins now.
    pub fn new(seed: u64, oom_slack_bytes: usize, collects: bool, pace: Pace) -> Unlocked {
        Unlocked {
            seed,
            oom_slack_bytes,
            queue: Queue::default(),
            sent: 0,
            collects,
            waiting: None,
            unpaid_steps: 0,
            failed: None,
            pace,
        }
    }

    /// Sends collected calls, in their order, until one finds its keys locked. Whether all are sent.
    ///
    /// One that fails does not stop those behind it: on another node they may be done before it.
    fn send(&mut self, store: &Store) -> bool {
        let Unlocked { seed, queue, sent, failed, unpaid_steps, .. } = self;
        let mut unread = Reply::new(Protocol::Resp2);
        while *sent < queue.len() {
            if unread.steps > LONG_CALL_STEPS || store.is_far_ahead_of_disk() {
                // Others have their turn, or the disk has.
                return false;
            }
            unread.buf.clear();
            let call = queue.get(*sent);
            let before = unread.steps;
            let done = store.try_execute(&call.at(unix_ms()), seed, &mut unread);
            *unpaid_steps += unread.steps - before;
            match done {
                None => return false,
                Some(fine) if fine || !queue.error_counts(*sent) => {}
                Some(_) => *failed = failed.take().or_else(|| Some(error_in(&unread.buf))),
            }
            *sent += 1;
        }
        queue.clear();
        *sent = 0;
        true
    }

    /// Sends collected calls and waits for keys where that is needed.
    async fn send_all(&mut self, common: &Common) {
        let store = &common.server.store;
        while !self.send(&common.server.store) {
            if self.send_together(common).await {
                continue;
            }
            store.wait_for_disk().await;
            let mut unread = Reply::new(Protocol::Resp2);
            let call = self.queue.get(self.sent);
            let client = common.caller.client;
            let fine = store.execute(&call.at(0), client, unix_ms, &mut self.seed, &mut unread).await;
            self.unpaid_steps += unread.steps;
            if !fine && self.queue.error_counts(self.sent) {
                self.failed = self.failed.take().or_else(|| Some(error_in(&unread.buf)));
            }
            self.sent += 1;
            tokio::task::yield_now().await;
        }
    }

    /// Sends them to the nodes that have their keys, together; what is on its way is not sent again. `false`: they are to be
    /// sent one by one.
    async fn send_together(&mut self, common: &Common) -> bool {
        // Taken before anything is awaited: the run may end meanwhile, and then sends what is in the queue.
        let queue = std::mem::take(&mut self.queue);
        let sent = {
            let (store, client) = (&common.server.store, common.caller.client);
            let calls: Vec<_> = queue.calls().collect();
            let calls: Vec<Call<'_>> = calls.iter().map(|call| call.at(0)).collect();
            store.execute_together(&calls, client, &mut self.seed).await
        };
        let Some(failed) = sent else {
            self.queue = queue;
            return false;
        };
        let first = failed.iter().find(|(at, _)| queue.error_counts(*at));
        self.failed = first.map(|(_, reply)| error_in(reply));
        true
    }
}
