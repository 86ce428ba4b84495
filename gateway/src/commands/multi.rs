//! MULTI, EXEC, DISCARD.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use store::Store;
use store::spans::Part;
use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Reply};

use crate::admission::{self, Admitted, Parsed};
use crate::commands::client::tracking;
use crate::commands::rows::TRANSACTIONS;
use crate::commands::watch::{has_changed, unwatch};
use crate::commands::{connection, perform, run_script};
use crate::scripting::{self, Performer, Queued, QueuedStep, Stepping, Watches};
use crate::server::{AsyncHandler, Handler, InExec, Registry, Row, Server, SessionCommand};
use crate::session::pubsub::Message;
use crate::session::{Multi, OwnedCall, Session};
use crate::telemetry::Telemetry;
use crate::telemetry::counters::unix_ms;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "multi",
            since: "1.2.0",
            summary: "Starts a transaction.",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(|_, session, _, out| multi(session, out)),
    },
    SessionCommand {
        spec: Command {
            name: "exec",
            since: "1.2.0",
            summary: "Executes all commands in a transaction.",
            complexity: "Depends on commands in the transaction",
            flags: flags::NO_SCRIPT,
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            ..AsyncHandler::new(|server, session, _, out| Box::pin(exec(server, session, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "discard",
            since: "2.0.0",
            summary: "Discards a transaction.",
            complexity: "O(N), when N is the number of queued commands",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(|server, session, _, out| discard(&server.store, session, out)),
    },
];

/// Keys that are watched, and calls that are looked at, before others have their turn.
const CALLS_PER_YIELD: usize = 1000;

fn multi(session: &mut Session, out: &mut Reply) -> Result<(), CommandError> {
    if session.multi.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    session.multi = Some(Multi::begin(session.client.clone()));
    out.ok();
    Ok(())
}

fn discard(store: &Store, session: &mut Session, out: &mut Reply) -> Result<(), CommandError> {
    if session.multi.take().is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    unwatch(store, session);
    out.ok();
    Ok(())
}

/// A refused EXEC: Redis gives the transaction up, even one that was never begun.
pub fn abort(store: &Store, session: &mut Session, error: &CommandError, out: &mut Reply) {
    session.multi = None;
    unwatch(store, session);
    let text = error.text();
    let why = text.strip_prefix("ERR ").unwrap_or(text);
    out.error(&CommandError::owned(format!("EXECABORT Transaction discarded because of: {why}")));
}

/// EXEC.
async fn exec(server: &Arc<Server>, session: &mut Session, out: &mut Reply) -> Result<(), CommandError> {
    let multi = session.multi.take().ok_or(CommandError::new("ERR EXEC without MULTI"))?;
    if multi.broken {
        unwatch(&server.store, session);
        return Err(CommandError::new("EXECABORT Transaction discarded because of previous errors."));
    }
    if has_changed(&server.store, session, unix_ms()) {
        out.null_array();
        unwatch(&server.store, session);
        return Ok(());
    }
    let calls: Vec<Vec<&[u8]>> = multi.queued.iter().map(slices).collect();
    let queued = foresee(&server.registry, session.db, &calls).await;
    session.in_exec = true;
    let answered = answer_beforehand(server, session, &queued).await;
    let watches = Watches { keys: session.watched_keys(), remote: session.remote_watches() };
    let (db, first_seed, mut seed) = (session.db, session.seed, session.seed);
    let start = out.buf.len();
    let mut performer = Performing { server, session: &mut *session, queued: &queued, answered };
    let done = scripting::exec(server, &queued, &mut performer, watches, &mut seed, out).await;
    session.in_exec = false;
    // Each script has counted it up.
    session.seed = seed.wrapping_add(session.seed.wrapping_sub(first_seed));
    if !matches!(done, Ok(true)) {
        session.select(db);
        out.truncate(start);
    }
    match &done {
        Ok(true) => audit_queued(&server.telemetry, session, &queued),
        Ok(false) => out.null_array(),
        Err(_) => {}
    }
    unwatch(&server.store, session);
    done.map(drop)
}

/// Tells the audit log of the commands of the engine that were run.
fn audit_queued(telemetry: &Telemetry, session: &Session, queued: &[Queued<'_>]) {
    for Queued { args, call, .. } in queued {
        if let Ok(Parsed { row: Row::Engine(_), number, .. }) = call {
            telemetry.audit_call(&session.client, *number, *args, None);
        }
    }
}

fn slices(call: &OwnedCall) -> Vec<&[u8]> {
    call.iter().map(|item| &**item).collect()
}

/// What is known of the queued calls before any of them is performed: each finds the database that a SELECT before it names.
async fn foresee<'a>(registry: &Registry, mut db: usize, calls: &'a [Vec<&'a [u8]>]) -> Vec<Queued<'a>> {
    let mut all = Vec::with_capacity(calls.len());
    for call in calls {
        if all.len() % CALLS_PER_YIELD == CALLS_PER_YIELD - 1 {
            tokio::task::yield_now().await;
        }
        let args = Args::new(call);
        let call = admission::parse(registry, args, false);
        let selects = call.as_ref().is_ok_and(|call| call.spec().name == "select");
        all.push(Queued { args, call, db });
        if selects {
            db = connection::selected(args).unwrap_or(db);
        }
    }
    all
}

/// The replies of CLUSTER, which may look at all keys: it would wait for those that EXEC locks.
async fn answer_beforehand<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    queued: &'a [Queued<'a>],
) -> BTreeMap<usize, QueuedStep<'a>> {
    let mut answered = BTreeMap::new();
    for (at, call) in queued.iter().enumerate() {
        if matches!(call.handler(), Some(Handler::Async(AsyncHandler { in_exec: InExec::Beforehand, .. }))) {
            let admitted = admit(server, session, call);
            answered.insert(at, perform(server, session, call.args, admitted, Duration::ZERO).await);
        }
    }
    answered
}

/// A session that performs what it has queued.
struct Performing<'s, 'a> {
    server: &'s Arc<Server>,
    session: &'s mut Session,
    queued: &'a [Queued<'a>],
    /// What was answered before anything was locked.
    answered: BTreeMap<usize, QueuedStep<'a>>,
}

impl<'a> Performer<'a> for Performing<'_, 'a> {
    fn session(&self) -> &Session {
        self.session
    }

    fn watch_broken(&self, now_ms: u64) -> bool {
        has_changed(&self.server.store, self.session, now_ms)
    }

    fn step<'s>(&'s mut self, at: usize, clock: Duration) -> Stepping<'s, 'a> {
        if let Some(step) = self.answered.remove(&at) {
            return Stepping::Now(step);
        }
        let Performing { server, session, queued, .. } = self;
        let queued = &queued[at];
        match admit(server, session, queued) {
            Ok(admitted) if matches!(admitted.row, Row::Engine(_)) => {
                tracking::note(&server.sessions, session, &admitted);
                Stepping::Now(QueuedStep::Engine(admitted, session.db))
            }
            admitted => Stepping::Later(Box::pin(perform(server, session, queued.args, admitted, clock))),
        }
    }
}

/// Makes the checks of a queued call, and shows it to MONITOR.
fn admit<'a>(
    server: &Server,
    session: &Session,
    queued: &'a Queued<'a>,
) -> Result<Admitted<'a>, CommandError> {
    let parsed = queued.call.as_ref().map_err(Clone::clone)?;
    if server.sessions.monitors.listen() && !parsed.spec().has(flags::ADMIN) {
        server.sessions.monitors.show(&server.sessions.pubsub, session.db, &session.client.addr, queued.args);
    }
    Ok(admission::admit_queued(server, session, parsed.clone())?)
}

/// Performs a queued call that is about no key, if it was `admitted`; what others are to do is left.
async fn perform<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    args: Args<'a>,
    admitted: Result<Admitted<'a>, CommandError>,
    clock: Duration,
) -> QueuedStep<'a> {
    let mut reply = Reply::new(session.protocol);
    let (part, db) = (Part::begin(), session.db);
    let sorted = match admitted {
        Ok(admitted) => sort(server, session, admitted, clock, &mut reply).await,
        Err(error) => Err(error),
    };
    match sorted {
        Ok(Some(step)) => return step,
        Ok(None) => {
            if let Some(number) = admission::number_of(&server.registry, args) {
                let error = reply.is_error_from(0).then_some(&*reply.buf);
                server.telemetry.audit_call(&session.client, number, args, error);
            }
        }
        Err(error) => reply.error(&error),
    }
    if let Some(part) = part {
        let name = admission::shown_name(&server.registry, args);
        scripting::report_queued(&server.telemetry, part, name, db, &reply.buf);
    }
    QueuedStep::Answered(reply.buf)
}

/// A queued call as a step, unless `reply` has its answer already.
async fn sort<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    admitted: Admitted<'a>,
    clock: Duration,
    reply: &mut Reply,
) -> Result<Option<QueuedStep<'a>>, CommandError> {
    let args = admitted.args();
    let Row::Session(command) = admitted.row else {
        return Ok(Some(QueuedStep::Engine(admitted, session.db)));
    };
    if admitted.spec().name == "time" {
        scripting::reply_time(clock, reply);
        return Ok(None);
    }
    match command.run {
        Handler::Script { source, read_only } => {
            let script = run_script::call_of(server, session, &admitted, source, read_only)?;
            Ok(Some(QueuedStep::Script(Box::new(script.within_exec()))))
        }
        Handler::Publish { shard } => {
            Ok(Some(QueuedStep::Publish(Message { shard, channel: args[1].into(), text: args[2].into() })))
        }
        Handler::Async(AsyncHandler { in_exec: InExec::Refused, .. }) => {
            Err(CommandError::new("ERR Command not allowed inside a transaction"))
        }
        Handler::Inline(_) | Handler::Async(_) => {
            perform::perform(server, session, &admitted, command.run, reply).await;
            Ok(None)
        }
    }
}
