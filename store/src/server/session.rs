//! One peer's stream: its requests in the order they come, its answers as they are ready.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use proto::store::v1 as wire;
use store_engine::{Protocol, Reply};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tonic::Streaming;
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::{Requests, Response};

use super::admit::Admitted;
use super::aside::{aside, drive_aside};
use super::endings;
use super::founding;
use super::host::Host;
use super::in_doubt;
use super::moving;
use super::outbox::{Outbox, UNREAD_BYTES, bytes_of};
use super::peer::Known;
use super::pending;
use super::refusal::refusal;
use super::refused::Refused;
use super::requests;
use super::resolve;
use super::snapshots::{self, PeerSnapshot};
use super::status::{greet, status};
use super::step;
use super::watches::{Watched, Watches};
use crate::client::request::{RequestAttributes, is_answered, parent_span};
use crate::client::silence::Direction;
use crate::invalidations::Origin;
use crate::parts::Parts;
use crate::spans::{self, Part, Scope, SpanKind};
use crate::topology::SlotMap;
use crate::wait::Waiter;

/// How long peers may take to finish what they have begun when the node shuts down. Documented in `store.proto`.
const LEAVING: Duration = Duration::from_secs(5);
/// So many requests of one peer may wait for something.
const MOST_WAITING: usize = 100_000;
const TOO_MANY: &str = "too many pending requests of this peer";

/// What a session has under way, beside transactions.
#[derive(Default)]
struct PendingCalls {
    /// Calls of a lane behind one that waits.
    sequences: HashMap<u64, VecDeque<Queued>>,
    refused: Refused,
    /// The first calls of lanes that wait for locks, by their number, with their lane.
    heads: HashMap<u64, u64>,
    /// How to end what waits.
    handles: HashMap<u64, AbortHandle>,
    /// Blocking calls.
    waiters: HashMap<u64, Arc<Waiter>>,
}

/// A call of a lane: the number of its request, and that of the first one before it that was on its way then.
struct Queued {
    id: u64,
    since: u64,
    call: wire::Call,
}

/// The session of a peer.
pub(crate) struct Session {
    host: Arc<Host>,
    outbox: Arc<Outbox>,
    number: u64,
    /// Set when the handshake is done.
    known: Known,
    greeted: bool,
    /// The node is about to end.
    leaving: bool,
    waiting: Arc<Mutex<PendingCalls>>,
    watches: Arc<Watches>,
    snapshot: Option<PeerSnapshot>,
    /// Of calls whose last part has not arrived.
    parts: Parts,
    /// The span that the next request belongs to, if that is traced.
    parent_span: Option<spans::SpanContext>,
    /// Answers of the present message.
    ready: Vec<Response>,
    ready_bytes: usize,
}

impl Session {
    pub fn new(host: Arc<Host>, outbox: Arc<Outbox>, known: Known) -> Session {
        let number = host.sessions.enter(&outbox);
        Session {
            host,
            outbox,
            number,
            known,
            greeted: false,
            leaving: false,
            waiting: Arc::default(),
            watches: Arc::default(),
            snapshot: None,
            parts: Parts::default(),
            parent_span: None,
            ready: Vec::new(),
            ready_bytes: 0,
        }
    }

    /// Serves the peer to its end.
    pub async fn run(mut self, mut requests: Streaming<Requests>) {
        let (host, known, outbox) = (self.host.clone(), self.known.clone(), self.outbox.clone());
        // While a long message arrives, the heartbeats behind it are not answered: this says that the node lives.
        let lives = || outbox.push([Response { id: 0, body: None }]);
        let mut end = pin!(host.sessions.ended());
        let mut leaves_at = None;
        while !self.outbox.is_closed() {
            let next = tokio::select! {
                biased;
                () = &mut end, if leaves_at.is_none() => {
                    if !self.greeted || host.sessions.is_cut() {
                        break;
                    }
                    self.take_leave();
                    leaves_at = Some(Instant::now() + LEAVING);
                    continue;
                }
                () = host.sessions.was_cut(), if leaves_at.is_some() => break,
                () = sleep_until(leaves_at.unwrap_or_else(Instant::now)), if leaves_at.is_some() => break,
                next = known.signs().unless_silent(Direction::In, requests.message(), lives) => next,
            };
            let Some(Ok(Some(requests))) = next else { break };
            let is_whole = |request: &&wire::Request| !matches!(request.body, Some(Ask::Part(_)));
            let count = requests.requests.iter().filter(is_whole).count();
            host.requests.fetch_add(count as u64, Ordering::Relaxed);
            for request in requests.requests {
                if self.ready_bytes > UNREAD_BYTES {
                    self.send();
                    if !self.is_read().await {
                        return self.leave();
                    }
                }
                let Some(mut body) = request.body else {
                    self.refuse(request.id, Code::Invalid, "an unknown request");
                    continue;
                };
                match &mut body {
                    // What it belongs to is refused when it ends, if the peer has not greeted.
                    Ask::Part(part) => match !self.greeted || self.parts.add(request.id, part).is_ok() {
                        true => continue,
                        false => return self.leave(),
                    },
                    Ask::Execute(wire::Execute { call: Some(call), .. }) => {
                        call.args = self.parts.finish(request.id, std::mem::take(&mut call.args));
                    }
                    _ => {}
                }
                if !self.greeted
                    && let Ask::Handshake(hello) = &body
                {
                    founding::settled(&self.host, hello).await;
                }
                let goes_on = match self.traced(request.id, &body) {
                    Some(scope) => scope.act(|| self.take(request.id, body)),
                    None => self.take(request.id, body),
                };
                if !goes_on {
                    self.send();
                    self.leave();
                    return;
                }
            }
            self.send();
            if !self.is_read().await {
                break;
            }
        }
        self.leave();
    }

    /// Notifies the peer that the node is shutting down: pending requests are still answered. Blocking calls are ended, so that
    /// the peer sends them again.
    fn take_leave(&mut self) {
        self.leaving = true;
        self.outbox.push([Response { id: 0, body: Some(Answer::Draining(wire::Draining {})) }]);
        let waiters: Vec<_> = self.waiting.lock().waiters.drain().collect();
        for (_, waiter) in waiters {
            waiter.answer(Vec::new());
        }
    }

    /// Waits until the peer has fetched what is there for it. Whether it does: one that does not is silent too.
    async fn is_read(&self) -> bool {
        self.known.signs().unless_silent(Direction::Out, self.outbox.is_read(), || ()).await.is_some()
    }

    /// The peer is gone, or given up.
    fn leave(self) {
        self.host.sessions.leave(&self.host.node, self.number);
        self.outbox.end();
        for (_, handle) in self.waiting.lock().handles.drain() {
            handle.abort();
        }
        for (_, watched) in self.watches.lock().drain() {
            unwatch_all(&self.host, watched);
        }
        for number in self.host.registry.leave(self.number) {
            tokio::spawn(resolve::resolve(self.host.clone(), number));
        }
    }

    /// Sends what is ready, once it is kept as it should be.
    fn send(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let ready = std::mem::take(&mut self.ready);
        self.ready_bytes = 0;
        settle(&self.host, &self.outbox, ready);
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        let response = Response { id, body: Some(answer) };
        self.ready_bytes += bytes_of(&response);
        self.ready.push(response);
    }

    fn refuse(&mut self, id: u64, code: Code, reason: &(impl Display + ?Sized)) {
        self.answer(id, Answer::Refusal(refusal(code, reason)));
    }

    /// For what is done for a request that is traced, if spans are collected.
    fn traced(&mut self, id: u64, body: &Ask) -> Option<Scope> {
        let parent_span = self.parent_span.take().filter(|_| is_answered(body))?;
        let part = self.host.sink.as_ref()?.scope(parent_span).part();
        Some(self.outbox.traces(id, part, RequestAttributes::of(body)))
    }

    /// Takes a request. Whether the peer may go on.
    fn take(&mut self, id: u64, body: Ask) -> bool {
        if !self.greeted {
            return self.greet(id, body);
        }
        match body {
            Ask::Handshake(_) => self.refuse(id, Code::Invalid, "a second Handshake"),
            Ask::Heartbeat(request) => self.heartbeat(id, request),
            Ask::Execute(wire::Execute { call: Some(call), sequence, since }) => {
                self.execute(Queued { id, since, call }, sequence);
            }
            Ask::Step(step) => self.step(id, *step),
            Ask::ExecuteBlocking(wire::ExecuteBlocking { call: Some(call), notify_only }) => {
                self.wait(id, call, notify_only)
            }
            Ask::Execute(_) | Ask::ExecuteBlocking(_) => self.refuse(id, Code::Invalid, "no call"),
            Ask::Cancel(request) => self.cancel(request.id),
            // Taken before.
            Ask::Part(_) => {}
            Ask::Watch(request) => self.watch(id, request),
            Ask::Unwatch(request) => self.unwatch(request.watch),
            Ask::ReadRecords(request) => self.answer(id, requests::read_records(&self.host, &request)),
            Ask::WriteRecords(request) => {
                self.answer(id, requests::write_records(&self.host, self.number, &request))
            }
            Ask::GetDecision(request) => self.later(id, move |host| requests::decision(host, request.txn)),
            Ask::GetEnding(request) => self.later(id, move |host| endings::get(host, request.txn)),
            Ask::Resolve(request) => {
                // Goes on when the peer is gone.
                let resolving = tokio::spawn(resolve::resolved(self.host.clone(), request.txn));
                self.later(id, |_| requests::joined(resolving));
            }
            Ask::Acknowledge(request) => {
                pending::forget_decision(&self.host, request.txn, &request.node);
                self.answer(id, Answer::Done(wire::Done {}));
            }
            Ask::ListTransactions(request) => {
                let transactions = in_doubt::list(&self.host, request.in_doubt);
                self.answer(id, Answer::Transactions(wire::Transactions { transactions }));
            }
            Ask::Decide(request) => self.later(id, move |host| resolve::decide(host, request)),
            Ask::SetTopology(request) => self.answer(id, requests::set_topology(&self.host, *request)),
            Ask::Accept(request) => self.answer(id, requests::accept(&self.host, *request)),
            Ask::Collect(request) => {
                let collected = requests::collect(&self.host, self.number, &request);
                self.later(id, |_| collected);
            }
            Ask::SetInvalidations(request) => {
                self.host.sessions.invalidations_enabled(&self.host.node, self.number, request.enabled);
            }
            Ask::Trace(trace) => self.parent_span = parent_span(&trace),
            Ask::Report(report) => self.host.sessions.received(self.number, report),
            Ask::MoveSlots(request) => self.later(id, move |host| moving::give(host, request)),
            Ask::ReceiveSlots(request) => {
                let session = self.number;
                self.later(id, move |host| moving::receive(host, session, *request));
            }
            Ask::Save(request) => self.later(id, move |host| requests::save(host, request)),
            Ask::BeginSnapshot(request) => self.begin_snapshot(id, &request),
            Ask::ReadSnapshot(request) => match self.snapshot_of(request.txn) {
                Some(snapshot) => {
                    let piece = snapshot.read();
                    self.later(id, |_| piece);
                }
                None => self.refuse(id, Code::Invalid, "no such snapshot has begun"),
            },
            Ask::EndSnapshot(request) => {
                if self.snapshot_of(request.txn).is_some() {
                    self.snapshot = None;
                }
            }
            Ask::Configure(request) => self.answer(id, requests::configure(&self.host, request)),
        }
        true
    }

    /// Takes the first request. Whether the peer may go on.
    fn greet(&mut self, id: u64, body: Ask) -> bool {
        let Ask::Handshake(hello) = body else {
            self.refuse(id, Code::Denied, "the first request must be Handshake");
            return false;
        };
        match greet(&self.host, &hello) {
            // No message may reach it before that.
            Ok(welcome) => {
                let body = Some(Answer::HandshakeReply(Box::new(welcome)));
                self.outbox.push([Response { id, body }]);
            }
            Err(reason) => {
                self.refuse(id, Code::Denied, &reason);
                return false;
            }
        }
        self.greeted = true;
        self.known.set();
        if hello.parts {
            self.outbox.send_parts();
        }
        if let Err(reason) = self.host.say_notify(hello.notify, true) {
            self.refuse(id, Code::Invalid, &reason);
            return false;
        }
        if hello.gateway {
            self.host.sessions.is_gateway(self.number);
        }
        // It has been read once, so it is a map.
        let map = hello.map.and_then(|map| SlotMap::from_wire(&map).ok());
        self.host.sessions.knows(self.number, map.map_or(0, |map| map.digest()));
        self.host.sessions.invalidations_enabled(&self.host.node, self.number, hello.invalidations);
        true
    }

    fn begin_snapshot(&mut self, id: u64, request: &wire::BeginSnapshot) {
        match snapshots::begin(&self.host, self.number, request) {
            Ok((snapshot, begun)) => {
                self.snapshot = Some(snapshot);
                self.answer(id, Answer::SnapshotBegun(Box::new(begun)));
            }
            Err(refused) => self.answer(id, Answer::Refusal(refused)),
        }
    }

    fn snapshot_of(&self, number: u64) -> Option<&PeerSnapshot> {
        self.snapshot.as_ref().filter(|snapshot| snapshot.number == number)
    }

    fn heartbeat(&mut self, id: u64, request: wire::Heartbeat) {
        self.host.sessions.knows(self.number, request.map_digest);
        if self.host.sessions.invalidations_enabled(&self.host.node, self.number, request.invalidations) {
            // It was set while the stream was made, and what has changed since then was not sent.
            let changed = wire::Invalidation { everything: true, ..wire::Invalidation::default() };
            self.answer(0, Answer::Invalidation(changed));
        }
        let mut status = status(&self.host);
        let taken = self.host.membership.taken().filter(|taken| taken.digest != request.map_digest);
        status.map = taken.map(|taken| taken.to_wire());
        // Whatever waits for a slow disk: the node is not silent.
        self.send();
        self.outbox.push([Response { id, body: Some(Answer::Status(Box::new(status))) }]);
    }

    /// No caller waits for this request any more.
    fn cancel(&mut self, id: u64) {
        self.parts.forget(id);
        let mut waiting = self.waiting.lock();
        // The call may have been served at this moment.
        if let Some(waiter) = waiting.waiters.remove(&id) {
            drop(waiting);
            let mut out = Reply::new(waiter.protocol());
            out.null_array();
            waiter.answer(out.buf);
            return;
        }
        self.outbox.gives_up(id);
        if let Some(sequence) = waiting.heads.remove(&id) {
            // It waits for a lock; what is behind it comes from the same client.
            waiting.sequences.remove(&sequence);
            if let Some(handle) = waiting.handles.remove(&id) {
                handle.abort();
            }
            return;
        }
        for behind in waiting.sequences.values_mut() {
            behind.retain(|held| held.id != id);
        }
    }

    /// Does something that takes its time, for as long as the peer is there.
    fn later<F>(&mut self, id: u64, work: impl FnOnce(Arc<Host>) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        if self.waiting.lock().handles.len() >= MOST_WAITING {
            return self.refuse(id, Code::Unavailable, TOO_MANY);
        }
        let (host, outbox, waiting) = (self.host.clone(), self.outbox.clone(), self.waiting.clone());
        let work = spans::carried(work(self.host.clone()));
        // Held until its handle is known, so that it does not end before.
        let mut registered = self.waiting.lock();
        let task = tokio::spawn(async move {
            let answer = work.await;
            waiting.lock().handles.remove(&id);
            settle(&host, &outbox, vec![Response { id, body: Some(answer) }]);
        });
        registered.handles.insert(id, task.abort_handle());
    }

    fn execute(&mut self, request: Queued, sequence: u64) {
        let (id, waiting) = (request.id, self.waiting.clone());
        if let Some(behind) = waiting.lock().sequences.get_mut(&sequence) {
            return match behind.len() {
                MOST_WAITING.. => self.refuse(id, Code::Unavailable, TOO_MANY),
                _ => behind.push_back(request),
            };
        }
        let origin = Origin { peer: self.number, client: sequence };
        if let Some(answer) = execute_now(&self.host, &waiting, origin, &request) {
            return self.answer(id, answer);
        }
        // A lane without a task that ends it would hold up all that comes.
        if waiting.lock().handles.len() >= MOST_WAITING {
            return self.refuse(id, Code::Unavailable, TOO_MANY);
        }
        waiting.lock().sequences.insert(sequence, VecDeque::new());
        lead(self.host.clone(), waiting, self.outbox.clone(), origin, request);
    }

    fn step(&mut self, id: u64, request: wire::Step) {
        let (number, session) = (request.txn, self.number);
        if request.finish() == wire::step::Finish::Abort {
            // At once, so that what follows finds its keys free.
            if self.host.registry.abort(number, session) {
                return self.answer(id, Answer::Done(wire::Done {}));
            }
            return self.later(id, move |host| step::abort(host, number));
        }
        let origin = Origin { peer: session, client: request.client };
        let bytes = request.changes.len() + request.calls.iter().map(|call| call.args.len()).sum::<usize>();
        let step = step::step(self.host.clone(), session, self.watches.clone(), request);
        let step = drive_aside(bytes, step);
        let mut work = Box::pin(origin.drive(spans::carried(step)));
        // Most are done at once.
        let mut context = Context::from_waker(Waker::noop());
        match work.as_mut().poll(&mut context) {
            Poll::Ready(answer) => self.answer(id, answer),
            Poll::Pending => {
                let host = self.host.clone();
                let owed = Owed { outbox: self.outbox.clone(), id };
                self.host.registry.go_on(number, async move {
                    let answer = work.await;
                    owed.pay(&host, answer);
                });
            }
        }
    }

    fn wait(&mut self, id: u64, call: wire::Call, notify_only: bool) {
        if self.leaving {
            return self.refuse(id, Code::Unavailable, "the node is shutting down");
        }
        let clock = self.host.clock;
        let admitted = match Admitted::new(&call) {
            Ok(admitted) => admitted,
            Err(reason) => return self.refuse(id, Code::Invalid, reason),
        };
        let host = self.host.clone();
        let keys = admitted.key_bytes().filter(|_| !notify_only);
        // Held until the call is in the queues, so that it is ended if its slot leaves.
        let owned = match host.membership.owns(keys) {
            Ok(owned) => owned,
            Err(moved) => return self.answer(id, Answer::Refusal(moved)),
        };
        let mut blocked = match notify_only {
            true => self.host.node.block_for_wakeup(&admitted.call(clock()), admitted.protocol),
            false => self.host.node.block(&admitted.call(clock()), admitted.protocol),
        };
        drop(owned);
        self.waiting.lock().waiters.insert(id, blocked.waiter().clone());
        let waiting = self.waiting.clone();
        self.later(id, move |host| async move {
            let reply = match notify_only {
                true => blocked.received(clock).await,
                false => blocked.reply(clock).await,
            };
            waiting.lock().waiters.remove(&id);
            match reply {
                Some(reply) if reply.is_empty() && !notify_only => Answer::Refusal(host.membership.moved()),
                Some(reply) => Answer::Reply(reply.into()),
                None => {
                    Answer::Refusal(refusal(Code::Unavailable, "the task that executed this call failed"))
                }
            }
        });
    }

    fn watch(&mut self, id: u64, watch: wire::Watch) {
        let host = self.host.clone();
        let keys = watch.keys.iter().map(|lock| &*lock.key);
        // Held until all are watched, so that they hear of a slot that leaves.
        let _owned = match host.membership.owns(keys) {
            Ok(owned) => owned,
            Err(moved) => return self.answer(id, Answer::Refusal(moved)),
        };
        let mut watched = Vec::with_capacity(watch.keys.len());
        for lock in watch.keys {
            let (db, changed) = (lock.db as usize % store_engine::DATABASES, Arc::default());
            self.host.node.watch(db, &lock.key, (self.host.clock)(), &changed);
            watched.push(Watched { db, key: lock.key.to_vec(), changed });
        }
        self.watches.lock().entry(watch.watch).or_default().extend(watched);
        self.answer(id, Answer::Done(wire::Done {}));
    }

    fn unwatch(&self, number: u64) {
        if let Some(watched) = self.watches.lock().remove(&number) {
            unwatch_all(&self.host, watched);
        }
    }
}

fn unwatch_all(host: &Host, watched: Vec<Watched>) {
    for Watched { db, key, changed } in watched {
        if !changed.load(Ordering::Relaxed) {
            host.node.unwatch(db, &key, &changed);
        }
    }
}

/// The answer to a step that waits. It is sent even if the transaction is ended meanwhile.
struct Owed {
    outbox: Arc<Outbox>,
    /// The request's number; 0 once it is answered.
    id: u64,
}

impl Owed {
    fn pay(mut self, host: &Arc<Host>, answer: Answer) {
        settle(host, &self.outbox, vec![Response { id: self.id, body: Some(answer) }]);
        self.id = 0;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.id > 0 {
            let ended = refusal(Code::Invalid, "the transaction was aborted");
            self.outbox.push([Response { id: self.id, body: Some(Answer::Refusal(ended)) }]);
        }
    }
}

/// Runs a call of a lane that none waits in, if nothing is in its way.
fn execute_now(
    host: &Host,
    waiting: &Mutex<PendingCalls>,
    origin: Origin,
    request: &Queued,
) -> Option<Answer> {
    if waiting.lock().refused.would_be_overtaken(origin.client, request.since) {
        return Some(Answer::Refusal(refusal(
            Code::OutOfOrder,
            "an earlier request of the same sequence was \
            refused",
        )));
    }
    let execute = || origin.act(|| step::execute_now(host, &request.call));
    let answer = aside(request.call.args.len(), execute)?;
    if is_moved(&answer) {
        waiting.lock().refused.add(origin.client, request.id);
    }
    Some(answer)
}

/// Whether a call is refused that has to be sent to another node.
fn is_moved(answer: &Answer) -> bool {
    matches!(answer, Answer::Refusal(refusal) if refusal.code() == Code::Moved)
}

/// Runs the first call of a lane when what it waits for is free, then those behind it.
fn lead(
    host: Arc<Host>,
    waiting: Arc<Mutex<PendingCalls>>,
    outbox: Arc<Outbox>,
    origin: Origin,
    request: Queued,
) {
    let Queued { id, call, .. } = request;
    let shared = waiting.clone();
    let scope = host.sink.as_ref().and_then(|_| outbox.scope(id));
    // Held until its handle is known, so that it does not end before.
    let mut registered = shared.lock();
    let task = tokio::spawn(async move {
        // What it changes is sent before its answer.
        let execute = drive_aside(call.args.len(), step::execute(&host, &call, &outbox));
        let answer = match scope {
            Some(scope) => origin.drive(scope.drive(execute)).await,
            None => origin.drive(execute).await,
        };
        let leads = {
            let mut waiting = waiting.lock();
            waiting.handles.remove(&id);
            if is_moved(&answer) {
                waiting.refused.add(origin.client, id);
            }
            waiting.heads.remove(&id).is_some()
        };
        settle(&host, &outbox, vec![Response { id, body: Some(answer) }]);
        // Unless it was given up in this moment.
        if leads {
            follow(host, waiting, outbox, origin);
        }
    });
    // A lane is a client.
    registered.heads.insert(id, origin.client);
    registered.handles.insert(id, task.abort_handle());
}

/// Runs the calls of a lane that came behind one that had to wait, up to the next one that has to.
fn follow(host: Arc<Host>, waiting: Arc<Mutex<PendingCalls>>, outbox: Arc<Outbox>, origin: Origin) {
    loop {
        let next = {
            let mut waiting = waiting.lock();
            let next = waiting.sequences.get_mut(&origin.client).and_then(VecDeque::pop_front);
            if next.is_none() {
                waiting.sequences.remove(&origin.client);
            }
            next
        };
        let Some(next) = next else { return };
        if outbox.is_closed() {
            return;
        }
        match execute_now(&host, &waiting, origin, &next) {
            Some(answer) => settle(&host, &outbox, vec![Response { id: next.id, body: Some(answer) }]),
            None => return lead(host, waiting, outbox, origin, next),
        }
    }
}

/// Sends answers when the changes behind them are kept as the node's durability promises.
fn settle(host: &Arc<Host>, outbox: &Arc<Outbox>, mut responses: Vec<Response>) {
    if host.node.journal().is_none() {
        return outbox.push(responses);
    }
    let mut context = Context::from_waker(Waker::noop());
    let (host, outbox) = (host.clone(), outbox.clone());
    let scopes = host.sink.as_ref().map_or_else(Vec::new, |_| outbox.scopes(&responses));
    let mut settling = Box::pin(async move {
        let waits: Vec<Part> = scopes.iter().map(Scope::part).collect();
        let settled = host.node.settle().await;
        for part in waits {
            let span = part.span("journal", SpanKind::Internal);
            part.end(span);
        }
        if host.node.is_deposed() {
            // Another node may say something else.
            return outbox.end();
        }
        if let Err(reason) = settled {
            for response in &mut responses {
                let mut out = Reply::new(Protocol::Resp2);
                out.error(&crate::journal::misconf(&reason));
                response.body = Some(match response.body {
                    Some(Answer::Reply(_)) => Answer::Reply(out.buf.into()),
                    _ => Answer::Refusal(refusal(Code::Unavailable, &reason.cause)),
                });
            }
        }
        outbox.push(responses);
    });
    if settling.as_mut().poll(&mut context).is_pending() {
        tokio::spawn(settling);
    }
}
