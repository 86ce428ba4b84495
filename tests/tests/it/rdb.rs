//! Values and files in Redis' form travel between Redis and us, both ways and in all forms.

use store_engine::rdb::file::{RdbItem, RdbReader, RdbWriter};
use store_engine::rdb::{self, KeyMeta, Version};
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, Protocol, TestServer, Value, notation, wait_until};

/// What there is to travel: small and large, numbers and texts, what can be packed and what cannot.
fn fill(client: &mut Client) -> Vec<&'static str> {
    let mut send = |line: &str| {
        let reply = client.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
    };
    for line in [
        "MSET text 'some text' empty '' int 12 short -300 long 123456 wide 12345678901234 float 3.5 packed \"ab\"*400",
        "SET bytes \"\\x00\\xff\\r\\n\"",
        "RPUSH list a '' 10 c -5000 70000 -8388608 2147483648 9223372036854775807 \"x\"*70 \"long\"*2000",
        "RPUSH list-big \"x\"*20000 \"y\"*70000",
        "HSET hash a 1 b text '' empty c ''",
        "HSET hash-long field \"x\"*70",
        "SADD set-16 1 -300 32767",
        "SADD set-32 1 -70000 2147483647",
        "SADD set-64 1 -9223372036854775808 9223372036854775807",
        "SADD set-text a b 10 '' \"x\"*100",
        "ZADD zset 1 a 2.5 b -inf c inf d 1e20 e 0.1 f 3 10 -4503599627370497 ''",
        "ZADD zset-long 0.1 \"x\"*70 -0.1 a",
        "XADD stream 1-1 a 1 b text",
        "XADD stream 1-2 a -300 b 123456",
        "XADD stream 7-0 other \"x\"*70 '' \"\\x00\\xff\"",
        "XADD stream 7-9 a \"long\"*2000 b ''",
        "XADD stream 18446744073709551615-0 a 1",
        "XDEL stream 1-2",
        "XGROUP CREATE stream 10 0",
        "XGROUP CREATE stream group $ ENTRIESREAD 3",
        "XREADGROUP GROUP 10 anna COUNT 2 STREAMS stream >",
        "XREADGROUP GROUP 10 bert STREAMS stream >",
        "XGROUP CREATECONSUMER stream group 12",
        "XACK stream 10 7-0",
        "XDEL stream 7-9",
        "XGROUP CREATE stream-empty group 5-5 MKSTREAM",
    ] {
        send(line);
    }
    let numbers = |from: i64, step: i64| (0..1500).map(move |at| (from + at * step).to_string());
    let twice = |number: String| format!("{number} {number}");
    for (name, words) in [
        ("RPUSH list-many", numbers(0, 1).collect::<Vec<_>>()),
        ("SADD set-many", numbers(-70_000, 100).collect()),
        ("SADD set-many-texts", numbers(0, 1).map(|number| format!("m{number}")).collect()),
        ("HSET hash-many", numbers(0, 1).map(twice).collect()),
        ("ZADD zset-many", numbers(-5, 3).map(twice).collect()),
    ] {
        send(&format!("{name} {}", words.join(" ")));
    }
    for number in numbers(-70_000, 100) {
        send(&format!("XADD stream-many 5-* field {number}"));
    }
    send("XTRIM stream-many MAXLEN 1234");
    vec![
        "GET text",
        "GET empty",
        "GET int",
        "GET short",
        "GET long",
        "GET wide",
        "GET float",
        "GET packed",
        "GET bytes",
        "LRANGE list 0 -1",
        "LRANGE list-big 0 -1",
        "LRANGE list-many 0 -1",
        "HGETALL hash",
        "HGETALL hash-long",
        "HGETALL hash-many",
        "SMEMBERS set-16",
        "SMEMBERS set-32",
        "SMEMBERS set-64",
        "SMEMBERS set-text",
        "SMEMBERS set-many",
        "SMEMBERS set-many-texts",
        "ZRANGE zset 0 -1 WITHSCORES",
        "ZRANGE zset-long 0 -1 WITHSCORES",
        "ZRANGE zset-many 0 -1 WITHSCORES",
        "XRANGE stream - +",
        "XPENDING stream 10",
        "XRANGE stream-empty - +",
        "XRANGE stream-many - +",
    ]
}

/// What `read` gives, without the order that Redis does not promise.
fn contents(client: &mut Client, read: &str) -> String {
    let reply = client.run(read);
    if read.starts_with('S') || read.starts_with('H') {
        notation::unordered(&reply)
    } else {
        notation::reply(&reply)
    }
}

fn text_of(reply: Value) -> Vec<u8> {
    reply.text().unwrap_or_else(|| panic!("a string, not {}", notation::reply(&reply))).to_vec()
}

fn expect_ok(reply: &Value, what: &str) {
    assert_eq!(notation::reply(reply), "+OK", "{what}");
}

#[test]
fn values_travel_both_ways_however_redis_keeps_them() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    // In RESP3 a hash is a map: what belongs together stays so when the order is taken away.
    let mut redis = Client::connect(oracle.address(), Protocol::Resp3);
    let mut ours = Client::connect(server.address(), Protocol::Resp3);
    expect_ok(&redis.run("CONFIG SET sanitize-dump-payload yes"), "checks everything");
    for settings in [
        &["rdbcompression yes"][..],
        &["rdbcompression no"],
        &["list-max-listpack-size 3", "list-compress-depth 0"],
        &["list-max-listpack-size -1", "list-compress-depth 1", "rdbcompression yes"],
        &["hash-max-listpack-entries 0", "set-max-intset-entries 0", "zset-max-listpack-entries 0"],
        &["hash-max-listpack-entries 5000", "set-max-intset-entries 5000", "zset-max-listpack-entries 5000"],
        &["hash-max-listpack-value 5000", "zset-max-listpack-value 5000"],
        &["DEBUG QUICKLIST-PACKED-THRESHOLD 60b"],
    ] {
        for setting in settings {
            let line = if setting.contains("DEBUG") {
                (*setting).to_owned()
            } else {
                format!("CONFIG SET {setting}")
            };
            expect_ok(&redis.run(&line), &line);
        }
        expect_ok(&redis.run("FLUSHALL"), "FLUSHALL");
        for read in fill(&mut redis) {
            let key = read.split(' ').nth(1).expect("a key");
            let wanted = contents(&mut redis, read);
            let theirs = text_of(redis.call(["DUMP", key]));
            let what = format!("{key} with {settings:?}");
            expect_ok(&ours.call([b"RESTORE", key.as_bytes(), b"0", &theirs, b"REPLACE"]), &what);
            assert_eq!(contents(&mut ours, read), wanted, "{what}");
            let back = text_of(ours.call(["DUMP", key]));
            if key.starts_with("stream") && settings == ["rdbcompression no"] {
                assert!(back == theirs, "{what}: another dump");
                let reported = ["GROUPS", "STREAM"].map(|what| ["XINFO", what, key]);
                let reported = reported.map(|call| [&mut redis, &mut ours].map(|client| client.call(call)));
                assert!(reported.iter().all(|[theirs, ours]| theirs == ours), "{what}: {reported:?}");
            }
            expect_ok(&redis.call([b"RESTORE", key.as_bytes(), b"0", &back, b"REPLACE"]), &what);
            assert_eq!(contents(&mut redis, read), wanted, "{what}, come back");
        }
    }
}

/// A ziplist of these entries, each without the length of the one before.
fn ziplist(entries: &[Vec<u8>]) -> Vec<u8> {
    let (mut body, mut before, mut last) = (Vec::new(), 0, 10);
    for entry in entries {
        let start = body.len();
        last = 10 + start;
        match u8::try_from(before) {
            Ok(before @ 0..254) => body.push(before),
            _ => {
                body.push(254);
                body.extend_from_slice(&(before as u32).to_le_bytes());
            }
        }
        body.extend_from_slice(entry);
        before = body.len() - start;
    }
    let size = (body.len() + 11) as u32;
    let header = [size.to_le_bytes(), (last as u32).to_le_bytes()].concat();
    [&header, &(entries.len() as u16).to_le_bytes()[..], &body, &[255]].concat()
}

/// A value of this kind in one string.
fn packed(kind: u8, text: &[u8]) -> Vec<u8> {
    let mut body = vec![kind];
    rdb::write_string(&mut body, text).expect("memory takes all");
    body
}

/// Bodies that Redis wrote once, what reads them, and what that gives.
fn old_forms() -> Vec<(Vec<u8>, &'static str, String)> {
    let text = |word: &str| [&[word.len() as u8], word.as_bytes()].concat();
    let long = [&[0x41, 0x2c][..], "x".repeat(300).as_bytes()].concat();
    let huge = [&[0x80, 0, 0, 0x4e, 0x20][..], "y".repeat(20_000).as_bytes()].concat();
    let numbers = [
        &b"\xc0\x2c\x01"[..],
        b"\xd0\xc0\x63\xff\xff",
        b"\xe0\0\0\0\0\0\0\0\x80",
        b"\xf0\0\0\x80",
        b"\xfe\xfb",
        b"\xf1",
        b"\xfd",
    ];
    let mut entries: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_vec()).collect();
    entries.extend([text("a"), long, text("b"), huge, text("")]);
    let list = format!(
        r#"["300", "-40000", "-9223372036854775808", "-8388608", "-5", "0", "12", "a", "{}", "b", "{}", ""]"#,
        "x".repeat(300),
        "y".repeat(20_000)
    );
    let quicklist =
        [&[14, 2][..], &packed(0, &ziplist(&entries))[1..], &packed(0, &ziplist(&[text("z")]))[1..]];
    let two = list.replace(r#", ""]"#, r#", "", "z"]"#);
    let hash = ziplist(&[text("a"), b"\xf2".to_vec(), text("b"), text("text")]);
    let scores = ziplist(&[text("a"), b"\xf2".to_vec(), text("b"), text("2.5"), text("c"), text("inf")]);
    let zipmap = b"\x02\x01a\x01\x001\x01b\x04\x03text...\xff";
    let big_zipmap = [&b"\x01\x01a\xfe\x2c\x01\0\0\0"[..], "x".repeat(300).as_bytes(), b"\xff"].concat();
    // One entry, which is pending for a consumer.
    let id = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01";
    let time = 5_u64.to_le_bytes();
    let stream = [
        &b"\x0f\x01\x10"[..],
        id,
        b"\x1c\x1c\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81a\x02\0\x01\x02\x01\0\x01\0\x01\x01\x01\x04\x01\xff",
        b"\x01\x05\x01\x01\x01g\x05\x01\x01",
        id,
        &time,
        b"\x01\x01\x01c",
        &time,
        b"\x01",
        id,
    ];
    let zset = b"\x03\x05\x01a\x011\x01b\x042.50\x01c\xff\x01d\xfe\x01e\x051e+20".to_vec();
    let hash_reply = r#"["a", "1", "b", "text"]"#.to_owned();
    let zset_reply = |tail: &str| format!(r#"["a", "1", "b", "2.5"{tail}]"#);
    vec![
        (b"\x00\xc3\x05\x0a\x00a\xe0\x00\x00".to_vec(), "GET k", r#""aaaaaaaaaa""#.into()),
        (b"\x01\x03\x01a\xc0\x05\x00".to_vec(), "LRANGE k 0 -1", r#"["a", "5", ""]"#.into()),
        (packed(10, &ziplist(&entries)), "LRANGE k 0 -1", list),
        (quicklist.concat(), "LRANGE k 0 -1", two),
        (b"\x04\x02\x01a\xc0\x01\x01b\x04text".to_vec(), "HGETALL k", hash_reply.clone()),
        (packed(13, &hash), "HGETALL k", hash_reply.clone()),
        (packed(9, zipmap), "HGETALL k", hash_reply),
        (packed(9, &big_zipmap), "HGETALL k", format!(r#"["a", "{}"]"#, "x".repeat(300))),
        (stream.concat(), "XRANGE k - +", r#"[["5-1", ["a", "1"]]]"#.into()),
        (stream.concat(), "XPENDING k g", r#"[1, "5-1", "5-1", [["c", "1"]]]"#.into()),
        (packed(12, &scores), "ZRANGE k 0 -1 WITHSCORES", zset_reply(r#", "c", "inf""#)),
        (
            zset,
            "ZRANGE k 0 -1 WITHSCORES",
            r#"["c", "-inf", "a", "1", "b", "2.5", "e", "1e+20", "d", "inf"]"#.into(),
        ),
    ]
}

#[test]
fn what_old_versions_wrote_is_read() {
    let server = TestServer::start(&[]);
    let oracle = Oracle::start();
    let mut clients = vec![server.client()];
    clients.extend(oracle.iter().map(|oracle| {
        let mut client = oracle.client();
        expect_ok(&client.run("CONFIG SET sanitize-dump-payload yes"), "checks everything");
        client
    }));
    for (mut body, read, wanted) in old_forms() {
        let kind = body[0];
        rdb::seal(&mut body);
        for client in &mut clients {
            let reply = client.call([&b"RESTORE"[..], b"k", b"0", &body, b"REPLACE"]);
            expect_ok(&reply, &format!("kind {kind}"));
            assert_eq!(notation::reply(&client.run(read)), wanted, "kind {kind}");
        }
    }
}

/// What Redis 7.2 writes and Redis 7.0 cannot read.
#[test]
fn what_newer_versions_write_is_read() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let mut body = packed(20, b"\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff");
    rdb::seal(&mut body);
    expect_ok(&client.call([&b"RESTORE"[..], b"k", b"0", &body]), "a set in a listpack");
    assert_eq!(contents(&mut client, "SMEMBERS k"), r#"unordered ["5", "a"]"#);
    // A stream without entries, with a consumer of whom it is known when he last got something.
    let times = [5_u64.to_le_bytes(), 6_u64.to_le_bytes()].concat();
    let mut body =
        [&b"\x15\0\0\x05\x01\0\0\x05\x01\x02\x01\x01g\x05\x01\x02\0\x01\x01c"[..], &times, b"\0"].concat();
    rdb::seal(&mut body);
    expect_ok(&client.call([&b"RESTORE"[..], b"s", b"0", &body]), "a stream of Redis 7.2");
    assert_eq!(
        notation::reply(&client.run("XINFO STREAM s FULL")),
        r#"["length", 0, "radix-tree-keys", 0, "radix-tree-nodes", 1, "last-generated-id", "5-1", "max-deleted-entry-id", "5-1", "entries-added", 2, "recorded-first-entry-id", "0-0", "entries", [], "groups", [["name", "g", "last-delivered-id", "5-1", "entries-read", 2, "lag", 0, "pel-count", 0, "pending", [], "consumers", [["name", "c", "seen-time", 5, "pel-count", 0, "pending", []]]]]]"#
    );
}

fn write(writer: &mut RdbWriter<Vec<u8>>, event: &RdbItem, db: &mut Option<usize>) -> std::io::Result<()> {
    match event {
        RdbItem::Aux { name, value } => writer.aux(name, value),
        RdbItem::Script(text) => writer.script(text),
        RdbItem::Library(text) => writer.function_library(text),
        RdbItem::Key { db: now, key, entry, meta } => {
            if *db != Some(*now) {
                writer.database(*now, 3, 1)?;
                *db = Some(*now);
            }
            writer.key(key, entry, *meta)
        }
    }
}

#[test]
fn a_file_of_redis_is_read_and_redis_reads_ours() {
    let (theirs, ours) = (TempDir::made("theirs"), TempDir::made("ours"));
    let Some(redis) = Oracle::start_in(theirs.path()) else { return };
    let mut client = redis.client();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    assert_eq!(client.call(["FUNCTION", "LOAD", library]), Value::Bulk(b"lib".to_vec()));
    fill(&mut client);
    for line in ["PEXPIREAT text 5102444800123", "EXPIREAT zset 5102444800", "SELECT 3"] {
        client.run(line);
    }
    fill(&mut client);
    for line in
        ["EXPIREAT list 5102444801", "SELECT 15", "SET 1234567 x", "CONFIG SET maxmemory-policy allkeys-lru"]
    {
        client.run(line);
    }
    let digest = client.run("DEBUG DIGEST");
    let functions = client.run("FUNCTION LIST WITHCODE");
    expect_ok(&client.run("SAVE"), "SAVE");

    let file = std::fs::read(theirs.child("dump.rdb")).expect("a file");
    let reader = RdbReader::new(&*file).expect("a header");
    let events: Vec<RdbItem> = reader.map(|event| event.expect("no damage")).collect();
    let libraries =
        events.iter().filter(|event| matches!(event, RdbItem::Library(text) if text == library.as_bytes()));
    assert_eq!(libraries.count(), 1);
    let version = |event: &&RdbItem| matches!(event, RdbItem::Aux { name, value } if name == b"redis-ver" && value == b"7.0.15");
    assert_eq!(events.iter().filter(version).count(), 1);
    let idle = |event: &&RdbItem| matches!(event, RdbItem::Key { meta: KeyMeta { idle_s: Some(_), .. }, .. });
    assert_eq!(events.iter().filter(idle).count(), 27 + 27 + 1, "all keys say when they were used");

    let mut writer = RdbWriter::new(Vec::new(), Version::default()).expect("memory takes all");
    let mut db = None;
    writer.script(b"return 1").expect("memory takes all");
    for (number, mut event) in events.into_iter().enumerate() {
        if let RdbItem::Key { meta, .. } = &mut event {
            meta.sticky = number % 2 == 0;
        }
        write(&mut writer, &event, &mut db).expect("memory takes all");
    }
    let written = writer.finish().expect("memory takes all");
    std::fs::write(ours.child("dump.rdb"), &written).expect("written");
    let again = Oracle::start_in(ours.path()).expect("it reads the file");
    let mut client = again.client();
    wait_until("the file is loaded", || client.run("PING") == Value::Status(b"PONG".to_vec()));
    assert_eq!(client.run("DEBUG DIGEST"), digest);
    assert_eq!(client.run("FUNCTION LIST WITHCODE"), functions);

    let sticky = RdbReader::new(&*written).expect("a header").map(|event| event.expect("no damage"));
    let sticky =
        sticky.filter(|event| matches!(event, RdbItem::Key { meta: KeyMeta { sticky: true, .. }, .. }));
    assert!((20..30).contains(&sticky.count()), "every second one");
}
