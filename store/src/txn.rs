//! Transactions: take the keys, run calls, then commit or take everything back.

mod end;
mod exchange;
mod limits;
mod long;
mod rehearse;
mod slots;

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use store_engine::discard::discard;
use store_engine::keyspace::Key;
use store_engine::notice::Event;
use store_engine::same::same;
use store_engine::wait::Verdict;
use store_engine::work;
use store_engine::{CommandError, Effects, Partitions, Reply, Routing, UndoLog};

use crate::lock::{LockTable, Mode, TxnId};
use crate::node::{self, Call, Guards, Node};
use crate::shard::ShardGuard;
use crate::spans;
use limits::{bytes_for, bytes_in, difference};

pub use exchange::Found;
pub use limits::{FULL, LimitReached, OnFull, TxnLimits};
pub use long::Executed;
use long::Interruption;
pub(crate) use long::is_long_on;
pub use rehearse::{Change, Preview};
pub(crate) use rehearse::{Rehearsed, add_before, changed_keys, changes_of};
pub(crate) use slots::Cargo;

/// A key to be locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Its database.
    pub db: usize,
    /// Its bytes.
    pub key: Box<[u8]>,
    /// How.
    pub mode: Mode,
}

/// Why a transaction cannot go on and has to be rolled back. If a call needs more than is locked, waiting for that could
/// end in a deadlock: the transaction is begun again with more locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It needs this key, which another transaction holds.
    Key(LockRequest),
    /// It needs everything.
    Everything,
    /// It has reached a limit, and would again.
    Limit(LimitReached),
}

struct Held {
    shard: usize,
    request: LockRequest,
}

impl Held {
    /// The order in which all transactions lock.
    fn order(&self) -> (usize, usize, &[u8], bool) {
        (self.shard, self.request.db, &self.request.key, self.request.mode == Mode::Shared)
    }
}

/// Sorts many requests shard by shard, and gives way in between.
async fn sort_in_slices(requests: &mut [Held]) {
    requests.sort_unstable_by_key(|held| held.shard);
    for of_shard in requests.chunk_by_mut(|one, other| one.shard == other.shard) {
        tokio::task::yield_now().await;
        of_shard.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    }
}

/// A transaction on one node. Dropping it without [`Transaction::commit`] takes all its changes back.
pub struct Transaction {
    node: Arc<Node>,
    locks: Locks,
    undo: UndoLog,
    effects: Effects,
    /// What was done before the present part began: how to undo it, and how far the effects had come.
    before: Option<Before>,
    limits: TxnLimits,
    /// How many bytes larger the data is than before the transaction.
    data_bytes: isize,
    /// Bytes of the record that a long call has committed on its thread.
    recorded_bytes: usize,
    /// What is to be told when it is kept.
    events: Vec<Event>,
    /// Time of the newest call.
    now_ms: u64,
    /// It is on a thread that serves no connections.
    is_apart: bool,
}

/// Changes and keys from which on a transaction is begun in slices, and ended on another thread: each takes some 0.3 us.
const MANY: usize = 4096;

/// The state of a transaction before its present part.
#[derive(Default)]
struct Before {
    undo: UndoLog,
    /// How far effects and events had come.
    effects: usize,
    events: usize,
    data_bytes: isize,
}

/// What a transaction has locked, or waits for.
struct Locks {
    id: TxnId,
    /// Shards whose gate was taken (or is awaited), ascending unless an undeclared key came in later.
    gates: SmallVec<[usize; 4]>,
    /// Keys taken or awaited.
    keys: SmallVec<[Held; 2]>,
    whole: bool,
    /// Which of the keys was looked for last: probably the next one is the same.
    last: usize,
}

impl Locks {
    /// The key among those held, if there are only a few: then looking at all is faster than hashing one.
    fn among_few(&mut self, db: usize, key: &[u8]) -> Option<&Held> {
        let few = if self.keys.len() <= 8 && !self.whole { &self.keys[..] } else { &[] };
        let is_it = |held: &Held| same(&held.request.key, key) && held.request.db == db;
        if !few.get(self.last).is_some_and(is_it) {
            self.last = few.iter().position(is_it)?;
        }
        few.get(self.last)
    }

    /// Makes sure that this transaction holds `key` at least as `need`; a free one is taken as `mode`. How it is held
    /// then.
    fn secure(
        &mut self,
        shard: usize,
        table: &mut LockTable,
        db: usize,
        key: &[u8],
        need: Mode,
        mode: Mode,
    ) -> Result<Mode, Conflict> {
        if self.whole {
            return Ok(Mode::Exclusive);
        }
        match table.mode_of(self.id, db, key) {
            Some(held) if held.covers(need) => return Ok(held),
            Some(_) => return Err(Conflict::Key(LockRequest { db, key: key.into(), mode: need })),
            None => {}
        }
        let request = LockRequest { db, key: key.into(), mode };
        let passed = self.gates.contains(&shard);
        if !table.try_take_key(self.id, db, key, mode, passed) {
            return Err(Conflict::Key(request));
        }
        if !passed {
            self.gates.push(shard);
        }
        self.keys.push(Held { shard, request });
        Ok(mode)
    }

    /// [`Locks::secure`] for all keys of a call, whose shards are locked. Whether others may hold some of them as well.
    fn secure_all(
        &mut self,
        node: &Node,
        guards: &mut Guards<'_>,
        call: &Call<'_>,
        mode: Mode,
    ) -> Result<bool, Conflict> {
        let mut shared = false;
        for (key, need) in call.keys() {
            let number = node.shard_of(key);
            let at = guards.binary_search_by_key(&number, |(held, _)| *held);
            let at = at.expect("the shard of every key is locked");
            let held = self.secure(number, &mut guards[at].1.locks, call.db, key, need, mode)?;
            shared |= held == Mode::Shared;
        }
        Ok(shared)
    }
}

/// Waits for a lock.
async fn granted<T>(node: &Node, shard: usize, grant: impl Future<Output = T>) -> T {
    let wait = spans::within("lock wait", |span| span.with("moonshard.shard", shard), grant);
    node.lock_waits.of(wait).await
}

impl Transaction {
    /// Waits until all of `requests` are locked. Nobody waits in a ring: all take locks in the same order.
    pub async fn begin(node: &Arc<Node>, requests: Vec<LockRequest>) -> Box<Transaction> {
        let mut txn = Transaction::new(node);
        let mut wanted: SmallVec<[Held; 2]> = requests
            .into_iter()
            .map(|request| Held { shard: node.shard_of(&request.key), request })
            .collect();
        if wanted.len() > MANY {
            sort_in_slices(&mut wanted).await;
        } else if wanted.len() > 1 {
            // Of two requests for one key the exclusive one comes first and is the one that stays.
            wanted.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        }
        wanted.dedup_by(|b, a| a.request.db == b.request.db && a.request.key == b.request.key);
        let mut wanted = wanted.into_iter().peekable();
        while let Some(shard_number) = wanted.peek().map(|held| held.shard) {
            if txn.locks.keys.len() > MANY {
                tokio::task::yield_now().await;
            }
            let mut grant = None;
            {
                let mut shard = node.shard(shard_number).lock();
                if !txn.locks.gates.contains(&shard_number) {
                    txn.locks.gates.push(shard_number);
                    if !shard.locks.take_gate(txn.locks.id, Mode::Shared) {
                        grant = Some(shard.await_grant(txn.locks.id));
                    }
                }
                while grant.is_none()
                    && let Some(held) = wanted.next_if(|held| held.shard == shard_number)
                {
                    let LockRequest { db, key, mode } = &held.request;
                    if !shard.locks.take_key(txn.locks.id, *db, key, *mode) {
                        grant = Some(shard.await_grant(txn.locks.id));
                    }
                    txn.locks.keys.push(held);
                }
            }
            if let Some(grant) = grant {
                // The sender lives in the shard until the grant; a closed channel cannot happen before it.
                let _ = granted(node, shard_number, grant).await;
            }
        }
        txn
    }

    /// Waits until the whole node is locked.
    pub async fn begin_whole(node: &Arc<Node>) -> Box<Transaction> {
        let mut txn = Transaction::new(node);
        txn.locks.whole = true;
        for number in 0..node.shards() {
            txn.locks.gates.push(number);
            let grant = {
                let mut shard = node.shard(number).lock();
                let open = shard.locks.take_gate(txn.locks.id, Mode::Exclusive);
                (!open).then(|| shard.await_grant(txn.locks.id))
            };
            if let Some(grant) = grant {
                let _ = granted(node, number, grant).await;
            }
        }
        txn
    }

    /// Boxed at once: it is large, goes through many hands, and each of them would move it.
    fn new(node: &Arc<Node>) -> Box<Transaction> {
        let (gates, keys) = (SmallVec::new(), SmallVec::new());
        let locks = Locks { id: node.next_txn(), gates, keys, whole: false, last: 0 };
        Box::new(Transaction {
            node: node.clone(),
            locks,
            undo: UndoLog::default(),
            effects: Effects::default(),
            before: None,
            limits: TxnLimits::default(),
            data_bytes: 0,
            recorded_bytes: 0,
            events: Vec::new(),
            now_ms: 0,
            is_apart: false,
        })
    }

    /// Sets the limits of all further calls.
    pub fn set_limits(&mut self, limits: TxnLimits) {
        self.limits = limits;
    }

    /// Runs `call` under the transaction's locks. A key that is not locked yet is taken if it is free, in
    /// `mode`. Whether the reply is no error, or what has to be locked beforehand.
    pub fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Conflict> {
        self.batch().execute(call, mode, seed, out)
    }

    /// [`Transaction::execute`] of a call that is not long; nothing has happened to one that is.
    pub fn execute_short(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        self.batch().execute_short(call, mode, seed, out)
    }

    /// Runs the only call of a transaction that has locked everything it needs, and commits. Whether the reply is no
    /// error.
    pub(crate) async fn finish_with(
        self: Box<Self>,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        let room = out.limit().saturating_sub(out.buf.len());
        // Blocked clients are served by the keys in the undo log.
        let completes =
            self.node.waiting() == 0 && work::is_long_request(call.command, call.args, call.keys, room);
        let executed = match completes {
            true => Box::pin(self.execute_long(call, Interruption::Never, seed, out)).await,
            false => self.execute_any(call, Mode::Exclusive, seed, out).await,
        };
        let (txn, done) = match executed {
            Executed::Done(txn, fine) => (txn, Ok(fine)),
            // It reads what has become large while it waited. Others may read that, too: it cannot be detached.
            Executed::Lacks(mut txn, _) => {
                let done = txn.execute(call, Mode::Exclusive, seed, out);
                (txn, done)
            }
            Executed::Failed => return false,
        };
        let fine = done.unwrap_or_else(|_| {
            out.error(&CommandError::new("ERR internal error: a locked key was not locked"));
            false
        });
        // Of a call whose reply was too large nothing is kept.
        if !out.is_over_limit() {
            txn.commit_any().await;
        }
        fine
    }

    /// For several calls in a row that nobody waits between.
    pub fn batch(&mut self) -> Batch<'_> {
        let Transaction { node, locks, undo, effects, events, now_ms, limits, data_bytes, before, .. } = self;
        let effects = node.journal.is_some().then_some(effects);
        let undo_before = before.as_ref().map_or(0, |before| before.undo.bytes());
        let limits = *limits;
        Batch { node, locks, undo, undo_before, effects, events, now_ms, limits, data_bytes, shard: None }
    }

    /// The keys that are locked one by one: none of a transaction that has locked everything.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = &LockRequest> {
        self.locks.keys.iter().map(|held| &held.request)
    }

    /// Begins a part that can be taken back alone. It ends with [`Transaction::keep_part`],
    /// [`Transaction::undo_part`], or the transaction.
    pub fn begin_part(&mut self) {
        self.keep_part();
        self.before = Some(Before {
            undo: std::mem::take(&mut self.undo),
            effects: self.effects.mark(),
            events: self.events.len(),
            data_bytes: self.data_bytes,
        });
    }

    /// Makes the present part one with what was before.
    pub fn keep_part(&mut self) {
        if let Some(Before { undo: mut whole, .. }) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
    }

    /// Takes the present part back. Its keys stay locked.
    pub fn undo_part(&mut self) {
        if !self.undo.is_empty() {
            self.roll_back();
        }
        let Before { undo, effects, events, data_bytes } = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        self.effects.truncate(effects);
        self.data_bytes = data_bytes;
    }

    /// Adds what others have done on its behalf, to be told when it is kept.
    pub(crate) fn note(&mut self, events: impl Iterator<Item = Event>) {
        self.events.extend(events);
    }

    /// Keeps all changes, serves those who wait for them, and lets the keys go.
    pub fn commit(mut self: Box<Self>) {
        self.keep_part();
        self.limits = TxnLimits::default();
        self.node.record(&mut self.effects);
        self.node.notifier.tell(&mut self.events);
        self.undo.tell_watchers();
        let mut undo = std::mem::take(&mut self.undo);
        let bytes = undo.bytes();
        if self.node.waiting() == 0 {
            // Whoever has just begun to wait looks once more, as soon as the keys are let go.
            return discard(undo, bytes);
        }
        let everywhere = undo.is_everywhere();
        let mut changed: VecDeque<_> = undo.take_keys().into_iter().collect();
        discard(undo, bytes);
        if everywhere {
            let shards = 0..self.node.shards();
            changed.extend(
                shards.flat_map(|number| self.node.shard(number).lock().queues.keys().collect::<Vec<_>>()),
            );
        }
        self.serve(changed, self.now_ms);
    }

    /// Serves those who wait for the keys in `changed`, all of which are locked: key by key in the order of their
    /// change, as Redis does, and those of a key in the order of their coming. What is moved from one list to
    /// another may serve others in turn.
    ///
    /// Whoever cannot be served because its destination is in use looks for itself when it gets that; those behind
    /// it do not wait with it.
    pub(crate) fn serve(&mut self, mut changed: VecDeque<(usize, Key)>, now_ms: u64) {
        let node = self.node.clone();
        while let Some((db, key)) = changed.pop_front() {
            let shard = node.shard(node.shard_of(&key));
            let mut after = 0;
            loop {
                let next = shard.lock().next_waiter(db, &key, after, now_ms);
                let Some((waiter, verdict)) = next else { break };
                after = waiter.number();
                if let Verdict::Refuse(error) = verdict {
                    waiter.refuse(&error);
                    continue;
                }
                if waiter.is_only_told() {
                    waiter.nudge();
                    continue;
                }
                waiter.with_call_on(&key, now_ms, |call| {
                    if self.secure(call).is_err() || self.is_long(call) {
                        return waiter.nudge();
                    }
                    let Some(answer) = waiter.claim() else { return };
                    shard.lock().queues.leave(db, &key, after);
                    let mut out = Reply::new(waiter.protocol());
                    let done = self.execute(call, Mode::Exclusive, &mut 0, &mut out);
                    debug_assert!(done.is_ok(), "everything that it needs is locked");
                    match answer.send(out.buf) {
                        Ok(()) => {
                            self.node.record(&mut self.effects);
                            self.node.notifier.tell(&mut self.events);
                            self.undo.tell_watchers();
                            let mut undo = std::mem::take(&mut self.undo);
                            changed.extend(undo.take_keys());
                            let bytes = undo.bytes();
                            discard(undo, bytes);
                        }
                        // Its client has gone in this moment.
                        Err(_) => {
                            self.effects.clear();
                            self.events.clear();
                            self.roll_back();
                        }
                    }
                });
            }
        }
    }

    /// Locks what `call` needs, as far as that is free.
    fn secure(&mut self, call: &Call<'_>) -> Result<(), Conflict> {
        let mut guards = self.node.lock_shards_of(call);
        self.locks.secure_all(&self.node, &mut guards, call, Mode::Exclusive).map(drop)
    }
}

/// Calls that run one right after the other: as long as they are for the same shard it stays locked.
pub struct Batch<'a> {
    node: &'a Node,
    locks: &'a mut Locks,
    undo: &'a mut UndoLog,
    /// Bytes of the undo log before the present part.
    undo_before: usize,
    effects: Option<&'a mut Effects>,
    events: &'a mut Vec<Event>,
    now_ms: &'a mut u64,
    limits: TxnLimits,
    data_bytes: &'a mut isize,
    shard: Option<(usize, ShardGuard<'a>)>,
}

impl<'a> Batch<'a> {
    /// [`Transaction::execute`].
    pub fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Conflict> {
        let ran = self.execute_if(call, mode, false, seed, out)?;
        Ok(ran.expect("every call is run unless only short ones are"))
    }

    /// [`Transaction::execute_short`].
    pub fn execute_short(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        self.execute_if(call, mode, true, seed, out)
    }

    /// Runs a call; with `only_short` none that is long.
    fn execute_if(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        *self.now_ms = call.now_ms;
        if self.refuse_beyond_limit(call, out)? {
            return Ok(Some(false));
        }
        let done = self.execute_within_limits(call, mode, only_short, seed, out)?;
        self.check_undo()?;
        Ok(done)
    }

    fn execute_within_limits(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        let routing = call.command.routing.of(call.args);
        if let (Routing::ByKey, [(at, access)]) = (routing, call.keys) {
            let need = node::mode_of(*access);
            return self.execute_on_one(call, call.args[*at], need, mode, only_short, seed, out);
        }
        if only_short && work::is_long_by_itself(call.args, call.keys) {
            return Ok(None);
        }
        // The shards of other calls are locked in their order, which one that is locked already would disturb.
        self.shard = None;
        let Batch { node, locks, undo, effects, events, data_bytes, .. } = self;
        let effects = effects.as_deref_mut();
        match routing {
            Routing::Anywhere => {
                let none = Partitions::Some { held: Vec::new(), total: 1 };
                Ok(Some(node::run(call, none, seed, None, None, out)))
            }
            Routing::ByKey => {
                let mut guards = node.lock_shards_of(call);
                if only_short && node.is_long_in(&guards, call) {
                    return Ok(None);
                }
                let shared = locks.secure_all(node, &mut guards, call, mode)?;
                let before = bytes_in(call, &guards);
                let fine = node.run_locked(&mut guards, call, shared, seed, Some(undo), effects, events, out);
                **data_bytes += difference(before, bytes_in(call, &guards));
                Ok(Some(fine))
            }
            Routing::Everywhere | Routing::Paged | Routing::ByKeyUnless(_) if locks.whole => {
                let mut guards = node.lock_everything();
                if only_short && node.is_long_in(&guards, call) {
                    return Ok(None);
                }
                let before = bytes_in(call, &guards);
                let fine = node.run_locked(&mut guards, call, false, seed, Some(undo), effects, events, out);
                **data_bytes += difference(before, bytes_in(call, &guards));
                Ok(Some(fine))
            }
            Routing::Everywhere | Routing::Paged | Routing::ByKeyUnless(_) => Err(Conflict::Everything),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
    fn execute_on_one(
        &mut self,
        call: &Call<'_>,
        key: &[u8],
        need: Mode,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        let Batch { node, locks, undo, effects, events, data_bytes, shard: locked, .. } = self;
        // A key that was named beforehand knows its shard.
        let known = locks.among_few(call.db, key);
        let number = known.map_or_else(|| node.shard_of(key), |held| held.shard);
        let secured = known.map(|held| held.request.mode).filter(|held| held.covers(need));
        let shard = match locked {
            Some((held, shard)) if *held == number => shard,
            _ => {
                // The one before is let go first: nobody may hold one and wait for another but in their order.
                *locked = None;
                &mut locked.insert((number, node.shard(number).lock())).1
            }
        };
        if only_short && is_long_on(call, &shard.partition) {
            return Ok(None);
        }
        let held = match secured {
            Some(held) => held,
            None => locks.secure(number, &mut shard.locks, call.db, key, need, mode)?,
        };
        let before = bytes_for(call, &shard.partition);
        let (partitions, shared) = (Partitions::One(&mut shard.partition), held == Mode::Shared);
        let effects = effects.as_deref_mut();
        let fine = node.run_telling(call, partitions, shared, seed, Some(undo), effects, events, out);
        **data_bytes += difference(before, bytes_for(call, &shard.partition));
        Ok(Some(fine))
    }
}
