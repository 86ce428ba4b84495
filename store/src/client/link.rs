//! One stream to a node: requests go out in batches, answers come back by their number. When it breaks, everything
//! that was asked is answered with that, and the stream is opened again.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use proto::store::v1::request::Body as Ask;
use proto::store::v1::response::Body as Answer;
use proto::store::v1::store_client::StoreClient;
use proto::store::v1::{Cancel, Groups, Heartbeat, Request, Requests, Response, Responses, Status};
use tls::Tls;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use tokio_stream::Stream;

use super::clock::ClockOffset;
use super::directory::{Directory, GROUP};
use super::large_calls::{LargeCalls, bytes_of};
use super::link_error::LinkError;
use super::lost::Lost;
use super::request::TracedRequest;
use super::silence::{Direction, HEARTBEAT, MISSED, Signs};
use super::way::{CONNECT, Way, connect_counted, groups_of, innermost};
use crate::journal::unix_ms;
use crate::latency::Times;
use crate::parts::{MESSAGE_BYTES, PART_BYTES, Parts};
use crate::spans::Part;

/// A batch is closed when it has so many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Requests may wait for the network with so many bytes; then they are refused.
const QUEUE_BYTES: usize = 256 << 20;
/// The same for calls that are sent in parts.
const LARGE_QUEUE_BYTES: usize = 1 << 30;
/// How long what is asked of a group waits for its next leader,
const ELECTION: Duration = Duration::from_secs(5);
/// and the pause between two attempts to find that one.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Pauses between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

// Each command is one of each, moved from hand to hand: see `BOXED` in proto/build.rs.
const _: () = assert!(size_of::<Request>() <= 64 && size_of::<Response>() <= 64);

/// What a new stream begins with, and what its first answer must be.
pub trait LinkHandshake: Send + Sync + 'static {
    /// The first request.
    fn hello(&self) -> Ask;
    /// Whether the first answer is a good one; else why not.
    fn welcome(&self, answer: Answer) -> Result<(), LinkError>;
    /// The process has groups of replicas: which, and who leads them.
    fn redirected(&self, _: &Groups) {}
    /// What the node says unasked, and what it tells of itself: of no interest to who has no clients.
    fn heard(&self, _: Answer) {}
    /// Digest of the map as it is known here: the node sends its own map if that is another one. 0 if there is none.
    fn map_digest(&self) -> u64;
    /// Whether a client here keeps copies of values that are there.
    fn invalidations_enabled(&self) -> bool {
        false
    }
    /// A stream that was up is broken: what the node would have said is missed.
    fn lost(&self) {}
}

/// A stream to one node, for as long as this lives.
pub struct Link {
    address: String,
    shared: Arc<Shared>,
    driver: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<LinkState>,
    /// Of the status: asked for by all who write.
    full: AtomicBool,
    traffic: Traffic,
}

/// What became of requests, since the link was opened.
#[derive(Default)]
pub struct Traffic {
    /// How long answers took.
    pub times: Times,
    /// Requests that were sent.
    pub requests: AtomicU64,
    /// Requests that were refused, or lost with the stream.
    pub errors: AtomicU64,
}

/// Somebody who waits for an answer, and since when.
struct Awaited {
    answer: oneshot::Sender<Result<Answer, Lost>>,
    since: Instant,
    /// It is about something that the node forgets with the stream.
    of_stream: bool,
    /// If it is traced.
    span: Option<Box<TracedRequest>>,
}

#[derive(Default)]
struct LinkState {
    /// Number of the newest stream, of which there may be none yet.
    stream: u64,
    /// Number of the newest attempt to open one: what an earlier one has not sent is not its own any more.
    attempt: u64,
    up: bool,
    /// How often it was.
    rises: u64,
    /// It was up, or could not be. Before that requests wait for the first stream.
    tried: bool,
    /// Why it is not.
    reason: LinkError,
    /// The node is about to end: it answers what it was asked, and what belongs to what it has begun.
    leaving: bool,
    next_id: u64,
    queue: Vec<Request>,
    queue_bytes: usize,
    /// Large calls, to a node that knows parts of them.
    large: LargeCalls,
    knows_parts: bool,
    /// The link leads to a group that has no leader yet: what is asked waits here for the next stream.
    holds: bool,
    held: Vec<Request>,
    held_bytes: usize,
    /// When the first of those in the queue was asked, if its answer is awaited.
    batch_since: Option<Instant>,
    waiting: HashMap<u64, Awaited, RandomState>,
    writer: Option<Waker>,
    /// Wakes when it is up, or cannot be.
    settled: Vec<oneshot::Sender<()>>,
    status: Status,
    /// The newest heartbeat: its number, and when it was sent, by both clocks.
    heartbeat: Option<(u64, Instant, u64)>,
    clock: Option<ClockOffset>,
}

/// An answer that will come.
pub struct Pending {
    id: u64,
    answer: Result<oneshot::Receiver<Result<Answer, Lost>>, Lost>,
    gives_up: Option<GivesUp>,
}

/// Dropped before the answer has come, it cancels the request.
struct GivesUp {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for GivesUp {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.waiting.remove(&self.id).is_some() {
            if state.up {
                let behind = state.large.cancel(self.id);
                state.send_later(behind);
                state.push(Ask::Cancel(Cancel { id: self.id }));
                state.wake();
            } else {
                state.held.retain(|request| request.id != self.id);
            }
        }
    }
}

impl Pending {
    /// The request's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The same; a caller that drops it cancels the request.
    pub(super) fn or_nothing(mut self, link: &Link) -> Pending {
        let gives_up = GivesUp { id: self.id, shared: link.shared.clone() };
        self.gives_up = self.answer.is_ok().then_some(gives_up);
        self
    }

    /// The answer.
    pub async fn answer(self) -> Result<Answer, Lost> {
        let lost = || Lost { maybe_done: true, reason: LinkError::Closed };
        self.answer?.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Link {
    /// Opens a stream to `address`, `HOST:PORT`, over TLS if that is given, and keeps it open. Needs a runtime.
    pub fn open(address: String, tls: Option<Arc<Tls>>, handshake: Arc<dyn LinkHandshake>) -> Link {
        Link::to(address, None, tls, handshake)
    }

    /// The same to the node of this name: the leader of a group of `directory`, if there is one of this name, otherwise the
    /// node at this address.
    pub fn to(
        name: String,
        directory: Option<Arc<Directory>>,
        tls: Option<Arc<Tls>>,
        handshake: Arc<dyn LinkHandshake>,
    ) -> Link {
        let shared = Arc::<Shared>::default();
        let way = Way { name: name.clone(), directory, tls };
        shared.state.lock().holds = way.groups().is_some();
        let driver = tokio::spawn(drive(way, shared.clone(), handshake));
        Link { address: name, shared, driver }
    }

    /// Where the node is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether requests can be sent; else why not.
    pub fn is_up(&self) -> Result<(), LinkError> {
        let state = self.shared.state.lock();
        if state.up && !state.leaving { Ok(()) } else { Err(state.reason.clone()) }
    }

    /// Waits until requests can be sent, or until it is known that they cannot.
    pub async fn connected(&self) -> Result<(), LinkError> {
        let settled = {
            let mut state = self.shared.state.lock();
            let (settled, hears) = oneshot::channel();
            if !state.tried {
                state.settled.push(settled);
            }
            hears
        };
        // Dropped without a word by those that are settled already.
        let _ = settled.await;
        self.is_up()
    }

    /// Number of the present stream: what a node remembers of one is lost with it.
    pub fn stream(&self) -> u64 {
        self.shared.state.lock().stream
    }

    /// Whether its memory was full, by its last status.
    pub fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Relaxed)
    }

    /// The last status of the node.
    pub fn status(&self) -> Status {
        self.shared.state.lock().status.clone()
    }

    /// How far the clock of the node is from the clock here, once that is known.
    pub fn clock(&self) -> Option<ClockOffset> {
        self.shared.state.lock().clock
    }

    /// What became of requests.
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Sends a request.
    pub fn ask(&self, body: Ask) -> Pending {
        let may = |state: &LinkState| match state.leaving && !state.holds {
            true => Err(state.reason.clone()),
            false => Ok(()),
        };
        self.ask_if(body, false, may)
    }

    /// Sends a request about something that the node forgets with this stream: not on another one.
    pub fn ask_on(&self, stream: u64, body: Ask) -> Pending {
        // While there is no leader it would be sent after what takes it back, which is not sent.
        self.ask_if(body, true, |state| match state.stream == stream && (state.up || !state.holds) {
            true => Ok(()),
            false => Err(LinkError::OtherStream),
        })
    }

    fn ask_if(
        &self,
        body: Ask,
        of_stream: bool,
        may: impl FnOnce(&LinkState) -> Result<(), LinkError>,
    ) -> Pending {
        let mut state = self.shared.state.lock();
        self.shared.traffic.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(reason) = state.may_send(&body).and_then(|()| may(&state)) {
            self.shared.traffic.errors.fetch_add(1, Ordering::Relaxed);
            return Pending { id: 0, answer: Err(Lost { maybe_done: false, reason }), gives_up: None };
        }
        let span = Part::begin().map(|part| Box::new(TracedRequest::new(part, &self.address, &body)));
        // What belongs to a stream that is about to end is still answered there.
        let push = if of_stream { LinkState::push_now } else { LinkState::push };
        if let Some(span) = &span {
            push(&mut state, Ask::Trace(span.trace()));
        }
        let id = push(&mut state, body);
        let (answer, hears) = oneshot::channel();
        // What leaves together was asked at about the same time.
        let since = *state.batch_since.get_or_insert_with(Instant::now);
        state.waiting.insert(id, Awaited { answer, since, of_stream, span });
        state.wake();
        Pending { id, answer: Ok(hears), gives_up: None }
    }

    /// Sends a request whose answer is not awaited. If the stream is broken it is not needed: what it is about is
    /// lost with it. It is sent even if too many wait: it lets things go.
    pub fn send_oneway(&self, body: Ask) {
        let mut state = self.shared.state.lock();
        if state.up {
            state.push(body);
            state.wake();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
        self.shared.fall(&LinkError::Closed, false, true);
    }
}

impl Shared {
    /// The stream is broken: everybody learns of it. With `waits` what is asked from now on waits for the next stream.
    fn fall(&self, reason: &LinkError, waits: bool, was_up: bool) {
        let lost = self.state.lock().fall(reason, waits, was_up);
        self.traffic.errors.fetch_add(lost as u64, Ordering::Relaxed);
    }
}

impl LinkState {
    fn may_send(&self, body: &Ask) -> Result<(), LinkError> {
        let queued = self.queue_bytes + self.held_bytes + self.large.behind_bytes();
        let is_full = queued > QUEUE_BYTES
            || (bytes_of(body) > PART_BYTES && self.large.unsent_bytes() > LARGE_QUEUE_BYTES);
        match self.up || !self.tried || self.holds {
            false => Err(self.reason.clone()),
            true if is_full => Err(LinkError::TooManyRequests),
            true => Ok(()),
        }
    }

    fn push(&mut self, body: Ask) -> u64 {
        if !self.holds {
            return self.push_now(body);
        }
        self.next_id += 1;
        self.held_bytes += bytes_of(&body);
        self.held.push(Request { id: self.next_id, body: Some(body) });
        self.next_id
    }

    /// Adds a request that belongs to the stream itself.
    fn push_now(&mut self, body: Ask) -> u64 {
        self.next_id += 1;
        self.send_later([Request { id: self.next_id, body: Some(body) }]);
        self.next_id
    }

    /// Adds requests to those that wait for the network.
    fn send_later(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            if self.knows_parts && self.large.concern(&request) {
                // A trace is that of the request behind it.
                let trace = self.queue.pop_if(|last| matches!(last.body, Some(Ask::Trace(_))));
                self.large.add(trace, request);
            } else {
                self.queue_bytes += request.body.as_ref().map_or(0, bytes_of);
                self.queue.push(request);
            }
        }
    }

    /// The node has greeted: what waited for it is sent.
    fn rise(&mut self) {
        self.up = true;
        self.rises += 1;
        self.holds = false;
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        self.send_later(held);
        self.settle();
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn settle(&mut self) {
        self.tried = true;
        self.settled.clear();
    }

    /// The node is about to end. Nothing more is begun there.
    fn leave(&mut self, is_group: bool) {
        self.leaving = true;
        // A group has another leader soon.
        self.holds = is_group;
        self.reason = LinkError::ShuttingDown;
        self.wake();
    }

    /// Whether all is answered that a node that is about to end was asked.
    fn has_left(&self) -> bool {
        // The held ones were not asked; a trace has no answer.
        let asked =
            self.waiting.len() - self.held.iter().filter(|held| self.waiting.contains_key(&held.id)).count();
        self.leaving && self.queue.is_empty() && asked == 0
    }

    /// The same; how many waited for answers and get none.
    fn fall(&mut self, reason: &LinkError, waits: bool, was_up: bool) -> usize {
        self.up = false;
        // Ends the requests, which the connection would go on to wait for: the node then knows that the stream is over.
        self.attempt += 1;
        self.leaving = false;
        self.reason = reason.clone();
        (self.heartbeat, self.clock) = (None, None);
        let mut unsent = std::mem::take(&mut self.queue);
        unsent.append(&mut self.large.take_all());
        (self.queue_bytes, self.knows_parts) = (0, false);
        self.batch_since = None;
        self.settle();
        let never_sent: HashSet<u64> = unsent.iter().chain(&self.held).map(|request| request.id).collect();
        if waits {
            self.hold(unsent);
            // What belongs to the stream that was up is not for the next one.
            self.stream += u64::from(was_up);
            self.tried = false;
        } else {
            self.held.clear();
            self.held_bytes = 0;
        }
        self.holds = waits;
        self.wake();
        let held: HashSet<u64> = self.held.iter().map(|request| request.id).collect();
        let lost: Vec<u64> = self.waiting.keys().copied().filter(|id| !held.contains(id)).collect();
        for id in &lost {
            let Some(waiting) = self.waiting.remove(id) else { continue };
            let lost = Err(Lost { maybe_done: !never_sent.contains(id), reason: reason.clone() });
            if let Some(span) = waiting.span {
                span.end(&lost);
            }
            // Whoever does not listen any more needs no answer.
            let _ = waiting.answer.send(lost);
        }
        lost.len()
    }

    /// Keeps requests that were not sent for the next stream, but for those that belong to the present one.
    fn hold(&mut self, unsent: Vec<Request>) {
        let is_free = |request: &Request| {
            self.waiting.get(&request.id).is_some_and(|awaited| !awaited.of_stream)
                && !matches!(request.body, Some(Ask::Handshake(_) | Ask::Heartbeat(_)))
        };
        // They are older than those that are held already.
        let mut held: Vec<Request> = unsent.into_iter().filter(is_free).collect();
        held.append(&mut self.held);
        self.held_bytes = held.iter().filter_map(|request| request.body.as_ref()).map(bytes_of).sum();
        self.held = held;
    }
}

/// The requests of one stream, as tonic wants them.
struct Outgoing {
    shared: Arc<Shared>,
    attempt: u64,
}

impl Stream for Outgoing {
    type Item = Requests;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Requests>> {
        let mut state = self.shared.state.lock();
        if state.attempt != self.attempt {
            return Poll::Ready(None);
        }
        if state.has_left() {
            state.up = false;
            return Poll::Ready(None);
        }
        if state.queue.is_empty() && state.large.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut requests = std::mem::take(&mut state.queue);
        if state.queue_bytes > BATCH_BYTES {
            let mut bytes = 0;
            let fits = |request: &Request| {
                bytes += request.body.as_ref().map_or(0, bytes_of);
                bytes <= BATCH_BYTES
            };
            let count = requests.iter().map(fits).take_while(|fits| *fits).count().max(1);
            state.queue = requests.split_off(count);
        }
        state.queue_bytes =
            state.queue.iter().filter_map(|request| request.body.as_ref()).map(bytes_of).sum();
        if let Some((mut next, behind)) = state.large.next() {
            requests.append(&mut next);
            state.send_later(behind);
        }
        state.batch_since = None;
        Poll::Ready(Some(Requests { requests }))
    }
}

async fn drive(way: Way, shared: Arc<Shared>, handshake: Arc<dyn LinkHandshake>) {
    let mut pause = PAUSES.0;
    let (mut attempt, mut down_since) = (0, Instant::now());
    loop {
        let opened = Instant::now();
        let rises = shared.state.lock().rises;
        let reason = run(&way, attempt, &shared, &*handshake).await;
        let was_up = shared.state.lock().rises > rises;
        if was_up {
            down_since = Instant::now();
        }
        // A group has another leader soon: what is asked meanwhile waits for that one.
        let waits = way.groups().is_some() && down_since.elapsed() < ELECTION;
        shared.fall(&reason, waits, was_up);
        if was_up {
            handshake.lost();
        }
        if opened.elapsed() > PAUSES.1 {
            pause = PAUSES.0;
        }
        match way.groups() {
            Some(directory) => {
                attempt = if was_up { 0 } else { attempt + 1 };
                if !matches!(reason, LinkError::NotLeader) {
                    directory.forget_leader(&way.name);
                }
                sleep(LOOK_AGAIN).await;
            }
            None => {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// One stream from its beginning to its end. Why it ended.
async fn run(way: &Way, attempt: usize, shared: &Arc<Shared>, handshake: &dyn LinkHandshake) -> LinkError {
    let signs = Signs::default();
    let channel = match connect_counted(&way.address(attempt), way.tls.as_ref(), &signs).await {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    let mut client = StoreClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let opened = {
        let mut state = shared.state.lock();
        state.attempt += 1;
        state.stream += u64::from(state.tried);
        // Before those that wait for this stream.
        let waiting = std::mem::take(&mut state.queue);
        state.push_now(handshake.hello());
        state.queue.extend(waiting);
        state.attempt
    };
    let mut request = tonic::Request::new(Outgoing { shared: shared.clone(), attempt: opened });
    if way.directory.as_ref().is_some_and(|directory| directory.is_known())
        && let Ok(name) = way.name.parse()
    {
        request.metadata_mut().insert(GROUP, name);
    }
    let answers = timeout(CONNECT, client.link(request)).await;
    let mut answers = match answers {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => {
            if let Some(groups) = groups_of(&status) {
                if let Some(directory) = &way.directory {
                    // Those of another cluster are not believed.
                    let _ = directory.learn(&groups);
                }
                handshake.redirected(&groups);
                return LinkError::NotLeader;
            }
            let why = std::error::Error::source(&status).map(innermost);
            return LinkError::StreamRefused(why.unwrap_or_else(|| status.message().to_owned()));
        }
        Err(_) => return LinkError::NoAnswer,
    };
    let (mut greeted, mut parts) = (false, Parts::default());
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut missed, mut seen) = (0, 0);
    loop {
        let responses = tokio::select! {
            biased;
            next = answers.message() => match next {
                Ok(Some(responses)) => responses,
                Ok(None) => return LinkError::ClosedByNode,
                Err(status) => return LinkError::StreamFailed(status.message().to_owned()),
            },
            _ = heartbeat.tick() => {
                let now = signs.count(Direction::In);
                missed = if now == seen { missed + 1 } else { 0 };
                if missed > MISSED {
                    return LinkError::Silent;
                }
                seen = now;
                let (map_digest, invalidations) = (handshake.map_digest(), handshake.invalidations_enabled());
                let mut state = shared.state.lock();
                let id = state.push_now(Ask::Heartbeat(Heartbeat { map_digest, invalidations }));
                state.heartbeat = Some((id, Instant::now(), unix_ms()));
                state.wake();
                continue;
            }
        };
        if let Err(reason) =
            take(shared, handshake, responses, way.groups().is_some(), &mut greeted, &mut parts)
        {
            return reason;
        }
    }
}

/// Gives answers to those who wait for them.
fn take(
    shared: &Shared,
    handshake: &dyn LinkHandshake,
    responses: Responses,
    is_group: bool,
    greeted: &mut bool,
    parts: &mut Parts,
) -> Result<(), LinkError> {
    let now = Instant::now();
    // Held from one answer to the next, and not while other listeners are called.
    let mut held = None;
    for response in responses.responses {
        if matches!(response.body, Some(Answer::Part(_))) {
            held = None;
        }
        let id = response.id;
        let answer = parts.answer(response).map_err(|why| LinkError::StreamFailed(why.to_owned()))?;
        let Some(answer) = answer else { continue };
        if *greeted && let Answer::Status(status) = &answer {
            held = None;
            if status.map.is_some() {
                handshake.heard(answer.clone());
            }
            shared.full.store(status.memory_full, Ordering::Relaxed);
            let mut state = shared.state.lock();
            state.status = Status { map: None, ..(**status).clone() };
            if let Some((_, sent, sent_ms)) = state.heartbeat.filter(|(number, ..)| *number == id) {
                let took = now.saturating_duration_since(sent);
                state.clock = Some(ClockOffset::measured(sent_ms, took, status.now_ms));
            }
        }
        if *greeted && id != 0 && !matches!(answer, Answer::Draining(_)) {
            let state = held.get_or_insert_with(|| shared.state.lock());
            if let Some(waiting) = state.waiting.remove(&id) {
                shared.traffic.times.add(now.saturating_duration_since(waiting.since));
                if matches!(answer, Answer::Refusal(_)) {
                    shared.traffic.errors.fetch_add(1, Ordering::Relaxed);
                }
                let answer = Ok(answer);
                if let Some(span) = waiting.span {
                    span.end(&answer);
                }
                let _ = waiting.answer.send(answer);
            }
            if state.has_left() {
                state.wake();
            }
            continue;
        }
        held = None;
        if !*greeted {
            if let Answer::HandshakeReply(welcome) = &answer {
                let mut state = shared.state.lock();
                state.status = welcome.status.clone().unwrap_or_default();
                state.knows_parts = welcome.parts;
                shared.full.store(state.status.memory_full, Ordering::Relaxed);
            }
            handshake.welcome(answer)?;
            *greeted = true;
            shared.state.lock().rise();
            continue;
        }
        if matches!(answer, Answer::Draining(_)) {
            shared.state.lock().leave(is_group);
        } else {
            handshake.heard(answer);
        }
    }
    Ok(())
}
