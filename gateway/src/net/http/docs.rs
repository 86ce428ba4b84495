//! What the server says of itself: whether it is well, what it is made of, which commands it has, and this API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use store::client::Member;
use store_engine::{Command, syntax};

use super::extract::Ask;
use super::json;
use super::problem::Problem;
use super::state::HttpState;
use crate::config::Address;
use crate::export::metrics;
use crate::registry::info::{categories, flag_names};

/// The API in the words of OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// The process lives.
pub async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the server accepts requests and can answer them: not when it is about to end, and not while it reaches no store
/// node.
pub async fn ready(State(state): State<Arc<HttpState>>) -> (StatusCode, &'static str) {
    match (*state.ready.borrow(), state.server.store.is_reachable()) {
        (true, true) => (StatusCode::OK, "ready\n"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "not ready: no store node is reachable\n"),
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
struct Topology<'a> {
    mode: &'static str,
    nodes: [NodeReport<'a>; 1],
    stores: Vec<String>,
    epoch: Option<u64>,
    members: Vec<MemberReport>,
}

/// A store node as this gateway sees it.
#[derive(Serialize)]
struct MemberReport {
    address: String,
    slots: String,
    slot_count: usize,
    keys: u64,
    bytes: u64,
    epoch: u64,
    lag: u64,
    reachable: bool,
    error: Option<String>,
}

impl MemberReport {
    fn of(member: Member) -> MemberReport {
        let Member { node: address, slots, count: slot_count, keys, bytes, epoch, lag, up, .. } = member;
        MemberReport {
            address,
            slots,
            slot_count,
            keys,
            bytes,
            epoch,
            lag,
            reachable: up.is_ok(),
            error: up.err().map(|why| why.to_string()),
        }
    }
}

#[derive(Serialize)]
struct NodeReport<'a> {
    id: &'a str,
    version: &'static str,
    resp: String,
    shards: Option<usize>,
    threads: usize,
    keys: usize,
    bytes: usize,
}

/// This process, what it holds, and the store nodes it uses if the data is not in it.
pub async fn topology(ask: Ask) -> Result<Response, Problem> {
    ask.work.check(&[b"INFO"])?;
    let server = ask.server();
    let usage = server.store.usage();
    let node = NodeReport {
        id: &server.process.run_id,
        version: env!("CARGO_PKG_VERSION"),
        resp: server.process.resp_addr.to_string(),
        shards: server.store.node().map(|node| node.shards()),
        threads: server.config.threads.get_usize(),
        keys: usage.keys.iter().sum(),
        bytes: usage.bytes,
    };
    let stores: Vec<String> = server.config.stores.get().iter().map(Address::to_string).collect();
    let mode = if server.store.node().is_some() { "embedded" } else { "distributed" };
    let cluster = server.store.cluster();
    let epoch = cluster.map(|cluster| cluster.map().epoch());
    let members = cluster.map_or_else(Vec::new, |cluster| cluster.members());
    let members = members.into_iter().map(MemberReport::of).collect();
    Ok(json::body(&Topology { mode, nodes: [node], stores, epoch, members }))
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
