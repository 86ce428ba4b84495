//! The road of a request: gate, then the engine, a session function, or something that waits.

use std::sync::Arc;
use std::time::Instant;

use store::client::Pending;
use store::topology::NodeId;
use store::{Call, Store};
use store_engine::command::resolve;
use store_engine::spec::flags;
use store_engine::{Args, CommandError, Reply};

use crate::command;
use crate::coordinate;
use crate::gate::{self, Admitted, Origin};
use crate::monitor::Spike;
use crate::observe::unix_ms;
use crate::registry::{Later, Row, SessionRun, run_now};
use crate::server::Server;
use crate::session::Session;

/// Handles a request as far as that is possible at once. The reply is in `out`, unless something is returned
/// that has to be awaited with [`finish`].
pub fn begin<'a>(
    server: &Server,
    session: &mut Session,
    args: Args<'a>,
    now_ms: u64,
    out: &mut Reply,
) -> Option<Waiting<'a>> {
    let began = server.takes_times().then(Instant::now);
    let waiting = try_begin(server, session, args, now_ms, out);
    if let (Some(began), None) = (began, &waiting) {
        note_slow(server, session, args, began);
    }
    waiting
}

/// Whether a call that has ended now took longer than is tolerated.
pub fn is_slow(server: &Server, began: Instant) -> bool {
    let (took, threshold) = (began.elapsed(), server.config.latency_monitor_threshold.get());
    server.slower_than().is_some_and(|slow| took >= slow)
        || (threshold > 0 && took.as_millis() as u64 >= threshold)
}

/// Notes a call if it took longer than is tolerated.
pub fn note_slow(server: &Server, session: &Session, args: Args<'_>, began: Instant) {
    let took = began.elapsed();
    if server.slower_than().is_some_and(|slow| took >= slow) {
        server.slow_log.add(args, &session.client, took, server.config.slowlog_max_len.get_usize());
    }
    let (threshold, millis) = (server.config.latency_monitor_threshold.get(), took.as_millis() as u64);
    if threshold > 0 && millis >= threshold {
        let row = server.registry.lookup(args.name());
        let facts = row.and_then(|row| resolve(row.facts(), args));
        let is_fast = facts.is_some_and(|facts| facts.has(flags::FAST));
        server.latency.add(is_fast, Spike { at: unix_ms() / 1000, millis });
    }
}

/// Shows a call to those who watch, unless it is for administrators only.
fn show(server: &Server, session: &Session, admitted: &Admitted<'_>) {
    if server.monitors.listen() && !admitted.facts.has(flags::ADMIN) {
        server.monitors.show(&server.pubsub, session.db, &session.client.addr, admitted.args);
    }
}

fn try_begin<'a>(
    server: &Server,
    session: &mut Session,
    args: Args<'a>,
    now_ms: u64,
    out: &mut Reply,
) -> Option<Waiting<'a>> {
    let admitted = gate::admit(&server.registry, args, Origin::Client).and_then(|admitted| {
        gate::refuse_when_full(server, &admitted, session.multi.as_ref())?;
        gate::refuse_what_cannot_be_kept(server, &admitted, session.multi.as_ref())?;
        command::pubsub::refuse_while_subscribed(session, &admitted)?;
        Ok(admitted)
    });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            match args.name().eq_ignore_ascii_case(b"exec") {
                true => command::multi::abort(server, session, &error, out),
                false => refuse(session, &error, out),
            }
            return None;
        }
    };
    if session.multi.is_some() && queue(session, &admitted, out) {
        return None;
    }
    if command::pubsub::pong(session, admitted.facts, args, out) {
        return None;
    }
    session.wrote |= admitted.facts.is_write();
    // Redis shows SELECT and RESET with the database that they lead to, and EXEC behind what it does.
    let is_late = matches!(admitted.facts.name, "select" | "reset" | "exec");
    if !is_late {
        show(server, session, &admitted);
    }
    match admitted.row {
        Row::Engine(_) => {
            let Admitted { facts, ref keys, .. } = admitted;
            let call = Call { command: facts, args, keys, db: session.db, now_ms };
            let mark = out.buf.len();
            match server.store.try_execute(&call, &mut session.seed, out) {
                Some(_) if coordinate::found_nothing(&admitted, out, mark) => {
                    out.buf.truncate(mark);
                    Some(Waiting::Blocked(admitted))
                }
                Some(_) => None,
                None => Some(Waiting::Locked(admitted)),
            }
        }
        Row::Session(command) => match command.run {
            SessionRun::Now(run) => {
                run_now(server, session, args, run, out);
                if is_late {
                    show(server, session, &admitted);
                }
                None
            }
            SessionRun::Later(later) => {
                session.wrote |= !later.only_reads();
                Some(Waiting::Later(later, admitted))
            }
        },
    }
}

/// A request that could not be answered at once.
pub enum Waiting<'a> {
    /// Its keys are in use.
    Locked(Admitted<'a>),
    /// It has found nothing and waits for something.
    Blocked(Admitted<'a>),
    /// It is one of those that take their time.
    Later(Later, Admitted<'a>),
}

impl Waiting<'_> {
    /// Whether it is or has a script, which may run to its end although nobody waits for its reply.
    pub fn runs_scripts(&self) -> bool {
        matches!(self, Waiting::Later(later, _) if !matches!(later, Later::Publish { .. } | Later::PubSub))
    }
}

/// A command on its way to a node elsewhere. Its reply is awaited later, with those of the commands behind it.
pub struct Sent {
    pending: Pending,
    node: NodeId,
    writes: bool,
}

/// Sends what [`begin`] left open to the only node it concerns, if there is one; otherwise it is given back. `before`
/// are those on their way: a write does not overtake a write to another node, so that nobody sees the later one and
/// misses the earlier.
pub fn send<'a, 'b>(
    server: &Server,
    session: &Session,
    waiting: Waiting<'a>,
    mut before: impl Iterator<Item = &'b Sent>,
) -> Result<Sent, Waiting<'a>> {
    let (Store::Spread(cluster), Waiting::Locked(admitted)) = (&server.store, &waiting) else {
        return Err(waiting);
    };
    let Admitted { facts, args, ref keys, .. } = *admitted;
    let call = Call { command: facts, args, keys, db: session.db, now_ms: 0 };
    let writes = facts.is_write();
    let mut overtakes = |node: NodeId| writes && before.any(|sent| sent.writes && sent.node != node);
    match cluster.only_node(&call) {
        Some(node) if !keys.is_empty() && !facts.has(flags::BLOCKING) && !overtakes(node) => {
            let pending = cluster.send(node, &call, session.protocol, session.client.id);
            Ok(Sent { pending, node, writes })
        }
        _ => Err(waiting),
    }
}

/// Waits for the reply to a command that was sent. Not if it has to be sent again, as its slot has moved.
pub async fn receive(server: &Server, sent: Sent, out: &mut Reply) -> bool {
    let Store::Spread(cluster) = &server.store else { return false };
    match cluster.received(sent.pending, sent.writes).await {
        Some(Ok(reply)) => out.buf.extend_from_slice(&reply),
        Some(Err(error)) => out.error(&error),
        None => return false,
    }
    true
}

/// Answers what [`begin`] left open.
pub async fn finish(server: &Arc<Server>, session: &mut Session, waiting: Waiting<'_>, out: &mut Reply) {
    let began = server.takes_times().then(Instant::now);
    // Whoever waits for something to come does not take long.
    let args = match &waiting {
        Waiting::Locked(admitted) | Waiting::Later(_, admitted) => Some(admitted.args),
        Waiting::Blocked(_) => None,
    };
    let args = args
        .filter(|_| !matches!(&waiting, Waiting::Locked(admitted) if admitted.facts.has(flags::BLOCKING)));
    answer(server, session, waiting, out).await;
    if let (Some(began), Some(args)) = (began, args) {
        note_slow(server, session, args, began);
    }
}

async fn answer(server: &Arc<Server>, session: &mut Session, waiting: Waiting<'_>, out: &mut Reply) {
    match waiting {
        Waiting::Locked(admitted) => {
            let Admitted { facts, args, ref keys, .. } = admitted;
            let call = Call { command: facts, args, keys, db: session.db, now_ms: 0 };
            let mark = out.buf.len();
            server.store.execute(&call, session.client.id, unix_ms, &mut session.seed, out).await;
            if coordinate::found_nothing(&admitted, out, mark) {
                out.buf.truncate(mark);
                coordinate::wait(server, &session.client, &admitted, session.db, out).await;
            }
        }
        Waiting::Blocked(admitted) => {
            coordinate::wait(server, &session.client, &admitted, session.db, out).await;
        }
        Waiting::Later(Later::Save, _) => command::persistence::save(server, out).await,
        Waiting::Later(Later::Shutdown, admitted) => {
            command::persistence::shutdown(server, session, admitted.args, out).await;
        }
        Waiting::Later(Later::Config, admitted) => {
            command::server::config(server, admitted.args, out).await;
        }
        Waiting::Later(Later::Watch, admitted) => {
            command::multi::watch(server, session, admitted.args, out).await;
        }
        Waiting::Later(Later::Publish { shard }, admitted) => {
            command::pubsub::publish(server, session, admitted.args, shard, out).await;
        }
        Waiting::Later(Later::PubSub, admitted) => {
            command::pubsub::pubsub(server, admitted.args, out).await;
        }
        Waiting::Later(Later::Exec, admitted) => {
            command::multi::exec(server, session, out).await;
            show(server, session, &admitted);
        }
        Waiting::Later(Later::Eval { by_sha, read_only }, admitted) => {
            command::scripting::eval(server, session, &admitted, by_sha, read_only, out).await;
        }
        Waiting::Later(Later::Script, admitted) => {
            command::scripting::script(server, admitted.args, out).await;
        }
        Waiting::Later(Later::Fcall { read_only }, admitted) => {
            command::function::fcall(server, session, &admitted, read_only, out).await;
        }
        Waiting::Later(Later::Function, admitted) => {
            command::function::function(server, admitted.args, out).await;
        }
    }
}

fn refuse(session: &mut Session, error: &CommandError, out: &mut Reply) {
    if let Some(multi) = &mut session.multi {
        multi.broken = true;
    }
    out.error(error);
}

/// Inside MULTI: queues the call, unless it is one that acts at once. Whether the reply is written.
fn queue(session: &mut Session, admitted: &Admitted<'_>, out: &mut Reply) -> bool {
    if matches!(admitted.facts.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset") {
        return false;
    }
    if admitted.facts.has(flags::NO_MULTI) {
        refuse(session, &CommandError::new("ERR Command not allowed inside a transaction"), out);
        return true;
    }
    let multi = session.multi.as_mut().expect("the caller found a MULTI in progress");
    multi.queued.push(admitted.args.items().iter().map(|item| (*item).into()).collect());
    out.status("QUEUED");
    true
}
