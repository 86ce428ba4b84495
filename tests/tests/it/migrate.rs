//! MIGRATE: to a redis-server, to another server of ours, and to those that do not behave.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tests::client::read_request;
use tests::{Client, Oracle, Protocol, TestServer, Topology, notation, over_nodes, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        assert_eq!(say(client, line), *wanted, "{line}");
    }
}

/// A call of MIGRATE to a server on this machine.
fn to(address: SocketAddr, rest: &str) -> String {
    format!("MIGRATE 127.0.0.1 {} {rest}", address.port())
}

/// What both sources are asked in turn: `@` is a call of MIGRATE, `>` a request to its target.
const ASKED: &[&str] = &[
    "SET a 1",
    "RPUSH l a b 3",
    "HSET h f v",
    "SADD s 1 2",
    "ZADD z 1.5 m",
    "XADD x 1-0 f v",
    "SET later v PXAT 4102444800000",
    "@a 0 5000",
    "EXISTS a",
    "> GET a",
    "@a 0 5000",
    "@\"\" 0 0 KEYS l nothing h s z x later",
    "DBSIZE",
    "> DBSIZE",
    "> LRANGE l 0 -1",
    "> HGETALL h",
    "> SMEMBERS s",
    "> ZRANGE z 0 -1 WITHSCORES",
    "> XRANGE x - +",
    "> TTL a",
    "SET a 2",
    "SET b 2",
    "@a 0 5000",
    "@\"\" 0 5000 KEYS a b",
    "MGET a b",
    "> MGET a b",
    "@a 0 5000 COPY REPLACE",
    "GET a",
    "> GET a",
    "@a 7 -1 replace",
    "EXISTS a",
    "> SELECT 7",
    "> GET a",
    "@\"\" 0 5000 KEYS",
    "@\"\" 0 5000",
    "SET c 3",
    "@c 0 5000 KEYS c",
    "@c 0 5000 NONSENSE",
    "@c 0 5000 AUTH",
    "@c 0 5000 AUTH2 u",
    "@c 0 often",
    "@c zero 5000",
    "@c 0 5000 AUTH secret COPY REPLACE",
    "@c 0 5000 AUTH2 unknown secret COPY REPLACE",
    "@c 99 5000 COPY REPLACE",
    "MIGRATE 127.0.0.1 1 nothing 0 5000",
    "MIGRATE 127.0.0.1 1 c 0",
    "COMMAND GETKEYSANDFLAGS MIGRATE h 1 \"\" 0 9 AUTH keys KEYS a b",
    "COMMAND GETKEYS MIGRATE h 1 k 0 9 AUTH keys",
    "COMMAND GETKEYS MIGRATE h 1 k 0 9 KEYS k",
    "GET c",
];

/// What a source and a target answer.
fn conversation(source: SocketAddr, target: SocketAddr) -> Vec<String> {
    let mut here = Client::connect(source, Protocol::Resp2);
    let mut there = Client::connect(target, Protocol::Resp2);
    let ask = |line: &&str| match (line.strip_prefix('@'), line.strip_prefix("> ")) {
        (Some(rest), _) => format!("{line}: {}", say(&mut here, &to(target, rest))),
        (None, Some(request)) => format!("{line}: {}", say(&mut there, request)),
        (None, None) => format!("{line}: {}", say(&mut here, line)),
    };
    ASKED.iter().map(ask).collect()
}

fn keys_move_as_from_redis(on: Topology) {
    let Some(source) = Oracle::start() else { return };
    let [Some(of_redis), Some(of_ours)] = [Oracle::start(), Oracle::start()] else { return };
    let ours = on.start(&[]);
    let wanted = conversation(source.address(), of_redis.address());
    assert_eq!(conversation(ours.address(), of_ours.address()), wanted);
    assert!(wanted.contains(&"@a 0 5000: +NOKEY".to_owned()), "{wanted:?}");
    // From Redis to our server, and from there to another one.
    let target = TestServer::start(&[]);
    assert_eq!(conversation(source.address(), target.address()).len(), ASKED.len());
    assert_eq!(say(&mut target.client(), "LRANGE l 0 -1"), r#"["a", "b", "3"]"#);
}

fn many_keys_move(on: Topology) {
    let (source, target) = (on.start(&[]), on.start(&[]));
    let (mut here, mut there) = (source.client(), target.client());
    there.run("ACL SETUSER mover on >secret +restore +select ~*");
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    for key in &keys {
        here.call(["SET", key, "v", "EX", "1000"]);
    }
    // Larger than what comes to a gateway with its lock.
    here.call([b"SET".to_vec(), b"large".to_vec(), vec![b'x'; 300_000]]);
    there.run("SET k3 other");
    let rest = format!("\"\" 0 5000 AUTH2 mover secret KEYS {} large", keys.join(" "));
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    check(&mut here, &[(&to(target.address(), &rest), busy), ("DBSIZE", "1"), ("GET k3", r#""v""#)]);
    check(
        &mut there,
        &[("DBSIZE", "201"), ("GET k3", r#""other""#), ("STRLEN large", "300000"), ("TTL large", "-1")],
    );
    let left = say(&mut there, "TTL k9").parse::<u64>().expect("seconds");
    assert!((900..=1000).contains(&left), "{left}");
    // To another database of the same server.
    check(
        &mut here,
        &[(&to(source.address(), "k3 1 5000"), "+OK"), ("SELECT 1", "+OK"), ("GET k3", r#""v""#)],
    );
}

/// A server that a test plays.
struct Played {
    listener: TcpListener,
}

impl Played {
    fn new() -> Played {
        Played { listener: TcpListener::bind("127.0.0.1:0").expect("a free port") }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("its address")
    }

    /// A connection whose SELECT is answered.
    fn accept(&self) -> BufReader<TcpStream> {
        let mut wire = BufReader::new(self.listener.accept().expect("a connection").0);
        assert_eq!(read_request(&mut wire), ["SELECT", "0"]);
        wire.get_mut().write_all(b"+OK\r\n").expect("it is open");
        wire
    }
}

fn others_are_served_while_keys_are_locked(on: Topology) {
    let server = on.start(&[]);
    let (mut mover, mut other, mut writer) = (server.client(), server.client(), server.client());
    let target = Played::new();
    check(&mut other, &[("SET k 1", "+OK"), ("SET elsewhere 1", "+OK")]);
    let migrate = to(target.address(), "k 0 60000");
    mover.send(migrate.split(' '));
    let mut wire = target.accept();
    assert_eq!(read_request(&mut wire)[..3], ["RESTORE", "k", "0"]);
    writer.send(["APPEND", "k", "2"]);
    wait_until("the writer waits", || say(&mut other, "CLIENT LIST").contains(" cmd=append "));
    check(&mut other, &[("INCR elsewhere", "2")]);
    wire.get_mut().write_all(b"+OK\r\n").expect("it is open");
    assert_eq!(notation::reply(&mover.read()), "+OK");
    // Behind the move, and not before it.
    assert_eq!(notation::reply(&writer.read()), "1");
    check(&mut other, &[("GET k", r#""2""#)]);
}

fn what_is_not_acknowledged_stays(on: Topology) {
    let server = on.start(&[]);
    let mut mover = server.client();
    let mut other = server.client();
    let mut set = || check(&mut other, &[("MSET a 1 b 2", "+OK")]);
    let target = Played::new();
    // The second answer never comes.
    set();
    mover.send(to(target.address(), "_ 0 60000 KEYS a b").replace('_', "").split(' '));
    let mut wire = target.accept();
    assert_eq!([&read_request(&mut wire)[1], &read_request(&mut wire)[1]], ["a", "b"]);
    wire.get_mut().write_all(b"+OK\r\n").expect("it is open");
    drop(wire);
    let lost = "-IOERR error or timeout reading to target instance";
    assert_eq!(notation::reply(&mover.read()), lost);
    check(&mut mover, &[("MGET a b", r#"[nil, "2"]"#)]);
    // It is no server of this kind.
    set();
    mover.send(to(target.address(), "a 0 60000").split(' '));
    let mut wire = BufReader::new(target.listener.accept().expect("a connection").0);
    assert_eq!(read_request(&mut wire), ["SELECT", "0"]);
    wire.get_mut().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it is open");
    assert_eq!(notation::reply(&mover.read()), lost);
    // It is too slow.
    mover.send(to(target.address(), "a 0 20").split(' '));
    let mut wire = target.accept();
    assert_eq!(read_request(&mut wire)[1], "a");
    assert_eq!(notation::reply(&mover.read()), lost);
    // The client is killed.
    let id = say(&mut mover, "CLIENT ID");
    mover.send(to(target.address(), "a 0 60000").split(' '));
    let mut wire = target.accept();
    assert_eq!(read_request(&mut wire)[1], "a");
    check(&mut other, &[(&format!("CLIENT KILL ID {id}"), "1"), ("MGET a b", r#"["1", "2"]"#)]);
}

/// For any reason; Redis says of a port without a listener that it was writing.
const CONNECTING: &str = "-IOERR error or timeout connecting to the client";

fn where_it_is_refused(on: Topology) {
    let server = on.start(&["--migrate-hosts", "other.example,localhost"]);
    let mut client = server.client();
    let refused = "-ERR MIGRATE to the host '127.0.0.1' is not allowed: add it to the parameter migrate-hosts and \
                   restart the server";
    check(
        &mut client,
        &[
            ("MIGRATE 127.0.0.1 1 k 0 9", refused),
            ("MIGRATE OTHER.example 1 k 0 9", "+NOKEY"),
            ("SET k v", "+OK"),
            ("MIGRATE localhost 1 k 0 60000", CONNECTING),
            ("MIGRATE localhost port k 0 60000", CONNECTING),
            ("MULTI", "+OK"),
            ("MIGRATE other.example 1 k 0 9", "-ERR Command not allowed inside a transaction"),
            ("DISCARD", "+OK"),
            ("ACL SETUSER mover on nopass +migrate ~app:*", "+OK"),
            ("ACL DRYRUN mover MIGRATE h 1 \"\" 0 9 KEYS app:1 app:2", "+OK"),
        ],
    );
    let error = notation::reply(&client.eval("return redis.call('MIGRATE', 'h', 1, 'k', 0, 9)", &["k"], &[]));
    assert!(error.contains("This Redis command is not allowed from script"), "{error}");
    let denied = say(&mut client, "ACL DRYRUN mover MIGRATE h 1 \"\" 0 9 KEYS app:1 other");
    assert!(denied.contains("no permissions to access the 'other' key"), "{denied}");
}

over_nodes!(
    keys_move_as_from_redis,
    many_keys_move,
    others_are_served_while_keys_are_locked,
    what_is_not_acknowledged_stays,
    where_it_is_refused,
);
