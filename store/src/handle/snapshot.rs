//! Snapshots: all data as it is at one moment, in this process or on nodes in others.

use store_engine::CommandError;
use store_engine::snapshot::SnapshotPart;

use super::Store;
use crate::client::ClusterSnapshot;
use crate::memory::Usage;
use crate::snapshot::{Snapshot, SnapshotError, SnapshotOptions};

/// All data as it was at one moment, read in pieces while the store goes on to serve.
pub enum StoreSnapshot {
    /// Of the node of this process.
    Local(Snapshot),
    /// Of nodes in other processes.
    Distributed(ClusterSnapshot),
}

impl Store {
    /// Begins a snapshot when all transactions that run have ended, on each node with these options. An error if there is
    /// one already.
    pub async fn snapshot(&self, options: SnapshotOptions) -> Result<StoreSnapshot, CommandError> {
        match self {
            Store::Local(node) => {
                let snapshot = Snapshot::take(node, options).await;
                let failed = |error| CommandError::owned(format!("ERR {error}"));
                snapshot.map(StoreSnapshot::Local).map_err(failed)
            }
            Store::Distributed(cluster) => {
                let snapshot = ClusterSnapshot::take(cluster, options);
                Box::pin(snapshot).await.map(StoreSnapshot::Distributed)
            }
        }
    }
}

impl StoreSnapshot {
    /// How many keys there were.
    pub fn usage(&self) -> &Usage {
        match self {
            StoreSnapshot::Local(snapshot) => snapshot.usage(),
            StoreSnapshot::Distributed(snapshot) => snapshot.usage(),
        }
    }

    /// Bytes that this process keeps of what has changed since.
    pub fn held_bytes(&self) -> usize {
        match self {
            StoreSnapshot::Local(snapshot) => snapshot.held_bytes(),
            StoreSnapshot::Distributed(_) => 0,
        }
    }

    /// The records of the catalog whose names begin with `prefix`, without which they are given.
    pub fn records(&self, prefix: &'static [u8]) -> Vec<(&[u8], &[u8])> {
        match self {
            StoreSnapshot::Local(snapshot) => snapshot.records(prefix).collect(),
            StoreSnapshot::Distributed(snapshot) => snapshot.records(prefix).collect(),
        }
    }

    /// An error if it is known to have failed.
    pub fn check(&self) -> Result<(), SnapshotError> {
        match self {
            StoreSnapshot::Local(snapshot) => snapshot.check(),
            StoreSnapshot::Distributed(snapshot) => snapshot.check(),
        }
    }

    /// Keys that were not given before, some of them, or some bytes of one; `None`: that was all.
    pub async fn next(&mut self) -> Result<Option<Vec<SnapshotPart>>, SnapshotError> {
        match self {
            StoreSnapshot::Local(snapshot) => snapshot.next().await,
            StoreSnapshot::Distributed(snapshot) => snapshot.next().await,
        }
    }
}
