//! What the calls of a script without atomicity pass: admission, then the store, as if a client sent them.

use std::sync::Arc;
use std::time::Instant;

use script::{CallFlags, Finishing, Host, HostCall, LogLevel};
use store::{Call, Cluster};
use store_engine::work::LONG_CALL_STEPS;
use store_engine::{Args, CommandError, Protocol, Reply};

use super::answer::{CALL_FUEL, can_wait, ended, protocol_of, reply_in};
use super::caller::{Caller, Calling, admit};
use super::channels::{Asking, about_channels, answer_count, reply_channels};
use super::declared::Declared;
use super::inline;
use super::queue::Queue;
use super::slices::Pace;
use super::trace::report_call;
use crate::admission::{Admitted, Recent};
use crate::server::Row;
use crate::server::Server;
use crate::server::gateways;
use crate::session::pubsub::Message;
use crate::session::tracking::Reader;
use crate::telemetry::counters::{unix_ms, unix_time};
use crate::telemetry::script_trace::Trace;

/// The host of a script that gave up atomicity.
pub(super) struct UnlockedHost {
    pub server: Arc<Server>,
    pub db: usize,
    pub seed: u64,
    /// Whose calls are done in their order.
    pub caller: Caller,
    pub read_only: bool,
    /// Bytes by which the data may exceed `maxmemory` before its calls that need memory are refused.
    pub oom_slack_bytes: usize,
    pub recent: Recent,
    /// The only keys the script may touch, where its user's limits say so.
    pub declared: Option<Declared>,
    /// Calls that wait to be sent.
    pub queue: Queue,
    /// How many of them were sent already.
    pub sent: usize,
    /// Whether calls of `redis.call` are collected, or only those of `redis.acall`.
    pub collects: bool,
    /// The call that waits for its keys, with the protocol of its reply.
    pub waiting: Option<(Queue, Protocol)>,
    /// Most bytes of a call's reply.
    pub reply_bytes: usize,
    /// Steps of collected calls that are not paid for yet.
    pub unpaid_steps: u64,
    /// The error of a collected call: the script ends with it before its next call.
    pub failed: Option<CommandError>,
    /// A call about channels, to be answered next.
    pub asking: Option<Asking>,
    /// Who hears when what it reads changes.
    pub reader: Option<Reader>,
    /// How it gives way.
    pub pace: Pace,
    /// Where to tell of its calls, if somebody asks.
    pub trace: Option<Arc<Trace>>,
}

/// A reply was an error that nobody sees otherwise.
fn error_in(reply: &[u8]) -> CommandError {
    let text = String::from_utf8_lossy(reply);
    CommandError::owned(text.trim_start_matches('-').trim_end().to_owned())
}

impl UnlockedHost {
    /// Sends collected calls, in their order, until one finds its keys locked. Whether all are sent.
    ///
    /// One that fails does not stop those behind it: on another node they may be done before it.
    fn send(&mut self) -> bool {
        let UnlockedHost { server, seed, queue, sent, failed, unpaid_steps, .. } = self;
        let mut unread = Reply::new(Protocol::Resp2);
        while *sent < queue.len() {
            if unread.steps > LONG_CALL_STEPS || server.store.is_far_ahead_of_disk() {
                // Others have their turn, or the disk has.
                return false;
            }
            unread.buf.clear();
            let args = queue.args(*sent);
            let before = unread.steps;
            let done = server.store.try_execute(&queue.call(*sent, &args, unix_ms()), seed, &mut unread);
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
    pub async fn send_all(&mut self) {
        while !self.send() {
            if let Some(cluster) = self.server.store.cluster().cloned() {
                self.send_remote(&cluster).await;
                continue;
            }
            self.server.store.wait_for_disk().await;
            let mut unread = Reply::new(Protocol::Resp2);
            let args = self.queue.args(self.sent);
            let call = self.queue.call(self.sent, &args, 0);
            let store = &self.server.store;
            let fine = store.execute(&call, self.caller.client, unix_ms, &mut self.seed, &mut unread).await;
            self.unpaid_steps += unread.steps;
            if !fine && self.queue.error_counts(self.sent) {
                self.failed = self.failed.take().or_else(|| Some(error_in(&unread.buf)));
            }
            self.sent += 1;
            tokio::task::yield_now().await;
        }
    }

    /// Sends them to the nodes that have their keys, together. What is on its way is not sent again.
    async fn send_remote(&mut self, cluster: &Arc<Cluster>) {
        let queue = std::mem::take(&mut self.queue);
        let args: Vec<_> = (0..queue.len()).map(|at| queue.args(at)).collect();
        let calls = args.iter().enumerate().map(|(at, args)| queue.call(at, args, 0));
        let calls: Vec<Call<'_>> = calls.collect();
        let failed = Box::pin(cluster.execute_all(&calls, self.caller.client, &mut self.seed)).await;
        let first = failed.iter().find(|(at, _)| queue.error_counts(*at));
        self.failed = first.map(|(_, reply)| error_in(reply));
    }

    fn answer(&mut self, args: Args<'_>, flags: CallFlags, out: &mut Reply) -> HostCall {
        let calling = Calling {
            server: &self.server,
            caller: &self.caller,
            declared: self.declared.as_ref(),
            read_only: self.read_only,
            db: self.db,
        };
        let is_full = || self.server.memory_exceeds_limit(self.oom_slack_bytes);
        let admitted = match admit(calling, args, &mut self.recent, is_full) {
            Ok(admitted) => admitted,
            Err(error) => {
                out.error(&error);
                return HostCall::Done(CALL_FUEL);
            }
        };
        self.server.calls.add_untimed(admitted.number, false);
        if let Some(reader) = &self.reader {
            reader.note(&self.server.tracking, &self.server.pubsub, admitted.spec);
        }
        if let Some(asking) = about_channels(&admitted, out.protocol) {
            // Behind what was written before it.
            let sent = self.send();
            match (asking, self.server.store.node()) {
                (Asking::Publish(message), Some(_)) if sent => {
                    if self.failed.is_some() {
                        return HostCall::Stop;
                    }
                    out.count(self.server.pubsub.publish(message.shard, &message.channel, &message.text));
                    return HostCall::Done(CALL_FUEL);
                }
                (asking, _) => {
                    self.asking = Some(asking);
                    return HostCall::Later;
                }
            }
        }
        if matches!(admitted.row, Row::Session(_)) {
            inline::answer(&self.server, &self.caller, &admitted, &mut self.db, unix_time(), out);
            return ended(out);
        }
        if flags.unused() && (self.collects || flags.explicitly_async()) && can_wait(&admitted) {
            self.queue.push(admitted, self.db, flags.protected());
            let full = self.queue.bytes() >= self.server.config.script_queue_max.get_usize();
            if full && !self.send() {
                return HostCall::Later;
            }
        } else {
            let sent = self.send() && !self.server.store.is_far_ahead_of_disk();
            let Admitted { spec, ref keys, .. } = admitted;
            let call = Call { command: spec, args, keys, db: self.db, now_ms: unix_ms() };
            if self.failed.is_none()
                && (!sent || self.server.store.try_execute(&call, &mut self.seed, out).is_none())
            {
                let mut alone = Queue::default();
                alone.push(admitted, self.db, true);
                self.waiting = Some((alone, out.protocol));
                return HostCall::Later;
            }
        }
        out.steps += std::mem::take(&mut self.unpaid_steps);
        if self.failed.is_some() { HostCall::Stop } else { ended(out) }
    }
}

impl Host for UnlockedHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let args = Args::new(args);
        let mut out = reply_in(reply, protocol_of(flags), self.reply_bytes);
        let (began, db) = (self.trace.as_ref().map(|_| Instant::now()), self.db);
        let done = if flags.acl_check() {
            self.caller.answer_whether(&self.server, args, &mut out);
            HostCall::Done(CALL_FUEL)
        } else {
            if self.server.monitors.listen() {
                self.server.monitors.show(&self.server.pubsub, db, "lua", args);
            }
            self.answer(args, flags, &mut out)
        };
        if let (Some(trace), Some(began)) = (&self.trace, began) {
            report_call(&self.server, trace, began, db, args, &out);
        }
        *reply = out.buf;
        done
    }

    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(async move {
            let began = self.trace.as_ref().map(|_| Instant::now());
            self.send_all().await;
            if self.failed.is_some() {
                return HostCall::Stop;
            }
            reply.clear();
            let mut out = reply_in(reply, Protocol::Resp2, self.reply_bytes);
            out.steps = std::mem::take(&mut self.unpaid_steps);
            match self.asking.take() {
                Some(Asking::Publish(Message { shard, channel, text })) => {
                    answer_count(gateways::publish(&self.server, shard, &channel, &text).await, &mut out);
                }
                Some(Asking::Channels(call, protocol)) => {
                    reply_channels(&self.server, &call, protocol, &mut out).await;
                }
                None => {}
            }
            if let Some((call, protocol)) = self.waiting.take() {
                out.protocol = protocol;
                let args = call.args(0);
                let (store, call) = (&self.server.store, call.call(0, &args, 0));
                store.wait_for_disk().await;
                store.execute(&call, self.caller.client, unix_ms, &mut self.seed, &mut out).await;
            }
            let ended = ended(&out);
            if let (Some(trace), Some(began)) = (&self.trace, began) {
                trace.answered(&out.buf, out.is_error_from(0), began.elapsed());
            }
            *reply = out.buf;
            ended
        })
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.trace.iter().for_each(|trace| trace.log(level, text));
        let span = self.trace.as_ref().and_then(|trace| trace.snapshot().span.clone());
        crate::telemetry::log::script(level, text, span);
    }

    fn slice_fuel(&self) -> Option<u64> {
        Some(self.pace.slice_fuel())
    }
}
