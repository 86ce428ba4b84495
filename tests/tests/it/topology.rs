//! Slots that move between store nodes while clients use what is in them.

use std::net::SocketAddr;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value as Json;
use tests::cluster::Member;
use tests::process::command;
use tests::{Client, SetOnDrop, TestServer, Value, notation, wait_until};

/// So that a move takes several batches, whatever the machine is.
const FLAGS: &[&str] = &["--shards", "8", "--threads", "2"];

/// How many slots there are.
const SLOTS: u64 = 16_384;

fn topology(stores: &[SocketAddr], task: &[&str]) -> std::process::Command {
    let stores: Vec<String> = stores.iter().map(SocketAddr::to_string).collect();
    let stores = stores.join(",");
    command(&[&["topology", "--stores", &stores], task].concat())
}

fn ran(stores: &[SocketAddr], task: &[&str]) -> Output {
    topology(stores, task).output().expect("it starts")
}

/// Does it; what it told.
fn done(stores: &[SocketAddr], task: &[&str]) -> String {
    let output = ran(stores, task);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{task:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// How many slots each node says it has.
fn counts(stores: &[SocketAddr]) -> Vec<u64> {
    let shown: Json = serde_json::from_str(&done(stores, &["show", "--json"])).expect("JSON");
    let nodes = shown["nodes"].as_array().expect("nodes");
    nodes.iter().map(|node| node["slots"].as_u64().expect("a number")).collect()
}

fn addresses(stores: &[TestServer]) -> Vec<SocketAddr> {
    stores.iter().map(TestServer::address).collect()
}

/// A client that goes on until it is told to stop.
struct Busy {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<u64>,
}

/// What each does: round after round, which it numbers.
fn busy(server: &TestServer, mut round: impl FnMut(&mut Client, u64) + Send + 'static) -> Busy {
    let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (stopped, counted) = (stop.clone(), rounds.clone());
    let mut client = server.client();
    let thread = std::thread::spawn(move || {
        let mut number = 0;
        while !stopped.load(Ordering::Relaxed) {
            round(&mut client, number);
            number += 1;
            counted.store(number, Ordering::Relaxed);
            // Other tests need the processors, too.
            std::thread::sleep(Duration::from_millis(3));
        }
        number
    });
    Busy { stop, rounds, thread }
}

impl Busy {
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no request has failed")
    }
}

fn said(client: &mut Client, line: &str) -> String {
    let reply = client.run(line);
    assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
    notation::reply(&reply)
}

fn number(client: &mut Client, line: &str) -> i64 {
    let text = said(client, line);
    text.trim_matches('"').parse().unwrap_or_else(|_| panic!("{line}: {text} is no number"))
}

const KEYS: u64 = 400;
const ACCOUNTS: u64 = 60;

const TRANSFER: &str = "
    redis.call('DECRBY', KEYS[1], ARGV[1])
    redis.call('INCRBY', KEYS[2], ARGV[1])
    return redis.call('GET', KEYS[1])";

/// All that clients do meanwhile, each with what has to hold at the end.
fn crowd(server: &TestServer, values: &Arc<AtomicU64>) -> Vec<Busy> {
    let mut all = Vec::new();
    all.push(busy(server, |client, round| {
        said(client, &format!("INCR counter:{}", round % KEYS));
    }));
    all.push(busy(server, |client, round| {
        let requests: Vec<Vec<Vec<u8>>> = (0..20)
            .map(|at| {
                let line = format!("RPUSH list:{} {}", round % 7, round * 20 + at);
                notation::arguments(&line).expect("balanced quotes")
            })
            .collect();
        let replies = client.pipeline(&requests);
        assert!(replies.iter().all(|reply| matches!(reply, Value::Integer(_))), "{replies:?}");
    }));
    all.push(busy(server, |client, round| {
        let accounts = [round % ACCOUNTS, (round * 7 + 1) % ACCOUNTS].map(|at| format!("account:{at}"));
        let reply = client.eval(TRANSFER, &[&accounts[0], &accounts[1]], &["3"]);
        assert!(!matches!(reply, Value::Error(_)), "{}", notation::reply(&reply));
    }));
    all.push(busy(server, |client, round| {
        said(client, "MULTI");
        said(client, &format!("INCR one:{}", round % 50));
        said(client, &format!("INCR other:{}", round % 50));
        let reply = said(client, "EXEC");
        assert!(reply.starts_with('['), "{reply}");
    }));
    all.push(busy(server, |client, round| {
        let key = format!("watched:{}", round % 50);
        loop {
            said(client, &format!("WATCH {key}"));
            let value = client.run(&format!("GET {key}"));
            let value: u64 =
                value.text().map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"));
            said(client, "MULTI");
            said(client, &format!("SET {key} {}", value + 1));
            if said(client, "EXEC") != "nil[]" {
                return;
            }
        }
    }));
    all.push(busy(server, |client, round| {
        said(client, &format!("RPUSH queue:{} {round}", round % 20));
    }));
    let taken = values.clone();
    all.push(busy(server, move |client, round| {
        // The first is mostly empty and the second on another node: both ways to wait.
        let reply = said(client, &format!("BLPOP queue:{} never:{round} 30", round % 20));
        assert_eq!(reply, format!("[\"queue:{}\", \"{round}\"]", round % 20));
        taken.store(round + 1, Ordering::Relaxed);
    }));
    all.push(busy(server, |client, _| {
        number(client, "DBSIZE");
    }));
    all
}

fn hold(server: &TestServer, rounds: &[u64]) {
    let mut client = server.client();
    let mut sum = |prefix: &str, count: u64| -> i64 {
        let keys: Vec<String> = (0..count).map(|at| format!("{prefix}:{at}")).collect();
        let mut values = 0;
        for key in keys {
            let value = client.run(&format!("GET {key}"));
            values += value.text().map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"));
        }
        values
    };
    assert_eq!(sum("counter", KEYS), rounds[0] as i64, "every INCR counts once");
    assert_eq!(sum("account", ACCOUNTS), 0, "transfers are whole");
    assert_eq!(sum("one", 50), rounds[3] as i64);
    assert_eq!(sum("other", 50), rounds[3] as i64);
    assert_eq!(sum("watched", 50), rounds[4] as i64, "nobody overwrote another's");
    let mut client = server.client();
    let mut elements = 0;
    for list in 0..7 {
        let Value::Array(values) = client.run(&format!("LRANGE list:{list} 0 -1")) else { panic!("a list") };
        let values: Vec<u64> = values
            .iter()
            .map(|value| String::from_utf8_lossy(value.text().expect("text")).parse().expect("a number"))
            .collect();
        assert!(values.is_sorted(), "a pipeline is done in its order");
        elements += values.len() as u64;
    }
    assert_eq!(elements, rounds[1] * 20);
}

#[test]
fn nobody_notices_that_slots_move() {
    let mut stores: Vec<TestServer> = (0..3).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let gateways = [(); 2].map(|()| TestServer::gateway(&nodes, &[]));
    let mut client = gateways[0].client();
    let sha = said(&mut client, "SCRIPT LOAD \"return 'known'\"");
    said(
        &mut client,
        "FUNCTION LOAD \"#!lua name=kept\\nredis.register_function('f', function() return 'called' end)\"",
    );
    for (field, value) in [("big", "x".repeat(100_000)), ("expires", "soon".to_owned())] {
        client.call(["SET", field, &value]);
    }
    said(&mut client, "EXPIRE expires 1000");
    said(&mut client, "STICK big");
    assert_eq!(counts(&nodes), [5462, 5461, 5461]);

    let taken = Arc::<AtomicU64>::default();
    let crowd = crowd(&gateways[0], &taken);
    // Until all have done something after each change.
    let go_on = |crowd: &[Busy]| {
        let before: Vec<u64> = crowd.iter().map(|busy| busy.rounds.load(Ordering::Relaxed)).collect();
        wait_until("everybody goes on", || {
            crowd.iter().zip(&before).all(|(busy, before)| {
                busy.rounds.load(Ordering::Relaxed) > before + 2 || busy.thread.is_finished()
            })
        });
    };
    let name = |node: usize| nodes[node].to_string();
    for (slots, to) in [("0-8191", 1), ("0-16383", 0), ("100-9000", 2), ("5461-10922", 1)] {
        let reported = done(&nodes, &["move", "--slots", slots, "--to", &name(to)]);
        assert!(reported.lines().count() > 2 && reported.contains(" slots moved, "), "{reported}");
        go_on(&crowd);
    }
    let new = TestServer::store(FLAGS);
    let reported = done(&nodes[..1], &["add", &new.address().to_string()]);
    assert!(reported.contains("4096 of 4096 slots moved"), "{reported}");
    go_on(&crowd);
    let reported = done(&nodes, &["drain", &name(0)]);
    assert!(reported.ends_with("the node can be stopped\n"), "{reported}");
    go_on(&crowd);
    stores.remove(0).kill();
    go_on(&crowd);

    // Whoever takes from queues waits for the last value; whoever fills them has stopped.
    let mut rounds = Vec::new();
    for (at, busy) in crowd.into_iter().enumerate() {
        if at == 6 {
            let pushed: u64 = rounds[5];
            wait_until("all values are taken", || taken.load(Ordering::Relaxed) >= pushed);
            busy.stop.store(true, Ordering::Relaxed);
            client.call(["RPUSH".to_owned(), format!("queue:{}", pushed % 20), pushed.to_string()]);
        }
        rounds.push(busy.end());
    }
    hold(&gateways[1], &rounds);

    let all: Vec<SocketAddr> = [&nodes[..], &[new.address()]].concat();
    assert_eq!(counts(&all)[0], 0);
    assert_eq!(counts(&nodes).iter().sum::<u64>(), SLOTS);
    // One that starts now finds data, scripts and libraries where they are.
    let late = TestServer::gateway(&all, &[]);
    let mut late_client = late.client();
    assert_eq!(said(&mut late_client, &format!("EVALSHA {} 0", sha.trim_matches('"'))), "\"known\"");
    // A gateway that is slow to learn what there is serves before it knows libraries.
    wait_until("it knows the library", || late_client.run("FCALL f 0") == Value::Bulk(b"called".to_vec()));
    assert_eq!(number(&mut late_client, "STRLEN big"), 100_000);
    assert!(number(&mut late_client, "TTL expires") > 900);
    assert_eq!(said(&mut late_client, "OBJECT STICKY big"), "1");
    assert_eq!(late.info("stores"), 4);
    assert!(late.info_text("store0").contains("state=down,slots=0,"));
    assert!(late.info_text("store3").contains("state=up,"));
    let names = scanned(&mut late_client, 50);
    assert_eq!(names.len() as i64, number(&mut late_client, "DBSIZE"));
}

#[test]
fn what_is_sent_again_is_what_was_asked() {
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let gateway = TestServer::gateway(&nodes, &[]);
    let mut client = gateway.client();
    wait_until("both are reached", || number_or(&mut client, "DBSIZE").is_some());
    said(&mut client, "HSET hash field value");
    for round in 0..6 {
        // The gateway hears of it when it asks.
        done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[round % 2].to_string()]);
        let lines = [
            "HGETALL hash".to_owned(),
            format!("RPUSH list {}", 2 * round),
            "SELECT 1".to_owned(),
            format!("SET key other{round}"),
            "SELECT 0".to_owned(),
            format!("SET key {round}"),
            "HELLO 3".to_owned(),
            "MULTI".to_owned(),
            format!("RPUSH list {}", 2 * round + 1),
            "EXEC".to_owned(),
            "HELLO 2".to_owned(),
        ];
        let requests: Vec<_> =
            lines.iter().map(|line| notation::arguments(line).expect("balanced quotes")).collect();
        let replies: Vec<String> = client.pipeline(&requests).iter().map(notation::reply).collect();
        let (hash, list) = ("[\"field\", \"value\"]", [2 * round + 1, 2 * round + 2].map(|n| n.to_string()));
        assert_eq!(replies[..6], [hash, &list[0], "+OK", "+OK", "+OK", "+OK"]);
        assert_eq!(replies[7..10], ["+OK", "+QUEUED", &format!("[{}]", list[1])]);
        assert_eq!(said(&mut client, "GET key"), format!("\"{round}\""));
        let pushed: Vec<String> = (0..2 * round + 2).map(|number| format!("\"{number}\"")).collect();
        assert_eq!(said(&mut client, "LRANGE list 0 -1"), format!("[{}]", pushed.join(", ")));
        said(&mut client, "SELECT 1");
        assert_eq!(said(&mut client, "GET key"), format!("\"other{round}\""));
        said(&mut client, "SELECT 0");
    }
}

/// All keys that a scan tells.
fn scanned(client: &mut Client, count: usize) -> std::collections::BTreeSet<Vec<u8>> {
    let mut names = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let step = client.run(&format!("SCAN {cursor} COUNT {count}"));
        let Value::Array(step) = step else { panic!("a step, not {}", notation::reply(&step)) };
        let Value::Array(keys) = &step[1] else { panic!("keys") };
        names.extend(keys.iter().map(|key| key.text().expect("a key").to_vec()));
        cursor = String::from_utf8_lossy(step[0].text().expect("a cursor")).into_owned();
        if cursor == "0" {
            return names;
        }
    }
}

#[test]
fn a_scan_sees_every_key_although_slots_move() {
    const KEYS: usize = 1000;
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let gateway = TestServer::gateway(&nodes, &[]);
    let mut client = gateway.client();
    let set = |at: usize| notation::arguments(&format!("SET key:{at} {at}")).expect("balanced quotes");
    wait_until("both are reached", || number_or(&mut client, "DBSIZE").is_some());
    let requests: Vec<_> = (0..KEYS).map(set).collect();
    assert!(client.pipeline(&requests).iter().all(|reply| matches!(reply, Value::Status(_))));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = SetOnDrop(&ended);
            // What a scan has not come to goes where it has been.
            for to in [0, 1, 0, 1] {
                done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[to].to_string()]);
            }
        });
        let mut last = false;
        while !last {
            last = ended.load(Ordering::Relaxed);
            assert_eq!(scanned(&mut client, 7).len(), KEYS);
        }
    });
}

/// One of each kind, small and large, with all that belongs to it.
fn fill(client: &mut Client) -> Vec<&'static str> {
    let many = |command: &str, key: &str, count: usize, item: &dyn Fn(usize) -> Vec<String>| {
        let items = (0..count).flat_map(item);
        let call: Vec<String> = [command.to_owned(), key.to_owned()].into_iter().chain(items).collect();
        call
    };
    let one = |at: usize| vec![format!("item-{}", at * 7919 % 100_003)];
    let two = |at: usize| vec![at.to_string(), format!("value-{at}")];
    let mut calls = vec![
        vec!["SET".to_owned(), "text".to_owned(), "x".repeat(100_000)],
        many("RPUSH", "list", 6000, &one),
        many("HSET", "hash", 4000, &two),
        many("SADD", "set", 4000, &one),
        many("SADD", "numbers", 300, &|at| vec![(at * 3).to_string()]),
        many("ZADD", "zset", 4000, &two),
        many("PFADD", "counted", 4000, &one),
    ];
    calls.extend((0..500).map(|at| {
        ["XADD", "stream", &format!("5-{}", at + 1), "f", &at.to_string()].map(str::to_owned).to_vec()
    }));
    for call in calls {
        let reply = client.call(call);
        assert!(!matches!(reply, Value::Error(_)), "{}", notation::reply(&reply));
    }
    for line in [
        "SET number 17",
        "SET sticky x STICK",
        "SETEX fades 100000 x",
        "RPUSH few a b c",
        "HSET pair f v",
        "ZADD scored 1.5 a -inf b",
        "PEXPIREAT hash 99999999999999",
        "HPEXPIREAT hash 88888888888888 FIELDS 3 5 6 3999",
        "HSETEX expiring PXAT 88888888888888 FIELDS 2 f v g w",
        "HPERSIST expiring FIELDS 1 f",
        "STICK list",
        "XGROUP CREATE stream all 0",
        "XGROUP CREATE stream late $ ENTRIESREAD 100",
        "XGROUP CREATECONSUMER stream late idle",
        "XREADGROUP GROUP all ann COUNT 200 STREAMS stream >",
        "XREADGROUP GROUP all bob COUNT 100 STREAMS stream >",
        "XACK stream all 5-3 5-250",
        "XCLAIM stream all bob 0 5-1 5-2",
        "XDEL stream 5-7 5-400",
        "XSETID stream 9-9 ENTRIESADDED 600 MAXDELETEDID 5-400",
        "XADD emptied 1-1 f v",
        "XTRIM emptied MAXLEN 0",
    ] {
        said(client, line);
    }
    vec![
        "text", "list", "hash", "set", "numbers", "zset", "counted", "stream", "number", "sticky", "fades",
        "few", "pair", "expiring", "scored", "emptied",
    ]
}

/// All that can be told of a key.
fn reported_for(client: &mut Client, key: &str) -> Vec<String> {
    let mut reported = vec![format!("{:?}", client.call(["DUMP", key]))];
    for line in ["TYPE", "PEXPIRETIME", "OBJECT STICKY", "OBJECT ENCODING"] {
        reported.push(said(client, &format!("{line} {key}")));
    }
    if reported[1] == "+stream" {
        reported.push(said(client, &format!("XINFO STREAM {key}")));
        reported.push(said(client, &format!("XINFO GROUPS {key}")));
        if key == "stream" {
            reported.push(said(client, "XPENDING stream all"));
            let pending = client.run("XPENDING stream all - + 1000");
            let Value::Array(pending) = pending else { panic!("entries") };
            // But for how long each is idle.
            let entry = |entry: &Value| match entry {
                Value::Array(of) => format!("{:?} {:?} {:?}", of[0], of[1], of[3]),
                _ => panic!("an entry"),
            };
            reported.extend(pending.iter().map(entry));
        }
    }
    reported
}

#[test]
fn values_of_all_types_move_whole() {
    let mut stores = kept(2);
    let nodes: Vec<SocketAddr> = stores.iter().map(Member::address).collect();
    let gateway = TestServer::gateway(&nodes, &[]);
    let mut client = gateway.client();
    wait_until("both are reached", || number_or(&mut client, "DBSIZE").is_some());
    let keys = fill(&mut client);
    let before: Vec<_> = keys.iter().map(|key| reported_for(&mut client, key)).collect();
    for to in [0, 1, 0] {
        done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[to].to_string()]);
        for (key, before) in keys.iter().zip(&before) {
            assert_eq!(reported_for(&mut client, key), *before, "{key} on node {to}");
        }
    }
    // And are on disk where they went.
    stores.iter_mut().for_each(restart);
    wait_until("both are reached", || number_or(&mut client, "DBSIZE") == Some(keys.len() as i64));
    for (key, before) in keys.iter().zip(&before) {
        assert_eq!(reported_for(&mut client, key), *before, "{key} after a crash");
    }
    let next = "[[\"stream\", [[\"5-301\", [\"f\", \"300\"]]]]]";
    assert_eq!(said(&mut client, "XREADGROUP GROUP all ann COUNT 1 STREAMS stream >"), next);
}

#[test]
fn watched_keys_that_move_count_as_changed() {
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let gateway = TestServer::gateway(&nodes, &[]);
    let mut client = gateway.client();
    for key in ["there", "not-there"] {
        said(&mut client, "SET there 1");
        said(&mut client, &format!("WATCH {key}"));
        done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[0].to_string()]);
        done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[1].to_string()]);
        said(&mut client, "MULTI");
        said(&mut client, "SET there 2");
        assert_eq!(said(&mut client, "EXEC"), "nil[]", "{key}");
        assert_eq!(said(&mut client, "GET there"), "\"1\"");
    }
}

#[test]
fn whoever_waits_follows_the_key() {
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let gateway = TestServer::gateway(&nodes, &[]);
    let lines = ["BLPOP a{x} 0", "BLPOP a{x} b{y} 0", "BLMOVE a{x} elsewhere LEFT LEFT 0"];
    for (round, line) in lines.iter().enumerate() {
        let mut waiter = gateway.client();
        waiter.send(notation::arguments(line).expect("balanced quotes"));
        wait_until("it waits", || gateway.info("blocked_clients") == 1);
        let to = nodes[round % 2].to_string();
        done(&nodes, &["move", "--slots", "0-16383", "--to", &to]);
        said(&mut gateway.client(), "RPUSH a{x} value");
        let got = notation::reply(&waiter.read());
        assert!(got == "[\"a{x}\", \"value\"]" || got == "\"value\"", "{line}: {got}");
        assert_eq!(said(&mut gateway.client(), "EXISTS a{x}"), "0");
    }
    assert_eq!(said(&mut gateway.client(), "LRANGE elsewhere 0 -1"), "[\"value\"]");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(FLAGS)).collect();
    let nodes = addresses(&stores);
    let refused = |task: &[&str]| {
        let output = ran(&nodes, task);
        assert_eq!(output.status.code(), Some(1), "{task:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(refused(&["show"]).contains("do not belong to a cluster yet"));
    let _gateway = TestServer::gateway(&nodes, &[]);
    assert!(refused(&["drain", "127.0.0.1:1"]).contains("is not a node of this cluster"));
    done(&nodes, &["drain", &nodes[1].to_string()]);
    assert!(refused(&["drain", &nodes[0].to_string()]).contains("no other node owns slots"));
    assert_eq!(counts(&nodes), [SLOTS, 0]);
    let output = ran(&nodes, &["move", "--slots", "5-4", "--to", "x:1"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Store nodes that can be killed and started again with their data.
fn kept(count: usize) -> Vec<Member> {
    let mut stores: Vec<Member> = (0..count).map(|_| Member::store(Some("sync"), FLAGS)).collect();
    stores.iter_mut().for_each(Member::start);
    stores
}

fn restart(store: &mut Member) {
    store.kill();
    store.start();
}

/// Starts a move and lets it get somewhere.
fn begun(nodes: &[SocketAddr], to: usize, lines: usize) -> Child {
    use std::io::{BufRead, BufReader};
    let mut child = topology(nodes, &["move", "--slots", "0-16383", "--to", &nodes[to].to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut reported = BufReader::new(child.stdout.take().expect("a pipe"));
    for _ in 0..lines {
        reported.read_line(&mut String::new()).expect("text");
    }
    child
}

#[test]
fn a_crash_while_slots_move_loses_nothing() {
    const WRITTEN: usize = 1500;
    let mut stores = kept(2);
    let nodes: Vec<SocketAddr> = stores.iter().map(Member::address).collect();
    let gateway = TestServer::gateway(&nodes, &[]);
    let mut client = gateway.client();
    let requests: Vec<Vec<Vec<u8>>> = (0..WRITTEN)
        .map(|at| notation::arguments(&format!("SET key:{at} {at}")).expect("balanced quotes"))
        .collect();
    assert!(client.pipeline(&requests).iter().all(|reply| matches!(reply, Value::Status(_))));
    for round in 0..8 {
        // To and fro; killed is by turns who gives and who gets, after more or fewer batches.
        let (to, killed) = (round % 2, (round / 2) % 2);
        let mut moving = begun(&nodes, to, round / 2);
        restart(&mut stores[killed]);
        moving.kill().expect("our own child");
        moving.wait().expect("a child");
        done(&nodes, &["move", "--slots", "0-16383", "--to", &nodes[to].to_string()]);
        let mut wanted = [0; 2];
        wanted[to] = SLOTS;
        assert_eq!(counts(&nodes), wanted);
        wait_until("the gateway has found both again", || number_or(&mut client, "DBSIZE").is_some());
        assert_eq!(number(&mut client, "DBSIZE"), WRITTEN as i64, "round {round}");
        let requests: Vec<Vec<Vec<u8>>> = (0..WRITTEN)
            .map(|at| notation::arguments(&format!("GET key:{at}")).expect("balanced quotes"))
            .collect();
        for (at, reply) in client.pipeline(&requests).iter().enumerate() {
            assert_eq!(notation::reply(reply), format!("\"{at}\""), "round {round}");
        }
    }
}

fn number_or(client: &mut Client, line: &str) -> Option<i64> {
    match client.run(line) {
        Value::Integer(number) => Some(number),
        _ => None,
    }
}

/// What a message cannot carry is refused with what to do, and nothing happens to it.
#[test]
fn a_slot_that_is_too_large_is_refused() {
    let mut stores = [Member::store(None, &[]), Member::store(None, &[])];
    stores.iter_mut().for_each(|store| store.start_failing("move-bytes=100000"));
    let nodes: Vec<SocketAddr> = stores.iter().map(Member::address).collect();
    let mut gateway = Member::gateway(&nodes, &[]);
    gateway.start();
    let mut client = gateway.server().client();
    let slot = notation::reply(&client.run("CLUSTER KEYSLOT large"));
    assert_eq!(notation::reply(&client.call(["SET", "large", &"x".repeat(200_000)])), "+OK");
    let mut refused = 0;
    for to in &nodes {
        let output = ran(&nodes, &["move", "--slots", &slot, "--to", &to.to_string()]);
        // One of them has it already.
        if !output.status.success() {
            let reported = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(reported.contains(&format!("slot {slot} has 200")), "{reported}");
            assert!(reported.contains("delete or split its largest keys"), "{reported}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(notation::reply(&client.run("STRLEN large")), "200000");
}
