//! Commands and options of Redis after 7.0 and of Valkey, on one process and over store nodes.

use tests::temp_dir::TempDir;
use tests::{Client, TestServer, Topology, notation, over_nodes, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        assert_eq!(say(client, line), *wanted, "{line}");
    }
}

fn strings_change_on_conditions(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("MSETEX 3 a 1 b 2 c 123 EX 100 NX", "1"),
            ("MSETEX 2 c 4 d 5 NX", "0"),
            ("MSETEX 2 c 4 d 5 XX", "0"),
            ("MSETEX 2 a x b y XX KEEPTTL", "1"),
            ("MGET a b c d", r#"["x", "y", "123", nil]"#),
            ("TTL b", "100"),
            ("SET a z IFEQ 1", "nil"),
            ("SET a z IFEQ x GET", r#""x""#),
            ("DIGEST c", r#""404a763b3f4c8c9a""#),
            ("SET c 123 IFDNE 404a763b3f4c8c9a", "nil"),
            ("DELEX b IFDEQ 0000000000000000", "0"),
            ("DELEX b IFEQ y", "1"),
            ("DELIFEQ a z", "1"),
            ("EXISTS a b c", "1"),
            ("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs"),
        ],
    );
}

fn readers_and_entries(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("ZADD z 1 a 2 b", "2"),
            ("ZREVRANK z a WITHSCORE", r#"[1, "1"]"#),
            ("HSET h f v", "1"),
            ("HSCAN h 0 NOVALUES", r#"["0", ["f"]]"#),
            ("XADD s 1-0 a 1", r#""1-0""#),
            ("XADD s 2-0 a 2", r#""2-0""#),
            ("XREAD BLOCK 0 STREAMS s +", r#"[["s", [["2-0", ["a", "2"]]]]]"#),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XREADGROUP GROUP g c STREAMS s >", r#"[["s", [["1-0", ["a", "1"]], ["2-0", ["a", "2"]]]]]"#),
            ("XDELEX s ACKED IDS 1 1-0", "[2]"),
            ("XACKDEL s g DELREF IDS 2 1-0 9-0", "[1, -1]"),
            ("XTRIM s MAXLEN 0 ACKED", "0"),
            ("XTRIM s MAXLEN 0 DELREF", "1"),
            ("XPENDING s g", "[0, nil, nil, nil[]]"),
        ],
    );
    client.send(["XREAD", "BLOCK", "0", "STREAMS", "s", "+"]);
    wait_until("it waits", || say(&mut other, "INFO clients").contains("blocked_clients:1"));
    other.run("XADD s 3-0 a 3");
    assert_eq!(notation::reply(&client.read()), r#"[["s", [["3-0", ["a", "3"]]]]]"#);
}

fn keys_of_slots_are_counted(on: Topology) {
    let server = on.start(&["--cluster-enabled", "yes"]);
    let mut client = server.client();
    for key in ["{a}1", "{a}2", "{b}1"] {
        client.call(["SET", key, "v"]);
    }
    // Slots 15495 and 3300.
    check(
        &mut client,
        &[
            (
                "CLUSTER SLOT-STATS SLOTSRANGE 3299 3300",
                r#"[[3299, ["key-count", 0]], [3300, ["key-count", 1]]]"#,
            ),
            (
                "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2",
                r#"[[15495, ["key-count", 2]], [3300, ["key-count", 1]]]"#,
            ),
            ("READONLY", "+OK"),
        ],
    );
}

fn scripts_call_the_server_by_both_names(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let eval = |client: &mut Client, text: &str| notation::reply(&client.eval(text, &["k"], &[]));
    let text = "server.call('SET', KEYS[1], server.sha1hex('')) return {server == redis, redis.call('GET', KEYS[1])}";
    assert_eq!(eval(&mut client, text), r#"[1, "da39a3ee5e6b4b0d3255bfef95601890afd80709"]"#);
    assert!(eval(&mut client, "server.x = 1").contains("Attempt to modify a readonly table"));
    let library =
        "#!lua name=l\nserver.register_function('f', function(keys) return server.call('GET', keys[1]) end)";
    client.call(["FUNCTION", "LOAD", library]);
    assert_eq!(say(&mut client, "FCALL f 1 k"), r#""da39a3ee5e6b4b0d3255bfef95601890afd80709""#);
}

fn a_client_may_leave_no_trace_of_its_reads(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let idle = |client: &mut Client| say(client, "OBJECT IDLETIME k").parse::<u64>().expect("seconds");
    client.run("SET k v");
    check(&mut client, &[("CLIENT NO-TOUCH maybe", "-ERR syntax error"), ("CLIENT NO-TOUCH on", "+OK")]);
    assert!(say(&mut client, "CLIENT INFO").contains(" flags=T "));
    wait_until("it is idle for two seconds", || idle(&mut other) >= 2);
    client.run("GET k");
    client.run("APPEND k w");
    // Over store nodes, what a script or transaction fetches counts as used.
    if let Topology::Local = on {
        for line in ["MULTI", "STRLEN k", "EXEC"] {
            client.run(line);
        }
        client.eval("redis.call('APPEND', KEYS[1], 'x') return redis.call('GET', KEYS[1])", &["k"], &[]);
    }
    client.eval("--!df flags=disable-atomicity\nreturn redis.call('GET', KEYS[1])", &["k"], &[]);
    assert!(idle(&mut other) >= 2);
    client.run("TOUCH k");
    assert!(idle(&mut other) < 2);
    wait_until("it is idle again", || idle(&mut other) >= 2);
    client.run("CLIENT NO-TOUCH off");
    client.run("GET k");
    assert!(idle(&mut other) < 2);
}

fn counters_have_bounds(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("INCREX k EX 100 ENX", "[1, 1]"),
            ("INCREX k BYINT 9 UBOUND 5 SATURATE EX 500 ENX", "[5, 4]"),
            ("INCREX k UBOUND 5", "[5, 0]"),
            ("TTL k", "100"),
            ("INCREX k BYFLOAT 0.5 PERSIST", r#"["5.5", "0.5"]"#),
            ("TTL k", "-1"),
            ("INCREX k", "-ERR value is not an integer or out of range"),
            ("INCREX k BYFLOAT 1 EXAT 1", r#"["6.5", "1"]"#),
            ("EXISTS k", "0"),
        ],
    );
}

/// Also by those who wait: what others have read can be claimed after a time without a call.
fn entries_are_claimed_when_they_are_read(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("XADD s 1-0 a 1", r#""1-0""#),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XGROUP CREATE t g 0 MKSTREAM", "+OK"),
            ("XREADGROUP GROUP g c CLAIM 100 STREAMS s >", r#"[["s", [["1-0", ["a", "1"], 0, 0]]]]"#),
            ("XREADGROUP GROUP g d BLOCK 10 CLAIM 100000 STREAMS s >", "nil[]"),
        ],
    );
    for streams in [&["s", ">"][..], &["t", "s", ">", ">"]] {
        other.send(
            [&["XREADGROUP", "GROUP", "g", "d", "BLOCK", "0", "CLAIM", "100", "STREAMS"], streams].concat(),
        );
        let heard = notation::reply(&other.read());
        assert!(heard.starts_with(r#"[["s", [["1-0", ["a", "1"], 1"#), "{heard}");
    }
    check(&mut client, &[("XADD s 2-0 a 2", r#""2-0""#)]);
    let reply = say(&mut client, "XREADGROUP GROUP g e COUNT 1 CLAIM 0 STREAMS s >");
    assert!(reply.ends_with(", 3]]]]"), "{reply}");
}

over_nodes! {
    counters_have_bounds,
    entries_are_claimed_when_they_are_read,
    strings_change_on_conditions,
    readers_and_entries,
    keys_of_slots_are_counted,
    scripts_call_the_server_by_both_names,
    a_client_may_leave_no_trace_of_its_reads,
}

#[test]
fn the_disk_is_waited_for() {
    let dir = TempDir::new("waitaof");
    let server = TestServer::start(&["--data-dir", dir.text()]);
    let (mut client, mut other) = (server.client(), server.client());
    client.run("SET k v");
    check(
        &mut client,
        &[
            ("WAITAOF 1 0 0", "[1, 0]"),
            ("WAITAOF 1 1 20", "[1, 0]"),
            ("WAITAOF 0 0 0", "[1, 0]"),
            ("WAITAOF 2 0 0", "-ERR value is out of range, must be between 0 and 1"),
            ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
            ("WAITAOF 1 -1 0", "-ERR value is out of range, must be positive"),
            ("WAITAOF 1 0 -1", "-ERR timeout is negative"),
        ],
    );
    let id = say(&mut client, "CLIENT ID");
    client.send(["WAITAOF", "1", "1", "0"]);
    wait_until("it waits", || say(&mut other, &format!("CLIENT UNBLOCK {id}")) == "1");
    assert_eq!(notation::reply(&client.read()), "[1, 0]");

    let server = TestServer::start(&[]);
    check(
        &mut server.client(),
        &[
            ("WAITAOF 0 0 0", "[0, 0]"),
            ("WAITAOF 1 0 0", "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."),
            ("SAVE", "+OK"),
        ],
    );
}

#[test]
fn disks_of_all_nodes_are_waited_for() {
    let dirs = [TempDir::new("waitaof-1"), TempDir::new("waitaof-2")];
    let stores: Vec<_> = dirs.iter().map(|dir| TestServer::store(&["--data-dir", dir.text()])).collect();
    let server = TestServer::start_over(stores, &[]);
    let mut client = server.client();
    check(&mut client, &[("MSET a 1 b 2 c 3", "+OK"), ("WAITAOF 1 0 0", "[1, 0]")]);
    let server = TestServer::start_over(vec![TestServer::store(&[])], &[]);
    let refused = "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    check(&mut server.client(), &[("WAITAOF 1 0 0", refused)]);
}

#[test]
fn old_connections_are_ended() {
    let server = TestServer::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("CLIENT KILL SKIPME yes MAXAGE 0", "-ERR maxage should be greater than 0"),
            ("CLIENT KILL SKIPME yes MAXAGE x", "-ERR maxage is not an integer or out of range"),
            ("CLIENT KILL SKIPME yes MAXAGE 1000", "0"),
        ],
    );
    other.run("PING");
    wait_until("the other is a second old", || say(&mut client, "CLIENT KILL TYPE normal MAXAGE 1") == "1");
    assert!(other.is_closed());
}

#[test]
fn what_is_pushed_comes_though_replies_are_off() {
    let server = TestServer::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.run("HELLO 3");
    client.run("CLIENT TRACKING ON");
    client.run("GET k");
    client.send(["CLIENT", "REPLY", "OFF"]);
    client.send(["PING"]);
    client.send(["SUBSCRIBE", "a", "b"]);
    assert_eq!(notation::reply(&client.read()), r#">["subscribe", "a", 1]"#);
    assert_eq!(notation::reply(&client.read()), r#">["subscribe", "b", 2]"#);
    client.send(["SUBSCRIBE"]);
    assert_eq!(say(&mut other, "PUBLISH a text"), "1");
    assert_eq!(notation::reply(&client.read()), r#">["message", "a", "text"]"#);
    client.send(["PUBLISH", "b", "own"]);
    assert_eq!(notation::reply(&client.read()), r#">["message", "b", "own"]"#);
    other.run("SET k v");
    assert_eq!(notation::reply(&client.read()), r#">["invalidate", ["k"]]"#);
    client.send(["UNSUBSCRIBE"]);
    assert_eq!(notation::reply(&client.read()), r#">["unsubscribe", "a", 1]"#);
    assert_eq!(notation::reply(&client.read()), r#">["unsubscribe", "b", 0]"#);
    client.send(["CLIENT", "REPLY", "ON"]);
    assert_eq!(notation::reply(&client.read()), "+OK");
}

#[test]
fn what_cannot_write_is_not_paused_with_writes() {
    const READS: &str = "#!lua flags=no-writes\nreturn 3";
    let server = TestServer::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let sha = notation::reply(&client.call(["SCRIPT", "LOAD", READS])).replace('"', "");
    let library = "#!lua name=l\nredis.register_function{function_name='reads', callback=function() return 3 end, \
                   flags={'no-writes'}}";
    client.call(["FUNCTION", "LOAD", library]);
    let evalsha = ["EVALSHA", &sha, "0"];
    let calls: [&[&str]; 4] =
        [&["EVAL", READS, "0"], &evalsha, &["FCALL", "reads", "0"], &["EVAL_RO", "return 3", "0"]];
    client.run("CLIENT PAUSE 600000 WRITE");
    for call in calls {
        assert_eq!(notation::reply(&client.call(call)), "3", "{call:?}");
    }
    client.run("MULTI");
    calls.iter().for_each(|call| drop(client.call(*call)));
    assert_eq!(say(&mut client, "EXEC"), "[3, 3, 3, 3]");
    for call in [&["EVAL", "return 3", "0"][..], &["EVAL", "#!lua\nreturn 3", "0"]] {
        client.send(call);
        wait_until("it waits", || say(&mut other, "INFO clients").contains("blocked_clients:1"));
        other.run("CLIENT UNPAUSE");
        assert_eq!(notation::reply(&client.read()), "3", "{call:?}");
        other.run("CLIENT PAUSE 600000 WRITE");
    }
}

#[test]
fn odd_arguments_as_in_redis() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    for line in ["LOLWUT a b c", "LOLWUT VERSION", "LOLWUT 3 x", "LOLWUT VERSION 7 x"] {
        assert!(say(&mut client, line).contains("Redis ver. 7.0.15"), "{line}");
    }
    const DISABLED: &str = "-ERR This instance has cluster support disabled";
    let name = "latency-tracking-info-percentiles";
    let evaluated = notation::reply(&client.call(["EVAL", "return 42", "notanumber"]));
    assert_eq!(evaluated, "-ERR value is not an integer or out of range");
    assert_eq!(notation::reply(&client.call(["CONFIG", "SET", name, "50.000 33.33333333 99.90"])), "+OK");
    check(
        &mut client,
        &[
            ("LOLWUT VERSION x", "-ERR value is not an integer or out of range"),
            ("READONLY", DISABLED),
            ("READWRITE", DISABLED),
            ("ASKING", DISABLED),
            ("CLUSTER SLOT-STATS SLOTSRANGE 0 1", DISABLED),
            ("SCRIPT EXISTS 1fa00e76656cc152ad327c13fe365858fd7be306", "[0]"),
            ("CONFIG GET latency-tracking-info-percentiles", &format!(r#"["{name}", "50 33.333333 99.9"]"#)),
        ],
    );
}

#[test]
fn a_gateway_keeps_its_parameters_if_a_node_cannot_be_changed() {
    let store = TestServer::store(&[]);
    let server = TestServer::gateway(&[store.address()], &[]);
    let mut client = server.client();
    let set = "CONFIG SET slowlog-max-len 7 maxmemory-policy allkeys-lfu";
    drop(store);
    assert!(say(&mut client, set).starts_with("-CLUSTERDOWN "));
    check(
        &mut client,
        &[
            ("CONFIG GET slowlog-max-len", r#"["slowlog-max-len", "128"]"#),
            ("CONFIG GET maxmemory-policy", r#"["maxmemory-policy", "noeviction"]"#),
        ],
    );
}
