//! The run of a script, round after round until its locks suffice.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use resp::ReplyLimits;
use script::{AnyHost, Outcome, RunInput, Spent};
use store::{Conflict, Mode, Transaction};
use store_engine::{CommandError, Protocol, Reply};

use super::host::{Circumstances, ScriptHost};
use super::locks::LockSet;
use crate::gate::Recent;
use crate::observe::{Counters, unix_time};
use crate::scripts::Known;
use crate::server::Server;

/// A script to be run and what it is called with.
pub struct ScriptCall<'a> {
    /// The script.
    pub known: Arc<Known>,
    /// Its keys: locked beforehand.
    pub keys: &'a [&'a [u8]],
    /// Its other arguments.
    pub args: &'a [&'a [u8]],
    /// It may not write.
    pub read_only: bool,
    /// The caller's database.
    pub db: usize,
    /// The caller's protocol.
    pub protocol: Protocol,
    /// Seed for commands with random results.
    pub seed: u64,
}

/// Runs a script atomically and appends its reply to `out`.
pub async fn run_script(server: &Arc<Server>, call: ScriptCall<'_>, out: &mut Vec<u8>) {
    let mode = if call.read_only { Mode::Shared } else { Mode::Exclusive };
    let mut locks = LockSet::of_keys(call.keys, call.db, mode);
    let _permit = server.runtime.admit().await;
    let mut circumstances = None;
    loop {
        let txn = locks.lock(server).await;
        let seen = *circumstances.get_or_insert_with(|| {
            let now = unix_time();
            Circumstances {
                now_ms: now.as_millis() as u64,
                clock_seconds: server.started.elapsed().as_secs_f64(),
                seed: call.seed,
                db: call.db,
                read_only: call.read_only,
            }
        });
        let (txn, outcome, conflict) = run_once(server, &call, txn, seen).await;
        if let Some(conflict) = conflict {
            // Taken back before the next round asks for its locks.
            drop(txn);
            Counters::add(&server.counters.scripts_rerun, 1);
            locks.widen(conflict);
            continue;
        }
        let error = match outcome {
            Outcome::Reply(bytes) => {
                let mark = out.len();
                match resp::transcode(&bytes, call.protocol, out, ReplyLimits::default()) {
                    Ok(()) => {
                        // A script's own error keeps what it wrote, as in Redis.
                        txn.into_iter().for_each(Transaction::commit);
                        Counters::add(&server.counters.scripts_run, 1);
                        return;
                    }
                    Err(error) => {
                        out.truncate(mark);
                        Counters::add(&server.counters.script_traps, 1);
                        format!(
                            "SCRIPTTRAP the sandbox returned no valid reply: {error}; its writes were undone"
                        )
                    }
                }
            }
            Outcome::CompileError(message) => compile_error(&message),
            Outcome::Limit(limit) => limit_error(server, limit, &call.known.sha),
            Outcome::Stopped => "SCRIPTTRAP the script was stopped; its writes were undone".into(),
            Outcome::Trap(what) => {
                Counters::add(&server.counters.script_traps, 1);
                format!(
                    "SCRIPTTRAP the sandbox stopped script {}: {what}; its writes were undone",
                    call.known.sha
                )
            }
        };
        drop(txn);
        let mut reply = Reply { buf: std::mem::take(out), protocol: call.protocol };
        reply.error(&CommandError::owned(error));
        *out = reply.buf;
        return;
    }
}

/// Redis' text for a script that does not compile.
pub fn compile_error(message: &str) -> String {
    format!("ERR Error compiling script (new function): {message}")
}

pub(super) fn limit_error(server: &Server, limit: script::Limit, sha: &str) -> String {
    let budget = server.budget();
    let (used_up, setting) = match limit {
        script::Limit::Fuel => (format!("{} units used up", budget.fuel), "script-fuel"),
        script::Limit::Time => (format!("{} ms are over", budget.time.as_millis()), "script-timeout-ms"),
        script::Limit::Memory => (format!("more than {} bytes wanted", budget.memory_bytes), "script-memory"),
        script::Limit::Reply => {
            (format!("reply of more than {} bytes", budget.reply_bytes), "script-reply-max")
        }
        script::Limit::Killed => {
            return format!("KILLED script {sha} was ended by SCRIPT KILL; its writes were undone");
        }
    };
    format!(
        "SCRIPTLIMIT {}: {used_up} by script {sha}; its writes were undone; the limit is set by {setting}",
        limit.name()
    )
}

/// One round. Gives the transaction back unless the sandbox took it down with it, and what the round lacked.
pub(super) async fn run_once(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    txn: Transaction,
    seen: Circumstances,
) -> (Option<Transaction>, Outcome, Option<Conflict>) {
    let host = ScriptHost { server: server.clone(), txn, seen, conflict: None, recent: Recent::default() };
    let input = RunInput {
        name: &call.known.sha,
        keys: call.keys,
        args: call.args,
        clock_seconds: seen.clock_seconds,
        seed: seen.seed as u32,
    };
    let input = input.encode();
    let (runtime, known, budget) = (server.runtime.clone(), call.known.clone(), server.budget());
    // Boxed at once: the future is large, and each move of it costs.
    let run =
        Box::pin(
            async move { runtime.run(&known.script, &known.sha, &input, &budget, AnyHost::new(host)).await },
        );
    let (host, outcome, _) = first_slice_here(server, run).await;
    match host.and_then(AnyHost::downcast::<ScriptHost>) {
        Some(host) => (Some(host.txn), outcome, host.conflict),
        None => (None, outcome, None),
    }
}

/// What [`script::Runtime::run`] gives.
type Ran = (Option<AnyHost>, Outcome, Spent);

/// Runs the first slice on the caller's thread, which is where short scripts end; what takes longer moves to
/// the compute threads, so that the caller's other connections go on.
async fn first_slice_here(
    server: &Server,
    mut run: Pin<Box<impl Future<Output = Ran> + Send + 'static>>,
) -> Ran {
    let first = poll_fn(|context| {
        // Whatever panicked is dropped with the future: sandbox, host and transaction.
        let step = std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        Poll::Ready(step)
    })
    .await;
    match first {
        Ok(Poll::Ready(ran)) => ran,
        Ok(Poll::Pending) => {
            let mut task = AbortOnDrop(server.compute.spawn(run));
            match (&mut task.0).await {
                Ok(ran) => ran,
                Err(_) => panicked(),
            }
        }
        Err(_) => panicked(),
    }
}

fn panicked() -> Ran {
    (None, Outcome::Trap("internal error in a host call".into()), Spent::default())
}

/// Ends the run if nobody waits for it any more.
struct AbortOnDrop(tokio::task::JoinHandle<Ran>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
