//! What has come for a connection that is no reply.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::cell::OutputLimit;

/// Messages up to this size are copied: sharing them takes longer than that, for their counters are everybody's.
const SMALL_BYTES: usize = 1024;
/// Copies are put together up to this size.
const CHUNK_BYTES: usize = 16 << 10;
/// What something to be written takes beside its bytes.
const CHUNK_SIZE: usize = size_of::<Chunk>();

/// Something to be written.
pub enum Chunk {
    /// Copies of small messages.
    Copies(Vec<u8>),
    /// A message that all who hear it share.
    Shared(Bytes),
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Chunk::Copies(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

/// Messages of a connection that are not written yet. Many write into it, and one takes out.
#[derive(Default)]
pub struct PushQueue {
    unread: Mutex<Unread>,
    arrived: Notify,
    /// Those of `unread`, for others to read without its lock.
    bytes: Arc<AtomicUsize>,
    resp3: AtomicBool,
    expected: AtomicBool,
    summons: Notify,
}

#[derive(Default)]
struct Unread {
    chunks: VecDeque<Chunk>,
    /// How much of the first one is written.
    written: usize,
    bytes: usize,
    /// Since when they are more than the soft limit allows, and until when that is tolerated.
    tolerated_until: Option<Instant>,
    /// They were too many.
    cut: bool,
}

impl Unread {
    fn add(&mut self, message: &Bytes) {
        self.bytes += message.len();
        if message.len() > SMALL_BYTES {
            self.bytes += CHUNK_SIZE;
            return self.chunks.push_back(Chunk::Shared(message.clone()));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Copies(copies)) if copies.len() + message.len() <= CHUNK_BYTES => {
                copies.extend_from_slice(message);
            }
            _ => {
                self.bytes += CHUNK_SIZE;
                self.chunks.push_back(Chunk::Copies(message.to_vec()));
            }
        }
    }
}

impl PushQueue {
    /// The number of bytes that are not written, as it changes.
    pub fn bytes(&self) -> Arc<AtomicUsize> {
        self.bytes.clone()
    }

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

    /// Waits until there is something to push.
    pub async fn woken(&self) {
        self.summons.notified().await;
    }

    /// Adds a message. `false`: the client has left too much unread and must be cut off.
    pub fn push(&self, message: &Bytes, limit: &OutputLimit) -> bool {
        let mut unread = self.unread.lock();
        if unread.cut {
            return false;
        }
        let (was_empty, was_tolerated) = (unread.chunks.is_empty(), unread.tolerated_until.is_some());
        unread.add(message);
        let exceeds = |limit: usize| limit > 0 && unread.bytes > limit;
        let (is_hard, is_soft) = (exceeds(limit.hard.get_usize()), exceeds(limit.soft.get_usize()));
        if is_soft {
            let now = Instant::now();
            let soft_time = Duration::from_secs(limit.soft_seconds.get());
            let until = *unread.tolerated_until.get_or_insert(now + soft_time);
            unread.cut = now > until;
        } else {
            unread.tolerated_until = None;
        }
        unread.cut |= is_hard;
        if unread.cut {
            unread.chunks.clear();
            unread.bytes = 0;
        }
        self.bytes.store(unread.bytes, Ordering::Relaxed);
        // Whoever has not seen the one before does not wait.
        if was_empty || unread.cut || was_tolerated != unread.tolerated_until.is_some() {
            self.arrived.notify_one();
        }
        !unread.cut
    }

    /// Waits until there is a message.
    pub async fn arrived(&self) {
        loop {
            let arrived = self.arrived.notified();
            if !self.unread.lock().chunks.is_empty() {
                return;
            }
            arrived.await;
        }
    }

    /// Waits until there may be a message where there was none, or too many.
    pub async fn more(&self) {
        self.arrived.notified().await;
    }

    /// Whether a message may be written in part.
    pub fn is_halfway(&self) -> bool {
        self.unread.lock().written > 0
    }

    /// In how many pieces what is not written stands, and how many bytes it takes.
    pub fn unread(&self) -> (usize, usize) {
        let unread = self.unread.lock();
        (unread.chunks.len(), unread.bytes)
    }

    /// Whether the client was cut off because it left too much unread.
    pub fn was_cut(&self) -> bool {
        self.unread.lock().cut
    }

    /// Until when it is tolerated that the present messages are not read.
    pub fn tolerated_until(&self) -> Option<Instant> {
        self.unread.lock().tolerated_until
    }

    /// Takes up to `count` chunks out, to be written from where the second says. They belong to [`PushQueue::written`]
    /// before anything else is done.
    pub fn first(&self, count: usize) -> (Vec<Chunk>, usize) {
        let mut unread = self.unread.lock();
        let count = count.min(unread.chunks.len());
        (unread.chunks.drain(..count).collect(), unread.written)
    }

    /// Gives back what was taken, of which `count` bytes more are written now.
    pub fn written(&self, chunks: Vec<Chunk>, mut count: usize, limit: &OutputLimit) {
        let mut unread = self.unread.lock();
        if unread.cut {
            return;
        }
        let mut rest = chunks.into_iter();
        let mut left = None;
        for chunk in rest.by_ref() {
            let unwritten = chunk.len() - unread.written;
            if count < unwritten {
                unread.written += count;
                left = Some(chunk);
                break;
            }
            count -= unwritten;
            unread.written = 0;
            unread.bytes -= chunk.len() + CHUNK_SIZE;
        }
        let behind = left.into_iter().chain(rest).collect::<Vec<_>>();
        behind.into_iter().rev().for_each(|chunk| unread.chunks.push_front(chunk));
        self.bytes.store(unread.bytes, Ordering::Relaxed);
        if unread.bytes <= limit.soft.get_usize() {
            unread.tolerated_until = None;
        }
    }

    /// Moves all messages, none of which is written in part, to the replies.
    pub fn take(&self, out: &mut Vec<u8>) {
        let mut unread = self.unread.lock();
        debug_assert!(unread.written == 0, "nothing is answered in the middle of a message");
        unread.chunks.drain(..).for_each(|chunk| out.extend_from_slice(&chunk));
        unread.bytes = 0;
        self.bytes.store(0, Ordering::Relaxed);
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

    fn text(chunks: &[Chunk]) -> Vec<&str> {
        chunks.iter().map(|chunk| std::str::from_utf8(chunk).unwrap()).collect()
    }

    #[test]
    fn messages_are_written_in_part_and_in_order() {
        let (pushes, limit) = (PushQueue::default(), limit(0, 0));
        let large = "x".repeat(SMALL_BYTES + 1);
        for text in ["one", "two", &large, "three"] {
            assert!(pushes.push(&Bytes::copy_from_slice(text.as_bytes()), &limit));
        }
        let (chunks, from) = pushes.first(2);
        assert_eq!((text(&chunks), from), (vec!["onetwo", &*large], 0));
        pushes.written(chunks, 4, &limit);
        assert!(pushes.is_halfway());
        let (chunks, from) = pushes.first(9);
        assert_eq!((text(&chunks), from), (vec!["onetwo", &*large, "three"], 4));
        // Others push meanwhile.
        assert!(pushes.push(&Bytes::from_static(b"four"), &limit));
        pushes.written(chunks, 2 + large.len(), &limit);
        assert!(!pushes.is_halfway());
        let mut out = Vec::new();
        pushes.take(&mut out);
        assert_eq!(out, b"threefour");
        assert_eq!(pushes.unread.lock().bytes, 0);
        assert!(pushes.first(1).0.is_empty());
    }

    #[test]
    fn small_messages_fill_chunks() {
        let (pushes, limit) = (PushQueue::default(), limit(0, 0));
        let message = Bytes::from(vec![b'x'; SMALL_BYTES]);
        (0..=CHUNK_BYTES / SMALL_BYTES).for_each(|_| assert!(pushes.push(&message, &limit)));
        let (chunks, _) = pushes.first(9);
        assert_eq!(chunks.iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [CHUNK_BYTES, SMALL_BYTES]);
        pushes.written(chunks, CHUNK_BYTES + SMALL_BYTES, &limit);
        assert_eq!(pushes.unread.lock().bytes, 0);
    }

    #[test]
    fn too_much_is_too_much() {
        let (pushes, limit) = (PushQueue::default(), limit(CHUNK_SIZE as u64 + 2, 0));
        assert!(pushes.push(&Bytes::from_static(b"a"), &limit));
        assert!(pushes.push(&Bytes::from_static(b"b"), &limit));
        let (chunks, _) = pushes.first(1);
        assert!(!pushes.push(&Bytes::from_static(b"c"), &limit));
        pushes.written(chunks, 1, &limit);
        assert!(pushes.was_cut() && pushes.first(9).0.is_empty());
        assert!(!pushes.push(&Bytes::from_static(b"d"), &limit));
    }

    #[test]
    fn a_soft_limit_is_tolerated_for_a_while() {
        let (pushes, limit) = (PushQueue::default(), limit(0, 1));
        limit.soft_seconds.set(3600);
        assert!(pushes.push(&Bytes::from_static(b"a"), &limit));
        assert!(pushes.tolerated_until().is_some_and(|until| until > Instant::now()));
        let (chunks, _) = pushes.first(1);
        pushes.written(chunks, 1, &limit);
        assert!(pushes.tolerated_until().is_none());
        limit.soft_seconds.set(0);
        assert!(pushes.push(&Bytes::from_static(b"a"), &limit));
        // Not in the same moment.
        let begun = Instant::now();
        while Instant::now() == begun {}
        assert!(!pushes.push(&Bytes::from_static(b"a"), &limit));
    }
}
