//! EXEC.

use std::pin::pin;
use std::sync::Arc;

use script::Outcome;
use store::spans::Part;
use store::{Call, LockRequest, Mode, Trouble, Unit, WatchId};
use store_engine::{CommandError, Reply};

use super::dry;
use super::host::{Circumstances, Collects, Lack, ScriptHost};
use super::limits::take_turn;
use super::locks::LockSet;
use super::outgoing::{Outgoing, commit};
use super::script::{ScriptCall, append_outcome, compile_error, killed_error, run_once};
use super::spans;
use crate::fleet;
use crate::gate::{self, Admitted};
use crate::observe::{Counters, unix_time};
use crate::options::OnError;
use crate::pubsub::Message;
use crate::server::Server;
use crate::stats::Ended;

/// One queued call of EXEC, ready to run.
pub enum Step<'a> {
    /// A command of the engine.
    Engine(Admitted<'a>, usize),
    /// A session command that answers at once; its bytes are the reply, made beforehand.
    Answered(Vec<u8>),
    /// PUBLISH or SPUBLISH.
    Publish(Message),
    /// A script or a function.
    Script(ScriptCall<'a>),
}

fn call_of<'a>(admitted: &'a Admitted<'_>, db: usize, now_ms: u64) -> Call<'a> {
    Call { command: admitted.facts, args: admitted.args, keys: &admitted.keys, db, now_ms }
}

/// The present time, which stands still for all steps in all rounds.
#[derive(Clone, Copy)]
struct Present {
    now_ms: u64,
    micros: u32,
    clock_seconds: f64,
}

impl Present {
    /// The time of nodes elsewhere, or ours if none was asked.
    fn of(server: &Server, txn: &mut Unit) -> Present {
        let here = unix_time();
        Present {
            now_ms: txn.keep_time(|| here.as_millis() as u64),
            micros: here.subsec_micros() % 1000,
            clock_seconds: server.started.elapsed().as_secs_f64(),
        }
    }

    fn seen_by(self, call: &ScriptCall<'_>, seed: u64) -> Circumstances {
        let Present { now_ms, micros, clock_seconds } = self;
        Circumstances { micros, clock_seconds, seed, ..Circumstances::of(call, now_ms) }
    }
}

/// Runs the steps of an EXEC as one transaction. `broken` is asked once the locks are held: whether a watched
/// key has changed. Returns `false` if it has; nothing was done then.
pub async fn exec(
    server: &Arc<Server>,
    steps: &[Step<'_>],
    watches: Vec<(WatchId, LockRequest)>,
    broken: impl Fn() -> bool,
    seed: &mut u64,
    out: &mut Reply,
) -> bool {
    let mut locks = LockSet::default();
    for step in steps {
        match step {
            Step::Engine(admitted, db) => locks.add(&call_of(admitted, *db, 0)),
            Step::Script(call) => locks.join(LockSet::of_keys(call.keys, call.db, Mode::Exclusive)),
            Step::Answered(_) | Step::Publish(_) => {}
        }
    }
    // Nobody may change a watched key between the look at it and the commit.
    let (watches, watched): (Vec<WatchId>, Vec<LockRequest>) = watches.into_iter().unzip();
    locks.join(LockSet::of(watched));
    let script = steps.iter().find_map(|step| if let Step::Script(call) = step { Some(call) } else { None });
    let runs_scripts = script.is_some();
    // One turn for all: they run one behind the other.
    let _turn = match script {
        Some(call) => match take_turn(server, call).await {
            Ok(turn) => turn,
            Err(error) => {
                out.error(&CommandError::owned(error));
                return true;
            }
        },
        None => None,
    };
    let mark = out.buf.len();
    let first_seed = *seed;
    let mut collects = Collects::at_first(server);
    let mut present: Option<Present> = None;
    loop {
        let lock = locks.lock(server, present.map(|present| present.now_ms), watches.clone());
        let mut txn = match server.counters.lock_waits.of(lock).await {
            Ok(txn) => txn,
            Err(Trouble::Broken) => return false,
            Err(trouble) => {
                out.error(&error_of(trouble));
                return true;
            }
        };
        if broken() {
            return false;
        }
        let _permit = if runs_scripts { Some(server.runtime.admit(false).await) } else { None };
        let present = *present.get_or_insert_with(|| Present::of(server, &mut txn));
        *seed = first_seed;
        let mut outgoing = Outgoing::default();
        match round(server, steps, txn, present, seed, collects, &mut outgoing, out).await {
            Ok(txn) => {
                if let Err(trouble) = commit(server, txn, outgoing).await {
                    out.buf.truncate(mark);
                    out.error(&error_of(trouble));
                }
                return true;
            }
            Err(Broken::Lack(txn, lack)) => {
                Counters::add(&server.counters.scripts_rerun, 1);
                for step in steps {
                    if let Step::Script(call) = step {
                        call.tell_rerun(&lack);
                    }
                }
                collects = collects.after(&lack);
                locks.widen(txn.as_deref(), lack.conflict());
            }
            Err(Broken::Ended(text)) => {
                // What ends a script undoes it, and with it the transaction it is part of.
                out.buf.truncate(mark);
                out.error(&CommandError::owned(text));
                return true;
            }
        }
        out.buf.truncate(mark);
    }
}

/// What becomes the reply when a transaction is lost.
fn error_of(trouble: Trouble) -> CommandError {
    match trouble {
        Trouble::Lost(error) => error,
        other => CommandError::owned(format!("ERR internal error: a transaction was lost: {other:?}")),
    }
}

/// Why a round came to nothing.
enum Broken {
    /// It has to be repeated, with the locks it had and those it lacked.
    Lack(Option<Box<Unit>>, Lack),
    /// A script was ended; the text is EXEC's reply.
    Ended(String),
}

/// Runs all steps. The transaction comes back if it may be committed.
#[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
async fn round(
    server: &Arc<Server>,
    steps: &[Step<'_>],
    mut txn: Unit,
    present: Present,
    seed: &mut u64,
    collects: Collects,
    outgoing: &mut Outgoing,
    out: &mut Reply,
) -> Result<Unit, Broken> {
    out.array(steps.len());
    for step in steps {
        match step {
            Step::Answered(bytes) => out.buf.extend_from_slice(bytes),
            Step::Publish(message) => {
                let (part, mark) = (Part::begin(), out.buf.len());
                let receivers = fleet::receivers(server, message.shard, &message.channel).await;
                match outgoing.push(message.clone()).and(receivers) {
                    Ok(count) => out.count(count),
                    Err(error) => out.error(&error),
                }
                if let Some(part) = part {
                    let name = if message.shard { "SPUBLISH" } else { "PUBLISH" };
                    spans::tell_queued(server, part, name, 0, &out.buf[mark..]);
                }
            }
            Step::Engine(admitted, db) => {
                let (part, mark) = (Part::begin(), out.buf.len());
                let call = call_of(admitted, *db, present.now_ms);
                let execute = txn.execute(&call, Mode::Exclusive, seed, out);
                let done = match &part {
                    Some(part) => part.scope().drive(execute).await,
                    None => execute.await,
                };
                if let Some(part) = part {
                    let name = gate::shown_name(&server.registry, admitted.args);
                    spans::tell_queued(server, part, name, *db, &out.buf[mark..]);
                }
                match done {
                    Ok(fine) => server.calls.add_untimed(admitted.number, !fine),
                    Err(Trouble::Conflict(conflict)) => {
                        return Err(Broken::Lack(Some(Box::new(txn)), Lack::Lock(conflict)));
                    }
                    Err(trouble) => return Err(Broken::Ended(error_of(trouble).text().to_owned())),
                }
            }
            Step::Script(call) => {
                txn = script_step(server, call, txn, present, seed, collects, outgoing, out).await?;
            }
        }
    }
    Ok(txn)
}

#[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
async fn script_step(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    txn: Unit,
    present: Present,
    seed: &mut u64,
    collects: Collects,
    outgoing: &mut Outgoing,
    out: &mut Reply,
) -> Result<Unit, Broken> {
    let (began, mark) = (call.phase(), out.buf.len());
    let done = run_step(server, call, txn, present, seed, collects, outgoing, out).await;
    let Some(began) = began else { return done };
    match &done {
        // It is told of when it has ended.
        Err(Broken::Lack(..)) => {}
        Err(Broken::Ended(text)) => spans::tell(server, call, began, format!("-{text}").as_bytes()),
        Ok(_) => spans::tell(server, call, began, out.buf.get(mark..).unwrap_or_default()),
    }
    done
}

#[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
async fn run_step(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    mut txn: Unit,
    present: Present,
    seed: &mut u64,
    collects: Collects,
    outgoing: &mut Outgoing,
    out: &mut Reply,
) -> Result<Unit, Broken> {
    let ended = |trouble| Broken::Ended(error_of(trouble).text().to_owned());
    txn.begin_part().await.map_err(ended)?;
    if let Err(error) = dry::refuse(call) {
        out.error(&CommandError::owned(error));
        return Ok(txn);
    }
    let mark = out.buf.len();
    let mut told = server.events.begin(|| call.introduction("transaction"));
    let seen = present.seen_by(call, *seed);
    let run = pin!(run_once(server, call, txn, seen, collects, false));
    let Some(mut done) = server.runs.drive(|| call.who(), run).await else {
        told.iter_mut().for_each(|told| told.end(Ended::Killed, 0));
        return Err(Broken::Ended(killed_error(server, call)));
    };
    let lack = done.lack();
    if let Some(Lack::Node(error)) = lack {
        return Err(Broken::Ended(error.text().to_owned()));
    }
    if let Some(lack) = lack {
        call.program.stats().add_rerun();
        told.iter_mut().for_each(|told| told.repeat());
        return Err(Broken::Lack(done.host.map(|host| Box::new(host.txn)), lack));
    }
    let failed = match done.outcome {
        Outcome::CompileError(message) => {
            out.error(&CommandError::owned(compile_error(&message)));
            true
        }
        outcome => {
            told.iter_mut().for_each(|told| told.end(Ended::ByLimit, done.spent.fuel));
            append_outcome(server, call, outcome, &done.spent, &mut out.buf).map_err(Broken::Ended)?
        }
    };
    let how = if failed { Ended::WithError } else { Ended::Well };
    told.iter_mut().for_each(|told| told.end(how, done.spent.fuel));
    let lost = || Broken::Ended("SCRIPTTRAP the sandbox took its transaction down".into());
    let ScriptHost { mut txn, outgoing: published, seen, .. } = *done.host.ok_or_else(lost)?;
    *seed = seen.seed;
    if call.is_dry() {
        dry::tell(call, &mut txn, failed, mark, &mut out.buf).await.map_err(Broken::Ended)?;
        return Ok(txn);
    }
    match failed && call.options.on_error == Some(OnError::RollBack) {
        true => txn.undo_part().await.map_err(ended)?,
        false => {
            txn.keep_part().await.map_err(ended)?;
            outgoing.append(published);
        }
    }
    Ok(txn)
}
