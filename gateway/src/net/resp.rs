//! RESP connections: read, parse, dispatch, write.
//!
//! A connection is served by one thread at a time, and may move to another between two requests. It holds no buffer
//! while it is idle: buffers come from a pool of the thread and go back when a batch of requests is answered. Replies
//! are written before more is read, so a client that does not read its replies stops being served instead of filling
//! memory.

mod backup;
mod pipeline;
mod pushes;
mod wire;

use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use resp::{Limits, Parser, Progress, Reader, ReplyLimits, Step, Value};
use store_engine::work::LONG_CALL_STEPS;
use store_engine::{Args, CommandError, Protocol, Reply};
use tls::{Detached, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use self::pipeline::Ahead;
use self::wire::{KEPT_BYTES, READ_BYTES, TIMED_OUT, give_buffer, hung_up, take_buffer};
use crate::commands::dispatch;
use crate::commands::pubsub::{confirms, leave};
use crate::commands::watch::unwatch;
use crate::config::{ClientGone, Config};
use crate::net::Ready;
use crate::net::acceptor::time_limit;
use crate::process::io::ThreadSlot;
use crate::server::Server;
use crate::session::{ClientInfo, ConnectionMemory, DataAccess, Replies, Session};
use crate::telemetry::counters::{Counters, Listener, unix_ms};

/// Reply bytes after which a batch of pipelined requests is interrupted to write them.
const FLUSH_BYTES: usize = 256 * 1024;
/// The same of a client that has to say who it is first.
const UNAUTHENTICATED_FLUSH_BYTES: usize = 16 * 1024;
/// Reply bytes that are written before others have their turn.
const PIECE_BYTES: usize = 1 << 20;
/// Requests in the input from which on the connection leaves the I/O thread until they are answered: to parse, check, copy
/// and free 20,000 arguments takes a millisecond or two.
const LARGE_BYTES: usize = 256 * 1024;
/// Serves one connection to its end, beginning at `slot`.
pub fn serve(server: &Arc<Server>, wire: Detached, client: Arc<ClientInfo>, ready: &Ready, slot: ThreadSlot) {
    server.sessions.clients.lock().insert(client.id, client.clone());
    server.telemetry.counters.enter(Listener::Resp);
    let connection = Connection {
        session: Session { hears: true, ..Session::new(client.clone(), &server.acl) },
        parser: Parser::new(limits(&server.config)),
        input: Vec::new(),
        ahead: Ahead::default(),
        entry: ClientGuard { server: server.clone(), id: client.id },
    };
    connection.live(wire, ready.clone(), slot);
}

/// Takes the connection out of the list of clients, whatever ends it.
struct ClientGuard {
    server: Arc<Server>,
    id: u64,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.server.sessions.clients.lock().remove(&self.id);
        self.server.telemetry.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.server.telemetry.counters.leave(Listener::Resp);
    }
}

fn limits(config: &Config) -> Limits {
    let clamped = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Limits {
        max_bulk_bytes: clamped(config.proto_max_bulk_len.get()),
        max_request_bytes: clamped(config.client_query_buffer_limit.get()),
        ..Limits::default()
    }
}

struct Connection {
    session: Session,
    parser: Parser,
    /// Bytes of a request that is not complete yet; without capacity while there are none.
    input: Vec<u8>,
    ahead: Ahead,
    entry: ClientGuard,
}

/// Why a connection left its thread.
enum Left {
    /// It is closed.
    Closed,
    /// It goes on elsewhere.
    For(ThreadSlot),
}

impl Connection {
    /// Lives on the thread of `slot` until it ends or moves on.
    fn live(mut self, wire: Detached, ready: Ready, slot: ThreadSlot) {
        let runtime = slot.runtime().clone();
        runtime.spawn(async move {
            let Ok(mut wire) = wire.attach() else { return };
            // Any other result is not needed: the client is gone or has the error.
            let was_slow = match self.run(&mut wire, ready.clone(), &slot).await {
                Ok(Left::For(better)) => match wire.detach() {
                    Ok(wire) => return self.live(wire, ready, better),
                    Err(_) => false,
                },
                Ok(Left::Closed) => false,
                // Not the system's own, which it gives up by.
                Err(error) => error.kind() == TIMED_OUT && error.raw_os_error().is_none(),
            };
            let (server, session) = (&self.entry.server, &mut self.session);
            unwatch(&server.store, session);
            leave(server, session);
            if was_slow || session.client.pushes.was_cut() {
                Counters::add(&server.telemetry.counters.slow_clients_cut, 1);
            }
        });
    }

    async fn run(&mut self, wire: &mut Wire, mut ready: Ready, slot: &ThreadSlot) -> io::Result<Left> {
        let client = self.session.client.clone();
        client.held.set_socket(wire.tcp().as_raw_fd());
        let mut killed = pin!(client.wake.notified());
        let mut woken = pin!(client.pushes.woken());
        let mut is_woken = false;
        let mut stopping = pin!(async {
            let _ = ready.wait_for(|ready| !ready).await;
            client.maintenance.over().await;
        });
        if wire.is_sealed() {
            tokio::select! {
                biased;
                agreed = timeout(time_limit(&self.entry.server.config), wire.agreed()) => agreed??,
                () = &mut killed => return wire.shutdown().await.map(|()| Left::Closed),
                () = &mut stopping => return wire.shutdown().await.map(|()| Left::Closed),
            }
        }
        // A connection may have moved here with a request that it has read elsewhere.
        let mut has_request = !self.input.is_empty();
        loop {
            if !std::mem::take(&mut has_request) {
                if self.session.listens() {
                    tokio::select! {
                        biased;
                        come = self.push_until_readable(wire) => come?,
                        () = &mut killed => return wire.shutdown().await.map(|()| Left::Closed),
                        () = &mut stopping => return wire.shutdown().await.map(|()| Left::Closed),
                    }
                }
                let read = tokio::select! {
                    biased;
                    read = self.read(wire) => read?,
                    // From now on changes of other clients are to be reported here.
                    () = &mut woken, if !is_woken => {
                        is_woken = true;
                        continue;
                    }
                    () = &mut killed => return wire.shutdown().await.map(|()| Left::Closed),
                    () = &mut stopping => return wire.shutdown().await.map(|()| Left::Closed),
                };
                if read == 0 {
                    return Ok(Left::Closed);
                }
                Counters::add(&self.entry.server.telemetry.counters.bytes_in, read as u64);
            }
            let is_large = self.input.len() >= LARGE_BYTES;
            if is_large && let Some(slot) = slot.for_large() {
                return Ok(Left::For(slot));
            }
            tokio::select! {
                biased;
                answered = self.answer(wire, slot.is_shared()) => answered?,
                // Whatever it is waiting for: its script, a locked key, or its client to read.
                () = &mut killed => return wire.shutdown().await.map(|()| Left::Closed),
            }
            if self.session.closing || client.killed.load(Ordering::Relaxed) {
                return wire.shutdown().await.map(|()| Left::Closed);
            }
            if let Some(better) = slot.better(is_large || !self.input.is_empty()) {
                return Ok(Left::For(better));
            }
        }
    }

    /// Gives the client what comes for it, until it asks for something or has gone.
    async fn push_until_readable(&self, wire: &Wire) -> io::Result<()> {
        let (server, client) = (&self.entry.server, &self.session.client);
        tokio::select! {
            biased;
            pushed = pushes::deliver(server, client, wire) => pushed?,
            readable = wire.readable() => readable?,
        }
        pushes::finish(server, client, wire).await
    }

    /// Reads something. The buffer for it is taken when there is something to read.
    async fn read(&mut self, wire: &mut Wire) -> io::Result<usize> {
        let Connection { input, entry: ClientGuard { server, .. }, .. } = self;
        let read = poll_fn(|context| {
            if input.capacity() == 0 {
                *input = take_buffer();
            } else if input.capacity() - input.len() < READ_BYTES / 2 {
                // Grows with what has arrived, never by what a client announces.
                input.reserve(READ_BYTES.max(input.len()));
            }
            let step = pin!(wire.read_buf(input)).poll(context);
            if step.is_pending() && input.is_empty() {
                give_buffer(std::mem::take(input));
            }
            step
        });
        match server.config.timeout.get() {
            0 => read.await,
            seconds => timeout(Duration::from_secs(seconds), read).await.unwrap_or(Ok(0)),
        }
    }

    /// Answers every complete request in the input.
    async fn answer(&mut self, wire: &mut Wire, crowded: bool) -> io::Result<()> {
        let Connection { session, parser, input, ahead, entry: ClientGuard { server, .. } } = self;
        let mut out = Reply::append_to(take_buffer(), session.protocol);
        let (mut at, mut answered, mut took_long) = (0, 0, false);
        let now_ms = unix_ms();
        session.client.active_ms.store(now_ms, Ordering::Relaxed);
        session.clock = None;
        session.client.held.set_input(input.len(), input.capacity());
        while !session.closing {
            let is_unauthenticated = session.needs_password(&server.acl);
            parser.set_authenticated(!is_unauthenticated);
            match parser.next(&input[at..]) {
                Ok(Step::Request(request)) => {
                    let args = request.slices(&input[at..]);
                    let args = Args::new(&args);
                    answered += 1;
                    if args.get(0).is_some_and(is_http) {
                        warn!(
                            "closed the connection from {}: it sent POST or Host: as a command, which may be a \
                             cross-protocol attack by a web page",
                            session.client.addr
                        );
                        session.closing = true;
                        break;
                    }
                    let mut start = out.buf.len();
                    let waiting = dispatch::begin(server, session, args, now_ms, &mut out);
                    let waiting = match session.replies {
                        Replies::All => waiting.and_then(|left| ahead.send(server, session, left, at, &out)),
                        _ => waiting,
                    };
                    if let Some(waiting) = waiting {
                        if !ahead.is_empty() {
                            // What was sent is done before what has to wait here.
                            Box::pin(ahead.receive(server, session, wire, input, &mut out)).await?;
                        }
                        took_long = true;
                        let ends_with_client = server.config.script_client_gone.get() == ClientGone::RollBack
                            || !waiting.outlives_client();
                        let (data_access, own) = (session.data_access, session.client.clone());
                        // Of a value that is on its way the client hears behind it that it has changed.
                        let hears = session.listens() && (session.tracking.is_none() || waiting.blocks());
                        let listener = hears.then(|| session.client.clone());
                        let mut late = Reply::append_to(take_buffer(), out.protocol);
                        {
                            let mut finish = pin!(dispatch::finish(server, session, waiting, &mut late));
                            // Most answer at once. A request that waits must not hold back earlier replies.
                            let at_once = poll_fn(|context| Poll::Ready(finish.as_mut().poll(context))).await;
                            let mut is_done = at_once.is_ready();
                            if !is_done {
                                let written = write(server, &own.held, wire, data_access, &mut out.buf);
                                let (done, written) = beside(finish.as_mut(), written).await;
                                is_done = done;
                                if written.is_err() && !is_done && !ends_with_client {
                                    finish.as_mut().await;
                                }
                                written?;
                                // Many may wait for long, each with its input and the buffer of its reply only.
                                give_buffer(std::mem::take(&mut out.buf));
                                own.held.set_output(0, READ_BYTES);
                            }
                            if !is_done {
                                let hears = listener.filter(|_| ahead.is_empty());
                                let pushed = async {
                                    match &hears {
                                        Some(client) => pushes::deliver(server, client, wire).await,
                                        None => pending().await,
                                    }
                                };
                                tokio::select! {
                                    biased;
                                    () = finish => {}
                                    // A message does not wait for a reply.
                                    pushed = pushed => pushed?,
                                    // Dropping the request ends a script and takes back what it did.
                                    () = hung_up(wire), if ends_with_client => {
                                        return Err(io::ErrorKind::ConnectionAborted.into());
                                    }
                                }
                            }
                        }
                        if session.listens() {
                            pushes::finish(server, &session.client, wire).await?;
                            session.clock = None;
                        }
                        start = out.buf.len();
                        append(&mut out.buf, late.buf);
                        out.protocol = late.protocol;
                    }
                    let unwanted = session.replies != Replies::All && !session.replies.take();
                    if unwanted && !confirms(args, &out.buf[start..]) {
                        out.buf.truncate(start);
                    }
                    if let Some(file) = session.replica.as_mut().and_then(|replica| replica.file.take()) {
                        write_replies(server, session, wire, &mut out.buf).await?;
                        Box::pin(backup::send(server, &session.client, wire, file)).await?;
                        session.clock = None;
                    }
                    at += request.consumed;
                    if request.consumed >= LARGE_BYTES {
                        Box::pin(server.store.wait_for_room(request.consumed)).await;
                    }
                }
                Ok(Step::Incomplete { consumed, .. }) => {
                    at += consumed;
                    break;
                }
                Err(error) => {
                    error.write_to(&mut out.buf);
                    session.closing = true;
                }
            }
            if out.steps > LONG_CALL_STEPS {
                // Others have their turn, however many requests there are in the input.
                out.steps = 0;
                tokio::task::yield_now().await;
            }
            if ahead.is_full() {
                Box::pin(ahead.receive(server, session, wire, input, &mut out)).await?;
            }
            let most = if is_unauthenticated { UNAUTHENTICATED_FLUSH_BYTES } else { FLUSH_BYTES };
            // One call may change more than all that is read at once: the disk is waited for between any two.
            if (out.buf.len() >= most || server.store.is_far_ahead_of_disk()) && ahead.is_empty() {
                write_replies(server, session, wire, &mut out.buf).await?;
                session.clock = None;
            }
        }
        if !ahead.is_empty() {
            Box::pin(ahead.receive(server, session, wire, input, &mut out)).await?;
        }
        if at == input.len() {
            give_buffer(std::mem::take(input));
        } else {
            input.drain(..at);
        }
        session.client.held.set_input(input.len(), input.capacity());
        Counters::add(&server.telemetry.counters.commands, answered);
        // A client that wants no replies waits for the disk as others do, if that is far behind.
        if !out.buf.is_empty() || session.data_access == DataAccess::Written {
            if crowded && (answered > 1 || took_long) {
                // Other connections compute before any reply is written: a client of many connections is then woken once
                // and finds many replies. Scripts 16 deep on 50 connections take 0.8 of the CPU time, and so do
                // those that call INCR a hundred times.
                tokio::task::yield_now().await;
            }
            write_replies(server, session, wire, &mut out.buf).await?;
        }
        give_buffer(out.buf);
        Ok(())
    }
}

/// Drives a request while the replies before it are written; returns whether the request is done, and what became of the
/// replies. The request may hold locks: they must not wait until the client reads, and the disk that the replies wait for
/// may itself wait for these locks.
async fn beside<T>(
    mut request: Pin<&mut impl Future<Output = ()>>,
    replies: impl Future<Output = T>,
) -> (bool, T) {
    let mut replies = pin!(replies);
    let mut is_done = false;
    let written = poll_fn(|context| {
        is_done = is_done || request.as_mut().poll(context).is_ready();
        replies.as_mut().poll(context)
    })
    .await;
    (is_done, written)
}

/// Whether a request begins as one of HTTP does, as Redis looks for them: with the first word of its first line, or of the
/// header that follows where a client ignores errors.
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// Adds `late` to `out`, by the cheaper way.
fn append(out: &mut Vec<u8>, mut late: Vec<u8>) {
    if out.is_empty() {
        std::mem::swap(out, &mut late);
    } else {
        out.extend_from_slice(&late);
    }
    give_buffer(late);
}

/// Writes the replies of a session. Whoever has to say who they are first has to read them in time, however few.
async fn write_replies(
    server: &Server,
    session: &mut Session,
    wire: &mut Wire,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    let data_access = std::mem::take(&mut session.data_access);
    let written = write(server, &session.client.held, wire, data_access, bytes);
    match session.needs_password(&server.acl) {
        true => timeout(time_limit(&server.config), Box::pin(written)).await.unwrap_or(Err(TIMED_OUT.into())),
        false => written.await,
    }
}

/// Writes all of `bytes` and empties it, once the changes they acknowledge are as durable as configured. If these cannot be,
/// and the client has `data_access` data to change it, each reply becomes an error.
///
/// A client that leaves too much unread is cut off: at once if all of `bytes` exceed the hard limit, after a while if the
/// rest exceeds the soft one.
async fn write(
    server: &Server,
    held: &ConnectionMemory,
    wire: &mut Wire,
    data_access: DataAccess,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    if data_access != DataAccess::Nothing
        && let Some(journal) = server.store.journal()
        && (!bytes.is_empty() || journal.is_behind())
        && let Err(failure) = journal.settle(data_access == DataAccess::Written).await
        && data_access == DataAccess::Written
    {
        refuse_all(bytes, &store::journal::misconf(&failure))?;
    }
    let limit = &server.config.client_output_buffer_limit.normal;
    let (hard, soft) = (limit.hard.get_usize(), limit.soft.get_usize());
    let time_limit = Duration::from_secs(limit.soft_seconds.get());
    let mut written = 0;
    let exceeds_hard = hard > 0 && bytes.len() > hard;
    let mut deadline = None;
    while written < bytes.len() {
        if written > 0 {
            tokio::task::yield_now().await;
        }
        let left = bytes.len() - written;
        let rest = &bytes[written..written + left.min(PIECE_BYTES)];
        held.set_output(left, bytes.capacity());
        let step = if exceeds_hard || (soft > 0 && left > soft) {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + time_limit);
            let at_once = poll_fn(|context| Poll::Ready(pin!(wire.write(rest)).poll(context))).await;
            match at_once {
                Poll::Ready(step) => step,
                Poll::Pending if exceeds_hard => Err(TIMED_OUT.into()),
                Poll::Pending => {
                    timeout_at(deadline, wire.write(rest)).await.unwrap_or(Err(TIMED_OUT.into()))
                }
            }
        } else {
            wire.write(rest).await
        };
        match step? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => written += count,
        }
    }
    wire.flushed().await?;
    held.set_output(0, 0);
    Counters::add(&server.telemetry.counters.bytes_out, written as u64);
    if bytes.capacity() > KEPT_BYTES {
        give_buffer(std::mem::take(bytes));
    }
    bytes.clear();
    Ok(())
}

/// Puts `error` in the place of each reply in `bytes`: whichever of them is about a change may not be kept. Pushed messages
/// stay.
fn refuse_all(bytes: &mut Vec<u8>, error: &CommandError) -> io::Result<()> {
    let mut out = Reply::new(Protocol::Resp2);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let limits = ReplyLimits { max_bytes: usize::MAX, ..ReplyLimits::default() };
        match Reader::new(limits).read(rest) {
            Ok(Progress::Done { value, consumed }) => {
                match value {
                    Value::Push(_) => out.buf.extend_from_slice(&rest[..consumed]),
                    _ => out.error(error),
                }
                rest = &rest[consumed..];
            }
            _ => return Err(io::ErrorKind::StorageFull.into()),
        }
    }
    *bytes = out.buf;
    Ok(())
}
