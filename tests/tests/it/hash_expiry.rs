//! Fields of hashes that expire, on one process and over store nodes.

use std::thread::sleep;
use std::time::Duration;

use store_engine::Protocol;
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

fn fields_expire_and_their_key_with_the_last(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET k a 1 b 2 c 3", "3"),
            ("HEXPIRE k 100 FIELDS 3 a b x", "[1, 1, -2]"),
            ("HTTL k FIELDS 3 a c x", "[100, -1, -2]"),
            ("HPERSIST k FIELDS 1 b", "[1]"),
            ("HPEXPIREAT k 4102444800000 GT FIELDS 2 a b", "[1, 0]"),
            ("HEXPIRETIME k FIELDS 2 a b", "[4102444800, -1]"),
            ("HGETEX k PERSIST FIELDS 2 a x", r#"["1", nil]"#),
            ("HGETDEL k FIELDS 1 b", r#"["2"]"#),
            ("HSETEX k FNX PX 20 FIELDS 1 b 4", "1"),
            ("HPEXPIRE k 20 FIELDS 2 a c", "[1, 1]"),
        ],
    );
    sleep(Duration::from_millis(25));
    check(
        &mut client,
        &[("HGETALL k", "[]"), ("HGET k a", "nil"), ("HSETNX k a 5", "1"), ("HINCRBY k b 1", "1")],
    );
    check(&mut client, &[("HTTL k FIELDS 2 a b", "[-1, -1]"), ("HPEXPIRE k 20 FIELDS 2 a b", "[1, 1]")]);
    wait_until("nobody has to look for it", || say(&mut client, "EXISTS k") == "0");
}

/// The time of a script stands still, and what it has done can be taken back.
fn scripts_and_transactions(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let text = "redis.call('HSETEX', KEYS[1], 'PX', 5, 'FIELDS', 1, 'f', 'v')
        local began = redis.call('TIME')
        for i = 1, 300000 do local x = {i} end
        return {redis.call('HGET', KEYS[1], 'f'), redis.call('HPTTL', KEYS[1], 'FIELDS', 1, 'f')}";
    assert_eq!(notation::reply(&client.eval(text, &["still"], &[])), r#"["v", [5]]"#);
    check(&mut client, &[("HSETEX k EX 100 FIELDS 2 a 1 b 2", "1"), ("HSET k c 3", "1")]);
    let before = say(&mut client, "HPEXPIRETIME k FIELDS 3 a b c");
    for end in ["error('oops')", "while true do end"] {
        let text = format!(
            "#!lua on-error=rollback timeout=300\nredis.call('HPERSIST', KEYS[1], 'FIELDS', 1, 'a') \
             redis.call('HSET', KEYS[1], 'b', 'x') redis.call('HEXPIRE', KEYS[1], 0, 'FIELDS', 1, 'c') \
             redis.call('HEXPIRE', KEYS[1], 5, 'FIELDS', 1, 'b') {end}"
        );
        client.eval(&text, &["k"], &[]);
        assert_eq!(say(&mut client, "HPEXPIRETIME k FIELDS 3 a b c"), before, "{end}");
    }
    let dry = "#!lua flags=dry-run\nreturn redis.call('HGETDEL', 'k', 'FIELDS', 2, 'a', 'c')";
    client.eval(dry, &["k"], &[]);
    check(
        &mut client,
        &[("HMGET k a b c", r#"["1", "2", "3"]"#), ("HPEXPIRETIME k FIELDS 3 a b c", &before)],
    );
    for line in ["MULTI", "HPERSIST k FIELDS 1 a", "HGETEX k EX 200 FIELDS 1 c"] {
        client.run(line);
    }
    assert_eq!(say(&mut client, "EXEC"), r#"[[1], ["3"]]"#);
    let unchanged = before.split(", ").nth(1).expect("that of b");
    assert_eq!(say(&mut client, "HPEXPIRETIME k FIELDS 2 a b"), format!("[-1, {unchanged}]"));
    let left = say(&mut client, "HTTL k FIELDS 1 c");
    let seconds: u64 = left.trim_matches(['[', ']']).parse().expect("a number");
    assert!((101..=200).contains(&seconds), "{left}");
}

fn who_keeps_or_watches_a_hash_hears_of_it(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let mut keeps = Client::connect(server.address(), Protocol::Resp3);
    keeps.run("CLIENT TRACKING ON");
    client.run("HSET k a 1 b 2");
    for line in ["HPEXPIRE k 50 FIELDS 1 a", "HPERSIST k FIELDS 1 a", "HSETEX k KEEPTTL FIELDS 1 a 1"] {
        keeps.run("HGETALL k");
        for watch in ["WATCH k", "MULTI", "PING"] {
            other.run(watch);
        }
        client.run(line);
        assert_eq!(notation::reply(&keeps.read()), r#">["invalidate", ["k"]]"#, "{line}");
        assert_eq!(say(&mut other, "EXEC"), "nil[]", "{line}");
    }
    client.run("HPEXPIRE k 50 FIELDS 1 a");
    keeps.run("HGETALL k");
    other.run("WATCH k");
    // The field goes by itself.
    assert_eq!(notation::reply(&keeps.read()), r#">["invalidate", ["k"]]"#);
    other.run("MULTI");
    assert_eq!(say(&mut other, "EXEC"), "nil[]");
    check(&mut other, &[("WATCH k", "+OK"), ("MULTI", "+OK"), ("HGETALL k", "+QUEUED")]);
    assert_eq!(say(&mut other, "EXEC"), r#"[["b", "2"]]"#);
}

over_nodes! {
    fields_expire_and_their_key_with_the_last,
    scripts_and_transactions,
    who_keeps_or_watches_a_hash_hears_of_it,
}

/// Calls and the events that they lead to, from Valkey's `tests/unit/hashexpire.tcl` and `src/t_hash.c`.
const EVENTS: &[(&str, &[&str])] = &[
    ("HSET k a 1 b 2 c 3", &["hset"]),
    ("HEXPIRE k 100 FIELDS 3 a b x", &["hexpire"]),
    ("HEXPIRE k 100 NX FIELDS 1 a", &[]),
    ("HPERSIST k FIELDS 2 a b", &["hpersist"]),
    ("HPERSIST k FIELDS 2 a b", &[]),
    ("HGETEX k FIELDS 1 a", &[]),
    ("HGETEX k EX 100 FIELDS 2 a b", &["hexpire"]),
    ("HGETEX k PERSIST FIELDS 2 a b", &["hpersist"]),
    ("HSETEX k EX 100 FIELDS 2 a 1 d 4", &["hset", "hexpire"]),
    ("HSETEX k KEEPTTL FIELDS 2 a 1 d 4", &["hset"]),
    ("HSETEX k FNX FIELDS 1 a 1", &[]),
    ("HINCRBY k a 1", &["hincrby"]),
    ("HSET k d 1", &["hset"]),
    ("HPEXPIRE k 0 FIELDS 2 d x", &["hexpired"]),
    ("HSETEX k PXAT 1 FIELDS 1 c 1", &["hset", "hexpire", "hexpired"]),
    ("HGETEX k PXAT 1 FIELDS 1 a", &["hexpired"]),
    ("HGETDEL k FIELDS 2 b x", &["hdel", "del"]),
    ("HSETEX k EX 100 FIELDS 1 a 1", &["hset", "hexpire"]),
    ("HEXPIREAT k 1 FIELDS 1 a", &["hexpired", "del"]),
    ("HSETEX k PX 1 FIELDS 2 a 1 b 2", &["hset", "hexpire", "hexpired", "del"]),
];

#[test]
fn events_are_those_of_valkey() {
    let server = TestServer::start(&["--notify-keyspace-events", "Ehg"]);
    let (mut client, mut hears) = (server.client(), server.client());
    hears.run("PSUBSCRIBE __key*");
    for (line, wanted) in EVENTS {
        client.run(line);
        for name in *wanted {
            let heard = notation::reply(&hears.read());
            assert!(heard.ends_with(&format!("\"__keyevent@0__:{name}\", \"k\"]")), "{line}: {heard}");
        }
    }
    // As Valkey: one by one what was set to a time that was over, and what has expired by itself.
    wait_until("all are counted", || server.info("expired_fields") == 6);
    // What is found by those who set it again.
    for (line, wanted) in [("HSET k a 1", "hset"), ("HINCRBY k a 1", "hincrby")] {
        client.run("HSETEX k PX 1 FIELDS 1 a 1");
        sleep(Duration::from_millis(2));
        client.run(line);
        let mut heard = String::new();
        while !heard.contains(&format!(":{wanted}\"")) || !heard.contains("hexpired") {
            heard.push_str(&notation::reply(&hears.read()));
        }
        client.run("DEL k");
        while !heard.ends_with(":del\", \"k\"]") {
            heard = notation::reply(&hears.read());
        }
    }
}

#[test]
fn times_outlive_the_process() {
    let dir = TempDir::new("hash-expiry");
    let flags = ["--data-dir", dir.text()];
    let mut server = TestServer::start(&flags);
    let mut client = server.client();
    client.run("HSETEX small PXAT 4102444800000 FIELDS 2 a 1 b 2");
    client.run("HPERSIST small FIELDS 1 b");
    client.eval(
        "for i = 1, 3000 do redis.call('HSET', KEYS[1], 'field' .. i, 'value ' .. i) end",
        &["big"],
        &[],
    );
    client.run("HPEXPIREAT big 4102444800001 FIELDS 3 field1 field2 field3");
    assert_eq!(say(&mut client, "SAVE"), "+OK");
    // Parts on disk change one by one.
    client.run("HPEXPIREAT big 4102444800002 FIELDS 1 field4");
    client.run("HSET big field1 again");
    client.run("HDEL big field2");
    client.run("HPEXPIRE big 1 FIELDS 1 field5");
    wait_until("it expires", || say(&mut client, "HLEN big") == "2998");
    for saved in [false, true, false] {
        if saved {
            assert_eq!(say(&mut client, "SAVE"), "+OK");
        }
        server.signal(libc::SIGTERM);
        assert!(server.wait().success());
        server = TestServer::start(&flags);
        client = server.client();
        check(
            &mut client,
            &[
                ("HPEXPIRETIME small FIELDS 3 a b c", "[4102444800000, -1, -2]"),
                (
                    "HPEXPIRETIME big FIELDS 6 field1 field2 field3 field4 field5 field6",
                    "[-1, -2, 4102444800001, 4102444800002, -2, -1]",
                ),
                ("HMGET big field1 field3", r#"["again", "value 3"]"#),
                ("HLEN big", "2998"),
            ],
        );
    }
}
