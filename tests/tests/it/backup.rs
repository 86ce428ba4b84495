//! Backups of a server that serves: SYNC as redis-cli and replicas send it, and `moonshard backup`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU64;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::{Entry, Value as Held};
use tests::certificates::Authority;
use tests::cluster::Member;
use tests::process::command;
use tests::proxy::Proxy;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, TestServer, Value, notation, wait_until};

/// More than the sockets between two processes take, so that a server cannot have read all before its client reads.
const KEYS: usize = 3000;
const VALUE_BYTES: usize = 8000;

fn fill(server: &TestServer) {
    set_all(server, &[b'x'; VALUE_BYTES]);
}

fn set_all(server: &TestServer, value: &[u8]) {
    let set = |at| vec![b"SET".to_vec(), format!("k{at}").into_bytes(), value.to_vec()];
    let replies = server.client().pipeline(&(1..=KEYS).map(set).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| notation::reply(reply) == "+OK"));
}

/// A server that has the data itself.
fn embedded() -> TestServer {
    TestServer::start(&["--shards", "4"])
}

/// A server whose data is on three store nodes.
fn over_nodes(flags: &[&str]) -> TestServer {
    TestServer::start_over((0..3).map(|_| TestServer::store(&["--shards", "4"])).collect(), flags)
}

/// A client that has asked for an RDB file and read nothing of it but the mark of its end.
struct Sync {
    client: Client,
    mark: Vec<u8>,
}

impl Sync {
    fn begin(server: &TestServer) -> Sync {
        let mut client = server.client();
        assert_eq!(notation::reply(&client.run("REPLCONF capa eof capa psync2")), "+OK");
        client.send_raw(b"PSYNC ? -1\r\n").expect("the server reads");
        let mut first = String::new();
        while first.matches("\r\n").count() < 2 {
            let mut byte = [0];
            client.stream().read_exact(&mut byte).expect("an answer");
            first.push(char::from(byte[0]));
        }
        let mut lines = first.split("\r\n");
        let resync: Vec<&str> = lines.next().expect("a line").split(' ').collect();
        let [word, id, offset] = resync[..] else { panic!("{first}") };
        assert_eq!((word, id.len(), offset.parse().ok()), ("+FULLRESYNC", 40, Some(0_u64)), "{first}");
        let mark = lines.next().and_then(|line| line.strip_prefix("$EOF:")).expect("a mark");
        assert_eq!(mark.len(), 40);
        Sync { client, mark: mark.into() }
    }

    /// Reads up to the mark. `None`: the connection has ended before it.
    fn finish(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut block = [0; 64 * 1024];
        while !bytes.ends_with(&self.mark) {
            match self.client.stream().read(&mut block) {
                Ok(0) | Err(_) => return None,
                Ok(count) => bytes.extend_from_slice(&block[..count]),
            }
        }
        bytes.truncate(bytes.len() - self.mark.len());
        Some(bytes)
    }
}

/// The items of a file whose checksum is right.
fn items(bytes: &[u8]) -> Vec<RdbItem> {
    RdbReader::new(bytes).expect("a file").map(|item| item.expect("a sound file")).collect()
}

/// The keys of a file, each of which it has once.
fn keys(bytes: &[u8]) -> BTreeMap<(usize, Vec<u8>), Entry> {
    let mut found = BTreeMap::new();
    for item in items(bytes) {
        if let RdbItem::Key { db, key, entry, .. } = item {
            let name = key.escape_ascii().to_string();
            assert!(found.insert((db, key), entry).is_none(), "{name} is there twice");
        }
    }
    found
}

/// Clients that change pairs of keys, both always in one transaction, until they are told to stop.
struct Writers {
    stop: AtomicBool,
    rounds: [AtomicU64; 3],
}

impl Writers {
    fn work(&self, server: &TestServer, number: usize) {
        let mut client = server.client();
        while !self.stop.load(Ordering::Relaxed) {
            let round = self.rounds[number].fetch_add(1, Ordering::Relaxed) + 1;
            // Keys that stay, that come and go, and that are changed in their place; some among those that are only read.
            let pair = round % 50;
            let old = (round * 7919) % KEYS as u64 + 1;
            let mut lines = vec!["MULTI".to_owned()];
            for side in ["left", "right"] {
                lines.push(format!("SET {side}:{number}:{pair} {round}"));
                lines.push(format!("RPUSH list:{side}:{number} {round}"));
                lines.push(format!("DEL gone:{side}:{number}:{}", (round + 25) % 50));
                lines.push(format!("HSET gone:{side}:{number}:{pair} round {round}"));
            }
            lines.push(format!("APPEND k{old} {number}"));
            lines.push(format!("APPEND copy:k{old} {number}"));
            lines.push("EXEC".to_owned());
            let requests: Vec<Vec<Vec<u8>>> = lines
                .iter()
                .map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
                .collect();
            let replies = client.pipeline(&requests);
            assert!(matches!(replies.last(), Some(Value::Array(_))), "{replies:?}");
        }
    }

    fn rounds(&self) -> u64 {
        self.rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).sum()
    }
}

/// That what was always changed together is equal, and nothing is missing that was always there.
fn check_pairs(found: &BTreeMap<(usize, Vec<u8>), Entry>) {
    let text = |key: &str| match found.get(&(0, key.as_bytes().to_vec())).map(|entry| &entry.value) {
        Some(Held::String(text)) => text.as_bytes().to_vec(),
        _ => Vec::new(),
    };
    for at in 1..=KEYS {
        let (value, appended) = (text(&format!("k{at}")), text(&format!("copy:k{at}")));
        assert!(value.len() >= VALUE_BYTES, "k{at}");
        assert_eq!(value[VALUE_BYTES..], appended, "k{at}");
    }
    let mut pairs = 0;
    for ((_, key), entry) in found {
        let name = String::from_utf8_lossy(key);
        if name.contains("left:") {
            let other = name.replace("left:", "right:").into_bytes();
            let other = found.get(&(0, other)).map(|entry| &entry.value);
            assert_eq!(Some(&entry.value), other, "{name}");
            pairs += 1;
        } else if name.contains("right:") {
            assert!(found.contains_key(&(0, name.replace("right:", "left:").into_bytes())), "{name}");
        }
    }
    assert!(pairs > 0);
}

#[test]
fn a_backup_is_of_one_moment_while_everything_changes() {
    is_of_one_moment(&embedded());
}

#[test]
fn a_backup_of_nodes_is_of_one_moment_while_everything_changes() {
    is_of_one_moment(&over_nodes(&[]));
}

fn is_of_one_moment(server: &TestServer) {
    fill(server);
    let writers = Writers { stop: AtomicBool::new(false), rounds: Default::default() };
    let files = thread::scope(|scope| {
        for number in 0..3 {
            let writers = &writers;
            scope.spawn(move || writers.work(server, number));
        }
        let files: Vec<Vec<u8>> = (0..2)
            .map(|_| {
                wait_until("the writers have begun", || writers.rounds() > 100);
                let mut sync = Sync::begin(server);
                let before = writers.rounds();
                wait_until("much has changed since", || writers.rounds() > before + 300);
                sync.finish().expect("a whole file")
            })
            .collect();
        writers.stop.store(true, Ordering::Relaxed);
        files
    });
    files.iter().for_each(|bytes| check_pairs(&keys(bytes)));
    // What redis-cli gets, when nothing changes any more, is what there is.
    let dir = TempDir::made("backup-cli");
    let Some(output) = redis_cli(server, &["--rdb", &dir.child("dump.rdb")]) else { return };
    assert!(output.status.success(), "{output:?}");
    let found = keys(&fs::read(dir.child("dump.rdb")).expect("a file"));
    check_pairs(&found);
    assert_eq!(server.client().run("DBSIZE"), Value::Integer(found.len() as i64));
}

/// Runs redis-cli of 7.0.15, if that is installed.
fn redis_cli(server: &TestServer, args: &[&str]) -> Option<Output> {
    let version = Command::new("redis-cli").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("7.0.15") {
        return None;
    }
    let port = server.address().port().to_string();
    Some(Command::new("redis-cli").args(["-p", &port]).args(args).output().expect("redis-cli starts"))
}

/// One of everything, in two databases.
fn fill_with_all(client: &mut Client) -> Vec<&'static str> {
    client.run_all(&[
        "MSET text hello number 12 float 3.5 \"\\x00\\xff\" \"\\r\\n\"",
        "SET later x PXAT 5102444800123",
        "RPUSH list a 1 '' b",
        "HSET hash f v g w",
        "SADD ints 1 2 3",
        "SADD set a b",
        "ZADD zset 1.5 a -inf b",
        "XADD stream 1-1 a 1 b text",
        "XADD stream 2-1 a 2",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
        "SET gone x PX 1",
        "SCRIPT LOAD 'return 1'",
        "SELECT 7",
        "SET text 'in another database'",
        "SELECT 0",
    ]);
    for kind in ["rpush', KEYS[1], i", "hset', KEYS[1], i, i", "zadd', KEYS[1], i, i"] {
        let name = format!("many-{}", &kind[..4]);
        client.eval(&format!("for i = 1, 3000 do redis.call('{kind}) end"), &[&name], &[]);
    }
    client.call([
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('f', function() return 42 end)",
    ]);
    wait_until("a key has expired", || client.run("EXISTS gone") == Value::Integer(0));
    vec![
        "MGET text number float \"\\x00\\xff\"",
        "GET later",
        "PEXPIRETIME later",
        "LRANGE list 0 -1",
        "HGET hash f",
        "SMISMEMBER ints 1 2 3 4",
        "SMISMEMBER set a b c",
        "ZRANGE zset 0 -1 WITHSCORES",
        "XRANGE stream - +",
        "XPENDING stream group",
        "LRANGE many-rpus 0 -1",
        "ZRANGE many-zadd 0 -1 WITHSCORES",
        "HLEN many-hset",
        "DBSIZE",
        "FCALL f 0",
        "FUNCTION LIST WITHCODE",
    ]
}

fn answers(client: &mut Client, lines: &[&str]) -> Vec<String> {
    let mut answers: Vec<String> = lines.iter().map(|line| notation::reply(&client.run(line))).collect();
    client.run("SELECT 7");
    answers.push(notation::reply(&client.run("GET text")));
    client.run("SELECT 0");
    answers
}

#[test]
fn what_redis_cli_gets_is_restored_here_and_by_redis() {
    is_restored(&embedded());
}

#[test]
fn what_redis_cli_gets_of_nodes_is_restored_here_and_by_redis() {
    is_restored(&over_nodes(&[]));
}

fn is_restored(server: &TestServer) {
    let mut client = server.client();
    let lines = fill_with_all(&mut client);
    let wanted = answers(&mut client, &lines);
    let dir = TempDir::made("backup-restored");
    let (file, data) = (dir.child("dump.rdb"), dir.child("data"));
    let Some(output) = redis_cli(server, &["--rdb", &file]) else { return };
    assert!(output.status.success(), "{output:?}");
    let restored = command(&["store", "restore", &file, &data]).output().expect("it starts");
    assert!(restored.status.success(), "{restored:?}");
    let other = TestServer::start(&["--data-dir", &data]);
    assert_eq!(answers(&mut other.client(), &lines), wanted);
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(other.client().run(&format!("EVALSHA {sha} 0")), Value::Integer(1));
    if let Some(oracle) = Oracle::start_in(dir.path()) {
        assert_eq!(answers(&mut oracle.client(), &lines), wanted);
    }
    // Libraries alone.
    let file = dir.child("functions.rdb");
    let output = redis_cli(server, &["--functions-rdb", &file]).expect("it was there before");
    assert!(output.status.success(), "{output:?}");
    let items = items(&fs::read(file).expect("a file"));
    let libraries = items.iter().filter(|item| matches!(item, RdbItem::Library(_))).count();
    let rest = items.iter().any(|item| matches!(item, RdbItem::Key { .. } | RdbItem::Script(_)));
    assert_eq!((libraries, rest), (1, false));
}

#[test]
fn fields_of_hashes_keep_their_times() {
    let server = TestServer::start(&[]);
    server.client().run_all(&["HSET hash f v g w", "HPEXPIREAT hash 5102444800123 FIELDS 1 f"]);
    let found = keys(&Sync::begin(&server).finish().expect("a whole file"));
    let Held::Hash(hash) = &found[&(0, b"hash".to_vec())].value else { panic!("{found:?}") };
    assert_eq!(hash.expiry(b"f").map(NonZeroU64::get), Some(5_102_444_800_123));
    assert_eq!(hash.expiry(b"g"), None);
    // In the form of the server that is to read the payload.
    let dir = TempDir::made("backup-version");
    for (version, start) in [("10", &b"REDIS0010"[..]), ("12", b"REDIS0012"), ("80", b"VALKEY080")] {
        let file = dir.child(version);
        let url = format!("redis://{}", server.address());
        let (code, _, said) = backup(&[&url, &file, "--rdb-version", version]);
        assert_eq!(code, Some(0), "{said}");
        let bytes = fs::read(&file).expect("a file");
        assert!(bytes.starts_with(start), "{version}");
        assert_eq!(keys(&bytes), found);
    }
}

#[test]
fn a_client_that_does_not_read_is_in_nobodys_way() {
    const LIMIT: [&str; 2] = ["--client-output-buffer-limit", "normal 1mb 0 0 pubsub 32mb 8mb 60"];
    is_in_nobodys_way(&TestServer::start(&LIMIT), true);
    // Store nodes say that they have given up when they are asked for the next piece.
    is_in_nobodys_way(&over_nodes(&LIMIT), false);
}

fn is_in_nobodys_way(server: &TestServer, is_told: bool) {
    fill(server);
    let mut slow = Sync::begin(server);
    let mut client = server.client();
    // Nothing waits for it, and there is one at a time.
    assert_eq!(notation::reply(&client.run("REPLCONF capa eof")), "+OK");
    let refused = notation::reply(&client.run("SYNC"));
    assert!(refused.starts_with("-ERR ") && refused.ends_with("another backup is in progress"), "{refused}");
    // What changes is kept for it up to the limit, and then it is given up.
    set_all(server, b"new");
    let is_given_up = || server.log().contains("was ended after");
    if is_told {
        wait_until("the backup is given up", is_given_up);
    }
    assert_eq!(slow.finish(), None);
    wait_until("the backup is given up", is_given_up);
    assert!(server.log().contains("output limit"), "{}", server.log());
    // The next one has what there is now.
    let found = keys(&Sync::begin(server).finish().expect("a whole file"));
    assert_eq!(found.len(), KEYS);
    assert!(found.values().all(|entry| entry.value == Held::string(b"new")));
}

#[test]
fn a_flush_or_the_end_of_the_client_ends_a_backup() {
    let server = TestServer::start(&[]);
    fill(&server);
    let mut client = server.client();
    // A flush that is taken back changes nothing.
    let mut undone = Sync::begin(&server);
    let reply = client.eval("#!lua on-error=rollback\nredis.call('flushall') error('no')", &[], &[]);
    assert!(matches!(reply, Value::Error(_)), "{reply:?}");
    assert_eq!(keys(&undone.finish().expect("a whole file")).len(), KEYS);
    let mut flushed = Sync::begin(&server);
    assert_eq!(notation::reply(&client.run("FLUSHALL")), "+OK");
    assert_eq!(flushed.finish(), None);
    fill(&server);
    drop(Sync::begin(&server));
    wait_until("the lost client is noticed", || begins(&server));
}

/// Whether a backup begins now.
fn begins(server: &TestServer) -> bool {
    let mut client = server.client();
    client.run_all(&["REPLCONF capa eof"]);
    client.send_raw(b"SYNC\r\n").expect("the server reads");
    let mut first = [0];
    client.stream().read_exact(&mut first).expect("an answer");
    first == *b"$"
}

#[test]
fn the_connection_stays_after_the_file() {
    let server = TestServer::start(&[]);
    server.client().run_all(&["SET a b"]);
    let mut sync = Sync::begin(&server);
    assert_eq!(keys(&sync.finish().expect("a whole file")).len(), 1);
    sync.client.send_raw(b"REPLCONF ACK 0\r\nREPLCONF ACK 7\r\n").expect("the server reads");
    assert_eq!(notation::reply(&sync.client.run("PING")), "+PONG");
    sync.client.run_all(&["SET c d"]);
}

#[test]
fn replconf_and_sync_answer_as_in_redis() {
    let server = TestServer::start(&[]);
    let oracle = Oracle::start();
    let mut clients = vec![server.client()];
    clients.extend(oracle.iter().map(Oracle::client));
    for client in &mut clients {
        for (line, wanted) in [
            ("REPLCONF", "+OK"),
            ("REPLCONF capa", "-ERR syntax error"),
            ("REPLCONF listening-port 7777 ip-address 10.0.0.1", "+OK"),
            ("REPLCONF listening-port x", "-ERR value is not an integer or out of range"),
            ("REPLCONF rdb-only 1", "+OK"),
            ("REPLCONF rdb-only 2", "-ERR value is out of range, value must between 0 and 1"),
            ("REPLCONF rdb-filter-only functions", "+OK"),
            ("REPLCONF rdb-filter-only 'functions data'", "-ERR Unsupported rdb-filter-only option: data"),
            ("REPLCONF what 1", "-ERR Unrecognized REPLCONF option: what"),
            ("SYNC now", "-ERR wrong number of arguments for 'sync' command"),
            ("PSYNC ?", "-ERR wrong number of arguments for 'psync' command"),
        ] {
            assert_eq!(notation::reply(&client.run(line)), wanted, "{line}");
        }
    }
    let mut client = server.client();
    assert_eq!(notation::reply(&client.run("REPLCONF rdb-version 80")), "+OK");
    let refused = "-ERR RDB version 11 is not written, only 10, 12, 80";
    assert_eq!(notation::reply(&client.run("REPLCONF rdb-version 11")), refused);
    // Without a mark the length would have to come first.
    let reply = notation::reply(&server.client().run("SYNC"));
    assert!(reply.starts_with("-ERR") && reply.contains("REPLCONF capa eof"), "{reply}");
    let mut client = server.client();
    client.run_all(&["MULTI"]);
    assert_eq!(notation::reply(&client.run("SYNC")), "-ERR Command not allowed inside a transaction");
}

#[test]
fn a_backup_needs_its_permission() {
    let server = TestServer::start(&[]);
    let mut admin = server.client();
    admin.run_all(&[
        "ACL SETUSER limited on >p ~* &* +@all -@dangerous",
        "ACL SETUSER replica on >p +psync +sync +replconf +ping",
    ]);
    let mut client = server.client();
    client.run_all(&["AUTH limited p"]);
    for line in ["SYNC", "PSYNC ? -1", "REPLCONF capa eof"] {
        let reply = notation::reply(&client.run(line));
        assert!(reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
    let dir = TempDir::made("backup-permission");
    let url = |login: &str| format!("redis://{login}@{}", server.address());
    let (code, _, said) = backup(&[&url("limited:p"), &dir.child("no.rdb")]);
    assert!(code == Some(1) && said.contains("NOPERM"), "{said}");
    // The users that Redis recommends for replicas may do nothing else.
    let (code, said, _) = backup(&[&url("replica:p"), &dir.child("yes.rdb")]);
    assert!(code == Some(0) && said.contains("0 keys"), "{said}");
    admin.run_all(&["CONFIG SET requirepass secret"]);
    for line in ["SYNC", "PSYNC ? -1", "REPLCONF capa eof"] {
        let reply = notation::reply(&server.client().run(line));
        assert_eq!(reply, "-NOAUTH Authentication required.", "{line}");
    }
}

#[test]
fn slots_may_move_during_a_backup() {
    let stores = [TestServer::store(&[]), TestServer::store(&[])];
    let addresses = stores.each_ref().map(|store| store.address().to_string());
    let server = TestServer::gateway(&stores.each_ref().map(TestServer::address), &[]);
    fill(&server);
    let mut sync = Sync::begin(&server);
    let nodes = addresses.join(",");
    let moved =
        command(&["topology", "--stores", &nodes, "move", "--slots", "0-9000", "--to", &addresses[1]])
            .output();
    let moved = moved.expect("it starts");
    assert!(moved.status.success(), "{moved:?}");
    set_all(&server, b"new");
    let found = keys(&sync.finish().expect("a whole file"));
    assert_eq!(found.len(), KEYS);
    assert!(found.values().all(|entry| entry.value == Held::string(&[b'x'; VALUE_BYTES])));
    let found = keys(&Sync::begin(&server).finish().expect("a whole file"));
    assert!(found.len() == KEYS && found.values().all(|entry| entry.value == Held::string(b"new")));
}

#[test]
fn a_node_that_goes_ends_a_backup() {
    let mut nodes: Vec<Member> = (0..2).map(|_| Member::store(Some("periodic"), &[])).collect();
    nodes.iter_mut().for_each(Member::start);
    let addresses: Vec<SocketAddr> = nodes.iter().map(Member::address).collect();
    let server = TestServer::gateway(&addresses, &[]);
    fill(&server);
    let mut sync = Sync::begin(&server);
    nodes[1].kill();
    assert_eq!(sync.finish(), None);
    wait_until("the backup is given up", || server.log().contains("was ended after"));
    assert!(server.log().contains(&format!("store node {}: ", addresses[1])), "{}", server.log());
    let mut client = server.client();
    client.run_all(&["REPLCONF capa eof"]);
    let refused = notation::reply(&client.run("SYNC"));
    assert!(refused.starts_with("-CLUSTERDOWN"), "{refused}");
    nodes[1].start();
    wait_until("the node that stayed is free for another backup", || begins(&server));
}

/// Runs `moonshard backup`: the exit code, standard output and standard error.
fn backup(args: &[&str]) -> (Option<i32>, String, String) {
    let output = command(&[&["backup"], args].concat()).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_tool_writes_a_whole_file_or_none() {
    let server = TestServer::start(&[]);
    let mut admin = server.client();
    admin.run_all(&["CONFIG SET requirepass p@ss", "MSET a 1 b 2"]);
    let dir = TempDir::made("backup-tool");
    let file = dir.child("dump.rdb");
    let url = format!("redis://default:p%40ss@{}", server.address());
    let (code, said, errors) = backup(&[&url, &file]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    let bytes = fs::read(&file).expect("a file");
    assert_eq!(said, format!("{file}: 2 keys, {} bytes\n", bytes.len()));
    assert_eq!(keys(&bytes).len(), 2);
    // What is there stays, unless it is said otherwise.
    admin.run_all(&["SET c 3"]);
    let (code, _, errors) = backup(&[&url, &file]);
    assert!(code == Some(1) && errors.contains("--force"), "{errors}");
    assert_eq!(fs::read(&file).expect("a file"), bytes);
    let (code, _, errors) = backup(&["--force", &url, &file]);
    assert_eq!((code, &*errors), (Some(0), ""));
    assert_eq!(keys(&fs::read(&file).expect("a file")).len(), 3);
    let output = command(&["backup", &url, "-"]).output().expect("it starts");
    assert_eq!(keys(&output.stdout).len(), 3);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("3 keys, "));
    // Nothing is left of what does not work.
    let wrong = format!("redis://default:wrong@{}", server.address());
    for (line, wanted) in [
        (&[&*wrong, &dir.child("no.rdb")][..], "WRONGPASS"),
        (&["redis://127.0.0.1:1", &dir.child("no.rdb")], "cannot connect"),
        (&[&*url, &dir.child("missing/no.rdb")], "cannot write"),
    ] {
        let (code, _, errors) = backup(line);
        assert!(code == Some(1) && errors.contains(wanted), "{errors}");
    }
    assert_eq!(backup(&["http://127.0.0.1:1", "-"]).0, Some(2));
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn a_server_may_send_line_feeds_before_the_file() {
    let server = TestServer::start(&[]);
    let mut sync = Sync::begin(&server);
    let file = sync.finish().expect("all of it");
    // Redis sends them while it prepares the file.
    let replies = [&b"+OK\r\n+OK\r\n+OK\r\n\n\n$EOF:"[..], &sync.mark, b"\r\n", &file, &sync.mark].concat();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&replies).expect("the client reads");
            stream
        });
        let (code, said, errors) = backup(&[&format!("redis://{address}"), "-"]);
        assert!(code == Some(0) && said == String::from_utf8_lossy(&file), "{errors}");
        serving.join().expect("no panic");
    });
}

#[test]
fn a_server_whose_reply_has_no_end_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"+OK\r\n+OK\r\n+OK\r\n").expect("the client reads");
            while stream.write_all(&[b'x'; 1000]).is_ok() {}
        });
        let (code, _, errors) = backup(&[&format!("redis://{address}"), "-"]);
        assert!(code == Some(1) && errors.contains("its line exceeds 64kb"), "{code:?}: {errors}");
        serving.join().expect("no panic");
    });
}

#[test]
fn a_backup_that_is_cut_off_leaves_no_file() {
    let server = TestServer::start(&[]);
    fill(&server);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = Proxy::start(listener, server.address());
    let dir = TempDir::made("backup-cut");
    let url = format!("redis://{}", proxy.address());
    // Slow enough not to have all before the flush.
    proxy.set_delay(Duration::from_millis(5));
    let (code, errors) = thread::scope(|scope| {
        let cut = scope.spawn(|| {
            wait_until("it has begun", || server.log().contains("a backup to"));
            server.client().run("FLUSHALL");
        });
        let (code, _, errors) = backup(&[&url, &dir.child("dump.rdb")]);
        cut.join().expect("no panic");
        (code, errors)
    });
    assert!(code == Some(1) && errors.contains("before it was complete"), "{errors}");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

#[test]
fn the_tool_speaks_tls() {
    let authority = Authority::new();
    let flags = authority.flags("server", &["127.0.0.1"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = TestServer::start(&flags);
    let (certificate, key) = authority.certificate("client", &["client"]);
    let (root, dir) = (authority.root(), TempDir::made("backup-tls"));
    let (url, file) = (format!("rediss://{}", server.address()), dir.child("dump.rdb"));
    let own = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let known = [&["--tls-ca-cert-file", &*root][..], &own].concat();
    let (code, said, errors) = backup(&[&known[..], &[&url, &file]].concat());
    assert!(code == Some(0) && said.contains("0 keys"), "{said}{errors}");
    assert_eq!(
        items(&fs::read(&file).expect("a file"))
            .iter()
            .filter(|item| !matches!(item, RdbItem::Aux { .. }))
            .count(),
        0
    );
    // Whom the tool trusts without a file is the system's matter.
    let line = [&["backup"][..], &own, &[&url, "-"]].concat();
    let trusting =
        |root: &str| command(&line).env("SSL_CERT_FILE", root).output().expect("it starts").status.code();
    assert_eq!((trusting(&root), trusting(&Authority::new().root())), (Some(0), Some(1)));
    let stranger = Authority::new();
    let (code, _, errors) = backup(&["--tls-ca-cert-file", &stranger.root(), &url, "-"]);
    assert!(code == Some(1) && errors.contains("cannot connect"), "{errors}");
}
