//! Which requests are traced: few; while tracing is off, a request pays one atomic load.
//!
//! Whoever answers a request asks [`Spans::begin`].

pub use store::spans::{
    AttributeValue, CLIENT, Name, SERVER, Scope, Sink, Span, SpanContext, SpanKind, parse_traceparent,
};

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use store::spans::{chance, child, root};

use crate::config::Config;

/// What a session is asked as a part of, which decides whether that is traced.
#[derive(Clone, Debug, Default)]
pub enum Parent {
    /// Nothing that is known: a share of it is traced.
    #[default]
    Unknown,
    /// A span of the client, which its request names.
    Caller(SpanContext),
    /// A request of HTTP or gRPC that is traced.
    Request(SpanContext),
    /// Such a request that is not.
    Untraced,
}

impl Parent {
    /// As `traceparent` says, if it says something.
    pub fn of(text: Option<&[u8]>) -> Parent {
        text.and_then(parse_traceparent).map_or(Parent::Unknown, Parent::Caller)
    }

    fn context(&self) -> Option<&SpanContext> {
        match self {
            Parent::Caller(context) | Parent::Request(context) => Some(context),
            Parent::Unknown | Parent::Untraced => None,
        }
    }
}

/// A request that is being traced.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its span.
    pub context: SpanContext,
    parent: Option<SpanContext>,
    kind: SpanKind,
    began: Instant,
}

impl Open {
    /// Its span, if it ended then.
    pub fn end(self, name: impl Into<Name>, ended: Instant) -> Span {
        Span::new(self.context, self.parent.as_ref(), name, self.kind, self.began..ended)
    }
}

/// Which requests are traced, and where their spans go.
pub struct Spans {
    config: Arc<Config>,
    /// Nothing if there is no collector.
    sink: OnceLock<Sink>,
    /// What became of them.
    pub counts: Arc<Outcomes>,
}

/// What became of spans, and of exports.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Spans that the collector has taken.
    pub sent: AtomicU64,
    /// Spans that it has not.
    pub failed: AtomicU64,
    /// Spans that found no room.
    pub dropped: AtomicU64,
    /// Exports that failed: of traces, and of metrics.
    pub exports_failed: [AtomicU64; 2],
}

impl Spans {
    /// As the configuration says.
    pub fn new(config: Arc<Config>) -> Spans {
        Spans { config, sink: OnceLock::new(), counts: Arc::default() }
    }

    /// From now on they go there, if they do not go anywhere yet.
    pub fn go_to(&self, sink: Sink) {
        let _ = self.sink.set(sink);
    }

    /// Whether anything is ever traced.
    pub fn are_on(&self) -> bool {
        self.sink.get().is_some()
    }

    /// Begins a request that is a part of this, if it is to be traced. `now` is the time, where that is known.
    #[inline]
    pub fn begin(&self, parent: &Parent, now: Option<Instant>) -> Option<Open> {
        (self.are_on() && self.chooses(parent)).then(|| open(parent, now))
    }

    /// Whether it is to be traced.
    #[inline]
    fn chooses(&self, parent: &Parent) -> bool {
        match parent {
            Parent::Unknown => is_next(self.config.otel_sample_ratio.get()),
            Parent::Caller(parent) | Parent::Request(parent) => parent.is_sampled(),
            Parent::Untraced => false,
        }
    }

    /// Begins a request that is a part of this and turns out to be one that is always traced: unless the client has
    /// said that it is not.
    pub fn begin_wanted(&self, parent: &Parent) -> Option<Open> {
        (self.are_on() && parent.context().is_none()).then(|| open(parent, None))
    }

    /// For what is done in the span of this request.
    pub fn scope(&self, of: &Open) -> Option<Scope> {
        self.sink.get().map(|sink| sink.scope(of.context.clone()))
    }

    /// Where spans go, if there is a collector.
    pub fn sink(&self) -> Option<Sink> {
        self.sink.get().cloned()
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        if let Some(sink) = self.sink.get() {
            sink.end(span);
        }
    }
}

#[cold]
fn open(parent: &Parent, now: Option<Instant>) -> Open {
    // What a request does is no request of another client.
    let kind = if matches!(parent, Parent::Request(_)) { SpanKind::Internal } else { SpanKind::Server };
    let parent = parent.context().cloned();
    let context = parent.as_ref().map_or_else(root, child);
    Open { context, parent, kind, began: now.unwrap_or_else(Instant::now) }
}

thread_local! {
    /// How many requests of the thread are not traced before the next one that is, and for which share.
    static LEFT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Whether the next request is one of the share, given by its bits, that is traced. Chance is asked for each that is,
/// and not for those between.
fn is_next(ratio: u64) -> bool {
    if f64::from_bits(ratio) <= 0.0 {
        return false;
    }
    let left = match LEFT.get() {
        (of, left) if of == ratio => left,
        _ => gap(ratio),
    };
    LEFT.set((ratio, left.checked_sub(1).unwrap_or_else(|| gap(ratio))));
    left == 0
}

/// How many in a row are not chosen if each is with this probability.
#[cold]
fn gap(ratio: u64) -> u64 {
    let chance = ((chance() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (chance.ln() / (-f64::from_bits(ratio)).ln_1p()) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use store::spans::{TraceFlags, remote};

    use super::*;

    #[test]
    fn as_many_are_traced_as_is_asked_for() {
        let config = Arc::new(Config::defaults());
        let spans = Spans::new(config.clone());
        assert!(spans.begin(&Parent::Caller(root()), None).is_none(), "nobody would take it");
        let (sender, ended) = channel();
        spans.go_to(Sink::new(move |span| sender.send(span).expect("the test goes on")));
        let count = || (0..10_000).filter(|_| spans.begin(&Parent::Unknown, None).is_some()).count();
        assert_eq!(count(), 0);
        config.otel_sample_ratio.set(0.25f64.to_bits());
        assert!((2000..3000).contains(&count()));
        config.otel_sample_ratio.set(1f64.to_bits());
        assert_eq!(count(), 10_000);
        let unsampled = remote(root().trace_id(), root().span_id(), TraceFlags::NOT_SAMPLED);
        let parent = Parent::Caller(unsampled.expect("it is valid"));
        assert!(spans.begin(&parent, None).is_none(), "who asks decides");
        assert!(spans.begin(&Parent::Untraced, None).is_none(), "its request decides");
        let context = root();
        config.otel_sample_ratio.set(0f64.to_bits());
        for (parent, kind) in [
            (Parent::Caller(context.clone()), SpanKind::Server),
            (Parent::Request(context.clone()), SpanKind::Internal),
        ] {
            let open = spans.begin(&parent, None).expect("who asks decides");
            assert_eq!((open.context.trace_id(), &open.parent), (context.trace_id(), &Some(context.clone())));
            assert_eq!(open.kind, kind);
            assert_ne!(open.context.span_id(), context.span_id());
            spans.end(open.end("GET", Instant::now()));
            assert!(spans.begin_wanted(&parent).is_none());
        }
        assert_eq!(ended.try_iter().count(), 2);
        for parent in [Parent::Unknown, Parent::Untraced] {
            assert_eq!(spans.begin_wanted(&parent).map(|open| open.kind), Some(SpanKind::Server));
        }
    }
}
