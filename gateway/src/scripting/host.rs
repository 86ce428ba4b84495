//! What the calls of an atomic script pass: admission, then the transaction.

use std::sync::Arc;
use std::time::Instant;

use script::{CallFlags, Finishing, Host, HostCall, LogLevel};
use smallvec::SmallVec;
use store::{Call, LimitReached, Mode, Transaction, TransactionError};
use store_engine::{Args, CommandError, Protocol, Reply};

use super::answer::{can_wait, ended, protocol_of, reply_in};
use super::caller::{Caller, Calling, admit};
use super::channels::{Asking, about_channels, answer_count, reply_channels};
use super::circumstances::{Collects, RetryReason, RunContext};
use super::declared::Declared;
use super::inline;
use super::outgoing::Outgoing;
use super::queue::Queue;
use super::trace::report_call;
use crate::admission::{Admitted, Recent};
use crate::server::Row;
use crate::server::Server;
use crate::server::gateways;
use crate::session::pubsub::Message;
use crate::session::tracking::Reader;
use crate::telemetry::counters::unix_ms;
use crate::telemetry::script_trace::Trace;

/// The host of an atomic script.
pub(super) struct ScriptHost {
    pub server: Arc<Server>,
    pub txn: Transaction,
    pub snapshot: RunContext,
    pub caller: Caller,
    /// Why the round has to be repeated.
    pub retry: Option<RetryReason>,
    pub recent: Recent,
    /// Which calls are sent later.
    pub collects: Collects,
    /// Those that wait for that.
    pub queue: Queue,
    /// A call that needs a node elsewhere, with the protocol of its reply.
    pub waiting: Option<Box<(Queue, Protocol)>>,
    /// The only keys the script may touch, where that is the rule.
    pub declared: Option<Declared>,
    /// Whether it has made a call that writes.
    pub wrote: bool,
    /// Most bytes of a call's reply.
    pub reply_bytes: usize,
    /// What it publishes when it is committed.
    pub outgoing: Outgoing,
    /// TIME has to be answered, in this protocol, as soon as it is known.
    pub clock_requested: Option<Protocol>,
    /// A call about channels, which other gateways have to be asked about.
    pub asking: Option<Box<Asking>>,
    /// Who hears when what it reads changes.
    pub reader: Option<Reader>,
    /// Where to tell of its calls, if somebody asks.
    pub trace: Option<Arc<Trace>>,
}

/// The round must end.
pub(super) struct Stop;

impl ScriptHost {
    /// Whether it is answered: not if a node elsewhere has to be asked.
    fn answer(&mut self, args: Args<'_>, flags: CallFlags, out: &mut Reply) -> Result<bool, Stop> {
        let calling = Calling {
            server: &self.server,
            caller: &self.caller,
            declared: self.declared.as_ref(),
            read_only: self.snapshot.read_only,
            db: self.snapshot.db,
        };
        let is_full = || self.snapshot.full && !self.wrote;
        let admitted = match admit(calling, args, &mut self.recent, is_full) {
            Ok(admitted) => admitted,
            Err(error) => {
                out.error(&error);
                return Ok(true);
            }
        };
        if let Some(reader) = &self.reader {
            reader.note(&self.server.tracking, &self.server.pubsub, admitted.spec);
        }
        match about_channels(&admitted, out.protocol) {
            Some(Asking::Publish(message)) => return Ok(self.publish(message, out)),
            asking @ Some(_) => {
                self.server.calls.add_untimed(admitted.number, false);
                self.asking = asking.map(Box::new);
                return Ok(false);
            }
            None => {}
        }
        if admitted.spec.name == "time" && self.snapshot.now_ms == 0 {
            if !self.queue.is_empty() || self.txn.requests().next().is_some() {
                // What time it is says the first node that is asked.
                self.server.calls.add_untimed(admitted.number, false);
                self.clock_requested = Some(out.protocol);
                return Ok(false);
            }
            // None would be.
            self.snapshot.now_ms = self.txn.keep_time(unix_ms);
        }
        if matches!(admitted.row, Row::Session(_)) {
            let (clock, start) = (self.snapshot.clock(), out.buf.len());
            inline::answer(&self.server, &self.caller, &admitted, &mut self.snapshot.db, clock, out);
            self.server.calls.add_untimed(admitted.number, out.is_error_from(start));
            return Ok(true);
        }
        self.wrote |= admitted.spec.is_write();
        let can_wait = self.collects != Collects::Nothing
            && flags.unused()
            && can_wait(&admitted)
            && !self.is_long(&admitted);
        if self.collects == Collects::All {
            if can_wait {
                return self.collect(admitted, flags);
            }
            if !self.flush()? {
                self.wait(admitted, out.protocol);
                return Ok(false);
            }
        }
        let ScriptHost { txn, snapshot, retry, server, queue, .. } = self;
        let Admitted { spec, ref keys, number, .. } = admitted;
        let call = Call { command: spec, args, keys, db: snapshot.db, now_ms: snapshot.now_ms };
        let done = match queue.is_ahead_of(&admitted, snapshot.db) {
            true => Ok(None),
            false => txn.execute_now(&call, mode_of(snapshot), &mut snapshot.seed, out),
        };
        match done {
            Ok(Some(fine)) => {
                server.calls.add_untimed(number, !fine);
                Ok(true)
            }
            // What can be done here has other keys: in which order that is done makes no difference.
            Ok(None) if can_wait => self.collect(admitted, flags),
            Ok(None) => {
                self.wait(admitted, out.protocol);
                Ok(false)
            }
            Err(conflict) => {
                *retry = Some(conflict.into());
                Err(Stop)
            }
        }
    }

    /// Whether a call of a store in this process is long: those are not collected.
    fn is_long(&self, admitted: &Admitted<'_>) -> bool {
        let Admitted { spec, args, ref keys, .. } = *admitted;
        let call = Call { command: spec, args, keys, db: self.snapshot.db, now_ms: self.snapshot.now_ms };
        matches!(&self.txn, Transaction::Local(txn) if txn.is_long(&call))
    }

    /// Keeps a message for the end. Whether it is answered how many would hear it now.
    fn publish(&mut self, message: Message, out: &mut Reply) -> bool {
        if self.server.store.node().is_none() {
            self.asking = Some(Box::new(Asking::Publish(message)));
            return false;
        }
        let count = self.server.pubsub.receivers(message.shard, &message.channel);
        match self.outgoing.push(message) {
            Ok(()) => out.count(count),
            Err(error) => out.error(&error),
        }
        true
    }

    /// How a call ends that must not be answered.
    fn stopped(&self) -> HostCall {
        match self.retry {
            Some(RetryReason::Limit(LimitReached::Undo)) => HostCall::TooLarge,
            _ => HostCall::Stop,
        }
    }

    /// Keeps a call for later. Whether it is not later yet.
    fn collect(&mut self, admitted: Admitted<'_>, flags: CallFlags) -> Result<bool, Stop> {
        self.server.calls.add_untimed(admitted.number, false);
        self.queue.push(admitted, self.snapshot.db, flags.protected());
        let is_full = self.queue.bytes() >= self.server.config.script_queue_max.get_usize();
        if is_full { self.flush() } else { Ok(true) }
    }

    fn wait(&mut self, admitted: Admitted<'_>, protocol: Protocol) {
        self.server.calls.add_untimed(admitted.number, false);
        let mut alone = Queue::default();
        alone.push(admitted, self.snapshot.db, true);
        self.waiting = Some(Box::new((alone, protocol)));
    }

    /// Does what had to wait for nodes elsewhere: what was collected, then the call that is waiting.
    async fn catch_up(&mut self, out: &mut Reply) -> Result<(), Stop> {
        if self.txn.is_open() {
            return self.begin(out).await;
        }
        self.flush_remote().await?;
        let Some((call, protocol)) = self.waiting.take().map(|waiting| *waiting) else { return Ok(()) };
        out.protocol = protocol;
        let args = call.args(0);
        let ScriptHost { txn, snapshot, retry, .. } = self;
        let mode = mode_of(snapshot);
        let done = txn.execute(&call.call(0, &args, snapshot.now_ms), mode, &mut snapshot.seed, out).await;
        done.map(drop).map_err(|error| {
            *retry = Some(retry_reason_of(error));
            Stop
        })
    }

    /// Begins with what was collected and the call that is waiting, in one step.
    async fn begin(&mut self, out: &mut Reply) -> Result<(), Stop> {
        let ScriptHost { txn, snapshot, retry, queue, waiting, .. } = self;
        let waiting = waiting.take();
        let args: Vec<_> = (0..queue.len()).map(|at| queue.args(at)).collect();
        let mut calls = unread(queue, &args);
        let own = waiting.as_ref().map(|waiting| waiting.0.args(0));
        if let (Some(waiting), Some(own)) = (&waiting, &own) {
            calls.push((waiting.0.call(0, own, 0), true));
        }
        let protocol = waiting.as_ref().map(|waiting| waiting.1);
        out.protocol = protocol.unwrap_or(Protocol::Resp2);
        let read = protocol.is_some().then_some(out);
        let done =
            txn.begin_with(&calls, mode_of(snapshot), snapshot.spares_memory, &mut snapshot.seed, read).await;
        if let Err(error) = done {
            *retry = Some(retry_reason_of(error));
            return Err(Stop);
        }
        drop(calls);
        drop(args);
        queue.clear();
        snapshot.now_ms = txn.now_ms().unwrap_or(snapshot.now_ms);
        snapshot.full |= txn.is_full() && !snapshot.spares_memory;
        Ok(())
    }

    async fn flush_remote(&mut self) -> Result<(), Stop> {
        let ScriptHost { txn, snapshot, retry, queue, .. } = self;
        if queue.is_empty() {
            return Ok(());
        }
        *retry = {
            let args: Vec<_> = (0..queue.len()).map(|at| queue.args(at)).collect();
            let calls = args.iter().enumerate().map(|(at, args)| queue.call(at, args, snapshot.now_ms));
            let calls: Vec<Call<'_>> = calls.collect();
            match txn.execute_all(&calls, mode_of(snapshot), &mut snapshot.seed).await {
                Ok(failed) if failed.iter().any(|at| queue.error_counts(*at)) => Some(RetryReason::Order),
                Ok(_) => None,
                Err(error) => Some(retry_reason_of(error)),
            }
        };
        if retry.is_some() {
            return Err(Stop);
        }
        queue.clear();
        Ok(())
    }

    /// Sends what was collected. Nobody else sees in between, so the order of the shards does not matter; if a
    /// call fails, the script runs again and meets the error where it stands.
    ///
    /// Whether that is done: not if nodes elsewhere have to be asked.
    fn flush(&mut self) -> Result<bool, Stop> {
        let ScriptHost { server, txn, snapshot, retry, queue, .. } = self;
        if queue.is_empty() {
            return Ok(true);
        }
        let mode = mode_of(snapshot);
        let mut unread = Reply::new(Protocol::Resp2);
        let Some(mut batch) = txn.batch() else { return Ok(false) };
        for (_, at) in queue.by_shard(|key| server.store.group_of(key)) {
            unread.buf.clear();
            let args = queue.args(at);
            let call = queue.call(at, &args, snapshot.now_ms);
            *retry = match batch.execute(&call, mode, &mut snapshot.seed, &mut unread) {
                Ok(fine) if fine || !queue.error_counts(at) => continue,
                Ok(_) => Some(RetryReason::Order),
                Err(conflict) => Some(conflict.into()),
            };
            return Err(Stop);
        }
        queue.clear();
        Ok(true)
    }

    /// Sends what is left when the script has ended, or leaves it to the end of the transaction, if that is near. What was
    /// lacking is noted as for a call.
    pub async fn end(&mut self, is_near: bool) {
        if is_near && self.leave() {
            return;
        }
        // Whoever ends the round looks for the lack.
        if let Ok(false) = self.flush() {
            let _ = Box::pin(self.catch_up(&mut Reply::new(Protocol::Resp2))).await;
        }
    }

    fn leave(&mut self) -> bool {
        let ScriptHost { txn, snapshot, queue, .. } = self;
        let args: Vec<_> = (0..queue.len()).map(|at| queue.args(at)).collect();
        // Whether memory sufficed is known if it has begun.
        let spares_memory = snapshot.spares_memory || !txn.is_open();
        let left = txn.leave_to_end(&unread(queue, &args), mode_of(snapshot), spares_memory);
        drop(args);
        if left {
            queue.clear();
        }
        left
    }
}

/// Collected calls, with their arguments; of each, whether it may fail.
fn unread<'a, 'q: 'a>(queue: &'q Queue, args: &'a [SmallVec<[&'q [u8]; 8]>]) -> Vec<(Call<'a>, bool)> {
    args.iter().enumerate().map(|(at, args)| (queue.call(at, args, 0), !queue.error_counts(at))).collect()
}

/// What a call has met.
fn retry_reason_of(error: TransactionError) -> RetryReason {
    match error {
        TransactionError::Conflict(conflict) => conflict.into(),
        TransactionError::Lost(error) => RetryReason::Node(error),
        TransactionError::NotBatched => RetryReason::Begin,
        TransactionError::BatchFailed => RetryReason::Order,
        TransactionError::WatchBroken => {
            RetryReason::Node(CommandError::new("ERR internal error: a watch was requested twice"))
        }
    }
}

fn mode_of(snapshot: &RunContext) -> Mode {
    if snapshot.read_only { Mode::Shared } else { Mode::Exclusive }
}

impl Host for ScriptHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let args = Args::new(args);
        let mut out = reply_in(reply, protocol_of(flags), self.reply_bytes);
        let (began, db) = (self.trace.as_ref().map(|_| Instant::now()), self.snapshot.db);
        let done = if flags.acl_check() {
            self.caller.answer_whether(&self.server, args, &mut out);
            Ok(true)
        } else {
            if self.server.monitors.listen() {
                self.server.monitors.show(&self.server.pubsub, db, "lua", args);
            }
            self.answer(args, flags, &mut out)
        };
        let ended = match done {
            Ok(true) => ended(&out),
            Ok(false) => HostCall::Later,
            Err(Stop) => self.stopped(),
        };
        if let (Some(trace), Some(began)) = (&self.trace, began) {
            report_call(&self.server, trace, began, db, args, &out);
        }
        *reply = out.buf;
        ended
    }

    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(async move {
            reply.clear();
            let mut out = reply_in(reply, Protocol::Resp2, self.reply_bytes);
            let began = self.trace.as_ref().map(|_| Instant::now());
            match self.asking.take().map(|asking| *asking) {
                Some(Asking::Publish(message)) => {
                    let receivers = gateways::receivers(&self.server, message.shard, &message.channel).await;
                    answer_count(self.outgoing.push(message).and(receivers), &mut out);
                }
                Some(Asking::Channels(call, protocol)) => {
                    reply_channels(&self.server, &call, protocol, &mut out).await;
                }
                None if self.catch_up(&mut out).await.is_err() => return self.stopped(),
                None => {}
            }
            if let Some(protocol) = self.clock_requested.take() {
                out.protocol = protocol;
                inline::reply_time(self.snapshot.clock(), &mut out);
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
}
