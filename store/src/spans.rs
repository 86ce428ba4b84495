//! Spans of OpenTelemetry: what was done for a request that is traced, here and on the nodes that were asked for it.
//!
//! A thread knows the [`Scope`] of what it is doing, if that is traced: whoever waits, asks a node or works there makes
//! a [`Part`] of it. Spans that have ended wait in an [`Outlet`] of bounded length; what does not fit is counted and
//! forgotten, so that nobody ever waits for a collector.

mod context;

pub use context::Context;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::Notify;

/// Spans that may wait for the collector.
const QUEUE: usize = 8192;
/// Spans of one export: what it costs beside them is a fraction of what they cost.
const BATCH: usize = 512;
/// Facts for which there is room at once: those of a request, and of its error.
const FACTS: usize = 8;

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
    /// A word. Most are so short that they take no memory of their own.
    Word(SmolStr),
    /// A number.
    Number(i64),
}

impl From<&str> for Fact {
    fn from(word: &str) -> Fact {
        Fact::Word(word.into())
    }
}

impl From<SmolStr> for Fact {
    fn from(word: SmolStr) -> Fact {
        Fact::Word(word)
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
    pub name: SmolStr,
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
    pub fn within(parent: &Context, name: impl Into<SmolStr>, side: Side, began: Instant) -> Span {
        Span::new(parent.child(), Some(parent.span), name, side, began)
    }

    /// One of this context and parent that began then, and has ended now.
    pub fn new(
        context: Context,
        parent: Option<[u8; 8]>,
        name: impl Into<SmolStr>,
        side: Side,
        began: Instant,
    ) -> Span {
        let took = began.elapsed();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = unix.saturating_sub(took);
        Span { context, parent, name: name.into(), side, began, took, facts: Vec::new(), error: None }
    }

    /// A part of `parent` that began at this Unix time and took so long.
    pub fn past(
        parent: &Context,
        name: impl Into<SmolStr>,
        side: Side,
        began: Duration,
        took: Duration,
    ) -> Span {
        let (context, parent) = (parent.child(), Some(parent.span));
        Span { context, parent, name: name.into(), side, began, took, facts: Vec::new(), error: None }
    }

    /// With a fact more.
    pub fn with(mut self, name: &'static str, fact: impl Into<Fact>) -> Span {
        if self.facts.is_empty() {
            self.facts.reserve(FACTS);
        }
        self.facts.push((name, fact.into()));
        self
    }

    /// With the error that this reply is, if it is one: its code word becomes the type.
    pub fn with_reply(mut self, reply: &[u8]) -> Span {
        if let Some(text) = reply.strip_prefix(b"-") {
            let end = text.iter().position(|byte| *byte == b'\r').unwrap_or(text.len()).min(256);
            let text = String::from_utf8_lossy(&text[..end]).into_owned();
            let code = SmolStr::from(text.split(' ').next().unwrap_or_default());
            self.facts.push(("db.response.status_code", code.clone().into()));
            self.facts.push(("error.type", code.into()));
            self.error = Some(text);
        }
        self
    }
}

/// Where spans go that have ended.
#[derive(Debug, Default)]
pub struct Outlet {
    queue: Mutex<VecDeque<Span>>,
    /// There are enough for an export.
    enough: Notify,
    dropped: AtomicU64,
}

impl Outlet {
    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        let mut queue = self.queue.lock();
        let count = queue.len();
        if count < QUEUE {
            queue.push_back(span);
        }
        drop(queue);
        if count >= QUEUE {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if count + 1 == BATCH {
            self.enough.notify_one();
        }
    }

    /// Waits until there are enough spans for an export; for the only one who takes them.
    pub async fn filled(&self) {
        while self.queue.lock().len() < BATCH {
            self.enough.notified().await;
        }
    }

    /// Moves spans to this empty list, oldest first, as many as an export may have.
    pub fn take(&self, batch: &mut Vec<Span>) {
        let mut queue = self.queue.lock();
        let count = queue.len().min(BATCH);
        batch.extend(queue.drain(..count));
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
    pub fn span(&self, name: impl Into<SmolStr>, side: Side) -> Span {
        self.span_since(self.began, name, side)
    }

    /// The same if it has begun only then.
    pub fn span_since(&self, began: Instant, name: impl Into<SmolStr>, side: Side) -> Span {
        Span::new(self.scope.context, Some(self.parent), name, side, began)
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
    use std::task::Poll;

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
        let mut taken = Vec::new();
        outlet.take(&mut taken);
        let [first, second] = &taken[..] else { panic!("two spans and not {taken:?}") };
        assert_eq!((&*first.name, first.context.span), ("inner", inner.span));
        assert_eq!((&*second.name, second.parent), ("outer", Some(root.span)));
        assert_eq!((first.parent, first.context.trace), (Some(second.context.span), root.trace));
        assert_eq!(second.facts, [("at", Fact::Number(7))]);
        let carried = scope.act(|| carried(async { Scope::present().map(|scope| scope.context) }));
        assert_eq!(carried.await, Some(root));
        let failed =
            Span::within(&root, "GET", Side::Server, Instant::now()).with_reply(b"-WRONGTYPE no\r\n");
        assert_eq!(failed.error.as_deref(), Some("WRONGTYPE no"));
        assert!(failed.facts.contains(&("error.type", Fact::Word("WRONGTYPE".into()))));
    }

    #[tokio::test]
    async fn spans_are_taken_in_batches_and_what_finds_no_room_is_counted() {
        let outlet = Outlet::default();
        let span = |number: usize| {
            let span = Span::within(&Context::root(), "GET", Side::Server, Instant::now());
            span.with("number", number)
        };
        (0..BATCH - 1).for_each(|number| outlet.end(span(number)));
        let mut filled = pin!(outlet.filled());
        let is_filled = poll_fn(|context| Poll::Ready(filled.as_mut().poll(context).is_ready()));
        assert!(!is_filled.await);
        (BATCH - 1..QUEUE + 7).for_each(|number| outlet.end(span(number)));
        filled.await;
        assert_eq!(outlet.dropped(), 7);
        for number in (0..QUEUE).step_by(BATCH) {
            outlet.filled().await;
            let mut batch = Vec::new();
            outlet.take(&mut batch);
            assert_eq!((batch.len(), &batch[0].facts[0].1), (BATCH, &Fact::from(number)));
        }
    }
}
