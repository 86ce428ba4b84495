//! Spans of OpenTelemetry: what was done for a request, for the few that are traced.
//!
//! Whoever answers a request asks [`Spans::begin`], which says no at the price of a load while nothing is traced. Spans
//! that have ended wait in a queue of bounded length; what does not fit is counted and forgotten, so that nobody
//! ever waits for a collector.

mod context;

pub use context::Context;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::config::Config;
use crate::observe::unix_time;

/// Spans that may wait for the collector.
const QUEUE: usize = 8192;

/// On which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Neither.
    Internal,
    /// It answers.
    Server,
    /// It asks somebody else.
    Client,
}

/// What is told of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A word.
    Word(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Fact {
    fn from(word: &'static str) -> Fact {
        Fact::Word(word.into())
    }
}

impl From<String> for Fact {
    fn from(word: String) -> Fact {
        Fact::Word(word.into())
    }
}

impl From<u64> for Fact {
    fn from(number: u64) -> Fact {
        Fact::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Fact {
    fn from(number: usize) -> Fact {
        Fact::from(number as u64)
    }
}

/// Something that was done.
#[derive(Clone, Debug)]
pub struct Span {
    /// Where it belongs.
    pub context: Context,
    /// The span that it is a part of.
    pub parent: Option<[u8; 8]>,
    /// What it is called.
    pub name: Cow<'static, str>,
    /// Who it is.
    pub side: Side,
    /// Unix time of its beginning.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// What is known of it.
    pub facts: Vec<(&'static str, Fact)>,
    /// The text of its error.
    pub error: Option<String>,
}

impl Span {
    /// A part of `parent` that began then, and has ended now.
    pub fn within(parent: &Context, name: impl Into<Cow<'static, str>>, side: Side, began: Instant) -> Span {
        let took = began.elapsed();
        Span {
            context: parent.child(),
            parent: Some(parent.span),
            name: name.into(),
            side,
            began: unix_time().saturating_sub(took),
            took,
            facts: Vec::new(),
            error: None,
        }
    }

    /// With a fact more.
    pub fn with(mut self, name: &'static str, fact: impl Into<Fact>) -> Span {
        self.facts.push((name, fact.into()));
        self
    }

    /// With the error that this reply is, if it is one: its code word becomes the type.
    pub fn with_reply(mut self, reply: &[u8]) -> Span {
        if let Some(text) = reply.strip_prefix(b"-") {
            let end = text.iter().position(|byte| *byte == b'\r').unwrap_or(text.len()).min(256);
            let text = String::from_utf8_lossy(&text[..end]).into_owned();
            let code = text.split(' ').next().unwrap_or_default().to_owned();
            self.facts.push(("db.response.status_code", code.clone().into()));
            self.facts.push(("error.type", code.into()));
            self.error = Some(text);
        }
        self
    }
}

/// A request that is being traced.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its span.
    pub context: Context,
    parent: Option<[u8; 8]>,
    began: Instant,
}

impl Open {
    /// Ends it.
    pub fn end(&self, name: impl Into<Cow<'static, str>>) -> Span {
        let Open { context, parent, began } = self;
        Span { context: *context, parent: *parent, ..Span::within(context, name, Side::Server, *began) }
    }
}

/// Which requests are traced, and where their spans go.
pub struct Spans {
    config: Arc<Config>,
    /// Nothing if there is no collector.
    queue: Option<mpsc::Sender<Span>>,
    taken: parking_lot::Mutex<Option<mpsc::Receiver<Span>>>,
    /// Spans that found the queue full.
    pub dropped: AtomicU64,
    /// Spans that the collector has taken.
    pub sent: AtomicU64,
    /// Spans that it has not.
    pub failed: AtomicU64,
    /// Exports that failed: of traces, and of metrics.
    pub exports_failed: [AtomicU64; 2],
}

thread_local! {
    /// State of the random source of the thread.
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// Random bits, which need not be secret.
fn chance() -> u64 {
    CHANCE.with(|state| {
        if state.get() == 0 {
            // Keyed anew for each by the operating system.
            let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            state.set(seed | 1);
        }
        // SplitMix64.
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next | u64::from(next == 0));
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

impl Spans {
    /// As the configuration says.
    pub fn new(config: Arc<Config>) -> Spans {
        let (queue, taken) = match &*config.otel_endpoint.get() {
            "none" => (None, None),
            _ => {
                let (queue, taken) = mpsc::channel(QUEUE);
                (Some(queue), Some(taken))
            }
        };
        Spans {
            config,
            queue,
            taken: parking_lot::Mutex::new(taken),
            dropped: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            exports_failed: Default::default(),
        }
    }

    /// Begins a request that came with this context, if it is to be traced.
    #[inline]
    pub fn begin(&self, parent: Option<&Context>) -> Option<Box<Open>> {
        if self.queue.is_none() { None } else { self.choose(parent) }
    }

    fn choose(&self, parent: Option<&Context>) -> Option<Box<Open>> {
        let is_sampled = match parent {
            Some(parent) => parent.sampled,
            None => {
                let ratio = f64::from_bits(self.config.otel_sample_ratio.get());
                ratio > 0.0 && ((chance() >> 11) as f64) < ratio * (1u64 << 53) as f64
            }
        };
        if !is_sampled {
            return None;
        }
        let context = parent.map_or_else(Context::root, Context::child);
        Some(Box::new(Open { context, parent: parent.map(|parent| parent.span), began: Instant::now() }))
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        if let Some(queue) = &self.queue
            && queue.try_send(span).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What has ended, for the one who sends it; once.
    pub fn take(&self) -> Option<mpsc::Receiver<Span>> {
        self.taken.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_traced_as_is_asked_for() {
        let config = Arc::new(Config::defaults());
        assert!(Spans::new(config.clone()).begin(Some(&Context::root())).is_none(), "nobody would take it");
        config.otel_endpoint.set("http://127.0.0.1:1".into());
        let spans = Spans::new(config.clone());
        let count = || (0..10_000).filter(|_| spans.begin(None).is_some()).count();
        assert_eq!(count(), 0);
        config.otel_sample_ratio.set(0.25f64.to_bits());
        assert!((2000..3000).contains(&count()));
        config.otel_sample_ratio.set(1f64.to_bits());
        assert_eq!(count(), 10_000);
        let parent = Context { sampled: false, ..Context::root() };
        assert!(spans.begin(Some(&parent)).is_none(), "who asks decides");
        let parent = Context::root();
        config.otel_sample_ratio.set(0f64.to_bits());
        let open = spans.begin(Some(&parent)).expect("who asks decides");
        assert_eq!((open.context.trace, open.parent), (parent.trace, Some(parent.span)));
        assert_ne!(open.context.span, parent.span);
        for _ in 0..QUEUE + 7 {
            spans.end(open.end("GET").with_reply(b"-WRONGTYPE no\r\n"));
        }
        assert_eq!(spans.dropped.load(Ordering::Relaxed), 7);
        let mut queue = spans.take().expect("nobody has it");
        let span = queue.try_recv().expect("a span");
        assert_eq!(span.error.as_deref(), Some("WRONGTYPE no"));
        assert!(span.facts.contains(&("error.type", Fact::Word("WRONGTYPE".into()))));
    }
}
