//! EXEC.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use script::{Outcome, ResourceUsage};
use store::spans::Part;
use store::{Conflict, LockRequest, Mode, Transaction, TransactionError, WatchId};
use store_engine::error::REPLY_TOO_LARGE;
use store_engine::work::LONG_CALL_STEPS;
use store_engine::{Args, CommandError, Reply};

use super::attempt::run_once;
use super::call::ScriptCall;
use super::circumstances::{Collects, RetryReason, RetryWindow, RunContext};
use super::dry_run;
use super::errors::{ScriptError, exec_memory_error, never_run_error};
use super::host::{Locked, ScriptHost};
use super::locks::LockSet;
use super::outcome::{append_reply, forget, note_end, note_killed, note_never_run};
use super::outgoing::{Outgoing, commit};
use super::spans;
use crate::admission::{self, Admitted, Parsed};
use crate::process::Process;
use crate::scripts::cache::{sha_of, spelled};
use crate::scripts::options::OnError;
use crate::scripts::running::Who;
use crate::server::{Handler, Row, ScriptSource, Server, SessionCommand, gateways};
use crate::session::Session;
use crate::session::pubsub::Message;
use crate::telemetry::counters::{Counters, unix_time};
use crate::telemetry::script_stats::Ended;

/// Queued calls of which each does little that are looked at, or performed, before others have their turn.
const CALLS_PER_YIELD: usize = 1000;

/// A queued call of EXEC, as far as it is known before any of them is performed.
pub struct Queued<'a> {
    /// The call as it came.
    pub args: Args<'a>,
    /// The call, parsed. Its checks are made when its turn has come.
    pub call: Result<Parsed<'a>, CommandError>,
    /// The database that it will find selected.
    pub db: usize,
}

impl Queued<'_> {
    fn command(&self) -> Option<&'static SessionCommand> {
        match self.call.as_ref().ok()?.row {
            Row::Session(command) => Some(command),
            Row::Engine(_) => None,
        }
    }

    /// What performs it, if it is about no key.
    pub fn handler(&self) -> Option<Handler> {
        self.command().map(|command| command.run)
    }

    fn script_source(&self) -> Option<ScriptSource> {
        match self.handler()? {
            Handler::Script { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Who runs the script or function of this connection.
    fn who(&self, client: u64) -> Who {
        let word = String::from_utf8_lossy(self.args[1]);
        let function = || self.args.items().iter().map(|item| Box::from(*item)).collect();
        let (name, function) = match self.script_source() {
            Some(ScriptSource::Text) => (spelled(&sha_of(self.args[1])), None),
            Some(ScriptSource::Digest) => (word.to_ascii_lowercase(), None),
            Some(ScriptSource::Function) | None => (word.into_owned(), Some(function())),
        };
        Who { name, function, client }
    }

    /// Whether it compiles or runs something, for which a user may have to wait.
    fn needs_permit(&self) -> bool {
        let subcommand = self.call.as_ref().map_or("", |call| call.spec().name);
        let loads = self.command().is_some_and(|command| {
            matches!(
                (command.spec.name, subcommand),
                ("script" | "function", "load") | ("function", "restore")
            )
        });
        loads || self.script_source().is_some()
    }
}

/// A queued call of EXEC when its turn has come. What is about no key is done by then.
pub enum QueuedStep<'a> {
    /// A command of the engine.
    Engine(Admitted<'a>, usize),
    /// Something that was answered thus.
    Answered(Vec<u8>),
    /// PUBLISH or SPUBLISH.
    Publish(Message),
    /// A script or a function.
    Script(Box<ScriptCall<'a>>),
}

/// Performs what is about no key, for the session whose EXEC it is.
pub trait Performer<'a>: Send {
    /// The session.
    fn session(&self) -> &Session;

    /// Whether a watched key has changed, as far as that is known here. `now_ms` is the time that the calls see.
    fn watch_broken(&self, now_ms: u64) -> bool;

    /// What is left to do for call number `at`, now that all before it are done. `clock` is what it sees as the present
    /// time. Nobody asks twice for the same.
    fn step<'s>(&'s mut self, at: usize, clock: Duration) -> Stepping<'s, 'a>;
}

/// What an EXEC depends on.
pub struct Watches {
    /// Locks on the watched keys: no other client may change one between the look at it and the commit.
    pub keys: Vec<LockRequest>,
    /// What nodes elsewhere are to be asked about.
    pub remote: Vec<WatchId>,
}

/// What comes to a step.
pub enum Stepping<'s, 'a> {
    /// It is one.
    Now(QueuedStep<'a>),
    /// It may have to wait.
    Later(Pin<Box<dyn Future<Output = QueuedStep<'a>> + Send + 's>>),
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
    fn of(process: &Process, session: &Session, txn: &mut Transaction) -> Present {
        let here = unix_time();
        Present {
            now_ms: txn.keep_time(|| session.clock_of(here.as_millis() as u64)),
            micros: here.subsec_micros() % 1000,
            clock_seconds: process.started.elapsed().as_secs_f64(),
        }
    }

    fn clock(self) -> Duration {
        Duration::from_millis(self.now_ms) + Duration::from_micros(self.micros.into())
    }

    fn snapshot_for(self, call: &ScriptCall<'_>, seed: u64) -> RunContext {
        let Present { now_ms, micros, clock_seconds } = self;
        RunContext { micros, clock_seconds, seed, ..call.circumstances(now_ms) }
    }
}

/// Runs the queued calls of an EXEC as one transaction. `Ok(false)`: a watched key has changed before all was locked. With
/// an error nothing of it is kept, but for what the `performer` has done that is about no key.
pub async fn exec<'a>(
    server: &Arc<Server>,
    queued: &'a [Queued<'a>],
    performer: &mut (dyn Performer<'a> + '_),
    watches: Watches,
    seed: &mut u64,
    out: &mut Reply,
) -> Result<bool, CommandError> {
    let mut locks = LockSet::default();
    for (at, Queued { call, db, .. }) in queued.iter().enumerate() {
        if at % CALLS_PER_YIELD == CALLS_PER_YIELD - 1 {
            tokio::task::yield_now().await;
        }
        if let Ok(parsed) = call {
            locks.add(parsed.call(), *db);
        }
    }
    let script = queued.iter().find(|queued| queued.script_source().is_some());
    // A script may write what it does not declare, and would have to begin again where it may only read.
    let mode = if script.is_some() { Mode::Exclusive } else { Mode::Shared };
    locks.join(LockSet::of(watches.keys.into_iter().map(|key| LockRequest { mode, ..key }).collect()));
    let client = performer.session().client.id;
    // One turn for all: they run one behind the other. It is waited for while nothing is locked.
    let _script_permit = match performer.session().limited_account() {
        Some(account) if queued.iter().any(Queued::needs_permit) => {
            wait(server, script, client, admission::script_permit(&server.acl, &account)).await??
        }
        _ => None,
    };
    let start = out.buf.len();
    let mut collects = Collects::at_first(server);
    let mut present: Option<Present> = None;
    let mut retry_window = RetryWindow::default();
    let mut steps = Vec::with_capacity(queued.len());
    loop {
        let lock = locks.lock(&server.store, present.map(|present| present.now_ms), watches.remote.clone());
        let mut txn =
            match wait(server, script, client, server.telemetry.counters.lock_waits.of(lock)).await? {
                Ok(txn) => txn,
                Err(TransactionError::WatchBroken) => return Ok(false),
                Err(TransactionError::LeaderLost(error)) => match retry_window.is_open().await {
                    true => continue,
                    false => return Err(error),
                },
                Err(error) => return Err(error_of(error)),
            };
        let present =
            *present.get_or_insert_with(|| Present::of(&server.process, performer.session(), &mut txn));
        if performer.watch_broken(present.now_ms) {
            return Ok(false);
        }
        let mut shared =
            Shared { present, seed: *seed, collects, outgoing: Outgoing::default(), ended: Vec::new() };
        out.array(queued.len());
        match attempt(server, queued.len(), performer, &mut steps, txn, &mut shared, out).await {
            Ok(txn) => {
                *seed = shared.seed;
                for (at, failed, usage) in shared.ended {
                    if let Some(QueuedStep::Script(call)) = steps.get(at) {
                        note_end(&server.telemetry, call, failed, &usage);
                    }
                }
                match commit(server, txn, shared.outgoing).await {
                    Err(TransactionError::Conflict(Conflict::Limit(limit))) => {
                        return Err(exec_memory_error(&server.config, limit));
                    }
                    Err(TransactionError::LeaderLost(error)) => {
                        if !retry_window.is_open().await {
                            return Err(error);
                        }
                    }
                    done => return done.map(|()| true).map_err(error_of),
                }
            }
            Err(Broken::RetryReason(_, RetryReason::Leader(error))) => {
                if !retry_window.is_open().await {
                    return Err(error);
                }
            }
            Err(Broken::RetryReason(txn, retry)) => {
                Counters::add(&server.telemetry.counters.scripts_rerun, 1);
                for step in &steps {
                    if let QueuedStep::Script(call) = step {
                        call.report_rerun(&retry);
                    }
                }
                collects = collects.after(&retry);
                locks.widen(txn.as_deref(), retry.conflict());
            }
            // What ends a script undoes it, and with it the transaction it is part of.
            Err(Broken::Ended(error)) => return Err(error),
        }
        out.truncate(start);
    }
}

/// Waits. Whoever kills the first `script` ends that, and nothing was done.
async fn wait<T>(
    server: &Server,
    script: Option<&Queued<'_>>,
    client: u64,
    waits: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let Some(script) = script else { return Ok(waits.await) };
    match server.scripting.runs.drive(|| script.who(client), pin!(waits)).await {
        Some(done) => Ok(done),
        None => {
            note_never_run(&server.telemetry);
            Err(never_run_error(&script.who(client)))
        }
    }
}

/// What becomes the reply when a transaction is lost.
pub fn error_of(error: TransactionError) -> CommandError {
    match error {
        TransactionError::Lost(error) | TransactionError::LeaderLost(error) => error,
        other => CommandError::owned(format!("ERR internal error: a transaction was lost: {other:?}")),
    }
}

/// Why a round came to nothing.
enum Broken {
    /// It has to be repeated, with the locks it had and those it lacked.
    RetryReason(Option<Box<Transaction>>, RetryReason),
    /// A script was ended; the error is EXEC's reply.
    Ended(CommandError),
}

/// What the steps of a round share.
struct Shared {
    present: Present,
    seed: u64,
    collects: Collects,
    outgoing: Outgoing,
    /// The scripts that have come to their end: number, whether with an error, and what they used.
    ended: Vec<(usize, bool, ResourceUsage)>,
}

/// Runs all `count` steps; `steps` are those that an earlier round has come to. The transaction comes back if it may be
/// committed.
async fn attempt<'a>(
    server: &Arc<Server>,
    count: usize,
    performer: &mut (dyn Performer<'a> + '_),
    steps: &mut Vec<QueuedStep<'a>>,
    mut txn: Transaction,
    shared: &mut Shared,
    out: &mut Reply,
) -> Result<Transaction, Broken> {
    for at in 0..count {
        if steps.len() == at {
            let step = match performer.step(at, shared.present.clock()) {
                Stepping::Now(step) => step,
                Stepping::Later(step) => step.await,
            };
            steps.push(step);
        }
        match &steps[at] {
            QueuedStep::Answered(bytes) => out.buf.extend_from_slice(bytes),
            QueuedStep::Publish(message) => {
                let (part, start) = (Part::begin(), out.buf.len());
                let receivers = gateways::receivers(server, message.shard, &message.channel).await;
                match shared.outgoing.push(message.clone()).and(receivers) {
                    Ok(count) => out.count(count),
                    Err(error) => out.error(&error),
                }
                if let Some(part) = part {
                    let name = if message.shard { "SPUBLISH" } else { "PUBLISH" };
                    spans::report_queued(&server.telemetry, part, name, 0, &out.buf[start..]);
                }
            }
            QueuedStep::Engine(admitted, db) => {
                make_room(out).await.map_err(Broken::Ended)?;
                let (part, start) = (Part::begin(), out.buf.len());
                let call = admitted.at(*db, shared.present.now_ms);
                txn.set_limits(server.config.transaction_limits());
                let execute = txn.execute(&call, Mode::Exclusive, &mut shared.seed, out);
                let done = match &part {
                    Some(part) => part.scope().drive(execute).await,
                    None => execute.await,
                };
                if let Some(part) = part {
                    let name = server.registry.shown_name(usize::from(admitted.number));
                    spans::report_queued(&server.telemetry, part, name, *db, &out.buf[start..]);
                }
                if out.is_over_limit() {
                    return Err(Broken::Ended(REPLY_TOO_LARGE));
                }
                // Of many calls none may be long, and all together nevertheless.
                out.steps += LONG_CALL_STEPS / CALLS_PER_YIELD as u64;
                if out.steps > LONG_CALL_STEPS {
                    out.steps = 0;
                    tokio::task::yield_now().await;
                }
                match done {
                    Ok(fine) => server.telemetry.queued_call_ran(admitted.number, !fine),
                    Err(TransactionError::Conflict(Conflict::Limit(limit))) => {
                        return Err(Broken::Ended(exec_memory_error(&server.config, limit)));
                    }
                    Err(TransactionError::Conflict(conflict)) => {
                        return Err(Broken::RetryReason(Some(Box::new(txn)), RetryReason::Lock(conflict)));
                    }
                    Err(TransactionError::LeaderLost(error)) => {
                        return Err(Broken::RetryReason(None, RetryReason::Leader(error)));
                    }
                    Err(error) => return Err(Broken::Ended(error_of(error))),
                }
            }
            QueuedStep::Script(call) => {
                txn = script_step(server, call, at, txn, shared, out).await?;
            }
        }
    }
    Ok(txn)
}

/// Lets a large reply grow before it has to, on another thread: all of it may have to move.
async fn make_room(out: &mut Reply) -> Result<(), CommandError> {
    const LARGE_BYTES: usize = 16 << 20;
    let len = out.buf.len();
    if len < LARGE_BYTES || out.buf.capacity() - len > len / 8 {
        return Ok(());
    }
    let mut buf = std::mem::take(&mut out.buf);
    let grown = tokio::task::spawn_blocking(move || {
        buf.reserve(len);
        buf
    });
    out.buf = grown.await.map_err(|_| CommandError::new("ERR internal error: a reply was lost"))?;
    Ok(())
}

async fn script_step(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    at: usize,
    txn: Transaction,
    shared: &mut Shared,
    out: &mut Reply,
) -> Result<Transaction, Broken> {
    let (began, start) = (call.phase(), out.buf.len());
    let done = run_step(server, call, at, txn, shared, out).await;
    let Some(began) = began else { return done };
    match &done {
        // It is reported when it has ended.
        Err(Broken::RetryReason(..)) => {}
        Err(Broken::Ended(error)) => spans::report(server, call, began, format!("-{error}").as_bytes()),
        Ok(_) => spans::report(server, call, began, out.buf.get(start..).unwrap_or_default()),
    }
    done
}

async fn run_step(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    at: usize,
    mut txn: Transaction,
    shared: &mut Shared,
    out: &mut Reply,
) -> Result<Transaction, Broken> {
    let lost = |error| Broken::Ended(error_of(error));
    let ended = |error: ScriptError| Broken::Ended(error.reply(call));
    txn.begin_part().await.map_err(lost)?;
    if let Err(error) = dry_run::refuse(call) {
        out.error(&error.reply(call));
        return Ok(txn);
    }
    let start = out.buf.len();
    let mut event = server.telemetry.script_events.begin(|| call.introduction("transaction"));
    let (snapshot, collects) = (shared.present.snapshot_for(call, shared.seed), shared.collects);
    let before = txn.requests().count();
    let run = pin!(async {
        // Not before: a run that holds a place must not wait for keys, or for a load.
        let _permit = server.scripting.runtime.admit(false).await;
        run_once(server, call, txn, snapshot, collects, false).await
    });
    let Some(mut done) = server.scripting.runs.drive(|| call.who(), run).await else {
        event.iter_mut().for_each(|event| event.end(Ended::Killed, 0));
        return Err(ended(note_killed(&server.telemetry, call)));
    };
    let retry = done.retry();
    // What an earlier round has come to is locked from the start.
    let found = done.host.iter().flat_map(|host| host.locking.txn.requests().skip(before));
    let lacked = match &retry {
        Some(RetryReason::Lock(Conflict::Key(request))) => Some(request),
        _ => None,
    };
    call.note_undeclared(&server.telemetry, found.chain(lacked));
    if let Some(RetryReason::Node(error)) = retry {
        return Err(Broken::Ended(error));
    }
    if let Some(RetryReason::Leader(error)) = retry {
        return Err(Broken::RetryReason(None, RetryReason::Leader(error)));
    }
    if let Some(RetryReason::Limit(limit)) = retry {
        return Err(ended(ScriptError::memory(server, call, limit)));
    }
    if let Some(retry) = retry {
        call.program.stats().add_rerun();
        event.iter_mut().for_each(|event| event.repeat());
        return Err(Broken::RetryReason(done.host.map(|host| Box::new(host.locking.txn)), retry));
    }
    let failed = match done.outcome {
        Outcome::CompileError(message) => {
            forget(&server.scripting, call);
            out.error(&ScriptError::Compile(message).reply(call));
            true
        }
        outcome => {
            event.iter_mut().for_each(|event| event.end(Ended::ByLimit, done.usage.fuel));
            let failed = append_reply(server, call, outcome, &done.usage, &mut out.buf).map_err(ended)?;
            shared.ended.push((at, failed, done.usage));
            failed
        }
    };
    let how = if failed { Ended::WithError } else { Ended::Well };
    call.report_end(how, &done.usage);
    event.iter_mut().for_each(|event| event.end(how, done.usage.fuel));
    let host = done.host.ok_or_else(|| ended(ScriptError::SandboxLost))?;
    let ScriptHost { locking: Locked { mut txn, outgoing: published, snapshot, .. }, .. } = *host;
    shared.seed = snapshot.seed;
    if call.is_dry() {
        dry_run::report(call, &mut txn, failed, start, &mut out.buf).await.map_err(ended)?;
        return Ok(txn);
    }
    match failed && call.options.on_error == Some(OnError::RollBack) {
        true => txn.undo_part().await.map_err(lost)?,
        false => {
            txn.keep_part().await.map_err(lost)?;
            shared.outgoing.append(published);
        }
    }
    Ok(txn)
}
