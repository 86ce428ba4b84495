//! Connections of gateways and other nodes, as tonic wants them.
//!
//! Any client may connect, and is unauthenticated until the handshake. There is room for some such clients, for a while,
//! and for few bytes of each. When there are too many the oldest is cut off: a peer needs a round trip for the handshake, and
//! is known before as many others have connected.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tls::{Protocol, Tls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::client::silence::{CountedWire, Signs};

/// Strangers at the same time. Peers are known within a round trip, probes are gone as fast.
const MAX_UNAUTHENTICATED: usize = 512;
/// How long a peer may be unauthenticated.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What an unauthenticated peer may send: a greeting with the map of all slots is some 100 KB at most.
const UNAUTHENTICATED_BYTES: usize = 1 << 20;
/// When a connection is accepted again after an error.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection that a peer has opened.
pub struct Peer {
    wire: CountedWire,
    known: Known,
    unauthenticated: Option<Unauthenticated>,
}

/// What is known of the peer of a connection.
#[derive(Clone, Default)]
pub struct Known {
    has_greeted: Arc<AtomicBool>,
    signs: Signs,
}

impl Known {
    /// It has greeted.
    pub fn set(&self) {
        self.has_greeted.store(true, Ordering::Relaxed);
    }

    /// Whether it lives.
    pub(crate) fn signs(&self) -> &Signs {
        &self.signs
    }
}

/// What is left to a peer that has not authenticated.
struct Unauthenticated {
    timeout: Pin<Box<Sleep>>,
    bytes: usize,
    ticket: Arc<Ticket>,
}

/// A place among the unauthenticated peers.
#[derive(Default)]
struct Ticket(Mutex<TicketState>);

#[derive(Default)]
struct TicketState {
    /// It was given to another.
    is_lost: bool,
    reader: Option<Waker>,
}

impl Ticket {
    fn lose(&self) {
        let mut state = self.0.lock();
        state.is_lost = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Whether it is lost; otherwise the caller is woken when it will be.
    fn poll_lost(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.0.lock();
        state.reader = Some(context.waker().clone());
        state.is_lost
    }
}

/// The places of unauthenticated peers, oldest first.
#[derive(Default)]
struct Tickets(VecDeque<Weak<Ticket>>);

impl Tickets {
    /// A place for an unauthenticated peer, if need be that of the oldest.
    fn take(&mut self) -> Arc<Ticket> {
        if self.0.len() >= MAX_UNAUTHENTICATED {
            self.0.retain(|ticket| ticket.strong_count() > 0);
        }
        if self.0.len() >= MAX_UNAUTHENTICATED
            && let Some(oldest) = self.0.pop_front().and_then(|ticket| ticket.upgrade())
        {
            oldest.lose();
        }
        let ticket = Arc::<Ticket>::default();
        self.0.push_back(Arc::downgrade(&ticket));
        ticket
    }
}

/// Those that come.
pub struct Peers {
    listener: TcpListener,
    /// They are TLS.
    tls: Option<Arc<Tls>>,
    tickets: Tickets,
    /// No connection can be accepted for a while.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Peers {
    /// Those that come to `listener`; with `tls` it is spoken to them.
    pub fn new(listener: TcpListener, tls: Option<Arc<Tls>>) -> Peers {
        Peers { listener, tls, tickets: Tickets::default(), pause: None }
    }
}

impl Stream for Peers {
    type Item = io::Result<Peer>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let Ok((tcp, _)) = ready!(self.listener.poll_accept(context)) else {
                // Out of file descriptors, most likely: connections that end will free some.
                self.pause = Some(Box::pin(sleep(AGAIN)));
                continue;
            };
            // A socket that refuses this still works.
            let _ = tcp.set_nodelay(true);
            let wire = match &self.tls {
                None => tcp.into(),
                Some(tls) => match tls.accept(tcp, Protocol::Grpc) {
                    Ok(wire) => wire,
                    Err(_) => continue,
                },
            };
            let ticket = self.tickets.take();
            let unauthenticated = Unauthenticated {
                timeout: Box::pin(sleep(HANDSHAKE_TIMEOUT)),
                bytes: UNAUTHENTICATED_BYTES,
                ticket,
            };
            let known = Known::default();
            return Poll::Ready(Some(Ok(Peer {
                wire: CountedWire::new(wire, known.signs.clone()),
                known,
                unauthenticated: Some(unauthenticated),
            })));
        }
    }
}

impl Connected for Peer {
    type ConnectInfo = Known;

    fn connect_info(&self) -> Known {
        self.known.clone()
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Peer { wire, known, unauthenticated } = &mut *self;
        let before = buffer.filled().len();
        if unauthenticated.is_some() && known.has_greeted.load(Ordering::Relaxed) {
            *unauthenticated = None;
        }
        let Some(unauthenticated) = unauthenticated else { return Pin::new(wire).poll_read(context, buffer) };
        if unauthenticated.timeout.as_mut().poll(context).is_ready()
            || unauthenticated.ticket.poll_lost(context)
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(Pin::new(wire).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        let left = unauthenticated.bytes.checked_sub(read);
        unauthenticated.bytes = left.ok_or(io::ErrorKind::InvalidData)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_gives_its_place_to_a_newcomer() {
        let mut tickets = Tickets::default();
        let mut held: Vec<_> = (0..MAX_UNAUTHENTICATED).map(|_| tickets.take()).collect();
        let lost = |ticket: &Ticket| ticket.poll_lost(&mut Context::from_waker(Waker::noop()));
        assert!(!held.iter().any(|ticket| lost(ticket)));
        // One that is known, or gone, leaves its place.
        held.remove(7);
        held.push(tickets.take());
        assert!(!held.iter().any(|ticket| lost(ticket)));
        held.push(tickets.take());
        assert_eq!(held.iter().position(|ticket| lost(ticket)), Some(0));
        assert_eq!(held.iter().filter(|ticket| lost(ticket)).count(), 1);
    }
}
