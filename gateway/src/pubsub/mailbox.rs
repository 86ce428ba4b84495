//! What has come for a connection that is no reply.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::cell::OutputLimit;

/// What a message takes beside its bytes, which all who hear it share.
const MESSAGE_BYTES: usize = size_of::<Bytes>();

/// Messages of a connection that are not written yet.
#[derive(Default)]
pub struct Mailbox {
    unread: Mutex<Unread>,
    arrived: Notify,
    resp3: AtomicBool,
    expected: AtomicBool,
    summons: Notify,
}

#[derive(Default)]
struct Unread {
    messages: VecDeque<Bytes>,
    /// How much of the first one is written.
    written: usize,
    bytes: usize,
    /// Since when they are more than the soft limit allows, and until when that is tolerated.
    tolerated_until: Option<Instant>,
    /// They were too many.
    cut: bool,
}

impl Mailbox {
    /// Whether messages are to be in RESP3.
    pub fn is_resp3(&self) -> bool {
        self.resp3.load(Ordering::Relaxed)
    }

    /// Says which protocol they are to be in.
    pub fn set_resp3(&self, resp3: bool) {
        self.resp3.store(resp3, Ordering::Relaxed);
    }

    /// Whether something may come for a connection that is subscribed to nothing.
    pub fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Says so, for good.
    pub fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
        self.summons.notify_one();
    }

    /// Waits until somebody says so.
    pub async fn summoned(&self) {
        self.summons.notified().await;
    }

    /// Adds a message. `false`: the client has left too much unread and must be cut off.
    pub fn push(&self, message: Bytes, limit: &OutputLimit) -> bool {
        let mut unread = self.unread.lock();
        if unread.cut {
            return false;
        }
        unread.bytes += message.len() + MESSAGE_BYTES;
        unread.messages.push_back(message);
        let exceeds = |limit: usize| limit > 0 && unread.bytes > limit;
        let (is_hard, is_soft) = (exceeds(limit.hard.get_usize()), exceeds(limit.soft.get_usize()));
        if is_soft {
            let now = Instant::now();
            let patience = Duration::from_secs(limit.soft_seconds.get());
            let until = *unread.tolerated_until.get_or_insert(now + patience);
            unread.cut = now > until;
        } else {
            unread.tolerated_until = None;
        }
        unread.cut |= is_hard;
        if unread.cut {
            unread.messages.clear();
            unread.bytes = 0;
        }
        self.arrived.notify_one();
        !unread.cut
    }

    /// Waits until there is a message.
    pub async fn arrived(&self) {
        loop {
            let arrived = self.arrived.notified();
            if !self.unread.lock().messages.is_empty() {
                return;
            }
            arrived.await;
        }
    }

    /// Waits until another message may have come.
    pub async fn more(&self) {
        self.arrived.notified().await;
    }

    /// Whether a message is written in part.
    pub fn is_halfway(&self) -> bool {
        self.unread.lock().written > 0
    }

    /// Whether the client was cut off because it left too much unread.
    pub fn was_cut(&self) -> bool {
        self.unread.lock().cut
    }

    /// Until when it is tolerated that the present messages are not read.
    pub fn tolerated_until(&self) -> Option<Instant> {
        self.unread.lock().tolerated_until
    }

    /// The first of the messages, up to `count`, without what is written of them.
    pub fn first(&self, count: usize) -> Vec<Bytes> {
        let unread = self.unread.lock();
        let mut first: Vec<Bytes> = unread.messages.iter().take(count).cloned().collect();
        if let Some(message) = first.first_mut() {
            *message = message.slice(unread.written..);
        }
        first
    }

    /// Takes so many bytes away, which are written.
    pub fn written(&self, mut count: usize, limit: &OutputLimit) {
        let mut unread = self.unread.lock();
        while count > 0
            && let Some(first) = unread.messages.front()
        {
            let (whole, left) = (first.len(), first.len() - unread.written);
            if count < left {
                unread.written += count;
                break;
            }
            count -= left;
            unread.written = 0;
            unread.bytes -= whole + MESSAGE_BYTES;
            unread.messages.pop_front();
        }
        if unread.bytes <= limit.soft.get_usize() {
            unread.tolerated_until = None;
        }
    }

    /// Moves all messages, none of which is written in part, to the replies.
    pub fn take(&self, out: &mut Vec<u8>) {
        let mut unread = self.unread.lock();
        debug_assert!(unread.written == 0, "nothing is answered in the middle of a message");
        unread.messages.drain(..).for_each(|message| out.extend_from_slice(&message));
        unread.bytes = 0;
        unread.tolerated_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(hard: u64, soft: u64) -> OutputLimit {
        let limit = OutputLimit::default();
        limit.hard.set(hard);
        limit.soft.set(soft);
        limit
    }

    #[test]
    fn messages_are_written_in_part_and_in_order() {
        let (mail, limit) = (Mailbox::default(), limit(0, 0));
        for text in ["one", "two", "three"] {
            assert!(mail.push(Bytes::from_static(text.as_bytes()), &limit));
        }
        assert_eq!(mail.first(2), ["one", "two"]);
        mail.written(4, &limit);
        assert!(mail.is_halfway());
        assert_eq!(mail.first(9), ["wo", "three"]);
        mail.written(2, &limit);
        assert!(!mail.is_halfway());
        let mut out = Vec::new();
        mail.take(&mut out);
        assert_eq!(out, b"three");
        assert_eq!(mail.unread.lock().bytes, 0);
    }

    #[test]
    fn too_much_is_too_much() {
        let (mail, limit) = (Mailbox::default(), limit(2 * MESSAGE_BYTES as u64 + 2, 0));
        assert!(mail.push(Bytes::from_static(b"a"), &limit));
        assert!(mail.push(Bytes::from_static(b"b"), &limit));
        assert!(!mail.push(Bytes::from_static(b"c"), &limit));
        assert!(mail.was_cut() && mail.first(9).is_empty());
        assert!(!mail.push(Bytes::from_static(b"d"), &limit));
    }

    #[test]
    fn a_soft_limit_is_tolerated_for_a_while() {
        let (mail, limit) = (Mailbox::default(), limit(0, 1));
        limit.soft_seconds.set(3600);
        assert!(mail.push(Bytes::from_static(b"a"), &limit));
        assert!(mail.tolerated_until().is_some_and(|until| until > Instant::now()));
        mail.written(1, &limit);
        assert!(mail.tolerated_until().is_none());
        limit.soft_seconds.set(0);
        assert!(mail.push(Bytes::from_static(b"a"), &limit));
        // Not in the same moment.
        let begun = Instant::now();
        while Instant::now() == begun {}
        assert!(!mail.push(Bytes::from_static(b"a"), &limit));
    }
}
