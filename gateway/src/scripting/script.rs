//! The run of a script, atomic or not, from its turn to its commit.

use std::pin::pin;
use std::sync::Arc;

use script::Outcome;
use store::{Conflict, Trouble};
use store_engine::{CommandError, Reply};
use tokio::sync::OwnedSemaphorePermit;

use super::atomic::{Kept, Rounds, run_atomic};
use super::call::ScriptCall;
use super::circumstances::Lack;
use super::declared::Refuser;
use super::dry;
use super::errors::{killed_error, lost};
use super::limits::memory_error;
use super::outcome::{append_outcome, note_end};
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
pub async fn run_script(server: &Arc<Server>, mut call: ScriptCall<'_>, out: &mut Vec<u8>) {
    let mark = out.len();
    if let Err(error) = dry::refuse(&call) {
        return append_error(out, &call, error);
    }
    let _turn = match take_turn(server, &call).await {
        Ok(turn) => turn,
        Err(error) => return append_error(out, &call, error),
    };
    let scope = call.scope();
    let began = call.phase();
    call.tell_spans();
    {
        // It is large: it stays where it is made, whoever drives it.
        let run = pin!(run(server, &mut call, out));
        match &scope {
            None => run.await,
            Some(scope) => scope.drive(run).await,
        }
    }
    if let Some(began) = began {
        spans::tell(server, &call, began, out.get(mark..).unwrap_or_default());
    }
}

/// Runs one that may be run.
async fn run(server: &Arc<Server>, call: &mut ScriptCall<'_>, out: &mut Vec<u8>) {
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
    let kept = loop {
        let done = {
            let run = pin!(async {
                match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
                    true => Box::pin(run_unlocked(server, call, out)).await.map(|()| None),
                    false => run_atomic(server, call, &mut rounds, out).await,
                }
            });
            server.runs.drive(|| call.who(), run).await
        };
        // What follows is beyond the reach of SCRIPT KILL, which promises that nothing stays.
        let Kept { txn, outgoing, failed, spent } = match done {
            Some(Ok(Some(kept))) => kept,
            Some(Ok(None)) => break Ok(()),
            Some(Err(error)) => break Err(error),
            None => break Err(killed_error(server, call)),
        };
        let began = call.phase();
        let done = commit(server, txn, outgoing).await;
        call.end_phase("commit", began);
        match done {
            Err(TransactionError::NotBatched) => rounds.again(server, call, Lack::Begin),
            Err(TransactionError::BatchFailed) => rounds.again(server, call, Lack::Order),
            Err(TransactionError::Conflict(Conflict::Limit(limit))) => {
                call.note(server, Ended::ByLimit, &spent);
                break Err(memory_error(server, call, limit));
            }
            done => {
                note_end(server, call, failed, &spent);
                break done.map_err(lost);
            }
        }
        out.truncate(mark);
    };
    if let (Some(told), Some(trace)) = (&mut told, &call.trace) {
        let seen = trace.seen();
        told.end(seen.ended.unwrap_or(Ended::WithError), seen.spent.fuel);
    }
    if let Err(error) = kept {
        out.truncate(mark);
        append_error(out, call, error);
    }
}

fn append_error(out: &mut Vec<u8>, call: &ScriptCall<'_>, text: String) {
    let mut reply = Reply::append_to(std::mem::take(out), call.protocol);
    reply.error(&CommandError::owned(text));
    *out = reply.buf;
}

/// A run without locks. An error is the text that becomes the reply.
async fn run_unlocked(server: &Arc<Server>, call: &ScriptCall<'_>, out: &mut Vec<u8>) -> Result<(), String> {
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
        if let (Some(error), Outcome::Reply(_) | Outcome::Stopped) = (&host.failed, &outcome) {
            call.note(server, Ended::WithError, &spent);
            return Err(format!(
                "{} script: {}, by a call whose result it does not use.",
                error.text(),
                call.program.name()
            ));
        }
    }
    append_outcome(server, call, outcome, &spent, out).map(drop)
}

/// Waits in the line of the user's scripts, if there is one. Nothing is locked yet. An error is the text that becomes
/// the reply.
async fn take_turn(server: &Server, call: &ScriptCall<'_>) -> Result<Option<OwnedSemaphorePermit>, String> {
    let Some(account) = &call.account else { return Ok(None) };
    let waits = pin!(admission::turn(server, account));
    match server.runs.drive(|| call.who(), waits).await {
        Some(turn) => turn.map_err(|error| error.text().to_owned()),
        None => Err(killed_error(server, call)),
    }
}
