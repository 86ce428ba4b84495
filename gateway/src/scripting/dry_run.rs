//! Dry runs: a script runs for real under its locks, is rolled back, and its reply has what it would have changed. And runs
//! that are kept, of which the same is to be reported.

use std::sync::Arc;

use script::Outcome;
use store::{Change, Preview, Transaction};
use store_engine::{Protocol, Reply};

use super::attempt::{Attempt, run_once};
use super::call::ScriptCall;
use super::circumstances::{Collects, RunContext};
use super::errors::ScriptError;
use super::outcome::is_error;
use crate::scripts::options::{Flags, OnError};
use crate::server::Server;

/// Keys that a dry run reports.
const MOST_CHANGES: usize = 1000;

/// Refuses a dry run that could not be undone.
pub(super) fn refuse(call: &ScriptCall<'_>) -> Result<(), ScriptError> {
    match call.is_dry() && call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        true => Err(ScriptError::DryRun),
        false => Ok(()),
    }
}

/// Undoes a run that has ended and was a part of its transaction, and replaces its reply, which begins at `start`, by
/// what is to be known of it.
pub(super) async fn report(
    call: &ScriptCall<'_>,
    txn: &mut Transaction,
    failed: bool,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), ScriptError> {
    let (changes, omitted) = if failed && call.options.on_error == Some(OnError::RollBack) {
        txn.undo_part().await?;
        (Vec::new(), 0)
    } else {
        txn.undo_part_with_changes(MOST_CHANGES).await?
    };
    let own = out.split_off(start);
    let mut reply = Reply::append_to(std::mem::take(out), call.protocol);
    reply.map(6);
    reply.bulk(b"reply");
    reply.buf.extend_from_slice(&own);
    reply.bulk(b"writes");
    reply.array(changes.len());
    changes.iter().for_each(|change| write_change(change, &mut reply));
    reply.bulk(b"omitted");
    reply.count(omitted);
    let (usage, reruns) = call.trace.as_ref().map_or_else(Default::default, |trace| {
        trace.set_dry();
        let snapshot = trace.snapshot();
        (snapshot.usage, snapshot.reruns.len())
    });
    for (name, number) in
        [("fuel", usage.fuel), ("memory", usage.memory_bytes as u64), ("reruns", reruns as u64)]
    {
        reply.bulk(name.as_bytes());
        reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    *out = reply.buf;
    Ok(())
}

/// Notes what a run that has ended is about to keep, if its caller wants to know. What was there before is found by taking
/// it back and nothing else, for which it is a part of its transaction; then the script runs once more, under the same
/// locks, at the same time and with the same random numbers, so that it does the same.
pub(super) async fn note_changes(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    mut attempt: Attempt,
    snapshot: RunContext,
    collects: Collects,
) -> Result<Attempt, ScriptError> {
    let (Some(trace), Outcome::Reply(_)) = (&call.trace, &attempt.outcome) else { return Ok(attempt) };
    let Some(host) = &mut attempt.host else { return Ok(attempt) };
    if host.locking.retry.is_some() {
        return Ok(attempt);
    }
    let is_undone = is_error(&attempt.outcome) && call.options.on_error == Some(OnError::RollBack);
    let (changes, omitted) = match is_undone {
        true => (Vec::new(), 0),
        false => host.locking.txn.undo_part_with_changes(MOST_CHANGES).await?,
    };
    let mut summary = Reply::new(Protocol::Resp3);
    summary.array(changes.len());
    changes.iter().for_each(|change| write_change(change, &mut summary));
    trace.set_changes(summary.buf, omitted);
    match attempt.host.take_if(|_| !changes.is_empty()) {
        Some(host) => Ok(run_once(server, call, host.locking.txn, snapshot, collects, false).await),
        None => Ok(attempt),
    }
}

fn write_change(change: &Change, reply: &mut Reply) {
    reply.map(4);
    reply.bulk(b"db");
    reply.count(change.db);
    reply.bulk(b"key");
    reply.optional(change.key.as_deref());
    reply.bulk(b"before");
    write_preview(change.before.as_ref(), reply);
    reply.bulk(b"after");
    write_preview(change.after.as_ref(), reply);
}

fn write_preview(preview: Option<&Preview>, reply: &mut Reply) {
    let Some(preview) = preview else { return reply.null() };
    reply.map(5);
    reply.bulk(b"type");
    reply.bulk(preview.type_name.as_bytes());
    reply.bulk(b"length");
    reply.count(preview.length);
    reply.bulk(b"expire_at_ms");
    match preview.expire_at_ms {
        Some(at) => reply.integer(i64::try_from(at).unwrap_or(i64::MAX)),
        None => reply.null(),
    }
    reply.bulk(b"sticky");
    reply.boolean(preview.sticky);
    reply.bulk(b"elements");
    reply.array(preview.elements.len());
    preview.elements.iter().for_each(|element| reply.bulk(element));
}
