//! Performs a session command as its row says.

use std::sync::Arc;

use store_engine::Reply;

use super::{pubsub, run_script};
use crate::admission::Admitted;
use crate::server::{Handler, Server};
use crate::session::Session;

/// Performs a session command.
pub async fn perform(
    server: &Arc<Server>,
    session: &mut Session,
    admitted: &Admitted<'_>,
    handler: Handler,
    out: &mut Reply,
) {
    let start = out.buf.len();
    let done = match handler {
        Handler::Inline(run) => run(server, session, admitted.args(), out),
        Handler::Async(handler) => (handler.run)(server, session, admitted.args(), out).await,
        Handler::Script { source, read_only } => {
            run_script::run(server, session, admitted, source, read_only, out).await
        }
        Handler::Publish { shard } => pubsub::publish(server, session, admitted.args(), shard, out).await,
    };
    if let Err(error) = done {
        out.truncate(start);
        out.error(&error);
    }
}
