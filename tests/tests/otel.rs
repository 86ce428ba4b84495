//! What an OpenTelemetry collector is told: one of our own, which remembers it.

#[path = "otel/collector.rs"]
mod collector;

use std::collections::BTreeMap;

use collector::{Collector, Seen, fact};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tests::{TestServer, wait_until};

/// Everything is traced, and metrics come often.
fn flags(collector: &Collector) -> Vec<String> {
    let flags = ["--otel-sample-ratio", "1", "--otel-metrics-interval-ms", "200", "--otel-endpoint"];
    let mut flags = flags.map(str::to_owned).to_vec();
    flags.push(collector.url());
    flags
}

fn start(collector: &Collector, more: &[&str]) -> TestServer {
    let flags = flags(collector);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    TestServer::start(&flags)
}

/// Waits for a span of this name, whose facts say so.
fn span(collector: &Collector, name: &str, fits: impl Fn(&Span) -> bool) -> Span {
    let found = |seen: &Seen| seen.spans.iter().find(|span| span.name == name && fits(span)).cloned();
    wait_until(&format!("the collector has a span {name}"), || collector.look(found).is_some());
    collector.look(found).expect("it was there")
}

/// Names of spans within this one, with how many there are.
fn parts(collector: &Collector, of: &Span) -> BTreeMap<String, usize> {
    collector.look(|seen| {
        let mut names = BTreeMap::new();
        for span in seen.spans.iter().filter(|span| span.parent_span_id == of.span_id) {
            assert_eq!(span.trace_id, of.trace_id);
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            *names.entry(span.name.clone()).or_default() += 1;
        }
        names
    })
}

const SCRIPT: &str = "#!lua name=counts flags=allow-oom
redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[1])
redis.pcall('LPUSH', KEYS[1], 1)
redis.log(redis.LOG_WARNING, 'from within')
return redis.call('GET', KEYS[1])";

/// The spans of a script's run, whose calls go to `stores`.
fn run_has_its_tree(collector: &Collector, server: &TestServer) -> Vec<Span> {
    let mut client = server.client();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    client.call(["CLIENT", "TRACEPARENT", parent.as_str()]);
    client.call(["EVAL", SCRIPT, "1", "{tree}key"]);
    client.call(["CLIENT", "TRACEPARENT", ""]);
    let request = span(collector, "EVAL", |_| true);
    assert_eq!(fact(&request, "db.system.name"), "redis");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (trace.into(), "b7ad6b7169203331".into())
    );
    let run = span(collector, "script", |span| span.parent_span_id == request.span_id);
    for (name, value) in [
        ("moonshard.script.mode", "atomic"),
        ("moonshard.script.name", "counts"),
        ("moonshard.script.keys", "1"),
        ("moonshard.script.flags", "allow-oom"),
        ("moonshard.script.outcome", "ok"),
        ("moonshard.script.calls", "4"),
        ("moonshard.script.reruns", "0"),
    ] {
        assert_eq!(fact(&run, name), value, "{name}");
    }
    assert!(fact(&run, "moonshard.script.fuel").parse::<u64>().expect("a number") > 0);
    let names = parts(collector, &run);
    for (name, count) in [("SET", 1), ("INCR", 1), ("LPUSH", 1), ("GET", 1), ("lock", 1), ("commit", 1)] {
        assert_eq!(names.get(name), Some(&count), "{name} in {names:?}");
    }
    let failed = span(collector, "LPUSH", |span| span.parent_span_id == run.span_id);
    assert_eq!(fact(&failed, "error.type"), "WRONGTYPE");
    let of_run = |seen: &Seen| -> Vec<Span> {
        seen.spans.iter().filter(|span| span.parent_span_id == run.span_id).cloned().collect()
    };
    collector.look(of_run)
}

#[test]
fn a_script_is_a_tree_of_spans() {
    let collector = Collector::start();
    let server = start(&collector, &["--log-format", "json"]);
    run_has_its_tree(&collector, &server);
    let line = || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("from within")).map(str::to_owned);
        line.and_then(|line| serde_json::from_str::<serde_json::Value>(&line).ok())
    };
    wait_until("the log has the script's line", || line().is_some());
    let line = line().expect("it was there");
    assert_eq!(line["trace_id"], json!("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!((&line["level"], &line["source"]), (&json!("warning"), &json!("script")));
}

#[test]
fn calls_to_store_nodes_are_spans_of_a_client() {
    let collector = Collector::start();
    let stores = [TestServer::store(&[]), TestServer::store(&[])];
    let addresses: Vec<_> = stores.iter().map(TestServer::address).collect();
    let flags = flags(&collector);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = TestServer::gateway(&addresses, &flags);
    let spans = run_has_its_tree(&collector, &server);
    let known: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    for span in spans.iter().filter(|span| span.name == "SET" || span.name == "GET") {
        assert_eq!(span.kind, 3, "a client's");
        assert!(known.contains(&fact(span, "server.address")), "{span:?}");
        assert_eq!(fact(span, "rpc.system"), "grpc");
    }
    server.client().run("SET a 1");
    let request = span(&collector, "SET", |span| span.kind == 2);
    let asked = span(&collector, "SET", |span| span.parent_span_id == request.span_id);
    assert_eq!(fact(&asked, "rpc.service"), "moonshard.store.v1.Store");
}

#[test]
fn who_asks_decides_what_is_traced() {
    let collector = Collector::start();
    let server = start(&collector, &["--http", "127.0.0.1:0"]);
    let mut http = server.http();
    let body = json!({"args": ["GET", "a"]}).to_string();
    let json = ("Content-Type", "application/json");
    for (trace, flags) in [("1", "00"), ("2", "01")] {
        let trace = trace.repeat(32);
        let parent = format!("00-{trace}-b7ad6b7169203331-{flags}");
        let answer = http.send("POST", "/v1/command", &[json, ("traceparent", &parent)], body.as_bytes());
        assert_eq!(answer.status, 200);
    }
    let request = span(&collector, "GET", |_| true);
    assert_eq!(request.trace_id, [0x22; 16]);
    let others = collector.look(|seen| seen.spans.iter().filter(|span| span.trace_id == [0x11; 16]).count());
    assert_eq!(others, 0);
    let mut client = server.client();
    let refused = format!("{:?}", client.call(["CLIENT", "TRACEPARENT", "nonsense"]));
    assert!(refused.contains("traceparent must be"), "{refused}");
}

#[test]
fn metrics_are_those_of_prometheus() {
    let collector = Collector::start();
    let server = start(&collector, &["--http", "127.0.0.1:0"]);
    server.client().run("SET a 1");
    let store =
        TestServer::store(&["--otel-endpoint", &collector.url(), "--otel-metrics-interval-ms", "200"]);
    let text = String::from_utf8(server.http().get("/metrics").body).expect("text");
    let named = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let named: Vec<String> = named.map(str::to_owned).collect();
    let all_there = |seen: &Seen| named.iter().all(|name| seen.metrics.contains_key(name));
    wait_until("the collector has all metrics", || collector.look(all_there));
    let count = |seen: &Seen| seen.metrics.get("moonshard_commands_total set ok").copied();
    wait_until("it knows of the call", || collector.look(count) == Some(1.0));
    let instances = |seen: &Seen| seen.instances.len();
    wait_until("the store node tells, too", || collector.look(instances) == 2);
    drop(store);
}

#[test]
fn a_collector_that_is_away_is_told_of_once_and_missed_by_nobody() {
    let collector = Collector::start();
    let url = collector.url();
    drop(collector);
    let flags = ["--otel-sample-ratio", "1", "--otel-metrics-interval-ms", "10", "--otel-endpoint", &url];
    let server = TestServer::start(&[&flags[..], &["--http", "127.0.0.1:0"]].concat());
    let mut client = server.client();
    let requests: Vec<Vec<Vec<u8>>> = vec![vec![b"PING".to_vec()]; 20_000];
    assert_eq!(client.pipeline(&requests).len(), 20_000);
    let metric = |name: &str| {
        let text = String::from_utf8(server.http().get("/metrics").body).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0").trim().to_owned();
        line.parse::<f64>().expect("a number")
    };
    wait_until("spans fail", || metric("moonshard_otel_spans_total{outcome=\"failed\"}") > 0.0);
    wait_until("metrics fail often", || {
        metric("moonshard_otel_exports_failed_total{signal=\"metrics\"}") > 5.0
    });
    let log = server.log();
    assert_eq!(log.matches("the collector does not take metrics").count(), 1, "{log}");
    assert!(log.lines().count() < 10, "{log}");
}
