//! What the server says of itself: whether it is well, which commands it has, and this API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use store_engine::{Command, syntax};

use super::extract::Ask;
use super::json;
use super::state::HttpState;
use crate::export::metrics;
use crate::registry::info::{categories, flag_names};
use crate::session::following::Mode;

/// The API in the words of OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// The process lives.
pub async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server accepts requests and can answer them: not when it is about to end, and not while it reaches no store
/// node, or has only a part of the data of the server that it follows.
pub async fn ready(State(state): State<Arc<HttpState>>) -> (StatusCode, &'static str) {
    match (*state.ready.borrow(), state.server.store.is_reachable()) {
        (true, true) if state.server.sessions.following.mode() == Mode::Loading => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: the data of the server that is followed is being copied\n",
        ),
        (true, true) => (StatusCode::OK, "ready\n"),
        (true, false) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: no store node can be used, the log says why\n")
        }
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

/// Counters and states, as Prometheus reads them.
pub async fn metrics(State(state): State<Arc<HttpState>>) -> Response {
    let ready = *state.ready.borrow();
    let text = metrics::render(&metrics::of_server(&state.server, ready));
    ([(header::CONTENT_TYPE, super::health::METRICS_TYPE)], text).into_response()
}

/// The description of this API.
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI).into_response()
}

#[derive(Serialize)]
struct CommandReport {
    summary: &'static str,
    since: &'static str,
    group: &'static str,
    complexity: &'static str,
    syntax: String,
    arity: i64,
    flags: Vec<&'static str>,
    acl_categories: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    subcommands: BTreeMap<&'static str, CommandReport>,
}

impl CommandReport {
    fn of(command: &'static Command) -> CommandReport {
        CommandReport {
            summary: command.summary,
            since: command.since,
            group: command.group.name(),
            complexity: command.complexity,
            syntax: syntax::manual(command.syntax),
            arity: command.arity.as_redis(),
            flags: flag_names(command),
            acl_categories: categories(command),
            subcommands: command.subcommands.iter().map(|sub| (sub.name, CommandReport::of(sub))).collect(),
        }
    }
}

/// All commands, from the rows that COMMAND DOCS shows.
pub async fn commands(ask: Ask) -> Response {
    let registry = &ask.server().registry;
    let rows = registry.names().iter().filter_map(|name| registry.lookup(name.as_bytes()));
    let report: BTreeMap<&str, CommandReport> =
        rows.map(|row| (row.spec().name, CommandReport::of(row.spec()))).collect();
    json::body(&report)
}
