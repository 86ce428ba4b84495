//! Spans of OpenTelemetry: what was done for a request that is traced, here and on the nodes that were asked for it.
//!
//! A thread knows the [`Scope`] of what it is doing, if that is traced: whoever waits, asks a node or works there makes
//! a [`Part`] of it. Spans that have ended wait in an [`Outlet`] of bounded length; what does not fit is counted and
//! forgotten, so that nobody ever waits for a collector.

mod context;
pub mod message;
mod outlet;
mod span;

pub use context::Context;
pub use outlet::{Batch, Outlet};
pub use span::{CLIENT, Fact, SERVER, Side, Span};

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// Something traced that is being done.
#[derive(Clone, Debug)]
pub struct Scope {
    context: Context,
    outlet: Arc<Outlet>,
}

thread_local! {
    static PRESENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Ends what is being done in a scope, also if it panics.
struct End(Option<Scope>);

impl Drop for End {
    fn drop(&mut self) {
        PRESENT.set(self.0.take());
    }
}

impl Scope {
    /// Of the span with this context.
    pub fn new(context: Context, outlet: Arc<Outlet>) -> Scope {
        Scope { context, outlet }
    }

    /// That of what the present thread is doing.
    pub fn present() -> Option<Scope> {
        PRESENT.with_borrow(Clone::clone)
    }

    /// Does something in it.
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        let _end = End(PRESENT.replace(Some(self.clone())));
        work()
    }

    /// The same for something that waits.
    pub async fn drive<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|context| self.act(|| work.as_mut().poll(context))).await
    }

    /// A part of it that begins now.
    pub fn part(&self) -> Part {
        let scope = Scope { context: self.context.child(), outlet: self.outlet.clone() };
        Part { scope, parent: self.context.span, began: Instant::now() }
    }
}

/// A part of something traced, which has begun.
#[derive(Debug)]
pub struct Part {
    scope: Scope,
    parent: [u8; 8],
    began: Instant,
}

impl Part {
    /// Begins one of what the present thread is doing, if that is traced.
    pub fn begin() -> Option<Part> {
        PRESENT.with_borrow(|present| present.as_ref().map(Scope::part))
    }

    /// For what is done in it.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Where it belongs.
    pub fn context(&self) -> Context {
        self.scope.context
    }

    /// Its span, if it has ended now.
    pub fn span(&self, name: &str, side: Side) -> Span {
        self.span_of(name, side, self.began..Instant::now())
    }

    /// The same with this beginning and end.
    pub fn span_of(&self, name: &str, side: Side, times: Range<Instant>) -> Span {
        Span::new(self.scope.context, Some(self.parent), name, side, times)
    }

    /// Tells of it.
    pub fn end(self, span: &Span) {
        self.scope.outlet.end(span);
    }
}

/// Waits for something, which is a part of what the present thread is doing if that is traced. `facts` tell of it.
pub async fn within<F: Future>(name: &'static str, facts: impl FnOnce(Span) -> Span, work: F) -> F::Output {
    let Some(part) = Part::begin() else { return work.await };
    let done = part.scope.drive(work).await;
    let span = facts(part.span(name, Side::Internal));
    part.end(&span);
    done
}

/// Work for another task, in the scope of this one.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let scope = Scope::present();
    async move {
        match scope {
            Some(scope) => scope.drive(work).await,
            None => work.await,
        }
    }
}

thread_local! {
    /// State of the random source of the thread.
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// Random bits, which need not be secret.
pub fn chance() -> u64 {
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

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
    use prost::Message as _;

    use super::*;

    #[tokio::test]
    async fn parts_belong_to_what_is_being_done() {
        let outlet = Arc::new(Outlet::default());
        assert!(Part::begin().is_none() && Scope::present().is_none());
        within("nobody asks", |span| span, async {}).await;
        let root = Context::root();
        let scope = Scope::new(root, outlet.clone());
        let inner = within("outer", |span| span.with("at", 7u64), async {
            tokio::task::yield_now().await;
            within("inner", |span| span, async { Scope::present().expect("it is traced").context }).await
        });
        let inner = scope.drive(inner).await;
        assert!(Scope::present().is_none(), "it is over");
        let batch = outlet.take().expect("two spans");
        let taken = ScopeSpans::decode(batch.message.as_bytes()).expect("a message").spans;
        let [first, second] = &taken[..] else { panic!("two spans and not {taken:?}") };
        assert_eq!((&*first.name, &*first.span_id), ("inner", &inner.span[..]));
        assert_eq!((&*second.name, &*second.parent_span_id), ("outer", &root.span[..]));
        assert_eq!((&first.parent_span_id, &*first.trace_id), (&second.span_id, &root.trace[..]));
        assert_eq!(second.attributes.iter().map(|fact| &*fact.key).collect::<Vec<_>>(), ["at"]);
        let carried = scope.act(|| carried(async { Scope::present().map(|scope| scope.context) }));
        assert_eq!(carried.await, Some(root));
    }
}
