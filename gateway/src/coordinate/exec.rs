//! EXEC, and single calls whose keys are in use.

use std::sync::Arc;

use resp::ReplyLimits;
use script::Outcome;
use store::{Call, Mode};
use store_engine::{CommandError, Protocol, Reply};

use super::host::Circumstances;
use super::locks::LockSet;
use super::script::{ScriptCall, compile_error, limit_error, run_once};
use crate::gate::Admitted;
use crate::server::Server;

/// Runs one engine call that found its keys locked: waits for them in order.
pub async fn run_locked(
    server: &Arc<Server>,
    admitted: &Admitted<'_>,
    db: usize,
    seed: &mut u64,
    out: &mut Reply,
) {
    let mut locks = LockSet::default();
    locks.add(admitted, db);
    let mut txn = locks.lock(server).await;
    let now_ms = crate::observe::unix_ms();
    let call = Call { command: admitted.facts, args: admitted.args, keys: &admitted.keys, db, now_ms };
    // Everything the call names is locked, so it cannot conflict.
    if txn.execute(&call, Mode::Exclusive, seed, out).is_err() {
        out.error(&CommandError::new("ERR internal error: a locked key was not locked"));
    }
    txn.commit();
}

/// One queued call of EXEC, ready to run.
pub enum Step<'a> {
    /// A command of the engine.
    Engine(Admitted<'a>, usize),
    /// A session command that answers at once; its bytes are the reply, made beforehand.
    Answered(Vec<u8>),
    /// A script.
    Script(ScriptCall<'a>),
}

/// Runs the steps of an EXEC as one transaction. `broken` is asked once the locks are held: whether a watched
/// key has changed. Returns `false` if it has; nothing was done then.
pub async fn exec(
    server: &Arc<Server>,
    steps: &[Step<'_>],
    broken: impl Fn() -> bool,
    seed: &mut u64,
    protocol: Protocol,
    out: &mut Reply,
) -> bool {
    let mut locks = LockSet::default();
    for step in steps {
        match step {
            Step::Engine(admitted, db) => locks.add(admitted, *db),
            Step::Script(call) => locks.join(LockSet::of_keys(call.keys, call.db, Mode::Exclusive)),
            Step::Answered(_) => {}
        }
    }
    let permit = steps.iter().any(|step| matches!(step, Step::Script(_)));
    let _permit = if permit { Some(server.runtime.admit().await) } else { None };
    let mark = out.buf.len();
    let first_seed = *seed;
    let mut now_ms = None;
    'round: loop {
        let mut txn = locks.lock(server).await;
        if broken() {
            return false;
        }
        let now_ms = *now_ms.get_or_insert_with(crate::observe::unix_ms);
        *seed = first_seed;
        out.array(steps.len());
        for step in steps {
            let conflict = match step {
                Step::Answered(bytes) => {
                    out.buf.extend_from_slice(bytes);
                    None
                }
                Step::Engine(admitted, db) => {
                    let Admitted { facts, args, keys, .. } = admitted;
                    let call = Call { command: facts, args: *args, keys, db: *db, now_ms };
                    txn.execute(&call, Mode::Exclusive, seed, out).err()
                }
                Step::Script(call) => {
                    let seen = Circumstances {
                        now_ms,
                        clock_seconds: 0.0,
                        seed: *seed,
                        db: call.db,
                        read_only: call.read_only,
                    };
                    let (back, outcome, conflict) = run_once(server, call, txn, seen).await;
                    match (back, conflict) {
                        (Some(back), None) => txn = back,
                        (_, Some(conflict)) => {
                            out.buf.truncate(mark);
                            locks.widen(conflict);
                            continue 'round;
                        }
                        (None, None) => {
                            // The script took the transaction down with it: nothing of this EXEC has happened.
                            out.buf.truncate(mark);
                            out.error(&CommandError::owned(exec_aborted(server, &outcome, &call.known.sha)));
                            return true;
                        }
                    }
                    match outcome {
                        Outcome::Reply(bytes)
                            if resp::transcode(&bytes, protocol, &mut out.buf, ReplyLimits::default())
                                .is_ok() => {}
                        Outcome::CompileError(message) => {
                            out.error(&CommandError::owned(compile_error(&message)));
                        }
                        outcome => {
                            // A limit undoes the script, and with it the transaction it was part of.
                            out.buf.truncate(mark);
                            out.error(&CommandError::owned(exec_aborted(server, &outcome, &call.known.sha)));
                            return true;
                        }
                    }
                    None
                }
            };
            if let Some(conflict) = conflict {
                drop(txn);
                out.buf.truncate(mark);
                locks.widen(conflict);
                continue 'round;
            }
        }
        txn.commit();
        return true;
    }
}

fn exec_aborted(server: &Server, outcome: &Outcome, sha: &str) -> String {
    match outcome {
        Outcome::Limit(limit) => limit_error(server, *limit, sha),
        Outcome::Trap(what) => {
            format!("SCRIPTTRAP the sandbox stopped script {sha}: {what}; EXEC was undone")
        }
        _ => format!("SCRIPTTRAP script {sha} returned no valid reply; EXEC was undone"),
    }
}
