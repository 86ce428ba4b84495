//! Large values between gateways and store nodes: other clients do not wait for them, and their own client sees its order.

use std::io::ErrorKind;
use std::time::Duration;

use tests::cluster::TestCluster;
use tests::{Client, notation, wait_until};

/// More than a connection has in its buffers, so that most of it waits while the wire is slow.
const LARGE_BYTES: usize = 24 << 20;
/// How long the wire takes for 64 KB.
const DELAY: Duration = Duration::from_millis(3);

/// Whether there is no reply yet.
fn waits(client: &Client) -> bool {
    client.stream().set_nonblocking(true).expect("a socket");
    let seen = client.stream().peek(&mut [0]).map_err(|error| error.kind());
    client.stream().set_nonblocking(false).expect("a socket");
    seen == Err(ErrorKind::WouldBlock)
}

#[test]
fn other_clients_do_not_wait_for_large_values() {
    let cluster = TestCluster::start(1, 1, None);
    let [mut large, mut other] = [(); 2].map(|()| cluster.client(0));
    let value = "x".repeat(LARGE_BYTES);
    assert_eq!(notation::reply(&other.call(["SET", "small", "value"])), "+OK");
    let passed = || cluster.wires[0].bytes().iter().sum::<u64>();
    for (call, reply) in [(&["SET", "large", &value][..], "+OK"), (&["GET", "large"], "")] {
        cluster.wires[0].set_delay(DELAY);
        let before = passed();
        large.send(call);
        wait_until("a part of the value has come", || passed() > before + (2 << 20));
        assert_eq!(notation::reply(&other.call(["GET", "small"])), "\"value\"");
        // For what would have come before it.
        (0..20).for_each(|_| assert_eq!(notation::reply(&other.run("PING")), "+PONG"));
        assert!(waits(&large), "{}: the value is still on its way", call[0]);
        cluster.wires[0].heal();
        let answer = large.read();
        match reply {
            "" => assert!(answer.text() == Some(value.as_bytes()), "another value"),
            reply => assert_eq!(notation::reply(&answer), reply),
        }
    }
}

#[test]
fn calls_stay_behind_the_large_ones_of_their_client() {
    const LEN: usize = 5 << 19;
    let cluster = TestCluster::start(1, 1, None);
    let mut client = cluster.client(0);
    let value = "x".repeat(LEN);
    let calls: [&[&str]; 6] = [
        &["SET", "key", &value],
        &["APPEND", "key", "y"],
        &["GETRANGE", "key", "-2", "-1"],
        &["SET", "key", &value, "GET"],
        &["STRLEN", "key"],
        &["DEL", "key"],
    ];
    calls.iter().for_each(|call| client.send(call.iter()));
    for wanted in ["+OK", &(LEN + 1).to_string(), "\"xy\""] {
        assert_eq!(notation::reply(&client.read()), wanted);
    }
    assert_eq!(client.read().text(), Some(format!("{value}y").as_bytes()));
    for wanted in [&LEN.to_string(), "1"] {
        assert_eq!(notation::reply(&client.read()), wanted);
    }
    // The replies of the calls in between are not read.
    let script = "#!lua flags=disable-atomicity\n\
        redis.call('SET', KEYS[1], ARGV[1]) redis.call('APPEND', KEYS[1], 'y') redis.call('APPEND', KEYS[1], 'z')
        return redis.call('GETRANGE', KEYS[1], -3, -1)";
    assert_eq!(notation::reply(&client.eval(script, &["key"], &[&value])), "\"xyz\"");
}
