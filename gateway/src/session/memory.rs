//! The memory that clients make the server hold: unread input, queued commands, watched keys, subscriptions, prefixes of
//! CLIENT TRACKING, and output that is not read.
//!
//! Each client has its own numbers. Their sum is known roughly at any time, since a client reports only when its bytes
//! have changed by much: a client of small commands never touches what all threads share. Where it matters, the
//! clients are looked at one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store_engine::CommandError;
use tokio::sync::Notify;

use crate::config::Config;

/// By how many bytes a client changes before it reports.
const REPORT_BYTES: usize = 32 << 10;
/// The smallest limit of all clients together, as in Redis: what a few clients need to say anything at all.
const LEAST_LIMIT: usize = 128 << 10;

/// What a queued command takes beside its arguments, and each of these beside its bytes.
pub const COMMAND_BYTES: usize = 48;
/// What an argument of a queued command takes beside its bytes.
pub const ARGUMENT_BYTES: usize = 16;
/// What a watched key takes beside its name, which the session and the partition both have.
pub const WATCH_BYTES: usize = 256;
/// What a subscription takes beside its name, which the session and the table both have.
pub const SUBSCRIPTION_BYTES: usize = 288;
/// What a prefix takes beside its name, which the session, the follower and the table have.
pub const PREFIX_BYTES: usize = 256;

/// The memory that all clients together make the server hold.
pub struct ClientMemory {
    config: Arc<Config>,
    /// The sum of what clients have reported.
    reported: AtomicUsize,
    exceeded: Notify,
}

impl ClientMemory {
    /// No client holds anything.
    pub fn new(config: Arc<Config>) -> Arc<ClientMemory> {
        Arc::new(ClientMemory { config, reported: AtomicUsize::new(0), exceeded: Notify::new() })
    }

    /// How much they may hold, if there is a limit.
    pub fn limit(&self) -> Option<usize> {
        self.config.limit_of_clients().map(|limit| limit.max(LEAST_LIMIT))
    }

    /// Waits until the clients have reported more than they may hold.
    pub async fn exceeded(&self) {
        self.exceeded.notified().await;
    }

    /// A client holds so many bytes instead of `before`.
    fn report(&self, before: usize, now: usize) {
        let sum = self.reported.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        if now > before && self.limit().is_some_and(|limit| sum.wrapping_add(now - before) >= limit) {
            self.exceeded.notify_one();
        }
    }
}

/// What one connection takes.
pub struct ConnectionMemory {
    /// The number of its socket and one more; 0: it has none of its own.
    socket: AtomicUsize,
    /// Bytes that have come and are not answered.
    input: AtomicUsize,
    /// Bytes that the buffer for them has room for.
    room: AtomicUsize,
    /// How many calls MULTI has queued and one more; 0: there is no MULTI.
    queued: AtomicUsize,
    /// Bytes of those.
    queued_bytes: AtomicUsize,
    /// Bytes of watched keys.
    watched: AtomicUsize,
    /// Bytes of subscriptions.
    subscribed: AtomicUsize,
    /// Bytes of prefixes of CLIENT TRACKING.
    prefixes: AtomicUsize,
    /// Bytes of replies that its socket has not taken yet.
    output: AtomicUsize,
    /// Bytes that the buffer of those takes.
    replies: AtomicUsize,
    /// Bytes of messages that are not written: its mailbox counts them.
    messages: Arc<AtomicUsize>,
    /// The bytes that were last reported.
    reported: AtomicUsize,
    all: Arc<ClientMemory>,
}

impl ConnectionMemory {
    /// Of a client that holds nothing, one of these. `messages` are counted elsewhere.
    pub fn new(all: Arc<ClientMemory>, messages: Arc<AtomicUsize>) -> ConnectionMemory {
        let none = || AtomicUsize::new(0);
        ConnectionMemory {
            socket: none(),
            input: none(),
            room: none(),
            queued: none(),
            queued_bytes: none(),
            watched: none(),
            subscribed: none(),
            prefixes: none(),
            output: none(),
            replies: none(),
            messages,
            reported: none(),
            all,
        }
    }

    /// Sets the number of its socket.
    pub fn set_socket(&self, number: i32) {
        self.socket.store(usize::try_from(number).map_or(0, |number| number + 1), Ordering::Relaxed);
    }

    /// The number of its socket, or -1.
    pub fn socket(&self) -> i64 {
        of(&self.socket) as i64 - 1
    }

    /// Sets what is in its input, a part of what the buffer has room for.
    #[inline]
    pub fn set_input(&self, bytes: usize, room: usize) {
        self.input.store(bytes, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        self.report_buffer(room);
    }

    /// Bytes in its input, and how many the buffer has room for.
    pub fn input(&self) -> (usize, usize) {
        (of(&self.input), of(&self.room))
    }

    /// More input has come that is held elsewhere than in the buffer of a connection.
    pub fn add_input(&self, bytes: usize) {
        let input = self.input.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.set_input(input, input);
    }

    /// MULTI has begun.
    pub(super) fn begin_queue(&self) {
        self.queued.store(1, Ordering::Relaxed);
    }

    /// MULTI has queued a call of so many bytes.
    pub(super) fn add_queued(&self, bytes: usize) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.report();
    }

    /// What MULTI has queued is forgotten; with `over`, MULTI is over, too.
    pub(super) fn drop_queue(&self, over: bool) {
        if over {
            self.queued.store(0, Ordering::Relaxed);
        }
        self.queued_bytes.store(0, Ordering::Relaxed);
        self.report();
    }

    /// How many calls MULTI has queued, or -1, and their bytes.
    pub fn queue(&self) -> (i64, usize) {
        (of(&self.queued) as i64 - 1, of(&self.queued_bytes))
    }

    /// Sets how many bytes its watched keys take.
    pub fn set_watched(&self, bytes: usize) {
        self.watched.store(bytes, Ordering::Relaxed);
        self.report();
    }

    /// Bytes of its watched keys.
    pub fn watched(&self) -> usize {
        of(&self.watched)
    }

    /// It has subscribed to this name.
    pub fn add_subscription(&self, name: &[u8]) {
        self.subscribed.fetch_add(subscription_bytes(name), Ordering::Relaxed);
        self.report();
    }

    /// It is not subscribed to this name any more.
    pub fn remove_subscription(&self, name: &[u8]) {
        self.subscribed.fetch_sub(subscription_bytes(name), Ordering::Relaxed);
        self.report();
    }

    /// Sets how many bytes its prefixes take.
    pub fn set_prefixes(&self, bytes: usize) {
        self.prefixes.store(bytes, Ordering::Relaxed);
        self.report();
    }

    /// Sets how much of its replies has yet to be written, a part of what their buffer has room for.
    #[inline]
    pub fn set_output(&self, bytes: usize, room: usize) {
        self.output.store(bytes, Ordering::Relaxed);
        self.replies.store(room, Ordering::Relaxed);
        self.report_buffer(room);
    }

    /// Bytes of its replies that have yet to be written.
    pub fn output(&self) -> usize {
        of(&self.output)
    }

    /// Bytes that it keeps from one command to the next because commands have said so.
    fn kept(&self) -> usize {
        of(&self.queued_bytes) + of(&self.watched) + of(&self.subscribed) + of(&self.prefixes)
    }

    /// All bytes, but for what every client takes.
    pub fn bytes(&self) -> usize {
        of(&self.room) + self.kept() + of(&self.replies) + of(&self.messages)
    }

    /// Refuses to keep so many bytes more.
    pub fn refuse_more(&self, more: usize) -> Result<(), CommandError> {
        let most = self.all.config.client_query_buffer_limit.get_usize();
        if self.kept().saturating_add(more) <= most {
            return Ok(());
        }
        Err(CommandError::owned(format!(
            "ERR a connection may hold {most} bytes of queued commands, watched keys, subscriptions and prefixes of \
             CLIENT TRACKING: see client-query-buffer-limit"
        )))
    }

    /// Reports how much it holds if that has changed by much: to be called when its messages have become more or less.
    #[inline]
    pub fn report(&self) {
        let now = self.bytes();
        if now.abs_diff(of(&self.reported)) >= REPORT_BYTES {
            self.report_change(now);
        }
    }

    /// The same, unless a buffer is as small as those of most requests: these come here several times each.
    #[inline]
    fn report_buffer(&self, room: usize) {
        if room >= REPORT_BYTES || of(&self.reported) > 0 {
            self.report();
        }
    }

    #[cold]
    fn report_change(&self, now: usize) {
        self.all.report(self.reported.swap(now, Ordering::Relaxed), now);
    }
}

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        self.report_change(0);
    }
}

#[inline]
fn of(number: &AtomicUsize) -> usize {
    number.load(Ordering::Relaxed)
}

/// What a subscription to this name takes.
pub fn subscription_bytes(name: &[u8]) -> usize {
    2 * name.len() + SUBSCRIPTION_BYTES
}

/// What it takes to watch this key.
pub fn watch_bytes(key: &[u8]) -> usize {
    2 * key.len() + WATCH_BYTES
}

/// What these prefixes take.
pub fn prefix_bytes<'a>(prefixes: impl IntoIterator<Item = &'a [u8]>) -> usize {
    prefixes.into_iter().map(|prefix| 3 * prefix.len() + PREFIX_BYTES).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_follows_large_changes_and_ends_at_nothing() {
        let config = Arc::new(Config::defaults());
        config.client_query_buffer_limit.set(100_000);
        let all = ClientMemory::new(config);
        let sum = || of(&all.reported);
        let messages = Arc::<AtomicUsize>::default();
        let clients: Vec<ConnectionMemory> =
            (0..3).map(|_| ConnectionMemory::new(all.clone(), messages.clone())).collect();
        clients[0].set_input(10, 16 << 10);
        assert_eq!((clients[0].bytes(), sum()), (16 << 10, 0), "a small client is not counted");
        clients[0].set_input(10, 40 << 10);
        clients[1].set_output(1, 50 << 10);
        assert_eq!(sum(), 90 << 10);
        clients[1].add_subscription(&[b'c'; 40_000]);
        assert_eq!(sum(), (90 << 10) + 80_000 + SUBSCRIPTION_BYTES);
        assert!(clients[1].refuse_more(20_000).is_err() && clients[1].refuse_more(1000).is_ok());
        clients[1].remove_subscription(&[b'c'; 40_000]);
        assert_eq!(clients[1].bytes(), 50 << 10);
        messages.store(10 << 20, Ordering::Relaxed);
        clients[2].report();
        assert_eq!(sum(), (100 << 10) + (10 << 20) - (10 << 10));
        drop(clients);
        assert_eq!(sum(), 0);
    }
}
