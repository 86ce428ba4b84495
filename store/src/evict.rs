//! Room for new data: keys that a policy chooses by sampling go, the best of the last samples first.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use store_engine::discard::discard;
use store_engine::effect::Effect;
use store_engine::evict::Policy;
use store_engine::keyspace::Key;
use store_engine::notifications::class;
use store_engine::{DATABASES, Entry};

use crate::memory::{Candidate, Evictor, Hunt, Limit};
use crate::node::Node;
use crate::shard::ShardState;

/// Candidates that are remembered from one eviction to the next, as in Redis.
const POOL: usize = 16;
/// How far a sample looks for a key that may go, from where chance has put it.
const REACH: usize = 64;
/// Keys that a search without chance looks at while a shard is locked.
const STRIDE: usize = 1024;
/// Evictions between two looks at the clock, as in Redis.
const EVICTIONS_PER_CHECK: usize = 16;

/// What has to be done about memory.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Bytes of data that may stay.
    pub limit: usize,
    /// Which keys may be evicted; none, if there is no policy.
    pub policy: Option<Policy>,
    /// Keys of a database looked at for each that goes: `maxmemory-samples`.
    pub samples: usize,
    /// How long this may take.
    pub time: Duration,
}

/// What became of a [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The data fits.
    Enough,
    /// Time is up; there is more to do.
    More,
    /// The data does not fit, and no other key may be evicted.
    Exhausted,
}

/// How long the background evicts keys in a row.
const BACKGROUND: Duration = Duration::from_millis(1);

impl Node {
    /// Says how much memory the data may use.
    pub fn set_limit(&self, limit: Limit) {
        self.keep_account(limit.bytes > 0);
        *self.limiter.limit.lock() = limit;
        self.limiter.bytes.store(limit.bytes, Ordering::Relaxed);
        self.limiter.short.notify_one();
    }

    /// Whether there is a limit.
    pub fn limits_memory(&self) -> bool {
        self.limiter.bytes.load(Ordering::Relaxed) > 0
    }

    /// Bytes that the data may take, `usize::MAX` if there is no limit: no value can be larger.
    pub fn memory_limit(&self) -> usize {
        match self.limiter.bytes.load(Ordering::Relaxed) {
            0 => usize::MAX,
            bytes => bytes,
        }
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
            Evicted::Exhausted => self.accounted_bytes() > bytes.saturating_add(slack_bytes),
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

    /// Keeps an account of the bytes of all shards from now on, or no longer. [`Node::evict`] needs it.
    pub fn keep_account(&self, kept: bool) {
        let mut guards = self.lock_everything();
        if kept != self.account.is_kept() {
            let sum = kept.then(|| guards.iter_mut().map(|(_, shard)| shard.reported_bytes()).sum());
            self.account.keep(sum);
        }
    }

    fn evict_at(&self, shard: &mut ShardState, db: usize, at: usize) -> (Key, Entry) {
        let (key, entry) = shard.partition.databases[db].evict(at);
        self.notifier.publish_event(class::EVICTED, "evicted", db, &key);
        if self.journal.is_some() {
            shard.effects.push(db, &key, Effect::Remove);
            self.record(&mut shard.effects);
        }
        (key, entry)
    }

    /// Bytes of all keys and values with their overhead, without locking anything; 0 if no account is kept.
    pub fn accounted_bytes(&self) -> usize {
        self.account.bytes()
    }

    /// Evicts keys until the data fits. Keys with the mark of STICK stay, and so do those that a transaction holds.
    pub fn evict(&self, demand: &Demand, now_ms: u64) -> Evicted {
        let fits = || self.account.bytes() <= demand.limit;
        if fits() {
            return Evicted::Enough;
        }
        let Some(policy) = demand.policy else { return Evicted::Exhausted };
        // The task that evicts does so for all.
        let Some(mut evictor) = self.evictor.try_lock_for(demand.time) else { return Evicted::More };
        if evictor.policy.replace(policy) != Some(policy) {
            evictor.pool.clear();
        }
        let until = Instant::now() + demand.time;
        let mut evictions = 0;
        while !fits() {
            evictions += 1;
            if evictions % EVICTIONS_PER_CHECK == 0 && Instant::now() >= until {
                return Evicted::More;
            }
            if !evictor.samples(self, demand.samples, policy, now_ms) {
                match evictor.hunts(self, policy, until) {
                    Evicted::Enough => {}
                    other => return other,
                }
            }
        }
        Evicted::Enough
    }
}

impl Evictor {
    /// A number below `bound`, by SplitMix64.
    fn roll(&mut self, bound: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }

    /// Samples shards until a key is evicted; `false`: no shard had one to offer.
    fn samples(&mut self, node: &Node, samples: usize, policy: Policy, now_ms: u64) -> bool {
        for _ in 0..node.shards() {
            self.shard = (self.shard + 1) % node.shards();
            self.sample(node, samples, policy, now_ms);
            while let Some(best) = self.pool.pop() {
                if best.is_evicted(node, policy, now_ms) {
                    return true;
                }
            }
        }
        false
    }

    /// Adds keys of the present shard to the pool.
    fn sample(&mut self, node: &Node, samples: usize, policy: Policy, now_ms: u64) {
        let number = self.shard;
        let shard = node.shard(number).lock();
        for (db, space) in shard.partition.databases.iter().enumerate() {
            for _ in 0..samples.min(space.evictable(policy)) {
                let from = self.roll(space.len());
                let found = space.seek_evictable(from, REACH, policy, |key| is_held(&shard, db, key));
                if let Some(at) = found
                    && let Some(merit) = space.merit(at, policy, now_ms)
                    && let Some((key, _)) = space.pair_at(at)
                {
                    self.offer(merit, number, db, key);
                }
            }
        }
    }

    /// Puts a key into the pool, if it deserves that more than one of those in it.
    fn offer(&mut self, merit: u64, shard: usize, db: usize, key: &Key) {
        let index = self.pool.partition_point(|held| held.merit < merit);
        let full = self.pool.len() == POOL;
        let is_in = |held: &Candidate| (held.shard, held.db) == (shard, db) && held.key == *key;
        if full && index == 0 || self.pool.iter().any(is_in) {
            return;
        }
        let candidate = Candidate { merit, shard, db, key: key.clone() };
        if full {
            // The least deserving leaves.
            self.pool[..index].rotate_left(1);
            self.pool[index - 1] = candidate;
        } else {
            self.pool.insert(index, candidate);
        }
    }

    /// Looks at one key after the other until one is evicted.
    fn hunts(&mut self, node: &Node, policy: Policy, until: Instant) -> Evicted {
        let spaces = node.shards() * DATABASES;
        // The first place is seen from the middle on, and at last once more.
        while self.hunt.passed <= spaces {
            let Hunt { index, at, passed } = &mut self.hunt;
            let db = *index % DATABASES;
            let mut shard = node.shard(*index / DATABASES).lock();
            let space = &shard.partition.databases[db];
            if space.evictable(policy) == 0 || *at >= space.len() {
                *passed += 1;
                (*index, *at) = ((*index + 1) % spaces, 0);
                continue;
            }
            match space.seek_evictable(*at, STRIDE, policy, |key| is_held(&shard, db, key)) {
                None => *at += STRIDE,
                Some(found) => {
                    (*at, *passed) = (found, 0);
                    let (_, entry) = node.evict_at(&mut shard, db, found);
                    // Freed when the shard is unlocked again.
                    drop(shard);
                    let bytes = entry.value.bytes();
                    discard(entry, bytes);
                    return Evicted::Enough;
                }
            }
            if Instant::now() >= until {
                return Evicted::More;
            }
        }
        self.hunt.passed = 0;
        // A long call that has taken everything out will bring it back.
        let is_away = (0..node.shards()).any(|number| node.shard(number).lock().away.is_some());
        if is_away { Evicted::More } else { Evicted::Exhausted }
    }
}

/// Whether a transaction holds the key.
fn is_held(shard: &ShardState, db: usize, key: &[u8]) -> bool {
    !shard.locks.is_idle() && shard.locks.is_held(db, key)
}

impl Candidate {
    /// Evicts the key, unless it has gone, must stay, or was used meanwhile.
    fn is_evicted(&self, node: &Node, policy: Policy, now_ms: u64) -> bool {
        let mut shard = node.shard(self.shard).lock();
        // Time 0: an expired key is as good as another.
        let Some(at) = shard.partition.databases[self.db].find(&self.key, 0) else { return false };
        let merit = shard.partition.databases[self.db].merit(at, policy, now_ms);
        if merit.is_none_or(|merit| merit < self.merit) || is_held(&shard, self.db, &self.key) {
            return false;
        }
        let (_, entry) = node.evict_at(&mut shard, self.db, at);
        // Freed when the shard is unlocked again.
        drop(shard);
        let bytes = entry.value.bytes();
        discard(entry, bytes);
        true
    }
}
