//! Sources that the test plays, which do not behave as redis-server does.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tests::client::read_request;
use tests::temp_dir::TempDir;
use tests::{Client, TestServer, Value, wait_until};

use super::{READ_ONLY, check, info, number, replica_of, say};

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";

const ID: &str = "8de1787ba490483314a4d30f1c628bc5025eb761";
/// Two keys in a file.
const FILE: &[u8] = b"REDIS0010\xfe\0\0\x01a\x011\0\x01b\x012\xff\0\0\0\0\0\0\0\0";

/// A source that a test plays.
struct Played(TcpListener);

impl Played {
    fn new() -> Played {
        Played(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("its address")
    }

    /// The next connection of the replica, and what it asks PSYNC for.
    fn asked(&self) -> (BufReader<TcpStream>, Vec<String>) {
        let mut wire = BufReader::new(self.0.accept().expect("a connection").0);
        loop {
            let request = read_request(&mut wire);
            let reply: &[u8] = match &*request[0] {
                "PING" => b"+PONG\r\n",
                "PSYNC" => return (wire, request[1..].to_vec()),
                _ => b"-ERR Unrecognized REPLCONF option\r\n",
            };
            wire.get_mut().write_all(reply).expect("it is open");
        }
    }
}

/// What comes before a file of so many bytes, and as many of these as there are.
fn copy(bytes: usize, file: &[u8]) -> Vec<u8> {
    [format!("\n+FULLRESYNC {ID} 100\r\n\n${bytes}\r\n").as_bytes(), file].concat()
}

fn commands(lines: &[&str]) -> Vec<u8> {
    let words = |line: &&str| tests::client::encode(line.split(' '));
    lines.iter().flat_map(words).collect()
}

#[test]
fn a_transaction_that_was_cut_is_not_applied() {
    let (source, server) = (Played::new(), TestServer::start(&[]));
    let mut client = server.client();
    assert_eq!(say(&mut client, &replica_of(source.address())), "+OK");
    let (mut wire, asked) = source.asked();
    assert_eq!(asked, ["?", "-1"]);
    let whole =
        commands(&["SELECT 0", "SET a 3", "MULTI", "SET c 1", "SET d 1", "EXEC", "SELECT 5", "SET e 1"]);
    let cut = commands(&["MULTI", "SET a 4", "SET b 4"]);
    wire.get_mut().write_all(&[copy(FILE.len(), FILE), whole.clone(), cut].concat()).expect("it is open");
    wait_until("it is applied", || {
        number(&mut client, "replication", "slave_repl_offset") == 100 + whole.len() as i64
    });
    drop(wire);
    // It wants what follows the last whole transaction, in the database that was selected.
    let (mut wire, asked) = source.asked();
    assert_eq!(asked, [ID.to_owned(), (101 + whole.len()).to_string()]);
    check(&mut client, &[("MGET a b c d", r#"["3", "2", "1", "1"]"#)]);
    let rest = [b"+CONTINUE\r\n".to_vec(), commands(&["SET f 1", "REPLCONF GETACK *"])].concat();
    wire.get_mut().write_all(&rest).expect("it is open");
    let offset = whole.len() + 100 + rest.len() - b"+CONTINUE\r\n".len();
    wait_until("it says so", || read_request(&mut wire) == ["REPLCONF", "ACK", &offset.to_string()]);
    check(&mut client, &[("SELECT 5", "+OK"), ("MGET e f", r#"["1", "1"]"#)]);
}

#[test]
fn keys_expire_when_their_source_says_so() {
    let (source, server) = (Played::new(), TestServer::start(&[]));
    let mut client = server.client();
    client.run_all(&[&replica_of(source.address())]);
    let (mut wire, _) = source.asked();
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_millis() as u64;
    // Keys whose time is over by this clock.
    let mut file = b"REDIS0010\xfe\0".to_vec();
    for key in [b'a', b'b', b'c', b'd'] {
        file.push(0xfc);
        file.extend_from_slice(&(now_ms - 5000).to_le_bytes());
        file.extend_from_slice(&[0, 1, key, 1, b'v']);
    }
    file.extend_from_slice(END);
    let later = (now_ms + 1_000_000).to_string();
    let lives = format!("PEXPIREAT a {later}");
    // The last ones are those of older servers.
    let changes = commands(&[
        "SELECT 0",
        &lives,
        "PERSIST b",
        "MULTI",
        "RENAME c e",
        "PERSIST e",
        "EXEC",
        "SETEX f 1000 v",
        "SET g v PX 1000000",
        "MULTI",
        "SET h v",
        "EXPIRE h 1000",
        "EXEC",
    ]);
    wire.get_mut().write_all(&[copy(file.len(), &file), changes.clone()].concat()).expect("it is open");
    wait_until("it is applied", || {
        number(&mut client, "replication", "slave_repl_offset") == 100 + changes.len() as i64
    });
    check(
        &mut client,
        &[
            ("MGET a b c d e f g h", r#"["v", "v", nil, nil, "v", "v", "v", "v"]"#),
            ("PEXPIRETIME a", &later),
            ("MGET b e", r#"["v", "v"]"#),
            ("TTL b", "-1"),
        ],
    );
    for key in ["f", "g", "h"] {
        let Value::Integer(left_ms) = client.run(&format!("PTTL {key}")) else { panic!("a time") };
        assert!((900_000..=1_000_000).contains(&left_ms), "{key}: {left_ms}");
    }
    // As in Redis it is counted, until the source deletes it or is followed no longer.
    check(&mut client, &[("DBSIZE", "7"), ("REPLICAOF NO ONE", "+OK")]);
    wait_until("it is deleted", || say(&mut client, "DBSIZE") == "6");
}

#[test]
fn sources_that_are_of_no_use_change_nothing() {
    let (source, server) = (Played::new(), TestServer::start(&[]));
    let mut client = server.client();
    client.run_all(&["SET own 1", &replica_of(source.address())]);
    let marked = format!("+FULLRESYNC {ID} 0\r\n$EOF:short\r\n");
    for (answer, wanted) in [
        (b"-LOADING Redis is loading".to_vec(), "has ended the connection"),
        (b"-NOMASTERLINK no\r\n".to_vec(), "refused PSYNC: NOMASTERLINK no"),
        (b"+CONTINUE\r\n".to_vec(), "refused PSYNC: +CONTINUE"),
        (b"+FULLRESYNC x 0\r\n".to_vec(), "refused PSYNC: +FULLRESYNC x 0"),
        (marked.into_bytes(), "refused PSYNC: $EOF:short"),
        (copy(99, b"HTTP/1.1 200"), "has ended the connection"),
        (
            copy(12, b"HTTP/1.1 200"),
            "has sent a copy that cannot be read: byte 9: damaged data: this is no RDB file",
        ),
        (copy(99, b"REDIS0010\0\x81\0\0\0\0\x7f\xff\xff\xff"), "a string is too long"),
    ] {
        let (mut wire, asked) = source.asked();
        assert_eq!(asked, ["?", "-1"]);
        let _ = wire.get_mut().write_all(&answer);
        let _open = (!wanted.starts_with("has ended")).then_some(wire);
        wait_until(wanted, || {
            info(&mut client, "replication", "master_link_error").is_some_and(|why| why.contains(wanted))
        });
        check(&mut client, &[("GET own", "\"1\""), ("SET own 2", READ_ONLY)]);
    }
}

#[test]
fn what_is_no_change_ends_the_link() {
    for (sent, wanted) in [
        (commands(&["SHUTDOWN"]), "sends SHUTDOWN, which is no change of data"),
        (commands(&["MIGRATE 127.0.0.1 1 a 0 1"]), "sends MIGRATE, which is no change of data"),
        (commands(&["NONSENSE"]), "sends NONSENSE, which this server refuses: ERR unknown command"),
        (commands(&["LPUSH a 1"]), "sends LPUSH, which has failed here: WRONGTYPE"),
        (
            commands(&["MULTI", "SET c 1", "LPUSH a 1", "EXEC"]),
            "sends EXEC, which has failed here: WRONGTYPE",
        ),
        (b"*1\r\n$-5\r\n".to_vec(), "sends what is no command: Protocol error: invalid bulk length"),
    ] {
        let (source, server) = (Played::new(), TestServer::start(&[]));
        let mut client = server.client();
        client.run_all(&[&replica_of(source.address())]);
        let (mut wire, _) = source.asked();
        wire.get_mut().write_all(&[copy(FILE.len(), FILE), sent].concat()).expect("it is open");
        wait_until(wanted, || {
            info(&mut client, "replication", "master_link_error").is_some_and(|why| why.contains(wanted))
        });
        assert_eq!(source.asked().1, ["?", "-1"], "{wanted}");
        check(&mut client, &[("MGET a b", r#"["1", "2"]"#)]);
    }
}

/// A file with more keys than are loaded at once, but for its end.
fn long_file() -> Vec<u8> {
    let mut file = b"REDIS0010\xfe\0".to_vec();
    for key in 0..3000 {
        file.extend_from_slice(b"\0\x05");
        file.extend_from_slice(format!("k{key:04}\x01v").as_bytes());
    }
    file
}

const END: &[u8] = b"\xff\0\0\0\0\0\0\0\0";

/// Gateways of the same store nodes know what one of them does.
#[test]
fn other_gateways_refuse_as_well() {
    let stores: Vec<TestServer> = (0..2).map(|_| TestServer::store(&[])).collect();
    let addresses: Vec<SocketAddr> = stores.iter().map(TestServer::address).collect();
    let [one, other] = [0, 1].map(|_| TestServer::gateway(&addresses, &[]));
    let (mut one_client, mut other_client) = (one.client(), other.client());
    let (source, file) = (Played::new(), long_file());
    let bytes = file.len() + END.len();
    let serves = |client: &mut Client| wait_until("it serves", || say(client, "SET own 1") == "+OK");
    one_client.run_all(&["SET own 1", &replica_of(source.address())]);
    wait_until("the other one knows", || say(&mut other_client, "SET late 2") == READ_ONLY);
    assert_eq!(info(&mut other_client, "replication", "followed_by_other_gateway").as_deref(), Some("1"));
    check(&mut other_client, &[("GET own", "\"1\"")]);
    // A part of a copy is there, then all.
    let (mut wire, _) = source.asked();
    wire.get_mut().write_all(&copy(bytes, &file)).expect("it is open");
    for client in [&mut one_client, &mut other_client] {
        wait_until("it is loaded", || say(client, "DBSIZE") == LOADING);
    }
    wire.get_mut().write_all(END).expect("it is open");
    for client in [&mut one_client, &mut other_client] {
        wait_until("it is complete", || say(client, "DBSIZE") == "3000");
        check(client, &[("SET own 2", READ_ONLY)]);
    }
    check(&mut one_client, &[("REPLICAOF NO ONE", "+OK"), ("SET own 3", "+OK")]);
    serves(&mut other_client);
    // Another one takes over, and the first follows no longer.
    one_client.run_all(&[&replica_of(source.address())]);
    let _first = source.asked();
    wait_until("the other one knows", || say(&mut other_client, "SET late 2") == READ_ONLY);
    other_client.run_all(&[&replica_of(source.address())]);
    let (mut wire, _) = source.asked();
    wait_until("the first one knows", || {
        info(&mut one_client, "replication", "followed_by_other_gateway").as_deref() == Some("1")
    });
    check(&mut one_client, &[("SET own 2", READ_ONLY)]);
    // The one that follows ends in the middle of a copy. A new gateway changes nothing, until it is asked to.
    wire.get_mut().write_all(&copy(bytes, &file)).expect("it is open");
    wait_until("it is loaded", || say(&mut one_client, "DBSIZE") == LOADING);
    other.kill();
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let third = TestServer::start(&["--stores", &all.join(",")]);
    let mut third_client = third.client();
    wait_until("it knows", || say(&mut third_client, "DBSIZE") == LOADING);
    check(
        &mut one_client,
        &[("DBSIZE", LOADING), ("REPLICAOF NO ONE", "+OK"), ("DBSIZE", "0"), ("SET own 4", "+OK")],
    );
    serves(&mut third_client);
}

#[test]
fn no_one_reads_a_part_of_a_copy() {
    let (source, dir) = (Played::new(), TempDir::made("replicaof-part"));
    let data = dir.child("data");
    let server = TestServer::start(&["--data-dir", &data]);
    let mut client = server.client();
    client.run_all(&["SET own 1", &replica_of(source.address())]);
    let file = long_file();
    let bytes = file.len() + END.len();
    // A part of the file comes, then the link is lost.
    for _ in 0..2 {
        let (mut wire, asked) = source.asked();
        assert_eq!(asked, ["?", "-1"]);
        wire.get_mut().write_all(&copy(bytes, &file)).expect("it is open");
        wait_until("it is loaded", || say(&mut client, "GET k0000") == LOADING);
        check(
            &mut client,
            &[
                ("PING", LOADING),
                ("DBSIZE", LOADING),
                ("EVAL 'return 1' 0", LOADING),
                ("SET a 1", READ_ONLY),
                ("PSYNC ? -1", LOADING),
                ("ECHO a", "\"a\""),
            ],
        );
        assert_eq!(info(&mut client, "persistence", "loading").as_deref(), Some("1"));
    }
    // It comes as a whole.
    let (mut wire, _) = source.asked();
    wire.get_mut().write_all(&copy(bytes, &[&file, END].concat())).expect("it is open");
    wait_until("it is complete", || say(&mut client, "GET k2999") == "\"v\"");
    check(&mut client, &[("DBSIZE", "3000"), ("GET own", "nil")]);
    drop(wire);
    // Another source, of which a part comes; then there is none to follow.
    let other = Played::new();
    client.run_all(&[&replica_of(other.address())]);
    let (mut wire, asked) = other.asked();
    assert_eq!(asked, [ID, "101"], "it may know the same history");
    wire.get_mut().write_all(&copy(bytes, &file)).expect("it is open");
    wait_until("it is loaded", || say(&mut client, "DBSIZE") == LOADING);
    check(
        &mut client,
        &[("REPLICAOF NO ONE", "+OK"), ("DBSIZE", "0"), ("SET own 2", "+OK"), ("DBSIZE", "1")],
    );
    assert!(wire.read_to_end(&mut Vec::new()).is_ok(), "the link is closed");
    // The process ends in the middle of a copy, and follows no one when it starts again.
    client.run_all(&[&replica_of(other.address())]);
    let (mut wire, asked) = other.asked();
    assert_eq!(asked, ["?", "-1"]);
    wire.get_mut().write_all(&copy(bytes, &file)).expect("it is open");
    wait_until("it is loaded", || say(&mut client, "DBSIZE") == LOADING);
    wait_until("that is on disk", || {
        let [durable, newest] =
            ["journal_durable", "journal_newest"].map(|field| number(&mut client, "persistence", field));
        durable == newest
    });
    server.kill();
    let server = TestServer::start(&["--data-dir", &data]);
    let mut client = server.client();
    wait_until("the part is deleted", || say(&mut client, "DBSIZE") == "0");
    wait_until("it serves", || say(&mut client, "SET own 3") == "+OK");
    assert!(server.log().contains("was not finished and has been deleted"), "{}", server.log());
}
