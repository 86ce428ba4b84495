//! Which requests are traced: few, and none at the price of a load while nobody wants it.
//!
//! Whoever answers a request asks [`Spans::begin`].

pub use store::spans::{Batch, Context, Fact, Outlet, Scope, Side, Span};

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use store::spans::chance;

use crate::config::Config;

/// A request that is being traced.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its span.
    pub context: Context,
    parent: Option<[u8; 8]>,
    began: Instant,
}

impl Open {
    /// Its span, if it ended then.
    pub fn end(&self, name: &str, ended: Instant) -> Span {
        Span::new(self.context, self.parent, name, Side::Server, self.began..ended)
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

    /// Begins a request that came with this context, if it is to be traced. It begins `now`, if somebody knows when that
    /// is.
    #[inline]
    pub fn begin(&self, parent: Option<&Context>, now: Option<Instant>) -> Option<Open> {
        (self.outlet.is_some() && self.chooses(parent)).then(|| open(parent, now))
    }

    /// Whether it is to be traced.
    #[inline]
    fn chooses(&self, parent: Option<&Context>) -> bool {
        match parent {
            Some(parent) => parent.sampled,
            None => is_next(self.config.otel_sample_ratio.get()),
        }
    }

    /// Begins a request that came with this context and turns out to be one that is always traced: unless whoever
    /// asks has said that it is not.
    pub fn begin_wanted(&self, parent: Option<&Context>) -> Option<Open> {
        (self.outlet.is_some() && parent.is_none()).then(|| open(None, None))
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
fn open(parent: Option<&Context>, now: Option<Instant>) -> Open {
    let context = parent.map_or_else(Context::root, Context::child);
    Open { context, parent: parent.map(|parent| parent.span), began: now.unwrap_or_else(Instant::now) }
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
            Spans::new(config.clone()).begin(Some(&Context::root()), None).is_none(),
            "nobody would take it"
        );
        config.otel_endpoint.set("http://127.0.0.1:1".into());
        let spans = Spans::new(config.clone());
        let count = || (0..10_000).filter(|_| spans.begin(None, None).is_some()).count();
        assert_eq!(count(), 0);
        config.otel_sample_ratio.set(0.25f64.to_bits());
        assert!((2000..3000).contains(&count()));
        config.otel_sample_ratio.set(1f64.to_bits());
        assert_eq!(count(), 10_000);
        let parent = Context { sampled: false, ..Context::root() };
        assert!(spans.begin(Some(&parent), None).is_none(), "who asks decides");
        let parent = Context::root();
        config.otel_sample_ratio.set(0f64.to_bits());
        let open = spans.begin(Some(&parent), None).expect("who asks decides");
        assert_eq!((open.context.trace, open.parent), (parent.trace, Some(parent.span)));
        assert_ne!(open.context.span, parent.span);
        spans.end(&open.end("GET", Instant::now()));
        assert_eq!(spans.outlet().and_then(|outlet| outlet.take()).map(|batch| batch.spans), Some(1));
        assert!(spans.begin_wanted(Some(&parent)).is_none() && spans.begin_wanted(None).is_some());
    }
}
