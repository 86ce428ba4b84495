//! Transactions of one call.

use std::sync::Arc;

use store_engine::{CommandError, Reply, Routing, work};

use super::long::Interruption;
use super::{Executed, LocalTransaction};
use crate::call::Call;
use crate::lock::{LockRequest, Mode};
use crate::node::Node;

/// A call with more keys locks the whole node.
const MANY_KEYS: usize = 1024;

impl Node {
    /// Runs `call` as a transaction of its own, after all that are in its way. `clock` tells the Unix time in
    /// milliseconds, which it sees when its turn has come. Whether the reply is no error.
    pub async fn execute(
        self: &Arc<Self>,
        call: &Call<'_>,
        clock: impl Fn() -> u64,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        let txn = LocalTransaction::begin_for(self, call).await;
        txn.finish_with(&Call { now_ms: clock(), ..*call }, seed, out).await
    }
}

impl LocalTransaction {
    /// Waits until everything is locked that `call` needs.
    pub async fn begin_for(node: &Arc<Node>, call: &Call<'_>) -> Box<LocalTransaction> {
        match call.command.routing.of(call.args) {
            Routing::Everywhere | Routing::Paged => LocalTransaction::begin_whole(node).await,
            // To lock each of so many keys takes longer than to wait for everything.
            _ if work::is_long_by_itself(call.args, call.keys) && call.keys.len() > MANY_KEYS => {
                LocalTransaction::begin_whole(node).await
            }
            _ => {
                // What a long call reads is detached: no other call can read it meanwhile.
                let is_long = node.is_long(call);
                let request = |(key, mode): (&[u8], Mode)| {
                    let mode = if is_long { Mode::Exclusive } else { mode };
                    LockRequest { db: call.db, key: key.into(), mode }
                };
                LocalTransaction::begin(node, call.keys().map(request).collect()).await
            }
        }
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
            Executed::Conflict(mut txn, _) => {
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
}
