//! The calls of an atomic script: performed within the transaction that holds its locks.

use std::time::Duration;

use script::{CallFlags, HostCall};
use store::{BufferedCall, Call, LimitReached, Mode, Store, Transaction, TransactionError};
use store_engine::{CommandError, Protocol, Reply};

use super::{Common, Locking, Performed, ScriptHost};
use crate::admission::{Admitted, ScriptMemory};
use crate::scripting::answer::can_wait;
use crate::scripting::channels::{Asking, answer_count, reply_channels};
use crate::scripting::circumstances::{Collects, RetryReason, RunContext};
use crate::scripting::outgoing::Outgoing;
use crate::scripting::queue::Queue;
use crate::server::gateways;
use crate::telemetry::counters::unix_ms;

/// The state of an atomic script.
pub(in crate::scripting) struct Locked {
    pub txn: Transaction,
    pub snapshot: RunContext,
    /// Why the round has to be repeated.
    pub retry: Option<RetryReason>,
    /// Which calls are sent later.
    collects: Collects,
    /// Those that wait for that.
    queue: Queue,
    /// A call that needs a node elsewhere, with the protocol of its reply.
    waiting: Option<Box<(Queue, Protocol)>>,
    /// Whether the script has made a call that writes.
    wrote: bool,
    /// What is published when the script is committed.
    pub outgoing: Outgoing,
}

/// The round must end.
struct Stop;

impl Locking for Locked {
    fn memory(&self) -> ScriptMemory {
        ScriptMemory::Fixed { full: self.snapshot.full, wrote: self.wrote }
    }

    fn clock(&mut self) -> Option<Duration> {
        if self.snapshot.now_ms == 0 {
            if !self.queue.is_empty() || self.txn.requests().next().is_some() {
                // The first node that is asked says what time it is.
                return None;
            }
            // None would be.
            self.snapshot.now_ms = self.txn.keep_time(unix_ms);
        }
        Some(self.snapshot.clock())
    }

    /// Keeps a message for the end. The reply is how many clients would receive the message now.
    fn publish(&mut self, common: &Common, asking: Asking, out: &mut Reply) -> Result<Performed, Asking> {
        let message = match asking {
            Asking::Publish(message) if !common.server.store.is_shared() => message,
            asking => return Err(asking),
        };
        let count = common.server.sessions.pubsub.receivers(message.shard, &message.channel);
        let kept = self.outgoing.push(message);
        let fine = kept.is_ok();
        answer_count(kept.map(|()| count), out);
        Ok(Performed::Answered { fine })
    }

    fn execute(
        &mut self,
        common: &Common,
        admitted: Admitted<'_>,
        flags: CallFlags,
        out: &mut Reply,
    ) -> Performed {
        self.try_execute(common, admitted, flags, out)
            .unwrap_or_else(|Stop| Performed::Stopped(self.stopped()))
    }

    async fn finish(
        &mut self,
        common: &Common,
        asking: Option<Asking>,
        out: &mut Reply,
    ) -> Result<(), HostCall> {
        let server = &common.server;
        match asking {
            Some(Asking::Publish(message)) => {
                let receivers = gateways::receivers(server, message.shard, &message.channel).await;
                answer_count(self.outgoing.push(message).and(receivers), out);
            }
            Some(Asking::Channels(call, protocol)) => reply_channels(server, &call, protocol, out).await,
            None => self.catch_up(out).await.map_err(|Stop| self.stopped())?,
        }
        Ok(())
    }

    fn slice_fuel(&self) -> Option<u64> {
        None
    }
}

impl Locked {
    /// For a round that begins with this transaction.
    pub fn new(txn: Transaction, snapshot: RunContext, collects: Collects) -> Locked {
        Locked {
            txn,
            snapshot,
            retry: None,
            collects,
            queue: Queue::default(),
            waiting: None,
            wrote: false,
            outgoing: Outgoing::default(),
        }
    }

    fn try_execute(
        &mut self,
        common: &Common,
        admitted: Admitted<'_>,
        flags: CallFlags,
        out: &mut Reply,
    ) -> Result<Performed, Stop> {
        self.wrote |= admitted.spec().is_write();
        let can_wait = self.collects != Collects::Nothing
            && flags.unused()
            && can_wait(&admitted)
            && !self.is_long(&admitted, common.db);
        if self.collects == Collects::All {
            if can_wait {
                return self.collect(common, &admitted, flags);
            }
            if !self.flush(&common.server.store)? {
                return Ok(self.wait(&admitted, common.db, out.protocol));
            }
        }
        let Locked { txn, snapshot, retry, queue, .. } = self;
        let done = match queue.is_ahead_of(&admitted, common.db) {
            true => Ok(None),
            false => {
                let call = admitted.at(common.db, snapshot.now_ms);
                txn.execute_now(&call, mode_of(snapshot), &mut snapshot.seed, out)
            }
        };
        match done {
            Ok(Some(fine)) => Ok(Performed::Answered { fine }),
            // What can be done here has other keys: in which order that is done makes no difference.
            Ok(None) if can_wait => self.collect(common, &admitted, flags),
            Ok(None) => Ok(self.wait(&admitted, common.db, out.protocol)),
            Err(conflict) => {
                *retry = Some(conflict.into());
                Err(Stop)
            }
        }
    }

    /// Whether a call of a store in this process is long: those are not collected.
    fn is_long(&self, admitted: &Admitted<'_>, db: usize) -> bool {
        self.txn.is_long(&admitted.at(db, self.snapshot.now_ms))
    }

    /// How a call ends that must not be answered.
    fn stopped(&self) -> HostCall {
        match self.retry {
            Some(RetryReason::Limit(LimitReached::Undo)) => HostCall::TooLarge,
            _ => HostCall::Stop,
        }
    }

    /// Keeps a call for later, if it is not later already.
    fn collect(
        &mut self,
        common: &Common,
        admitted: &Admitted<'_>,
        flags: CallFlags,
    ) -> Result<Performed, Stop> {
        self.queue.push(admitted, common.db, flags.protected());
        let is_full = self.queue.bytes() >= common.server.config.script_queue_max.get_usize();
        let is_sent = !is_full || self.flush(&common.server.store)?;
        Ok(if is_sent { Performed::Collected } else { Performed::Waits })
    }

    fn wait(&mut self, admitted: &Admitted<'_>, db: usize, protocol: Protocol) -> Performed {
        let mut alone = Queue::default();
        alone.push(admitted, db, true);
        self.waiting = Some(Box::new((alone, protocol)));
        Performed::Waits
    }

    /// Does what had to wait for nodes elsewhere: what was collected, then the call that is waiting.
    async fn catch_up(&mut self, out: &mut Reply) -> Result<(), Stop> {
        if self.txn.is_open() {
            return self.begin(out).await;
        }
        self.flush_remote().await?;
        let Some((call, protocol)) = self.waiting.take().map(|waiting| *waiting) else { return Ok(()) };
        out.protocol = protocol;
        let call = call.get(0);
        let Locked { txn, snapshot, retry, .. } = self;
        let mode = mode_of(snapshot);
        let done = txn.execute(&call.at(snapshot.now_ms), mode, &mut snapshot.seed, out).await;
        done.map(drop).map_err(|error| {
            *retry = Some(retry_reason_of(error));
            Stop
        })
    }

    /// Begins with what was collected and the call that is waiting, in one step.
    async fn begin(&mut self, out: &mut Reply) -> Result<(), Stop> {
        let Locked { txn, snapshot, retry, queue, waiting, .. } = self;
        let waiting = waiting.take();
        let collected: Vec<_> = queue.calls().collect();
        let mut calls = unread(queue, &collected);
        let own = waiting.as_ref().map(|waiting| waiting.0.get(0));
        calls.extend(own.iter().map(|own| (own.at(0), true)));
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
        drop(collected);
        queue.clear();
        snapshot.now_ms = txn.now_ms().unwrap_or(snapshot.now_ms);
        snapshot.full |= txn.is_full() && !snapshot.spares_memory;
        Ok(())
    }

    async fn flush_remote(&mut self) -> Result<(), Stop> {
        let Locked { txn, snapshot, retry, queue, .. } = self;
        if queue.is_empty() {
            return Ok(());
        }
        *retry = {
            let collected: Vec<_> = queue.calls().collect();
            let calls: Vec<Call<'_>> = collected.iter().map(|call| call.at(snapshot.now_ms)).collect();
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

    /// Sends what was collected. No other client sees a state between, so the order of the shards does not matter; if a
    /// call fails, the script runs again and meets the error where it stands.
    ///
    /// Whether that is done: not if nodes elsewhere have to be asked.
    fn flush(&mut self, store: &Store) -> Result<bool, Stop> {
        let Locked { txn, snapshot, retry, queue, .. } = self;
        if queue.is_empty() {
            return Ok(true);
        }
        let mode = mode_of(snapshot);
        let mut unread = Reply::new(Protocol::Resp2);
        let Some(mut batch) = txn.batch() else { return Ok(false) };
        for (_, at) in queue.by_shard(|key| store.group_of(key)) {
            unread.buf.clear();
            let call = queue.get(at);
            *retry = match batch.execute(&call.at(snapshot.now_ms), mode, &mut snapshot.seed, &mut unread) {
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
    async fn end(&mut self, store: &Store, is_near: bool) {
        if is_near && self.leave() {
            return;
        }
        // The end of the round looks for a reason to repeat it.
        if let Ok(false) = self.flush(store) {
            let _ = Box::pin(self.catch_up(&mut Reply::new(Protocol::Resp2))).await;
        }
    }

    fn leave(&mut self) -> bool {
        let Locked { txn, snapshot, queue, .. } = self;
        let collected: Vec<_> = queue.calls().collect();
        // Whether memory sufficed is known if it has begun.
        let spares_memory = snapshot.spares_memory || !txn.is_open();
        let left = txn.leave_to_end(&unread(queue, &collected), mode_of(snapshot), spares_memory);
        drop(collected);
        if left {
            queue.clear();
        }
        left
    }
}

impl ScriptHost<Locked> {
    /// [`Locked::end`].
    pub async fn end(&mut self, is_near: bool) {
        self.locking.end(&self.common.server.store, is_near).await;
    }
}

/// Collected calls; of each, whether it may fail.
fn unread<'a>(queue: &Queue, calls: &'a [BufferedCall<'_>]) -> Vec<(Call<'a>, bool)> {
    calls.iter().enumerate().map(|(at, call)| (call.at(0), !queue.error_counts(at))).collect()
}

/// What a call has met.
fn retry_reason_of(error: TransactionError) -> RetryReason {
    match error {
        TransactionError::Conflict(conflict) => conflict.into(),
        TransactionError::Lost(error) => RetryReason::Node(error),
        TransactionError::LeaderLost(error) => RetryReason::Leader(error),
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
