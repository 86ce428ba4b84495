//! The span of a request: OpenTelemetry's conventions for servers of HTTP.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;

use super::state::HttpState;
use crate::net::traced::{self, Traced};
use crate::telemetry::counters;
use crate::telemetry::spans::{AttributeValue, Span};

/// Where the span of a request is once it is known who asks, if it is traced.
pub type SpanSlot = Arc<Mutex<Option<Traced<SpanAttributes>>>>;

/// What is known of a request.
pub struct SpanAttributes {
    method: Method,
    route: &'static str,
    uri: Uri,
    scheme: &'static str,
    status: Option<StatusCode>,
}

impl SpanAttributes {
    /// Before it is answered.
    pub fn of(state: &HttpState, parts: &Parts) -> SpanAttributes {
        let is_sealed = state.server.process.certificates.of(counters::Listener::Http).is_some();
        SpanAttributes {
            method: parts.method.clone(),
            // Whoever is answered by a handler has come by one of these.
            route: state
                .paths
                .iter()
                .find(|route| leads(route, parts.uri.path()))
                .copied()
                .unwrap_or_default(),
            uri: parts.uri.clone(),
            scheme: if is_sealed { "https" } else { "http" },
            status: None,
        }
    }
}

/// Whether a path goes by this route, whose parts in braces stand for others.
fn leads(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    let fits = |of_route: &str, of_path: &str| of_route == of_path || of_route.starts_with('{');
    loop {
        match (route.next(), path.next()) {
            (Some(of_route), Some(of_path)) if fits(of_route, of_path) => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

impl traced::SpanAttributes for SpanAttributes {
    fn hear(&mut self, status: StatusCode, _: &HeaderMap) {
        self.status = Some(status);
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.route)
    }

    fn annotate(&self, span: Span) -> Span {
        let span = span
            .with("http.request.method", AttributeValue::Text(self.method.as_str()))
            .with("http.route", self.route)
            .with("url.path", AttributeValue::Text(self.uri.path()))
            .with("url.scheme", self.scheme);
        // Whoever hangs up has none.
        let Some(status) = self.status else { return span };
        let span = span.with("http.response.status_code", u64::from(status.as_u16()));
        match status.is_server_error() {
            true => span
                .with("error.type", AttributeValue::Text(status.as_str()))
                .with_error(status.canonical_reason().unwrap_or_default()),
            false => span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_told_by_their_paths() {
        for (route, path, wanted) in [
            ("/v1/key/{key}", "/v1/key/a%2Fb", true),
            ("/v1/key/{key}", "/v1/keys", false),
            ("/v1/scripts", "/v1/scripts", true),
            ("/v1/scripts", "/v1/scripts/0a", false),
            ("/v1/scripts/{sha}", "/v1/scripts/0a/stats", false),
            ("/v1/scripts/{sha}/stats", "/v1/scripts/0a/stats", true),
        ] {
            assert_eq!(leads(route, path), wanted, "{path} by {route}");
        }
    }
}
