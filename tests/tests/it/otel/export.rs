//! Both protocols of OTLP: what arrives, what is sent again, and what the end of a server waits for.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use tests::certificates::{Authority, Entrance};
use tests::{Client, TestServer, wait_until};
use tls::Protocol;

use super::collector::{Collected, Collector, Received};
use super::span;

/// A collector of each protocol, with the name of that.
fn collectors() -> [(Collector, &'static str); 2] {
    [(Collector::start(), "grpc"), (Collector::start_http(), "http/protobuf")]
}

/// A server that traces what clients want traced, and sends its metrics rarely.
fn start(collector: &Collector, protocol: &str) -> TestServer {
    let url = collector.url();
    TestServer::start(&["--otel-protocol", protocol, "--otel-endpoint", &url, "--http", "127.0.0.1:0"])
}

/// A client that wants all of its commands traced.
fn traced(server: &TestServer) -> Client {
    let mut client = server.client();
    client.call(["CLIENT", "TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]);
    client
}

/// How many spans have met this fate.
fn spans(server: &TestServer, outcome: &str) -> u64 {
    let text = String::from_utf8(server.http().get("/metrics").body).expect("text");
    let name = format!("moonshard_otel_spans_total{{outcome=\"{outcome}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&name)).expect("such a line");
    count.parse().expect("a number")
}

/// When requests with a span of this name came.
fn sent(collector: &Collector, name: &str) -> Vec<Instant> {
    let has = |request: &&Received| request.names.iter().any(|known| known == name);
    collector.look(|seen| seen.requests.iter().filter(has).map(|request| request.at).collect())
}

#[test]
fn traces_and_metrics_arrive_whole() {
    for (collector, protocol) in collectors() {
        let (path, encoding) = match protocol {
            "grpc" => ("", "grpc-encoding"),
            _ => ("/of/tenants/", "content-encoding"),
        };
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}{path}", collector.url())),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".to_owned()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20secret,tenant=one".to_owned()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned()),
            ("OTEL_TRACES_SAMPLER", "always_on".to_owned()),
        ];
        let server = TestServer::start_with(&variables, &[]);
        let set = |number: u32| vec![b"SET".to_vec(), number.to_string().into_bytes(), vec![b'x'; 10]];
        let requests: Vec<_> = (0..3000).map(set).collect();
        assert_eq!(server.client().pipeline(&requests).len(), 3000);
        let arrived = |seen: &Collected| seen.spans.iter().filter(|span| span.name == "SET").count();
        wait_until("all spans arrive", || collector.look(arrived) >= 3000);
        let count = |seen: &Collected| seen.metrics.get("moonshard_commands_total set ok").copied();
        wait_until("metrics arrive", || collector.look(count) == Some(3000.0));
        collector.look(|seen| {
            let paths: std::collections::BTreeSet<&str> =
                seen.requests.iter().map(|request| &*request.path).collect();
            let wanted = match protocol {
                "grpc" => ["metrics", "traces"],
                _ => ["/of/tenants/v1/metrics", "/of/tenants/v1/traces"],
            };
            assert_eq!(paths.into_iter().collect::<Vec<_>>(), wanted);
            let mut ids: Vec<_> = seen.spans.iter().map(|span| &span.span_id).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), seen.spans.len(), "each span arrives once");
            for Received { headers, .. } in &seen.requests {
                for (name, value) in
                    [("authorization", "Bearer secret"), ("tenant", "one"), (encoding, "gzip")]
                {
                    assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name} in {headers:?}");
                }
                assert!(headers["user-agent"].starts_with("moonshard/"), "{headers:?}");
            }
        });
    }
}

#[test]
fn what_a_collector_refuses_for_a_while_is_sent_again() {
    for (collector, protocol) in collectors() {
        let (unavailable, invalid) = if protocol == "grpc" { (14, 3) } else { (503, 400) };
        let server = start(&collector, protocol);
        let mut client = traced(&server);
        let wait = Duration::from_secs(2);
        collector.refuse(unavailable, Some(wait));
        client.run("SET a 1");
        span(&collector, "SET", |_| true);
        let times = sent(&collector, "SET");
        assert_eq!(times.len(), 2, "once more");
        assert!(times[1] - times[0] >= wait, "not before the collector wants it: {times:?}");
        wait_until("it is counted", || spans(&server, "sent") > 0);
        assert_eq!(spans(&server, "failed"), 0);
        collector.refuse(invalid, None);
        client.run("GET a");
        wait_until("it is given up", || spans(&server, "failed") > 0);
        client.run("DEL a");
        span(&collector, "DEL", |_| true);
        assert_eq!(sent(&collector, "GET").len(), 1, "it would be refused again");
        wait_until("the log says both", || {
            let log = server.log();
            log.contains("the collector does not accept traces: it answers")
                && log.contains("the collector accepts traces again")
        });
    }
}

#[test]
fn what_waits_for_another_attempt_has_it_when_the_server_ends() {
    for (collector, protocol) in collectors() {
        let unavailable = if protocol == "grpc" { 14 } else { 503 };
        let mut server = start(&collector, protocol);
        collector.refuse(unavailable, Some(Duration::from_secs(3600)));
        traced(&server).run("SET a 1");
        wait_until("it is refused", || !sent(&collector, "SET").is_empty());
        server.signal(libc::SIGTERM);
        assert!(server.wait().success());
        assert_eq!(sent(&collector, "SET").len(), 2);
        collector.look(|seen| {
            assert!(seen.spans.iter().any(|span| span.name == "SET"));
            assert!(seen.metrics.contains_key("moonshard_commands_total set ok"), "metrics, too");
        });
    }
}

#[test]
fn no_end_waits_for_a_silent_collector() {
    for protocol in ["grpc", "http/protobuf"] {
        // Connections are made, and nothing is answered.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let flags = ["--otel-sample-ratio", "1", "--otel-protocol", protocol, "--otel-endpoint", &url];
        let mut server = TestServer::start(&flags);
        server.client().run("SET a 1");
        let (_stream, _) = listener.accept().expect("it connects to send the span");
        server.signal(libc::SIGTERM);
        let began = Instant::now();
        assert!(server.wait().success());
        // One attempt may take 10 seconds, and all of them 40.
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

#[test]
fn a_collector_may_speak_tls() {
    for (collector, protocol) in collectors() {
        let authority = Authority::new();
        let alpn = if protocol == "grpc" { Protocol::Grpc } else { Protocol::Http };
        let entrance = Entrance::new(&authority, collector.address(), alpn);
        let url = format!("https://localhost:{}", entrance.address().port());
        let flags = ["--otel-sample-ratio", "1", "--otel-protocol", protocol, "--otel-endpoint", &url];
        let flags = [&flags[..], &["--otel-metrics-interval-ms", "200"]].concat();
        let stranger = Authority::new();
        let (root, others) = (authority.root(), stranger.root());
        let of_system = |file: &str| [("SSL_CERT_FILE", file.to_owned()), ("SSL_CERT_DIR", String::new())];
        // A file takes precedence over the roots of the system.
        let by_file = [&flags[..], &["--otel-ca-cert-file", &root]].concat();
        let by_file = TestServer::start_with(&of_system(&others), &by_file);
        by_file.client().run("SET a 1");
        span(&collector, "SET", |_| true);
        let by_system = TestServer::start_with(&of_system(&root), &flags);
        by_system.client().run("GET a");
        span(&collector, "GET", |_| true);
        let unknown = TestServer::start_with(&of_system(&others), &flags);
        wait_until("the log says why", || {
            unknown.log().contains("does not accept metrics: invalid peer certificate")
        });
        let (_, key) = authority.certificate("other", &["other"]);
        let bare = TestServer::start_with(&of_system(&key), &flags);
        wait_until("the log says what is missing", || {
            bare.log().contains("the system has no certificate authorities")
        });
    }
}

#[test]
fn a_path_is_for_http() {
    let server = TestServer::start(&["--otel-endpoint", "http://localhost:4317/tenant"]);
    wait_until("the log says so", || {
        server.log().contains(
            "telemetry is not exported: otel-endpoint: http://localhost:4317/tenant: a path requires",
        )
    });
}
