//! MONITOR, SLOWLOG and LATENCY beside those of Redis.

use std::net::SocketAddr;

use store_engine::Protocol;
use tests::{Client, Oracle, Topology, Value, notation, over_nodes, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

/// What a monitor is shown next.
fn line(monitor: &mut Client) -> String {
    String::from_utf8_lossy(monitor.read().text().expect("a line")).into_owned()
}

/// What a monitor sees of these calls, without times and addresses.
fn seen(address: SocketAddr, protocol: Protocol) -> Vec<String> {
    let mut client = Client::connect(address, Protocol::Resp2);
    let mut monitor = Client::connect(address, protocol);
    say(&mut client, "FLUSHALL");
    assert_eq!(say(&mut monitor, "MONITOR"), "+OK");
    for line in [
        "AUTH secret",
        "AUTH default secret",
        "HELLO 2 AUTH default secret SETNAME me",
        "CONFIG GET maxmemory",
        "SET k \"a b\\x00\\r\\n\\t\\\"\\\\\\xc3\\xa9\"",
        "EVAL \"redis.call('SET', KEYS[1], 'v') return redis.pcall('GET', KEYS[1])\" 1 k",
        "MULTI",
        "SET a 1",
        "PUBLISH ch x",
        "EXEC",
        "NOSUCHCOMMAND a",
        "GET",
        "SELECT 3",
        "GET k",
        "BLPOP none 0.01",
        "SCRIPT LOAD 'return 1'",
        "RESET",
        "PING end",
    ] {
        client.run(line);
    }
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.ends_with("\"PING\" \"end\"")) {
        let line = line(&mut monitor);
        let (time, rest) = line.split_once(" [").expect("a time");
        let (seconds, micros) = time.split_once('.').expect("a fraction");
        assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{time}");
        let (who, call) = rest.split_once("] ").expect("who asks");
        let (db, who) = who.split_once(' ').expect("a database");
        let who = if who == "lua" { "lua" } else { "client" };
        lines.push(format!("{db} {who} {call}"));
    }
    lines
}

fn monitors_see_what_those_of_redis_see(on: Topology) {
    let Some(oracle) = Oracle::start() else { return };
    let server = on.start(&[]);
    for protocol in tests::PROTOCOLS {
        assert_eq!(seen(server.address(), protocol), seen(oracle.address(), protocol));
    }
}

fn a_monitor_is_seen_and_ends(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut monitor) = (server.client(), server.client());
    say(&mut monitor, "MONITOR");
    // Administrators' commands are not shown.
    assert!(say(&mut client, "CLIENT LIST").contains("flags=O"));
    say(&mut client, "EXISTS k");
    let shown = line(&mut monitor);
    assert!(shown.ends_with("\"EXISTS\" \"k\""), "{shown}");
    assert_eq!(say(&mut monitor, "RESET"), "+RESET");
    say(&mut client, "SET k v");
    assert_eq!(say(&mut monitor, "GET k"), "\"v\"");
    assert_eq!(say(&mut client, "MULTI"), "+OK");
    say(&mut client, "MONITOR");
    assert_eq!(say(&mut client, "EXEC"), "[-ERR MONITOR isn't allowed for DENY BLOCKING client]");
}

/// The log, without numbers, times and addresses.
fn slow(client: &mut Client, count: &str) -> Vec<String> {
    let Value::Array(entries) = client.run(&format!("SLOWLOG GET {count}")) else { panic!("no log") };
    let line = |entry: Value| {
        let Value::Array(parts) = entry else { panic!("no entry") };
        assert_eq!(parts.len(), 6);
        format!("{} {}", notation::reply(&parts[3]), notation::reply(&parts[5]))
    };
    entries.into_iter().map(line).collect()
}

fn the_slow_log_is_that_of_redis(on: Topology) {
    let Some(oracle) = Oracle::start() else { return };
    let server = on.start(&[]);
    let mut logs = Vec::new();
    for address in [server.address(), oracle.address()] {
        let mut client = Client::connect(address, Protocol::Resp2);
        // On a busy machine any call may be slow.
        say(&mut client, "CONFIG SET slowlog-log-slower-than -1");
        say(&mut client, "SLOWLOG RESET");
        let mut replies = vec![];
        for line in
            ["SLOWLOG LEN", "CONFIG SET slowlog-log-slower-than -2", "SLOWLOG GET -2", "SLOWLOG GET x"]
        {
            replies.push(say(&mut client, line));
        }
        for line in ["SLOWLOG GET 1 2", "SLOWLOG NOSUCH", "SLOWLOG HELP", "CONFIG GET slowlog*"] {
            replies.push(notation::unordered(&client.run(line)));
        }
        say(&mut client, "CLIENT SETNAME me");
        say(&mut client, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 5");
        let many: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        client.call(["DEL".to_owned()].iter().chain(&many));
        client.call(["SET", "k", &"x".repeat(200)]);
        say(&mut client, "EVAL 'return 1' 0");
        say(&mut client, "CONFIG SET slowlog-log-slower-than -1");
        say(&mut client, "GET k");
        replies.extend(slow(&mut client, "-1"));
        replies.extend(slow(&mut client, "2"));
        replies.push(say(&mut client, "SLOWLOG LEN"));
        replies.push(say(&mut client, "SLOWLOG RESET"));
        replies.push(say(&mut client, "SLOWLOG LEN"));
        logs.push(replies);
    }
    assert_eq!(logs[0], logs[1]);
}

/// Longer than a short command takes, however busy the machine is, in microseconds.
const LONG_US: i64 = 1_000_000;

/// Runs a script that takes longer and longer, until `is_noted` says that it took so long.
fn take_long(client: &mut Client, mut is_noted: impl FnMut(&mut Client) -> bool) {
    let mut turns = 40_000_000_u64;
    wait_until("it is noted", || {
        turns *= 2;
        let spin = "local n = 0 for i = 1, ARGV[1] do n = n + i end return n";
        client.eval(spin, &[], &[&turns.to_string()]);
        is_noted(client)
    });
}

fn scripts_that_take_long_are_noted(on: Topology) {
    let server = on.start(&["--slowlog-log-slower-than", &LONG_US.to_string()]);
    let mut client = server.client();
    say(&mut client, "SET k v");
    // That it waits does not count.
    say(&mut client, "BLPOP none 1.5");
    let noted = |client: &mut Client, name: &str| {
        slow(client, "-1").iter().any(|entry| entry.starts_with(&format!("[\"{name}\"")))
    };
    take_long(&mut client, |client| noted(client, "EVAL"));
    assert!(!noted(&mut client, "BLPOP"));
}

fn spikes_are_noted(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let threshold = LONG_US / 1000;
    // A script of some milliseconds: nothing is noted yet.
    take_long(&mut client, |_| true);
    assert_eq!(say(&mut client, "LATENCY LATEST"), "[]");
    say(&mut client, &format!("CONFIG SET latency-monitor-threshold {threshold}"));
    take_long(&mut client, |client| say(client, "LATENCY LATEST") != "[]");
    say(&mut client, "GET k");
    let Value::Array(latest) = client.run("LATENCY LATEST") else { panic!("no events") };
    let Value::Array(event) = &latest[0] else { panic!("no event") };
    assert_eq!((latest.len(), notation::reply(&event[0])), (1, "\"command\"".to_owned()));
    let is_long = |value: &Value| matches!(value, Value::Integer(took) if *took >= threshold);
    assert!(is_long(&event[2]) && is_long(&event[3]), "{event:?}");
    let Value::Array(history) = client.run("LATENCY HISTORY command") else { panic!("no history") };
    assert!(!history.is_empty());
    assert_eq!(say(&mut client, "LATENCY HISTORY fast-command"), "[]");
    assert_eq!(say(&mut client, "LATENCY RESET nothing"), "0");
    assert_eq!(say(&mut client, "LATENCY RESET"), "1");
    assert_eq!(say(&mut client, "LATENCY LATEST"), "[]");
}

over_nodes! {
    monitors_see_what_those_of_redis_see,
    a_monitor_is_seen_and_ends,
    the_slow_log_is_that_of_redis,
    scripts_that_take_long_are_noted,
    spikes_are_noted,
}
