//! Requests of HTTP and gRPC: each is one span, and what is done for it are parts of that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use proto::gateway::v1::gateway_client::GatewayClient;
use proto::gateway::v1::{EvalRequest, ExecuteRequest, PipelineRequest, WatchRequest};
use serde_json::json;
use tests::http::{Http, http2};
use tests::temp_dir::TempDir;
use tests::{TestServer, notation, wait_until};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::collector::{Collected, Collector, attribute};
use super::{parts, span, start};

const LISTENERS: &[&str] = &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

const KNOWN: (&str, &str) = ("Authorization", "Bearer secret");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A file with the password of [`KNOWN`].
fn password(dir: &TempDir) -> String {
    let file = dir.child("password");
    std::fs::write(&file, "secret").expect("written");
    file
}

/// A server that chooses this share of requests.
fn choosing(collector: &Collector, ratio: &str, more: &[&str]) -> TestServer {
    let url = collector.url();
    let flags = ["--otel-endpoint", url.as_str(), "--otel-sample-ratio", ratio];
    TestServer::start(&[&flags, LISTENERS, more].concat())
}

fn put(http: &mut Http, key: &str) {
    let body = json!({"value": "x"}).to_string();
    let path = format!("/v1/key/{key}");
    assert_eq!(http.send("PUT", &path, &[KNOWN, JSON], body.as_bytes()).status, 204);
}

/// All spans that belong to no other.
fn roots(seen: &Collected) -> Vec<Span> {
    seen.spans.iter().filter(|span| span.parent_span_id.is_empty()).cloned().collect()
}

fn counts<const N: usize>(names: [&str; N]) -> BTreeMap<String, usize> {
    names.map(|name| (name.to_owned(), 1)).into()
}

const SERVER: i32 = 2;
const INTERNAL: i32 = 1;

#[test]
fn a_request_of_http_is_one_span() {
    let (collector, dir) = (Collector::start(), TempDir::made("otel"));
    let server = start(&collector, &[LISTENERS, &["--requirepass-file", &password(&dir)]].concat());
    let mut http = server.http();
    put(&mut http, "k");
    assert_eq!(http.send("GET", "/v1/key/k", &[KNOWN], b"").status, 200);
    let request = span(&collector, "GET /v1/key/{key}", |_| true);
    assert_eq!((request.kind, request.parent_span_id.len()), (SERVER, 0));
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/v1/key/{key}"),
        ("url.path", "/v1/key/k"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("server.port", &server.http_address().port().to_string()),
        ("client.address", "127.0.0.1"),
        ("error.type", ""),
    ] {
        assert_eq!(attribute(&request, name), value, "{name}");
    }
    assert_eq!(parts(&collector, &request), counts(["TYPE", "EXEC"]));
    let exec = span(&collector, "EXEC", |span| span.parent_span_id == request.span_id);
    let queued = ["TYPE", "PTTL", "OBJECT STICKY", "MEMORY USAGE", "STRLEN", "GET"];
    assert_eq!(parts(&collector, &exec), counts(queued));
    collector.look(|seen| {
        let names: Vec<String> = roots(seen).into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["PUT /v1/key/{key}", "GET /v1/key/{key}"]);
        let traces: BTreeSet<_> = seen.spans.iter().map(|span| &span.trace_id).collect();
        assert_eq!(traces.len(), 2);
        for span in seen.spans.iter().filter(|span| !span.parent_span_id.is_empty()) {
            assert_eq!(span.kind, INTERNAL, "{span:?}");
        }
    });
}

#[test]
fn requests_without_commands_are_spans_too() {
    let collector = Collector::start();
    let server = start(&collector, LISTENERS);
    let mut http = server.http();
    for path in ["/v1/scripts", "/v1/docs", "/v1/topology"] {
        assert_eq!(http.get(path).status, 200);
        span(&collector, &format!("GET {path}"), |_| true);
    }
    assert_eq!(http.post("/v1/check", &json!({"script": "return 1"})).status, 200);
    span(&collector, "POST /v1/check", |_| true);
    // What anybody may have is none.
    for path in ["/healthz", "/metrics", "/v1/openapi.json", "/nowhere"] {
        http.get(path);
    }
    assert_eq!(http.get("/v1/key/none").status, 404);
    let missed = span(&collector, "GET /v1/key/{key}", |_| true);
    assert_eq!(
        (attribute(&missed, "http.response.status_code"), attribute(&missed, "error.type")),
        ("404".into(), "".into())
    );
    let status = missed.status.as_ref().map(|status| status.code());
    assert_eq!(status, Some(StatusCode::Unset), "it is the client's error: {missed:?}");
    assert_eq!(collector.look(|seen| roots(seen).len()), 5);
    // One that lasts is told of when its client goes.
    let mut events = TcpStream::connect(server.http_address()).expect("a connection");
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    let mut heard = BufReader::new(&events).lines().map(|line| line.expect("a line"));
    assert!(heard.any(|line| line == "event: listening"));
    assert_eq!(collector.look(|seen| roots(seen).len()), 5);
    drop(events);
    let events = span(&collector, "GET /v1/events", |_| true);
    assert_eq!(attribute(&events, "http.response.status_code"), "200");
    server.client().run("CONFIG SET http-timeout-ms 100");
    let endless = json!({"script": "while true do end"});
    assert_eq!(http.post("/v1/eval", &endless).status, 504);
    let late = span(&collector, "POST /v1/eval", |_| true);
    assert_eq!(
        (attribute(&late, "http.response.status_code"), attribute(&late, "error.type")),
        ("504".into(), "504".into())
    );
    assert!(late.status.is_some_and(|status| status.code == 2));
}

/// A connection of gRPC.
struct Grpc {
    runtime: Runtime,
    client: GatewayClient<Channel>,
}

impl Grpc {
    fn connect(server: &TestServer) -> Grpc {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let endpoint =
            Endpoint::from_shared(format!("http://{}", server.grpc_address())).expect("an address");
        let channel = runtime.block_on(endpoint.connect()).expect("a connection");
        Grpc { runtime, client: GatewayClient::new(channel) }
    }

    /// Asks for a command with this metadata.
    fn execute(&self, line: &str, metadata: &[(&'static str, &str)]) -> Result<(), Status> {
        let args = line.split(' ').map(|word| word.as_bytes().to_vec().into()).collect();
        let mut request = Request::new(ExecuteRequest { args, db: 0 });
        for (name, value) in metadata {
            request.metadata_mut().insert(*name, value.parse().expect("text"));
        }
        self.runtime.block_on(self.client.clone().execute(request)).map(drop)
    }
}

fn method(name: &str) -> String {
    format!("moonshard.gateway.v1.Gateway/{name}")
}

#[test]
fn a_call_of_grpc_is_one_span() {
    let collector = Collector::start();
    let server = start(&collector, LISTENERS);
    let grpc = Grpc::connect(&server);
    grpc.execute("SET k 1", &[]).expect("it is done");
    let call = span(&collector, &method("Execute"), |_| true);
    assert_eq!((call.kind, call.parent_span_id.len()), (SERVER, 0));
    for (name, value) in [
        ("rpc.system.name", "grpc"),
        ("rpc.method", method("Execute").as_str()),
        ("rpc.response.status_code", "OK"),
        ("server.port", &server.grpc_address().port().to_string()),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(attribute(&call, name), value, "{name}");
    }
    assert_eq!(parts(&collector, &call), counts(["SET"]));
    let eval = EvalRequest { script: "return redis.call('LPUSH', 'k', 1)".into(), ..EvalRequest::default() };
    let failed = grpc.runtime.block_on(grpc.client.clone().eval(eval)).expect_err("it is no list");
    assert_eq!(failed.code(), Code::FailedPrecondition);
    let call = span(&collector, &method("Eval"), |_| true);
    assert_eq!(
        (attribute(&call, "rpc.response.status_code"), attribute(&call, "error.type")),
        ("FAILED_PRECONDITION".into(), "".into())
    );
    let eval = span(&collector, "EVAL", |span| span.parent_span_id == call.span_id);
    assert_eq!((eval.kind, attribute(&eval, "error.type")), (INTERNAL, "WRONGTYPE".into()));
    // A pipeline is one call, however many batches it has.
    let batch = |id: u64, line: &str| {
        let args = line.split(' ').map(|word| word.as_bytes().to_vec().into()).collect();
        let commands = vec![proto::gateway::v1::Command { args }];
        PipelineRequest { id, commands, ..PipelineRequest::default() }
    };
    let batches = tokio_stream::iter([batch(1, "GET k"), batch(2, "STRLEN k")]);
    grpc.runtime.block_on(async {
        let mut replies = grpc.client.clone().pipeline(batches).await.expect("a stream").into_inner();
        while replies.message().await.expect("no error").is_some() {}
    });
    let call = span(&collector, &method("Pipeline"), |_| true);
    assert_eq!(attribute(&call, "rpc.response.status_code"), "OK");
    assert_eq!(parts(&collector, &call), counts(["GET", "STRLEN"]));
    // One that lasts is told of when its client goes.
    grpc.runtime.block_on(async {
        let mut watched = grpc.client.clone().watch(WatchRequest {}).await.expect("a stream").into_inner();
        watched.message().await.expect("no error");
        collector.look(|seen| assert!(roots(seen).iter().all(|span| span.name != method("Watch"))));
    });
    let call = span(&collector, &method("Watch"), |_| true);
    assert_eq!(attribute(&call, "rpc.response.status_code"), "");
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    http2(server.grpc_address(), &format!("/{}", method("Nothing")), &headers, b"");
    let call = span(&collector, "grpc", |_| true);
    assert_eq!(
        (attribute(&call, "rpc.method"), attribute(&call, "error.type")),
        ("_OTHER".into(), "UNIMPLEMENTED".into())
    );
    assert_eq!(collector.look(|seen| roots(seen).len()), 5);
}

#[test]
fn strangers_cause_no_spans() {
    let (collector, dir) = (Collector::start(), TempDir::made("otel"));
    for ratio in ["0", "1"] {
        let server = choosing(&collector, ratio, &["--requirepass-file", &password(&dir)]);
        let (mut http, grpc, mut client) = (server.http(), Grpc::connect(&server), server.client());
        let theirs = format!("00-{}-b7ad6b7169203331-01", "1".repeat(32));
        let wrong = "Bearer wrong";
        // Fewer calls than end a stranger's connection.
        for _ in 0..3 {
            let headers = [JSON, ("Authorization", wrong), ("traceparent", &theirs)];
            for reported in [&headers[1..], &headers[2..], &headers[1..2], &[]] {
                assert_eq!(http.send("GET", "/v1/key/k", reported, b"").status, 401);
            }
            let body = json!({"args": ["GET", "k"]}).to_string();
            assert_eq!(http.send("POST", "/v1/command", &headers, body.as_bytes()).status, 401);
            let metadata = [("authorization", wrong), ("traceparent", theirs.as_str())];
            for reported in [&metadata[..], &metadata[1..], &metadata[..1], &[]] {
                let refused = grpc.execute("GET k", reported).expect_err("a stranger");
                assert_eq!(refused.code(), Code::Unauthenticated);
            }
            for line in ["GET k", "AUTH wrong", &format!("CLIENT TRACEPARENT {theirs}")] {
                assert!(notation::reply(&client.run(line)).starts_with('-'), "{line}");
            }
        }
        let trace = format!("{ratio}a").repeat(16);
        let ours = format!("00-{trace}-b7ad6b7169203331-01");
        let known = [("authorization", KNOWN.1), ("traceparent", ours.as_str())];
        grpc.execute("GET k", &known).expect("it is known");
        assert_eq!(http.send("GET", "/v1/key/k", &known, b"").status, 404);
        let of_trace = |seen: &Collected| {
            let hex =
                |span: &Span| span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let spans = seen.spans.iter().filter(|span| hex(span) == trace);
            spans.map(|span| span.name.clone()).collect::<Vec<_>>()
        };
        wait_until("what is known is told", || collector.look(of_trace).len() == 4);
        let mut names = collector.look(of_trace);
        names.sort();
        assert_eq!(names, ["GET", "GET /v1/key/{key}", "TYPE", &method("Execute")]);
    }
    assert_eq!(collector.look(|seen| seen.spans.len()), 8);
}

#[test]
fn a_request_is_traced_as_a_whole_or_not_at_all() {
    let collector = Collector::start();
    let server = choosing(&collector, "0.5", &[]);
    let mut http = server.http();
    put(&mut http, "k");
    for _ in 0..50 {
        assert_eq!(http.get("/v1/key/k").status, 200);
    }
    // A script that is always traced is one of those also here, unless whoever asks says no.
    let script = json!({"script": "--!df flags=trace\nreturn 1"});
    server.client().run("CONFIG SET otel-sample-ratio 0");
    assert_eq!(http.post("/v1/eval", &script).status, 200);
    let no = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    assert_eq!(http.send("POST", "/v1/eval", &[JSON, no], script.to_string().as_bytes()).status, 200);
    let sentinel = ("traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(http.send("GET", "/v1/docs", &[sentinel], b"").status, 200);
    span(&collector, "GET /v1/docs", |_| true);
    let requests: Vec<Span> = collector
        .look(|seen| roots(seen).into_iter().filter(|span| span.name == "GET /v1/key/{key}").collect());
    assert!((1..50).contains(&requests.len()), "{} of 50", requests.len());
    for request in requests {
        assert_eq!(parts(&collector, &request), counts(["TYPE", "EXEC"]));
    }
    let others = collector.look(roots).into_iter().map(|span| span.name);
    let others = others.filter(|name| !name.contains("/v1/key/") && !name.starts_with("CONFIG"));
    assert_eq!(others.collect::<Vec<_>>(), ["EVAL"]);
}
