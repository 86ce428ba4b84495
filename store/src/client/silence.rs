//! When the other side of a stream counts as gone: after some seconds without a sign of it. Any byte is one, as a long message
//! arrives over a time in which nothing else does.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tls::Wire;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// How often both sides show that they live,
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// and after how many beats without a sign one is given up. They are counted: a process that stood still itself has heard
/// nothing meanwhile, and has to listen first.
pub(super) const MISSED: u32 = 5;
/// How long that is.
pub(crate) const SILENCE: Duration = Duration::from_secs(HEARTBEAT.as_secs() * MISSED as u64);

/// What has moved over a connection.
#[derive(Clone, Default)]
pub(crate) struct Signs(Arc<Counts>);

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Which direction is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// The other side has sent something.
    In,
    /// It has taken something: what it leaves unread fills the buffers of the system soon.
    Out,
}

impl Signs {
    /// Changes with each sign.
    pub fn count(&self, direction: Direction) -> u64 {
        let count = match direction {
            Direction::In => &self.0.reads,
            Direction::Out => &self.0.writes,
        };
        count.load(Ordering::Relaxed)
    }

    /// What the other side does next, unless there is no sign of it for too long. After each beat with a sign `waits` is called.
    pub async fn unless_silent<T>(
        &self,
        direction: Direction,
        next: impl Future<Output = T>,
        mut waits: impl FnMut(),
    ) -> Option<T> {
        let mut next = pin!(next);
        let (mut missed, mut seen) = (0, self.count(direction));
        while missed < MISSED {
            if let Ok(done) = timeout(HEARTBEAT, &mut next).await {
                return Some(done);
            }
            let now = self.count(direction);
            if now == seen {
                missed += 1;
            } else {
                (missed, seen) = (0, now);
                waits();
            }
        }
        None
    }
}

/// A connection whose traffic is counted.
pub(crate) struct CountedWire {
    wire: Wire,
    signs: Signs,
}

impl CountedWire {
    /// Counts in `signs`.
    pub fn new(wire: Wire, signs: Signs) -> CountedWire {
        CountedWire { wire, signs }
    }
}

fn note(count: &AtomicU64, moved: bool) {
    // One task has the connection.
    if moved {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl AsyncRead for CountedWire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.wire).poll_read(context, buffer);
        note(&self.signs.0.reads, buffer.filled().len() > before);
        read
    }
}

impl AsyncWrite for CountedWire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(context, bytes);
        note(&self.signs.0.writes, matches!(written, Poll::Ready(Ok(1..))));
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(context, slices);
        note(&self.signs.0.writes, matches!(written, Poll::Ready(Ok(1..))));
        written
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn each_byte_is_a_sign() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut other =
            TcpStream::connect(listener.local_addr().expect("its port")).await.expect("it listens");
        let (tcp, _) = listener.accept().await.expect("it has connected");
        let signs = Signs::default();
        let mut wire = CountedWire::new(tcp.into(), signs.clone());
        let counts = || (signs.count(Direction::In), signs.count(Direction::Out));
        other.write_all(b"a").await.expect("it is open");
        wire.read_exact(&mut [0]).await.expect("it is open");
        assert_eq!(counts(), (1, 0));
        wire.write_all(b"a").await.expect("it is open");
        assert_eq!(counts(), (1, 1));
        drop(other);
        assert!(wire.read_exact(&mut [0]).await.is_err());
        assert_eq!(counts(), (1, 1), "an end is no sign");
    }
}
