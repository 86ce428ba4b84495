//! What an OpenTelemetry collector is told: one of our own, which remembers it.

mod collector;
mod export;
mod requests;

use std::collections::BTreeMap;

use collector::{Collected, Collector, attribute};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tests::{TestServer, notation, wait_until};

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
    let found = |seen: &Collected| seen.spans.iter().find(|span| span.name == name && fits(span)).cloned();
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
    assert_eq!(attribute(&request, "db.system.name"), "redis");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (trace.into(), "b7ad6b7169203331".into())
    );
    let run = span(collector, "script", |span| span.parent_span_id == request.span_id);
    for (name, value) in [
        ("moonshard.script.mode", "atomic"),
        ("moonshard.script.name", "counts"),
        ("db.stored_procedure.name", "counts"),
        ("moonshard.script.keys", "1"),
        ("moonshard.script.flags", "allow-oom"),
        ("moonshard.script.outcome", "ok"),
        ("moonshard.script.calls", "4"),
        ("moonshard.script.reruns", "0"),
    ] {
        assert_eq!(attribute(&run, name), value, "{name}");
    }
    assert!(attribute(&run, "moonshard.script.fuel").parse::<u64>().expect("a number") > 0);
    let names = parts(collector, &run);
    for (name, count) in [("SET", 1), ("INCR", 1), ("LPUSH", 1), ("GET", 1), ("lock", 1), ("commit", 1)] {
        assert_eq!(names.get(name), Some(&count), "{name} in {names:?}");
    }
    let failed = span(collector, "LPUSH", |span| span.parent_span_id == run.span_id);
    assert_eq!(attribute(&failed, "error.type"), "WRONGTYPE");
    let of_run = |seen: &Collected| -> Vec<Span> {
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
    let library =
        "#!lua name=lib\nredis.register_function('double', function(keys, args) return args[1] * 2 end)";
    server.client().call(["FUNCTION", "LOAD", library]);
    server.client().call(["FCALL", "double", "0", "2"]);
    let run = span(&collector, "function", |_| true);
    assert_eq!(attribute(&run, "db.stored_procedure.name"), "double");
    wait_until("the log has the script's line", || line().is_some());
    let line = line().expect("it was there");
    assert_eq!(line["trace_id"], json!("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!((&line["level"], &line["source"]), (&json!("warning"), &json!("script")));
}

/// Two store nodes that tell this collector what they do, and a gateway of theirs of which everything is traced.
fn cluster(collector: &Collector, of_nodes: &[&str]) -> ([TestServer; 2], TestServer) {
    let url = collector.url();
    let of_nodes = [&["--otel-endpoint", &url, "--otel-service-name", "nodes"], of_nodes].concat();
    let stores = [TestServer::store(&of_nodes), TestServer::store(&of_nodes)];
    let addresses: Vec<_> = stores.iter().map(TestServer::address).collect();
    let flags = flags(collector);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = TestServer::gateway(&addresses, &flags);
    (stores, server)
}

/// Host and port of who answers, as an address.
fn server_of(span: &Span) -> String {
    format!("{}:{}", attribute(span, "server.address"), attribute(span, "server.port"))
}

const EXECUTE: &str = "moonshard.store.v1.Store/Execute";
const STEP: &str = "moonshard.store.v1.Store/Step";

/// The span of a node for what `asked` asked it.
fn of_node(collector: &Collector, asked: &Span) -> Span {
    let served = span(collector, &asked.name, |span| span.parent_span_id == asked.span_id);
    assert_eq!((asked.kind, served.kind), (3, 2), "a client's and a server's");
    assert_eq!(served.trace_id, asked.trace_id);
    assert_eq!(collector.look(|seen| seen.services[served.span_id.as_slice()].clone()), "nodes");
    served
}

#[test]
fn what_store_nodes_do_belongs_to_the_same_trace() {
    let collector = Collector::start();
    let (stores, server) = cluster(&collector, &[]);
    let spans = run_has_its_tree(&collector, &server);
    let known: Vec<String> = stores.iter().map(|store| store.address().to_string()).collect();
    for span in spans.iter().filter(|span| span.name == "SET" || span.name == "GET") {
        assert!(known.contains(&server_of(span)), "{span:?}");
    }
    let steps: Vec<&Span> = spans.iter().filter(|span| span.name == STEP).collect();
    assert!(steps.iter().any(|step| attribute(step, "moonshard.step.finish") == "commit"), "{spans:?}");
    for asked in steps {
        assert_eq!(
            (attribute(asked, "rpc.system.name"), attribute(asked, "rpc.method")),
            ("grpc".into(), STEP.into())
        );
        assert_eq!(attribute(asked, "rpc.response.status_code"), "OK");
        of_node(&collector, asked);
    }
    let mut client = server.client();
    client.run("SET a 1");
    client.run("LPUSH a 1");
    for (name, error) in [("SET", ""), ("LPUSH", "WRONGTYPE")] {
        let request = span(&collector, name, |span| span.kind == 2 && attribute(span, "error.type") == error);
        let asked = span(&collector, EXECUTE, |span| span.parent_span_id == request.span_id);
        assert!(known.contains(&server_of(&asked)), "{asked:?}");
        for span in [&asked, &of_node(&collector, &asked)] {
            assert_eq!(
                (attribute(span, "db.operation.name"), attribute(span, "error.type")),
                (name.into(), error.into())
            );
        }
        let served = of_node(&collector, &asked);
        let work = span(&collector, "work", |span| span.parent_span_id == served.span_id);
        assert!(!attribute(&work, "moonshard.shard").is_empty(), "{work:?}");
    }
}

#[test]
fn waits_of_store_nodes_are_spans() {
    let dir = tests::temp_dir::TempDir::new("otel");
    let collector = Collector::start();
    let url = collector.url();
    let durable = ["--data-dir", dir.text(), "--durability", "sync", "--http", "127.0.0.1:0"];
    let durable = [&durable[..], &["--otel-endpoint", &url]].concat();
    let store = TestServer::store(&durable);
    let stores = store.address().to_string();
    let endless = ["--script-fuel", "1000000000000", "--script-timeout-ms", "600000"];
    let server = start(&collector, &[&["--http", "127.0.0.1:0", "--stores", &stores], &endless[..]].concat());
    let mut client = server.client();
    client.run("SET a 1");
    let served = |name: &str| {
        let of = |span: &Span| span.kind == 2 && attribute(span, "db.operation.name") == name;
        span(&collector, EXECUTE, of)
    };
    let set = served("SET");
    span(&collector, "journal", |span| span.parent_span_id == set.span_id);
    // Somebody holds the key until the other one waits for it.
    let mut holder = server.client();
    let holding = std::thread::spawn(move || holder.eval("while true do end", &["a"], &[]));
    wait_until("the script has the key", || {
        notation::reply(&client.run("INFO scripts")).contains("scripts_running:1")
    });
    let asked = || {
        let text = String::from_utf8(server.http().get("/metrics").body).expect("text");
        let line =
            text.lines().find(|line| line.starts_with("moonshard_store_requests_total{")).expect("a line");
        line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok()).expect("a number")
    };
    let mut waiter = server.client();
    let waiting = std::thread::spawn(move || waiter.run("APPEND a 2"));
    wait_until("it has come", || notation::reply(&client.run("CLIENT LIST")).contains(" cmd=append "));
    // If only by beats, of which the second leaves behind it.
    let before = asked();
    wait_until("its node is asked before it hears of the end", || asked() > before + 1);
    client.run("SCRIPT KILL");
    holding.join().expect("it ends");
    waiting.join().expect("it ends");
    let append = served("APPEND");
    let wait = span(&collector, "lock wait", |span| span.parent_span_id == append.span_id);
    assert!(!attribute(&wait, "moonshard.shard").is_empty(), "{wait:?}");
    let reported = String::from_utf8(store.http().get("/metrics").body).expect("text");
    for name in
        ["shard_lock_wait_seconds_count", "node_requests_total", "node_streams", "node_topology_epoch"]
    {
        let line = reported.lines().find_map(|line| line.strip_prefix("moonshard_")?.strip_prefix(name));
        assert!(line.is_some_and(|count| count.trim() != "0"), "{name} in {reported}");
    }
}

#[test]
fn who_does_not_ask_is_not_traced_on_nodes() {
    let collector = Collector::start();
    let url = collector.url();
    let store = TestServer::store(&["--otel-endpoint", &url, "--otel-sample-ratio", "1"]);
    let flags = ["--otel-endpoint", url.as_str()];
    let server = TestServer::gateway(&[store.address()], &flags);
    let mut client = server.client();
    client.run("SET quiet 1");
    client.eval("return redis.call('GET', KEYS[1])", &["quiet"], &[]);
    client.call(["CLIENT", "TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]);
    client.run("SET told 1");
    span(&collector, EXECUTE, |span| span.kind == 2);
    collector.look(|seen| {
        assert!(
            seen.spans.iter().all(|span| span.trace_id[..4] == [0x0a, 0xf7, 0x65, 0x19]),
            "{:?}",
            seen.spans
        );
    });
}

#[test]
fn queued_calls_are_parts_of_their_transaction() {
    let collector = Collector::start();
    let server = start(&collector, &[]);
    let mut client = server.client();
    client.run("MULTI");
    for call in ["SET a 1", "LPUSH a 1", "PUBLISH news hello", "CLIENT ID"] {
        client.run(call);
    }
    client.call(["EVAL", SCRIPT, "1", "b"]);
    client.run("EXEC");
    let request = span(&collector, "EXEC", |_| true);
    let names = parts(&collector, &request);
    for name in ["SET", "LPUSH", "PUBLISH", "CLIENT ID", "script"] {
        assert_eq!(names.get(name), Some(&1), "{name} in {names:?}");
    }
    let failed = span(&collector, "LPUSH", |span| span.parent_span_id == request.span_id);
    assert_eq!(attribute(&failed, "error.type"), "WRONGTYPE");
    let run = span(&collector, "script", |span| span.parent_span_id == request.span_id);
    assert_eq!(
        (attribute(&run, "moonshard.script.outcome"), attribute(&run, "moonshard.script.calls")),
        ("ok".into(), "4".into())
    );
    assert_eq!(parts(&collector, &run).get("SET"), Some(&1));
}

#[test]
fn a_script_may_be_traced_always() {
    let collector = Collector::start();
    let server = TestServer::start(&["--otel-endpoint", &collector.url()]);
    let mut client = server.client();
    client.run("SET a 1");
    client.eval("return 1", &[], &[]);
    client.eval("#!lua flags=trace\nreturn redis.call('GET', 'a')", &[], &[]);
    let request = span(&collector, "EVAL", |_| true);
    let run = span(&collector, "script", |span| span.parent_span_id == request.span_id);
    assert_eq!(attribute(&run, "moonshard.script.flags"), "trace");
    let sha = attribute(&run, "moonshard.script.sha");
    assert_eq!((sha.len(), attribute(&run, "db.stored_procedure.name")), (40, sha));
    assert_eq!(parts(&collector, &run).get("GET"), Some(&1));
    // Unless whoever asks has said that it is not.
    client.call(["CLIENT", "TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"]);
    client.eval("#!lua flags=trace\nreturn 2", &[], &[]);
    client.call(["CLIENT", "TRACEPARENT", ""]);
    client.eval("--!df flags=trace\nreturn 3", &[], &[]);
    let last = |seen: &Collected| seen.spans.iter().filter(|span| span.name == "EVAL").count();
    wait_until("the last one is told", || collector.look(last) == 2);
    let traces = |seen: &Collected| {
        seen.spans.iter().map(|span| span.trace_id.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(collector.look(traces).len(), 2);
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
    let all_there = |seen: &Collected| named.iter().all(|name| seen.metrics.contains_key(name));
    wait_until("the collector has all metrics", || collector.look(all_there));
    let count = |seen: &Collected| seen.metrics.get("moonshard_commands_total set ok").copied();
    wait_until("it knows of the call", || collector.look(count) == Some(1.0));
    let instances = |seen: &Collected| seen.instances.len();
    wait_until("the store node tells, too", || collector.look(instances) == 2);
    drop(store);
}

#[test]
fn a_collector_that_is_away_is_told_of_once_and_missed_by_nobody() {
    let url = format!("http://127.0.0.1:{}", tests::ports::fixed_port());
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
    let complaint = "the collector does not accept metrics";
    wait_until("the log says so", || server.log().contains(complaint));
    let log = server.log();
    assert_eq!(log.matches(complaint).count(), 1, "{log}");
    assert!(log.lines().count() < 10, "{log}");
}
