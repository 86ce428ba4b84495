//! The run of a script, atomic or not, from its turn to its commit.

use std::pin::pin;
use std::sync::Arc;

use script::Outcome;
use store::{Conflict, TransactionError};
use store_engine::Reply;
use tokio::sync::OwnedSemaphorePermit;

use super::atomic::{Kept, Ran, Rounds, run_atomic};
use super::call::ScriptCall;
use super::circumstances::Lack;
use super::declared::Refuser;
use super::dry;
use super::errors::ScriptError;
use super::outcome::{append_outcome, note_end, note_killed};
use super::outgoing::commit;
use super::queue::Queue;
use super::sandbox::run_in_sandbox;
use super::spans;
use super::turns::Pace;
use super::unlocked::UnlockedHost;
use crate::admission::{self, Recent};
use crate::scripts::options::Flags;
use crate::server::Server;
use crate::telemetry::script_stats::Ended;
use crate::telemetry::script_trace::Trace;

/// Runs a script and appends its reply to `out`.
pub async fn run_script(server: &Arc<Server>, mut call: ScriptCall<'_>, out: &mut Reply) {
    let turn = match dry::refuse(&call) {
        Ok(()) => take_turn(server, &call).await,
        Err(error) => Err(error),
    };
    let _turn = match turn {
        Ok(turn) => turn,
        Err(error) => return out.error(&error.reply(&call)),
    };
    let mark = out.buf.len();
    let scope = call.scope();
    let began = call.phase();
    call.tell_spans();
    let done = {
        // It is large: it stays where it is made, whoever drives it.
        let run = pin!(run(server, &mut call, &mut out.buf));
        match &scope {
            None => run.await,
            Some(scope) => scope.drive(run).await,
        }
    };
    match done {
        Ok(true) => out.note_error(mark),
        Ok(false) => {}
        Err(error) => {
            out.truncate(mark);
            out.error(&error.reply(&call));
        }
    }
    if let Some(began) = began {
        spans::tell(server, &call, began, out.buf.get(mark..).unwrap_or_default());
    }
}

/// Runs one that may be run. Whether its reply is an error.
async fn run(
    server: &Arc<Server>,
    call: &mut ScriptCall<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, ScriptError> {
    let mark = out.len();
    let mut told = server.events.begin(|| call.introduction(call.mode()));
    if told.is_some() || call.is_dry() {
        call.trace.get_or_insert_with(|| Arc::new(Trace::new(false)));
    }
    if let Some(trace) = &call.trace {
        let mut seen = trace.seen();
        (seen.mode, seen.name) = (call.mode(), call.program.name().to_owned());
    }
    let mut rounds = Rounds::new(server, call);
    let ran = loop {
        let done = {
            let run = pin!(async {
                match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
                    true => {
                        let ran = Box::pin(run_unlocked(server, call, out)).await;
                        ran.map(|is_error| Ran::Over { is_error })
                    }
                    false => run_atomic(server, call, &mut rounds, out).await,
                }
            });
            server.runs.drive(|| call.who(), run).await
        };
        // What follows is beyond the reach of SCRIPT KILL, which promises that nothing stays.
        let Kept { txn, outgoing, failed, spent } = match done {
            Some(Ok(Ran::Kept(kept))) => kept,
            Some(Ok(Ran::Over { is_error })) => break Ok(is_error),
            Some(Err(error)) => break Err(error),
            None => break Err(note_killed(server, call)),
        };
        let began = call.phase();
        let done = commit(server, txn, outgoing).await;
        call.end_phase("commit", began);
        match done {
            Err(TransactionError::NotBatched) => rounds.again(server, call, Lack::Begin),
            Err(TransactionError::BatchFailed) => rounds.again(server, call, Lack::Order),
            Err(TransactionError::Conflict(Conflict::Limit(limit))) => {
                call.note(server, Ended::ByLimit, &spent);
                break Err(ScriptError::memory(server, call, limit));
            }
            done => {
                note_end(server, call, failed, &spent);
                break done.map(|()| failed).map_err(ScriptError::from);
            }
        }
        out.truncate(mark);
    };
    if let (Some(told), Some(trace)) = (&mut told, &call.trace) {
        let seen = trace.seen();
        told.end(seen.ended.unwrap_or(Ended::WithError), seen.spent.fuel);
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
    let host = Box::new(UnlockedHost {
        server: server.clone(),
        db: call.db,
        seed: call.seed,
        caller: call.caller(),
        read_only: call.read_only,
        oom_slack_bytes: call.oom_slack_bytes(),
        recent: Recent::default(),
        declared: call.declared().filter(|declared| declared.by == Refuser::User),
        queue: Queue::default(),
        sent: 0,
        collects: server.config.script_auto_async.get() > 0,
        waiting: None,
        reply_bytes: call.budget.memory_bytes,
        unpaid_steps: 0,
        failed: None,
        asking: None,
        pace: pace.clone(),
        trace: call.traced(),
        reader: call.reader.clone(),
    });
    let _permit = server.counters.queue_waits.of(server.runtime.admit(true)).await;
    let (host, outcome, spent) =
        run_in_sandbox(server, call, call.clock_seconds(server), host, Some(pace)).await;
    if let Some(mut host) = host {
        // Also those of a script that was ended: it did call them.
        host.send_all().await;
        if let (Some(error), Outcome::Reply(_) | Outcome::Stopped) = (host.failed.take(), &outcome) {
            call.note(server, Ended::WithError, &spent);
            return Err(ScriptError::UnusedCall(error));
        }
    }
    append_outcome(server, call, outcome, &spent, out)
}

/// Waits in the line of the user's scripts, if there is one. Nothing is locked yet.
async fn take_turn(
    server: &Server,
    call: &ScriptCall<'_>,
) -> Result<Option<OwnedSemaphorePermit>, ScriptError> {
    let Some(account) = &call.account else { return Ok(None) };
    let waits = pin!(admission::turn(server, account));
    match server.runs.drive(|| call.who(), waits).await {
        Some(turn) => turn.map_err(ScriptError::Turn),
        None => Err(note_killed(server, call)),
    }
}
