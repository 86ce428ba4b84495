//! Client-side caching: who is told what, compared with Redis; then what comparisons cannot show.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tests::cluster::TestCluster;
use tests::{Client, Oracle, Protocol, SetOnDrop, TestServer, Value, notation, wait_until};

/// Who does what, step by step: `a` is the client that keeps copies, in RESP3; `b` another one; `r` one that `a` may let
/// hear instead of it, whose number is written `R`; `A` is the number of `a`.
const CASES: &[&str] = &[
    "a CLIENT TRACKING ON; a GET k; b SET k 1; b SET k 2; a GET k; a SET k 3; a SET k 4; a GET k; b DEL k; b DEL k",
    "a CLIENT TRACKING ON; a MGET k l m; b MSET k 1 m 2; a EXISTS k; b EXPIRE k 100; a TTL k; b PERSIST k; b PERSIST k",
    "a CLIENT TRACKING ON; b SET k v; a GET k; b RENAME k l; a GET l; b RENAME l m; a GET m; b COPY m n; a GET n; b MOVE n 3",
    "a CLIENT TRACKING ON; a LRANGE l 0 -1; b RPUSH l a b; a LLEN l; b LSET l 0 c; a LLEN l; b LPOP l; b LPOP l",
    "a CLIENT TRACKING ON; a GET k; b FLUSHALL; b FLUSHALL; a GET k; a FLUSHDB; a GET k; b SELECT 5; b SET k v; b SELECT 0",
    "a CLIENT TRACKING ON; b SET k v; a GET k; b SET k w KEEPTTL; a GETRANGE k 0 0; b APPEND k x; a PFCOUNT p; b PFADD p 1",
    "a CLIENT TRACKING ON; a TYPE k; b SADD k a; a SMEMBERS k; b SADD k a; b SREM k z; b SREM k a",
    "a CLIENT TRACKING ON; a CLIENT TRACKING OFF; a GET k; b SET k 1; a CLIENT TRACKING ON; a GET k; a RESET; b SET k 1",
    "a CLIENT TRACKING ON NOLOOP; a GET k; a SET k 1; b SET k 2; a GET k; b SET k 3; a GET k; a INCR k; b INCR k",
    "a CLIENT TRACKING ON NOLOOP; a GET k; a EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 k; a GET k; \
     b EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 k",
    "a CLIENT TRACKING ON NOLOOP; a GET k; a MULTI; a SET k 1; a GET k; a EXEC; b SET k 1",
    "a CLIENT TRACKING ON OPTIN; a GET k; b SET k 1; a CLIENT CACHING YES; a GET k; a GET l; b SET k 2; b SET l 2; \
     a CLIENT CACHING YES; a CLIENT ID; a GET k; b SET k 1; a CLIENT CACHING YES; a PING; a GET k; b SET k 1",
    "a CLIENT TRACKING ON OPTIN; a CLIENT CACHING YES; a MULTI; a GET k; a GET l; a EXEC; a GET m; b MSET k 1 l 2 m 3",
    "a CLIENT TRACKING ON OPTOUT; a CLIENT CACHING NO; a GET k; a GET l; b SET k 2; b SET l 2; a CLIENT CACHING YES; \
     a CLIENT CACHING MAYBE; a CLIENT TRACKINGINFO; a CLIENT CACHING NO; a CLIENT TRACKINGINFO",
    "a CLIENT TRACKING ON BCAST; b SET k 1; b MSET c 1 a 2 b 3; a SET own 1; b GET k; b DEL nothing; b FLUSHALL",
    "a CLIENT TRACKING ON BCAST PREFIX us PREFIX it; b MSET user 1 item 2 other 3 us 4 u 5; b SET other 2; \
     a CLIENT TRACKINGINFO; a CLIENT TRACKING ON BCAST PREFIX new; b MSET new 1 item 2; a CLIENT TRACKINGINFO",
    "a CLIENT TRACKING ON BCAST NOLOOP PREFIX k; a SET k 1; b SET k 1; a MSET k 1 l 2; b MULTI; b SET k1 1; b SET k2 2; \
     b SET k1 3; b EXEC; b EVAL \"redis.call('SET', 'k1', 1) redis.call('SET', 'k2', 1)\" 0",
    "a CLIENT TRACKING ON BCAST PREFIX ab PREFIX a; a CLIENT TRACKING ON BCAST PREFIX ab; a CLIENT TRACKING ON BCAST \
     PREFIX a; a CLIENT TRACKING ON; a CLIENT TRACKING ON BCAST OPTIN; a CLIENT TRACKING OFF; a CLIENT TRACKING ON \
     PREFIX a; a CLIENT TRACKING ON OPTIN OPTOUT; a CLIENT TRACKING ON OPTIN; a CLIENT TRACKING ON OPTOUT",
    "a CLIENT TRACKING; a CLIENT TRACKING maybe; a CLIENT TRACKING ON WHAT; a CLIENT TRACKING ON REDIRECT; \
     a CLIENT TRACKING ON REDIRECT 99999; a CLIENT TRACKING ON REDIRECT x; a CLIENT TRACKING ON PREFIX; \
     a CLIENT CACHING YES; a CLIENT GETREDIR; a CLIENT TRACKINGINFO; a CLIENT TRACKING ON REDIRECT A REDIRECT A; \
     a CLIENT TRACKING ON; a CLIENT CACHING YES; a CLIENT CACHING NO; a CLIENT GETREDIR; a CLIENT CACHING x",
    "a CLIENT TRACKING ON; a EVAL \"redis.call('GET', 'other')\" 1 k; b MSET k 1 other 2; \
     a EVAL \"redis.call('SET', KEYS[1], 1)\" 1 k; b SET k 2; a EVAL_RO \"redis.call('GET', KEYS[1])\" 1 k; b SET k 2; \
     a EVAL \"redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], 1)\" 1 k; b SET k 2; a EVAL \"return 1\" 1 k; b SET k 1",
    "a CLIENT TRACKING ON; a MULTI; a GET k; a SET k 1; a GET l; a EXEC; b MSET k 1 l 2; a MULTI; a GET k; a DISCARD; \
     b SET k 1",
    "a CLIENT TRACKING ON; a XREAD STREAMS s 0; b XADD s 1-1 a b; a XRANGE s - +; b XDEL s 1-1; a SORT l; b RPUSH l 1; \
     a SORT l BY nosort; b LPOP l; a OBJECT ENCODING o; b SET o 1; a WATCH w; b SET w 1",
    "a CLIENT TRACKING ON REDIRECT R; r SUBSCRIBE __redis__:invalidate; a GET k; b SET k 1; a GET k; a SET k 2; \
     a CLIENT GETREDIR; a GET k; b FLUSHALL; a CLIENT TRACKING OFF; b SET k 1",
    "r HELLO 3; a CLIENT TRACKING ON REDIRECT R BCAST; b SET k 1; a SET k 2; b FLUSHALL; r CLIENT TRACKINGINFO",
    "a CLIENT TRACKING ON REDIRECT R; a GET k; b SET k 1; r HELLO 3; a GET k; b SET k 1",
    "a HELLO 2; a CLIENT TRACKING ON; a GET k; b SET k 1; a HELLO 3; a GET k; b SET k 1",
];

/// What the two clients of a case that may hear something got, step by step.
fn transcript(address: SocketAddr, case: &str) -> Vec<String> {
    let mut clients = [Protocol::Resp3, Protocol::Resp2, Protocol::Resp2]
        .map(|protocol| Client::connect(address, protocol));
    let ids = [0, 2].map(|at: usize| notation::reply(&clients[at].run("CLIENT ID")));
    clients[1].run("FLUSHALL");
    let mut lines = Vec::new();
    for step in case.split("; ") {
        let (who, line) = step.split_at(2);
        let line = line
            .replace(" A", &format!(" {}", ids[0]))
            .replace("REDIRECT R", &format!("REDIRECT {}", ids[1]));
        let at = "abr".find(who.trim()).expect("a client");
        clients[at].send(notation::arguments(&line).expect("balanced quotes"));
        let reply = notation::reply(&clients[at].read());
        // These tell of the connection itself.
        let is_invalidated =
            ["HELLO", "CLIENT ID", "GETREDIR", "TRACKINGINFO"].iter().any(|word| step.contains(word));
        let hidden = ids.iter().fold(reply.clone(), |reply, id| reply.replace(id, "ID"));
        lines.push(format!("{step} -> {}", if is_invalidated { hidden } else { reply }));
        for at in [0, 2] {
            let before = lines.len();
            // What comes before the answer to this was told by now.
            clients[at].send(["CLIENT", "GETNAME"]);
            loop {
                let heard = clients[at].read();
                let is_invalidated = match &heard {
                    Value::Push(_) => true,
                    Value::Array(parts) => parts.first().and_then(Value::text) == Some(b"message"),
                    _ => false,
                };
                if !is_invalidated {
                    break;
                }
                lines.push(format!("    {} hears {}", ["a", "", "r"][at], notation::reply(&heard)));
            }
            // Keys of one command are told in the order of their shards.
            lines[before..].sort();
        }
    }
    lines
}

#[test]
fn copies_are_dropped_when_redis_says_so() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let mut wrong = Vec::new();
    for case in CASES {
        let (expected, got) = (transcript(oracle.address(), case), transcript(server.address(), case));
        if expected != got {
            let at = expected.iter().zip(&got).take_while(|(expected, got)| expected == got).count();
            wrong.push(format!(
                "{case}\n  expected {:#?}\n  got {:#?}",
                &expected[at.saturating_sub(1)..],
                &got[at.saturating_sub(1)..]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn hears(client: &mut Client, keys: &[&str]) {
    let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    assert_eq!(notation::reply(&client.read()), format!(">[\"invalidate\", [{}]]", keys.join(", ")));
}

/// A few long names take as much as many short ones.
#[test]
fn the_table_is_bounded_in_bytes() {
    let server = TestServer::start(&["--tracking-table-max-bytes", "1mb"]);
    let mut keeps = Client::connect(server.address(), Protocol::Resp3);
    keeps.run("CLIENT TRACKING ON");
    let key = |number: usize| format!("{number:02}{}", "k".repeat(99_998));
    (0..12).for_each(|number| keeps.send(["GET", &key(number)]));
    let heard: Vec<Value> = (0..14).map(|_| keeps.read()).collect();
    let dropped: Vec<&Value> = heard.iter().filter(|heard| matches!(heard, Value::Push(_))).collect();
    let reported = [key(0), key(1)].map(|key| format!(">[\"invalidate\", [\"{key}\"]]"));
    assert!(dropped.into_iter().map(notation::reply).eq(reported), "the first two are dropped");
    assert_eq!((server.info("tracking_total_keys"), server.info("tracking_total_items")), (10, 10));
    assert!((1_000_000..1 << 20).contains(&server.info("tracking_total_bytes")));
    // One that is larger than all is dropped at once, behind its reply.
    let huge = "h".repeat(2 << 20);
    keeps.send(["GET", &huge]);
    let heard: Vec<Value> = (0..12).map(|_| keeps.read()).collect();
    assert!(matches!(heard[0], Value::Null), "the reply comes first");
    assert!(heard[1..].iter().all(|heard| matches!(heard, Value::Push(_))));
    assert_eq!((server.info("tracking_total_keys"), server.info("tracking_total_bytes")), (0, 0));
}

#[test]
fn time_memory_and_the_table_drop_copies() {
    let server = TestServer::start(&["--tracking-table-max-keys", "2"]);
    let mut keeps = Client::connect(server.address(), Protocol::Resp3);
    let mut other = server.client();
    keeps.run("CLIENT TRACKING ON");
    let mut life_ms = 1000;
    loop {
        life_ms *= 2;
        other.run(&format!("SET short v PX {life_ms}"));
        // One that is not there is watched as well: the next try tells of it.
        let is_there = keeps.run("PTTL short") != Value::Integer(-2);
        if is_there {
            break hears(&mut keeps, &["short"]);
        }
        other.run("SET short again");
        hears(&mut keeps, &["short"]);
    }
    other.run("SET gone v");
    keeps.run("GET gone");
    other.run("CONFIG SET maxmemory-policy allkeys-random maxmemory 1");
    hears(&mut keeps, &["gone"]);
    other.run("CONFIG SET maxmemory 0");
    for key in ["a", "b", "c", "d"] {
        keeps.send(["GET", key]);
    }
    let replies: Vec<String> = (0..6).map(|_| notation::reply(&keeps.read())).collect();
    let reported: Vec<&str> = replies.iter().filter(|reply| *reply != "nil").map(String::as_str).collect();
    assert_eq!(reported, [">[\"invalidate\", [\"a\"]]", ">[\"invalidate\", [\"b\"]]"]);
    for (field, value) in [("clients", 1), ("total_keys", 2), ("total_items", 2), ("total_prefixes", 0)] {
        assert_eq!(server.info(&format!("tracking_{field}")), value, "{field}");
    }
    let line = notation::reply(&other.run("CLIENT LIST"));
    assert!(line.contains("flags=t ") && line.contains("redir=0"), "{line}");
    drop(keeps);
    wait_until("nobody keeps copies", || {
        server.info("tracking_clients") == 0 && server.info("tracking_total_keys") == 0
    });
}

#[test]
fn a_broken_redirection_is_told() {
    let server = TestServer::start(&[]);
    let mut keeps = Client::connect(server.address(), Protocol::Resp3);
    let (mut target, mut other) = (server.client(), server.client());
    let Value::Integer(id) = target.run("CLIENT ID") else { panic!("a number") };
    keeps.run(&format!("CLIENT TRACKING ON REDIRECT {id}"));
    drop(target);
    wait_until("it is gone", || !notation::reply(&other.run("CLIENT LIST")).contains(&format!("id={id} ")));
    keeps.run("GET k");
    other.run("SET k v");
    assert_eq!(notation::reply(&keeps.read()), format!(">[\"tracking-redir-broken\", {id}]"));
    assert!(notation::reply(&keeps.run("CLIENT TRACKINGINFO")).contains("broken_redirect"));
}

/// A client with its copies by key.
struct CachingClient {
    client: Client,
    copies: BTreeMap<String, String>,
}

impl CachingClient {
    fn new(address: SocketAddr) -> CachingClient {
        let mut client = Client::connect(address, Protocol::Resp3);
        client.run("CLIENT TRACKING ON");
        CachingClient { client, copies: BTreeMap::new() }
    }

    /// The next reply, or nothing if it was told something instead.
    fn hear(&mut self) -> Option<Value> {
        let heard = self.client.read();
        let Value::Push(parts) = &heard else { return Some(heard) };
        match &parts[1] {
            Value::Array(keys) => keys.iter().for_each(|key| drop(self.copies.remove(&notation::reply(key)))),
            _ => self.copies.clear(),
        }
        None
    }

    /// Reads some keys, one behind the other, and keeps what it gets.
    fn read(&mut self, keys: &[String]) {
        keys.iter().for_each(|key| self.client.send(["GET", key]));
        for key in keys {
            let reply = loop {
                if let Some(reply) = self.hear() {
                    break reply;
                }
            };
            self.copies.insert(format!("\"{key}\""), notation::reply(&reply));
        }
    }
}

/// A client keeps copies while others change everything: in the end those that it has are true. `marks` are keys of all
/// places from where it is told of changes.
fn copies_stay_true(address: impl Fn(usize) -> SocketAddr, marks: &[String], rounds: usize) {
    const KEYS: usize = 8;
    let key = |at: usize| format!("k{}", at % KEYS);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (address, stop) = (address(writer), &stop);
                scope.spawn(move || {
                    let mut client = Client::connect(address, Protocol::Resp2);
                    let mut count = writer;
                    while !stop.load(Ordering::Relaxed) {
                        count += 1;
                        let (one, other, text) = (key(count), key(count * 7), count.to_string());
                        match count % 4 {
                            0 => client.call(["MSET", &one, &text, &other, &text]),
                            1 => client.eval(
                                "redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', KEYS[2])",
                                &[&one, &other],
                                &[&text],
                            ),
                            _ => client.call(["SET", &one, &text]),
                        };
                    }
                })
            })
            .collect();
        let ends = SetOnDrop(&stop);
        let mut caching_client = CachingClient::new(address(0));
        (0..rounds).for_each(|round| caching_client.read(&[key(round), key(round * 5), key(round + 3)]));
        drop(ends);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        // What is told of these is told behind all that was changed before.
        caching_client.read(marks);
        let mut other = Client::connect(address(0), Protocol::Resp2);
        marks.iter().for_each(|mark| drop(other.call(["SET", mark, "x"])));
        while marks.iter().any(|mark| caching_client.copies.contains_key(&format!("\"{mark}\""))) {
            assert_eq!(caching_client.hear(), None);
        }
        for at in 0..KEYS {
            if let Some(copy) = caching_client.copies.get(&format!("\"{}\"", key(at))) {
                assert_eq!(notation::reply(&other.call(["GET", &key(at)])), *copy, "{}", key(at));
            }
        }
    });
}

#[test]
fn copies_of_one_process_stay_true() {
    let server = TestServer::start(&[]);
    copies_stay_true(|_| server.address(), &["mark".to_owned()], 1500);
}

#[test]
fn copies_of_what_is_on_nodes_stay_true() {
    let cluster = TestCluster::start(3, 2, None);
    let marks: Vec<String> = (0..3).map(|node| cluster.key(node, "mark")).collect();
    copies_stay_true(|gateway| cluster.gateways[gateway].address(), &marks, 300);
}

#[test]
fn gateways_hear_of_what_happens_on_nodes() {
    let mut cluster = TestCluster::start(2, 2, None);
    let (mut keeps, mut other) =
        (Client::connect(cluster.gateways[0].address(), Protocol::Resp3), cluster.client(1));
    let keys: Vec<String> = (0..2).map(|node| cluster.key(node, "key")).collect();
    keeps.run("CLIENT TRACKING ON NOLOOP");
    for key in &keys {
        for change in [
            format!("SET {key} 1"),
            format!("EVAL \"redis.call('SET', KEYS[1], 1)\" 1 {key}"),
            format!("MSET {} 1 {} 2", keys[0], keys[1]),
            format!("EXPIRE {key} 100"),
        ] {
            keeps.run(&format!("GET {key}"));
            other.run(&change);
            hears(&mut keeps, &[key]);
        }
        // What it does itself it knows.
        keeps.run(&format!("GET {key}"));
        keeps.run(&format!("SET {key} 2"));
        keeps.run(&format!("GET {key}"));
        keeps.run(&format!("EVAL \"redis.call('SET', KEYS[1], 1)\" 1 {key}"));
        keeps.run(&format!("GET {key}"));
        other.run(&format!("DEL {key}"));
        hears(&mut keeps, &[key]);
    }
    let mut caching_client = CachingClient { client: keeps, copies: BTreeMap::new() };
    for change in ["FLUSHALL", "a node is lost"] {
        caching_client.read(&keys);
        match change {
            "FLUSHALL" => drop(other.run(change)),
            _ => cluster.stores[1].kill(),
        }
        while !caching_client.copies.is_empty() {
            assert_eq!(caching_client.hear(), None, "{change}");
        }
    }
}
