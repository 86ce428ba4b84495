//! The spans of a run that is traced: made from what [`crate::telemetry::script_trace`] has seen, when it has ended.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use script::ResourceUsage;
use store::spans::Part;

use super::call::{Program, ScriptCall};
use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::telemetry::script_trace::{BriefCall, RunState, Trace};
use crate::telemetry::spans::{AttributeValue, SERVER, Scope, Span, SpanContext, SpanKind};

impl ScriptCall<'_> {
    /// Lets it record what becomes spans, if it is traced.
    pub(super) fn report_spans(&mut self) {
        let Some(part) = &self.span else { return };
        let context = part.context();
        let (mode, name) = (self.mode(), self.program.name().to_owned());
        let trace = self.trace.get_or_insert_with(|| Arc::new(Trace::new(false)));
        trace.want_spans();
        let mut snapshot = trace.snapshot();
        snapshot.span = Some(context);
        (snapshot.mode, snapshot.name) = (mode, name);
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
pub fn report_queued(telemetry: &Telemetry, part: Part, name: &str, db: usize, reply: &[u8]) {
    let span = operation(part.span(name.to_owned(), SpanKind::Internal), name, db);
    telemetry.spans.end(span.with_reply(reply));
}

/// A span with the facts that all calls have.
fn operation(span: Span, name: &str, db: usize) -> Span {
    let span = span.with("db.system.name", "redis").with("db.operation.name", AttributeValue::Text(name));
    span.with("db.namespace", AttributeValue::Digits(db as u64))
}

/// Tells of a run that began then, with this reply.
pub(super) fn report(server: &Server, call: &ScriptCall<'_>, began: Instant, reply: &[u8]) {
    let (Some(part), Some(trace)) = (&call.span, &call.trace) else { return };
    let snapshot = trace.snapshot();
    let context = part.context();
    for phase in &snapshot.phases {
        let times = phase.began..phase.began + phase.took;
        server.telemetry.spans.end(Span::within(&context, phase.name, SpanKind::Internal, times));
    }
    for call in &snapshot.calls {
        server.telemetry.spans.end(span_of_call(server, &context, call));
    }
    server.telemetry.spans.end(span_of_run(call, part, began..Instant::now(), &snapshot, reply));
}

/// The span of a run.
fn span_of_run(
    call: &ScriptCall<'_>,
    part: &Part,
    times: Range<Instant>,
    snapshot: &RunState,
    reply: &[u8],
) -> Span {
    let ResourceUsage { fuel, memory_bytes, calls, .. } = snapshot.usage;
    let (kind, name) = match call.program {
        Program::Script(_) => ("moonshard.script.sha", "script"),
        Program::Function(_) => ("moonshard.function.name", "function"),
    };
    let mut run = part
        .span_of(name, SpanKind::Internal, times)
        .with(kind, AttributeValue::Text(&snapshot.name))
        .with("moonshard.script.mode", snapshot.mode)
        .with("moonshard.script.keys", call.keys.len())
        .with("moonshard.script.fuel", fuel)
        .with("moonshard.script.memory_bytes", memory_bytes)
        .with("moonshard.script.calls", calls)
        .with("moonshard.script.reruns", snapshot.reruns.len())
        .with("moonshard.script.outcome", snapshot.ended.map_or("lost", |ended| ended.word()));
    if let Some(limit) = reply.strip_prefix(b"-SCRIPTLIMIT ") {
        let limit = limit.split(|byte| *byte == b':').next().unwrap_or_default();
        run = run.with("moonshard.script.limit", AttributeValue::Text(&String::from_utf8_lossy(limit)));
    }
    let given = call.program.given_name();
    if let Some(name) = &given {
        run = run.with("moonshard.script.name", AttributeValue::Text(name));
    }
    let procedure = given.as_deref().unwrap_or(&snapshot.name);
    run = run.with("db.stored_procedure.name", AttributeValue::Text(procedure));
    let flags = call.options.flags.names().collect::<Vec<_>>().join(" ");
    if !flags.is_empty() {
        run = run.with("moonshard.script.flags", AttributeValue::Text(&flags));
    }
    if snapshot.calls_omitted > 0 {
        run = run.with("moonshard.script.calls_omitted", snapshot.calls_omitted);
    }
    run.with_reply(reply)
}

/// The span of a call.
fn span_of_call(server: &Server, run: &SpanContext, call: &BriefCall) -> Span {
    let name = call.number.map_or("unknown", |number| server.registry.shown_name(usize::from(number)));
    let span =
        operation(Span::within(run, name.to_owned(), SpanKind::Internal, call.times.clone()), name, call.db);
    let span = span.with_reply(call.error.as_deref().unwrap_or_default());
    match (server.store.cluster(), call.location) {
        (Some(cluster), Some(node)) => {
            let links = cluster.links();
            span.with_address(SERVER, links.get(node).map_or("", |link| link.address()))
        }
        (None, Some(shard)) => span.with("moonshard.shard", shard),
        _ => span,
    }
}
