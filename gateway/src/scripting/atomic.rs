//! The run of an atomic script: in rounds until its locks suffice.

use std::sync::Arc;

use script::ResourceUsage;
use store::{Transaction, TransactionError};
use store_engine::CommandError;

use super::attempt::{Attempt, run_once};
use super::call::ScriptCall;
use super::circumstances::{Collects, RetryReason, RetryWindow, RunContext};
use super::dry_run;
use super::errors::ScriptError;
use super::host::{Locked, ScriptHost};
use super::locks::LockSet;
use super::outcome::{append_reply, note_end};
use super::outgoing::Outgoing;
use crate::scripts::options::OnError;
use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::telemetry::counters::{Counters, unix_ms};
use crate::telemetry::script_stats::Ended;

/// The rounds of an atomic script, whose locks grow.
pub(super) struct Attempts {
    locks: LockSet,
    collects: Collects,
    /// It begins with its first calls.
    opens: bool,
    /// Its last calls go with its end.
    leaves: bool,
    snapshot: Option<RunContext>,
    retry_window: RetryWindow,
}

impl Attempts {
    pub fn new(server: &Server, call: &ScriptCall<'_>) -> Attempts {
        Attempts {
            locks: LockSet::of_keys(call.keys, call.db, call.lock_mode()),
            collects: Collects::at_first(server),
            // A trace has each call on its own.
            opens: call.trace.is_none() && call.program.stats().may_open(),
            leaves: call.trace.is_none(),
            snapshot: None,
            retry_window: RetryWindow::default(),
        }
    }

    /// For the next round, after what this one `held` came to nothing.
    fn repeat(
        &mut self,
        telemetry: &Telemetry,
        call: &ScriptCall<'_>,
        held: Option<&Transaction>,
        retry: RetryReason,
    ) {
        match retry {
            RetryReason::Begin => call.program.stats().begin_apart(),
            _ => {
                Counters::add(&telemetry.counters.scripts_rerun, 1);
                call.program.stats().add_rerun();
                call.report_rerun(&retry);
            }
        }
        self.opens = false;
        self.collects = self.collects.after(&retry);
        self.locks.widen(held, retry.conflict());
    }

    /// For the next round, after the leader of a group of replicas was lost; an error if that takes too long.
    pub async fn after_leader(
        &mut self,
        telemetry: &Telemetry,
        call: &ScriptCall<'_>,
        error: CommandError,
    ) -> Result<(), ScriptError> {
        if !self.retry_window.is_open().await {
            return Err(ScriptError::NodeLost(error));
        }
        self.repeat(telemetry, call, None, RetryReason::Leader(error));
        Ok(())
    }

    /// For the next round, after what was to go with its end could not be done.
    pub fn again(&mut self, telemetry: &Telemetry, call: &ScriptCall<'_>, retry: RetryReason) {
        self.leaves = false;
        self.locks = LockSet::of_keys(call.keys, call.db, call.lock_mode());
        self.repeat(telemetry, call, None, retry);
    }
}

/// What a script has come to that is to be kept.
pub(super) struct Kept {
    pub txn: Transaction,
    pub outgoing: Outgoing,
    pub failed: bool,
    pub usage: ResourceUsage,
}

/// What a script has come to.
pub(super) enum Ran {
    /// It is to be kept.
    Kept(Kept),
    /// Nothing of it is. Whether its reply is an error.
    Over { is_error: bool },
}

/// Runs a script until its locks suffice, and appends its reply to `out`.
pub(super) async fn run_atomic(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    attempts: &mut Attempts,
    out: &mut Vec<u8>,
) -> Result<Ran, ScriptError> {
    let tells = !call.is_dry() && call.trace.as_ref().is_some_and(|trace| trace.wants_changes());
    loop {
        let now_ms = attempts.snapshot.map(|snapshot| snapshot.now_ms).filter(|now_ms| *now_ms > 0);
        let began = call.phase();
        let opened = if attempts.opens { attempts.locks.open(&server.store) } else { None };
        let mut txn = match opened {
            Some(txn) => txn,
            None => {
                let lock = attempts.locks.lock(&server.store, now_ms, Vec::new());
                match server.telemetry.counters.lock_waits.of(lock).await {
                    Err(TransactionError::LeaderLost(error)) => {
                        attempts.after_leader(&server.telemetry, call, error).await?;
                        continue;
                    }
                    locked => locked?,
                }
            }
        };
        if call.is_dry() || tells {
            txn.begin_part().await?;
        }
        call.end_phase("lock", began);
        // Not before: a run that waits for a key must not keep others from running.
        let permit = server.telemetry.counters.queue_waits.of(server.scripting.runtime.admit(false)).await;
        let time = match txn.is_open() {
            true => 0,
            false => txn.keep_time(unix_ms),
        };
        let snapshot = attempts.snapshot.get_or_insert_with(|| RunContext {
            clock_seconds: call.clock_seconds(&server.process),
            ..call.circumstances(0)
        });
        if snapshot.now_ms == 0 {
            (snapshot.now_ms, snapshot.full) =
                (time, snapshot.full || (txn.is_full() && !snapshot.spares_memory));
        }
        let (snapshot, collects) = (*snapshot, attempts.collects);
        let mut attempt = run_once(server, call, txn, snapshot, collects, attempts.leaves).await;
        // It may have learnt that only when it began.
        if let (Some(first), Some(host)) = (&mut attempts.snapshot, &attempt.host) {
            (first.now_ms, first.full) = (host.locking.snapshot.now_ms, host.locking.snapshot.full);
        }
        if tells {
            attempt = Box::pin(dry_run::note_changes(server, call, attempt, snapshot, collects)).await?;
        }
        drop(permit);
        let retry = attempt.retry();
        let Attempt { host, outcome, usage } = attempt;
        if let Some(RetryReason::Node(error)) = retry {
            call.note(&server.telemetry, Ended::WithError, &usage);
            return Err(ScriptError::NodeLost(error));
        }
        if let Some(RetryReason::Leader(error)) = retry {
            drop(host);
            attempts.after_leader(&server.telemetry, call, error).await?;
            continue;
        }
        if let Some(RetryReason::Limit(limit)) = retry {
            call.note(&server.telemetry, Ended::ByLimit, &usage);
            return Err(ScriptError::memory(server, call, limit));
        }
        if let Some(retry) = retry {
            attempts.repeat(&server.telemetry, call, host.as_ref().map(|host| &host.locking.txn), retry);
            // Taken back before the next round asks for its locks.
            drop(host);
            continue;
        }
        let start = out.len();
        let failed = append_reply(server, call, outcome, &usage, out)?;
        if call.is_dry() {
            note_end(&server.telemetry, call, failed, &usage);
            if let Some(mut host) = host {
                Box::pin(dry_run::report(call, &mut host.locking.txn, failed, start, out)).await?;
            }
            // It reports the run, however that ended.
            return Ok(Ran::Over { is_error: false });
        }
        if let Some(ScriptHost { locking: Locked { txn, outgoing, .. }, .. }) = host.map(|host| *host)
            && !(failed && call.options.on_error == Some(OnError::RollBack))
        {
            if txn.requests().count() > call.keys.len() {
                call.note_undeclared(&server.telemetry, txn.requests());
            }
            return Ok(Ran::Kept(Kept { txn, outgoing, failed, usage }));
        }
        note_end(&server.telemetry, call, failed, &usage);
        return Ok(Ran::Over { is_error: failed });
    }
}
