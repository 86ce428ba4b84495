//! A copy of the data of a group, from the process that leads it to one whose replica lacks too much.
//!
//! What is received becomes a directory beside that of the node, and takes its place when it is complete and durable.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consensus::{Members, Position};
use proto::store::v1 as wire;
use proto::store::v1::store_client::StoreClient;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::client::PeerCredentials;
use crate::client::way;
use crate::journal::{CopyPiece, Disk, DiskError, Op, fail_point, in_dir};
use crate::node::Node;
use crate::parts::MESSAGE_BYTES;
use crate::replication::{Copied, ReplicaHandle, position_of};

/// Parts that the network has not taken yet.
const MOST_WAITING: usize = 2;
/// The receiver flushes its disk after so many bytes.
const FLUSH_BYTES: usize = 32 << 20;

/// Parts of a copy, as tonic wants them.
pub type CopyParts = ReceiverStream<Result<wire::CopyPart, Status>>;

/// Copies the data of a node that leads its group, with at most so many bytes per second.
pub(super) fn send(node: &Node, replica: ReplicaHandle, bytes_per_second: u64) -> CopyParts {
    let (parts, waiting) = mpsc::channel(MOST_WAITING);
    if let Some(journal) = node.journal() {
        let mut pieces = journal.copy();
        tokio::spawn(async move {
            while let Some(piece) = pieces.recv().await {
                let (part, bytes) = part_of(piece, &replica);
                if parts.send(Ok(part)).await.is_err() {
                    return;
                }
                sleep(Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64)).await;
            }
        });
    }
    ReceiverStream::new(waiting)
}

/// A piece as it is sent, and how long it is.
fn part_of(piece: CopyPiece, replica: &ReplicaHandle) -> (wire::CopyPart, usize) {
    let ops = match piece {
        CopyPiece::End(record) => {
            let Copied { position, members } = position_of(record, &replica.log);
            let end = wire::CopyEnd {
                record,
                index: position.index,
                term: position.term,
                voters: members.voters,
                learners: members.learners,
                outgoing: members.outgoing,
            };
            return (wire::CopyPart { changes: Vec::new(), end: Some(end) }, 0);
        }
        CopyPiece::Changes(ops) => ops,
    };
    let mut bytes = 0;
    let change = |op| {
        let (key, value) = match op {
            Op::Put(key, value) => (key, Some(value)),
            Op::Delete(key) => (key, None),
        };
        bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        wire::RecordChange { key: key.into(), value: value.map(Into::into) }
    };
    let changes = ops.into_iter().map(change).collect();
    (wire::CopyPart { changes, end: None }, bytes)
}

/// Where a copy comes from.
pub(super) struct Source {
    /// Of the process that leads the group.
    pub address: String,
    /// Of this process.
    pub credentials: PeerCredentials,
    /// The cluster, and the group.
    pub request: wire::CopyRequest,
    /// The entry that the log begins behind: an older copy would lack what this replica has vouched for.
    pub least: u64,
}

/// Gets a copy, in place of the data in `dir`. The node must not be open.
pub(super) async fn receive(source: Source, dir: PathBuf) -> Result<Copied, String> {
    let Source { address, credentials, request, least } = source;
    let text = |error: &dyn std::fmt::Display| format!("{address}: {error}");
    let channel = way::connect(&address, credentials.tls.as_ref()).await.map_err(|error| text(&error))?;
    let mut client = StoreClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    let said = |status: Status| text(&status.message());
    let mut parts = client.copy(request).await.map_err(said)?.into_inner();
    let unfinished = beside(&dir, "new");
    let mut copy = Copy::begin(unfinished.clone()).await?;
    while let Some(wire::CopyPart { changes, end }) = parts.message().await.map_err(said)? {
        copy = copy.take(changes).await?;
        let Some(end) = end else { continue };
        if end.index < least {
            let older =
                format!("its copy ends with entry {}, and the log here begins behind {least}", end.index);
            return Err(text(&older));
        }
        copy.end(end.record).await?;
        let exchanged = spawn_blocking(move || exchange(&dir, &unfinished)).await;
        exchanged.map_err(|_| PANIC.to_owned())?.map_err(|error| error.to_string())?;
        let position = Position { index: end.index, term: end.term };
        let wire::CopyEnd { voters, outgoing, learners, .. } = end;
        return Ok(Copied { position, members: Members { voters, outgoing, learners } });
    }
    Err(text(&"the copy has ended before it was complete"))
}

const PANIC: &str = "a thread has panicked";

/// A copy that is being received.
struct Copy {
    disk: Box<dyn Disk>,
    unflushed: usize,
}

impl Copy {
    async fn begin(dir: PathBuf) -> Result<Copy, String> {
        on_disk(move || {
            fail_point::reach("copying")?;
            remove(&dir).map_err(DiskError::io("remove", &dir))?;
            Ok(Copy { disk: in_dir(dir)()?, unflushed: 0 })
        })
        .await
    }

    async fn take(mut self, changes: Vec<wire::RecordChange>) -> Result<Copy, String> {
        on_disk(move || {
            self.unflushed += changes
                .iter()
                .map(|change| change.value.as_ref().map_or(0, |value| value.len()))
                .sum::<usize>();
            let op = |wire::RecordChange { key, value }| match value {
                Some(value) => Op::Put(key.into(), value.into()),
                None => Op::Delete(key.into()),
            };
            let ops: Vec<Op> = changes.into_iter().map(op).collect();
            self.disk.apply(0, &ops)?;
            if self.unflushed > FLUSH_BYTES {
                self.disk.flush()?;
                self.unflushed = 0;
            }
            Ok(self)
        })
        .await
    }

    /// All is there, up to this record.
    async fn end(mut self, record: u64) -> Result<(), String> {
        on_disk(move || {
            self.disk.apply(record, &[])?;
            self.disk.flush()
        })
        .await
    }
}

async fn on_disk<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, String> {
    let done = spawn_blocking(act).await.map_err(|_| PANIC.to_owned())?;
    done.map_err(|error| error.to_string())
}

/// Makes the copy the data of the node.
fn exchange(dir: &Path, copy: &Path) -> Result<(), DiskError> {
    let former = beside(dir, "old");
    remove(&former).map_err(DiskError::io("remove", &former))?;
    if dir.exists() {
        fs::rename(dir, &former).map_err(DiskError::io("rename", dir))?;
    }
    fs::rename(copy, dir).map_err(DiskError::io("rename", copy))?;
    sync_parent(dir)?;
    remove(&former).map_err(DiskError::io("remove", &former))
}

/// Finishes what a crash has interrupted: the data of the node is whole then.
pub(super) fn recover(dir: &Path) -> Result<(), DiskError> {
    let (copy, former) = (beside(dir, "new"), beside(dir, "old"));
    if former.exists() && !dir.exists() {
        // It was complete, or the former data would still be in its place.
        fs::rename(&copy, dir).map_err(DiskError::io("rename", &copy))?;
        sync_parent(dir)?;
    }
    remove(&former).map_err(DiskError::io("remove", &former))?;
    remove(&copy).map_err(DiskError::io("remove", &copy))
}

/// Deletes the data of a node, and copies that were not completed.
pub(super) fn delete(dir: &Path) -> Result<(), DiskError> {
    for dir in [dir.to_owned(), beside(dir, "new"), beside(dir, "old")] {
        remove(&dir).map_err(DiskError::io("remove", &dir))?;
    }
    Ok(())
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    dir.with_extension(suffix)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync_parent(dir: &Path) -> Result<(), DiskError> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    let synced = fs::File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(DiskError::io("flush", parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_the_data_or_the_copy() {
        let root = std::env::temp_dir().join(format!("moonshard-copy-{}", std::process::id()));
        let dir = root.join("g0");
        let content = |of: &Path| fs::read(of.join("file")).ok();
        let make = |of: &Path, content: &str| {
            fs::create_dir_all(of).and_then(|()| fs::write(of.join("file"), content)).expect("there is room");
        };
        // The copy was not complete.
        make(&dir, "data");
        make(&beside(&dir, "new"), "copy");
        recover(&dir).expect("it works");
        assert_eq!((content(&dir), beside(&dir, "new").exists()), (Some(b"data".to_vec()), false));
        // The first rename was done.
        make(&beside(&dir, "new"), "copy");
        fs::rename(&dir, beside(&dir, "old")).expect("it is there");
        recover(&dir).expect("it works");
        assert_eq!((content(&dir), beside(&dir, "old").exists()), (Some(b"copy".to_vec()), false));
        // Both were.
        make(&beside(&dir, "old"), "data");
        recover(&dir).expect("it works");
        assert_eq!((content(&dir), beside(&dir, "old").exists()), (Some(b"copy".to_vec()), false));
        make(&beside(&dir, "new"), "newer");
        exchange(&dir, &beside(&dir, "new")).expect("it works");
        assert_eq!(content(&dir), Some(b"newer".to_vec()));
        fs::remove_dir_all(root).expect("it is there");
    }
}
