//! Calls that found nothing and wait: which call waits for which key of a shard, first come first served.
//!
//! A key with waiters is changed in a [`crate::LocalTransaction`], which serves the waiters before it unlocks the key, so that
//! no other call comes between. A waiter is served by the first that claims it: the commit of a
//! transaction, its timeout, or its client's end.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use store_engine::keys::keys_of;
use store_engine::wait::{self, BlockingCall, Verdict, is_served_by};
use store_engine::{Args, Command, CommandError, Group, Protocol, Reply, Value};
use tokio::sync::{Notify, oneshot};

use crate::call::Call;
use crate::lock::{KeyRef, LockRequest, Mode, OwnedKey};

/// Waiters by their number, which grows.
type WaitQueue = BTreeMap<u64, Arc<Waiter>>;

/// The waiters for the keys of one shard.
#[derive(Default)]
pub(crate) struct Queues {
    by_key: hashbrown::HashMap<OwnedKey, WaitQueue, RandomState>,
}

impl Queues {
    /// Whether there are waiters.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether there are waiters for this key.
    pub fn awaits(&self, db: usize, key: &[u8]) -> bool {
        self.by_key.contains_key(&KeyRef(db, key))
    }

    /// All keys that are waited for.
    pub fn keys(&self) -> impl Iterator<Item = (usize, Box<[u8]>)> {
        self.by_key.keys().map(|OwnedKey(db, key)| (*db, key.clone()))
    }

    /// The first one behind number `after` whose waiting the value under this key, or that there is none, would end;
    /// and how.
    pub fn next(
        &self,
        db: usize,
        key: &[u8],
        after: u64,
        value: Option<&Value>,
        now_ms: u64,
    ) -> Option<(Arc<Waiter>, Verdict)> {
        let queue = self.by_key.get(&KeyRef(db, key))?;
        let behind = queue.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, waiter)| waiter);
        let mut ended = behind.filter_map(|waiter| match waiter.verdict(key, value, now_ms) {
            Verdict::Wait => None,
            verdict => Some((waiter.clone(), verdict)),
        });
        ended.next()
    }

    /// All waiters of the shard.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.by_key.values().flat_map(BTreeMap::values)
    }

    /// Lets those look for themselves that wait for something that must be there, and is gone without a call having
    /// removed it: it has expired.
    pub fn wake_orphaned(&self, is_gone: impl Fn(usize, &[u8]) -> bool) {
        for (OwnedKey(db, key), queue) in &self.by_key {
            let needs_key =
                |waiter: &&Arc<Waiter>| waiter.command.group == Group::Stream && waiter.command.is_write();
            let mut orphaned = queue.values().filter(needs_key).peekable();
            if orphaned.peek().is_some() && is_gone(*db, key) {
                orphaned.for_each(|waiter| waiter.wake());
            }
        }
    }

    /// Puts one into the queue of this key.
    pub fn join(&mut self, db: usize, key: &[u8], waiter: &Arc<Waiter>) {
        let queue = match self.by_key.get_mut(&KeyRef(db, key)) {
            Some(queue) => queue,
            None => self.by_key.entry(OwnedKey(db, key.into())).or_default(),
        };
        queue.insert(waiter.number, waiter.clone());
    }

    /// Takes one out of the queue of this key, if it is there.
    pub fn leave(&mut self, db: usize, key: &[u8], number: u64) {
        if let Some(queue) = self.by_key.get_mut(&KeyRef(db, key)) {
            queue.remove(&number);
            if queue.is_empty() {
                self.by_key.remove(&KeyRef(db, key));
            }
        }
    }
}

/// A call that waits.
pub struct Waiter {
    number: u64,
    command: &'static Command,
    items: Vec<Box<[u8]>>,
    db: usize,
    no_touch: bool,
    protocol: Protocol,
    /// Where the answer goes. The task that takes it out has to send it.
    answer: Mutex<Option<oneshot::Sender<Vec<u8>>>>,
    /// Notified when the waiter has to take its turn itself.
    wakeup: Notify,
    /// How many wait on this node.
    waiting: Arc<AtomicUsize>,
    /// For how long, in milliseconds, entries of streams have to be pending that it claims.
    claim_ms: Option<u64>,
    /// It is not to be served, only to be notified: its keys are on several nodes.
    notify_only: bool,
}

impl Waiter {
    pub(crate) fn new(
        number: u64,
        call: &Call<'_>,
        protocol: Protocol,
        waiting: Arc<AtomicUsize>,
        notify_only: bool,
    ) -> Waiter {
        Waiter {
            number,
            command: call.command,
            items: call.args.items().iter().map(|item| (*item).into()).collect(),
            db: call.db,
            no_touch: call.no_touch,
            protocol,
            answer: Mutex::default(),
            wakeup: Notify::new(),
            waiting,
            claim_ms: BlockingCall::of(call.command, call.args).claim_ms(),
            notify_only,
        }
    }

    /// For how long, in milliseconds, entries of streams have to be pending that it claims, if it does.
    pub(crate) fn claim_ms(&self) -> Option<u64> {
        self.claim_ms
    }

    /// When it can claim something of this value under one of its keys, in Unix milliseconds.
    pub(crate) fn claimable_ms(&self, key: &[u8], value: Option<&Value>) -> Option<u64> {
        let at = self.with_call_on(key, 0, |call| wait::claimable_ms(call.args, value));
        at.map(|at| at.max(0).cast_unsigned())
    }

    /// From now on it can be served, and is counted. Its reply goes to `answer`.
    pub(crate) fn begin(&self, answer: oneshot::Sender<Vec<u8>>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        *self.answer.lock() = Some(answer);
    }

    /// Waits until it has to look for itself.
    pub(crate) fn wakeup(&self) -> impl Future<Output = ()> {
        self.wakeup.notified()
    }

    /// Its place: an earlier waiter has a lower one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it serves itself when it is notified that something has come.
    pub(crate) fn is_notify_only(&self) -> bool {
        self.notify_only
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether it has no answer yet.
    pub fn is_waiting(&self) -> bool {
        self.answer.lock().is_some()
    }

    /// Ends the waiting with this reply; `false` if it was ended before.
    pub fn answer(&self, reply: Vec<u8>) -> bool {
        self.claim().is_some_and(|answer| answer.send(reply).is_ok())
    }

    pub(crate) fn claim(&self) -> Option<oneshot::Sender<Vec<u8>>> {
        let answer = self.answer.lock().take();
        if answer.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        answer
    }

    /// Lets it look for itself, with the patience for locks that others do not have for it.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Its call as if it had named no other key than this one to wait for.
    pub(crate) fn with_call_on<T>(&self, key: &[u8], now_ms: u64, run: impl FnOnce(&Call<'_>) -> T) -> T {
        let items: Vec<&[u8]> = self.items.iter().map(|item| &**item).collect();
        let narrowed = BlockingCall::of(self.command, Args::new(&items)).narrowed(key);
        let args = Args::new(&narrowed);
        let keys = keys_of(self.command, args).unwrap_or_default();
        let Waiter { command, db, no_touch, .. } = *self;
        run(&Call { command, args, keys: &keys, db, now_ms, no_touch })
    }

    /// What this value, or none, under one of its keys means to it.
    fn verdict(&self, key: &[u8], value: Option<&Value>, now_ms: u64) -> Verdict {
        if self.command.group == Group::Stream {
            return self.with_call_on(key, now_ms, |call| wait::verdict(call.args, value, now_ms));
        }
        let served = value.is_some_and(|value| is_served_by(self.command, value));
        if served { Verdict::Serve } else { Verdict::Wait }
    }

    /// Ends the waiting with an error, if it was not ended before.
    pub(crate) fn refuse(&self, error: &CommandError) {
        let mut out = Reply::new(self.protocol);
        out.error(error);
        self.answer(out.buf);
    }

    /// The keys it waits for, in its order.
    pub(crate) fn keys(&self) -> Vec<(usize, Box<[u8]>)> {
        let items: Vec<&[u8]> = self.items.iter().map(|item| &**item).collect();
        let blocking = BlockingCall::of(self.command, Args::new(&items));
        blocking.keys().iter().map(|key| (self.db, Box::from(*key))).collect()
    }

    /// Whether it may touch a key that `wanted` says this of.
    pub(crate) fn concerns(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        self.locks().iter().any(|request| wanted(&request.key))
    }

    /// Everything that it may touch.
    pub(crate) fn locks(&self) -> Vec<LockRequest> {
        let items: Vec<&[u8]> = self.items.iter().map(|item| &**item).collect();
        let keys = keys_of(self.command, Args::new(&items)).unwrap_or_default();
        let request = |at: usize| LockRequest { db: self.db, key: items[at].into(), mode: Mode::Exclusive };
        keys.iter().map(|(at, _)| request(*at)).collect()
    }
}
