//! Spans of OpenTelemetry: what was done for a request that is traced, here and on the nodes that were asked for it.
//!
//! A thread knows the [`Scope`] of what it is doing, if that is traced: whoever waits, asks a node or works there makes
//! a [`Part`] of it. Spans that have ended wait in an [`Outlet`] of bounded length; what does not fit is counted and
//! forgotten, so that nobody ever waits for a collector.

mod context;

pub use context::Context;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

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
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Span {
            context: parent.child(),
            parent: Some(parent.span),
            name: name.into(),
            side,
            began: unix.saturating_sub(took),
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

/// Where spans go that have ended.
#[derive(Debug)]
pub struct Outlet {
    queue: mpsc::Sender<Span>,
    dropped: AtomicU64,
}

impl Outlet {
    /// One, and what comes out of it.
    pub fn open() -> (Arc<Outlet>, mpsc::Receiver<Span>) {
        let (queue, taken) = mpsc::channel(QUEUE);
        (Arc::new(Outlet { queue, dropped: AtomicU64::new(0) }), taken)
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

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
    pub fn span(&self, name: impl Into<Cow<'static, str>>, side: Side) -> Span {
        self.span_since(self.began, name, side)
    }

    /// The same if it has begun only then.
    pub fn span_since(&self, began: Instant, name: impl Into<Cow<'static, str>>, side: Side) -> Span {
        let Part { scope, parent, .. } = self;
        Span {
            context: scope.context,
            parent: Some(*parent),
            ..Span::within(&scope.context, name, side, began)
        }
    }

    /// Tells of it.
    pub fn end(self, span: Span) {
        self.scope.outlet.end(span);
    }
}

/// Waits for something, which is a part of what the present thread is doing if that is traced. `facts` tell of it.
pub async fn within<F: Future>(name: &'static str, facts: impl FnOnce(Span) -> Span, work: F) -> F::Output {
    let Some(part) = Part::begin() else { return work.await };
    let done = part.scope.drive(work).await;
    let span = facts(part.span(name, Side::Internal));
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
    use super::*;

    #[tokio::test]
    async fn parts_belong_to_what_is_being_done() {
        let (outlet, mut taken) = Outlet::open();
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
        let mut next = || taken.try_recv().expect("a span");
        let (first, second) = (next(), next());
        assert_eq!((&*first.name, first.context.span), ("inner", inner.span));
        assert_eq!((&*second.name, second.parent), ("outer", Some(root.span)));
        assert_eq!((first.parent, first.context.trace), (Some(second.context.span), root.trace));
        assert_eq!(second.facts, [("at", Fact::Number(7))]);
        assert!(taken.try_recv().is_err());
        let carried = scope.act(|| carried(async { Scope::present().map(|scope| scope.context) }));
        assert_eq!(carried.await, Some(root));
        for _ in 0..QUEUE + 7 {
            scope.outlet.end(
                Span::within(&root, "GET", Side::Server, Instant::now()).with_reply(b"-WRONGTYPE no\r\n"),
            );
        }
        assert_eq!(outlet.dropped(), 7);
        let span = taken.try_recv().expect("a span");
        assert_eq!(span.error.as_deref(), Some("WRONGTYPE no"));
        assert!(span.facts.contains(&("error.type", Fact::Word("WRONGTYPE".into()))));
    }
}
