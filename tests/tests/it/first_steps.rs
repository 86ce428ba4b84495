//! What a newcomer's tools ask of a server: redis-cli's debugger, tools for clusters and modules, probes, and figures of
//! scripts that ran once.

use std::net::SocketAddr;

use tests::process::refused;
use tests::{TestServer, Value, notation, wait_until};

#[test]
fn a_client_that_wants_the_debugger_writes_nothing() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let script = "redis.call('SET', KEYS[1], 'x')";
    for mode in ["YES", "SYNC"] {
        // As `redis-cli --ldb` does, whatever the first reply is.
        let refused = notation::reply(&client.run(&format!("SCRIPT DEBUG {mode}")));
        assert!(refused.starts_with("-ERR There is no Lua debugger"), "{refused}");
        assert_eq!(notation::reply(&client.eval(script, &["k"], &[])), refused);
        assert_eq!(notation::reply(&client.run("EXISTS k")), "0");
    }
    assert_eq!(notation::reply(&client.run("SCRIPT DEBUG YES")).split(' ').next(), Some("-ERR"));
    assert_eq!(notation::reply(&client.run("SCRIPT DEBUG NO")), "+OK");
    client.eval(script, &["k"], &[]);
    assert_eq!(notation::reply(&client.run("EXISTS k")), "1");
    assert_eq!(notation::reply(&client.run("SCRIPT DEBUG maybe")), "-ERR Use SCRIPT DEBUG YES/SYNC/NO");
}

#[test]
fn only_a_server_in_cluster_mode_describes_a_cluster() {
    let mut client = TestServer::start(&[]);
    let disabled = "-ERR This instance has cluster support disabled";
    assert_eq!(notation::reply(&client.client().run("CLUSTER INFO")), disabled);
    client = TestServer::start(&["--cluster-enabled", "yes"]);
    assert!(notation::reply(&client.client().run("CLUSTER INFO")).contains("cluster_state:ok"));
}

#[test]
fn there_are_no_modules() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    assert_eq!(client.run("MODULE LIST"), Value::Array(Vec::new()));
    let refused = "-ERR Modules are not available on this server";
    for line in ["MODULE LOAD /x.so", "MODULE LOADEX /x.so", "MODULE UNLOAD x"] {
        assert_eq!(notation::reply(&client.run(line)), refused, "{line}");
    }
    assert!(matches!(client.run("MODULE HELP"), Value::Array(lines) if lines.len() > 4));
}

#[test]
fn refusals_advise_nothing_that_does_not_exist() {
    let server = TestServer::start(&[]);
    // Redis names parameters here that would allow it.
    assert_eq!(
        notation::reply(&server.client().run("DEBUG SLEEP 0")),
        "-ERR DEBUG is not available on this server"
    );
}

#[test]
fn a_gateway_that_reaches_no_store_node_is_not_ready() {
    let store = TestServer::store(&[]);
    let address = store.address().to_string();
    let gateway = TestServer::start(&["--stores", &address, "--http", "127.0.0.1:0"]);
    wait_until("the store node is reached", || gateway.http().get("/readyz").status == 200);
    drop(store);
    wait_until("the store node is missed", || gateway.http().get("/readyz").status == 503);
    let answer = gateway.http().get("/readyz");
    assert_eq!(
        String::from_utf8_lossy(&answer.body),
        "not ready: no store node can be used, the log says why\n"
    );
    assert_eq!(gateway.http().get("/healthz").status, 200, "the process is well");
    let metrics = gateway.http().get("/metrics").body;
    assert!(String::from_utf8_lossy(&metrics).contains("\nmoonshard_ready 0\n"), "as the probe says");
    let warnings = || {
        let warning = format!("warning: store node {address} cannot be used: ");
        gateway.log().lines().filter(|line| line.contains(&warning)).count()
    };
    wait_until("the outage is logged", || warnings() > 0);
    // The next reason, that nothing listens there, belongs to the same outage.
    wait_until("the next reason is logged", || gateway.log().contains("cannot be used: cannot connect: "));
    assert_eq!(warnings(), 1, "{}", gateway.log());
}

#[test]
fn probes_of_all_listeners_miss_the_store_nodes() {
    let store = TestServer::store(&[]);
    let address = store.address().to_string();
    let gateway =
        TestServer::start(&["--stores", &address, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    let addresses = [
        ("--http", gateway.http_address()),
        ("--grpc", gateway.grpc_address()),
        ("--resp", gateway.address()),
    ];
    let is_healthy = |(flag, address): &(&str, SocketAddr)| {
        let output = refused(&["health", flag, &address.to_string()]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).expect("text");
        let is_healthy = output.status.success();
        let wanted = if is_healthy { "accepts requests" } else { "does not accept requests" };
        assert!(said.contains(wanted), "{flag}: {said}");
        is_healthy
    };
    wait_until("all probes reach the store node", || addresses.iter().all(is_healthy));
    drop(store);
    wait_until("all probes miss the store node", || !addresses.iter().any(is_healthy));
}

#[test]
fn the_first_run_of_a_script_counts_and_costs_what_later_ones_cost() {
    let server = TestServer::start(&["--http", "127.0.0.1:0"]);
    let mut client = server.client();
    client.eval("return 1", &[], &[]);
    let latency = notation::reply(&client.run("SCRIPT LATENCY"));
    assert!(latency.contains("Count: 1 "), "{latency}");
    let request = serde_json::json!({"script": "return redis.call('GET', KEYS[1])", "keys": ["k"]});
    let runs: Vec<serde_json::Value> =
        (0..5).map(|_| server.http().post("/v1/eval", &request).json()["run"].clone()).collect();
    assert!(runs.iter().all(|run| run["fuel"] == runs[0]["fuel"]), "{runs:?}");
    assert!(runs[0]["compile_fuel"].as_u64() > Some(0), "{runs:?}");
}

#[test]
fn the_log_of_a_start_says_what_runs_where() {
    let server = TestServer::start(&["--http", "127.0.0.1:0", "--maxmemory", "64mb"]);
    let http = server.http_address();
    for line in [
        format!("info: moonshard {} (commit ", env!("CARGO_PKG_VERSION")),
        "info: data: in memory only, as data-dir is none".to_owned(),
        "info: limits: maxmemory 67108864 bytes, ".to_owned(),
        format!("info: listeners: RESP {}, HTTP {http}", server.address()),
        format!("info: web console: http://{http}/"),
    ] {
        wait_until(&format!("the log has {line:?}"), || server.log().contains(&line));
    }
    let log = server.log();
    let is_stamped = |line: &str| line.as_bytes().get(10) == Some(&b'T') && line.starts_with("20");
    assert!(log.lines().all(is_stamped), "{log}");
}

#[test]
fn the_log_of_a_store_node_has_its_limits_and_listeners() {
    let store = TestServer::store(&["--http", "127.0.0.1:0", "--maxmemory", "64mb"]);
    for line in [
        "info: limits: maxmemory 67108864 bytes".to_owned(),
        format!("info: listeners: store protocol {}, HTTP 127.0.0.1:0", store.address()),
    ] {
        wait_until(&format!("the log has {line:?}"), || store.log().contains(&line));
    }
}

#[test]
fn a_server_without_a_password_beyond_loopback_warns() {
    let warning = "warning: no password is set";
    assert!(!TestServer::start(&[]).log().contains(warning));
    let open = ["--resp", "0.0.0.0:0"];
    let server = TestServer::start(&open);
    wait_until("the server warns", || server.log().contains(warning));
    let server = TestServer::start(&[&open[..], &["--protected-mode", "no"]].concat());
    wait_until("the server warns", || server.log().contains("protected-mode is off"));
}
