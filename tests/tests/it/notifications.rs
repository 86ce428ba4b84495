//! Keyspace notifications, event by event as Redis sends them.

use std::net::SocketAddr;

use store_engine::Protocol;
use tests::cluster::TestCluster;
use tests::{Client, Oracle, TestServer, Value, notation, wait_until};

/// Calls, separated by `;`, each line with an empty database before it.
const CASES: &str = "
SET k v ; SET k w ; SET k w EX 100 ; SET k w KEEPTTL ; SET k x NX ; SET k x GET ; SETNX n 1 ; SETNX n 2
SETEX k 100 v ; PSETEX k 100000 v ; GETSET k w ; GETSET new v ; GETDEL k ; GETDEL nothing
GETEX k ; SET k v ; GETEX k ; GETEX k EX 100 ; GETEX k PERSIST ; GETEX k PERSIST ; GETEX k PXAT 1
MSET a 1 b 2 a 3 ; MSETNX a 1 c 2 ; MSETNX d 1 e 2
INCR i ; INCRBY i 2 ; DECR i ; DECRBY i 3 ; INCRBYFLOAT i 1.5 ; INCR k ; SET s x ; INCR s
APPEND k a ; APPEND k b ; SETRANGE k 3 x ; SETRANGE n 0 \"\" ; SETBIT k 1 1 ; SETBIT k 1 1 ; SETBIT b 7 1
SET a x ; SET b y ; BITOP AND dest a b ; BITOP OR dest none nothing
GET nothing ; MGET a b ; EXISTS a b ; STRLEN a ; TYPE a ; TTL a ; OBJECT ENCODING a ; GETRANGE a 0 1 ; GETBIT a 1
LLEN a ; LRANGE a 0 1 ; HGET a f ; HGETALL a ; SMEMBERS a ; SISMEMBER a m ; ZSCORE a m ; ZRANGE a 0 1 ; TOUCH a ; DUMP a
SET k v ; EXPIRE k 100 ; EXPIRE k 100 NX ; PEXPIRE k 100000 ; EXPIREAT k 9999999999 ; PERSIST k ; PERSIST k ; EXPIRE k -1
SET k v ; PEXPIREAT k 9999999999999 ; EXPIRE k 0 ; EXPIRE nothing 1 ; SET k v ; PEXPIREAT k 1
SET a 1 ; SET b 1 ; DEL a b c ; SET a 1 ; UNLINK a b
SET a 1 ; RENAME a b ; SET a 2 ; RENAME a b ; RENAMENX b c ; SET b 1 ; RENAMENX c b ; RENAME b b
SET a 1 ; COPY a b ; COPY a b ; COPY a b REPLACE ; COPY a c DB 3 ; MOVE a 4 ; SET a 1 ; MOVE a 4 ; EXPIRE a 100 ; COPY a z
LPUSH l a b c ; RPUSH l d ; LPUSHX l z ; RPUSHX l y ; LPUSHX none a ; LPOP l ; RPOP l ; LPOP l 2 ; RPOP l 9 ; LPOP l
RPUSH l a b c d e ; LSET l 0 x ; LINSERT l BEFORE x w ; LINSERT l AFTER none w ; LREM l 0 x ; LREM l 0 none ; LTRIM l 1 -1 ; LTRIM l 0 -1 ; LTRIM l 9 10
RPUSH l a a ; LREM l 0 a ; RPUSH l a ; RPOPLPUSH l m ; RPOPLPUSH m m ; LMOVE m n LEFT RIGHT ; RPUSH m x y ; LMOVE m n RIGHT LEFT ; LMOVE none n LEFT LEFT
RPUSH a 1 2 3 ; LMPOP 2 none a LEFT ; LMPOP 1 a RIGHT COUNT 5 ; RPUSH a 1 2 ; BLPOP a 1 ; BRPOP a 1 ; RPUSH a 1 2 ; BLMOVE a b LEFT LEFT 1 ; BLMPOP 1 1 a LEFT
HSET h a 1 b 2 ; HSET h a 1 ; HMSET h c 3 ; HSETNX h c 4 ; HSETNX h d 4 ; HINCRBY h i 1 ; HINCRBYFLOAT h i 1.5 ; HDEL h none ; HDEL h a b ; HDEL h c d i
SADD s a b ; SADD s a ; SREM s x ; SREM s a ; SREM s b ; SADD s a b c ; SMOVE s t a ; SMOVE s t x ; SADD t b ; SMOVE s t b ; SMOVE s s c ; SMOVE s t c
SADD s a b c d ; SPOP s ; SPOP s 2 ; SPOP s 9 ; SPOP s ; SADD s a ; SPOP s ; SRANDMEMBER s
SADD a 1 2 ; SADD b 2 3 ; SUNIONSTORE d a b ; SINTERSTORE d a b ; SDIFFSTORE d a b ; SINTERSTORE d a none ; SINTERSTORE d a none ; SUNIONSTORE a a b
ZADD z 1 a 2 b ; ZADD z 1 a ; ZADD z 3 a ; ZADD z XX 1 none ; ZADD z INCR 1 a ; ZINCRBY z 1 a ; ZREM z none ; ZREM z a ; ZREM z b
ZADD z 1 a 2 b 3 c 4 d 5 e 6 f ; ZREMRANGEBYRANK z 0 0 ; ZREMRANGEBYSCORE z 2 2 ; ZREMRANGEBYSCORE z 50 60 ; ZREMRANGEBYLEX z - [c ; ZREMRANGEBYRANK z 0 -1
ZADD z 1 a 2 b 3 c 4 d ; ZPOPMIN z ; ZPOPMAX z ; ZPOPMIN z 9 ; ZPOPMIN z ; ZADD z 1 a 2 b 3 c ; ZMPOP 1 z MIN ; ZMPOP 1 z MAX COUNT 9 ; ZADD z 1 a 2 b ; BZPOPMIN z 1 ; BZPOPMAX z 1
ZADD a 1 x 2 y ; ZADD b 5 y 6 z ; ZUNIONSTORE d 2 a b ; ZINTERSTORE d 2 a b ; ZDIFFSTORE d 2 a b ; ZINTERSTORE d 2 a none ; ZRANGESTORE d a 0 -1 ; ZRANGESTORE d a 5 6 ; ZUNIONSTORE a 2 a b
XADD s 1-1 a b ; XADD s MAXLEN 1 2-1 a b ; XADD s MAXLEN 9 3-1 a b ; XADD none NOMKSTREAM 1-1 a b ; XDEL s 9-9 ; XDEL s 3-1 ; XTRIM s MAXLEN 5 ; XTRIM s MAXLEN 0 ; XSETID s 9-9
XGROUP CREATE s g $ MKSTREAM ; XGROUP CREATE s g $ ; XGROUP SETID s g 0 ; XGROUP CREATECONSUMER s g c ; XGROUP CREATECONSUMER s g c ; XGROUP DELCONSUMER s g c ; XGROUP DELCONSUMER s g c ; XGROUP DESTROY s g ; XGROUP DESTROY s g
XADD s 1-1 a b ; XGROUP CREATE s g 0 ; XREADGROUP GROUP g c STREAMS s > ; XREADGROUP GROUP g c STREAMS s > ; XREADGROUP GROUP g c STREAMS s 0 ; XCLAIM s g d 0 1-1 ; XCLAIM s g d 0 1-1 ; XAUTOCLAIM s g e 0 0 ; XACK s g 1-1 ; XACK s g 1-1
XREAD STREAMS s none 0 0 ; XRANGE none - + ; XLEN none ; XADD s 1-1 a b ; XREAD STREAMS s 0 ; XINFO STREAM s
PFADD p a b ; PFADD p a ; PFADD q c ; PFMERGE d p q ; PFMERGE p ; PFCOUNT p q ; PFCOUNT none ; PFADD e
GEOADD g 13.361389 38.115556 a ; GEOADD g 13.361389 38.115556 a ; GEOADD g CH 14 38 a ; GEOSEARCHSTORE d g FROMMEMBER a BYRADIUS 10 km ; GEOSEARCHSTORE d g FROMLONLAT 80 80 BYRADIUS 1 m ; GEORADIUS g 14 38 9 km STORE r ; GEORADIUSBYMEMBER g a 9 km STOREDIST r ; GEORADIUS g 80 80 1 m STORE r ; GEOPOS none a
BITFIELD b SET u8 0 255 ; BITFIELD b GET u8 0 ; BITFIELD b INCRBY u8 0 1 SET u4 8 1 ; BITFIELD b OVERFLOW FAIL INCRBY u8 8 255 ; BITFIELD_RO b GET u8 0 ; BITFIELD none GET u8 0
RPUSH l 3 1 2 ; SORT l STORE d ; SORT none STORE d ; SORT l
SET k v PX 1 ; DEBUG SLEEP 0.02 ; GET k
SET k v ; FLUSHDB ; SET k v ; SWAPDB 0 1 ; FLUSHALL
SELECT 5 ; SET k v ; SELECT 0
MULTI ; SET k v ; INCR k ; LPUSH l a ; DEL l ; EXEC
MULTI ; SET k v ; DISCARD
EVAL \"redis.call('SET', KEYS[1], 'v') redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'a') return 1\" 1 k
EVAL \"redis.call('SET', KEYS[1], 'v') error('oops')\" 1 k
";

const END: &str = "__keyspace@0__:end of the case";

struct Listening {
    talks: Client,
    marks: Client,
    hears: Client,
}

impl Listening {
    fn to(address: SocketAddr, classes: &str) -> Listening {
        let mut talks = Client::connect(address, Protocol::Resp2);
        let mut hears = Client::connect(address, Protocol::Resp2);
        talks.call(["CONFIG", "SET", "notify-keyspace-events", classes]);
        hears.run("PSUBSCRIBE __key*");
        Listening { talks, hears, marks: Client::connect(address, Protocol::Resp2) }
    }

    /// The messages that a call leads to.
    fn events(&mut self, line: &str) -> Vec<String> {
        match line.strip_prefix("DEBUG SLEEP ") {
            Some(seconds) => {
                // The time of a key is to be over, whatever else happens.
                let seconds: f64 = seconds.parse().expect("a number");
                std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
                // Whether it is found at once or by the next call is left open.
                return Vec::new();
            }
            None => drop(self.talks.run(line)),
        }
        // Its time may be over before the mark comes: what it leads to is told with the next call.
        if line.ends_with(" PX 1") {
            return Vec::new();
        }
        self.marks.call(["PUBLISH", END, ""]);
        let mut heard = Vec::new();
        loop {
            let Value::Array(parts) = self.hears.read() else { panic!("no message") };
            let text = |at: usize| notation::reply(&parts[at]);
            if text(2).contains(END) {
                return heard;
            }
            heard.push(format!("{} {}", text(2), text(3)));
        }
    }
}

#[test]
fn events_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let mut wrong = Vec::new();
    for classes in ["KEA", "Emn"] {
        let mut redis = Listening::to(oracle.address(), classes);
        let mut ours = Listening::to(server.address(), classes);
        for case in CASES.lines().filter(|line| !line.is_empty()) {
            redis.events("FLUSHALL");
            ours.events("FLUSHALL");
            for line in case.split(" ; ") {
                let (expected, got) = (redis.events(line), ours.events(line));
                if expected != got {
                    wrong.push(format!(
                        "{classes}: {case}\n  at {line}\n    expected {expected:?}\n    got      {got:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} calls differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn classes_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    for classes in ["", "KEA", "g$", "lshzxetd", "Kn", "mE", "KEq", "A A"] {
        for line in [
            ["CONFIG", "SET", "notify-keyspace-events", classes],
            ["CONFIG", "GET", "notify-keyspace-events", "x"],
        ] {
            assert_eq!(server.client().call(line), oracle.client().call(line), "{classes}");
        }
    }
}

#[test]
fn what_nobody_did_and_what_is_undone() {
    let server = TestServer::start(&["--notify-keyspace-events", "KEA"]);
    let mut client = Listening::to(server.address(), "Exeg$");
    assert_eq!(client.talks.run("SET k v PX 1"), Value::Status(b"OK".to_vec()));
    // Nobody looks for it: it is found by itself.
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &String| !last.contains("expired")) {
        heard.push(notation::reply(&client.hears.read()));
    }
    assert!(heard[2].ends_with("\"__keyevent@0__:expired\", \"k\"]"), "{heard:?}");
    for script in [
        "#!lua on-error=rollback\nredis.call('SET', 'k', 1) error('oops')",
        "#!lua on-error=rollback\nredis.call('SET', 'k', 1, 'PXAT', 1) redis.pcall('GET', 'k') error('oops')",
        "#!lua flags=dry-run\nreturn redis.call('SET', 'k', 1)",
        "#!lua timeout=300\nredis.call('SET', 'k', 1) while true do end",
    ] {
        client.talks.eval(script, &["k"], &[]);
    }
    assert_eq!(client.events("GET k"), Vec::<String>::new());
    for line in ["MULTI", "SET k 1 PXAT 1", "EXISTS k", "SET k 2", "DEL k"] {
        client.talks.run(line);
    }
    let reported = ["set", "expire", "expired", "set", "del"];
    assert_eq!(client.events("EXEC"), reported.map(|name| format!("\"__keyevent@0__:{name}\" \"k\"")));
    client.talks.run("CONFIG SET maxmemory-policy allkeys-random maxmemory 1");
    assert_eq!(client.events("GET k"), Vec::<String>::new());
    client.talks.run("CONFIG SET maxmemory 0");
    client.talks.run("SET other v");
    client.talks.run("CONFIG SET maxmemory 1");
    wait_until("it is evicted", || client.talks.run("DBSIZE") == Value::Integer(0));
    assert_eq!(
        client.events("GET k"),
        ["\"__keyevent@0__:set\" \"other\"", "\"__keyevent@0__:evicted\" \"other\""]
    );
}

#[test]
fn nodes_tell_all_gateways() {
    let cluster = TestCluster::start(2, 2, None);
    let mut hears = cluster.client(1);
    hears.run("PSUBSCRIBE __keyevent@*");
    let mut talks = cluster.client(0);
    let nothing = cluster.key(0, "before");
    talks.run(&format!("SET {nothing} v"));
    talks.run("CONFIG SET notify-keyspace-events E$lg");
    for node in 0..2 {
        let key = cluster.key(node, "key");
        talks.run(&format!("SET {key} v"));
        assert!(notation::reply(&hears.read()).ends_with(&format!("\"__keyevent@0__:set\", \"{key}\"]")));
        talks.run(&format!("DEL {key}"));
        talks.run(&format!("LPUSH {key} a"));
        for event in ["del", "lpush"] {
            let heard = notation::reply(&hears.read());
            assert!(heard.ends_with(&format!("\"__keyevent@0__:{event}\", \"{key}\"]")), "{heard}");
        }
    }
}

/// What a transaction does that spans nodes is done where nobody listens: they are told of it at its end.
#[test]
fn nodes_tell_of_what_was_done_for_them() {
    let cluster = TestCluster::start(2, 1, None);
    let (mut hears, mut talks) = (cluster.client(0), cluster.client(0));
    hears.run("PSUBSCRIBE __keyevent@*");
    let [one, other] = [0, 1].map(|node| cluster.key(node, "key"));
    let mut reported_for = |lines: &[String], most: usize| {
        lines.iter().for_each(|line| drop(talks.run(line)));
        let reported = (0..most).map(|_| heard(&mut hears));
        let reported = reported.map(|(channel, key)| (channel.replace("__keyevent@0__:", ""), key));
        // Of several nodes none waits for another.
        let mut reported: Vec<_> = reported.collect();
        reported.sort_by_key(|(_, key)| *key == other);
        reported
    };
    let all = |names: &[&str]| -> Vec<(String, String)> {
        [&one, &other]
            .iter()
            .flat_map(|key| names.iter().map(|name| ((*name).into(), (*key).clone())))
            .collect()
    };
    reported_for(&["CONFIG SET notify-keyspace-events Em".into()], 0);
    for line in ["MGET", "EXISTS", "SINTER", "ZUNION 2"] {
        assert_eq!(reported_for(&[format!("{line} {one} {other}")], 2), all(&["keymiss"]), "{line}");
    }
    assert_eq!(reported_for(&[format!("SORT {one} STORE {other}")], 1), all(&["keymiss"])[..1]);
    reported_for(&["CONFIG SET notify-keyspace-events Exg$".into()], 0);
    let begin = ["MULTI".into(), format!("MSET {one} 1 {other} 1")];
    let each = [&one, &other]
        .map(|key| [format!("PEXPIREAT {key} {}", u64::MAX >> 12), format!("SET {key} 1 PXAT 1")]);
    let end = [format!("EXISTS {one} {other}"), "EXEC".into()];
    let lines = [&begin[..], &each.concat(), &end].concat();
    assert_eq!(reported_for(&lines, 10), all(&["set", "expire", "set", "expire", "expired"]));
}

fn heard(client: &mut Client) -> (String, String) {
    let Value::Array(parts) = client.read() else { panic!("no message") };
    let text = |at: usize| notation::reply(&parts[at]).trim_matches('"').to_owned();
    (text(2), text(3))
}

#[test]
fn scripts_and_transactions_on_nodes_are_told_when_they_are_kept() {
    let cluster = TestCluster::start_with(3, 2, None, &["--notify-keyspace-events", "E$lghm"]);
    let (mut talks, mut hears) = (cluster.client(0), cluster.client(1));
    hears.run("PSUBSCRIBE __keyevent@*");
    let [one, two, three] = [0, 1, 2].map(|node| cluster.key(node, "key"));
    let mut expect = |events: &[(&str, &str)]| {
        let mut reported: Vec<_> = events.iter().map(|_| heard(&mut hears)).collect();
        let mut expected: Vec<_> = events
            .iter()
            .map(|(event, key)| (format!("__keyevent@0__:{event}"), (*key).to_owned()))
            .collect();
        // Each node tells of its own keys, in their order.
        reported.sort();
        expected.sort();
        assert_eq!(reported, expected);
    };
    talks.eval("redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[1])", &[&one], &[]);
    expect(&[("set", &one), ("incrby", &one)]);
    talks.eval(
        "redis.call('LPUSH', KEYS[1], 1) redis.call('GET', KEYS[2]) redis.call('DEL', KEYS[3])",
        &[&two, &three, &one],
        &[],
    );
    expect(&[("lpush", &two), ("keymiss", &three), ("del", &one)]);
    for line in ["MULTI".to_owned(), format!("SET {one} 1"), format!("HSET {three} f v"), "EXEC".to_owned()] {
        talks.run(&line);
    }
    expect(&[("set", &one), ("hset", &three)]);
    talks.run(&format!("MSET {one} 1 {two} 2"));
    expect(&[("set", &one), ("set", &two)]);
    // What is undone is not told.
    let undone = "#!lua on-error=rollback\nredis.call('SET', KEYS[1], 1) error('oops')";
    talks.eval(undone, &[&one], &[]);
    talks.run(&format!("APPEND {one} x"));
    expect(&[("append", &one)]);
}

#[test]
fn what_is_told_is_agreed_upon_and_outlives_nodes() {
    let mut cluster = TestCluster::start_with(2, 2, None, &["--notify-keyspace-events", "KE$"]);
    let (mut talks, mut hears) = (cluster.client(0), cluster.client(1));
    hears.run("PSUBSCRIBE __keyevent@0__:set");
    let key = cluster.key(1, "key");
    assert_eq!(notation::reply(&talks.run(&format!("SET {key} 1"))), "+OK");
    assert_eq!(heard(&mut hears).1, key);
    let shows = |client: &mut Client| notation::reply(&client.run("CONFIG GET notify-keyspace-events"));
    let mut asks = cluster.client(1);
    talks.run("CONFIG SET notify-keyspace-events Eg$");
    wait_until("the other gateway shows it too", || shows(&mut asks).contains("\"g$E\""));
    cluster.stores[1].kill();
    cluster.stores[1].start();
    let reads = |client: &mut Client| !matches!(client.run(&format!("GET {key}")), Value::Error(_));
    wait_until("both gateways reach the node again", || reads(&mut talks) && reads(&mut asks));
    assert_eq!(notation::reply(&talks.run(&format!("SET {key} 2"))), "+OK");
    assert_eq!(heard(&mut hears).1, key);
    assert!(shows(&mut talks).contains("\"g$E\""));
}
