//! REPLICAOF: a server follows a running redis-server, and others that do not behave.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::certificates::Authority;
use tests::client::read_request;
use tests::ports::fixed_port;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, SetOnDrop, TestServer, Topology, Value, notation, over_nodes, wait_until};

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";
const LOADING: &str = "-LOADING Redis is loading the dataset in memory";

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn run(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
    }
}

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        assert_eq!(say(client, line), *wanted, "{line}");
    }
}

/// A field of a section of INFO.
fn info(client: &mut Client, section: &str, field: &str) -> Option<String> {
    let reply = client.run(&format!("INFO {section}"));
    let text = String::from_utf8_lossy(reply.text()?).into_owned();
    let start = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
}

fn number(client: &mut Client, section: &str, field: &str) -> i64 {
    info(client, section, field).and_then(|text| text.parse().ok()).unwrap_or(-1)
}

fn replica_of(address: SocketAddr) -> String {
    format!("REPLICAOF {} {}", address.ip(), address.port())
}

/// All keys of all databases, each with its type, its value and when it expires, and the libraries.
fn contents(client: &mut Client) -> BTreeMap<(usize, Vec<u8>), String> {
    let mut contents = BTreeMap::new();
    for db in 0..16 {
        assert_eq!(say(client, &format!("SELECT {db}")), "+OK");
        let Value::Array(keys) = client.run("KEYS *") else { panic!("a list of keys") };
        for key in keys {
            let key = key.text().expect("a name").to_vec();
            let mut ask = |words: &[&[u8]]| {
                let argv: Vec<&[u8]> =
                    words.iter().map(|word| if *word == b"@" { &*key } else { word }).collect();
                notation::unordered(&client.call(argv))
            };
            let kind = ask(&[b"TYPE", b"@"]);
            let value = match &*kind {
                "+list" => ask(&[b"LRANGE", b"@", b"0", b"-1"]),
                "+hash" => ask(&[b"HGETALL", b"@"]),
                "+set" => ask(&[b"SMEMBERS", b"@"]),
                "+zset" => ask(&[b"ZRANGE", b"@", b"0", b"-1", b"WITHSCORES"]),
                "+stream" => ask(&[b"XRANGE", b"@", b"-", b"+"]) + &ask(&[b"XPENDING", b"@", b"group"]),
                _ => ask(&[b"GET", b"@"]),
            };
            let expires = ask(&[b"PEXPIRETIME", b"@"]);
            contents.insert((db, key), format!("{kind} {value} {expires}"));
        }
    }
    assert_eq!(say(client, "SELECT 0"), "+OK");
    let libraries = say(client, "FUNCTION LIST WITHCODE");
    contents.insert((16, b"libraries".to_vec()), libraries);
    contents
}

/// Waits until the replica has applied what its source has sent so far, and has the same data.
fn same_as(source: &mut Client, replica: &mut Client) {
    let mut seen = String::new();
    wait_until("the replica has the data of its source", || {
        let reached = number(source, "replication", "master_repl_offset");
        let is_there = info(replica, "replication", "master_link_status").as_deref() == Some("up")
            && number(replica, "replication", "slave_repl_offset") >= reached;
        if !is_there {
            return false;
        }
        let (wanted, found) = (contents(source), contents(replica));
        let differs = wanted.iter().find(|(key, value)| found.get(key) != Some(value));
        let more = found.keys().find(|key| !wanted.contains_key(key));
        let state = format!("{differs:?} / {more:?}");
        if state != seen {
            seen = state;
            eprintln!("differs: {seen}");
        }
        wanted == found
    });
}

fn is_up(client: &mut Client) -> bool {
    info(client, "replication", "master_link_status").as_deref() == Some("up")
}

/// What a program writes, again and again: `@` is the number of its turn.
const WRITES: &[&str] = &[
    "MULTI",
    "INCR a",
    "RPUSH list x",
    "INCR b",
    "EXEC",
    "EVAL \"redis.call('INCR', 'c') redis.call('SET', 'noise', 'n') return redis.call('INCR', 'd')\" 0",
    "SET soon:@ x PX 30",
    "SETEX later:@ 1000 v",
    "SET k:@ 1 EX 2000",
    "GETEX k:@ PERSIST",
    "INCRBYFLOAT float 0.25",
    "HSET hash f@ v g w",
    "HINCRBYFLOAT hash n 1.5",
    "SADD set 1 2 3 m@",
    "SPOP set 2",
    "ZADD zset @ m@ 1.5 n",
    "ZPOPMIN zset",
    "XADD stream * f v@",
    "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
    "XAUTOCLAIM stream group two 0 0 COUNT 1",
    "XTRIM stream MAXLEN 50",
    "PFADD distinct @",
    "SETRANGE text 5 @",
    "LPUSH queue @",
    "BRPOP queue 0",
    "LMOVE list list LEFT RIGHT",
    "PUBLISH news @",
    "SELECT 7",
    "SET other:@ 1",
    "MULTI",
    "SET in:@ 7",
    "SELECT 3",
    "SET in:@ 3",
    "EXEC",
    "RENAME in:@ out",
    "COPY out copied DB 5 REPLACE",
    "SELECT 0",
    "BITFIELD bits INCRBY u8 0 1",
    "EXPIRE later:@ 500",
    "FCALL twice 2 e f",
];

const PREPARED: &[&str] = &[
    "CONFIG SET repl-diskless-sync-delay 0",
    "XGROUP CREATE stream group 0 MKSTREAM",
    "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('twice', function(keys) redis.call('INCR', keys[1]) return redis.call('INCR', keys[2]) end)\"",
    "EVAL \"for i = 1, 1500 do redis.call('set', 'many' .. i, ('x'):rep(i)) end\" 0",
    "SELECT 9",
    "SET nine 9",
    "SELECT 0",
];

/// Writes until the flag is set. The first turn has this number.
fn write(address: SocketAddr, from: usize, stop: &AtomicBool) {
    let mut client = Client::connect(address, tests::Protocol::Resp2);
    for turn in from.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for line in WRITES {
            let line = line.replace('@', &turn.to_string());
            let reply = client.run(&line);
            assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
        }
        // As fast as the replica, if there is one.
        run(&mut client, &["WAIT 1 500"]);
    }
}

/// What belongs together is never half there.
fn sees_no_half(address: SocketAddr, stop: &AtomicBool) {
    let mut client = Client::connect(address, tests::Protocol::Resp2);
    while !stop.load(Ordering::Relaxed) {
        let Value::Array(values) = client.run("MGET a b c d e f") else { continue };
        let values: Vec<String> = values.iter().map(notation::reply).collect();
        for pair in values.chunks(2) {
            assert_eq!(pair[0], pair[1], "{values:?}");
        }
    }
}

fn a_replica_follows_a_source_under_load(on: Topology) {
    let dir = TempDir::made("replicaof");
    let Some(redis) = Oracle::start_in(dir.path()) else { return };
    run(&mut redis.client(), PREPARED);
    let server = on.start(&[]);
    let mut replica = server.client();
    run(&mut replica, &["SET own 1", "SELECT 2", "SET own 1", "SELECT 0"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = SetOnDrop(&stop);
        scope.spawn(|| write(redis.address(), 0, &stop));
        scope.spawn(|| write(redis.address(), 1_000_000, &stop));
        let mut source = redis.client();
        wait_until("it is written to", || number(&mut source, "stats", "total_commands_processed") > 300);
        check(&mut replica, &[(&replica_of(redis.address()), "+OK"), ("SET a 1", READ_ONLY)]);
        scope.spawn(|| sees_no_half(server.address(), &stop));
        wait_until("the link is up", || is_up(&mut replica));
        // Of the copy, then of the changes.
        for _ in 0..2 {
            let before = number(&mut source, "stats", "sync_partial_ok");
            wait_until("changes come", || {
                number(&mut replica, "replication", "slave_repl_offset")
                    >= number(&mut source, "replication", "master_repl_offset") - 20_000
            });
            run(&mut source, &["CLIENT KILL TYPE replica"]);
            wait_until("it resumes", || number(&mut source, "stats", "sync_partial_ok") > before);
        }
    });
    let mut source = redis.client();
    same_as(&mut source, &mut replica);
    assert_eq!(number(&mut source, "stats", "sync_full"), 1);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET own", "nil")]);
    // A crash of the source loses what it has not saved, and the replica has that no more either.
    run(&mut source, &["SELECT 0", "SET before 1", "SAVE", "SET lost 1"]);
    same_as(&mut source, &mut replica);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET lost", "\"1\"")]);
    let redis = redis.restart_in(dir.path());
    let mut source = redis.client();
    run(&mut source, &["CONFIG SET repl-diskless-sync-delay 0", "SET after 1"]);
    wait_until("it follows again", || is_up(&mut replica) && say(&mut replica, "GET after") == "\"1\"");
    same_as(&mut source, &mut replica);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET lost", "nil"), ("GET before", "\"1\"")]);
    // It becomes a server of its own, with all its data.
    check(
        &mut replica,
        &[("REPLICAOF NO ONE", "+OK"), ("SET own 2", "+OK"), ("ROLE", r#"["master", 0, []]"#)],
    );
    run(&mut source, &["SET late 1"]);
    check(&mut replica, &[("GET late", "nil"), ("GET before", "\"1\""), ("GET own", "\"2\"")]);
}

over_nodes!(a_replica_follows_a_source_under_load);

#[test]
fn the_server_to_follow_outlives_the_process() {
    let dir = TempDir::made("replicaof-restart");
    let Some(redis) = Oracle::start_in(dir.path()) else { return };
    let (port, mut source) = (redis.address().port(), redis.client());
    run(&mut source, &["CONFIG SET repl-diskless-sync no", "SET a 1", "SELECT 4", "SET b 2", "SELECT 0"]);
    let (file, data) = (dir.child("moonshard.toml"), dir.child("data"));
    fs::write(&file, "").expect("written");
    let flags = ["--config", &*file, "--data-dir", &*data];
    let server = TestServer::start(&flags);
    let mut replica = server.client();
    check(
        &mut replica,
        &[
            ("CONFIG GET replicaof", r#"["replicaof", ""]"#),
            (&replica_of(redis.address()), "+OK"),
            (&replica_of(redis.address()), "+OK Already connected to specified master"),
            ("CONFIG GET replicaof", &format!(r#"["replicaof", "127.0.0.1 {port}"]"#)),
            ("CONFIG REWRITE", "+OK"),
        ],
    );
    assert!(fs::read_to_string(&file).expect("text").contains(&format!("replicaof = \"127.0.0.1 {port}\"")));
    same_as(&mut source, &mut replica);
    assert_eq!(info(&mut replica, "replication", "role").as_deref(), Some("slave"));
    let Value::Array(role) = replica.run("ROLE") else { panic!("a role") };
    assert_eq!(
        notation::reply(&Value::Array(role[..4].to_vec())),
        format!(r#"["slave", "127.0.0.1", {port}, "connected"]"#)
    );
    // The source is told how far its replica is, so that WAIT works there.
    run(&mut source, &["SET c 3"]);
    check(&mut source, &[("WAIT 1 0", "1")]);
    server.kill();
    run(&mut source, &["SET d 4", "DEL a"]);
    let server = TestServer::start(&flags);
    let mut replica = server.client();
    check(&mut replica, &[("SET a 1", READ_ONLY)]);
    same_as(&mut source, &mut replica);
    check(
        &mut replica,
        &[("REPLICAOF NO ONE", "+OK"), ("CONFIG REWRITE", "+OK"), ("WAITAOF 1 0 0", "[1, 0]")],
    );
    drop(server);
    let server = TestServer::start(&flags);
    check(
        &mut server.client(),
        &[("SET a 1", "+OK"), ("GET d", "\"4\""), ("CONFIG GET slaveof", r#"["slaveof", ""]"#)],
    );
}

#[test]
fn passwords_and_certificates_are_used() {
    let dir = TempDir::made("replicaof-tls");
    let authority = Authority::new();
    let (cert, key) = authority.certificate("source", &["localhost"]);
    let (port, root) = (fixed_port().to_string(), authority.root());
    let flags = [
        "--tls-port",
        &*port,
        "--tls-cert-file",
        &*cert,
        "--tls-key-file",
        &*key,
        "--tls-ca-cert-file",
        &*root,
        "--tls-auth-clients",
        "no",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let Some(redis) = Oracle::start_with(dir.path(), &flags) else { return };
    let mut source = redis.client();
    run(
        &mut source,
        &["SET a 1", "ACL SETUSER mover on >secret +psync +replconf +ping", "CONFIG SET requirepass p"],
    );
    let server = TestServer::start(&["--tls-ca-cert-file", &root]);
    let mut replica = server.client();
    let fails = |replica: &mut Client, wanted: &str| {
        wait_until(wanted, || {
            info(replica, "replication", "master_link_error").is_some_and(|why| why.contains(wanted))
        });
    };
    check(&mut replica, &[(&replica_of(redis.address()), "+OK")]);
    fails(&mut replica, "refused PSYNC: NOAUTH");
    check(&mut replica, &[("CONFIG SET masterauth wrong", "+OK")]);
    fails(&mut replica, "refused masterauth: WRONGPASS");
    check(&mut replica, &[("CONFIG SET masterauth p", "+OK")]);
    wait_until("the link is up", || is_up(&mut replica));
    check(&mut replica, &[("GET a", "\"1\"")]);
    // Over TLS, as another user.
    check(
        &mut replica,
        &[
            ("CONFIG SET tls-replication yes primaryuser mover primaryauth secret", "+OK"),
            (&format!("REPLICAOF localhost {port}"), "+OK"),
        ],
    );
    run(&mut source, &["SET b 2"]);
    wait_until("the change comes", || say(&mut replica, "GET b") == "\"2\"");
    assert!(info(&mut source, "replication", "connected_slaves").as_deref() == Some("1"));
    // A certificate that names another host is not accepted.
    check(&mut replica, &[(&format!("REPLICAOF 127.0.0.1 {port}"), "+OK")]);
    fails(&mut replica, "cannot connect: ");
}

/// What a replica without a link answers, as redis-server does.
const ASKED: &[&str] = &[
    "REPLICAOF a b",
    "REPLICAOF a 65536",
    "REPLICAOF a -1",
    "REPLICAOF no two",
    "SLAVEOF a",
    "SET a 1",
    "GET a",
    "DEL a",
    "PFCOUNT a",
    "SORT a",
    "FUNCTION FLUSH",
    "FUNCTION LIST",
    "SCRIPT LOAD 'return 1'",
    "EVAL 'return 1' 0",
    "EVAL \"return redis.call('GET', KEYS[1])\" 1 a",
    "EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 a",
    "EVAL \"return redis.pcall('SET', KEYS[1], 1)\" 1 a",
    "EVAL_RO 'return 1' 0",
    "EVAL \"#!lua\\nreturn 1\" 0",
    "EVAL \"#!lua flags=no-writes\\nreturn 1\" 0",
    "BLPOP a 0",
    "XREADGROUP GROUP g c STREAMS a >",
    "PUBLISH a b",
    "MULTI",
    "GET a",
    "EXEC",
    "MULTI",
    "INCR a",
    "EXEC",
    "WAIT 1 1",
    "FAILOVER",
    "CONFIG SET replicaof 'a 1'",
    "CONFIG GET replica-read-only",
];

#[test]
fn refusals_have_the_words_of_redis() {
    let Some(redis) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let unused =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let (mut source, mut replica) = (redis.client(), server.client());
    for client in [&mut source, &mut replica] {
        assert_eq!(say(client, &replica_of(unused)), "+OK");
    }
    for line in ASKED {
        assert_eq!(say(&mut replica, line), say(&mut source, line), "{line}");
    }
    // A client that waits for a key, or has queued a write, when the server becomes a replica.
    for (client, address) in [(&mut source, redis.address()), (&mut replica, server.address())] {
        assert_eq!(say(client, "REPLICAOF NO ONE"), "+OK");
        let mut waiting = Client::connect(address, tests::Protocol::Resp2);
        waiting.send(["BLPOP", "a", "0"]);
        wait_until("it waits", || number(client, "clients", "blocked_clients") == 1);
        let mut queueing = Client::connect(address, tests::Protocol::Resp2);
        check(&mut queueing, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
        assert_eq!(say(client, &replica_of(unused)), "+OK");
        let unblocked =
            "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
        assert_eq!(notation::reply(&waiting.read()), unblocked);
        let aborted = "-EXECABORT Transaction discarded because of: READONLY You can't write against a read only replica.";
        check(&mut queueing, &[("EXEC", aborted)]);
    }
    check(
        &mut replica,
        &[("MULTI", "+OK"), ("REPLICAOF NO ONE", "-ERR Command not allowed inside a transaction")],
    );
}

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
    run(&mut client, &[&replica_of(source.address())]);
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
    run(&mut client, &["SET own 1", &replica_of(source.address())]);
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
        run(&mut client, &[&replica_of(source.address())]);
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

#[test]
fn no_one_reads_a_part_of_a_copy() {
    let (source, dir) = (Played::new(), TempDir::made("replicaof-part"));
    let data = dir.child("data");
    let server = TestServer::start(&["--data-dir", &data]);
    let mut client = server.client();
    run(&mut client, &["SET own 1", &replica_of(source.address())]);
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
    run(&mut client, &[&replica_of(other.address())]);
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
    run(&mut client, &[&replica_of(other.address())]);
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
