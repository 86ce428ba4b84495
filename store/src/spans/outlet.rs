//! Where spans wait for the collector.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Span;
use super::message::Message;

/// Spans of one export. An export costs as much as some thousand spans, mostly for waking those who send it.
const BATCH: u64 = 4096;
/// An export with so many bytes is full, too: collectors refuse those beyond 4 MiB.
const BATCH_BYTES: usize = 2 << 20;
/// Exports that may wait for the collector.
const WAITING: usize = 4;

/// Spans that are sent together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// How many there are.
    pub spans: u64,
    /// They, as they stand in a `ScopeSpans` of OTLP.
    pub message: Message,
}

impl Batch {
    /// Adds a span that has ended.
    pub fn add(&mut self, span: &Span) {
        self.spans += 1;
        self.message.bytes(2, span.as_bytes());
    }

    fn append(&mut self, more: &Batch) {
        self.spans += more.spans;
        self.message.append(&more.message);
    }

    fn is_full(&self) -> bool {
        self.spans >= BATCH || self.message.byte_count() >= BATCH_BYTES
    }
}

/// Where spans go that have ended. There is a bound; what does not fit is counted and forgotten.
#[derive(Debug, Default)]
pub struct Outlet {
    waiting: Mutex<Waiting>,
    /// A batch is full.
    full: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    full: VecDeque<Batch>,
    filling: Batch,
}

impl Outlet {
    /// Takes a span that has ended.
    pub fn end(&self, span: &Span) {
        self.fill(1, |batch| batch.add(span));
    }

    /// Takes spans that have ended.
    pub fn end_all(&self, spans: &Batch) {
        self.fill(spans.spans, |batch| batch.append(spans));
    }

    fn fill(&self, spans: u64, add: impl FnOnce(&mut Batch)) {
        let mut waiting = self.waiting.lock();
        if waiting.full.len() >= WAITING {
            drop(waiting);
            self.dropped.fetch_add(spans, Ordering::Relaxed);
            return;
        }
        add(&mut waiting.filling);
        if waiting.filling.is_full() {
            let batch = waiting.close();
            waiting.full.push_back(batch);
            drop(waiting);
            self.full.notify_one();
        }
    }

    /// Waits until there are enough spans for an export; for the only one who takes them.
    pub async fn filled(&self) {
        while self.waiting.lock().full.is_empty() {
            self.full.notified().await;
        }
    }

    /// The oldest spans, as many as an export may have; nothing if there are none.
    pub fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let full = waiting.full.pop_front();
        full.or_else(|| (waiting.filling.spans > 0).then(|| waiting.close()))
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Waiting {
    /// Ends the batch that is being filled. The next one will be about as long.
    fn close(&mut self) -> Batch {
        let message = Message::with_capacity(self.filling.message.byte_count());
        std::mem::replace(&mut self.filling, Batch { spans: 0, message })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Instant;

    use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
    use prost::Message as _;

    use super::*;
    use crate::spans::{Context, Side};

    fn span(name: &str) -> Span {
        let now = Instant::now();
        Span::within(&Context::root(), name, Side::Server, now..now)
    }

    #[tokio::test]
    async fn spans_are_taken_in_batches_and_what_finds_no_room_is_counted() {
        let outlet = Outlet::default();
        assert!(outlet.take().is_none());
        (0..BATCH - 1).for_each(|number| outlet.end(&span(&number.to_string())));
        let mut filled = pin!(outlet.filled());
        let is_filled = poll_fn(|context| Poll::Ready(filled.as_mut().poll(context).is_ready()));
        assert!(!is_filled.await);
        let all = BATCH * WAITING as u64;
        (BATCH - 1..all + 7).for_each(|number| outlet.end(&span(&number.to_string())));
        filled.await;
        assert_eq!(outlet.dropped(), 7);
        for first in (0..all).step_by(BATCH as usize) {
            outlet.filled().await;
            let batch = outlet.take().expect("it is full");
            let read = ScopeSpans::decode(batch.message.as_bytes()).expect("a message").spans;
            let names: Vec<_> = read.into_iter().map(|span| span.name).collect();
            assert_eq!(batch.spans, BATCH);
            assert_eq!(names, (first..first + BATCH).map(|number| number.to_string()).collect::<Vec<_>>());
        }
        assert!(outlet.take().is_none());
        outlet.end(&span("last"));
        assert_eq!(outlet.take().expect("a few are taken, too").spans, 1);
    }

    #[test]
    fn no_batch_is_too_long_for_a_collector() {
        let (outlet, long) = (Outlet::default(), span(&"x".repeat(BATCH_BYTES / 3)));
        let mut two = Batch::default();
        (0..2).for_each(|_| two.add(&long));
        (0..5).for_each(|_| outlet.end(&long));
        outlet.end_all(&two);
        let counts: Vec<u64> = std::iter::from_fn(|| outlet.take()).map(|batch| batch.spans).collect();
        assert_eq!(counts, [3, 4]);
    }
}
