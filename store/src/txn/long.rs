//! Long calls: those that would hold up a thread which serves others, see [`store_engine::work`].
//!
//! The transaction locks the keys exclusively, takes their values out of the shards, and runs the call on another thread.
//! Shards stay usable meanwhile: only calls for the same keys wait, in the queues of the locks. When the future that waits
//! for the call is dropped (its client has gone or was killed, the time limit of its script has passed), the call ends at
//! its next step and the transaction is rolled back on that thread: see [`Interruption`].

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use store_engine::keyspace::{Key, Vacancy};
use store_engine::notifications::Notification;
use store_engine::work::{self, CancelFlag};
use store_engine::{
    CommandError, Ctx, Effects, Partition, Partitions, Protocol, Reply, Routing, UndoLog, Work,
};
use tokio::sync::Semaphore;

use super::limits::difference;
use super::{Conflict, LocalTransaction};
use crate::call::Call;
use crate::call_buffer::CallBuffer;
use crate::invalidations::Origin;
use crate::lock::Mode;
use crate::node::Node;

/// Long calls that run at the same time: more would only take CPU time from each other.
static LONG_CALL_PERMITS: Semaphore = Semaphore::const_new(4);

/// What a long call answers whose thread has failed,
const FAILED: CommandError = CommandError::new("ERR internal error: the command failed");
/// and was rolled back.
const ROLLED_BACK: CommandError =
    CommandError::new("ERR internal error: the command failed; nothing was changed");

/// What happens to a long call whose client has disconnected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// It ends at its next step, and its transaction is rolled back.
    RollsBack,
    /// It is the only call of its transaction, and takes only as long as its request is large. To be able to undo it would
    /// double the CPU time of many such calls: it goes on to its end and is committed.
    Never,
}

impl LocalTransaction {
    /// Whether `call` is to be run by [`LocalTransaction::execute_long`].
    pub fn is_long(&self, call: &Call<'_>) -> bool {
        if work::is_long_by_itself(call.args, call.keys) {
            return true;
        }
        let guards = match call.command.routing.of(call.args) {
            Routing::Anywhere => return false,
            Routing::ByKey => self.node.lock_shards_of(call),
            _ => self.node.lock_everything(),
        };
        self.node.is_long_in(&guards, call)
    }
}

/// What runs on the other thread.
struct LongCall {
    txn: Box<LocalTransaction>,
    /// The call alone.
    call: CallBuffer,
    now_ms: u64,
    interruption: Interruption,
    origin: Origin,
    out: Reply,
    seed: u64,
    /// Whether the reply is no error; of a call that could not run, why.
    done: Result<bool, Conflict>,
}

/// Cancels a call when its waiter is dropped.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What became of a call and its transaction.
pub enum Executed {
    /// It has run; the transaction goes on. Whether the reply is no error.
    Done(Box<LocalTransaction>, bool),
    /// It needs something that is not locked.
    Conflict(Box<LocalTransaction>, Conflict),
    /// The transaction was rolled back; the reply says why.
    Failed,
}

impl LocalTransaction {
    /// Runs a call: here, or on a thread for long calls. Dropping the future rolls the transaction back.
    pub async fn execute_any(
        mut self: Box<Self>,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Executed {
        match self.execute_short(call, mode, seed, out) {
            Ok(Some(fine)) => Executed::Done(self, fine),
            Ok(None) => Box::pin(self.execute_long(call, Interruption::RollsBack, seed, out)).await,
            Err(conflict) => Executed::Conflict(self, conflict),
        }
    }

    /// Runs `call` on a thread for long calls and waits for it. Dropping the future is the `interruption`.
    pub(super) async fn execute_long(
        self: Box<Self>,
        call: &Call<'_>,
        interruption: Interruption,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Executed {
        let cancel = CancelOnDrop(CancelFlag::default());
        let mut own = Reply::new(out.protocol);
        own.set_limit(out.limit().saturating_sub(out.buf.len()));
        own.cancel = (interruption == Interruption::RollsBack).then(|| cancel.0.clone());
        own.memory_limit = self.node.memory_limit();
        let mut alone = CallBuffer::default();
        alone.push(call);
        let long = LongCall {
            txn: self,
            call: alone,
            now_ms: call.now_ms,
            interruption,
            origin: Origin::present(),
            out: own,
            seed: *seed,
            done: Ok(false),
        };
        // It is never closed.
        let permit = LONG_CALL_PERMITS.acquire().await;
        let done = tokio::task::spawn_blocking(move || {
            let _place = permit;
            long.run()
        });
        let Ok(LongCall { txn, out: own, seed: after, done, .. }) = done.await else {
            let error = match interruption {
                Interruption::RollsBack => ROLLED_BACK,
                Interruption::Never => FAILED,
            };
            out.error(&error);
            return Executed::Failed;
        };
        out.append(own);
        *seed = after;
        match done {
            Ok(fine) => Executed::Done(txn, fine),
            Err(conflict) => Executed::Conflict(txn, conflict),
        }
    }
}

impl LongCall {
    fn run(mut self) -> LongCall {
        let LongCall { txn, call, now_ms, interruption, origin, out, seed, done } = &mut self;
        *done = {
            let call = call.get(0);
            origin.act(|| txn.run_detached(&call.at(*now_ms), *interruption, seed, out))
        };
        self
    }
}

impl LocalTransaction {
    /// Runs a call of which everything is locked exclusively on values that are detached from the shards meanwhile.
    fn run_detached(
        &mut self,
        call: &Call<'_>,
        interruption: Interruption,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Conflict> {
        self.now_ms = call.now_ms;
        let everywhere = call.command.routing.of(call.args) != Routing::ByKey;
        if everywhere && !self.locks.whole {
            return Err(Conflict::Everything);
        }
        if !self.locks.whole {
            let mut guards = self.node.lock_shards_of(call);
            for (key, _) in call.keys() {
                let number = self.node.shard_of(key);
                let at = guards.binary_search_by_key(&number, |(held, _)| *held);
                let table = &mut guards[at.expect("the shard of every key is locked")].1.locks;
                self.locks.secure(number, table, call.db, key, Mode::Exclusive, Mode::Exclusive)?;
            }
        }
        let node = self.node.clone();
        let LocalTransaction { locks, undo, effects, events, data_bytes, recorded_bytes, .. } = self;
        let mut undo = (interruption == Interruption::RollsBack).then_some(undo);
        let kept = node.journal.is_some().then_some(&mut *effects);
        let mut detached = match locks.whole {
            true => Detached::everything(&node),
            false => Detached::keys_of(&node, call),
        };
        let before = detached.bytes();
        let done = detached.run(call, seed, undo.as_deref_mut(), kept, events, out);
        *data_bytes += difference(before, detached.bytes());
        detached.attach(undo);
        if interruption == Interruption::Never {
            // Here, as the waiting task may be gone.
            *recorded_bytes = effects.as_bytes().len();
            node.record(effects);
        }
        self.batch().check_undo()?;
        Ok(done)
    }
}

/// Values that are not in their shards.
struct Detached<'n> {
    node: &'n Node,
    /// All partitions, or one with the keys.
    partitions: Vec<Partition>,
    /// The keys, in this database, with what their values have left behind; none of whole partitions.
    keys: Vec<DetachedKey>,
    db: usize,
}

struct DetachedKey {
    key: Box<[u8]>,
    vacancy: Option<Vacancy>,
}

impl<'n> Detached<'n> {
    /// Takes everything out of all shards.
    fn everything(node: &'n Node) -> Detached<'n> {
        let mut partitions = Vec::with_capacity(node.shards());
        for number in 0..node.shards() {
            let shard = &mut *node.shard(number).lock();
            shard.away = Some(shard.usage());
            let mut taken = like(&shard.partition);
            exchange(&mut shard.partition, &mut taken);
            partitions.push(taken);
        }
        Detached { node, partitions, keys: Vec::new(), db: 0 }
    }

    /// Takes what is under the keys of the call.
    fn keys_of(node: &'n Node, call: &Call<'_>) -> Detached<'n> {
        let mut taken: Option<Partition> = None;
        let mut keys = Vec::with_capacity(call.keys.len());
        let mut seen = HashSet::with_hasher(RandomState::default());
        for (key, _) in call.keys().filter(|(key, _)| seen.insert(*key)) {
            let mut shard = node.shard(node.shard_of(key)).lock();
            let scratch = taken.get_or_insert_with(|| like(&shard.partition));
            let found = shard.partition.databases[call.db].detach(key, call.now_ms);
            node.notifier.publish_expired(&mut Partitions::One(&mut shard.partition));
            drop(shard);
            let vacancy = found.map(|(entry, vacancy)| {
                scratch.databases[call.db].insert(key, entry);
                vacancy
            });
            keys.push(DetachedKey { key: key.into(), vacancy });
        }
        let mut partition = taken.unwrap_or_default();
        // That they came was no change.
        partition.databases.iter_mut().for_each(|space| drop(space.take_changed()));
        Detached { node, partitions: vec![partition], keys, db: call.db }
    }

    fn bytes(&self) -> usize {
        self.partitions.iter().map(Partition::bytes).sum()
    }

    fn run(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        undo: Option<&mut UndoLog>,
        effects: Option<&mut Effects>,
        events: &mut Vec<Notification>,
        out: &mut Reply,
    ) -> bool {
        let partitions = match &mut self.partitions[..] {
            [partition] => Partitions::One(partition),
            several => {
                let total = several.len();
                Partitions::Some { held: several.iter_mut().enumerate().collect(), total }
            }
        };
        self.node.run_and_publish(call, partitions, false, seed, undo, effects, events, out)
    }

    /// Brings all values back, with what has become of them.
    fn attach(&mut self, mut undo: Option<&mut UndoLog>) {
        let partitions = std::mem::take(&mut self.partitions);
        if self.keys.is_empty() {
            for (number, mut taken) in partitions.into_iter().enumerate() {
                change(self.node, number, undo.as_deref_mut(), |shard| {
                    exchange(shard, &mut taken);
                    let spaces = shard.databases.iter_mut().zip(&mut taken.databases);
                    spaces.for_each(|(space, left)| space.take_over(left));
                });
                self.node.shard(number).lock().away = None;
            }
            return;
        }
        let Some(mut taken) = partitions.into_iter().next() else { return };
        let left = &mut taken.databases[self.db];
        let changed: HashSet<Key, RandomState> = left.take_changed().keys.into_iter().collect();
        let mut counts = left.take_counts();
        for DetachedKey { key, vacancy } in std::mem::take(&mut self.keys) {
            let entry = left.remove(&key);
            let mut gone = None;
            change(self.node, self.node.shard_of(&key), undo.as_deref_mut(), |shard| {
                let space = &mut shard.databases[self.db];
                gone = space.attach(&key, vacancy, entry);
                if changed.contains(&key) {
                    space.touch(&key);
                }
                space.add_counts(std::mem::take(&mut counts));
            });
            if let (Some(at), Some(undo)) = (gone, undo.as_deref_mut()) {
                undo.relocate(self.db, &key, at);
            }
        }
    }
}

impl Drop for Detached<'_> {
    /// Values come back from a call that has panicked, too.
    fn drop(&mut self) {
        self.attach(None);
    }
}

/// A partition with the settings of another.
fn like(partition: &Partition) -> Partition {
    let mut other = Partition::default();
    for (own, held) in other.databases.iter_mut().zip(&partition.databases) {
        *own = held.like();
    }
    other
}

fn exchange(partition: &mut Partition, other: &mut Partition) {
    for (own, taken) in partition.databases.iter_mut().zip(&mut other.databases) {
        own.exchange_entries(taken);
    }
}

/// Changes a shard; watches that this breaks are kept in `undo`.
fn change(node: &Node, number: usize, undo: Option<&mut UndoLog>, work: impl FnOnce(&mut Partition)) {
    let mut shard = node.shard(number).lock();
    let mut ctx = Ctx {
        partitions: Partitions::One(&mut shard.partition),
        db: 0,
        now_ms: 0,
        seed: &mut 0,
        undo,
        effects: None,
        key_actions: None,
        work: &Work::unlimited(),
        out: &mut Reply::new(Protocol::Resp2),
    };
    ctx.watched(|ctx| work(ctx.partitions.nth(0)));
}
