//! The spans of a run that is traced: made from what [`crate::trace`] has seen, when it has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use script::Spent;
use smol_str::{SmolStr, ToSmolStr};
use store::spans::Part;

use super::script::{Program, ScriptCall};
use crate::server::Server;
use crate::spans::{Scope, Side, Span};
use crate::trace::{CallStep, Seen, Step, Trace};

/// Calls of one run that become spans.
const MOST_CALLS: usize = 256;

impl ScriptCall<'_> {
    /// Lets it tell what becomes spans, if it is traced.
    pub(super) fn tell_spans(&mut self) {
        let Some(part) = &self.span else { return };
        let context = part.context();
        let (mode, name) = (self.mode(), self.program.name().to_owned());
        let trace = self.trace.get_or_insert_with(|| Arc::new(Trace::new(false)));
        trace.want_calls();
        let mut seen = trace.seen();
        seen.span = Some((context.trace_text(), context.span_text()));
        (seen.mode, seen.name) = (mode, name);
    }

    /// For what is done in its span, if it is traced.
    pub(super) fn scope(&self) -> Option<Scope> {
        self.span.as_ref().map(|part| part.scope().clone())
    }

    /// The beginning of a part of the run that becomes a span, if the run is traced.
    pub(super) fn phase(&self) -> Option<Instant> {
        self.span.is_some().then(Instant::now)
    }

    /// The end of such a part.
    pub(super) fn end_phase(&self, name: &'static str, began: Option<Instant>) {
        if let (Some(began), Some(trace)) = (began, &self.trace) {
            trace.phase(name, began);
        }
    }
}

/// Tells of a queued call of EXEC that was run now.
pub fn tell_queued(server: &Server, part: Part, name: SmolStr, db: usize, reply: &[u8]) {
    server.spans.end(operation(part.span(name.clone(), Side::Internal), name, db).with_reply(reply));
}

/// A span with the facts that all calls have.
fn operation(span: Span, name: SmolStr, db: usize) -> Span {
    span.with("db.system.name", "redis").with("db.operation.name", name).with("db.namespace", db.to_smolstr())
}

/// Tells of a run that began then, with this reply.
pub(super) fn tell(server: &Server, call: &ScriptCall<'_>, began: Instant, reply: &[u8]) {
    let (Some(part), Some(trace)) = (&call.span, &call.trace) else { return };
    let seen = trace.seen();
    let Spent { fuel, memory_bytes, calls, .. } = seen.spent;
    let (kind, name) = match call.program {
        Program::Script(_) => ("moonshard.script.sha", "script"),
        Program::Function(_) => ("moonshard.function.name", "function"),
    };
    let mut run = part
        .span_since(began, name, Side::Internal)
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
        let limit = SmolStr::from(limit.split(':').next().unwrap_or_default());
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
        let mut span = Span::within(&run.context, phase.name, Side::Internal, phase.began);
        span.took = phase.took;
        server.spans.end(span);
    }
    let round = seen.began.map(|round| end.saturating_sub(round.elapsed())).unwrap_or_default();
    for step in calls_of(&seen).take(MOST_CALLS) {
        server.spans.end(span_of(server, &run, step, round + step.at));
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

/// The span of a call that began at this Unix time.
fn span_of(server: &Server, run: &Span, step: &CallStep, began: Duration) -> Span {
    let found = step.args.first().and_then(|name| server.registry.find(name));
    let name = found.map(|(_, number)| server.registry.shown_name(usize::from(number)));
    let name = name.unwrap_or_else(|| "unknown".into());
    let span = Span::past(&run.context, name.clone(), Side::Internal, began, step.took);
    let span = operation(span, name, step.db).with_reply(&step.reply);
    match (server.store.cluster(), &step.key) {
        (Some(cluster), Some((_, node))) => {
            let address = cluster.links().get(*node).map(|link| link.address().to_owned());
            span.with("server.address", address.unwrap_or_default())
        }
        (None, Some((_, shard))) => span.with("moonshard.shard", *shard),
        _ => span,
    }
}
