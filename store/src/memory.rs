//! How many bytes all shards hold, for callers that may not lock them all to ask, and how many they may hold. What is done
//! about more is in [`crate::evict`].

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store_engine::DATABASES;
use store_engine::evict::Policy;
use store_engine::keyspace::{Key, Sticky};
use tokio::sync::Notify;

/// How many keys there are and what they take.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Keys by database.
    pub keys: [usize; DATABASES],
    /// Of these, keys with an expiry.
    pub expiring: [usize; DATABASES],
    /// Of these, keys with the mark of STICK.
    pub sticky: [Sticky; DATABASES],
    /// Bytes of all keys and values with their overhead.
    pub bytes: usize,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        for db in 0..DATABASES {
            self.keys[db] += other.keys[db];
            self.expiring[db] += other.expiring[db];
            self.sticky[db] += other.sticky[db];
        }
        self.bytes += other.bytes;
    }
}

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
    /// Which keys may be evicted.
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
    pub bytes: AtomicUsize,
    pub limit: Mutex<Limit>,
    /// Notified when the data exceeds the limit and no request has the time to change that.
    pub short: Notify,
}

impl Limiter {
    /// Whether there is a limit.
    pub fn is_set(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }
}

/// A key that may go.
pub(crate) struct Candidate {
    pub merit: u64,
    pub shard: usize,
    pub db: usize,
    pub key: Key,
}

/// What is remembered from one eviction to the next.
#[derive(Default)]
pub(crate) struct Evictor {
    pub policy: Option<Policy>,
    /// The best candidates are at the end.
    pub pool: Vec<Candidate>,
    /// The shard that was sampled last.
    pub shard: usize,
    pub dice: u64,
    pub hunt: Hunt,
}

/// A search without chance, for data of which hardly anything may go.
#[derive(Default)]
pub(crate) struct Hunt {
    /// A database of a shard: `shard * DATABASES + db`.
    pub index: usize,
    /// Position there.
    pub at: usize,
    /// Places seen to their end since anybody was found.
    pub passed: usize,
}
