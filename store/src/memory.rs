//! How many bytes all shards hold, for those who may not lock them all to ask, and how many they may hold.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store_engine::evict::Policy;
use tokio::sync::Notify;

use crate::evict::{Demand, Evicted};
use crate::node::Node;

/// The account of a node. It is kept only while there is a limit: then every change of a shard's size is added
/// before the shard is unlocked.
#[derive(Default)]
pub(crate) struct Account {
    kept: AtomicBool,
    bytes: AtomicUsize,
}

impl Account {
    /// Bytes of all shards; 0 while no account is kept.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it is kept. Changes only while all shards are locked.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Begins with this sum, or ends.
    pub fn keep(&self, bytes: Option<usize>) {
        self.bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        self.kept.store(bytes.is_some(), Ordering::Relaxed);
    }

    /// A shard of `before` bytes has `after` now.
    pub fn changed(&self, before: usize, after: usize) {
        if before != after {
            self.bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

/// How much memory the data may use, and what is done about more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Bytes; 0: as many as there are.
    pub bytes: usize,
    /// Who may go.
    pub policy: Option<Policy>,
    /// Keys of a database looked at for each that goes.
    pub samples: usize,
    /// How long one command may evict keys.
    pub time: Duration,
}

/// The limit of a node.
#[derive(Default)]
pub(crate) struct Limiter {
    /// [`Limit::bytes`], to be asked before each command.
    bytes: AtomicUsize,
    limit: Mutex<Limit>,
    /// Told when the data exceeds the limit and nobody has the time to change that.
    short: Notify,
}

/// How long the background evicts keys in a row.
const BACKGROUND: Duration = Duration::from_millis(1);

impl Limiter {
    /// Whether there is a limit.
    pub fn is_set(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }
}

impl Node {
    /// Says how much memory the data may use.
    pub fn set_limit(&self, limit: Limit) {
        self.keep_account(limit.bytes > 0);
        *self.limiter.limit.lock() = limit;
        self.limiter.bytes.store(limit.bytes, Ordering::Relaxed);
        self.limiter.short.notify_one();
    }

    /// Whether commands that need memory have to be refused. Makes room first, if that is possible.
    pub fn is_full(&self, now_ms: u64) -> bool {
        self.exceeds_limit(0, now_ms)
    }

    /// Whether the data exceeds its limit by more than `slack_bytes` and no key can be evicted. Makes room first, if that is
    /// possible, also within the slack; the caller must not hold a shard.
    pub fn exceeds_limit(&self, slack_bytes: usize, now_ms: u64) -> bool {
        let bytes = self.limiter.bytes.load(Ordering::Relaxed);
        if bytes == 0 || self.accounted_bytes() <= bytes {
            return false;
        }
        let time = self.limiter.limit.lock().time;
        match self.keep_limit(time, now_ms) {
            Evicted::Enough => false,
            Evicted::More => {
                self.limiter.short.notify_one();
                false
            }
            Evicted::Nobody => self.accounted_bytes() > bytes.saturating_add(slack_bytes),
        }
    }

    /// Evicts keys for so long, if there are too many.
    fn keep_limit(&self, time: Duration, now_ms: u64) -> Evicted {
        let Limit { bytes, policy, samples, .. } = *self.limiter.limit.lock();
        let limit = if bytes == 0 { usize::MAX } else { bytes };
        self.evict(&Demand { limit, policy, samples, time }, now_ms)
    }

    /// Makes room for as long as it is polled, whenever a command has left that to be done.
    pub(crate) async fn make_room(&self, clock: impl Fn() -> u64) {
        loop {
            self.limiter.short.notified().await;
            while self.keep_limit(BACKGROUND, clock()) == Evicted::More {
                tokio::task::yield_now().await;
            }
        }
    }
}
