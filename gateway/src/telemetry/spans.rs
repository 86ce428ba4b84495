//! Which requests are traced: few, and none at the price of a load while nobody wants it.
//!
//! Whoever answers a request asks [`Spans::begin`].

pub use store::spans::{Batch, CLIENT, Context, Fact, Outlet, SERVER, Scope, Side, Span};

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use store::spans::chance;

use crate::config::Config;

/// What a session is asked as a part of, which decides whether that is traced.
#[derive(Clone, Copy, Debug, Default)]
pub enum Parent {
    /// Nothing that is known: a share of it is traced.
    #[default]
    Unknown,
    /// Something that whoever asks does, as they have told.
    Caller(Context),
    /// A request of HTTP or gRPC that is traced.
    Request(Context),
    /// Such a request that is not.
    Untraced,
}

impl Parent {
    /// As `traceparent` says, if it says something.
    pub fn of(text: Option<&[u8]>) -> Parent {
        text.and_then(Context::parse).map_or(Parent::Unknown, Parent::Caller)
    }

    fn context(&self) -> Option<&Context> {
        match self {
            Parent::Caller(context) | Parent::Request(context) => Some(context),
            Parent::Unknown | Parent::Untraced => None,
        }
    }
}

/// A request that is being traced.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its span.
    pub context: Context,
    parent: Option<[u8; 8]>,
    side: Side,
    began: Instant,
}

impl Open {
    /// Its span, if it ended then.
    pub fn end(&self, name: &str, ended: Instant) -> Span {
        Span::new(self.context, self.parent, name, self.side, self.began..ended)
    }
}

/// Which requests are traced, and where their spans go.
pub struct Spans {
    config: Arc<Config>,
    /// Nothing if there is no collector.
    outlet: Option<Arc<Outlet>>,
    /// Spans that the collector has taken.
    pub sent: AtomicU64,
    /// Spans that it has not.
    pub failed: AtomicU64,
    /// Exports that failed: of traces, and of metrics.
    pub exports_failed: [AtomicU64; 2],
}

impl Spans {
    /// As the configuration says.
    pub fn new(config: Arc<Config>) -> Spans {
        let has_collector = config.otel_endpoint.get() != "none";
        Spans {
            config,
            outlet: has_collector.then(Arc::default),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            exports_failed: Default::default(),
        }
    }

    /// Whether anything is ever traced.
    pub fn are_on(&self) -> bool {
        self.outlet.is_some()
    }

    /// Begins a request that is a part of this, if it is to be traced. It begins `now`, if somebody knows when that is.
    #[inline]
    pub fn begin(&self, parent: &Parent, now: Option<Instant>) -> Option<Open> {
        (self.outlet.is_some() && self.chooses(parent)).then(|| open(parent, now))
    }

    /// Whether it is to be traced.
    #[inline]
    fn chooses(&self, parent: &Parent) -> bool {
        match parent {
            Parent::Unknown => is_next(self.config.otel_sample_ratio.get()),
            Parent::Caller(parent) | Parent::Request(parent) => parent.sampled,
            Parent::Untraced => false,
        }
    }

    /// Begins a request that is a part of this and turns out to be one that is always traced: unless whoever asks has
    /// said that it is not.
    pub fn begin_wanted(&self, parent: &Parent) -> Option<Open> {
        (self.outlet.is_some() && parent.context().is_none()).then(|| open(parent, None))
    }

    /// For what is done in a span of this context.
    pub fn scope(&self, context: Context) -> Option<Scope> {
        self.outlet.as_ref().map(|outlet| Scope::new(context, outlet.clone()))
    }

    /// Where spans go, if there is a collector.
    pub fn outlet(&self) -> Option<Arc<Outlet>> {
        self.outlet.clone()
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: &Span) {
        if let Some(outlet) = &self.outlet {
            outlet.end(span);
        }
    }

    /// Takes spans that have ended.
    pub fn end_all(&self, spans: &Batch) {
        if let Some(outlet) = &self.outlet {
            outlet.end_all(spans);
        }
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.outlet.as_ref().map_or(0, |outlet| outlet.dropped())
    }
}

#[cold]
fn open(parent: &Parent, now: Option<Instant>) -> Open {
    // What is asked in a request is not asked by anybody else.
    let side = if matches!(parent, Parent::Request(_)) { Side::Internal } else { Side::Server };
    let parent = parent.context();
    let context = parent.map_or_else(Context::root, Context::child);
    Open { context, parent: parent.map(|parent| parent.span), side, began: now.unwrap_or_else(Instant::now) }
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
    use super::*;

    #[test]
    fn as_many_are_traced_as_is_asked_for() {
        let config = Arc::new(Config::defaults());
        assert!(
            Spans::new(config.clone()).begin(&Parent::Caller(Context::root()), None).is_none(),
            "nobody would take it"
        );
        config.otel_endpoint.set("http://127.0.0.1:1".into());
        let spans = Spans::new(config.clone());
        let count = || (0..10_000).filter(|_| spans.begin(&Parent::Unknown, None).is_some()).count();
        assert_eq!(count(), 0);
        config.otel_sample_ratio.set(0.25f64.to_bits());
        assert!((2000..3000).contains(&count()));
        config.otel_sample_ratio.set(1f64.to_bits());
        assert_eq!(count(), 10_000);
        let parent = Parent::Caller(Context { sampled: false, ..Context::root() });
        assert!(spans.begin(&parent, None).is_none(), "who asks decides");
        assert!(spans.begin(&Parent::Untraced, None).is_none(), "its request decides");
        let context = Context::root();
        config.otel_sample_ratio.set(0f64.to_bits());
        for (parent, side) in
            [(Parent::Caller(context), Side::Server), (Parent::Request(context), Side::Internal)]
        {
            let open = spans.begin(&parent, None).expect("who asks decides");
            assert_eq!((open.context.trace, open.parent), (context.trace, Some(context.span)));
            assert_eq!(open.side, side);
            assert_ne!(open.context.span, context.span);
            spans.end(&open.end("GET", Instant::now()));
            assert!(spans.begin_wanted(&parent).is_none());
        }
        assert_eq!(spans.outlet().and_then(|outlet| outlet.take()).map(|batch| batch.spans), Some(2));
        for parent in [Parent::Unknown, Parent::Untraced] {
            assert_eq!(spans.begin_wanted(&parent).map(|open| open.side), Some(Side::Server));
        }
    }
}
