//! The run of a script: in rounds until its locks suffice, or without locks if it gave up atomicity.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use resp::ReplyLimits;
use script::{Budget, Outcome, Spent};
use store::spans::Part;
use store::{Conflict, LockRequest, Mode, Transaction, TransactionError, TxnLimits};
use store_engine::{CommandError, Protocol, Reply};

use super::caller::Caller;
use super::declared::{Declared, Refuser, note_undeclared};
use super::dry;
use super::host::{Circumstances, Collects, Lack, ScriptHost};
use super::limits::{limit_error, memory_error, take_turn};
use super::locks::LockSet;
use super::outgoing::{Outgoing, commit};
use super::queue::Queue;
use super::sandbox::run_in_sandbox;
use super::spans;
use super::turns::Pace;
use super::unlocked::UnlockedHost;
use crate::acl::Account;
use crate::acl::limits::Limit;
use crate::admission::Recent;
use crate::scripts::cache::Known;
use crate::scripts::functions::Function;
use crate::scripts::options::{Flags, OnError, Options, UndeclaredKeys};
use crate::scripts::runs::Who;
use crate::server::Server;
use crate::session::tracking::Reader;
use crate::telemetry::counters::{Counters, unix_ms, unix_time};
use crate::telemetry::script_events::Introduction;
use crate::telemetry::script_stats::{Ended, Stats};
use crate::telemetry::script_trace::{Rerun, Trace};

/// What a call runs.
pub enum Program {
    /// A script.
    Script(Arc<Known>),
    /// A function of a library.
    Function(Arc<Function>),
}

impl Program {
    pub(super) fn script(&self) -> &Arc<script::Script> {
        match self {
            Program::Script(known) => &known.script,
            Program::Function(function) => &function.script,
        }
    }

    /// How errors of Lua call it.
    pub(super) fn name(&self) -> &str {
        match self {
            Program::Script(known) => &known.sha,
            Program::Function(function) => &function.name,
        }
    }

    /// What its header calls it.
    pub(super) fn given_name(&self) -> Option<String> {
        match self {
            Program::Script(known) => known.header.name.clone(),
            Program::Function(_) => None,
        }
    }

    pub(super) fn stats(&self) -> &Stats {
        match self {
            Program::Script(known) => &known.stats,
            Program::Function(function) => &function.stats,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Program::Script(_) => "script",
            Program::Function(_) => "function",
        }
    }
}

/// As our own errors call it.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// A script or function to be run, and what it is called with.
pub struct ScriptCall<'a> {
    /// What is run.
    pub program: Program,
    /// The whole call as it came.
    pub words: &'a [&'a [u8]],
    /// How it is to be run, the configuration's defaults included.
    pub options: Options,
    /// What it may use.
    pub budget: Budget,
    /// The keys: locked beforehand.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub args: &'a [&'a [u8]],
    /// It may not write.
    pub read_only: bool,
    /// When it was called.
    pub since: Instant,
    /// The caller's database.
    pub db: usize,
    /// The caller's protocol.
    pub protocol: Protocol,
    /// Seed for commands with random results.
    pub seed: u64,
    /// The caller's connection.
    pub client: u64,
    /// The caller, if there is something that it may not do.
    pub account: Option<Arc<Account>>,
    /// It is part of a MULTI transaction.
    pub in_exec: bool,
    /// Memory was full when it was called, and nothing allows it to need more.
    pub full: bool,
    /// Where to tell what it did, if somebody asks.
    pub trace: Option<Arc<Trace>>,
    /// Its span, if the request that it is run for is traced.
    pub span: Option<Part>,
    /// Who hears when what it reads changes.
    pub reader: Option<Reader>,
}

impl ScriptCall<'_> {
    /// How strong the locks of its keys are.
    pub(super) fn lock_mode(&self) -> Mode {
        if self.read_only { Mode::Shared } else { Mode::Exclusive }
    }

    /// Whether it is undone when it has ended, and tells what it would have changed.
    pub(super) fn is_dry(&self) -> bool {
        self.options.flags.has(Flags::DRY_RUN)
    }

    /// How it is run, in a word.
    pub(super) fn mode(&self) -> &'static str {
        self.options.mode(self.read_only)
    }

    /// What `os.clock` answers, in seconds.
    fn clock_seconds(&self, server: &Server) -> f64 {
        self.since.saturating_duration_since(server.started).as_secs_f64()
    }

    /// Redis' text for what does not compile, which is not kept.
    pub(super) fn compile_error(&self, server: &Server, message: &str) -> String {
        if let Program::Script(known) = &self.program {
            server.scripts.forget(known);
        }
        compile_error(message)
    }

    /// For whoever listens to what is run.
    pub(super) fn introduction(&self, mode: &'static str) -> Introduction {
        let is_function = matches!(self.program, Program::Function(_));
        Introduction { name: self.program.name().to_owned(), is_function, mode, client: self.client }
    }

    /// Counts a run, and tells of it if somebody asked.
    pub(super) fn note(&self, server: &Server, ended: Ended, spent: &Spent) {
        self.program.stats().add(ended, spent);
        server.totals.add(ended, spent);
        self.tell_end(ended, spent);
    }

    /// Tells how a run ended, if somebody asked.
    pub(super) fn tell_end(&self, ended: Ended, spent: &Spent) {
        if let Some(trace) = &self.trace {
            let mut seen = trace.seen();
            seen.ended = Some(ended);
            seen.spent = *spent;
        }
    }

    /// Tells why a round came to nothing, if somebody asked.
    pub(super) fn tell_rerun(&self, lack: &Lack) {
        if let Some(trace) = &self.trace {
            let (why, key) = match lack {
                Lack::Lock(Conflict::Key(request)) => ("key", Some((request.db, request.key.clone()))),
                Lack::Lock(Conflict::Everything | Conflict::Limit(_)) => ("everything", None),
                Lack::Order => ("order", None),
                // Nothing was done that could be told.
                Lack::Begin | Lack::Limit(_) | Lack::Node(_) => return,
            };
            trace.seen().reruns.push(Rerun { why, key });
        }
    }

    /// The limits of the transaction that it runs in. What rolling back needs counts as memory of the script, or of the
    /// MULTI transaction that it is part of.
    fn txn_limits(&self, server: &Server) -> TxnLimits {
        let limits = server.transaction_limits();
        TxnLimits {
            undo_bytes: if self.in_exec { limits.undo_bytes } else { self.budget.memory_bytes },
            slack_bytes: self.budget.memory_bytes,
            ..limits
        }
    }

    /// Bytes by which it may exceed `maxmemory`.
    fn oom_slack_bytes(&self) -> usize {
        if self.options.flags.has(Flags::ALLOW_OOM) { self.budget.memory_bytes } else { 0 }
    }

    /// The same call as a part of a transaction, which is atomic whatever its parts say.
    pub fn within_exec(mut self) -> Self {
        self.options = self.options.within_exec();
        self.in_exec = true;
        if self.is_dry() {
            self.trace = Some(Arc::new(Trace::new(false)));
        }
        self.tell_spans();
        self
    }

    pub(super) fn who(&self) -> Who {
        let call = || self.words.iter().map(|word| (*word).into()).collect();
        let function = matches!(self.program, Program::Function(_)).then(call);
        Who { name: self.program.name().to_owned(), function, client: self.client }
    }

    fn caller(&self) -> Caller {
        Caller { client: self.client, account: self.account.clone() }
    }

    /// The keys beyond which it may not go, if somebody wants that.
    fn declared(&self) -> Option<Declared> {
        let limits_user =
            |account: &Arc<Account>| account.user().limits().get(Limit::UndeclaredKeys).is_some();
        let own = match &self.program {
            Program::Script(known) => known.options,
            Program::Function(function) => function.options,
        };
        let rejects = Some(UndeclaredKeys::Reject);
        (self.options.undeclared_keys == rejects).then(|| Declared {
            db: self.db,
            keys: self.keys.iter().map(|key| (*key).into()).collect(),
            name: self.program.name().to_owned(),
            by: match self.account.as_ref().is_some_and(limits_user) {
                true => Refuser::User,
                false if own.undeclared_keys == rejects => Refuser::Script,
                false => Refuser::Server,
            },
        })
    }

    /// Counts those of the `used` keys that it did not declare.
    pub(super) fn note_undeclared<'k>(&self, server: &Server, used: impl Iterator<Item = &'k LockRequest>) {
        let is_declared = |used: &LockRequest| used.db == self.db && self.keys.contains(&&*used.key);
        let undeclared = used.filter(|request| !is_declared(request));
        note_undeclared(server, &self.program, self.program.stats(), undeclared);
    }
}

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

/// Counts a script that was killed; the text that becomes the reply.
pub(super) fn killed_error(server: &Server, call: &ScriptCall<'_>) -> String {
    Counters::add(&server.counters.scripts_killed, 1);
    call.note(server, Ended::Killed, &Spent::default());
    let command = call.program.kind().to_uppercase();
    let fate = match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        // What it had collected is gone with it.
        true => "its writes were not rolled back, because it is not atomic",
        false => fate(call),
    };
    format!("KILLED {} was stopped by {command} KILL; {fate}", call.program)
}

/// The same of a transaction that was still waiting for its keys, or its user's turn.
pub(super) fn never_run_error(server: &Server, who: &Who) -> String {
    Counters::add(&server.counters.scripts_killed, 1);
    server.totals.add(Ended::Killed, &Spent::default());
    let kind = if who.function.is_some() { "function" } else { "script" };
    format!(
        "KILLED {kind} {} was stopped by {} KILL before its transaction executed a command",
        who.name,
        kind.to_uppercase()
    )
}

/// What became of the writes of a script that was ended.
pub(super) fn fate(call: &ScriptCall<'_>) -> &'static str {
    match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        true => "its writes were not rolled back, because it is not atomic",
        false => "its writes were rolled back",
    }
}

/// The rounds of an atomic script, whose locks grow.
struct Rounds {
    locks: LockSet,
    collects: Collects,
    /// It begins with its first calls.
    opens: bool,
    /// Its last calls go with its end.
    leaves: bool,
    seen: Option<Circumstances>,
}

impl Rounds {
    fn new(server: &Server, call: &ScriptCall<'_>) -> Rounds {
        Rounds {
            locks: LockSet::of_keys(call.keys, call.db, call.lock_mode()),
            collects: Collects::at_first(server),
            // Whoever wants to know what the calls do is told that of each.
            opens: server.store.node().is_none() && call.trace.is_none() && call.program.stats().may_open(),
            leaves: call.trace.is_none(),
            seen: None,
        }
    }

    /// For the next round, after what this one `held` came to nothing.
    fn repeat(&mut self, server: &Server, call: &ScriptCall<'_>, held: Option<&Transaction>, lack: Lack) {
        match lack {
            Lack::Begin => call.program.stats().begin_apart(),
            _ => {
                Counters::add(&server.counters.scripts_rerun, 1);
                call.program.stats().add_rerun();
                call.tell_rerun(&lack);
            }
        }
        self.opens = false;
        self.collects = self.collects.after(&lack);
        self.locks.widen(held, lack.conflict());
    }

    /// For the next round, after what was to go with its end could not be done.
    fn again(&mut self, server: &Server, call: &ScriptCall<'_>, lack: Lack) {
        self.leaves = false;
        self.locks = LockSet::of_keys(call.keys, call.db, call.lock_mode());
        self.repeat(server, call, None, lack);
    }
}

/// What a script has come to that is to be kept.
struct Kept {
    txn: Transaction,
    outgoing: Outgoing,
    failed: bool,
    spent: Spent,
}

/// What is to be committed; an error is the text that becomes the reply.
async fn run_atomic(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    rounds: &mut Rounds,
    out: &mut Vec<u8>,
) -> Result<Option<Kept>, String> {
    let tells = !call.is_dry() && call.trace.as_ref().is_some_and(|trace| trace.wants_changes());
    loop {
        let now_ms = rounds.seen.map(|seen| seen.now_ms).filter(|now_ms| *now_ms > 0);
        let began = call.phase();
        let opened = if rounds.opens { rounds.locks.open(server) } else { None };
        let mut txn = match opened {
            Some(txn) => txn,
            None => {
                let lock = rounds.locks.lock(server, now_ms, Vec::new());
                server.counters.lock_waits.of(lock).await.map_err(lost)?
            }
        };
        if call.is_dry() || tells {
            txn.begin_part().await.map_err(lost)?;
        }
        call.end_phase("lock", began);
        // Not before: those who wait for a key shall not keep others from running.
        let permit = server.counters.queue_waits.of(server.runtime.admit(false)).await;
        let time = match txn.is_open() {
            true => 0,
            false => txn.keep_time(unix_ms),
        };
        let seen = rounds.seen.get_or_insert_with(|| Circumstances {
            clock_seconds: call.clock_seconds(server),
            ..Circumstances::of(call, 0)
        });
        if seen.now_ms == 0 {
            (seen.now_ms, seen.full) = (time, seen.full || (txn.is_full() && !seen.spares_memory));
        }
        let (seen, collects) = (*seen, rounds.collects);
        let mut round = run_once(server, call, txn, seen, collects, rounds.leaves).await;
        // It may have learnt that only when it began.
        if let (Some(first), Some(host)) = (&mut rounds.seen, &round.host) {
            (first.now_ms, first.full) = (host.seen.now_ms, host.seen.full);
        }
        if tells {
            round = Box::pin(dry::note_changes(server, call, round, seen, collects)).await?;
        }
        drop(permit);
        let lack = round.lack();
        let Round { host, outcome, spent } = round;
        if let Some(Lack::Node(error)) = lack {
            call.note(server, Ended::WithError, &spent);
            return Err(error.text().to_owned());
        }
        if let Some(Lack::Limit(limit)) = lack {
            call.note(server, Ended::ByLimit, &spent);
            return Err(memory_error(server, call, limit));
        }
        if let Some(lack) = lack {
            rounds.repeat(server, call, host.as_ref().map(|host| &host.txn), lack);
            // Taken back before the next round asks for its locks.
            drop(host);
            continue;
        }
        let mark = out.len();
        let failed = append_reply(server, call, outcome, &spent, out)?;
        if call.is_dry() {
            note_end(server, call, failed, &spent);
            if let Some(mut host) = host {
                Box::pin(dry::tell(call, &mut host.txn, failed, mark, out)).await?;
            }
            return Ok(None);
        }
        if let Some(ScriptHost { txn, outgoing, .. }) = host.map(|host| *host)
            && !(failed && call.options.on_error == Some(OnError::RollBack))
        {
            if txn.requests().count() > call.keys.len() {
                call.note_undeclared(server, txn.requests());
            }
            return Ok(Some(Kept { txn, outgoing, failed, spent }));
        }
        note_end(server, call, failed, &spent);
        return Ok(None);
    }
}

/// Counts a run that ended by itself, `failed` with an error.
pub(super) fn note_end(server: &Server, call: &ScriptCall<'_>, failed: bool, spent: &Spent) {
    call.note(server, if failed { Ended::WithError } else { Ended::Well }, spent);
    Counters::add(&server.counters.scripts_run, 1);
}

/// [`append_reply`], and [`note_end`].
fn append_outcome(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    spent: &Spent,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let failed = append_reply(server, call, outcome, spent, out)?;
    note_end(server, call, failed, spent);
    Ok(failed)
}

/// Appends the reply of a run that ended by itself, and says whether that is an error; the error's text if
/// something ended it, which is counted.
pub(super) fn append_reply(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    spent: &Spent,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let (program, writes) = (&call.program, fate(call));
    let trapped = |what: String| {
        Counters::add(&server.counters.script_traps, 1);
        call.note(server, Ended::ByLimit, spent);
        Err(format!("SCRIPTTRAP {what}; {writes}"))
    };
    match outcome {
        Outcome::Reply(bytes) => {
            let mark = out.len();
            if let Err(error) = resp::transcode(&bytes, call.protocol, out, ReplyLimits::default()) {
                return trapped(format!("the sandbox returned no valid reply: {error}"));
            }
            Ok(out.get(mark) == Some(&b'-'))
        }
        Outcome::CompileError(message) => Err(call.compile_error(server, &message)),
        Outcome::Limit(limit) => {
            call.note(server, Ended::ByLimit, spent);
            Err(limit_error(server, call, limit))
        }
        Outcome::Stopped => trapped(format!("{program} was stopped")),
        Outcome::Trap(what) => trapped(format!("the sandbox stopped {program}: {what}")),
    }
}

/// The text for a unit that could not begin.
pub(super) fn lost(trouble: TransactionError) -> String {
    match trouble {
        TransactionError::Lost(error) => error.text().to_owned(),
        other => format!("ERR internal error: locks were not acquired: {other:?}"),
    }
}

/// Redis' text for what does not compile.
pub(super) fn compile_error(message: &str) -> String {
    format!("ERR Error compiling script (new function): {message}")
}

/// How one round went.
pub(super) struct Round {
    /// The host with the transaction, unless the sandbox took it down with it.
    pub host: Option<Box<ScriptHost>>,
    pub outcome: Outcome,
    pub spent: Spent,
}

impl Round {
    /// Why it has to be repeated.
    pub fn lack(&mut self) -> Option<Lack> {
        self.host.as_mut()?.lack.take()
    }
}

impl Circumstances {
    /// Those of a call at this time.
    pub(super) fn of(call: &ScriptCall<'_>, now_ms: u64) -> Circumstances {
        let ScriptCall { seed, db, read_only, full, .. } = *call;
        let spares_memory = call.options.flags.spares_memory();
        let micros = unix_time().subsec_micros() % 1000;
        Circumstances { now_ms, micros, clock_seconds: 0.0, seed, db, read_only, full, spares_memory }
    }
}

/// One round. `ends`: if nothing is lacking, its transaction is committed at once.
pub(super) async fn run_once(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    mut txn: Transaction,
    seen: Circumstances,
    collects: Collects,
    ends: bool,
) -> Round {
    let trace = call.traced();
    txn.set_limits(call.txn_limits(server));
    // Boxed for its way to the sandbox and back: it is large.
    let host = Box::new(ScriptHost {
        server: server.clone(),
        txn,
        seen,
        caller: call.caller(),
        lack: None,
        recent: Recent::default(),
        collects,
        queue: Queue::default(),
        waiting: None,
        declared: call.declared(),
        wrote: false,
        reply_bytes: call.budget.memory_bytes,
        outgoing: Outgoing::default(),
        clock_asked: None,
        asking: None,
        trace,
        reader: call.reader.clone(),
    });
    let (mut host, outcome, spent) = run_in_sandbox(server, call, seen.clock_seconds, host, None).await;
    if let (Some(host), Outcome::Reply(reply)) = (&mut host, &outcome) {
        // What will be undone has no end to go with: an error of a collected call comes before the script's own.
        let is_kept = call.options.on_error != Some(OnError::RollBack) || reply.first() != Some(&b'-');
        host.end(ends && is_kept).await;
    }
    Round { host, outcome, spent }
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
