//! Spans of OpenTelemetry: what was done for a request that is traced, here and on the nodes that were asked for it.
//!
//! A thread knows the [`Scope`] of what it is doing, if that is traced: code that waits, asks a node or works there makes
//! a [`Part`] of it. Spans that have ended go to a [`Sink`], which no request waits for.

mod context;
mod span;

pub use context::{child, parse_traceparent, remote, root};
pub use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceFlags, TraceId};
pub use opentelemetry_sdk::trace::SpanData;
pub use span::{AttributeValue, CLIENT, Name, SERVER, Span};

use std::cell::Cell;
use std::ops::Range;
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::trace::{FutureExt, TraceContextExt};

/// Where spans go that have ended. It is a context without a span, of which those with one are made.
#[derive(Clone, Debug)]
pub struct Sink(Context);

/// What a context has beside its span: the sink of ended spans.
struct Taker(Box<dyn Fn(Span) + Send + Sync>);

impl Sink {
    /// Gives them to this one, which returns at once.
    pub fn new(take: impl Fn(Span) + Send + Sync + 'static) -> Sink {
        Sink(Context::new().with_value(Taker(Box::new(take))))
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        end(&self.0, span);
    }

    /// For what is done in the span with this context.
    pub fn scope(&self, span: SpanContext) -> Scope {
        Scope(self.0.with_remote_span_context(span))
    }
}

fn end(context: &Context, span: Span) {
    if let Some(Taker(take)) = context.get() {
        take(span);
    }
}

/// Something traced that is being done.
#[derive(Clone, Debug)]
pub struct Scope(Context);

impl Scope {
    /// That of what the present thread is doing.
    pub fn present() -> Option<Scope> {
        Context::map_current(|present| present.has_active_span().then(|| Scope(present.clone())))
    }

    /// Does something in it.
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        let _attached = self.0.clone().attach();
        work()
    }

    /// The same for something that waits.
    pub fn drive<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        work.with_context(self.0.clone())
    }

    /// A part of it that begins now.
    pub fn part(&self) -> Part {
        let whole = self.0.span();
        let scope = Scope(self.0.with_remote_span_context(child(whole.span_context())));
        Part { scope, parent: whole.span_context().clone(), began: Instant::now() }
    }
}

/// A part of something traced, which has begun.
#[derive(Debug)]
pub struct Part {
    scope: Scope,
    parent: SpanContext,
    began: Instant,
}

impl Part {
    /// Begins one of what the present thread is doing, if that is traced.
    pub fn begin() -> Option<Part> {
        Scope::present().map(|present| present.part())
    }

    /// For what is done in it.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Where it belongs.
    pub fn context(&self) -> SpanContext {
        self.scope.0.span().span_context().clone()
    }

    /// Its span, if it has ended now.
    pub fn span(&self, name: impl Into<Name>, kind: SpanKind) -> Span {
        self.span_of(name, kind, self.began..Instant::now())
    }

    /// The same with this beginning and end.
    pub fn span_of(&self, name: impl Into<Name>, kind: SpanKind, times: Range<Instant>) -> Span {
        Span::new(self.context(), Some(&self.parent), name, kind, times)
    }

    /// Ends a span of this part.
    pub fn end(self, span: Span) {
        end(&self.scope.0, span);
    }
}

/// Waits for something, which is a part of what the present thread is doing if that is traced. `attributes` describe it.
pub async fn within<F: Future>(
    name: &'static str,
    attributes: impl FnOnce(Span) -> Span,
    work: F,
) -> F::Output {
    let Some(part) = Part::begin() else { return work.await };
    let done = part.scope.drive(work).await;
    let span = attributes(part.span(name, SpanKind::Internal));
    part.end(span);
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
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn parts_belong_to_what_is_being_done() {
        let (sender, ended) = channel();
        let sink = Sink::new(move |span| sender.send(span.into_data()).expect("the test goes on"));
        assert!(Part::begin().is_none() && Scope::present().is_none());
        within("nobody asks", |span| span, async {}).await;
        let root = root();
        let scope = sink.scope(root.clone());
        let present = || Scope::present().map(|scope| scope.0.span().span_context().clone());
        let inner = within("outer", |span| span.with("at", 7u64), async {
            tokio::task::yield_now().await;
            within("inner", |span| span, async { present().expect("it is traced") }).await
        });
        let inner = scope.drive(inner).await;
        assert!(Scope::present().is_none(), "it is over");
        let taken: Vec<SpanData> = ended.try_iter().collect();
        let [first, second] = &taken[..] else { panic!("two spans and not {taken:?}") };
        assert_eq!((&*first.name, &first.span_context), ("inner", &inner));
        assert_eq!((&*second.name, second.parent_span_id), ("outer", root.span_id()));
        assert_eq!(first.parent_span_id, second.span_context.span_id());
        assert_eq!(first.span_context.trace_id(), root.trace_id());
        assert_eq!(second.attributes.iter().map(|fact| fact.key.as_str()).collect::<Vec<_>>(), ["at"]);
        let carried = scope.act(|| carried(async { present() }));
        assert_eq!(carried.await, Some(root));
    }
}
