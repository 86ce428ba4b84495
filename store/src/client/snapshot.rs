//! Snapshots of all nodes of a cluster at one moment, read in turn while the nodes go on to serve.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proto::store::v1 as wire;
use store_engine::rdb::Dialect;
use store_engine::snapshot::SnapshotPart;
use store_engine::{CommandError, DATABASES};
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::cluster::{Cluster, unexpected};
use super::error::TransactionError;
use super::link::{Link, Pending};
use super::link_error::LinkError;
use super::transaction::DistributedTransaction;
use crate::memory::Usage;
use crate::snapshot::{SnapshotError, SnapshotOptions, records_of};

/// A snapshot of a cluster. Slots may move meanwhile: each node keeps what it had.
pub struct ClusterSnapshot {
    /// The nodes that are not read to their end; the first one is read next.
    nodes: VecDeque<NodeSnapshot>,
    usage: Usage,
    catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
}

/// The snapshot of one node.
struct NodeSnapshot {
    link: Arc<Link>,
    /// The stream that it lives and dies with.
    stream: u64,
    number: u64,
    /// The next piece, which is asked for before it is needed.
    next: Option<Pending>,
    /// The node knows that it is over.
    is_over: bool,
}

impl ClusterSnapshot {
    /// Begins a snapshot when all transactions that run have ended, on each node with these options.
    pub async fn take(
        cluster: &Arc<Cluster>,
        options: SnapshotOptions,
    ) -> Result<ClusterSnapshot, CommandError> {
        let SnapshotOptions { now_ms, most_bytes, reader } = options;
        let mut everything = DistributedTransaction::new(cluster, Vec::new(), true, Some(now_ms), Vec::new());
        everything.begin().await.map_err(|error| match error {
            TransactionError::Lost(error) | TransactionError::LeaderLost(error) => error,
            _ => unexpected(),
        })?;
        let (most_bytes, valkey) = (most_bytes as u64, reader == Dialect::Valkey);
        let mut snapshot =
            ClusterSnapshot { nodes: VecDeque::new(), usage: Usage::default(), catalog: BTreeMap::new() };
        let begun = everything.ask_participants(|txn| {
            Ask::BeginSnapshot(wire::BeginSnapshot { txn, now_ms, most_bytes, valkey })
        });
        let mut has_catalog = false;
        let mut failure = None;
        for (link, stream, number, answer) in begun {
            let mut node = NodeSnapshot { link, stream, number, next: None, is_over: false };
            match answer.answer().await {
                Ok(Answer::SnapshotBegun(begun)) => {
                    has_catalog |= begun.has_catalog;
                    snapshot.add(*begun);
                    node.ask();
                    snapshot.nodes.push_back(node);
                }
                // It may have begun with those that answer: the others are ended when this is dropped.
                Ok(Answer::Refusal(refusal)) => {
                    node.is_over = true;
                    failure = Some(node.failed(&refusal.reason));
                }
                Ok(_) => failure = Some(node.failed("unexpected type of answer")),
                Err(lost) => failure = Some(node.failed(&lost.reason.to_string())),
            }
        }
        match failure {
            Some(error) => Err(CommandError::owned(format!("ERR {error}"))),
            None if !has_catalog => Err(CommandError::new("TRYAGAIN nothing was done: slots are moving")),
            None => Ok(snapshot),
        }
    }

    /// Adds what a node says of its snapshot.
    fn add(&mut self, begun: wire::SnapshotBegun) {
        let count = |counts: &[u64], db: usize| counts.get(db).map_or(0, |count| *count as usize);
        for db in 0..DATABASES {
            self.usage.keys[db] += count(&begun.keys, db);
            self.usage.expiring[db] += count(&begun.expiring, db);
        }
        let record = |record: wire::Record| (record.name.to_vec(), record.content.to_vec().into());
        self.catalog.extend(begun.records.into_iter().map(record));
    }

    /// How many keys there were; what they took is not known.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The records of the catalog whose names begin with `prefix`, without which they are given.
    pub fn records<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        records_of(&self.catalog, prefix)
    }

    /// An error if it is known to have failed: the connection to a node is lost.
    pub fn check(&self) -> Result<(), SnapshotError> {
        let lost = self.nodes.iter().find(|node| node.link.stream() != node.stream);
        lost.map_or(Ok(()), |node| Err(node.failed(&LinkError::OtherStream.to_string())))
    }

    /// Keys that were not given before, some of them, or some bytes of one; `None`: that was all.
    pub async fn next(&mut self) -> Result<Option<Vec<SnapshotPart>>, SnapshotError> {
        while let Some(node) = self.nodes.front_mut() {
            let piece = node.next().await?;
            if piece.last {
                self.nodes.pop_front();
                continue;
            }
            // The rest of a key must follow.
            if !piece.unfinished {
                self.nodes.rotate_left(1);
            }
            let db = piece.db as usize;
            return Ok(Some(vec![SnapshotPart { db, keys: piece.keys, bytes: piece.content.into() }]));
        }
        Ok(None)
    }
}

impl NodeSnapshot {
    fn ask(&mut self) {
        let read = Ask::ReadSnapshot(wire::ReadSnapshot { txn: self.number });
        self.next = Some(self.link.ask_on(self.stream, read).or_nothing(&self.link));
    }

    /// The next piece; the one after it is asked for.
    async fn next(&mut self) -> Result<wire::SnapshotPiece, SnapshotError> {
        let Some(next) = self.next.take() else { return Err(self.failed("the snapshot has ended")) };
        let piece = match next.answer().await {
            Ok(Answer::SnapshotPiece(piece)) if (piece.db as usize) < DATABASES => *piece,
            Ok(Answer::Refusal(refusal)) => return Err(self.failed(&refusal.reason)),
            Ok(_) => return Err(self.failed("unexpected type of answer")),
            Err(lost) => return Err(self.failed(&lost.reason.to_string())),
        };
        self.is_over = piece.last;
        if !piece.last {
            self.ask();
        }
        Ok(piece)
    }

    fn failed(&self, reason: &str) -> SnapshotError {
        SnapshotError::OnNode { node: self.link.address().to_owned(), reason: reason.to_owned() }
    }
}

impl Drop for NodeSnapshot {
    fn drop(&mut self) {
        // What another stream knew is gone with it.
        if !self.is_over && self.link.stream() == self.stream {
            self.link.send_oneway(Ask::EndSnapshot(wire::EndSnapshot { txn: self.number }));
        }
    }
}
