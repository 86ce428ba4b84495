//! Buffers of a connection, and how it is known that its client has gone.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store_engine::discard::discard;
use tls::Wire;

/// Bytes asked for in one read.
pub const READ_BYTES: usize = 16 * 1024;
/// Buffers larger than this are not kept.
pub const KEPT_BYTES: usize = 64 * 1024;
/// Idle buffers a thread keeps.
const KEPT_BUFFERS: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub fn take_buffer() -> Vec<u8> {
    BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(READ_BYTES))
}

/// Takes a buffer back, for the next connection.
pub fn give_buffer(mut buffer: Vec<u8>) {
    let bytes = buffer.capacity();
    if (1..=KEPT_BYTES).contains(&buffer.capacity()) {
        buffer.clear();
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < KEPT_BUFFERS {
                buffers.push(buffer);
            }
        });
    } else {
        discard(buffer, bytes);
    }
}

/// When a connection that waits for its own request looks whether its client is still there; with requests behind
/// it, how often.
const HANG_UP_CHECK: Duration = Duration::from_millis(50);

/// Waits until the client has closed its end. If there are requests in the socket that wait behind the present
/// one, its readiness does not say.
pub async fn hung_up(wire: &Wire) {
    tokio::time::sleep(HANG_UP_CHECK).await;
    if matches!(wire.tcp().peek(&mut [0]).await, Ok(0) | Err(_)) {
        return;
    }
    loop {
        tokio::time::sleep(HANG_UP_CHECK).await;
        let mut sockets = [PollFd::new(wire.tcp(), PollFlags::RDHUP)];
        let now = Timespec::default();
        if poll(&mut sockets, Some(&now)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}

/// How a write to a client that does not read ends, which is cut off.
pub const TIMED_OUT: io::ErrorKind = io::ErrorKind::TimedOut;
