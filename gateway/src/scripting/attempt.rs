//! One round of an atomic script.

use std::sync::Arc;

use script::{Outcome, ResourceUsage};
use store::Transaction;

use super::call::ScriptCall;
use super::circumstances::{Collects, RetryReason, RunContext};
use super::host::{Common, Locked, ScriptHost};
use super::outcome::is_error;
use super::sandbox::run_in_sandbox;
use crate::scripts::options::OnError;
use crate::server::Server;

/// How one round went.
pub(super) struct Attempt {
    /// The host with the transaction, unless the sandbox took it down with it.
    pub host: Option<Box<ScriptHost<Locked>>>,
    pub outcome: Outcome,
    pub usage: ResourceUsage,
}

impl Attempt {
    /// Why it has to be repeated.
    pub fn retry(&mut self) -> Option<RetryReason> {
        self.host.as_mut()?.locking.retry.take()
    }
}

/// One round. `ends`: if nothing is lacking, its transaction is committed at once.
pub(super) async fn run_once(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    mut txn: Transaction,
    snapshot: RunContext,
    collects: Collects,
    ends: bool,
) -> Attempt {
    let common = Common::new(
        server,
        call.caller(),
        (snapshot.db, snapshot.read_only),
        call.declared(),
        call.budget.memory_bytes,
        (call.reader.clone(), call.traced()),
    );
    txn.set_limits(call.txn_limits(&server.config));
    // Boxed for its way to the sandbox and back: it is large.
    let host = Box::new(ScriptHost { common, locking: Locked::new(txn, snapshot, collects) });
    let (mut host, outcome, usage) = run_in_sandbox(server, call, snapshot.clock_seconds, host, None).await;
    if let (Some(host), Outcome::Reply(_)) = (&mut host, &outcome) {
        // What will be undone has no end to go with: an error of a collected call comes before the script's own.
        let is_kept = call.options.on_error != Some(OnError::RollBack) || !is_error(&outcome);
        host.end(ends && is_kept).await;
    }
    Attempt { host, outcome, usage }
}
