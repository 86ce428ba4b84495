//! `moonshard store` and `--accept-loss`: data that is looked at, saved, restored, and gone on with after damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use store_engine::rdb::file::RdbWriter;
use store_engine::rdb::{KeyMeta, Version};
use store_engine::{Entry, Stamp, Value as Held};
use tests::process::{command, refused};
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, Protocol, TestServer, Value, notation, wait_until};

/// Runs `moonshard store`; returns its exit code and what it said.
fn tool(args: &[&str]) -> (Option<i32>, String, String) {
    ended(&command(&[&["store"], args].concat()).output().expect("it starts"))
}

fn ended(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn well(args: &[&str]) -> String {
    let (code, out, err) = tool(args);
    assert_eq!((code, &*err), (Some(0), ""), "{args:?}: {out}");
    out
}

fn start(data: &str) -> TestServer {
    TestServer::start(&["--data-dir", data])
}

fn stop(mut server: TestServer) {
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
}

fn fill(server: &TestServer) {
    let mut client = server.client();
    for line in [
        "MSET text hello number 12 float 3.5 \"\\x00\\xff\" \"\\r\\n\"",
        "SET later x PXAT 5102444800123",
        "SET stays x STICK",
        "RPUSH list a 1 '' b",
        "HSET hash f v g w",
        "SADD ints 1 2 3",
        "SADD set a b",
        "ZADD zset 1.5 a -inf b",
        "XADD stream 1-1 a 1 b text",
        "XADD stream 2-1 a 2",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
        "SELECT 7",
        "SET text 'in another database'",
        "SCRIPT FLAGS e0e1f9fabfc9d4800c877a703b823ac0578ff8db no-writes",
    ] {
        let reply = client.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
    }
    for kind in [
        "rpush', KEYS[1], i",
        "hset', KEYS[1], i, i",
        "sadd', KEYS[1], 'm' .. i",
        "zadd', KEYS[1], i, i",
        "xadd', KEYS[1], i, 'f', i",
    ] {
        let name = format!("many-{}", &kind[..4]);
        client.eval(&format!("for i = 1, 3000 do redis.call('{kind}) end"), &[&name], &[]);
    }
    client.call(["SCRIPT", "LOAD", "return 1"]);
    client.call([
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('f', function() return 42 end)",
    ]);
}

/// What tells the data, here and in Redis.
const QUESTIONS: &[&str] = &[
    "MGET text number float \"\\x00\\xff\" later stays",
    "PEXPIRETIME later",
    "LRANGE list 0 -1",
    "HGETALL hash",
    "SMEMBERS ints",
    "SMEMBERS set",
    "ZRANGE zset 0 -1 WITHSCORES",
    "XRANGE stream - +",
    "XINFO STREAM stream",
    "XPENDING stream group",
    "DBSIZE",
    "FUNCTION LIST WITHCODE",
    "FCALL f 0",
    "SELECT 7",
    "GET text",
    "LRANGE many-rpus 0 -1",
    "HGETALL many-hset",
    "SMEMBERS many-sadd",
    "ZRANGE many-zadd 0 -1 WITHSCORES",
    "XRANGE many-xadd - +",
    "DBSIZE",
];

/// What only we remember.
const OURS: &[&str] = &[
    "OBJECT STICKY stays",
    "OBJECT STICKY text",
    "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
    "SCRIPT FLAGS e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
];

fn answers(client: &mut Client, questions: &[&str]) -> Vec<String> {
    let answer = |line: &&str| {
        let reply = client.run(line);
        let is_ordered = !line.starts_with("SM") && !line.starts_with("HG");
        let reported = if is_ordered { notation::reply(&reply) } else { notation::unordered(&reply) };
        format!("{line}: {reported}")
    };
    questions.iter().map(answer).collect()
}

fn resp3(server: &TestServer) -> Client {
    Client::connect(server.address(), Protocol::Resp3)
}

#[test]
fn data_travels_to_redis_and_back() {
    let dir = TempDir::made("tools");
    let (data, file) = (dir.child("data"), dir.child("dump.rdb"));
    let server = start(&data);
    fill(&server);
    let wanted = answers(&mut resp3(&server), QUESTIONS);
    let ours = answers(&mut resp3(&server), OURS);
    assert!(wanted.iter().chain(&ours).all(|answer| !answer.contains(": -")), "{wanted:#?} {ours:#?}");

    let (code, out, err) = tool(&["check", &data]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert_eq!(err, format!("moonshard: {data} is in use by another process; stop it first\n"));
    stop(server);
    let reported = well(&["check", &data]);
    assert!(reported.contains("database 0: 12 keys, 1 expire, 1 sticky, "), "{reported}");
    assert!(reported.contains("database 7: 6 keys, 0 expire, 0 sticky, "), "{reported}");
    assert!(reported.contains("\nscripts: 1\nlibraries: 1\njournal: "), "{reported}");
    assert_eq!(well(&["dump", &data, &file]), format!("{file} written\n"));

    let again = dir.child("again");
    assert_eq!(well(&["restore", &file, &again]), "18 keys restored, 0 expired keys skipped\n");
    assert!(well(&["check", &again]).contains("\nscripts: 1\nlibraries: 1\njournal: 0 records, 0 bytes\n"));
    let server = start(&again);
    assert_eq!(answers(&mut resp3(&server), QUESTIONS), wanted);
    assert_eq!(answers(&mut resp3(&server), OURS), ours);
    stop(server);

    // Through Redis, which knows nothing of sticky keys and forgets scripts.
    let Some(redis) = Oracle::start_in(dir.path()) else { return };
    let mut client = Client::connect(redis.address(), Protocol::Resp2);
    wait_until("the file is loaded", || client.run("PING") == Value::Status(b"PONG".to_vec()));
    assert_eq!(notation::reply(&client.run("HELLO 3")).chars().next(), Some('{'));
    assert_eq!(answers(&mut client, QUESTIONS), wanted);
    for line in ["SELECT 0", "SAVE"] {
        assert_eq!(notation::reply(&client.run(line)), "+OK", "{line}");
    }
    let back = dir.child("back");
    assert_eq!(well(&["restore", &file, &back]), "18 keys restored, 0 expired keys skipped\n");
    let server = start(&back);
    assert_eq!(answers(&mut resp3(&server), QUESTIONS), wanted);
}

#[test]
fn a_dash_stands_for_the_standard_streams() {
    let dir = TempDir::made("tools");
    let (data, copy) = (dir.child("data"), dir.child("copy"));
    let server = start(&data);
    fill(&server);
    stop(server);
    let dump = command(&["store", "dump", &data, "-"]).output().expect("it starts");
    assert_eq!((dump.status.code(), &*dump.stderr), (Some(0), &b""[..]));
    let mut restore = command(&["store", "restore", "-", &copy]);
    let piped = restore.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(&dump.stdout).expect("it reads all");
    let (code, out, err) = ended(&child.wait_with_output().expect("it ends"));
    assert_eq!((code, &*out, &*err), (Some(0), "18 keys restored, 0 expired keys skipped\n", ""));
}

/// A file with these keys and times of expiry.
fn rdb(path: &str, keys: &[(&[u8], u64)], meta: KeyMeta) {
    let mut writer = RdbWriter::new(Vec::new(), Version::default()).expect("memory takes all");
    for (key, expire_at_ms) in keys {
        let mut entry = Entry::new(Held::string(b"value"), Stamp::default());
        entry.expire_at_ms = std::num::NonZeroU64::new(*expire_at_ms);
        writer.key(key, &entry, meta).expect("memory takes all");
    }
    fs::write(path, writer.finish().expect("memory takes all")).expect("written");
}

#[test]
fn what_cannot_be_restored_leaves_no_trace() {
    let dir = TempDir::made("tools");
    let (data, file) = (dir.child("data"), dir.child("file.rdb"));
    let mut reported = String::new();
    let mut refuses = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("written");
        let (code, out, err) = tool(&["restore", &file, &data]);
        assert_eq!((&*out, Path::new(&data).exists()), ("", false), "{err}");
        let line = err.replace(&file, "FILE");
        reported.push_str(&format!("{}: {line}", code.expect("an exit code")));
    };
    rdb(&dir.child("good"), &[(b"k", 0)], KeyMeta::default());
    let good = fs::read(dir.child("good")).expect("a file");
    rdb(&dir.child("twice"), &[(b"k", 0), (b"\xff", 0), (b"\xff", 0)], KeyMeta::default());
    refuses(b"");
    refuses(&good[..good.len() - 9]);
    refuses(&[&good[..good.len() - 1], b"!"].concat());
    refuses(&fs::read(dir.child("twice")).expect("a file"));
    refuses(b"REDIS0010\x07\x01k\x81\xbd\xe7\x2d\xa2\xbb\x1e\xb4\x01");
    refuses(b"REDIS0010\xf5\x04text\xff\0\0\0\0\0\0\0\0");
    insta::assert_snapshot!(reported, @r#"
    1: moonshard: FILE is damaged: byte 0: the data end here; nothing was restored, use another backup
    1: moonshard: FILE is damaged: byte 18: the data end here; nothing was restored, use another backup
    1: moonshard: FILE is damaged: byte 27: damaged data: the checksum is another; nothing was restored, use another backup
    1: moonshard: FILE is damaged: key "\xff" of database 0 occurs twice; nothing was restored, use another backup
    2: moonshard: FILE: byte 21: not supported: values of the module type vectorset; nothing was restored
    1: moonshard: FILE is damaged: a function library: ERR Missing library metadata; nothing was restored, use another backup
    "#);

    let (code, _, err) = tool(&["restore", &dir.child("none"), &data]);
    assert_eq!(code, Some(2));
    assert!(err.ends_with(": No such file or directory (os error 2)\n"), "{err}");
    // Nor is anything put where something is.
    assert_eq!(well(&["restore", &dir.child("good"), &data]), "1 keys restored, 0 expired keys skipped\n");
    let (code, _, err) = tool(&["restore", &dir.child("good"), &data]);
    let wanted =
        format!("moonshard: {data} already has data; use a directory that is empty or does not exist\n");
    assert_eq!((code, err), (Some(2), wanted));
    let none = dir.child("none");
    for args in [&["check", &none][..], &["dump", &none, &file]] {
        let wanted = format!("moonshard: {none} is not a data-dir: it has no data of this server\n");
        assert_eq!(tool(args), (Some(2), String::new(), wanted));
    }
}

#[test]
fn times_and_stamps_are_restored() {
    let dir = TempDir::made("tools");
    let far = 5_102_444_800_000;
    for (policy, question, meta, wanted) in [
        (
            "allkeys-lru",
            "OBJECT IDLETIME k",
            KeyMeta { idle_s: Some(5000), ..KeyMeta::default() },
            5000..5600,
        ),
        ("allkeys-lfu", "OBJECT FREQ k", KeyMeta { freq: Some(77), ..KeyMeta::default() }, 60..78),
    ] {
        let (data, file) = (dir.child(policy), dir.child("file.rdb"));
        // A key that has expired may come twice: Redis does not look at it.
        rdb(&file, &[(b"gone", 1), (b"k", far), (b"gone", 2)], meta);
        assert_eq!(well(&["restore", &file, &data]), "1 keys restored, 2 expired keys skipped\n");
        let server = TestServer::start(&["--data-dir", &data, "--maxmemory-policy", policy]);
        let Value::Integer(reported) = server.client().run(question) else { panic!("a number") };
        assert!(wanted.contains(&reported), "{reported}");
        assert_eq!(notation::reply(&server.client().run("PEXPIRETIME k")), far.to_string());
    }
}

/// All files below a folder.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    found
}

fn keys_in(reported: &str) -> usize {
    let count = reported.strip_prefix("database 0: ").and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no keys in {reported}"))
}

#[test]
fn what_is_left_of_damaged_data_is_told_saved_and_gone_on_with() {
    let dir = TempDir::made("tools");
    let (data, file) = (dir.child("data"), dir.child("dump.rdb"));
    let server = start(&data);
    let mut client = server.client();
    client.eval("for i = 1, 3000 do redis.call('set', 'key' .. i, ('x'):rep(i % 100)) end", &[], &[]);
    assert_eq!(notation::reply(&client.run("SAVE")), "+OK");
    stop(server);
    let slabs = files(&Path::new(&data).join("sled/slabs"));
    let (path, bytes) = slabs.iter().max_by_key(|(_, bytes)| bytes.len()).expect("there are some");
    let turned: Vec<u8> =
        bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at < bytes.len() / 2)).collect();
    fs::write(path, turned).expect("written");

    let before = files(Path::new(&data));
    let (code, reported, err) = tool(&["check", &data]);
    assert_eq!(code, Some(1), "{reported}");
    let left = keys_in(&reported);
    assert!((1..3000).contains(&left), "{reported}");
    let (problems, verdict) = err.trim_end().rsplit_once('\n').expect("more than one line");
    assert!(problems.lines().all(|line| line.starts_with(&format!("moonshard: {data}/sled"))), "{err}");
    assert!(verdict.contains(&format!("problems in {data}; restore a backup; or inspect")), "{verdict}");
    let (code, _, dump_err) = tool(&["dump", &data, &file]);
    assert_eq!((code, dump_err), (Some(1), err));
    assert_eq!(
        well(&["restore", &file, &dir.child("rest")]),
        format!("{left} keys restored, 0 expired keys skipped\n")
    );

    let plain = ["--data-dir", &data, "--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"];
    let (code, _, err) = ended(&refused(&plain));
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("`--accept-loss`"), "{err}");
    assert!(files(Path::new(&data)) == before, "so far nothing has changed");

    let server = TestServer::start(&["--data-dir", &data, "--accept-loss"]);
    let accepted = format!("info: --accept-loss: {data}/sled");
    wait_until("the log says so", || server.log().contains(&accepted));
    let size = notation::reply(&server.client().run("DBSIZE"));
    assert_eq!(size, left.to_string());
    assert_eq!(notation::reply(&server.client().run("SET new 1")), "+OK");
    stop(server);
    let kept = files(&Path::new(&data).join("sled.damaged-1"));
    let old = before.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&data).ok()?, bytes)));
    let old: BTreeMap<_, _> = old.filter(|(path, _)| path.starts_with("sled")).collect();
    assert_eq!(kept.len(), old.len());
    // All is well from then on, and the flag does nothing.
    assert_eq!(keys_in(&well(&["check", &data])), left + 1);
    let server = TestServer::start(&["--data-dir", &data, "--accept-loss"]);
    assert_eq!(notation::reply(&server.client().run("DBSIZE")), (left + 1).to_string());
    assert!(!server.log().contains("accepted"), "{}", server.log());
}
