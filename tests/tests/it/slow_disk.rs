//! A disk that takes nothing for a while: clients and scripts wait for it, so that what waits in memory is bounded.

use std::fs;
use std::io::ErrorKind;
use std::thread;

use tests::client::encode;
use tests::temp_dir::TempDir;
use tests::{TestServer, notation, wait_until};

/// Bytes of changes that may wait in the queue, instead of the usual number.
const QUEUE_BYTES: usize = 1 << 20;
/// Bytes of each value that is written.
const VALUE_BYTES: usize = 100_000;
/// Changes that fill the queue.
const FULL: usize = QUEUE_BYTES.div_ceil(VALUE_BYTES);
/// So many values are written.
const COUNT: usize = 300;

/// A server whose disk takes nothing until there is the file `gate`.
fn start(dir: &TempDir, gate: &TempDir, durability: &str) -> TestServer {
    let (dir, timeout) = (dir.text(), "600000");
    let flags = [
        "--data-dir",
        dir,
        "--durability",
        durability,
        "--http",
        "127.0.0.1:0",
        "--script-timeout-ms",
        timeout,
    ];
    let file = gate.child("open");
    TestServer::start_failing(&flags, &format!("applied=until:{file},queue-bytes={QUEUE_BYTES}"))
}

/// A metric: it does not wait for the disk.
fn metric(server: &TestServer, name: &str) -> usize {
    let answer = server.http().get("/metrics");
    let text = String::from_utf8_lossy(&answer.body);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("the metric").parse().expect("a number")
}

/// Changes that are in memory only.
fn changes_ahead(server: &TestServer) -> usize {
    metric(server, "moonshard_journal_lag_records")
}

/// Bytes of changes that the writer has not taken.
fn waiting_bytes(server: &TestServer) -> usize {
    metric(server, "moonshard_journal_waiting_bytes")
}

/// The client or script that writes stops when too much waits. Before the writer stopped, it may have emptied the queue
/// twice, and one change more may have been on its way.
fn stops(server: &TestServer) {
    wait_until("the queue is full", || changes_ahead(server) >= FULL);
    for _ in 0..50 {
        let ahead = changes_ahead(server);
        assert!(ahead <= 3 * FULL + 1, "{ahead} changes are in memory only");
    }
}

fn open(gate: &TempDir) {
    fs::write(gate.child("open"), "").expect("a file");
}

#[test]
fn a_script_without_atomicity_waits_between_its_calls() {
    let calls =
        ["redis.call('SET', 'k' .. i, ARGV[1])", "local reply = redis.call('SET', 'k' .. i, ARGV[1])"];
    for call in calls {
        let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
        let server = start(&dir, &gate, "periodic");
        let script = format!("--!df flags=disable-atomicity\nfor i = 1, {COUNT} do {call} end return 'done'");
        let mut client = server.client();
        client.send(["EVAL", &script, "0", &"v".repeat(VALUE_BYTES)]);
        stops(&server);
        open(&gate);
        assert_eq!(notation::reply(&client.read()), "\"done\"", "{call}");
        assert_eq!(notation::reply(&client.run("DBSIZE")), COUNT.to_string());
    }
}

#[test]
fn a_client_without_replies_waits_as_others_do() {
    let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
    let server = start(&dir, &gate, "periodic");
    let mut client = server.client();
    client.send(["CLIENT", "REPLY", "OFF"]);
    let value = "v".repeat(VALUE_BYTES);
    let sender = thread::spawn(move || {
        (0..COUNT).for_each(|number| client.send(["SET", &format!("k{number}"), &value]));
        client
    });
    stops(&server);
    open(&gate);
    let mut client = sender.join().expect("no panic");
    client.send(["CLIENT", "REPLY", "ON"]);
    assert_eq!(notation::reply(&client.read()), "+OK");
    assert_eq!(notation::reply(&client.run("DBSIZE")), COUNT.to_string());
}

/// Short calls that change much come in one packet.
#[test]
fn calls_that_come_together_wait_for_the_disk_one_by_one() {
    let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
    let server = start(&dir, &gate, "periodic");
    let mut client = server.client();
    assert_eq!(notation::reply(&client.call(["SET", "k", &"v".repeat(VALUE_BYTES)])), "+OK");
    let copies: Vec<u8> =
        (1..COUNT).flat_map(|number| encode(["COPY", "k", &format!("k{number}")])).collect();
    client.send_raw(&copies).expect("the server takes requests");
    stops(&server);
    open(&gate);
    (1..COUNT).for_each(|_| assert_eq!(notation::reply(&client.read()), "1"));
}

/// With sync a reply that may tell of data waits until that is on disk. Others do not.
#[test]
fn what_tells_of_no_data_does_not_wait_for_the_disk() {
    let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
    let server = start(&dir, &gate, "sync");
    let [mut writer, mut reader, mut other] = [(); 3].map(|()| server.client());
    writer.send(["SET", "k", "v"]);
    wait_until("the change waits for the disk", || changes_ahead(&server) > 0);
    reader.send(["GET", "k"]);
    for (request, reply) in [
        ("PING", "+PONG"),
        ("ECHO hello", "\"hello\""),
        ("SELECT 1", "+OK"),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
    ] {
        assert_eq!(notation::reply(&other.run(request)), reply);
    }
    for waits in [&writer, &reader] {
        waits.stream().set_nonblocking(true).expect("a socket");
        let seen = waits.stream().peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(seen, Err(ErrorKind::WouldBlock), "the change is not on disk");
        waits.stream().set_nonblocking(false).expect("a socket");
    }
    open(&gate);
    assert_eq!(notation::reply(&writer.read()), "+OK");
    assert_eq!(notation::reply(&reader.read()), "\"v\"");
}

/// A client with large values waits for the disk. Others do not: neither those who read nor those who write.
#[test]
fn large_values_make_only_their_client_wait() {
    const LARGE_BYTES: usize = 8 << 20;
    const LARGE: usize = 6;
    let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
    let server = start(&dir, &gate, "periodic");
    let [mut writer, mut other] = [(); 2].map(|()| server.client());
    let value = "v".repeat(LARGE_BYTES);
    let sender = thread::spawn(move || {
        (0..LARGE).for_each(|number| writer.send(["SET", &format!("large{number}"), &value]));
        writer
    });
    wait_until("a large value is there", || changes_ahead(&server) > 0);
    for number in 0..100 {
        assert_eq!(notation::reply(&other.run(&format!("SET small{number} v"))), "+OK");
        assert_eq!(notation::reply(&other.run("STRLEN large0")), LARGE_BYTES.to_string());
        assert!(waiting_bytes(&server) < 2 * LARGE_BYTES, "its client goes on");
    }
    open(&gate);
    let mut writer = sender.join().expect("no panic");
    (0..LARGE).for_each(|_| assert_eq!(notation::reply(&writer.read()), "+OK"));
    assert_eq!(notation::reply(&other.run("DBSIZE")), (LARGE + 100).to_string());
}

/// With periodic durability, only those who write wait.
#[test]
fn reading_does_not_wait_for_the_disk() {
    let (dir, gate) = (TempDir::new("slow"), TempDir::made("gate"));
    let server = start(&dir, &gate, "periodic");
    let mut other = server.client();
    assert_eq!(notation::reply(&other.run("SET key value")), "+OK");
    let mut writer = server.client();
    writer.send(["CLIENT", "REPLY", "OFF"]);
    let value = "v".repeat(VALUE_BYTES);
    let sender = thread::spawn(move || {
        (0..COUNT).for_each(|number| writer.send(["SET", &format!("k{number}"), &value]));
        writer
    });
    stops(&server);
    assert_eq!(notation::reply(&other.run("GET key")), "\"value\"");
    open(&gate);
    drop(sender.join().expect("no panic"));
}
