//! Single commands that take long: they end with their client, are noted when they were slow, and leave nothing behind when
//! they were ended.

use tests::temp_dir::TempDir;
use tests::{Client, TestServer, Value, notation, wait_until};

/// Members of a large set.
const MEMBERS: usize = 100_000;
/// How often it is named in a call that would take minutes.
const NAMED: usize = 10_000;

/// A server with a large set.
fn server() -> TestServer {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    for from in (0..MEMBERS).step_by(10_000) {
        let members: Vec<String> = (from..from + 10_000).map(|at| format!("member:{at}")).collect();
        let added = client.call(["SADD", "set"].into_iter().chain(members.iter().map(String::as_str)));
        assert_eq!(added, Value::Integer(10_000));
    }
    server
}

/// Sends a call that would take minutes, and waits until it runs. The number of its client.
fn send_endless(client: &mut Client, other: &mut Client, call: &[&str]) -> i64 {
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    client.send(call.iter().copied().chain(std::iter::repeat_n("set", NAMED)));
    wait_until("it runs", || {
        let listed = other.run("CLIENT LIST");
        let listed = String::from_utf8_lossy(listed.text().expect("a list")).into_owned();
        let line =
            listed.lines().find(|line| line.starts_with(&format!("id={id} "))).expect("its line").to_owned();
        line.contains(&format!(" cmd={} ", call[0].to_ascii_lowercase()))
    });
    id
}

#[test]
fn a_long_call_ends_when_its_client_is_killed() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    for call in [["SUNIONSTORE", "d"].as_slice(), &["SUNION"], &["SINTERCARD", "10000"], &["SDIFFSTORE", "d"]]
    {
        let id = send_endless(&mut client, &mut other, call);
        assert_eq!(notation::reply(&other.run(&format!("CLIENT KILL ID {id}"))), "1");
        assert!(client.is_closed());
        // It holds the key no longer.
        assert_eq!(other.run("SADD set member:0"), Value::Integer(0), "{call:?}");
        assert_eq!(other.run("EXISTS d"), Value::Integer(0), "{call:?}");
        client = server.client();
    }
}

#[test]
fn a_long_call_ends_when_its_client_hangs_up() {
    let server = server();
    let mut other = server.client();
    for protocol in tests::PROTOCOLS {
        let mut client = Client::connect(server.address(), protocol);
        send_endless(&mut client, &mut other, &["SUNIONSTORE", "d"]);
        drop(client);
        assert_eq!(other.run("SADD set member:0"), Value::Integer(0));
        assert_eq!(other.run("EXISTS d"), Value::Integer(0));
    }
    // In a transaction, too: its other writes are undone with it.
    let mut client = server.client();
    client.run("MULTI");
    client.run("SET before 1");
    client.run(&format!("SUNIONSTORE d{}", " set".repeat(NAMED)));
    client.send(["EXEC"]);
    wait_until("its keys are locked", || server.info("blocked_clients") == 0 && is_locked(&server));
    drop(client);
    assert_eq!(other.run("SADD set member:0"), Value::Integer(0));
    assert_eq!(other.run("EXISTS d before"), Value::Integer(0));
}

/// Whether another connection waits for the set.
fn is_locked(server: &TestServer) -> bool {
    let mut client = server.client();
    client.stream().set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("a socket option");
    client.send(["SCARD", "set"]);
    client.try_read().is_err()
}

#[test]
fn long_calls_are_in_the_slow_log_and_counted() {
    let server = server();
    let mut client = server.client();
    client.run("CONFIG SET slowlog-log-slower-than 1");
    for call in ["SUNIONSTORE d set set", "SORT set ALPHA", "SMEMBERS set", "SPOP d 100000", "KEYS *"] {
        client.run("SLOWLOG RESET");
        assert!(!matches!(client.run(call), Value::Error(_)), "{call}");
        let log = notation::reply(&client.run("SLOWLOG GET 10"));
        let name = call.split(' ').next().expect("a name");
        assert!(log.contains(name), "{call}: {log}");
        let counted = notation::reply(&client.run("INFO commandstats"));
        assert!(counted.contains(&format!("cmdstat_{}:calls=1,", name.to_ascii_lowercase())), "{counted}");
    }
}

/// It takes only as long as its request is large: it is done as a whole or not at all, in memory and on disk.
#[test]
fn a_large_request_is_completed_although_its_client_is_gone() {
    const KEYS: usize = 50_000;
    let dir = TempDir::new("large");
    let start = || TestServer::start(&["--data-dir", dir.text(), "--durability", "sync"]);
    let mut server = start();
    let mut wanted = Value::Integer(0);
    for (name, most) in [("MSET", KEYS), ("DEL", 0)] {
        let keys = (0..KEYS).map(|at| format!("key:{at}"));
        let words: Vec<String> = match name {
            "MSET" => keys.flat_map(|key| [key, "value".into()]).collect(),
            _ => keys.collect(),
        };
        for _ in 0..3 {
            let mut client = server.client();
            client.send(std::iter::once(name).chain(words.iter().map(String::as_str)));
            drop(client);
            for place in ["in memory", "on disk"] {
                // It may be done after this look, but not be undone.
                let found = server.client().run("DBSIZE");
                assert!(
                    found == wanted || found == Value::Integer(most as i64),
                    "{name}, {place}: {found:?}"
                );
                wanted = found;
                if place == "in memory" {
                    server.kill();
                    server = start();
                }
            }
        }
        let reply = server.client().call(std::iter::once(name).chain(words.iter().map(String::as_str)));
        assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        wanted = Value::Integer(most as i64);
        assert_eq!(server.client().run("DBSIZE"), wanted);
    }
}
