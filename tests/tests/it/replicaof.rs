//! REPLICAOF: a server follows a running redis-server, and others that do not behave.

mod played;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::certificates::Authority;
use tests::compare::tame;
use tests::generate::{self, Chance};
use tests::ports::fixed_port;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, SetOnDrop, TestServer, Topology, Value, notation, over_nodes, wait_until};

const READ_ONLY: &str = "-READONLY You can't write against a read only replica.";

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
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
                client.call(argv)
            };
            let kind = notation::reply(&ask(&[b"TYPE", b"@"]));
            let value = match &*kind {
                "+list" => notation::reply(&ask(&[b"LRANGE", b"@", b"0", b"-1"])),
                "+hash" => notation::unordered(&ask(&[b"HGETALL", b"@"])),
                "+set" => notation::unordered(&ask(&[b"SMEMBERS", b"@"])),
                // Redis keeps the sign of 0 where a set is large.
                "+zset" => notation::reply(&ask(&[b"ZRANGE", b"@", b"0", b"-1", b"WITHSCORES"]))
                    .replace("\"-0\"", "\"0\""),
                "+stream" => {
                    let parts = [&[&b"XRANGE"[..], b"@", b"-", b"+"][..], &[b"XPENDING", b"@", b"group"]];
                    parts.map(|words| notation::reply(&ask(words))).join(" ")
                }
                _ => notation::reply(&ask(&[b"GET", b"@"])),
            };
            let expires = notation::reply(&ask(&[b"PEXPIRETIME", b"@"]));
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
        let state = differs.map_or(String::new(), |(key, value)| {
            let found = found.get(key).map_or("", String::as_str);
            let same = value.bytes().zip(found.bytes()).take_while(|(one, other)| one == other).count();
            let part = |text: &str| text.bytes().skip(same.saturating_sub(40)).take(200).collect::<Vec<u8>>();
            let parts = [value, found].map(|text| String::from_utf8_lossy(&part(text)).into_owned());
            format!("{key:?}: {} in place of {}", parts[1], parts[0])
        });
        if state != seen {
            eprintln!("{state}");
            seen = state;
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
        client.run_all(&["WAIT 1 500"]);
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
    redis.client().run_all(PREPARED);
    let server = on.start(&[]);
    let mut replica = server.client();
    replica.run_all(&["SET own 1", "SELECT 2", "SET own 1", "SELECT 0"]);
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
            source.run_all(&["CLIENT KILL TYPE replica"]);
            wait_until("it resumes", || number(&mut source, "stats", "sync_partial_ok") > before);
        }
    });
    let mut source = redis.client();
    same_as(&mut source, &mut replica);
    assert_eq!(number(&mut source, "stats", "sync_full"), 1);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET own", "nil")]);
    // A crash of the source loses what it has not saved, and the replica has that no more either.
    source.run_all(&["SELECT 0", "SET before 1", "SAVE", "SET lost 1"]);
    same_as(&mut source, &mut replica);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET lost", "\"1\"")]);
    let redis = redis.restart_in(dir.path());
    let mut source = redis.client();
    source.run_all(&["CONFIG SET repl-diskless-sync-delay 0", "SET after 1"]);
    wait_until("it follows again", || is_up(&mut replica) && say(&mut replica, "GET after") == "\"1\"");
    same_as(&mut source, &mut replica);
    check(&mut replica, &[("SELECT 0", "+OK"), ("GET lost", "nil"), ("GET before", "\"1\"")]);
    // It becomes a server of its own, with all its data.
    check(
        &mut replica,
        &[("REPLICAOF NO ONE", "+OK"), ("SET own 2", "+OK"), ("ROLE", r#"["master", 0, []]"#)],
    );
    source.run_all(&["SET late 1"]);
    check(&mut replica, &[("GET late", "nil"), ("GET before", "\"1\""), ("GET own", "\"2\"")]);
}

over_nodes!(a_replica_follows_a_source_under_load);

#[test]
fn the_server_to_follow_outlives_the_process() {
    let dir = TempDir::made("replicaof-restart");
    let Some(redis) = Oracle::start_in(dir.path()) else { return };
    let (port, mut source) = (redis.address().port(), redis.client());
    source.run_all(&["CONFIG SET repl-diskless-sync no", "SET a 1", "SELECT 4", "SET b 2", "SELECT 0"]);
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
    // The source gets the offset of its replica, so that WAIT works there.
    source.run_all(&["SET c 3"]);
    check(&mut source, &[("WAIT 1 0", "1")]);
    server.kill();
    source.run_all(&["SET d 4", "DEL a"]);
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
    source.run_all(&[
        "SET a 1",
        "ACL SETUSER mover on >secret +psync +replconf +ping",
        "CONFIG SET requirepass p",
    ]);
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
    source.run_all(&["SET b 2"]);
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

/// Random calls, a third of which by scripts, and a third in transactions.
#[test]
fn random_calls_have_the_same_effects() {
    let Some(redis) = Oracle::start() else { return };
    let (mut source, server) = (redis.client(), TestServer::start(&[]));
    let mut replica = server.client();
    source.run_all(&["CONFIG SET repl-diskless-sync-delay 0"]);
    check(&mut replica, &[(&replica_of(redis.address()), "+OK")]);
    wait_until("the link is up", || is_up(&mut replica));
    let seed = std::env::var("MOONSHARD_DIFF_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut chance = Chance::new(seed);
    for _ in 0..20 {
        let mut calls = generate::start(&mut chance);
        calls.extend((0..200).map(|_| generate::call(&mut chance)));
        for call in &mut calls {
            tame(call);
            match chance.below(3) {
                0 => drop(source.call(&*call)),
                1 => {
                    let eval = ["EVAL", "return redis.pcall(unpack(ARGV))", "0"]
                        .map(|word| word.as_bytes().to_vec());
                    source.call(eval.iter().chain(&*call));
                }
                _ => {
                    source.run("MULTI");
                    source.call(&*call);
                    source.call(&*call);
                    source.run("EXEC");
                }
            }
        }
        same_as(&mut source, &mut replica);
    }
    assert_eq!(number(&mut source, "stats", "sync_full"), 1, "{}", server.log());
}
