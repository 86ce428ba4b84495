//! A disk that takes nothing for a while: whoever changes something waits for it, so that what waits in memory is bounded.

use std::fs;
use std::thread;

use tests::client::encode;
use tests::folder::Folder;
use tests::{TestServer, notation, wait_until};

/// Bytes of changes that may wait, instead of the usual number,
const QUEUE_BYTES: u64 = 1 << 20;
/// and of one value: one change more may have been on its way, and the writer may have taken some before it stopped.
const VALUE_BYTES: usize = 100_000;
/// So many values are written.
const COUNT: usize = 300;

/// A server whose disk takes nothing until there is the file `gate`.
fn start(folder: &Folder, gate: &Folder) -> TestServer {
    let flags = ["--data-dir", folder.text(), "--http", "127.0.0.1:0", "--script-timeout-ms", "600000"];
    let file = gate.child("open");
    TestServer::start_failing(&flags, &format!("applied=until:{file},queue-bytes={QUEUE_BYTES}"))
}

/// Bytes of changes that wait, as they are told without waiting.
fn waiting_bytes(server: &TestServer) -> u64 {
    let answer = server.http().get("/metrics");
    let text = String::from_utf8_lossy(&answer.body);
    let line = text.lines().find_map(|line| line.strip_prefix("moonshard_journal_waiting_bytes "));
    line.expect("the metric").parse::<f64>().expect("a number") as u64
}

/// Whoever writes stops when too much waits.
fn stops(server: &TestServer) {
    wait_until("the queue is full", || waiting_bytes(server) > QUEUE_BYTES);
    for _ in 0..50 {
        let waiting = waiting_bytes(server);
        assert!(waiting < QUEUE_BYTES + 3 * VALUE_BYTES as u64, "{waiting} bytes wait");
    }
}

fn open(gate: &Folder) {
    fs::write(gate.child("open"), "").expect("a file");
}

#[test]
fn a_script_without_atomicity_waits_between_its_calls() {
    let calls =
        ["redis.call('SET', 'k' .. i, ARGV[1])", "local reply = redis.call('SET', 'k' .. i, ARGV[1])"];
    for call in calls {
        let (folder, gate) = (Folder::new("slow"), Folder::made("gate"));
        let server = start(&folder, &gate);
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
    let (folder, gate) = (Folder::new("slow"), Folder::made("gate"));
    let server = start(&folder, &gate);
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
    let (folder, gate) = (Folder::new("slow"), Folder::made("gate"));
    let server = start(&folder, &gate);
    let mut client = server.client();
    assert_eq!(notation::reply(&client.call(["SET", "k", &"v".repeat(VALUE_BYTES)])), "+OK");
    let copies: Vec<u8> =
        (1..COUNT).flat_map(|number| encode(["COPY", "k", &format!("k{number}")])).collect();
    client.send_raw(&copies).expect("the server takes requests");
    stops(&server);
    open(&gate);
    (1..COUNT).for_each(|_| assert_eq!(notation::reply(&client.read()), "1"));
}
