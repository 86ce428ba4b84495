//! Snapshots that peers read, piece by piece.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proto::store::v1 as wire;
use store_engine::rdb::Dialect;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use wire::refusal::Code;
use wire::response::Body as Answer;

use super::host::Host;
use super::records::common_records;
use super::refusal::refusal;
use super::registry::Found;
use crate::snapshot::{Snapshot, SnapshotError, SnapshotOptions};

/// A longer piece is sent in several ones.
const PIECE_BYTES: usize = 1 << 20;

/// A snapshot that a peer has begun. It ends when this is dropped.
pub(super) struct PeerSnapshot {
    /// That of the transaction in which it was begun.
    pub number: u64,
    reader: Arc<Mutex<Option<Reader>>>,
}

/// How far a snapshot is read.
struct Reader {
    snapshot: Snapshot,
    /// What is read and not sent.
    unsent: VecDeque<wire::SnapshotPiece>,
}

/// Begins a snapshot in a transaction of the session that has locked everything.
pub(super) fn begin(
    host: &Host,
    session: u64,
    request: &wire::BeginSnapshot,
) -> Result<(PeerSnapshot, wire::SnapshotBegun), wire::Refusal> {
    let number = request.txn;
    let Found::Open(txn) = host.registry.take(number, session, false) else {
        return Err(refusal(Code::Invalid, "no such transaction is open"));
    };
    let options = SnapshotOptions {
        now_ms: request.now_ms,
        most_bytes: usize::try_from(request.most_bytes).unwrap_or(usize::MAX),
        reader: if request.valkey { Dialect::Valkey } else { Dialect::Redis },
    };
    let snapshot = match txn.holds_everything() {
        true => Snapshot::within(&txn, options).map_err(|error| refused(&error)),
        false => Err(refusal(Code::Invalid, "the transaction has not locked the whole node")),
    };
    // The catalog cannot leave while everything is locked.
    let has_catalog = host.membership.owns_catalog().is_ok();
    host.registry.put_back(number, txn);
    let snapshot = snapshot?;
    let usage = snapshot.usage();
    let numbers = |counts: &[usize]| counts.iter().map(|count| *count as u64).collect();
    let record = |(name, content): (&[u8], &[u8])| (name.to_vec(), content.into());
    let records = if has_catalog { common_records(snapshot.records(b"").map(record)) } else { Vec::new() };
    let begun = wire::SnapshotBegun {
        keys: numbers(&usage.keys),
        expiring: numbers(&usage.expiring),
        has_catalog,
        records,
    };
    let reader = Arc::new(Mutex::new(Some(Reader { snapshot, unsent: VecDeque::new() })));
    Ok((PeerSnapshot { number, reader }, begun))
}

fn refused(error: &SnapshotError) -> wire::Refusal {
    refusal(Code::Unavailable, error)
}

impl PeerSnapshot {
    /// The next piece.
    pub fn read(&self) -> impl Future<Output = Answer> + use<> {
        let reader = self.reader.clone();
        async move {
            // Elsewhere, since a large value takes long and others of this thread would wait.
            let reading = spawn_blocking(move || {
                Handle::current().block_on(async { next(&mut *reader.lock().await).await })
            });
            match reading.await {
                Ok(Ok(piece)) => Answer::SnapshotPiece(Box::new(piece)),
                Ok(Err(refused)) => Answer::Refusal(refused),
                Err(failed) => Answer::Refusal(refusal(Code::Unavailable, &failed)),
            }
        }
    }
}

/// The next piece of a snapshot, which ends with the last one or with an error.
async fn next(reader: &mut Option<Reader>) -> Result<wire::SnapshotPiece, wire::Refusal> {
    let Some(Reader { snapshot, unsent }) = reader else {
        return Err(refusal(Code::Invalid, "the snapshot has ended"));
    };
    while unsent.is_empty() {
        match snapshot.next().await {
            Ok(Some(parts)) => {
                for part in parts {
                    cut(part.db as u32, part.keys, part.bytes.into(), unsent);
                }
            }
            Ok(None) => {
                *reader = None;
                return Ok(wire::SnapshotPiece { last: true, ..wire::SnapshotPiece::default() });
            }
            Err(error) => {
                *reader = None;
                return Err(refused(&error));
            }
        }
    }
    Ok(unsent.pop_front().unwrap_or_default())
}

/// Adds keys as one piece, or as several ones.
fn cut(db: u32, keys: u64, mut content: Bytes, pieces: &mut VecDeque<wire::SnapshotPiece>) {
    let mut begun = keys;
    while content.len() > PIECE_BYTES {
        let some = content.split_to(PIECE_BYTES);
        let keys = std::mem::take(&mut begun);
        pieces.push_back(wire::SnapshotPiece { db, keys, content: some, unfinished: true, last: false });
    }
    pieces.push_back(wire::SnapshotPiece { db, keys: begun, content, unfinished: false, last: false });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pieces_are_cut() {
        for (bytes, wanted) in [(0, 1), (1, 1), (PIECE_BYTES, 1), (PIECE_BYTES + 1, 2), (3 * PIECE_BYTES, 3)]
        {
            let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let mut pieces = VecDeque::new();
            cut(3, 7, content.clone().into(), &mut pieces);
            assert_eq!(pieces.len(), wanted, "{bytes}");
            assert_eq!(pieces.iter().map(|piece| piece.keys).sum::<u64>(), 7);
            let unfinished: Vec<bool> = pieces.iter().map(|piece| piece.unfinished).collect();
            assert!(unfinished[..wanted - 1].iter().all(|it| *it) && !unfinished[wanted - 1]);
            let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.content.clone()).collect();
            assert!(joined == content && pieces.iter().all(|piece| piece.db == 3 && !piece.last));
        }
    }
}
