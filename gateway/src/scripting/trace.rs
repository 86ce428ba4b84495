//! How hosts record what a script does, where that was asked for.

use std::sync::Arc;
use std::time::Instant;

use store_engine::{Args, Reply};

use super::call::ScriptCall;
use crate::admission;
use crate::server::Server;
use crate::telemetry::script_trace::{CallNow, Trace};

impl ScriptCall<'_> {
    /// Where the calls of a round that begins now are recorded, if they are.
    pub(super) fn traced(&self) -> Option<Arc<Trace>> {
        let trace = self.trace.as_ref().filter(|trace| trace.has_calls())?;
        trace.begin_attempt();
        Some(trace.clone())
    }
}

/// Tells of a call in database `db` that `began` then and has this reply.
pub(super) fn report_call(
    server: &Server,
    trace: &Trace,
    began: Instant,
    db: usize,
    args: Args<'_>,
    reply: &Reply,
) {
    let parsed = admission::parse(&server.registry, args, true).ok();
    let number =
        parsed.as_ref().map(|parsed| parsed.number).or_else(|| admission::number_of(&server.registry, args));
    let key = parsed.and_then(|parsed| parsed.keys().first().map(|(at, _)| args[*at]));
    let key = key.map(|key| (key, server.store.group_of(key)));
    let (args, is_error) = (args.items(), reply.is_error_from(0));
    trace.call(&CallNow { args, number, db, key, began, reply: &reply.buf, is_error });
}
