//! The node: its shards, and commands that are no part of a transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use store_engine::command::scan;
use store_engine::ctx::partition_of;
use store_engine::discard::discard;
use store_engine::effect::Effect;
use store_engine::hyperloglog::SparseLimit;
use store_engine::keyspace::{Counts, Expired};
use store_engine::notifications::{Notification, class};
use store_engine::work;
use store_engine::{Aging, CommandError, Ctx, Effects, Partition, Partitions, Reply, Routing, UndoLog};

use crate::call::{Call, is_long, is_long_on, mode_of, run, run_in};
use crate::invalidations::{InvalidationListener, Invalidations};
use crate::journal::{Failure, Journal, misconf};
use crate::latency::Times;
use crate::lock::{Mode, TxnId};
use crate::memory::{Account, Evictor, Limiter, Usage};
use crate::notify::{Audience, Notifier, OF_EXPIRY};
use crate::shard::{Guards, Shard, ShardState, partitions_of};

/// Records of the catalog by name.
pub(crate) type Catalog = Mutex<BTreeMap<Vec<u8>, Arc<[u8]>>>;

/// A node's shards.
pub struct Node {
    shards: Box<[Shard]>,
    next_txn: AtomicU64,
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) account: Arc<Account>,
    pub(crate) evictor: Mutex<Evictor>,
    pub(crate) limiter: Limiter,
    pub(crate) journal: Option<Journal>,
    pub(crate) catalog: Catalog,
    pub(crate) notifier: Notifier,
    /// What [`Node::hold_expired`] said.
    holds_expired: AtomicBool,
    /// How many keys have expired that are not recorded yet.
    expired: Arc<AtomicUsize>,
    /// Held by who records them.
    recording_expired: Mutex<()>,
    pub(crate) invalidations: Arc<Invalidations>,
    /// What had happened to keys at the last CONFIG RESETSTAT.
    forgotten: Mutex<Counts>,
    /// Whether a snapshot is being read.
    pub(crate) has_snapshot: AtomicBool,
    /// How long it was waited for locks that were not free.
    pub lock_waits: Times,
}

impl Node {
    /// An empty node with `shards` shards, at least one, that keeps its data in memory only.
    pub fn new(shards: usize) -> Arc<Node> {
        let partitions = (0..shards.max(1)).map(|_| Partition::default()).collect();
        Arc::new(Node::with(partitions, None))
    }

    /// A node with this data; `journal` is where its changes go.
    pub(crate) fn with(partitions: Vec<Partition>, journal: Option<Journal>) -> Node {
        let (account, invalidations) = (Arc::default(), Arc::default());
        let shard = |partition| Shard::new(partition, &account, &invalidations);
        Node {
            shards: partitions.into_iter().map(shard).collect(),
            next_txn: AtomicU64::new(1),
            waiting: Arc::default(),
            account,
            evictor: Mutex::default(),
            limiter: Limiter::default(),
            journal,
            catalog: Catalog::default(),
            notifier: Notifier::default(),
            holds_expired: AtomicBool::new(false),
            expired: Arc::default(),
            recording_expired: Mutex::default(),
            invalidations,
            forgotten: Mutex::default(),
            has_snapshot: AtomicBool::new(false),
            lock_waits: Times::default(),
        }
    }

    /// Where changes are written down, if they are.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Whether the node does not lead its group of replicas any more.
    pub fn is_deposed(&self) -> bool {
        self.journal().is_some_and(Journal::is_deposed)
    }

    /// Refuses a change while the disk cannot be written.
    pub fn refuse_while_failing(&self) -> Result<(), CommandError> {
        match self.journal().and_then(|journal| journal.failure()) {
            None => Ok(()),
            Some(failure) => Err(misconf(&failure)),
        }
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn shard(&self, number: usize) -> &Shard {
        &self.shards[number]
    }

    /// The shard that `key` lives in.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        if self.shards.len() == 1 { 0 } else { partition_of(key, self.shards.len()) }
    }

    pub(crate) fn next_txn(&self) -> TxnId {
        self.next_txn.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `call` as a transaction of its own, unless a running one holds its locks or it could serve a call that waits for
    /// a key.
    ///
    /// `Some(true)`: done; `Some(false)`: done, the reply is an error; `None`: nothing has happened,
    /// [`crate::LocalTransaction`] is the way.
    pub fn try_execute(&self, call: &Call<'_>, seed: &mut u64, out: &mut Reply) -> Option<bool> {
        match call.command.routing.of(call.args) {
            Routing::Anywhere => {
                Some(run(call, Partitions::Some { held: Vec::new(), total: 1 }, seed, None, None, out))
            }
            Routing::ByKey => match call.keys {
                [(at, access)] => {
                    let key = call.args[*at];
                    let mode = mode_of(*access);
                    let mut shard = self.shard(self.shard_of(key)).lock();
                    if !shard.allows(call.db, key, mode) || is_long_on(call, &shard.partition) {
                        return None;
                    }
                    let shared = mode == Mode::Shared && shard.locks.is_held(call.db, key);
                    let ShardState { partition, effects, .. } = &mut *shard;
                    let kept = self.journal.is_some().then_some(&mut *effects);
                    let one = Partitions::One(partition);
                    let done =
                        self.run_and_publish(call, one, shared, seed, None, kept, &mut Vec::new(), out);
                    self.record(effects);
                    Some(done)
                }
                keys if work::is_long_by_itself(call.args, keys) => None,
                _ => {
                    let mut guards = self.lock_shards_of(call);
                    let mut shared = false;
                    let free = call.keys().all(|(key, mode)| {
                        let number = self.shard_of(key);
                        let at = guards.binary_search_by_key(&number, |(held, _)| *held);
                        let shard = &guards[at.expect("the shard of every key is locked")].1;
                        shared |= mode == Mode::Shared && shard.locks.is_held(call.db, key);
                        shard.allows(call.db, key, mode)
                    });
                    let runs = free && !self.is_long_in(&guards, call);
                    runs.then(|| self.run_alone(&mut guards, call, shared, seed, out))
                }
            },
            Routing::Paged if self.try_page(call, seed, out) => Some(true),
            Routing::Everywhere | Routing::Paged | Routing::ByKeyUnless(_) => {
                let mut guards = self.lock_everything();
                let writes = call.command.is_write();
                let serves_nobody = |shard: &ShardState| !writes || shard.queues.is_empty();
                let free = guards.iter().all(|(_, shard)| shard.locks.is_idle() && serves_nobody(shard));
                let runs = free && !self.is_long_in(&guards, call);
                runs.then(|| self.run_alone(&mut guards, call, false, seed, out))
            }
        }
    }

    /// Runs a step of SCAN that ends within one shard, and disturbs no other.
    fn try_page(&self, call: &Call<'_>, seed: &mut u64, out: &mut Reply) -> bool {
        let Some(page) = scan::page(call.args, self.shards()) else { return false };
        let mut shard = self.shard(page.partition).lock();
        let len = shard.partition.databases[call.db].len();
        if !shard.locks.is_idle() || !page.ends_within(len) {
            return false;
        }
        let held = vec![(page.partition, &mut shard.partition)];
        let some = Partitions::Some { held, total: self.shards() };
        self.run_and_publish(call, some, false, seed, None, None, &mut Vec::new(), out)
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Locks the shards of the call's keys, ascending, each once.
    pub(crate) fn lock_shards_of(&self, call: &Call<'_>) -> Guards<'_> {
        let mut numbers: SmallVec<[usize; 8]> = call.keys().map(|(key, _)| self.shard_of(key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.lock_shards(&numbers)
    }

    /// Locks shards, whose numbers ascend.
    pub(crate) fn lock_shards(&self, numbers: &[usize]) -> Guards<'_> {
        numbers.iter().map(|number| (*number, self.shard(*number).lock())).collect()
    }

    pub(crate) fn lock_everything(&self) -> Guards<'_> {
        self.shards.iter().enumerate().map(|(number, shard)| (number, shard.lock())).collect()
    }

    /// Whether a call is long at present.
    pub(crate) fn is_long(&self, call: &Call<'_>) -> bool {
        call.command.routing.of(call.args) != Routing::ByKey
            || self.is_long_in(&self.lock_shards_of(call), call)
    }

    /// Whether a call is long; `guards` are the locked shards of its keys, or all.
    pub(crate) fn is_long_in(&self, guards: &Guards<'_>, call: &Call<'_>) -> bool {
        let partition_of = |key: &[u8]| {
            let number = self.shard_of(key);
            let at = guards.binary_search_by_key(&number, |(held, _)| *held);
            &guards[at.expect("the shard of every key is locked")].1.partition
        };
        let keys_total = || guards.iter().map(|(_, shard)| shard.partition.databases[call.db].len()).sum();
        is_long(call, partition_of, keys_total)
    }

    /// Runs a call that is a transaction of its own over several locked shards.
    fn run_alone(
        &self,
        guards: &mut Guards<'_>,
        call: &Call<'_>,
        shared: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        let mut effects = Effects::default();
        let kept = self.journal.is_some().then_some(&mut effects);
        let done = self.run_locked(guards, call, shared, seed, None, kept, &mut Vec::new(), out);
        self.record(&mut effects);
        done
    }

    /// Commits effects: they become a record of the journal. What they are about is still locked, so that records
    /// about the same key stand in the order of its changes.
    pub(crate) fn record(&self, effects: &mut Effects) {
        if let Some(journal) = &self.journal
            && !effects.is_empty()
        {
            journal.append(effects);
        }
    }

    /// From now on keys that expire are recorded.
    pub(crate) fn keep_expired(&self) {
        for shard in &self.shards {
            let databases = &mut shard.lock().partition.databases;
            databases.iter_mut().for_each(|space| space.keep_expired(&self.expired));
        }
    }

    /// Records in the journal that keys have expired, or fields of them. Their time is in the journal already; but the checkpoint is to
    /// forget them, and neither a clock that is set back nor a new leader with another clock must bring them back.
    ///
    /// The record has the time of the key, not that of this clock: a transaction may have seen the later time of another
    /// node, and the key would come back until this clock has caught up.
    pub(crate) fn record_expired(&self) {
        if self.expired.load(Ordering::Acquire) == 0 {
            return;
        }
        // Until this is released, what another one has taken may not be recorded.
        let _recording = self.recording_expired.lock();
        let mut effects = Effects::default();
        for number in 0..self.shards() {
            let (mut shard, mut count) = (self.shard(number).lock(), 0);
            for (db, space) in shard.partition.databases.iter_mut().enumerate() {
                for Expired { key, field, expire_at_ms } in space.take_expired() {
                    let effect = match &field {
                        Some(field) => Effect::HashExpired(field, expire_at_ms),
                        None => Effect::Expired(expire_at_ms),
                    };
                    effects.push(db, &key, effect);
                    count += 1;
                }
            }
            self.record(&mut effects);
            self.expired.fetch_sub(count, Ordering::Release);
        }
    }

    /// Waits until all that an answer may depend on is kept as the durability promises; with replicas also that keys have expired
    /// which the answer does not show.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if journal.group().is_some() {
            self.record_expired();
        }
        journal.settle(true).await
    }

    /// Runs `call` over several locked shards. Of a transaction of several calls the events are left in `events`.
    #[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
    pub(crate) fn run_locked(
        &self,
        guards: &mut Guards<'_>,
        call: &Call<'_>,
        shared: bool,
        seed: &mut u64,
        undo: Option<&mut UndoLog>,
        effects: Option<&mut Effects>,
        events: &mut Vec<Notification>,
        out: &mut Reply,
    ) -> bool {
        let partitions = match &mut guards[..] {
            [(_, shard)] => Partitions::One(&mut shard.partition),
            several => partitions_of(several, self.shards.len()),
        };
        self.run_and_publish(call, partitions, shared, seed, undo, effects, events, out)
    }

    /// [`run`], and publishes its events. With an undo log the events stay in `events` until the commit. Keys that are `shared`
    /// are not removed when they have expired: for another transaction, whose time stands still, they may be alive.
    #[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
    #[inline(always)] // `partitions` would be moved.
    pub(crate) fn run_and_publish(
        &self,
        call: &Call<'_>,
        partitions: Partitions<'_>,
        shared: bool,
        seed: &mut u64,
        undo: Option<&mut UndoLog>,
        effects: Option<&mut Effects>,
        events: &mut Vec<Notification>,
        out: &mut Reply,
    ) -> bool {
        let is_alone = undo.is_none();
        let mut noted = self.notifier.key_actions();
        let key_actions = noted.as_mut();
        let work = out.work();
        let mut ctx = Ctx {
            partitions,
            db: call.db,
            now_ms: call.now_ms,
            seed,
            undo,
            effects,
            key_actions,
            work: &work,
            out,
        };
        if shared {
            ctx.partitions.hold_expired(call.db, true);
        }
        let done = ctx.watched(|ctx| run_in(ctx, call));
        if shared {
            ctx.partitions.hold_expired(call.db, self.holds_expired.load(Ordering::Relaxed));
        }
        if let Some(key_actions) = ctx.key_actions {
            self.notifier.publish_expired_within(&mut ctx.partitions, ctx.undo.as_deref(), events);
            key_actions.take_events(call.command, call.args, self.notifier.classes(), events);
            if is_alone {
                self.notifier.publish(events);
            }
        }
        done
    }

    /// Raises `flag` when `key` next changes and that stays: WATCH.
    pub fn watch(&self, db: usize, key: &[u8], now_ms: u64, flag: &Arc<AtomicBool>) {
        self.refresh(db, key, now_ms);
        let mut shard = self.shard(self.shard_of(key)).lock();
        shard.partition.watch(db, key, flag.clone());
    }

    /// Whether `key` has expired and was still stored. It is removed then, and its watchers are notified, unless a transaction
    /// holds it: for that transaction, whose time stands still, it may be alive. The same is done to fields of a hash.
    pub fn refresh(&self, db: usize, key: &[u8], now_ms: u64) -> bool {
        let mut shard = self.shard(self.shard_of(key)).lock();
        let overdue = shard.partition.databases[db].is_overdue(key, now_ms);
        if shard.locks.is_held(db, key) {
            return overdue;
        }
        let has_fields = shard.partition.databases[db].has_overdue_fields(key, now_ms);
        if overdue || has_fields {
            shard.partition.databases[db].find(key, now_ms);
            shard.partition.databases[db].refresh_fields(key, now_ms);
            self.notifier.publish_expired(&mut Partitions::One(&mut shard.partition));
        }
        overdue
    }

    /// Takes back a [`Node::watch`].
    pub fn unwatch(&self, db: usize, key: &[u8], flag: &Arc<AtomicBool>) {
        let mut shard = self.shard(self.shard_of(key)).lock();
        shard.partition.unwatch(db, key, flag);
    }

    /// Removes expired keys from one place of each database of one shard. Whether there may be more. Keys in use by a
    /// transaction stay.
    pub fn sweep(&self, shard: usize, now_ms: u64) -> bool {
        let mut removed = Vec::new();
        let mut guard = self.shard(shard).lock();
        let shard = &mut *guard;
        let ShardState { partition, locks, queues, .. } = shard;
        let mut more = false;
        for (db, space) in partition.databases.iter_mut().enumerate() {
            let veto = |key: &[u8]| !locks.is_idle() && locks.is_held(db, key);
            more |= space.sweep(now_ms, veto, &mut removed);
        }
        let is_gone = |db: usize, key: &[u8]| partition.databases[db].peek(key, now_ms).is_none();
        queues.wake_orphaned(is_gone);
        if self.notifier.classes() != 0 {
            self.notifier.publish_expired(&mut Partitions::One(partition));
        }
        if !removed.is_empty() {
            // Freed when the shard is unlocked again.
            drop(guard);
            let bytes = removed.iter().map(|(_, entry)| entry.value.bytes()).sum();
            discard(removed, bytes);
        }
        more
    }

    /// Says whether keys that have expired are to stay, although no call finds them: while clients are paused.
    pub fn hold_expired(&self, held: bool) {
        if self.holds_expired.swap(held, Ordering::Relaxed) == held {
            return;
        }
        for shard in &self.shards {
            shard.lock().partition.databases.iter_mut().for_each(|space| space.hold_expired(held));
        }
    }

    /// Says what all shards remember of accesses to their keys.
    pub fn set_aging(&self, aging: Aging) {
        for shard in &self.shards {
            shard.lock().partition.databases.iter_mut().for_each(|space| space.set_aging(aging));
        }
    }

    /// Says of all shards from how many bytes on a HyperLogLog is dense.
    pub fn set_sparse_limit(&self, limit: SparseLimit) {
        for shard in &self.shards {
            shard.lock().partition.databases.iter_mut().for_each(|space| space.set_sparse_limit(limit));
        }
    }

    /// Says which classes of events are to be published: bits of [`class`].
    pub fn notify(&self, classes: u32) {
        self.notifier.said.store(classes, Ordering::Relaxed);
        // Without a kind of channel nothing is published.
        let wanted = if classes & (class::KEYSPACE | class::KEYEVENT) == 0 { 0 } else { classes };
        if self.notifier.classes.swap(wanted, Ordering::Relaxed) != wanted {
            for (_, shard) in &mut self.lock_everything() {
                let spaces = &mut shard.partition.databases;
                spaces.iter_mut().for_each(|space| space.announce_expired(wanted & OF_EXPIRY != 0));
            }
        }
    }

    /// What was said last.
    pub fn notified(&self) -> u32 {
        self.notifier.said.load(Ordering::Relaxed)
    }

    /// Sets the listener; the first one stays.
    pub fn set_audience(&self, audience: Audience) {
        let _ = self.notifier.audience.set(audience);
    }

    /// Says whether any client keeps copies. The listener gets what changes after that.
    pub fn enable_invalidations(&self, kept: bool) {
        if self.invalidations.kept.swap(kept, Ordering::Relaxed) != kept {
            for (_, shard) in &mut self.lock_everything() {
                shard.partition.databases.iter_mut().for_each(|space| space.keep_changed(kept));
            }
        }
    }

    /// Sets the listener; the first one stays.
    pub fn set_invalidation_listener(&self, listener: InvalidationListener) {
        let _ = self.invalidations.listener.set(listener);
    }

    /// What has happened to keys since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for shard in &self.shards {
            shard.lock().partition.databases.iter().for_each(|space| counts += space.counts());
        }
        counts
    }

    /// What had happened to them at the last [`Node::reset_counts`].
    pub fn counts_forgotten(&self) -> Counts {
        *self.forgotten.lock()
    }

    /// Resets the counts of what happens to keys, for INFO: metrics are sums that never fall.
    pub fn reset_counts(&self) {
        let counts = self.counts();
        *self.forgotten.lock() = counts;
    }

    /// Counts of all shards, one shard after the other.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for shard in &self.shards {
            usage += shard.lock().usage();
        }
        usage
    }
}
