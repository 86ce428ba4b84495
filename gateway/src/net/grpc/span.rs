//! The span of a call: OpenTelemetry's conventions for servers of gRPC.

use hyper::header::HeaderMap;
use hyper::{StatusCode, Uri};
use tonic::Code;

use crate::net::traced;
use crate::telemetry::spans::{AttributeValue, Span};

/// What is known of a call.
pub struct SpanAttributes {
    uri: Uri,
    code: Option<Code>,
}

impl SpanAttributes {
    /// Before it is answered; the path names the method.
    pub fn of(uri: &Uri) -> SpanAttributes {
        SpanAttributes { uri: uri.clone(), code: None }
    }

    /// The method, if there is one of this name.
    fn method(&self) -> Option<&str> {
        self.uri.path().strip_prefix('/').filter(|_| self.code != Some(Code::Unimplemented))
    }
}

impl traced::SpanAttributes for SpanAttributes {
    /// A call that fails at once has no trailers.
    fn hear(&mut self, _: StatusCode, headers: &HeaderMap) {
        self.hear_end(headers);
    }

    fn hear_end(&mut self, trailers: &HeaderMap) {
        let code = trailers.get("grpc-status");
        self.code = code.map(|code| Code::from_bytes(code.as_bytes())).or(self.code);
    }

    fn name(&self) -> String {
        self.method().unwrap_or("grpc").to_owned()
    }

    fn annotate(&self, span: Span) -> Span {
        let span = span
            .with("rpc.system.name", "grpc")
            .with("rpc.method", AttributeValue::Text(self.method().unwrap_or("_OTHER")));
        // Whoever hangs up has none.
        let Some(code) = self.code else { return span };
        let word = word(code);
        let span = span.with("rpc.response.status_code", word);
        match is_of_server(code) {
            true => span.with("error.type", word).with_error(code.description()),
            false => span,
        }
    }
}

/// Whether it is the server to whom this is an error.
fn is_of_server(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// A code as the specification of gRPC writes it.
fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
