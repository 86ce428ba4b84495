//! The spans of a run that is traced: made from what [`crate::trace`] has seen, when it has ended.

use std::time::Instant;

use script::Spent;

use super::script::{Program, ScriptCall};
use crate::server::Server;
use crate::spans::{Side, Span};
use crate::trace::{CallStep, Seen, Step};

/// Calls of one run that become spans.
const MOST_CALLS: usize = 256;

/// Tells of a run that began then, with this reply.
pub(super) fn tell(server: &Server, call: &ScriptCall<'_>, began: Instant, reply: &[u8]) {
    let (Some(parent), Some(trace)) = (&call.span, &call.trace) else { return };
    let seen = trace.seen();
    let Spent { fuel, memory_bytes, calls, .. } = seen.spent;
    let (kind, name) = match call.program {
        Program::Script(_) => ("moonshard.script.sha", "script"),
        Program::Function(_) => ("moonshard.function.name", "function"),
    };
    let mut run = Span::within(parent, name, Side::Internal, began)
        .with(kind, seen.name.clone())
        .with("moonshard.script.mode", seen.mode)
        .with("moonshard.script.keys", call.keys.len())
        .with("moonshard.script.fuel", fuel)
        .with("moonshard.script.memory_bytes", memory_bytes)
        .with("moonshard.script.calls", calls)
        .with("moonshard.script.reruns", seen.reruns.len())
        .with("moonshard.script.outcome", seen.ended.map_or("lost", |ended| ended.word()))
        .with_reply(reply);
    if let Some(limit) = run.error.as_ref().and_then(|text| text.strip_prefix("SCRIPTLIMIT ")) {
        let limit = limit.split(':').next().unwrap_or_default().to_owned();
        run = run.with("moonshard.script.limit", limit);
    }
    if let Some(name) = call.program.given_name() {
        run = run.with("moonshard.script.name", name);
    }
    let flags = call.options.flags.names().collect::<Vec<_>>().join(" ");
    if !flags.is_empty() {
        run = run.with("moonshard.script.flags", flags);
    }
    let end = run.began + run.took;
    for phase in &seen.phases {
        let side = if server.store.node().is_some() { Side::Internal } else { Side::Client };
        let mut span = Span::within(&run.context, phase.name, side, phase.began);
        span.took = phase.took;
        if side == Side::Client {
            span = rpc(span);
        }
        server.spans.end(span);
    }
    for step in calls_of(&seen).take(MOST_CALLS) {
        let Some(round) = seen.began else { break };
        let mut span = span_of(server, &run, step);
        span.began = end.saturating_sub(round.elapsed()) + step.at;
        span.took = step.took;
        server.spans.end(span);
    }
    let told = calls_of(&seen).count().min(MOST_CALLS) as u64;
    if calls > told {
        run = run.with("moonshard.script.calls_omitted", calls - told);
    }
    server.spans.end(run);
}

fn calls_of(seen: &Seen) -> impl Iterator<Item = &CallStep> {
    seen.steps.iter().filter_map(|step| match step {
        Step::Call(call) => Some(call),
        Step::Log { .. } => None,
    })
}

/// The span of a call.
fn span_of(server: &Server, run: &Span, step: &CallStep) -> Span {
    let name = step.args.first().map(|name| server.registry.lookup(name)).unwrap_or_default();
    let name = name.map_or_else(|| "unknown".to_owned(), |row| row.facts().name.to_uppercase());
    let cluster = server.store.cluster();
    let side = if cluster.is_some() { Side::Client } else { Side::Internal };
    let span = Span::within(&run.context, name.clone(), side, Instant::now())
        .with("db.system.name", "redis")
        .with("db.operation.name", name)
        .with("db.namespace", step.db.to_string())
        .with_reply(&step.reply);
    match (cluster, &step.key) {
        (Some(cluster), Some((_, node))) => {
            let address = cluster.links().get(*node).map(|link| link.address().to_owned());
            rpc(span.with("server.address", address.unwrap_or_default()))
        }
        (None, Some((_, shard))) => span.with("moonshard.shard", *shard),
        _ => span,
    }
}

/// A span of a call to a store node.
fn rpc(span: Span) -> Span {
    span.with("rpc.system", "grpc").with("rpc.service", "moonshard.store.v1.Store").with("rpc.method", "Link")
}
