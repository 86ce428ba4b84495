//! `/metrics`, and what INFO and LATENCY make of the same counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use tests::cluster::{Member, found};
use tests::ports::fixed_port;
use tests::{Client, TIMEOUT, TestServer, Value, notation, wait_until};

fn start(more: &[&str]) -> TestServer {
    TestServer::start(&[&["--http", "127.0.0.1:0"], more].concat())
}

fn scrape(server: &TestServer) -> String {
    let answer = server.http().get("/metrics");
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/plain; version=0.0.4"));
    String::from_utf8(answer.body).expect("text")
}

fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

fn section(client: &mut Client, name: &str) -> String {
    let reply = client.call(["INFO", name]);
    String::from_utf8_lossy(reply.text().expect("a string")).into_owned()
}

#[test]
fn calls_are_counted_by_how_they_end() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["SET a 1", "GET a", "GET a", "LPUSH a 1", "GET", "NOSUCH thing", "CONFIG GET hz"] {
        client.run(line);
    }
    client.eval("redis.call('INCR', KEYS[1]) return redis.error_reply('MINE it is')", &["a"], &[]);
    client.run("MULTI");
    client.run("INCR a");
    client.run("EXEC");
    let text = scrape(&server);
    for (labels, count) in [
        (r#"{command="get",outcome="ok"}"#, 2.0),
        (r#"{command="get",outcome="rejected"}"#, 1.0),
        (r#"{command="lpush",outcome="error"}"#, 1.0),
        (r#"{command="eval",outcome="error"}"#, 1.0),
        (r#"{command="incr",outcome="ok"}"#, 2.0),
        (r#"{command="config|get",outcome="ok"}"#, 1.0),
        (r#"{command="unknown",outcome="rejected"}"#, 1.0),
    ] {
        assert_eq!(value(&text, &format!("moonshard_commands_total{labels}")), count, "{labels}");
    }
    assert_eq!(value(&text, r#"moonshard_errors_total{code="MINE"}"#), 1.0);
    assert_eq!(value(&text, r#"moonshard_command_duration_seconds_count{command="get"}"#), 2.0);
    assert_eq!(value(&text, r#"moonshard_script_runs_total{outcome="error"}"#), 1.0);

    for script in ["#!lua name=limiter\nreturn redis.call('TTL', 'b')", "#!lua name=limiter\nreturn 2"] {
        client.eval(script, &["b"], &[]);
    }
    client
        .run("FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('queue', function() return 1 end)\"");
    client.run("FCALL queue 0");
    let text = scrape(&server);
    for (name, wanted) in [
        (r#"runs_total{script="limiter",outcome="ok"}"#, 2.0),
        (r#"calls_total{script="limiter"}"#, 1.0),
        (r#"duration_seconds_count{script="limiter"}"#, 2.0),
        (r#"runs_total{script="queue",outcome="ok"}"#, 1.0),
    ] {
        assert_eq!(value(&text, &format!("moonshard_named_script_{name}")), wanted, "{name}");
    }
    assert!(value(&text, r#"moonshard_named_script_fuel_total{script="limiter"}"#) > 0.0);

    let commands = section(&mut client, "commandstats");
    assert!(commands.starts_with("# Commandstats\r\n"), "{commands}");
    let line = commands.lines().find(|line| line.starts_with("cmdstat_get:")).expect("a line");
    assert!(line.starts_with("cmdstat_get:calls=2,usec="), "{line}");
    assert!(line.ends_with(",rejected_calls=1,failed_calls=0"), "{line}");
    assert!(commands.contains("cmdstat_config|get:calls=1,"), "{commands}");
    let errors = section(&mut client, "errorstats");
    for line in ["errorstat_ERR:count=2", "errorstat_MINE:count=1", "errorstat_WRONGTYPE:count=1"] {
        assert!(errors.contains(line), "{errors}");
    }
    let latencies = section(&mut client, "latencystats");
    let line =
        latencies.lines().find(|line| line.starts_with("latency_percentiles_usec_get:")).expect("a line");
    let shape: String = line.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    assert_eq!(shape, "latency_percentiles_usec_get:p=.,p=.,p.=.");
    let histogram = notation::reply(&client.run("LATENCY HISTOGRAM get nosuch"));
    assert!(histogram.contains("\"get\"") && histogram.contains("\"histogram_usec\""), "{histogram}");
    let usual = section(&mut client, "default");
    assert!(usual.contains("# Errorstats") && !usual.contains("# Commandstats"), "{usual}");

    client.run("CONFIG RESETSTAT");
    assert!(!section(&mut client, "commandstats").contains("cmdstat_get:"));
    assert!(!section(&mut client, "errorstats").contains("errorstat_"));
}

/// What every counter of a text says, and how many values every histogram has.
fn sums(text: &str) -> BTreeMap<&str, f64> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let sums: BTreeSet<&str> = kinds.filter(|(_, kind)| *kind != "gauge").map(|(name, _)| name).collect();
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let is_sum = |name: &str| {
        let name = name.split('{').next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"].map(|part| name.strip_suffix(part));
        sums.contains(name) || parts.iter().flatten().any(|name| sums.contains(name))
    };
    let wanted = samples.filter(|(name, _)| is_sum(name));
    wanted.map(|(name, value)| (name, value.parse().expect("a number"))).collect()
}

#[test]
fn whoever_scrapes_sees_sums_that_never_fall() {
    let store = TestServer::store(&["--http", "127.0.0.1:0"]);
    let gateway = start(&["--stores", &store.address().to_string()]);
    let whole = start(&[]);
    for (server, reported) in [(&whole, vec![&whole]), (&gateway, vec![&gateway, &store])] {
        let mut client = server.client();
        for line in ["SET a 1", "GET a", "GET nosuch", "LPUSH a 1", "NOSUCH thing", "SET b 1 PX 1"] {
            client.run(line);
        }
        client.eval("redis.call('INCR', KEYS[1]) return redis.error_reply('MINE it is')", &["a"], &[]);
        client.eval("return redis.call('INCR', 'undeclared')", &["a"], &[]);
        let keyspace = |client: &mut Client| {
            let stats = section(client, "stats");
            let of = |name: &str| {
                let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.expect("a line").parse::<u64>().expect("a number")
            };
            ["keyspace_hits", "keyspace_misses", "expired_keys", "total_error_replies"].map(of)
        };
        // Nodes elsewhere tell every second.
        wait_until("the key has expired and its node tells of it", || {
            client.run("GET b");
            keyspace(&mut client).iter().all(|count| *count > 0)
        });
        let before: Vec<String> = reported.iter().map(|server| scrape(server)).collect();
        client.run("CONFIG RESETSTAT");
        assert_eq!(keyspace(&mut client), [0; 4], "INFO begins anew");
        for (before, server) in before.iter().zip(reported) {
            let later = scrape(server);
            let later = sums(&later);
            assert!(later.len() > 10, "{later:?}");
            for (name, value) in sums(before) {
                assert!(later.get(name).is_some_and(|later| *later >= value), "{name} fell from {value}");
            }
        }
    }
}

#[test]
fn nothing_is_measured_if_nobody_wants_it() {
    let server = start(&["--latency-tracking", "no"]);
    let mut client = server.client();
    client.run("CONFIG SET slowlog-log-slower-than -1");
    client.run("GET a");
    assert_eq!(section(&mut client, "latencystats"), "# Latencystats\r\n");
    assert!(section(&mut client, "commandstats").contains("cmdstat_get:calls=1,usec=0,usec_per_call=0.00,"));
}

#[test]
fn hostile_input_does_not_grow_the_text() {
    let server = start(&[]);
    let mut client = server.client();
    client.run("CONFIG SET script-cache-max 10");
    client.eval("return redis.error_reply('FIRST')", &[], &[]);
    client.run("NOSUCH");
    client.run("EVALSHA 0000000000000000000000000000000000000000 0");
    // Beyond the code words that are told apart.
    let words = |from: usize, to: usize| -> Vec<Vec<Vec<u8>>> {
        let script = |at: usize| format!("return redis.error_reply('WORD{at}')");
        (from..to).map(|at| vec![b"EVAL".to_vec(), script(at).into_bytes(), b"0".to_vec()]).collect()
    };
    client.pipeline(&words(0, 200));
    let names = |text: &str| -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    let before = names(&scrape(&server));
    client.pipeline(&words(200, 500));
    let unknown = |at: usize| vec![format!("UNKNOWN{at}\"}} 1\n").into_bytes(), format!("{at}").into_bytes()];
    let sha = |at: usize| vec![b"EVALSHA".to_vec(), format!("{at:040x}").into_bytes(), b"0".to_vec()];
    client.pipeline(&(0..10_000).map(unknown).collect::<Vec<_>>());
    client.pipeline(&(0..10_000).map(sha).collect::<Vec<_>>());
    let text = scrape(&server);
    let more: Vec<String> = names(&text).difference(&before).cloned().collect();
    assert_eq!(more, Vec::<String>::new());
    assert_eq!(value(&text, r#"moonshard_commands_total{command="unknown",outcome="rejected"}"#), 10_001.0);
    assert!(matches!(client.run("PING"), Value::Status(_)));
}

#[test]
fn every_metric_of_the_table_is_told_by_somebody() {
    let table =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/reference/metrics.md"))
            .expect("a page");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let wanted: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let dir = tests::temp_dir::TempDir::new("metrics");
    let whole = start(&["--data-dir", dir.text()]);
    let store = TestServer::store(&["--http", "127.0.0.1:0"]);
    let gateway = start(&["--stores", &store.address().to_string()]);
    for server in [&whole, &gateway] {
        server.client().run("SET a 1");
        server.client().run("NOSUCH");
        server.client().eval("#!lua name=named\nreturn 1", &[], &[]);
    }
    let http = format!("127.0.0.1:{}", fixed_port());
    let mut replicated = Member::store(Some("sync"), &["--http", &http]);
    replicated.start();
    let (code, text) = found(&[replicated.address()], "1");
    assert_eq!(code, Some(0), "{text}");
    let mut of_replica = String::new();
    wait_until("it leads its group", || {
        of_replica = asked(replicated.server(), "/metrics");
        of_replica.contains("\nmoonshard_replica_leads{group=\"g0\"} 1\n")
    });
    assert!(of_replica.contains("\nmoonshard_replica_elections_total{group=\"g0\"} 1\n"), "{of_replica}");
    assert!(of_replica.contains("\nmoonshard_group_replicas_missing{group=\"g0\"} 0\n"), "{of_replica}");
    let texts = [[&whole, &store, &gateway].map(scrape).concat(), of_replica].concat();
    let reported = texts.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let reported: BTreeSet<&str> = reported.collect();
    assert_eq!(reported, wanted);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(store.http().get(path).status, 200, "{path}");
    }
    assert_eq!(store.http().get("/v1/keys").status, 404);
    let foreign = store.http().send("GET", "/metrics", &[("Host", "evil.example")], b"");
    assert_eq!(foreign.status, 403, "no web page reads it under a name of its own");
}

/// What is answered, if anything is: who comes at the wrong moment is cut off.
fn asked(server: &TestServer, path: &str) -> String {
    let mut answer = String::new();
    let mut ask = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(server.http_address())?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        stream.read_to_string(&mut answer).map(drop)
    };
    ask().map_or(String::new(), |()| answer)
}

#[test]
fn who_balances_load_is_told_of_the_end_while_requests_are_finished() {
    let mut server = start(&["--script-timeout-ms", "600000", "--script-fuel", "100000000000000"]);
    let mut busy = server.client();
    busy.send(["EVAL", "redis.log(redis.LOG_WARNING, 'it runs') while true do end", "0"]);
    wait_until("it runs", || server.log().contains("it runs"));
    assert!(asked(&server, "/readyz").starts_with("HTTP/1.1 200 "));
    server.signal(libc::SIGTERM);
    wait_until("it says so", || asked(&server, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(asked(&server, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(asked(&server, "/metrics").contains("\nmoonshard_ready 0\n"));
    assert!(asked(&server, "/v1/keys").starts_with("HTTP/1.1 503 "));
    drop(busy);
    assert!(server.wait().success());
}
