//! Snapshots: all that a node has at one moment, read in pieces while it goes on to serve.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store_engine::rdb::Dialect;
use store_engine::snapshot::{SnapshotBuffer, SnapshotFailure, SnapshotPart};
use tokio::time::sleep;

use crate::memory::Usage;
use crate::node::Node;
use crate::txn::LocalTransaction;

/// How much of a shard is read while it is locked: some 0.1 ms.
const SLICE_BYTES: usize = 64 << 10;

/// How long it is waited for values that a long call has taken out of their shards.
const AWAY: Duration = Duration::from_millis(5);

/// A snapshot of a node, of which there is one at a time.
pub struct Snapshot {
    node: Arc<Node>,
    buffer: Arc<SnapshotBuffer>,
    catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
    usage: Usage,
    /// The shard that is read next.
    shard: usize,
}

/// What a snapshot is to be.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// Unix time in milliseconds: keys that had expired then are left out.
    pub now_ms: u64,
    /// What changes before it was read is kept up to so many bytes.
    pub most_bytes: usize,
    /// Who is to read the file.
    pub reader: Dialect,
}

/// Why there is no snapshot, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// Another one is being read.
    Busy,
    /// It has failed.
    Failed(SnapshotFailure),
    /// A node in another process gives none, or not all of it.
    OnNode {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SnapshotError::OnNode { node, reason } => return write!(f, "store node {node}: {reason}"),
            SnapshotError::Busy => "another backup is in progress",
            SnapshotError::Failed(SnapshotFailure::TooManyChanges) => {
                "more was changed meanwhile than the output limit of the client allows to be kept for it"
            }
            SnapshotError::Failed(SnapshotFailure::Flushed) => "a database was flushed meanwhile",
        })
    }
}

impl std::error::Error for SnapshotError {}

impl Snapshot {
    /// Begins a snapshot when all transactions that run have ended.
    pub async fn take(node: &Arc<Node>, options: SnapshotOptions) -> Result<Snapshot, SnapshotError> {
        if node.has_snapshot.load(Ordering::Acquire) {
            return Err(SnapshotError::Busy);
        }
        // While everything is locked no transaction is half done, and nothing changes.
        let everything = LocalTransaction::begin_whole(node).await;
        Snapshot::within(&everything, options)
    }

    /// The same at once, in a transaction that has locked the whole node.
    pub(crate) fn within(
        everything: &LocalTransaction,
        options: SnapshotOptions,
    ) -> Result<Snapshot, SnapshotError> {
        debug_assert!(everything.holds_everything(), "what is not locked may be half done");
        let SnapshotOptions { now_ms, most_bytes, reader } = options;
        let node = everything.node();
        if node.has_snapshot.swap(true, Ordering::AcqRel) {
            return Err(SnapshotError::Busy);
        }
        let mut snapshot = Snapshot {
            node: node.clone(),
            buffer: SnapshotBuffer::new(now_ms, most_bytes, reader),
            catalog: BTreeMap::new(),
            usage: Usage::default(),
            shard: 0,
        };
        for number in 0..node.shards() {
            let mut shard = node.shard(number).lock();
            for (db, space) in shard.partition.databases.iter_mut().enumerate() {
                space.begin_snapshot(db, &snapshot.buffer);
            }
        }
        snapshot.usage = node.usage();
        snapshot.catalog = node.catalog.lock().clone();
        Ok(snapshot)
    }

    /// How many keys there were, and what they took.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Bytes of what is kept since it has changed.
    pub fn held_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// The records of the catalog whose names begin with `prefix`, without which they are given.
    pub fn records<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        records_of(&self.catalog, prefix)
    }

    /// An error if it has failed.
    pub fn check(&self) -> Result<(), SnapshotError> {
        self.buffer.failure().map_or(Ok(()), |failure| Err(SnapshotError::Failed(failure)))
    }

    /// Keys that were not given before, some of them; `None`: that was all.
    pub async fn next(&mut self) -> Result<Option<Vec<SnapshotPart>>, SnapshotError> {
        loop {
            self.check()?;
            let is_complete = self.buffer.is_complete();
            let early = self.buffer.take();
            if !early.is_empty() || is_complete {
                return Ok((!early.is_empty()).then_some(early));
            }
            match self.read() {
                Some(part) => return Ok(Some(vec![part])),
                None => sleep(AWAY).await,
            }
        }
    }

    /// A slice of the first shard that has something.
    fn read(&mut self) -> Option<SnapshotPart> {
        for _ in 0..self.node.shards() {
            let databases = &mut self.node.shard(self.shard).lock().partition.databases;
            if let Some(part) = databases.iter_mut().find_map(|space| space.read_snapshot(SLICE_BYTES)) {
                return Some(part);
            }
            self.shard = (self.shard + 1) % self.node.shards();
        }
        None
    }
}

/// The records whose names begin with `prefix`, without which they are given.
pub(crate) fn records_of<'a>(
    catalog: &'a BTreeMap<Vec<u8>, Arc<[u8]>>,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let found = catalog.range(prefix.to_vec()..);
    found.map_while(move |(name, record)| Some((name.strip_prefix(prefix)?, &**record)))
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        for number in 0..self.node.shards() {
            let databases = &mut self.node.shard(number).lock().partition.databases;
            databases.iter_mut().for_each(|space| space.end_snapshot());
        }
        self.node.has_snapshot.store(false, Ordering::Release);
    }
}
