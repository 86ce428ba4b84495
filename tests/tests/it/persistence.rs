//! What the data's life on disk looks like from outside.

use tests::process::refused;
use tests::temp_dir::TempDir;
use tests::{TestServer, Value, notation, wait_until};

fn new_dir() -> TempDir {
    TempDir::new("persistence")
}

fn flags(dir: &TempDir) -> [&str; 2] {
    ["--data-dir", dir.text()]
}

fn start(dir: &TempDir) -> TestServer {
    TestServer::start(&flags(dir))
}

/// Calls whose replies tell all that the data is, for keys of these names.
const QUESTIONS: &[&str] = &[
    "GET text",
    "GET counter",
    "LRANGE list 0 -1",
    "HGETALL hash",
    "SMEMBERS one",
    "ZRANGE zset 0 -1 WITHSCORES",
    "PEXPIRETIME text",
    "OBJECT STICKY counter",
    "OBJECT STICKY text",
    "EXISTS gone renamed",
    "XRANGE stream - +",
    "XINFO STREAM stream",
    "XINFO GROUPS stream",
    "XPENDING stream group",
    "LLEN big-list",
    "LINDEX big-list 700",
    "XLEN big-stream",
    "XPENDING big-stream group",
    "XRANGE big-stream 700 701",
    "HLEN big-hash",
    "HGET big-hash field77",
    "HPEXPIRETIME hash FIELDS 2 f1 f2",
    "HPEXPIRETIME big-hash FIELDS 2 field77 field78",
    "DBSIZE",
    "SCRIPT EXISTS 4e6d8fc8bb01276962cce5371fa795a7763657ae e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
    "SCRIPT FLAGS 4e6d8fc8bb01276962cce5371fa795a7763657ae",
    "FUNCTION LIST WITHCODE",
    "FCALL answer 0",
];

fn reported(server: &TestServer, line: &str) -> String {
    notation::reply(&server.client().run(line))
}

fn answers(server: &TestServer) -> Vec<String> {
    let mut client = server.client();
    QUESTIONS.iter().map(|line| format!("{line}: {}", notation::reply(&client.run(line)))).collect()
}

fn fill(server: &TestServer) {
    let mut client = server.client();
    for line in [
        "SET text hello PXAT 4102444800000",
        "SET counter 41 STICK",
        "INCR counter",
        "RPUSH list a b c",
        "LPUSH list z",
        "LREM list 1 b",
        "HSET hash f1 v1 f2 v2",
        "HDEL hash f1",
        "HPEXPIREAT hash 4102444800000 FIELDS 1 f2",
        "SADD one member",
        "ZADD zset 1.5 m 2 n",
        "ZINCRBY zset 1 m",
        "XADD stream 1-1 a 1",
        "XADD stream 1-2 a 2",
        "XADD stream 2-1 b 3",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one COUNT 2 STREAMS stream >",
        "XACK stream group 1-2",
        "XDEL stream 1-2",
        "SET gone 1",
        "RENAME gone renamed",
        "DEL renamed",
        "SCRIPT FLAGS 4e6d8fc8bb01276962cce5371fa795a7763657ae no-writes",
    ] {
        let reply = client.run(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    client.call(["SCRIPT", "LOAD", "return redis.call('get', KEYS[1])"]);
    client.call([
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('answer', function() return 42 end)",
    ]);
    client.eval("for i = 1, 1000 do redis.call('rpush', KEYS[1], 'element ' .. i) end", &["big-list"], &[]);
    client.eval(
        "for i = 1, 1000 do redis.call('hset', KEYS[1], 'field' .. i, 'value ' .. i) end",
        &["big-hash"],
        &[],
    );
    client.run("HPEXPIREAT big-hash 4102444800001 FIELDS 2 field76 field77");
    client.eval(
        "for i = 1, 1000 do redis.call('xadd', KEYS[1], i .. '-0', 'field', 'value ' .. i) end
        redis.call('xgroup', 'create', KEYS[1], 'group', '5')
        redis.call('xreadgroup', 'group', 'group', 'one', 'count', 300, 'streams', KEYS[1], '>')",
        &["big-stream"],
        &[],
    );
}

#[test]
fn what_was_there_is_there_again() {
    let dir = new_dir();
    let mut server = start(&dir);
    fill(&server);
    let wanted = answers(&server);
    assert!(wanted.iter().all(|answer| !answer.contains(": -")), "{wanted:#?}");
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
    // From the journal, then from the checkpoint.
    let server = start(&dir);
    assert_eq!(answers(&server), wanted);
    assert_eq!(reported(&server, "SAVE"), "+OK");
    assert_eq!(server.info("rdb_changes_since_last_save"), 0);
    drop(server);
    let server = start(&dir);
    assert_eq!(answers(&server), wanted);
}

#[test]
fn a_kill_loses_nothing_that_sync_has_promised() {
    let dir = new_dir();
    for round in 0..3 {
        let server = TestServer::start(&[&flags(&dir)[..], &["--durability", "sync"]].concat());
        assert_eq!(server.info_text("durability"), "sync");
        let mut client = server.client();
        for number in 0..100 {
            assert_eq!(notation::reply(&client.run("INCR counter")), (round * 100 + number + 1).to_string());
        }
        // SIGKILL, as every test ends its server.
        drop(server);
    }
}

#[test]
fn changes_that_come_together_share_a_flush() {
    let dir = new_dir();
    let server = TestServer::start(&[&flags(&dir)[..], &["--durability", "sync"]].concat());
    std::thread::scope(|scope| {
        for number in 0..20 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..50 {
                    client.run(&format!("INCR counter{number}"));
                }
            });
        }
    });
    let (changes, flushes) = (server.info("journal_durable"), server.info("journal_flushes"));
    assert_eq!(changes, 1000);
    assert!(flushes < 500, "{flushes} flushes for 1000 changes");
}

#[test]
fn saving_is_told_in_the_words_of_redis() {
    let dir = new_dir();
    let mut server = start(&dir);
    let before = reported(&server, "LASTSAVE");
    assert_eq!(reported(&server, "SET a 1"), "+OK");
    assert_eq!(reported(&server, "BGSAVE SCHEDULE"), "+Background saving started");
    wait_until("all is in the checkpoint", || server.info("rdb_changes_since_last_save") == 0);
    wait_until("the saving has ended", || server.info("rdb_bgsave_in_progress") == 0);
    assert!(reported(&server, "LASTSAVE") >= before);
    assert_eq!(reported(&server, "BGREWRITEAOF"), "+Background append only file rewriting started");
    assert_eq!(reported(&server, "BGSAVE NOW"), "-ERR syntax error");
    assert_eq!(reported(&server, "SHUTDOWN MAYBE"), "-ERR syntax error");
    for both in ["SAVE NOSAVE", "NOW ABORT"] {
        assert_eq!(reported(&server, &format!("SHUTDOWN {both}")), "-ERR syntax error", "{both}");
    }
    assert_eq!(reported(&server, "SHUTDOWN ABORT"), "-ERR No shutdown in progress.");
    assert_eq!(reported(&server, "CONFIG GET appendonly"), "[\"appendonly\", \"yes\"]");
    let mut client = server.client();
    client.send(["SHUTDOWN"]);
    assert!(client.is_closed());
    assert!(server.wait().success());
    assert_eq!(reported(&start(&dir), "GET a"), "\"1\"");
}

#[test]
fn whoever_wants_to_lose_changes_may() {
    let dir = new_dir();
    let mut server = start(&dir);
    reported(&server, "SET kept 1");
    assert_eq!(reported(&server, "SAVE"), "+OK");
    let mut client = server.client();
    // In one piece, so that no flush comes between.
    client.send_raw(b"SET lost 1\r\nSHUTDOWN NOSAVE\r\n").expect("sent");
    assert!(server.wait().success());
    let server = start(&dir);
    assert_eq!(reported(&server, "GET kept"), "\"1\"");
    assert!(["nil", "\"1\""].contains(&&*reported(&server, "GET lost")), "a round may have come first");
}

#[test]
fn memory_only_is_told_so() {
    let server = TestServer::start(&["--data-dir", "none"]);
    assert_eq!(server.info_text("durability"), "memory");
    assert_eq!(reported(&server, "SAVE"), "+OK");
    for line in ["BGSAVE", "BGREWRITEAOF"] {
        assert_eq!(
            reported(&server, line),
            "-ERR Persistence is disabled: the server runs with --data-dir none"
        );
    }
    assert_eq!(reported(&server, "CONFIG GET appendonly"), "[\"appendonly\", \"no\"]");
}

#[test]
fn a_folder_belongs_to_one_server() {
    let dir = new_dir();
    let server = start(&dir);
    reported(&server, "SET a 1");
    let other = refused(&[&flags(&dir)[..], &["--resp", "127.0.0.1:0"]].concat());
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && text.contains("is in use by another process"), "{text}");
    assert_eq!(reported(&server, "GET a"), "\"1\"");
}

#[test]
fn a_folder_that_cannot_be_had_is_named() {
    let file = std::env::temp_dir().join(format!("moonshard-no-folder-{}", std::process::id()));
    std::fs::write(&file, "a file").expect("written");
    let name = file.to_str().expect("a path of letters");
    let output = refused(&["--data-dir", name, "--resp", "127.0.0.1:0"]);
    let _ = std::fs::remove_file(&file);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains(name) && text.lines().count() == 1, "{text}");
}
