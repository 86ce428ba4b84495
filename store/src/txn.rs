//! Transactions: take the keys, run calls, then commit or take everything back.

mod batch;
mod commit;
mod conflict;
mod dry_run;
mod exchange;
mod limits;
mod locks;
mod long;
mod single;
mod slots;

use std::sync::Arc;

use smallvec::SmallVec;
use store_engine::notifications::Notification;
use store_engine::{Effects, UndoLog};

use crate::catalog::CatalogChanges;
use crate::lock::{LockRequest, Mode};
use crate::node::Node;
use crate::shard::partitions_of;
use crate::spans;
use locks::{Held, Locks};

pub use batch::Batch;
pub use conflict::{Conflict, LimitReached};
pub use dry_run::{Change, Preview};
pub(crate) use dry_run::{DryRunChanges, add_before, changed_keys, changes_of};
pub use exchange::Found;
pub use limits::{FULL, OnFull, TxnLimits};
pub use long::Executed;
pub(crate) use slots::Cargo;

/// Sorts many requests shard by shard, and gives way in between.
async fn sort_in_slices(requests: &mut [Held]) {
    requests.sort_unstable_by_key(|held| held.shard);
    for of_shard in requests.chunk_by_mut(|one, other| one.shard == other.shard) {
        tokio::task::yield_now().await;
        of_shard.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    }
}

/// A transaction on one node. Dropping it without [`LocalTransaction::commit`] takes all its changes back.
pub struct LocalTransaction {
    node: Arc<Node>,
    locks: Locks,
    undo: UndoLog,
    effects: Effects,
    /// Changes of records, which are made with the commit.
    records: CatalogChanges,
    /// What was done before the present part began: how to undo it, and how far the effects had come.
    before: Option<Before>,
    limits: TxnLimits,
    /// How many bytes larger the data is than before the transaction.
    data_bytes: isize,
    /// Bytes of the record that a long call has committed on its thread.
    recorded_bytes: usize,
    /// What is to be published when it is kept.
    events: Vec<Notification>,
    /// Time of the newest call.
    now_ms: u64,
    /// It is on a thread that serves no connections.
    is_apart: bool,
}

/// Changes and keys from which on a transaction is begun in slices, and ended on another thread: each takes some 0.3 us.
const MANY: usize = 4096;

/// Changes that are rolled back while the shards are held.
const CHANGES_PER_HOLD: usize = 1024;

/// The state of a transaction before its present part.
#[derive(Default)]
struct Before {
    undo: UndoLog,
    /// How far effects and events had come.
    effects: usize,
    events: usize,
    data_bytes: isize,
}

/// Waits for a lock.
async fn granted<T>(node: &Node, shard: usize, grant: impl Future<Output = T>) -> T {
    let wait = spans::within("lock wait", |span| span.with("moonshard.shard", shard), grant);
    node.lock_waits.of(wait).await
}

impl LocalTransaction {
    /// Waits until all of `requests` are locked. There is no deadlock: all transactions take locks in the same order.
    pub async fn begin(node: &Arc<Node>, requests: Vec<LockRequest>) -> Box<LocalTransaction> {
        let mut txn = LocalTransaction::new(node);
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
    pub async fn begin_whole(node: &Arc<Node>) -> Box<LocalTransaction> {
        let mut txn = LocalTransaction::new(node);
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
    fn new(node: &Arc<Node>) -> Box<LocalTransaction> {
        let (gates, keys) = (SmallVec::new(), SmallVec::new());
        let locks = Locks { id: node.next_txn(), gates, keys, whole: false, last: 0 };
        Box::new(LocalTransaction {
            node: node.clone(),
            locks,
            undo: UndoLog::default(),
            effects: Effects::default(),
            records: CatalogChanges::default(),
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

    /// The keys that are locked one by one: none of a transaction that has locked everything.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = &LockRequest> {
        self.locks.keys.iter().map(|held| &held.request)
    }

    /// Begins a part that can be taken back alone. It ends with [`LocalTransaction::keep_part`],
    /// [`LocalTransaction::undo_part`], or the transaction.
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

    /// Undoes all that the undo log has.
    fn roll_back(&mut self) {
        let numbers: SmallVec<[usize; 8]> = if self.undo.is_everywhere() {
            (0..self.node.shards()).collect()
        } else {
            let mut numbers: SmallVec<[usize; 8]> =
                self.undo.touched().map(|key| self.node.shard_of(key)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        loop {
            // The shards are unlocked in between: threads that serve connections wait for them, too.
            let mut guards = self.node.lock_shards(&numbers);
            let mut partitions = partitions_of(&mut guards, self.node.shards());
            if !self.undo.roll_back_some(&mut partitions, CHANGES_PER_HOLD) {
                return;
            }
        }
    }

    /// Adds what others have done on its behalf, to be published when it is kept.
    pub(crate) fn note(&mut self, events: impl Iterator<Item = Notification>) {
        self.events.extend(events);
    }
}
