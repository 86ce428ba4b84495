//! The store as its users see it: shards of this process, or nodes in others. Nobody above needs to know which.
//!
//! What waits for nodes elsewhere is boxed: it would make the futures of those larger who need none of it.

mod blocking;
mod snapshot;
mod transaction;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use store_engine::keyspace::Counts;
use store_engine::{CommandError, Reply};

use crate::call::Call;
use crate::client::{Cluster, DistributedTransaction, TransactionError, WatchId};
use crate::invalidations::InvalidationListener;
use crate::journal::{Journal, LARGE_RECORD_BYTES, NO_JOURNAL, misconf};
use crate::lock::LockRequest;
use crate::memory::Usage;
use crate::node::Node;
use crate::txn::LocalTransaction;

pub use blocking::{Blocked, Ending};
pub use snapshot::StoreSnapshot;
pub use transaction::Transaction;
pub use watch::Watch;

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

    /// The journal of the node in this process, if that keeps its data on a disk.
    pub fn journal(&self) -> Option<&Journal> {
        self.node()?.journal()
    }

    /// Waits until everything that was changed so far is on disk, on all nodes.
    pub async fn flush(&self) -> Result<(), CommandError> {
        match self {
            Store::Local(node) => {
                let journal = node.journal().ok_or(NO_JOURNAL)?;
                journal.flush().await.map_err(|failure| misconf(&failure))
            }
            Store::Distributed(cluster) => Box::pin(cluster.save(false)).await,
        }
    }

    /// Whether what was changed here is far ahead of the disk: then [`Store::wait_for_disk`] is due before more is changed.
    #[inline]
    pub fn is_far_ahead_of_disk(&self) -> bool {
        self.journal().is_some_and(Journal::is_behind)
    }

    /// Waits for as long as that is so. If the disk cannot be written, changes are refused anyway.
    pub async fn wait_for_disk(&self) {
        if let Some(journal) = self.journal() {
            let _ = journal.catch_up().await;
        }
    }

    /// Waits until the disk has taken most of the large records, if a request of so many bytes may have added one.
    pub async fn wait_for_room(&self, request_bytes: usize) {
        if request_bytes >= LARGE_RECORD_BYTES
            && let Some(journal) = self.journal()
        {
            journal.make_room().await;
        }
    }

    /// Refuses what changes something while the disk cannot be written: [`Node::refuse_while_failing`]. Nodes in other
    /// processes refuse that themselves.
    #[inline]
    pub fn refuse_while_failing(&self) -> Result<(), CommandError> {
        self.node().map_or(Ok(()), |node| node.refuse_while_failing())
    }

    /// Whether there is a limit of memory that may be reached. Of nodes in other processes that is not known.
    #[inline]
    pub fn may_be_full(&self) -> bool {
        self.node().is_none_or(|node| node.limits_memory())
    }

    /// Whether the data exceeds its limit by more than `slack_bytes`; in other processes as of a second ago, and without
    /// slack, as the nodes refuse what they have no room for.
    pub fn exceeds_limit(&self, slack_bytes: usize, now_ms: u64) -> bool {
        match self {
            Store::Local(node) => node.exceeds_limit(slack_bytes, now_ms),
            Store::Distributed(cluster) => slack_bytes == 0 && cluster.is_full(),
        }
    }

    /// Whether keys stay that have expired, for as long as clients are paused. Nodes in other processes do not know that.
    pub fn hold_expired(&self, held: bool) {
        if let Some(node) = self.node() {
            node.hold_expired(held);
        }
    }

    /// Whether requests can be sent to the data: to one node at least, if it is on nodes in other processes.
    pub fn is_reachable(&self) -> bool {
        match self {
            Store::Local(_) => true,
            Store::Distributed(cluster) => cluster.links().iter().any(|link| link.is_up().is_ok()),
        }
    }

    /// How many shards this process has.
    pub fn shards(&self) -> usize {
        self.node().map_or(0, |node| node.shards())
    }

    /// Whether other gateways may use the same data.
    pub fn is_shared(&self) -> bool {
        matches!(self, Store::Distributed(_))
    }

    /// The answers of the other gateways that use the same data to a question.
    pub async fn ask_gateways(&self, question: Bytes) -> Result<Vec<Bytes>, CommandError> {
        match self {
            Store::Local(_) => Ok(Vec::new()),
            Store::Distributed(cluster) => cluster.gather(question).await,
        }
    }

    /// The same by way of the node that has `key`: questions about one key reach each gateway in their order, and once.
    pub async fn ask_gateways_once(&self, key: &[u8], question: Bytes) -> Result<Vec<Bytes>, CommandError> {
        match self {
            Store::Local(_) => Ok(Vec::new()),
            Store::Distributed(cluster) => cluster.gather_once(key, question).await,
        }
    }

    /// The cluster, if the data is elsewhere.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Store::Local(_) => None,
            Store::Distributed(cluster) => Some(cluster),
        }
    }

    /// Runs a call as a transaction of its own, if there is nothing to wait for: [`Node::try_execute`].
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

    /// Says whether any client keeps copies of values.
    pub fn enable_invalidations(&self, kept: bool) {
        match self {
            Store::Local(node) => node.enable_invalidations(kept),
            Store::Distributed(cluster) => cluster.enable_invalidations(kept),
        }
    }

    /// Sets the listener for what changes then; the first one stays.
    pub fn set_invalidation_listener(&self, listener: InvalidationListener) {
        match self {
            Store::Local(node) => node.set_invalidation_listener(listener),
            Store::Distributed(cluster) => cluster.set_invalidation_listener(listener),
        }
    }

    /// A transaction that locks `requests` with its first calls: [`Transaction::begin_with`]. Where that saves nothing the
    /// requests are returned, for [`Store::begin`].
    pub fn open(&self, requests: Vec<LockRequest>) -> Result<Transaction, Vec<LockRequest>> {
        match self {
            Store::Local(_) => Err(requests),
            Store::Distributed(cluster) => {
                let txn = DistributedTransaction::new(cluster, requests, false, None, Vec::new());
                Ok(Transaction::Distributed(Box::new(txn)))
            }
        }
    }

    /// Runs calls whose replies are not read, together, where that saves anything. Those that failed: number and reply. Calls of
    /// one `sequence` that touch the same keys are run in their order. `None`: they have to be run one by one.
    pub async fn execute_together(
        &self,
        calls: &[Call<'_>],
        sequence: u64,
        seed: &mut u64,
    ) -> Option<Vec<(usize, Vec<u8>)>> {
        match self {
            Store::Local(_) => None,
            Store::Distributed(cluster) => Some(Box::pin(cluster.execute_all(calls, sequence, seed)).await),
        }
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

    /// Resets the counts of what happens to keys: CONFIG RESETSTAT.
    pub async fn reset_counts(&self) -> Result<(), CommandError> {
        match self {
            Store::Local(node) => node.reset_counts(),
            Store::Distributed(cluster) => cluster.configure(Vec::new(), true).await?,
        }
        Ok(())
    }

    /// What has happened to keys since [`Store::reset_counts`].
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
