//! The run of a script, atomic or not, from its turn to its commit.

use std::pin::pin;
use std::sync::Arc;

use script::Outcome;
use store::{Conflict, TransactionError};
use store_engine::Reply;
use tokio::sync::OwnedSemaphorePermit;

use super::atomic::{Attempts, Kept, Ran, run_atomic};
use super::call::ScriptCall;
use super::circumstances::RetryReason;
use super::dry_run;
use super::errors::ScriptError;
use super::host::{Common, ScriptHost, Unlocked};
use super::outcome::{append_outcome, note_end, note_killed};
use super::outgoing::commit;
use super::sandbox::run_in_sandbox;
use super::slices::Pace;
use super::spans;
use crate::admission::{self, Refuser};
use crate::config::AutoAsync;
use crate::scripts::options::Flags;
use crate::server::Server;
use crate::telemetry::script_stats::Ended;
use crate::telemetry::script_trace::Trace;

/// Runs a script and appends its reply to `out`.
pub async fn run_script(server: &Arc<Server>, mut call: ScriptCall<'_>, out: &mut Reply) {
    let script_permit = match dry_run::refuse(&call) {
        Ok(()) => wait_for_permit(server, &call).await,
        Err(error) => Err(error),
    };
    let _script_permit = match script_permit {
        Ok(script_permit) => script_permit,
        Err(error) => return out.error(&error.reply(&call)),
    };
    let start = out.buf.len();
    let scope = call.scope();
    let began = call.phase();
    call.report_spans();
    let done = {
        // It is large: it is pinned where it is made.
        let run = pin!(run(server, &mut call, &mut out.buf));
        match &scope {
            None => run.await,
            Some(scope) => scope.drive(run).await,
        }
    };
    match done {
        Ok(true) => out.note_error(start),
        Ok(false) => {}
        Err(error) => {
            out.truncate(start);
            out.error(&error.reply(&call));
        }
    }
    if let Some(began) = began {
        spans::report(server, &call, began, out.buf.get(start..).unwrap_or_default());
    }
}

/// Runs one that may be run. Whether its reply is an error.
async fn run(
    server: &Arc<Server>,
    call: &mut ScriptCall<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, ScriptError> {
    let start = out.len();
    let mut event = server.telemetry.script_events.begin(|| call.introduction(call.mode()));
    if event.is_some() || call.is_dry() {
        call.trace.get_or_insert_with(|| Arc::new(Trace::new(false)));
    }
    if let Some(trace) = &call.trace {
        let mut snapshot = trace.snapshot();
        (snapshot.mode, snapshot.name) = (call.mode(), call.program.name().to_owned());
    }
    let mut attempts = Attempts::new(server, call);
    let ran = loop {
        let done = {
            let run = pin!(async {
                match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
                    true => {
                        let ran = Box::pin(run_unlocked(server, call, out)).await;
                        ran.map(|is_error| Ran::Over { is_error })
                    }
                    false => run_atomic(server, call, &mut attempts, out).await,
                }
            });
            server.scripting.runs.drive(|| call.who(), run).await
        };
        // What follows is beyond the reach of SCRIPT KILL, which promises that nothing stays.
        let Kept { txn, outgoing, failed, usage } = match done {
            Some(Ok(Ran::Kept(kept))) => kept,
            Some(Ok(Ran::Over { is_error })) => break Ok(is_error),
            Some(Err(error)) => break Err(error),
            None => break Err(note_killed(&server.telemetry, call)),
        };
        let began = call.phase();
        let done = commit(server, txn, outgoing).await;
        call.end_phase("commit", began);
        match done {
            Err(TransactionError::NotBatched) => attempts.again(&server.telemetry, call, RetryReason::Begin),
            Err(TransactionError::BatchFailed) => attempts.again(&server.telemetry, call, RetryReason::Order),
            Err(TransactionError::LeaderLost(error)) => {
                if let Err(error) = attempts.after_leader(&server.telemetry, call, error).await {
                    note_end(&server.telemetry, call, failed, &usage);
                    break Err(error);
                }
            }
            Err(TransactionError::Conflict(Conflict::Limit(limit))) => {
                call.note(&server.telemetry, Ended::ByLimit, &usage);
                break Err(ScriptError::memory(server, call, limit));
            }
            done => {
                note_end(&server.telemetry, call, failed, &usage);
                break done.map(|()| failed).map_err(ScriptError::from);
            }
        }
        out.truncate(start);
    };
    if let (Some(event), Some(trace)) = (&mut event, &call.trace) {
        let snapshot = trace.snapshot();
        event.end(snapshot.ended.unwrap_or(Ended::WithError), snapshot.usage.fuel);
    }
    ran
}

/// A run without locks. Whether its reply is an error.
async fn run_unlocked(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, ScriptError> {
    let pace = Pace::new(call.budget.slice_fuel);
    let collects = server.config.script_auto_async.get() != AutoAsync::Never;
    let common = Common::new(
        server,
        call.caller(),
        (call.db, call.read_only),
        call.declared().filter(|declared| declared.by == Refuser::User),
        call.budget.memory_bytes,
        (call.reader.clone(), call.traced()),
    );
    let locking = Unlocked::new(call.seed, call.oom_slack_bytes(), collects, pace.clone());
    let host = Box::new(ScriptHost { common, locking });
    let _permit = server.telemetry.counters.queue_waits.of(server.scripting.runtime.admit(true)).await;
    let (host, outcome, usage) =
        run_in_sandbox(server, call, call.clock_seconds(&server.process), host, Some(pace)).await;
    if let Some(mut host) = host {
        // Also those of a script that was ended: it did call them.
        host.send_all().await;
        if let (Some(error), Outcome::Reply(_) | Outcome::Stopped) = (host.locking.failed.take(), &outcome) {
            call.note(&server.telemetry, Ended::WithError, &usage);
            return Err(ScriptError::UnusedCall(error));
        }
    }
    append_outcome(server, call, outcome, &usage, out)
}

/// Waits in the line of the user's scripts, if there is one. Nothing is locked yet.
async fn wait_for_permit(
    server: &Server,
    call: &ScriptCall<'_>,
) -> Result<Option<OwnedSemaphorePermit>, ScriptError> {
    let Some(account) = &call.account else { return Ok(None) };
    let waits = pin!(admission::script_permit(&server.acl, account));
    match server.scripting.runs.drive(|| call.who(), waits).await {
        Some(script_permit) => script_permit.map_err(ScriptError::Turn),
        None => Err(note_killed(&server.telemetry, call)),
    }
}
