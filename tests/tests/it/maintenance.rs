//! CLIENT MAINT_NOTIFICATIONS: clients that are notified before the server stops.

use std::io::Read as _;
use std::time::Duration;

use tests::{Client, TestServer, Value, notation, wait_until};

fn moving(server: &TestServer) -> Client {
    let mut client = server.client();
    client.run("HELLO 3");
    let reply = client.run("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip");
    assert_eq!(notation::reply(&reply), "+OK");
    client
}

fn is_closed(client: &mut Client) -> bool {
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).expect("a socket option");
    matches!(client.stream().read(&mut [0]), Ok(0))
}

#[test]
fn who_is_notified_is_served_until_they_have_moved() {
    let mut server = TestServer::start(&[]);
    let (mut told, mut waiting, mut other) = (moving(&server), moving(&server), server.client());
    waiting.send_raw(b"BLPOP list 0\r\n").expect("the server reads");
    let blocked = "blocked_clients:1";
    wait_until("it is blocked", || notation::reply(&other.run("INFO clients")).contains(blocked));
    let mut not_any_more = moving(&server);
    assert_eq!(notation::reply(&not_any_more.run("CLIENT MAINT_NOTIFICATIONS OFF")), "+OK");
    server.signal(libc::SIGTERM);
    let Value::Push(message) = told.read() else { panic!("a push") };
    let [word, Value::Integer(_), left, place] = &message[..] else { panic!("{message:?}") };
    assert_eq!((word, left, place), (&Value::Bulk(b"MOVING".to_vec()), &Value::Integer(6), &Value::Null));
    wait_until("others are not served", || is_closed(&mut other) && is_closed(&mut not_any_more));
    assert_eq!(notation::reply(&told.run("RPUSH list v")), "1");
    let mut moving = waiting.read();
    if matches!(moving, Value::Push(_)) {
        moving = waiting.read();
    }
    assert_eq!(notation::reply(&moving), "[\"list\", \"v\"]");
    drop((told, waiting));
    assert!(server.wait().success());
}

#[test]
fn who_stays_is_cut_off() {
    let mut server = TestServer::start(&[]);
    let mut told = moving(&server);
    server.signal(libc::SIGTERM);
    assert!(matches!(told.read(), Value::Push(_)));
    wait_until("it is over", || is_closed(&mut told));
    assert!(server.wait().success());
}

#[test]
fn an_interrupt_gives_no_notice() {
    let mut server = TestServer::start(&[]);
    let told = moving(&server);
    server.signal(libc::SIGINT);
    let mut rest = Vec::new();
    told.stream().read_to_end(&mut rest).expect("the connection ends");
    assert_eq!(rest, b"");
    assert!(server.wait().success());
}

#[test]
fn what_is_not_understood_is_refused() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    for (line, wanted) in [
        ("CLIENT MAINT_NOTIFICATIONS ON", "-ERR MAINT_NOTIFICATIONS needs RESP3: send HELLO 3 first"),
        ("CLIENT MAINT_NOTIFICATIONS OFF", "+OK"),
        ("CLIENT MAINT_NOTIFICATIONS MAYBE", "-ERR syntax error"),
        ("CLIENT MAINT_NOTIFICATIONS OFF moving-endpoint-type", "-ERR syntax error"),
        ("CLIENT MAINT_NOTIFICATIONS OFF moving-endpoint-type where", "-ERR syntax error"),
        ("CLIENT MAINT_NOTIFICATIONS OFF what none", "-ERR syntax error"),
    ] {
        assert_eq!(notation::reply(&client.run(line)), wanted, "{line}");
    }
}
