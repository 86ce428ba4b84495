//! A connection. Beside what a stream of tokio can do, it can be looked at without reading, written to while it is
//! read, and moved to another runtime, which connections of Redis clients do.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use rustls::{Connection, IoState};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// So many records are taken from the network before others get their turn.
const READS: usize = 64;
/// So many handshakes are computed at the same time. The others wait aside, so that whatever else their threads have to do does
/// not wait for all of them.
static HANDSHAKES: Semaphore = Semaphore::const_new(4);

/// TCP, or TLS over it.
pub struct Wire {
    tcp: TcpStream,
    /// Both directions change the state of TLS. Never waited for: one task has the connection.
    tls: Option<Box<Mutex<Connection>>>,
}

/// A connection that belongs to no runtime.
pub struct Detached {
    tcp: std::net::TcpStream,
    tls: Option<Box<Mutex<Connection>>>,
}

impl Detached {
    /// On the runtime that this is called on.
    pub fn attach(self) -> io::Result<Wire> {
        Ok(Wire { tcp: TcpStream::from_std(self.tcp)?, tls: self.tls })
    }
}

impl From<TcpStream> for Wire {
    fn from(tcp: TcpStream) -> Wire {
        Wire { tcp, tls: None }
    }
}

impl Wire {
    pub(crate) fn sealed(tcp: TcpStream, tls: Connection) -> Wire {
        Wire { tcp, tls: Some(Box::new(Mutex::new(tls))) }
    }

    /// What is beneath.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether it is TLS.
    pub fn is_sealed(&self) -> bool {
        self.tls.is_some()
    }

    /// Takes it from its runtime.
    pub fn detach(self) -> io::Result<Detached> {
        Ok(Detached { tcp: self.tcp.into_std()?, tls: self.tls })
    }

    /// Waits until there is something to read, or the other side has ended it.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.tls {
            // Readiness alone may be a rumour, and reading waits without telling.
            None => self.tcp.peek(&mut [0]).await.map(drop),
            Some(tls) => poll_fn(|context| self.poll_plaintext(tls, context)).await.map(drop),
        }
    }

    /// Waits until both sides have agreed on all that comes before the first byte.
    pub async fn agreed(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        loop {
            let turn = HANDSHAKES.acquire().await.map_err(io::Error::other)?;
            let step =
                poll_fn(|context| Poll::Ready(self.poll_until(tls, context, |tls, _| !tls.is_handshaking())));
            let step = step.await;
            // The turn ends when everything else that is ready on this thread has had its own.
            yield_now().await;
            drop(turn);
            match step {
                Poll::Ready(Ok(true)) => return self.flushed().await,
                Poll::Ready(Ok(false)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    let mut wanted = Interest::READABLE;
                    if tls.lock().wants_write() {
                        wanted |= Interest::WRITABLE;
                    }
                    self.tcp.ready(wanted).await?;
                }
            }
        }
    }

    /// Waits until it may be possible to write.
    pub async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// Takes some of these bytes, if it can at once. What was taken may still have to be flushed.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.tcp.try_write_vectored(slices) };
        let mut tls = tls.lock();
        self.try_flush(&mut tls)?;
        let taken = tls.writer().write_vectored(slices)?;
        match self.try_flush(&mut tls) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// The same with one slice.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.tcp.try_write(bytes),
            Some(_) => self.try_write_vectored(&[IoSlice::new(bytes)]),
        }
    }

    /// Waits until what was taken has left.
    pub async fn flushed(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_flushed(context)).await
    }

    fn poll_flushed(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(tls) = &self.tls else { return Poll::Ready(Ok(())) };
        loop {
            match self.try_flush(&mut tls.lock()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(context))?;
                }
                flushed => return Poll::Ready(flushed),
            }
        }
    }

    fn try_flush(&self, tls: &mut Connection) -> io::Result<()> {
        while tls.wants_write() {
            if tls.write_tls(&mut Beneath(&self.tcp))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether the other side has ended the connection behind what was read last.
    fn is_abandoned(&self, context: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let peeked = self.tcp.poll_peek(context, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
    }

    /// Whether there is something to read; otherwise the other side has ended it.
    fn poll_plaintext(&self, tls: &Mutex<Connection>, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.poll_until(tls, context, |_, state| state.plaintext_bytes_to_read() > 0)
    }

    /// Takes records until this is so, or the other side has ended it.
    fn poll_until(
        &self,
        tls: &Mutex<Connection>,
        context: &mut Context<'_>,
        is_so: impl Fn(&Connection, &IoState) -> bool,
    ) -> Poll<io::Result<bool>> {
        let mut tls = tls.lock();
        for _ in 0..READS {
            let processed = tls.process_new_packets();
            match self.try_flush(&mut tls) {
                // The other side waits for an answer of ours, such as one of the handshake. It is written when that is
                // possible.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.tcp.poll_write_ready(context).is_ready() {
                        continue;
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {}
            }
            let state = processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if is_so(&tls, &state) {
                return Poll::Ready(Ok(true));
            }
            if state.peer_has_closed() {
                return Poll::Ready(Ok(false));
            }
            match tls.read_tls(&mut Beneath(&self.tcp)) {
                // Cut off without a farewell. Whoever needs to know the end of something has it in the protocol.
                Ok(0) => return Poll::Ready(Ok(false)),
                // Answering a greeting takes much time, and the client that sent it has left.
                Ok(_) if tls.is_handshaking() && self.is_abandoned(context) => return Poll::Ready(Ok(false)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(tls) = &self.tls else { return Pin::new(&mut self.tcp).poll_read(context, buffer) };
        if ready!(self.poll_plaintext(tls, context))? {
            let count = tls.lock().reader().read(buffer.initialize_unfilled())?;
            buffer.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.tcp).poll_write(context, bytes);
        }
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.tcp).poll_write_vectored(context, slices);
        }
        loop {
            match self.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(context))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flushed(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &self.tls {
            let mut tls = tls.lock();
            tls.send_close_notify();
            // A farewell that cannot leave at once is not waited for: whoever does not read would never be let go.
            let _ = self.try_flush(&mut tls);
        }
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

/// The socket, as TLS wants it.
struct Beneath<'a>(&'a TcpStream);

impl io::Read for Beneath<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Beneath<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
