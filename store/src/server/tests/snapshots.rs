//! Snapshots that peers begin.

use super::*;
use crate::server::snapshots::{self, PeerSnapshot};

const SESSION: u64 = 1;

impl TestNode {
    fn begin_snapshot(&self, session: u64, txn: u64) -> Result<PeerSnapshot, (Code, String)> {
        let request = wire::BeginSnapshot { txn, now_ms: 1, most_bytes: 1000, valkey: false };
        match snapshots::begin(&self.host, session, &request) {
            Ok((snapshot, begun)) => {
                assert!(begun.has_catalog, "it is the only node");
                Ok(snapshot)
            }
            Err(refused) => Err((refused.code(), refused.reason)),
        }
    }

    fn open(&self, number: u64, txn: Box<LocalTransaction>) {
        assert!(matches!(self.host.registry.take(number, SESSION, true), Found::New));
        self.host.registry.put_back(number, txn);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_begins_when_everything_is_locked() {
    let [node] = cluster().await;
    let begin = |session, txn| node.begin_snapshot(session, txn).map(drop);
    let missing = Err((Code::Invalid, "no such transaction is open".to_owned()));
    assert_eq!(begin(SESSION, TXN), missing);
    let request = LockRequest { db: 0, key: (*b"key").into(), mode: Mode::Exclusive };
    node.open(TXN, LocalTransaction::begin(&node.host.node, vec![request]).await);
    let refused = Err((Code::Invalid, "the transaction has not locked the whole node".to_owned()));
    assert_eq!(begin(SESSION, TXN), refused);
    assert!(node.host.registry.abort(TXN, SESSION));
    node.open(TXN + 1, LocalTransaction::begin_whole(&node.host.node).await);
    assert_eq!(begin(SESSION + 1, TXN + 1), missing, "another peer");
    let snapshot = node.begin_snapshot(SESSION, TXN + 1).map_err(|refused| panic!("{refused:?}"));
    let busy = Err((Code::Unavailable, "another backup is in progress".to_owned()));
    assert_eq!(begin(SESSION, TXN + 1), busy);
    drop(snapshot);
    assert_eq!(begin(SESSION, TXN + 1), Ok(()));
    // The transaction is still open.
    assert!(node.host.registry.abort(TXN + 1, SESSION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_read_to_its_end_is_over() {
    let [node] = cluster().await;
    node.open(TXN, LocalTransaction::begin_whole(&node.host.node).await);
    let Ok(snapshot) = node.begin_snapshot(SESSION, TXN) else { panic!("nothing is in its way") };
    let last = snapshot.read().await;
    assert!(matches!(&last, Answer::SnapshotPiece(piece) if piece.last && piece.keys == 0), "{last:?}");
    assert!(node.begin_snapshot(SESSION, TXN).is_ok(), "another one may begin");
    let ended = snapshot.read().await;
    assert!(matches!(&ended, Answer::Refusal(refusal) if refusal.code() == Code::Invalid), "{ended:?}");
}
