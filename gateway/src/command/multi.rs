//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store::Store;
use store::spans::Part;
use store_engine::spec::{Access, flags};
use store_engine::{Args, Arity, Command, CommandError, Group, KeyPart, Reply};
use tokio::runtime::Handle;

use crate::command::client::tracking;
use crate::command::{connection, run_script};
use crate::coordinate::{self, Performer, Queued, Step, Stepping, Watches};
use crate::gate::{self, Admitted, Origin, Stage};
use crate::observe::unix_ms;
use crate::pubsub::Message;
use crate::registry::{AsyncHandler, Handler, InExec, Row, SessionCommand};
use crate::server::Server;
use crate::session::{Multi, OwnedCall, Session, Touched, Watch, watch_bytes};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        facts: Command {
            name: "multi",
            since: "1.2.0",
            summary: "Starts a transaction.",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(multi),
    },
    SessionCommand {
        facts: Command {
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
        facts: Command {
            name: "discard",
            since: "2.0.0",
            summary: "Discards a transaction.",
            complexity: "O(N), when N is the number of queued commands",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(discard),
    },
    SessionCommand {
        facts: Command {
            name: "watch",
            since: "2.2.0",
            arity: Arity::AtLeast(2),
            keys: KeyPart::ALL_READ,
            summary: "Monitors changes to keys to determine the execution of a transaction.",
            complexity: "O(1) for every key.",
            syntax: "key...",
            ..TRANSACTIONS
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            touches: Touched::Nothing,
            ..AsyncHandler::new(|server, session, args, out| Box::pin(watch(server, session, args, out)))
        }),
    },
    SessionCommand {
        facts: Command {
            name: "unwatch",
            since: "2.2.0",
            summary: "Forgets about watched keys of a transaction.",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(|server, session, _, out| {
            // EXEC looks at the keys until it has done all, and forgets them then.
            if !session.in_exec {
                unwatch(server, session);
            }
            out.ok();
            Ok(())
        }),
    },
];

/// Keys that are watched, and calls that are looked at, before others have their turn.
const CALLS_PER_TURN: usize = 1000;

const TRANSACTIONS: Command = Command {
    group: Group::Transactions,
    arity: Arity::Exactly(1),
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::NO_SCRIPT | flags::FAST,
    routing: store_engine::Routing::Anywhere,
    ..Command::BASE
};

fn multi(_: &Server, session: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    if session.multi.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    session.multi = Some(Multi::begin(session.client.clone()));
    out.ok();
    Ok(())
}

fn discard(server: &Server, session: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    if session.multi.take().is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    unwatch(server, session);
    out.ok();
    Ok(())
}

/// WATCH.
async fn watch(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if session.multi.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    // Before the first one: it is watched what was asked for, or nothing.
    let bytes = args.rest(1).iter().map(|key| watch_bytes(key)).sum();
    session.client.held.refuse_more(bytes)?;
    for (at, key) in args.rest(1).iter().enumerate() {
        if at % CALLS_PER_TURN == CALLS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        let watched = (session.db, (*key).into());
        if session.watched.contains_key(&watched) {
            continue;
        }
        let watch = match &server.store {
            Store::Here(node) => {
                let changed = Arc::new(AtomicBool::new(false));
                node.watch(session.db, key, unix_ms(), &changed);
                session.client.details.lock().watched.push(changed.clone());
                Watch::Here(changed)
            }
            Store::Spread(cluster) => Watch::There(cluster.watch(session.db, key).await?),
        };
        session.watched.insert(watched, watch);
        let held = &session.client.held;
        held.set_watched(held.watched() + watch_bytes(key));
    }
    out.ok();
    Ok(())
}

/// A refused EXEC: Redis gives the transaction up, even one that was never begun.
pub fn abort(server: &Server, session: &mut Session, error: &CommandError, out: &mut Reply) {
    session.multi = None;
    unwatch(server, session);
    let text = error.text();
    let why = text.strip_prefix("ERR ").unwrap_or(text);
    out.error(&CommandError::owned(format!("EXECABORT Transaction discarded because of: {why}")));
}

/// Forgets all watched keys of a session.
pub fn unwatch(server: &Server, session: &mut Session) {
    let count = session.watched.len();
    if count == 0 {
        return;
    }
    session.client.details.lock().watched.clear();
    let watched = std::mem::take(&mut session.watched);
    let store = server.store.clone();
    let forget = move || {
        for ((db, key), watch) in watched {
            match (watch, &store) {
                (Watch::Here(changed), Store::Here(node)) if !changed.load(Ordering::Relaxed) => {
                    node.unwatch(db, &key, &changed);
                }
                (Watch::There(watch), Store::Spread(cluster)) => cluster.unwatch(watch),
                _ => {}
            }
        }
    };
    match Handle::try_current() {
        // The client need not wait for that.
        Ok(runtime) if count > CALLS_PER_TURN => drop(runtime.spawn_blocking(forget)),
        _ => forget(),
    }
    session.client.held.set_watched(0);
}

/// EXEC.
async fn exec(server: &Arc<Server>, session: &mut Session, out: &mut Reply) -> Result<(), CommandError> {
    let multi = session.multi.take().ok_or(CommandError::new("ERR EXEC without MULTI"))?;
    if multi.broken {
        unwatch(server, session);
        return Err(CommandError::new("EXECABORT Transaction discarded because of previous errors."));
    }
    if has_changed(server, session) {
        out.null_array();
        unwatch(server, session);
        return Ok(());
    }
    let calls: Vec<Vec<&[u8]>> = multi.queued.iter().map(slices).collect();
    let queued = foresee(server, session.db, &calls).await;
    session.in_exec = true;
    let answered = answer_beforehand(server, session, &queued).await;
    let watches = Watches { keys: session.watched_keys(), elsewhere: session.watches_elsewhere() };
    let (db, first_seed, mut seed) = (session.db, session.seed, session.seed);
    let mark = out.buf.len();
    let mut performer = Performing { server, session: &mut *session, queued: &queued, answered };
    let done = coordinate::exec(server, &queued, &mut performer, watches, &mut seed, out).await;
    session.in_exec = false;
    // Each script has counted it up.
    session.seed = seed.wrapping_add(session.seed.wrapping_sub(first_seed));
    if !matches!(done, Ok(true)) {
        session.select(db);
        out.buf.truncate(mark);
    }
    match &done {
        Ok(true) => tell_administrators(server, session, &queued, out.buf.get(mark..).unwrap_or_default()),
        Ok(false) => out.null_array(),
        Err(_) => {}
    }
    unwatch(server, session);
    done.map(drop)
}

/// Tells the audit log of the commands of the engine that were run.
fn tell_administrators(server: &Server, session: &Session, queued: &[Queued<'_>], reply: &[u8]) {
    for Queued { args, call, .. } in queued {
        if let Ok(Admitted { row: Row::Engine(_), number, .. }) = call
            && server.audit.concerns(*number)
        {
            server.audit.tell(session, *args, reply);
        }
    }
}

/// Whether a watched key has changed. One that has expired counts: looking at it removes it, which raises its flag.
fn has_changed(server: &Server, session: &Session) -> bool {
    has_expired(server, session, unix_ms());
    session.watch_broken()
}

/// Whether a watched key has expired that was still there, as far as that is known here.
fn has_expired(server: &Server, session: &Session, now_ms: u64) -> bool {
    let Some(node) = server.store.node() else { return false };
    session.watched.keys().any(|(db, key)| node.refresh(*db, key, now_ms))
}

fn slices(call: &OwnedCall) -> Vec<&[u8]> {
    call.iter().map(|item| &**item).collect()
}

/// What is known of the queued calls before any of them is performed: each finds the database that a SELECT before it names.
async fn foresee<'a>(server: &Server, mut db: usize, calls: &'a [Vec<&'a [u8]>]) -> Vec<Queued<'a>> {
    let mut all = Vec::with_capacity(calls.len());
    for call in calls {
        if all.len() % CALLS_PER_TURN == CALLS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        let args = Args::new(call);
        let call = gate::admit(&server.registry, args, Origin::Client);
        let queued = Queued { args, call, db };
        if let Ok(Admitted { facts: Command { name: "select", .. }, .. }) = queued.call {
            db = connection::selected(args).unwrap_or(db);
        }
        all.push(queued);
    }
    all
}

/// The replies of CLUSTER, which may look at all keys: it would wait for those that EXEC locks.
async fn answer_beforehand<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    queued: &'a [Queued<'a>],
) -> BTreeMap<usize, Step<'a>> {
    let mut answered = BTreeMap::new();
    for (at, call) in queued.iter().enumerate() {
        if matches!(call.handler(), Some(Handler::Async(AsyncHandler { in_exec: InExec::Beforehand, .. }))) {
            let allowed = allow(server, session, call);
            answered.insert(at, perform(server, session, call, allowed, Duration::ZERO).await);
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
    answered: BTreeMap<usize, Step<'a>>,
}

impl<'a> Performer<'a> for Performing<'_, 'a> {
    fn session(&self) -> &Session {
        self.session
    }

    fn watch_broken(&self, now_ms: u64) -> bool {
        has_expired(self.server, self.session, now_ms) || self.session.watch_broken()
    }

    fn step<'s>(&'s mut self, at: usize, clock: Duration) -> Stepping<'s, 'a> {
        if let Some(step) = self.answered.remove(&at) {
            return Stepping::Now(step);
        }
        let Performing { server, session, queued, .. } = self;
        let queued = &queued[at];
        match (&queued.call, allow(server, session, queued)) {
            (Ok(admitted @ Admitted { row: Row::Engine(_), .. }), Ok(())) => {
                tracking::note(server, session, admitted);
                Stepping::Now(Step::Engine(admitted, session.db))
            }
            (_, allowed) => Stepping::Later(Box::pin(perform(server, session, queued, allowed, clock))),
        }
    }
}

/// Refuses what may not be performed now, and shows the rest to those who watch.
fn allow(server: &Server, session: &Session, queued: &Queued<'_>) -> Result<(), CommandError> {
    let admitted = queued.call.as_ref().map_err(Clone::clone)?;
    if server.monitors.listen() && !admitted.facts.has(flags::ADMIN) {
        server.monitors.show(&server.pubsub, session.db, &session.client.addr, queued.args);
    }
    gate::refuse_without_permission(server, &session.account, session.client.id, Stage::Executed, admitted)
}

/// Performs a queued call that is about no key, if it is `allowed`; what others are to do is left.
async fn perform<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    queued: &'a Queued<'a>,
    allowed: Result<(), CommandError>,
    clock: Duration,
) -> Step<'a> {
    let mut reply = Reply::new(session.protocol);
    let (part, db, args) = (Part::begin(), session.db, queued.args);
    let sorted = match allowed {
        Ok(()) => sort(server, session, queued, clock, &mut reply).await,
        Err(error) => Err(error),
    };
    match sorted {
        Ok(Some(step)) => return step,
        Ok(None) => {
            let number = gate::number_of(&server.registry, args);
            if number.is_some_and(|number| server.audit.concerns(number)) {
                server.audit.tell(session, args, &reply.buf);
            }
        }
        Err(error) => reply.error(&error),
    }
    if let Some(part) = part {
        let name = gate::shown_name(&server.registry, args);
        coordinate::tell_queued(server, part, name, db, &reply.buf);
    }
    Step::Answered(reply.buf)
}

/// A queued call as a step, unless `reply` has its answer already.
async fn sort<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    queued: &'a Queued<'a>,
    clock: Duration,
    reply: &mut Reply,
) -> Result<Option<Step<'a>>, CommandError> {
    let (args, admitted) = (queued.args, queued.call.as_ref().map_err(Clone::clone)?);
    let Row::Session(command) = admitted.row else {
        return Ok(Some(Step::Engine(admitted, session.db)));
    };
    if admitted.facts.name == "time" {
        coordinate::tell_time(clock, reply);
        return Ok(None);
    }
    match command.run {
        Handler::Script { source, read_only } => {
            let script = run_script::call_of(server, session, admitted, source, read_only)?;
            Ok(Some(Step::Script(Box::new(script.within_exec()))))
        }
        Handler::Publish { shard } => {
            Ok(Some(Step::Publish(Message { shard, channel: args[1].into(), text: args[2].into() })))
        }
        Handler::Async(AsyncHandler { in_exec: InExec::Refused, .. }) => {
            Err(CommandError::new("ERR Command not allowed inside a transaction"))
        }
        Handler::Inline(_) | Handler::Async(_) => {
            super::perform(server, session, admitted, command.run, reply).await;
            Ok(None)
        }
    }
}
