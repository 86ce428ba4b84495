//! The store as its users see it: shards of this process, or nodes in others. Nobody above needs to know which.
//!
//! What waits for nodes elsewhere is boxed: it would make the futures of those larger who need none of it.

use std::sync::Arc;

use store_engine::keyspace::Counts;
use store_engine::work::{CANCELLED, LONG_CALL_STEPS};
use store_engine::{CommandError, Protocol, Reply};

use crate::call::Call;
use crate::client::{Cluster, DistributedTransaction, TransactionError, WatchId};
use crate::invalidations::InvalidationListener;
use crate::journal::{Journal, LARGE_RECORD_BYTES};
use crate::lock::{LockRequest, Mode};
use crate::memory::Usage;
use crate::node::Node;
use crate::txn::{Batch, Change, Conflict, Executed, LocalTransaction, TxnLimits};

/// Where the data is.
#[derive(Clone)]
pub enum Store {
    /// In this process.
    Local(Arc<Node>),
    /// On nodes in other processes.
    Distributed(Arc<Cluster>),
}

impl Store {
    /// The node, if it is in this process.
    pub fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Store::Local(node) => Some(node),
            Store::Distributed(_) => None,
        }
    }

    /// Whether what was changed here is far ahead of the disk: then [`Store::wait_for_disk`] is due before more is changed.
    #[inline]
    pub fn is_far_ahead_of_disk(&self) -> bool {
        self.node().and_then(|node| node.journal()).is_some_and(Journal::is_behind)
    }

    /// Waits for as long as that is so. If the disk cannot be written, changes are refused anyway.
    pub async fn wait_for_disk(&self) {
        if let Some(journal) = self.node().and_then(|node| node.journal()) {
            let _ = journal.catch_up().await;
        }
    }

    /// Waits until the disk has taken most of the large records, if a request of so many bytes may have added one.
    pub async fn wait_for_room(&self, request_bytes: usize) {
        if request_bytes >= LARGE_RECORD_BYTES
            && let Some(journal) = self.node().and_then(|node| node.journal())
        {
            journal.make_room().await;
        }
    }

    /// The cluster, if the data is elsewhere.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Store::Local(_) => None,
            Store::Distributed(cluster) => Some(cluster),
        }
    }

    /// Runs a call as a transaction of its own, if nobody has to be waited for: [`Node::try_execute`].
    pub fn try_execute(&self, call: &Call<'_>, seed: &mut u64, out: &mut Reply) -> Option<bool> {
        match self {
            Store::Local(node) => node.try_execute(call, seed, out),
            Store::Distributed(_) => None,
        }
    }

    /// Runs a call as a transaction of its own, after all that are in its way. Whether its reply is no error. Calls of one
    /// `sequence` that touch the same keys are run in their order. `clock` tells the Unix time in milliseconds.
    pub async fn execute(
        &self,
        call: &Call<'_>,
        sequence: u64,
        clock: impl Fn() -> u64,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        match self {
            Store::Local(node) => node.execute(call, clock, seed, out).await,
            Store::Distributed(cluster) => {
                let call = Call { now_ms: clock(), ..*call };
                Box::pin(cluster.execute(&call, sequence, seed, out)).await
            }
        }
    }

    /// Waits until `requests`, or everything, are locked. What is to be seen as the present time is `now_ms`, or what
    /// the nodes say.
    pub async fn begin(
        &self,
        requests: Vec<LockRequest>,
        everything: bool,
        now_ms: Option<u64>,
        watches: Vec<WatchId>,
    ) -> Result<Transaction, TransactionError> {
        match self {
            Store::Local(node) if everything => {
                Ok(Transaction::Local(LocalTransaction::begin_whole(node).await))
            }
            Store::Local(node) => Ok(Transaction::Local(LocalTransaction::begin(node, requests).await)),
            Store::Distributed(cluster) => {
                let mut txn =
                    Box::new(DistributedTransaction::new(cluster, requests, everything, now_ms, watches));
                Box::pin(txn.begin()).await?;
                Ok(Transaction::Distributed(txn))
            }
        }
    }

    /// Says whether anybody keeps copies of values.
    pub fn enable_invalidations(&self, kept: bool) {
        match self {
            Store::Local(node) => node.enable_invalidations(kept),
            Store::Distributed(cluster) => cluster.enable_invalidations(kept),
        }
    }

    /// Says who is told of what changes then; the first one stays.
    pub fn set_invalidation_listener(&self, listener: InvalidationListener) {
        match self {
            Store::Local(node) => node.set_invalidation_listener(listener),
            Store::Distributed(cluster) => cluster.set_invalidation_listener(listener),
        }
    }

    /// A transaction that begins with its first calls, if the data is elsewhere: [`Transaction::begin_with`].
    pub fn open(&self, requests: Vec<LockRequest>) -> Option<Transaction> {
        let cluster = self.cluster()?;
        Some(Transaction::Distributed(Box::new(DistributedTransaction::new(
            cluster,
            requests,
            false,
            None,
            Vec::new(),
        ))))
    }

    /// How many keys there are and what they take; elsewhere as of a second ago.
    pub fn usage(&self) -> Usage {
        match self {
            Store::Local(node) => node.usage(),
            Store::Distributed(cluster) => cluster.usage(),
        }
    }

    /// What has happened to keys since the start.
    pub fn counts(&self) -> Counts {
        match self {
            Store::Local(node) => node.counts(),
            Store::Distributed(cluster) => cluster.counts(),
        }
    }

    /// What has happened to them since somebody has asked to begin anew.
    pub fn counts_since_reset(&self) -> Counts {
        match self {
            Store::Local(node) => node.counts().since(node.counts_forgotten()),
            Store::Distributed(cluster) => cluster.counts_since_reset(),
        }
    }

    /// Records of the catalog whose names begin with `prefix`, without which they are given.
    pub async fn records(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CommandError> {
        match self {
            Store::Local(node) => {
                let records = node.records(prefix).into_iter();
                Ok(records.map(|(name, record)| (name, record.to_vec())).collect())
            }
            Store::Distributed(cluster) => {
                let records = cluster.records(prefix).await?.into_iter();
                Ok(records.map(|(name, record)| (name.to_vec(), record.to_vec())).collect())
            }
        }
    }

    /// Keeps a record of the catalog under this name, in place of the one before.
    pub async fn put_record(&self, prefix: &[u8], name: &[u8], record: &[u8]) -> Result<(), CommandError> {
        match self {
            Store::Local(node) => {
                node.put_record(&[prefix, name].concat(), record);
                Ok(())
            }
            Store::Distributed(cluster) => {
                cluster.write_records(prefix, vec![(name.to_vec(), record.to_vec())], Vec::new(), false).await
            }
        }
    }

    /// Makes these the records whose names begin with `prefix`, without which they are given, and forgets others.
    pub async fn set_records(
        &self,
        prefix: &[u8],
        records: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), CommandError> {
        match self {
            Store::Local(node) => {
                node.set_records(prefix, records.iter().map(|(name, record)| (&**name, &**record)));
                Ok(())
            }
            Store::Distributed(cluster) => cluster.write_records(prefix, records, Vec::new(), true).await,
        }
    }

    /// Keeps records, and forgets others, whose names begin with `prefix`, without which they are given.
    pub async fn change_records(
        &self,
        prefix: &[u8],
        records: Vec<(Vec<u8>, Vec<u8>)>,
        gone: Vec<Vec<u8>>,
    ) -> Result<(), CommandError> {
        match self {
            Store::Local(node) => {
                node.change_records(prefix, &records, &gone);
                Ok(())
            }
            Store::Distributed(cluster) => cluster.write_records(prefix, records, gone, false).await,
        }
    }

    /// A number by which calls can be grouped that are done together.
    pub fn group_of(&self, key: &[u8]) -> usize {
        match self {
            Store::Local(node) => node.shard_of(key),
            Store::Distributed(cluster) => cluster.node_of(key),
        }
    }
}

/// A transaction. Dropping it without [`Transaction::commit`] takes all its changes back.
pub enum Transaction {
    /// On the node of this process.
    Local(Box<LocalTransaction>),
    /// Over nodes in other processes.
    Distributed(Box<DistributedTransaction>),
    /// A long call has it, or had it when it was cancelled: nothing is left to be done with it.
    Away,
}

impl Transaction {
    /// Sets the limits of all further calls.
    pub fn set_limits(&mut self, limits: TxnLimits) {
        match self {
            Transaction::Local(txn) => txn.set_limits(limits),
            Transaction::Distributed(txn) => txn.set_limits(limits),
            Transaction::Away => {}
        }
    }

    /// Runs a call if that waits for nothing and is not long. Whether its reply is no error.
    pub fn execute_now(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        match self {
            Transaction::Local(txn) => txn.execute_short(call, mode, seed, out),
            Transaction::Distributed(txn) => txn.execute_local(call, seed, out),
            Transaction::Away => Ok(None),
        }
    }

    /// Runs a call, whoever has to be waited for.
    pub async fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        match self {
            Transaction::Local(txn) => {
                if let Some(fine) = txn.execute_short(call, mode, seed, out)? {
                    return Ok(fine);
                }
                Box::pin(self.execute_away(call, mode, seed, out)).await
            }
            Transaction::Distributed(txn) => Box::pin(txn.execute(call, mode, seed, out)).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::execute_any`], which takes the transaction with it.
    async fn execute_away(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        let Transaction::Local(txn) = std::mem::replace(self, Transaction::Away) else {
            return Err(cancelled());
        };
        match txn.execute_any(call, mode, seed, out).await {
            Executed::Done(txn, fine) => {
                *self = Transaction::Local(txn);
                Ok(fine)
            }
            Executed::Conflict(txn, conflict) => {
                *self = Transaction::Local(txn);
                Err(conflict.into())
            }
            Executed::Failed => Err(cancelled()),
        }
    }

    /// Runs calls whose replies nobody reads, whoever has to be waited for; those on the same node go there together.
    /// The numbers of those that failed.
    pub async fn execute_all(
        &mut self,
        calls: &[Call<'_>],
        mode: Mode,
        seed: &mut u64,
    ) -> Result<Vec<usize>, TransactionError> {
        match self {
            Transaction::Distributed(txn) => Box::pin(txn.execute_all(calls, mode, seed)).await,
            _ => {
                let mut failed = Vec::new();
                let mut unread = Reply::new(Protocol::Resp2);
                for (at, call) in calls.iter().enumerate() {
                    unread.buf.clear();
                    if !self.execute(call, mode, seed, &mut unread).await? {
                        failed.push(at);
                    }
                    if unread.steps > LONG_CALL_STEPS {
                        unread.steps = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Ok(failed)
            }
        }
    }

    /// For several calls in a row that nobody waits between; only where the data is in this process.
    pub fn batch(&mut self) -> Option<Batch<'_>> {
        match self {
            Transaction::Local(txn) => Some(txn.batch()),
            Transaction::Distributed(_) | Transaction::Away => None,
        }
    }

    /// The keys that are locked one by one.
    pub fn requests(&self) -> impl Iterator<Item = &LockRequest> {
        let (here, spread) = match self {
            Transaction::Local(txn) => (Some(txn.requests()), None),
            Transaction::Distributed(txn) => (None, Some(txn.requests())),
            Transaction::Away => (None, None),
        };
        here.into_iter().flatten().chain(spread.into_iter().flatten())
    }

    /// The present time as the nodes see it, if they are elsewhere.
    pub fn now_ms(&self) -> Option<u64> {
        match self {
            Transaction::Local(_) | Transaction::Away => None,
            Transaction::Distributed(txn) => Some(txn.now_ms()).filter(|now_ms| *now_ms > 0),
        }
    }

    /// The present time: what the nodes elsewhere have said, or what this clock tells, which then is theirs too.
    pub fn keep_time(&mut self, clock: impl FnOnce() -> u64) -> u64 {
        match self {
            Transaction::Local(_) | Transaction::Away => clock(),
            Transaction::Distributed(txn) => txn.keep_time(clock),
        }
    }

    /// Whether memory was full on a node elsewhere when it began.
    pub fn is_full(&self) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.is_full(),
        }
    }

    /// [`LocalTransaction::begin_part`].
    pub async fn begin_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.begin_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.begin_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::keep_part`].
    pub async fn keep_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.keep_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.keep_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::undo_part`].
    pub async fn undo_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.undo_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.undo_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::undo_part_with_changes`], of a part that has begun.
    pub async fn undo_part_with_changes(
        &mut self,
        most: usize,
    ) -> Result<(Vec<Change>, usize), TransactionError> {
        match self {
            Transaction::Local(txn) => Ok(txn.undo_part_with_changes(most)),
            Transaction::Distributed(txn) => Box::pin(txn.undo_part_with_changes(most)).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// Whether it has not begun, and may do so with its first calls: [`Transaction::begin_with`].
    pub fn is_open(&self) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.is_open(),
        }
    }

    /// [`DistributedTransaction::begin_with`].
    pub async fn begin_with(
        &mut self,
        calls: &[(Call<'_>, bool)],
        mode: Mode,
        spares_memory: bool,
        seed: &mut u64,
        out: Option<&mut Reply>,
    ) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(_) | Transaction::Away => Err(TransactionError::NotBatched),
            Transaction::Distributed(txn) => {
                Box::pin(txn.begin_with(calls, mode, spares_memory, seed, out)).await
            }
        }
    }

    /// [`DistributedTransaction::leave_to_end`].
    pub fn leave_to_end(&mut self, calls: &[(Call<'_>, bool)], mode: Mode, spares_memory: bool) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.leave_to_end(calls, mode, spares_memory),
        }
    }

    /// Keeps all changes and lets the keys go. An error says whether nothing was done, or nobody knows; or that calls
    /// could not be done that were left to the end.
    pub async fn commit(self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.commit_any().await;
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.commit()).await,
            Transaction::Away => Err(cancelled()),
        }
    }
}

/// Of a transaction whose long call has failed, or was cancelled.
fn cancelled() -> TransactionError {
    TransactionError::Lost(CANCELLED)
}
