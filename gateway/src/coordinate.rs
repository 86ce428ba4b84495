//! Transactions: atomic scripts and EXEC.
//!
//! An atomic unit locks the keys it names and runs. If a call then needs a key that somebody else holds, the
//! unit is taken back, the key joins its lock set, and it runs again: with the same time, random seed and
//! arguments, so nobody can tell. After [`MOST_ROUNDS`] rounds the whole store is locked, which cannot fail.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use resp::ReplyLimits;
use script::{AnyHost, CallFlags, Host, HostCall, LogLevel, Outcome, RunInput, Spent};
use store::{Call, Conflict, LockRequest, Mode, Transaction};
use store_engine::{Args, CommandError, DATABASES, Protocol, Reply, number};

use crate::gate::{self, Admitted, Origin, Recent};
use crate::observe::{Counters, unix_time};
use crate::scripts::Known;
use crate::server::Server;

/// Rounds with a growing lock set before everything is locked.
const MOST_ROUNDS: usize = 4;

/// Fuel that a call costs beside what its reply's bytes cost.
const CALL_FUEL: u64 = 100;

/// What an atomic unit has to lock.
#[derive(Default)]
struct LockSet {
    requests: Vec<LockRequest>,
    whole: bool,
    rounds: usize,
}

impl LockSet {
    async fn lock(&self, server: &Server) -> Transaction {
        if self.whole {
            Transaction::begin_whole(&server.node).await
        } else {
            Transaction::begin(&server.node, self.requests.clone()).await
        }
    }

    /// Adds what the last round lacked.
    fn widen(&mut self, conflict: Conflict) {
        self.rounds += 1;
        match conflict {
            Conflict::Key(request) if self.rounds < MOST_ROUNDS => self.requests.push(request),
            _ => self.whole = true,
        }
    }
}

/// The circumstances of a unit, which every round sees alike.
#[derive(Clone, Copy)]
struct Circumstances {
    now_ms: u64,
    clock_seconds: f64,
    seed: u64,
    db: usize,
    read_only: bool,
}

/// What a script's calls meet: the gate, then the transaction.
struct ScriptHost {
    server: Arc<Server>,
    txn: Transaction,
    seen: Circumstances,
    conflict: Option<Conflict>,
    recent: Recent,
}

impl ScriptHost {
    fn answer(&mut self, args: Args<'_>, out: &mut Reply) -> Result<(), Stop> {
        let ScriptHost { server, txn, seen, conflict, recent } = self;
        let origin = Origin::Script { read_only: seen.read_only };
        let Admitted { facts, keys, .. } = match gate::admit_again(&server.registry, args, origin, recent) {
            Ok(admitted) => admitted,
            Err(error) => {
                match select(args) {
                    Some(Ok(db)) => {
                        seen.db = db;
                        out.ok();
                    }
                    Some(Err(error)) => out.error(&error),
                    None => out.error(&error),
                }
                return Ok(());
            }
        };
        let call = Call { command: facts, args, keys: &keys, db: seen.db, now_ms: seen.now_ms };
        let mode = if seen.read_only { Mode::Shared } else { Mode::Exclusive };
        txn.execute(&call, mode, &mut seen.seed, out).map(drop).map_err(|lacks| {
            *conflict = Some(lacks);
            Stop
        })
    }
}

/// The round must end.
struct Stop;

/// SELECT inside a script holds for the script only: the one session command that means something there.
fn select(args: Args<'_>) -> Option<Result<usize, CommandError>> {
    if !args.name().eq_ignore_ascii_case(b"select") || args.len() != 2 {
        return None;
    }
    let Some(db) = number::parse_i64(args[1]) else { return Some(Err(store_engine::error::NOT_AN_INTEGER)) };
    let db = usize::try_from(db).ok().filter(|db| *db < DATABASES);
    Some(db.ok_or(CommandError::new("ERR DB index is out of range")))
}

impl Host for ScriptHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let args = Args::new(args);
        let protocol = if flags.resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut out = Reply { buf: std::mem::take(reply), protocol };
        let done = if flags.acl_check() {
            // Every user may run every command that exists.
            match self.server.registry.lookup(args.name()) {
                Some(_) => out.integer(1),
                None => out.error(&CommandError::new("ERR Invalid command passed to redis.acl_check_cmd()")),
            }
            Ok(())
        } else {
            self.answer(args, &mut out)
        };
        *reply = out.buf;
        match done {
            Ok(()) => HostCall::Done(CALL_FUEL + reply.len() as u64),
            Err(Stop) => HostCall::Stop,
        }
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        crate::log::script(level, text);
    }
}

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
    let declared = |key: &&[u8]| LockRequest { db: call.db, key: (*key).into(), mode };
    let mut locks = LockSet { requests: call.keys.iter().map(declared).collect(), ..LockSet::default() };
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

fn limit_error(server: &Server, limit: script::Limit, sha: &str) -> String {
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
async fn run_once(
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

/// Runs one engine call that found its keys locked: waits for them in order.
pub async fn run_locked(
    server: &Arc<Server>,
    admitted: &Admitted<'_>,
    db: usize,
    seed: &mut u64,
    out: &mut Reply,
) {
    let mut locks = LockSet::default();
    add_locks(&mut locks, admitted, db);
    let mut txn = locks.lock(server).await;
    let now_ms = crate::observe::unix_ms();
    let call = Call { command: admitted.facts, args: admitted.args, keys: &admitted.keys, db, now_ms };
    // Everything the call names is locked, so it cannot conflict.
    if txn.execute(&call, Mode::Exclusive, seed, out).is_err() {
        out.error(&CommandError::new("ERR internal error: a locked key was not locked"));
    }
    txn.commit();
}

fn add_locks(locks: &mut LockSet, admitted: &Admitted<'_>, db: usize) {
    let facts = admitted.facts;
    locks.whole |= facts.routing.of(admitted.args) == store_engine::Routing::Everywhere;
    let call = Call { command: facts, args: admitted.args, keys: &admitted.keys, db, now_ms: 0 };
    locks.requests.extend(call.keys().map(|(key, mode)| LockRequest { db, key: key.into(), mode }));
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
            Step::Engine(admitted, db) => add_locks(&mut locks, admitted, *db),
            Step::Script(call) => {
                let declared =
                    |key: &&[u8]| LockRequest { db: call.db, key: (*key).into(), mode: Mode::Exclusive };
                locks.requests.extend(call.keys.iter().map(declared));
            }
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
