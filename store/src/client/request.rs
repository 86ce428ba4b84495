//! The spans of a request to a node: the asker's, which ends with the answer, and that of the node.

use proto::store::v1 as wire;
use store_engine::codec::Input;
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;

use super::lost::Lost;
use crate::spans::{
    self, AttributeValue, Part, SERVER, Span, SpanContext, SpanId, SpanKind, TraceFlags, TraceId,
};

/// The service that all requests are for.
const SERVICE: &str = "moonshard.store.v1.Store";

/// A traced request whose answer has not come.
pub(super) struct TracedRequest {
    part: Part,
    address: String,
    attributes: RequestAttributes,
}

impl TracedRequest {
    /// Of a request to the node at this address.
    pub fn new(part: Part, address: &str, body: &Ask) -> TracedRequest {
        TracedRequest { part, address: address.to_owned(), attributes: RequestAttributes::of(body) }
    }

    /// What the node receives of it.
    pub fn trace(&self) -> wire::Trace {
        let context = self.part.context();
        let trace = u128::from_be_bytes(context.trace_id().to_bytes());
        let span = u64::from_be_bytes(context.span_id().to_bytes());
        wire::Trace { high: (trace >> 64) as u64, low: trace as u64, span }
    }

    /// The answer has come, or never will.
    pub fn end(self, answer: &Result<Answer, Lost>) {
        let span = self.attributes.put(&self.part, SpanKind::Client);
        let span = span.with_address(SERVER, &self.address);
        let span = match answer {
            Ok(answer) => with_answer(span, answer),
            Err(lost) => with_error(span.with(STATUS, "UNAVAILABLE"), "LOST", &lost.reason.to_string()),
        };
        self.part.end(span);
    }
}

/// Where the asker's span is.
pub(crate) fn parent_span(trace: &wire::Trace) -> Option<SpanContext> {
    let name = TraceId::from(u128::from(trace.high) << 64 | u128::from(trace.low));
    spans::remote(name, SpanId::from(trace.span), TraceFlags::SAMPLED)
}

/// Whether a request has an answer, with which its span ends.
pub(crate) fn is_answered(body: &Ask) -> bool {
    !matches!(
        body,
        Ask::Cancel(_)
            | Ask::Unwatch(_)
            | Ask::SetInvalidations(_)
            | Ask::Report(_)
            | Ask::EndSnapshot(_)
            | Ask::Trace(_)
            | Ask::Part(_)
    )
}

/// What is sent of a request before it is done.
#[derive(Debug)]
pub(crate) struct RequestAttributes {
    method: &'static str,
    /// The command's name and database, of a single one.
    command: Option<(&'static str, u32)>,
    /// Calls and locks of a step, and how it ends.
    step: Option<(usize, usize, &'static str)>,
}

impl RequestAttributes {
    /// Of this request.
    pub fn of(body: &Ask) -> RequestAttributes {
        let command = match body {
            Ask::Execute(wire::Execute { call: Some(call), .. })
            | Ask::ExecuteBlocking(wire::ExecuteBlocking { call: Some(call), .. }) => {
                name_of(call).map(|name| (name, call.db))
            }
            _ => None,
        };
        let step = match body {
            Ask::Step(step) => {
                let locks = step.begin.as_ref().map_or(0, |begin| begin.locks.len());
                let finish = match step.finish() {
                    Finish::Open => "open",
                    Finish::Prepare => "prepare",
                    Finish::Commit => "commit",
                    Finish::Abort => "abort",
                };
                Some((step.calls.len(), locks, finish))
            }
            _ => None,
        };
        RequestAttributes { method: method_of(body), command, step }
    }

    /// The span of one side, which has ended.
    pub fn put(self, part: &Part, kind: SpanKind) -> Span {
        let RequestAttributes { method, command, step } = self;
        let method = format!("{SERVICE}/{method}");
        let mut span = part.span(method.clone(), kind);
        span = span.with("rpc.system.name", "grpc").with("rpc.method", AttributeValue::Text(&method));
        if let Some((name, db)) = command {
            span = span
                .with("db.system.name", "redis")
                .with("db.operation.name", AttributeValue::Text(&name.to_uppercase()));
            span = span.with("db.namespace", AttributeValue::Digits(db.into()));
        }
        if let Some((calls, locks, finish)) = step {
            span = span.with("moonshard.step.calls", calls).with("moonshard.step.locks", locks);
            span = span.with("moonshard.step.finish", finish);
        }
        span
    }
}

/// The name of a command, if it is one.
fn name_of(call: &wire::Call) -> Option<&'static str> {
    let name = Input(&call.args).bytes().ok()?;
    store_engine::command::lookup(&name.to_ascii_lowercase()).map(|command| command.name)
}

/// How a request ended, in the words of gRPC.
const STATUS: &str = "rpc.response.status_code";

/// What the answer says.
pub(crate) fn with_answer(span: Span, answer: &Answer) -> Span {
    match answer {
        Answer::Refusal(refusal) => {
            let (code, status) = match refusal.code() {
                Code::Unspecified | Code::Invalid => ("INVALID", "INVALID_ARGUMENT"),
                Code::Moved => ("MOVED", "FAILED_PRECONDITION"),
                Code::OutOfOrder => ("OUT_OF_ORDER", "FAILED_PRECONDITION"),
                Code::Denied => ("DENIED", "PERMISSION_DENIED"),
                Code::Unavailable => ("UNAVAILABLE", "UNAVAILABLE"),
                Code::Contradiction => ("CONTRADICTION", "FAILED_PRECONDITION"),
            };
            with_error(span.with(STATUS, status), code, &refusal.reason)
        }
        // An error of a command is an answer like others.
        Answer::Reply(reply) => span.with(STATUS, "OK").with_reply(reply),
        _ => span.with(STATUS, "OK"),
    }
}

fn with_error(span: Span, code: &'static str, text: &str) -> Span {
    span.with("error.type", code).with_error(text)
}

/// A request in a word, as the protocol calls it.
fn method_of(body: &Ask) -> &'static str {
    match body {
        Ask::Handshake(_) => "Handshake",
        Ask::Heartbeat(_) => "Heartbeat",
        Ask::Execute(_) => "Execute",
        Ask::Step(_) => "Step",
        Ask::ExecuteBlocking(_) => "ExecuteBlocking",
        Ask::Cancel(_) => "Cancel",
        Ask::Watch(_) => "Watch",
        Ask::Unwatch(_) => "Unwatch",
        Ask::ReadRecords(_) => "ReadRecords",
        Ask::WriteRecords(_) => "WriteRecords",
        Ask::GetDecision(_) => "GetDecision",
        Ask::GetEnding(_) => "GetEnding",
        Ask::Resolve(_) => "Resolve",
        Ask::Acknowledge(_) => "Acknowledge",
        Ask::Save(_) => "Save",
        Ask::Configure(_) => "Configure",
        Ask::SetTopology(_) => "SetTopology",
        Ask::MoveSlots(_) => "MoveSlots",
        Ask::ReceiveSlots(_) => "ReceiveSlots",
        Ask::Collect(_) => "Collect",
        Ask::Report(_) => "Report",
        Ask::SetInvalidations(_) => "SetInvalidations",
        Ask::ListTransactions(_) => "ListTransactions",
        Ask::Decide(_) => "Decide",
        Ask::Accept(_) => "Accept",
        Ask::BeginSnapshot(_) => "BeginSnapshot",
        Ask::ReadSnapshot(_) => "ReadSnapshot",
        Ask::EndSnapshot(_) => "EndSnapshot",
        Ask::Trace(_) => "Trace",
        Ask::Part(_) => "Part",
    }
}
