//! Blocking calls of clients: an attempt that finds nothing waits in the store.

use std::sync::Arc;
use std::time::Duration;

use store::Call;
use store_engine::spec::flags;
use store_engine::wait::Wish;
use store_engine::{CommandError, Protocol, Reply};

use crate::gate::Admitted;
use crate::observe::unix_ms;
use crate::server::Server;
use crate::session::ClientInfo;

/// Whether the reply from `mark` on says that a blocking call found nothing.
pub fn found_nothing(admitted: &Admitted<'_>, out: &Reply, mark: usize) -> bool {
    admitted.facts.has(flags::BLOCKING) && out.is_null_from(mark)
}

/// The reply to a blocking call whose time is over.
pub fn timed_out(protocol: Protocol) -> Vec<u8> {
    let mut out = Reply::new(protocol);
    out.null_array();
    out.buf
}

/// Waits until a call that found nothing is served, its time is over, or somebody ends it by way of
/// [`ClientInfo::blocked`]. Dropping this gives its place up.
pub async fn wait(
    server: &Arc<Server>,
    client: &ClientInfo,
    admitted: &Admitted<'_>,
    db: usize,
    out: &mut Reply,
) {
    let timeout_ms = match Wish::of(admitted.facts, admitted.args).timeout_ms() {
        Ok(timeout_ms) => timeout_ms,
        Err(error) => return out.error(&error),
    };
    let call =
        Call { command: admitted.facts, args: admitted.args, keys: &admitted.keys, db, now_ms: unix_ms() };
    let mut parked = server.node.park(&call, out.protocol);
    let waiter = parked.waiter().clone();
    *client.blocked.lock() = Some(waiter.clone());
    let protocol = out.protocol;
    let timer = async {
        if timeout_ms > 0 {
            tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
            waiter.answer(timed_out(protocol));
        }
        // Whoever was first has answered.
        std::future::pending::<()>().await;
    };
    let reply = tokio::select! {
        biased;
        reply = parked.reply(unix_ms) => reply,
        () = timer => None,
    };
    *client.blocked.lock() = None;
    match reply {
        Some(reply) => out.buf.extend_from_slice(&reply),
        None => out.error(&CommandError::new("ERR internal error: whoever served this call has failed")),
    }
}
