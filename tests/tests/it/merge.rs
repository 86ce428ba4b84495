//! `moonshard store restore --merge`: an RDB file is added to a server that serves.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use tests::process::command;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, Protocol, TestServer, Value, notation};

fn ended(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Adds a file to a server; the exit code, and what was said.
fn merge(file: &str, address: impl std::fmt::Display, options: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("redis://{address}");
    let args = [&["store", "restore", file, "--merge", &url], options].concat();
    ended(&command(&args).output().expect("it starts"))
}

/// A backup of a server with values of all types.
fn backup(dir: &TempDir) -> String {
    let server = TestServer::start(&[]);
    server.client().run_all(&[
        "MSET text hello number 12",
        "SET later x PXAT 5102444800123",
        "SET stays x STICK",
        "RPUSH list a 1 '' b",
        "HSET hash f v g w",
        "HSET timed f v g w",
        "HPEXPIREAT timed 5102444800123 FIELDS 1 f",
        "SADD set a b 1",
        "ZADD zset 1.5 a -inf b",
        "XADD stream 1-1 a 1 b text",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one STREAMS stream >",
        "SELECT 7",
        "SET text 'in another database'",
    ]);
    let mut client = server.client();
    client.eval("for i = 1, 3000 do redis.call('set', 'many' .. i, ('x'):rep(i)) end", &[], &[]);
    client.call(["SCRIPT", "LOAD", "return 1"]);
    client.run_all(&["SCRIPT FLAGS e0e1f9fabfc9d4800c877a703b823ac0578ff8db no-writes"]);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 42 end)";
    assert_eq!(client.call(["FUNCTION", "LOAD", library]), Value::Bulk(b"lib".to_vec()));
    let file = dir.child("dump.rdb");
    let output = command(&["backup", &format!("redis://{}", server.address()), &file]).output();
    assert_eq!(ended(&output.expect("it starts")).0, Some(0));
    file
}

/// What both servers understand, in both databases.
const QUESTIONS: &[&str] = &[
    "MGET text number later stays",
    "PEXPIRETIME later",
    "LRANGE list 0 -1",
    "HGETALL hash",
    "SMEMBERS set",
    "ZRANGE zset 0 -1 WITHSCORES",
    "XRANGE stream - +",
    "XPENDING stream group",
    "STRLEN many3000",
    "FCALL f 0",
    "SELECT 7",
    "GET text",
    "DBSIZE",
    "SELECT 0",
];

fn answers(client: &mut Client) -> Vec<String> {
    let answer = |line: &&str| {
        let reply = client.run(line);
        let is_ordered = !line.starts_with("SM") && !line.starts_with("HG");
        if is_ordered { notation::reply(&reply) } else { notation::unordered(&reply) }
    };
    QUESTIONS.iter().map(answer).collect()
}

const WANTED: &[&str] = &[
    r#"["hello", "12", "x", "x"]"#,
    "5102444800123",
    r#"["a", "1", "", "b"]"#,
    r#"unordered {["f", "v"], ["g", "w"]}"#,
    r#"unordered ~{"1", "a", "b"}"#,
    r#"[["b", -inf], ["a", 1.5]]"#,
    r#"[["1-1", ["a", "1", "b", "text"]]]"#,
    r#"[1, "1-1", "1-1", [["one", "1"]]]"#,
    "3000",
    "42",
    "+OK",
    r#""in another database""#,
    "1",
    "+OK",
];

#[test]
fn a_file_is_added_to_what_a_server_has() {
    let dir = TempDir::made("merge");
    let file = backup(&dir);
    let server = TestServer::start(&[]);
    let mut client = Client::connect(server.address(), Protocol::Resp3);
    client.run_all(&["SET text mine", "SET own 1"]);
    let (code, out, err) = merge(&file, server.address(), &[]);
    assert_eq!(code, Some(2), "{out}{err}");
    assert_eq!(out, "3010 keys, 1 libraries and 1 scripts restored, 0 expired keys skipped, 1 refused\n");
    assert_eq!(
        err,
        "moonshard: key \"text\" of database 0: BUSYKEY Target key name already exists.\n\
         moonshard: the server refused 1 keys, scripts or libraries\n"
    );
    assert_eq!(notation::reply(&client.run("MGET text own")), r#"["mine", "1"]"#);

    // Again, with everything of the file in the place of what is there.
    let (code, out, err) = merge(&file, server.address(), &["--replace"]);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    assert!(out.starts_with("3011 keys, 1 libraries and 1 scripts restored, "), "{out}");
    assert_eq!(answers(&mut client), WANTED);
    for (line, wanted) in [
        ("GET own", r#""1""#),
        ("DBSIZE", "3011"),
        ("OBJECT STICKY stays", "1"),
        ("OBJECT STICKY text", "0"),
        ("HPEXPIRETIME timed FIELDS 2 f g", "[5102444800123, -1]"),
        ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "1"),
        ("SCRIPT FLAGS e0e1f9fabfc9d4800c877a703b823ac0578ff8db", r#"["no-writes"]"#),
    ] {
        assert_eq!(notation::reply(&client.run(line)), wanted, "{line}");
    }
}

#[test]
fn a_file_is_added_to_redis() {
    let Some(redis) = Oracle::start() else { return };
    let dir = TempDir::made("merge-redis");
    let file = backup(&dir);
    let (code, out, err) = merge(&file, redis.address(), &[]);
    // Redis 7.0 has no fields that expire.
    assert_eq!(code, Some(2), "{out}{err}");
    let refused = "moonshard: key \"timed\" of database 0: ERR DUMP payload version or checksum are wrong\n";
    assert!(err.starts_with(refused) && err.lines().count() == 2, "{err}");
    let mut client = Client::connect(redis.address(), Protocol::Resp3);
    assert_eq!(answers(&mut client), WANTED);
    assert_eq!(notation::reply(&client.run("DBSIZE")), "3009");
}

#[test]
fn what_stops_everything_is_told_with_how_far_it_came() {
    let dir = TempDir::made("merge-stops");
    let file = backup(&dir);
    let server = TestServer::start(&[]);
    let mut admin = server.client();
    admin.run_all(&["ACL SETUSER no on >p ~* +@all -restore"]);
    let (code, out, err) = merge(&file, format!("no:p@{}", server.address()), &[]);
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 1, "{err}");
    assert!(lines[0].starts_with("moonshard: stopped after 0 keys: key "), "{err}");
    assert!(lines[0].contains("of database 0: NOPERM "), "{err}");

    // Of a damaged file nothing is sent, unless it can be read only once.
    let mut bytes = fs::read(&file).expect("a file");
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    fs::write(&file, &bytes).expect("written");
    let (code, out, err) = merge(&file, server.address(), &[]);
    assert_eq!((code, &*out), (Some(1), ""), "{err}");
    assert!(err.contains("the checksum is another; nothing was restored"), "{err}");
    assert_eq!(notation::reply(&admin.run("DBSIZE")), "0");
    let (code, _, err) = merge_of(&bytes, &server);
    assert_eq!(code, Some(1), "{err}");
    // The library is there from the first attempt.
    let last = err.lines().last().expect("a line");
    let told = last.starts_with("moonshard: stopped after ") && last.ends_with("the checksum is another");
    assert!(told, "{err}");

    let (code, _, err) = merge(&dir.child("none"), server.address(), &[]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("moonshard: cannot read ") && err.lines().count() == 1, "{err}");
}

/// Adds what is written to standard input.
fn merge_of(bytes: &[u8], server: &TestServer) -> (Option<i32>, String, String) {
    let url = format!("redis://{}", server.address());
    let mut restore = command(&["store", "restore", "-", "--merge", &url]);
    let piped = restore.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads all");
    ended(&child.wait_with_output().expect("it ends"))
}

/// What Redis 8.10 writes: a template of fields, a key with it, streams, fields that expire.
#[test]
fn files_of_redis_8_and_valkey_9_are_read() {
    let far = 5_102_444_800_123_u64.to_le_bytes();
    let redis = [
        &b"REDIS0015\xfa\x09redis-ver\x068.10.0\xf2\x01\x02\x01a\x01b\xfe\0\xfb\x05\x01"[..],
        // Used 70 s ago; the fields are those of the template.
        b"\xf8\x40\x46\x20\x05tmpl1\x01\x011\x012",
        b"\x1e\x05tmpl2\x0d\x0d\0\0\0\x03\0\x01\x01\x03\x01\x04\x01\xff",
        // A key that has expired, a hash whose only field has, and one of whose fields one has.
        b"\xfc\x05\0\0\0\0\0\0\0\0\x04gone\x01v",
        b"\x18\x06gone-f\x05\0\0\0\0\0\0\0\x01\x01\x01f\x01v",
        b"\x18\x04half",
        &5_u64.to_le_bytes(),
        b"\x02\x01\x01f\x01v\0\x01g\x01w",
        // An empty stream of 8.6 with an idempotent producer, and of 8.8.
        b"\x1a\x02s4\0\0\x05\x01\0\0\x05\x01\x02\0\x40\x64\x40\x64\x01\x01p\x01\x01a\x05\0\x01\0",
        b"\x1b\x02s5\0\0\x05\x01\0\0\x05\x01\x02\x01\x01g\x05\x01\x02\0\0\0\x40\x64\x40\x64\0\0\0",
        b"\xff\0\0\0\0\0\0\0\0",
    ];
    let valkey = [
        &b"VALKEY080\xfe\0\x16\x01h\x02\x01f\x01v"[..],
        &far,
        b"\x01g\x01w\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
    ];
    let server = TestServer::start(&[]);
    let (code, out, err) = merge_of(&redis.concat(), &server);
    assert_eq!((code, &*err), (Some(0), ""));
    let wanted = "5 keys, 0 libraries and 0 scripts restored, 2 expired keys skipped, 0 refused\n";
    assert_eq!(out, wanted);
    let (code, _, err) = merge_of(&valkey.concat(), &server);
    assert_eq!((code, &*err), (Some(0), ""));
    let mut client = server.client();
    for (line, wanted) in [
        ("DBSIZE", "6"),
        ("HMGET tmpl1 a b", r#"["1", "2"]"#),
        ("HMGET tmpl2 a b", r#"["3", "4"]"#),
        ("HGETALL half", r#"["g", "w"]"#),
        ("HLEN half", "1"),
        ("HPEXPIRETIME h FIELDS 2 f g", "[5102444800123, -1]"),
        ("XADD s4 5-2 a b", r#""5-2""#),
        ("XLEN s5", "0"),
    ] {
        assert_eq!(notation::reply(&client.run(line)), wanted, "{line}");
    }
    // The same, offline.
    let dir = TempDir::made("merge-offline");
    let (file, data) = (dir.child("file.rdb"), dir.child("data"));
    fs::write(&file, redis.concat()).expect("written");
    let output = command(&["store", "restore", &file, &data]).output().expect("it starts");
    assert_eq!(ended(&output).1, "5 keys restored, 2 expired keys skipped\n");
    let dump = dir.child("valkey.rdb");
    let output = command(&["store", "dump", &data, &dump, "--rdb-version", "80"]).output();
    assert_eq!(ended(&output.expect("it starts")).0, Some(0));
    assert!(fs::read(&dump).expect("a file").starts_with(b"VALKEY080"));
    // What is of a module is refused by its name.
    let vectors = b"REDIS0012\x07\x01k\x81\xbd\xe7\x2d\xa2\xbb\x1e\xb4\x01\0";
    fs::write(&file, vectors).expect("written");
    let (code, _, err) = merge(&file, server.address(), &[]);
    let name = "values of the module type vectorset; nothing was restored";
    assert!(code == Some(2) && err.contains(name), "{err}");
}
