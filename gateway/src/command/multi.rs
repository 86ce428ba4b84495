//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::spans::Part;
use store::{Store, Trouble};
use store_engine::spec::{Access, flags};
use store_engine::{Args, Arity, Command, CommandError, Group, KeyPart, Reply};

use crate::command::client::tracking;
use crate::command::{acl, cluster, function, pubsub, replication, scripting, server as administration};
use crate::coordinate::{self, Step};
use crate::gate::{self, Origin, Stage};
use crate::observe::unix_ms;
use crate::pubsub::Message;
use crate::registry::{Later, Row, SessionCommand, SessionRun, run_now};
use crate::server::Server;
use crate::session::{Multi, OwnedCall, Session, Watch, Watched};

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
        run: SessionRun::Now(multi),
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
        run: SessionRun::Later(Later::Exec),
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
        run: SessionRun::Now(discard),
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
        run: SessionRun::Later(Later::Watch),
    },
    SessionCommand {
        facts: Command {
            name: "unwatch",
            since: "2.2.0",
            summary: "Forgets about watched keys of a transaction.",
            syntax: "",
            ..TRANSACTIONS
        },
        run: SessionRun::Now(|server, session, _, out| {
            unwatch(server, session);
            out.ok();
            Ok(())
        }),
    },
];

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
pub async fn watch(server: &Server, session: &mut Session, args: Args<'_>, out: &mut Reply) {
    if session.multi.is_some() {
        return out.error(&CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in args.rest(1) {
        if session.watched.iter().any(|watched| watched.db == session.db && *watched.key == **key) {
            continue;
        }
        let watch = match &server.store {
            Store::Here(node) => {
                let changed = Arc::new(AtomicBool::new(false));
                node.watch(session.db, key, unix_ms(), &changed);
                session.client.details.lock().watched.push(changed.clone());
                Watch::Here(changed)
            }
            Store::Spread(cluster) => match cluster.watch(session.db, key).await {
                Ok(watch) => Watch::There(watch),
                Err(error) => return out.error(&error),
            },
        };
        session.watched.push(Watched { db: session.db, key: (*key).into(), watch });
    }
    out.ok();
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
    if !session.watched.is_empty() {
        session.client.details.lock().watched.clear();
    }
    for Watched { db, key, watch } in session.watched.drain(..) {
        match (watch, &server.store) {
            (Watch::Here(changed), Store::Here(node)) if !changed.load(Ordering::Relaxed) => {
                node.unwatch(db, &key, &changed);
            }
            (Watch::There(watch), Store::Spread(cluster)) => cluster.unwatch(watch),
            _ => {}
        }
    }
}

/// EXEC.
pub async fn exec(server: &Arc<Server>, session: &mut Session, out: &mut Reply) {
    let Some(multi) = session.multi.take() else {
        out.error(&CommandError::new("ERR EXEC without MULTI"));
        return;
    };
    if multi.broken {
        unwatch(server, session);
        out.error(&CommandError::new("EXECABORT Transaction discarded because of previous errors."));
        return;
    }
    // Before anything is done, as what is queued may load a library, and again when that is over.
    if has_changed(server, session) || (loads(server, &multi) && has_changed_elsewhere(server, session).await)
    {
        out.null_array();
        unwatch(server, session);
        return;
    }
    let calls: Vec<Vec<&[u8]>> = multi.queued.iter().map(slices).collect();
    session.in_exec = true;
    let steps = prepare(server, session, &calls).await;
    session.in_exec = false;
    has_changed(server, session);
    let mut seed = session.seed;
    let watches = session.watches_elsewhere();
    let mark = out.buf.len();
    let done = coordinate::exec(server, &steps, watches, || session.watch_broken(), &mut seed, out).await;
    session.seed = seed;
    if done {
        let reply = out.buf.get(mark..).unwrap_or_default();
        for step in &steps {
            if let Step::Engine(admitted, _) = step
                && server.audit.concerns(admitted.number)
            {
                server.audit.tell(session, admitted.args, reply);
            }
        }
    } else {
        out.null_array();
    }
    unwatch(server, session);
}

/// Whether a watched key has changed. One that has expired counts: looking at it removes it, which raises its flag.
fn has_changed(server: &Server, session: &Session) -> bool {
    let now_ms = unix_ms();
    if let Some(node) = server.store.node() {
        session.watched.iter().for_each(|watched| node.refresh(watched.db, &watched.key, now_ms));
    }
    session.watch_broken()
}

/// Whether something is queued that EXEC does before it has its locks.
fn loads(server: &Server, multi: &Multi) -> bool {
    multi.queued.iter().any(|call| matches!(server.registry.lookup(&call[0]), Some(Row::Session(_))))
}

/// The same as nodes elsewhere know it; EXEC asks them again when it has its locks.
async fn has_changed_elsewhere(server: &Server, session: &Session) -> bool {
    let watches: Vec<_> = session.watches_elsewhere().into_iter().map(|(watch, _)| watch).collect();
    if watches.is_empty() {
        return false;
    }
    matches!(server.store.begin(Vec::new(), false, None, watches).await, Err(Trouble::Broken))
}

fn slices(call: &OwnedCall) -> Vec<&[u8]> {
    call.iter().map(|item| &**item).collect()
}

/// Sorts the queued calls by who performs them. Session commands, SCRIPT and FUNCTION do so here: they touch no key,
/// and those before them in the queue cannot change what they say, but for SELECT, which is followed.
async fn prepare<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    calls: &'a [Vec<&'a [u8]>],
) -> Vec<Step<'a>> {
    let mut steps = Vec::with_capacity(calls.len());
    for call in calls {
        let mut reply = Reply::new(session.protocol);
        let (part, db, args) = (Part::begin(), session.db, Args::new(call));
        match sort(server, session, args, &mut reply).await {
            Ok(Some(step)) => {
                steps.push(step);
                continue;
            }
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
        steps.push(Step::Answered(reply.buf));
    }
    steps
}

/// A queued call as a step, unless `reply` has its answer already.
async fn sort<'a>(
    server: &Arc<Server>,
    session: &mut Session,
    args: Args<'a>,
    reply: &mut Reply,
) -> Result<Option<Step<'a>>, CommandError> {
    let admitted = gate::admit(&server.registry, args, Origin::Client)?;
    if server.monitors.listen() && !admitted.facts.has(flags::ADMIN) {
        server.monitors.show(&server.pubsub, session.db, &session.client.addr, args);
    }
    gate::refuse_without_permission(server, &session.account, session.client.id, Stage::Executed, &admitted)?;
    let Row::Session(command) = admitted.row else {
        tracking::note(server, session, &admitted);
        return Ok(Some(Step::Engine(admitted, session.db)));
    };
    let later = match command.run {
        SessionRun::Now(run) => {
            run_now(server, session, args, run, reply);
            return Ok(None);
        }
        SessionRun::Later(later) | SessionRun::Either(_, later) => later,
    };
    let script = match later {
        Later::Script => {
            scripting::script(server, session, args, reply).await;
            return Ok(None);
        }
        Later::Acl => {
            acl::acl(server, session, args, reply).await;
            return Ok(None);
        }
        Later::Config => {
            administration::config(server, args, reply).await;
            return Ok(None);
        }
        Later::PubSub => {
            pubsub::pubsub(server, args, reply).await;
            return Ok(None);
        }
        Later::Cluster => {
            cluster::cluster(server, session, args, reply).await;
            return Ok(None);
        }
        Later::Wait => {
            replication::wait(session, args, reply).await;
            return Ok(None);
        }
        Later::Publish { shard } => {
            return Ok(Some(Step::Publish(Message { shard, channel: args[1].into(), text: args[2].into() })));
        }
        Later::Function => {
            function::function(server, session, args, reply).await;
            return Ok(None);
        }
        Later::Eval { by_sha, read_only } => {
            scripting::script_call(server, session, &admitted, by_sha, read_only)?
        }
        Later::Fcall { read_only } => function::function_call(server, session, &admitted, read_only)?,
        Later::Exec | Later::Save | Later::Shutdown | Later::Watch => {
            return Err(CommandError::new("ERR Command not allowed inside a transaction"));
        }
    };
    Ok(Some(Step::Script(script.within_exec())))
}
