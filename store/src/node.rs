//! The node: its shards, and commands that are no part of a transaction.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use store_engine::command::scan;
use store_engine::ctx::partition_of;
use store_engine::discard::discard;
use store_engine::hyperloglog::SparseLimit;
use store_engine::keys::KeyAt;
use store_engine::keyspace::{Counts, Sticky};
use store_engine::notice::{Event, Touches, class};
use store_engine::{
    Access, Aging, Args, Command, Ctx, DATABASES, Effects, Partition, Partitions, Protocol, Reply, Routing,
    UndoLog,
};
use store_engine::{error, work};

use crate::catalog::Catalog;
use crate::copies::Copies;
use crate::evict::Evictor;
use crate::journal::Journal;
use crate::lock::{Mode, TxnId};
use crate::memory::{Account, Limiter};
use crate::notify::{Notifier, expired};
use crate::shard::{Shard, ShardGuard, ShardState};
use crate::times::Times;
use crate::txn::{Transaction, is_long_on};
use crate::wait::Parked;

/// A call that passed every check and may be run.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its row.
    pub command: &'static Command,
    /// Name and arguments.
    pub args: Args<'a>,
    /// The keys among them, as `store_engine::keys::keys_of` finds them.
    pub keys: &'a [KeyAt],
    /// The selected database.
    pub db: usize,
    /// Unix time in milliseconds.
    pub now_ms: u64,
}

impl<'a> Call<'a> {
    /// The keys' bytes with what is done to them.
    pub fn keys(&self) -> impl Iterator<Item = (&'a [u8], Mode)> + '_ {
        let args = self.args;
        self.keys.iter().map(move |&(at, access)| (args[at], mode_of(access)))
    }
}

/// The lock that an access needs.
pub fn mode_of(access: Access) -> Mode {
    match access {
        Access::Read => Mode::Shared,
        Access::Write => Mode::Exclusive,
    }
}

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
    pub(crate) copies: Arc<Copies>,
    /// What had happened to keys when somebody asked last to count anew.
    forgotten: Mutex<Counts>,
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
        let (account, copies) = (Arc::default(), Arc::default());
        let shard = |partition| Shard::new(partition, &account, &copies);
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
            copies,
            forgotten: Mutex::default(),
            lock_waits: Times::default(),
        }
    }

    /// Where changes are written down, if they are.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
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

    /// Runs `call` as a transaction of its own, unless a running one is in its way or it could serve somebody who
    /// waits for a key.
    ///
    /// `Some(true)`: done; `Some(false)`: done, the reply is an error; `None`: nothing has happened,
    /// [`crate::Transaction`] is the way.
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
                    let done = self.run_telling(call, one, shared, seed, None, kept, &mut Vec::new(), out);
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

    /// Runs `call` as a transaction of its own, after all that are in its way. `clock` tells the Unix time in
    /// milliseconds, which it sees when its turn has come. Whether the reply is no error.
    pub async fn execute(
        self: &Arc<Self>,
        call: &Call<'_>,
        clock: impl Fn() -> u64,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        let txn = Transaction::begin_for(self, call).await;
        txn.finish_with(&Call { now_ms: clock(), ..*call }, seed, out).await
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
        self.run_telling(call, some, false, seed, None, None, &mut Vec::new(), out)
    }

    /// Lets a blocking call, which has just found nothing, wait for its keys.
    pub fn park(self: &Arc<Self>, call: &Call<'_>, protocol: Protocol) -> Parked {
        Parked::new(self, call, protocol, false)
    }

    /// Lets a blocking call wait that nobody here can serve, as its other keys are on other nodes: it is told when
    /// something comes to a key that is here. Those behind it in a queue do not wait with it.
    pub fn park_to_be_told(self: &Arc<Self>, call: &Call<'_>, protocol: Protocol) -> Parked {
        Parked::new(self, call, protocol, true)
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
        events: &mut Vec<Event>,
        out: &mut Reply,
    ) -> bool {
        let partitions = match &mut guards[..] {
            [(_, shard)] => Partitions::One(&mut shard.partition),
            several => partitions_of(several, self.shards.len()),
        };
        self.run_telling(call, partitions, shared, seed, undo, effects, events, out)
    }

    /// [`run`], and tells of what it did. With an undo log the events are left in `events` until it is kept. Of keys
    /// that are `shared` nothing is removed: what has expired may be alive for another, whose time stands still.
    #[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
    #[inline(always)] // `partitions` would be moved.
    pub(crate) fn run_telling(
        &self,
        call: &Call<'_>,
        partitions: Partitions<'_>,
        shared: bool,
        seed: &mut u64,
        undo: Option<&mut UndoLog>,
        effects: Option<&mut Effects>,
        events: &mut Vec<Event>,
        out: &mut Reply,
    ) -> bool {
        let is_alone = undo.is_none();
        let mut noted = self.notifier.touches();
        let touches = noted.as_mut();
        let work = out.work();
        let mut ctx = Ctx {
            partitions,
            db: call.db,
            now_ms: call.now_ms,
            seed,
            undo,
            effects,
            touches,
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
        if let Some(touches) = ctx.touches {
            self.notifier.tell_of_expired_within(&mut ctx.partitions, ctx.undo.as_deref(), events);
            touches.take_events(call.command, call.args, self.notifier.classes(), events);
            if is_alone {
                self.notifier.tell(events);
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

    /// Whether `key` has expired and was still there. It is removed then, and its watchers told, but for one that a
    /// transaction holds: for that it may be alive, as its time stands still.
    pub fn refresh(&self, db: usize, key: &[u8], now_ms: u64) -> bool {
        let mut shard = self.shard(self.shard_of(key)).lock();
        let overdue = shard.partition.databases[db].is_overdue(key, now_ms);
        if overdue && !shard.locks.is_held(db, key) {
            shard.partition.databases[db].find(key, now_ms);
            self.notifier.tell_of_expired(&mut Partitions::One(&mut shard.partition));
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
        queues.tell_the_bereaved(is_gone);
        if !removed.is_empty() {
            self.notifier.tell_of_expired(&mut Partitions::One(partition));
            // Freed when the shard is unlocked again.
            drop(guard);
            let bytes = removed.iter().map(|(_, entry)| entry.value.bytes()).sum();
            discard(removed, bytes);
        }
        more
    }

    /// Says whether keys that have expired are to stay, although nobody finds them: while clients are paused.
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

    /// Begins to count anew what happens to keys, for INFO: whoever scrapes metrics sees sums that never fall.
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

/// Locked shards with their numbers, ascending.
pub(crate) type Guards<'a> = SmallVec<[(usize, ShardGuard<'a>); 8]>;

/// Several of `total` locked shards, as commands see them.
pub(crate) fn partitions_of<'a>(guards: &'a mut [(usize, ShardGuard<'_>)], total: usize) -> Partitions<'a> {
    let held = guards.iter_mut().map(|(number, shard)| (*number, &mut shard.partition)).collect();
    Partitions::Some { held, total }
}

/// Runs the command's function; an error takes the place of whatever it had written. Whether it succeeded.
pub(crate) fn run(
    call: &Call<'_>,
    partitions: Partitions<'_>,
    seed: &mut u64,
    undo: Option<&mut UndoLog>,
    effects: Option<&mut Effects>,
    out: &mut Reply,
) -> bool {
    let (touches, work) = (None, out.work());
    let mut ctx =
        Ctx { partitions, db: call.db, now_ms: call.now_ms, seed, undo, effects, touches, work: &work, out };
    run_in(&mut ctx, call)
}

/// [`run`] on copies that belong to an undo log, leaving the events of these classes in `events`. Of keys that have
/// expired those are told that the log has; of others whoever has their truth tells.
pub(crate) fn run_noting(
    call: &Call<'_>,
    partition: &mut Partition,
    seed: &mut u64,
    undo: &mut UndoLog,
    classes: u32,
    events: &mut Vec<Event>,
    out: &mut Reply,
) -> bool {
    let mut touches = Touches::default();
    let announced = classes & class::EXPIRED != 0;
    partition.databases.iter_mut().for_each(|space| space.announce_expired(announced));
    let done = {
        let (partitions, undo, touches) = (Partitions::One(partition), Some(&mut *undo), Some(&mut touches));
        let (effects, work) = (None, out.work());
        let mut ctx = Ctx {
            partitions,
            db: call.db,
            now_ms: call.now_ms,
            seed,
            undo,
            effects,
            touches,
            work: &work,
            out,
        };
        run_in(&mut ctx, call)
    };
    for (db, space) in partition.databases.iter_mut().enumerate() {
        let keys = space.take_announced().into_iter();
        let own = keys.filter(|key| undo.keys().any(|changed| changed == (db, &**key)));
        events.extend(own.map(|key| expired(db, key)));
    }
    touches.take_events(call.command, call.args, classes, events);
    done
}

/// Arguments that are part of what any call costs. Each that is more is a step.
const FEW_ARGS: usize = 64;

fn run_in(ctx: &mut Ctx<'_>, call: &Call<'_>) -> bool {
    let mark = ctx.out.buf.len();
    let done = (call.command.run)(ctx, call.args);
    ctx.out.steps += ctx.work.steps() + call.args.len().saturating_sub(FEW_ARGS) as u64;
    let done = match done {
        _ if ctx.work.is_cancelled() => Err(work::CANCELLED),
        _ if ctx.out.is_over_limit() => Err(error::REPLY_TOO_LARGE),
        done => done,
    };
    match done {
        Ok(()) => true,
        Err(error) => {
            ctx.out.buf.truncate(mark);
            ctx.out.error(&error);
            false
        }
    }
}
