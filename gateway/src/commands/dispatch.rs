//! The path of a request: admission, then the engine, a session function, or something that waits.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use store::client::Pending;
use store::topology::{NodeId, SlotMap};
use store::{Origin, Pass, Store};
use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Protocol, Reply, Routing};

use crate::admission::{self, Admitted, NotAdmitted};
use crate::commands;
use crate::commands::perform::perform;
use crate::config::Config;
use crate::scripting;
use crate::server::{EndedCall, Handler, Row, Server, SessionCommand, error_from, run_now};
use crate::session::{ClientInfo, DataAccess, OwnedCall, Session, Sessions};
use crate::telemetry::Telemetry;
use crate::telemetry::counters::unix_ms;
use crate::telemetry::counts::Refusal;
use crate::telemetry::spans::{Open, Scope};

/// Handles a request as far as that is possible at once. The reply is in `out`, unless something is returned
/// that has to be awaited with [`finish`].
pub fn begin<'a>(
    server: &Server,
    session: &mut Session,
    args: Args<'a>,
    now_ms: u64,
    out: &mut Reply,
) -> Option<Waiting<'a>> {
    let began = session_time(&server.telemetry, session);
    let start = out.begin();
    limit(&server.config, out);
    let span = server.telemetry.spans.begin(&session.parent, began);
    session.span = span.filter(|_| !session.needs_password(&server.acl));
    let mut called = None;
    let waiting = match server.sessions.tracking.is_on() {
        true => Origin::client(session.client.id)
            .act(|| try_begin(server, session, args, now_ms, &mut called, out)),
        false => try_begin(server, session, args, now_ms, &mut called, out),
    };
    if waiting.is_none() {
        let took = began.map(|began| note_time(server, session, args, began));
        if let Some(number) = called {
            let error = error_from(out, start);
            server.telemetry.call_ended(&session.client, EndedCall { number, args: Some(args), took, error });
        }
        if let Some(span) = session.span.take() {
            let name = match called {
                Some(number) => server.registry.shown_name(usize::from(number)),
                None => admission::shown_name(&server.registry, args),
            };
            let reply = out.buf.get(start..).unwrap_or_default();
            server.telemetry.end_span(session, span, name, began.and(session.clock), reply);
        }
    }
    waiting
}

/// The reply to one request may be as large as what a client may leave unread, as that is what it would be.
fn limit(config: &Config, out: &mut Reply) {
    let bytes = config.client_output_buffer_limit.normal.hard.get_usize();
    out.set_limit(if bytes == 0 { usize::MAX } else { bytes });
}

/// Reports a call that was not run. `number` is that of its command, if there is such a command.
fn count_refusal(telemetry: &Telemetry, number: Option<u16>, why: &NotAdmitted) {
    let refusal = match why {
        NotAdmitted::Denied(_) => Refusal::Denied,
        NotAdmitted::Rejected(_) => Refusal::Rejected,
    };
    telemetry.call_refused(number, refusal, why.error());
}

/// When what is done next for the session begins, if calls are timed.
fn session_time(telemetry: &Telemetry, session: &mut Session) -> Option<Instant> {
    telemetry.takes_times().then(|| *session.clock.get_or_insert_with(Instant::now))
}

/// Notes a call that has ended now. How long it took.
fn note_time(server: &Server, session: &mut Session, args: Args<'_>, began: Instant) -> Duration {
    let now = Instant::now();
    session.clock = Some(now);
    let took = now - began;
    server.note_slow(&session.client, args, took);
    took
}

/// Shows a call to those who watch, unless it is for administrators only.
fn show(sessions: &Sessions, session: &Session, admitted: &Admitted<'_>) {
    if sessions.monitors.listen() && !admitted.spec().has(flags::ADMIN) {
        sessions.monitors.show(&sessions.pubsub, session.db, &session.client.addr, admitted.args());
    }
}

fn try_begin<'a>(
    server: &Server,
    session: &mut Session,
    args: Args<'a>,
    now_ms: u64,
    called: &mut Option<u16>,
    out: &mut Reply,
) -> Option<Waiting<'a>> {
    if let Some(follows) = &mut session.tracking {
        follows.next_command(args.name().eq_ignore_ascii_case(b"client"), session.multi.is_some());
        if follows.no_loop {
            server.sessions.tracking.command_begins(session.client.id);
        }
    }
    let admitted = match admission::admit(server, admission::Origin::Client(session), args) {
        Ok(admitted) => admitted,
        Err(why) => {
            count_refusal(&server.telemetry, admission::number_of(&server.registry, args), &why);
            let error = CommandError::from(why);
            match args.name().eq_ignore_ascii_case(b"exec") {
                true => commands::multi::abort(&server.store, session, &error, out),
                false => refuse(session, &error, out),
            }
            return None;
        }
    };
    session.client.set_command(admitted.number);
    if server.sessions.pause.is_on() {
        let writes = may_write(server, session, &admitted);
        if server.sessions.pause.holds(writes) {
            admission::count_later(&session.account, admitted.spec());
            return Some(Waiting::Paused(admitted, writes));
        }
    }
    if session.multi.is_some() && queue(&server.telemetry, session, &admitted, out) {
        return None;
    }
    *called = Some(admitted.number);
    if commands::pubsub::pong(session, admitted.spec(), args, out) {
        return None;
    }
    session.data_access = session.data_access.max(data_access(&admitted));
    // Redis shows SELECT and RESET with the database that they lead to, and EXEC behind what it does.
    let is_late = matches!(admitted.spec().name, "select" | "reset" | "exec");
    if !is_late {
        show(&server.sessions, session, &admitted);
    }
    match admitted.row {
        Row::Engine(_) => {
            commands::client::tracking::note(&server.sessions, session, &admitted);
            let start = out.buf.len();
            match server.store.try_execute(&admitted.at(session.db, now_ms), &mut session.seed, out) {
                Some(_) if scripting::found_nothing(&admitted, out, start) => {
                    out.truncate(start);
                    Some(Waiting::Blocked(admitted))
                }
                Some(_) => None,
                None => Some(Waiting::Locked(admitted)),
            }
        }
        Row::Session(SessionCommand { run: Handler::Inline(run), .. }) => {
            run_now(server, session, args, *run, out);
            if is_late {
                show(&server.sessions, session, &admitted);
            }
            None
        }
        Row::Session(command) => Some(Waiting::Handled(command, admitted)),
    }
}

/// What a call touches, at most.
fn data_access(admitted: &Admitted<'_>) -> DataAccess {
    match admitted.row {
        _ if admitted.spec().is_write() => DataAccess::Written,
        Row::Engine(_) if admitted.spec().routing == Routing::Anywhere => DataAccess::Nothing,
        Row::Engine(_) => DataAccess::Read,
        Row::Session(command) => command.run.data_access(admitted.spec().name),
    }
}

/// Whether CLIENT PAUSE … WRITE holds this call up.
fn may_write(server: &Server, session: &Session, admitted: &Admitted<'_>) -> bool {
    let writes = |row: Row, spec: &Command, called: &[u8]| match row {
        Row::Session(SessionCommand { run: Handler::Script { source, read_only: false }, .. }) => {
            commands::run_script::may_write(server, *source, called)
        }
        _ => spec.is_write() || spec.has(flags::PUBLISHES),
    };
    let queued_writes = |call: &OwnedCall| {
        let mut items = call.iter();
        let row = items.next().and_then(|name| server.registry.lookup(name));
        row.is_some_and(|row| writes(row, row.spec(), items.next().map_or(&[][..], |word| word)))
    };
    let mut queued = session.multi.iter().flat_map(|multi| &multi.queued);
    writes(admitted.row, admitted.spec(), admitted.args().get(1).unwrap_or_default())
        || (admitted.spec().name == "exec" && queued.any(queued_writes))
}

/// A request that could not be answered at once.
pub enum Waiting<'a> {
    /// Its keys are in use.
    Locked(Admitted<'a>),
    /// It has found nothing and waits for something.
    Blocked(Admitted<'a>),
    /// Its handler may have to wait.
    Handled(&'static SessionCommand, Admitted<'a>),
    /// Clients have to wait, or those that may write, as this one does or not.
    Paused(Admitted<'a>, bool),
}

impl<'a> Waiting<'a> {
    fn admitted(&self) -> &Admitted<'a> {
        let (Waiting::Locked(admitted)
        | Waiting::Blocked(admitted)
        | Waiting::Handled(_, admitted)
        | Waiting::Paused(admitted, _)) = self;
        admitted
    }

    /// Whether it may wait for something to come.
    pub fn blocks(&self) -> bool {
        match self {
            Waiting::Blocked(_) | Waiting::Paused(..) => true,
            Waiting::Locked(admitted) => admitted.spec().has(flags::BLOCKING),
            Waiting::Handled(command, _) => command.run.blocks(),
        }
    }

    /// Whether the request may complete after its client has disconnected.
    pub fn outlives_client(&self) -> bool {
        matches!(self, Waiting::Handled(command, _) if command.run.outlives_client())
    }
}

/// A command on its way to a node elsewhere. Its reply is awaited later, with those of the commands behind it.
pub struct Sent {
    pending: Pending,
    node: NodeId,
    request: RequestInfo,
}

/// What was asked, with its arguments.
pub struct RequestInfo {
    pass: Pass,
    number: u16,
    /// Of the session when it was sent.
    db: usize,
    protocol: Protocol,
    /// If it is traced.
    span: Option<Open>,
    /// When it was sent, if calls are timed.
    began: Option<Instant>,
}

/// Sends what [`begin`] left open to the only node it concerns by this map, if there is one; otherwise it is given back.
/// `before` are those on their way, by the same map: a write does not overtake a write to another node, so that no client
/// sees the later one and misses the earlier.
pub fn send<'a, 'b>(
    server: &Server,
    session: &mut Session,
    waiting: Waiting<'a>,
    map: &SlotMap,
    before: impl Iterator<Item = &'b Sent> + Clone,
) -> Result<Sent, Waiting<'a>> {
    let (Store::Distributed(cluster), Waiting::Locked(admitted)) = (&server.store, &waiting) else {
        return Err(waiting);
    };
    let (spec, number, pass) = (admitted.spec(), admitted.number, admitted.pass());
    let call = admitted.at(session.db, 0);
    let is_write_elsewhere =
        |sent: &Sent, node: NodeId| sent.request.pass.command().is_write() && sent.node != node;
    let overtakes =
        |node: NodeId| spec.is_write() && before.clone().any(|sent| is_write_elsewhere(sent, node));
    match map.only_node(&call) {
        Some(node) if !admitted.keys().is_empty() && !spec.has(flags::BLOCKING) && !overtakes(node) => {
            let (db, protocol) = (session.db, session.protocol);
            // Behind what was sent there; what could not be has no number.
            let mut there = before.filter(|sent| sent.node == node).map(|sent| sent.pending.id());
            let since = there.find(|id| *id > 0).unwrap_or_default();
            let send = || cluster.send(node, &call, protocol, session.client.id, since);
            let scope = session.span.as_ref().and_then(|span| server.telemetry.spans.scope(span));
            let pending = scope.map_or_else(send, |scope| scope.act(send));
            // What is sent together is sent at about the same time.
            let began = session_time(&server.telemetry, session);
            let request = RequestInfo { pass, number, db, protocol, span: session.span.take(), began };
            Ok(Sent { pending, node, request })
        }
        _ => Err(waiting),
    }
}

/// Waits for the reply to a command that was sent; gives it back if it has to be done [`again`]. How long that took, if
/// calls are timed; `clock` is where the clock stood when it was last read, if nothing was awaited since.
pub async fn receive(
    server: &Server,
    client: &ClientInfo,
    sent: Sent,
    clock: &mut Option<Instant>,
    out: &mut Reply,
) -> Result<Option<Duration>, RequestInfo> {
    let Sent { pending, request, .. } = sent;
    let Store::Distributed(cluster) = &server.store else { return Err(request) };
    let start = out.begin();
    let mut received = pin!(cluster.received(pending, request.pass.command().is_write()));
    let received = match poll_fn(|context| Poll::Ready(received.as_mut().poll(context))).await {
        Poll::Ready(received) => received,
        Poll::Pending => {
            *clock = None;
            received.await
        }
    };
    match received {
        Some(Ok(reply)) => store::relay(reply, out),
        Some(Err(error)) => out.error(&error),
        None => return Err(request),
    }
    Ok(note_answer(server, client, request, clock, out, start))
}

/// Does a command that was sent to a node which has refused it as slots have moved: as it was asked, whatever the
/// session has become since.
pub async fn again(
    server: &Arc<Server>,
    session: &mut Session,
    request: RequestInfo,
    args: Args<'_>,
    clock: &mut Option<Instant>,
    out: &mut Reply,
) -> Option<Duration> {
    let start = out.begin();
    let Some(admitted) = request.pass.admit(args) else {
        out.error(&CommandError::new("ERR internal error: a request is not the one that was sent"));
        return None;
    };
    let call = admitted.at(request.db, 0).without_touch(session.client.no_touch());
    let protocol = std::mem::replace(&mut out.protocol, request.protocol);
    let scope = request.span.as_ref().and_then(|span| server.telemetry.spans.scope(span));
    {
        let client = session.client.id;
        let done = pin!(server.store.execute(&call, client, unix_ms, &mut session.seed, out));
        drive(&server.sessions, client, scope, done).await;
    }
    out.protocol = protocol;
    *clock = None;
    note_answer(server, &session.client, request, clock, out, start)
}

/// Reports a command that was sent and has its answer, behind `start`. Gives its duration if calls are timed.
fn note_answer(
    server: &Server,
    client: &ClientInfo,
    request: RequestInfo,
    clock: &mut Option<Instant>,
    out: &Reply,
    start: usize,
) -> Option<Duration> {
    let RequestInfo { number, span, began, .. } = request;
    let took = began.map(|began| clock.get_or_insert_with(Instant::now).saturating_duration_since(began));
    server
        .telemetry
        .call_ended(client, EndedCall { number, args: None, took, error: error_from(out, start) });
    if let Some(open) = span {
        let reply = out.buf.get(start..).unwrap_or_default();
        server.end_span_of_sent(open, number, began.and(*clock), reply);
    }
    took
}

/// Does what a client has asked for, as part of its span if that is traced.
async fn drive<F: Future>(
    sessions: &Sessions,
    client: u64,
    scope: Option<Scope>,
    work: Pin<&mut F>,
) -> F::Output {
    let origin = Origin::client(client);
    match (scope, sessions.tracking.is_on()) {
        (None, false) => work.await,
        (None, true) => origin.drive(work).await,
        (Some(scope), _) => scope.drive(origin.drive(work)).await,
    }
}

/// Answers what [`begin`] left open.
pub async fn finish(server: &Arc<Server>, session: &mut Session, waiting: Waiting<'_>, out: &mut Reply) {
    let began = session_time(&server.telemetry, session);
    limit(&server.config, out);
    // Whoever waits for something to come does not take long.
    let args = match &waiting {
        Waiting::Locked(admitted) | Waiting::Handled(_, admitted) => Some(admitted.args()),
        Waiting::Blocked(_) | Waiting::Paused(..) => None,
    };
    let args = args
        .filter(|_| !matches!(&waiting, Waiting::Locked(admitted) if admitted.spec().has(flags::BLOCKING)));
    let (number, start) = (waiting.admitted().number, out.begin());
    let called = waiting.admitted().args();
    let scope = session.span.as_ref().and_then(|span| server.telemetry.spans.scope(span));
    let client = session.client.id;
    {
        // It is large: it is pinned where it is made.
        let answered = pin!(answer(server, session, waiting, out));
        drive(&server.sessions, client, scope, answered).await;
    }
    let took = match (began, args) {
        (Some(began), Some(args)) => Some(note_time(server, session, args, began)),
        _ => {
            session.clock = None;
            None
        }
    };
    if let Some(span) = session.span.take() {
        let name = server.registry.shown_name(usize::from(number));
        let reply = out.buf.get(start..).unwrap_or_default();
        server.telemetry.end_span(session, span, name, took.and(session.clock), reply);
    }
    let ended = EndedCall { number, args: Some(called), took, error: error_from(out, start) };
    server.telemetry.call_ended(&session.client, ended);
}

async fn answer(server: &Arc<Server>, session: &mut Session, waiting: Waiting<'_>, out: &mut Reply) {
    match waiting {
        Waiting::Locked(admitted) => {
            let call = admitted.at(session.db, 0);
            let start = out.buf.len();
            let behind_ms = session.behind_ms;
            let clock = || unix_ms().saturating_sub(behind_ms);
            server.store.execute(&call, session.client.id, clock, &mut session.seed, out).await;
            if scripting::found_nothing(&admitted, out, start) {
                out.truncate(start);
                scripting::wait(&server.store, &session.client, &admitted, session.db, out).await;
            }
        }
        Waiting::Blocked(admitted) => {
            scripting::wait(&server.store, &session.client, &admitted, session.db, out).await;
        }
        Waiting::Paused(admitted, writes) => {
            server.sessions.pause.over(writes).await;
            let args = admitted.args();
            if let Some(waiting) = try_begin(server, session, args, unix_ms(), &mut None, out) {
                Box::pin(answer(server, session, waiting, out)).await;
            }
        }
        Waiting::Handled(row, admitted) => {
            perform(server, session, &admitted, row.run, out).await;
            if admitted.spec().name == "exec" {
                show(&server.sessions, session, &admitted);
            }
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
fn queue(telemetry: &Telemetry, session: &mut Session, admitted: &Admitted<'_>, out: &mut Reply) -> bool {
    if !admission::is_queued(admitted.spec().name) {
        return false;
    }
    let multi = session.multi.as_mut().expect("the caller found a MULTI in progress");
    match multi.push(admitted.args().items()) {
        Ok(()) => out.status("QUEUED"),
        Err(error) => {
            let why = NotAdmitted::from(error);
            count_refusal(telemetry, Some(admitted.number), &why);
            out.error(why.error());
        }
    }
    true
}
