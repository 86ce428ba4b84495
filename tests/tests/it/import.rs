//! `moonshard import`: the data of a server that serves is copied into another one.

use std::fs;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::certificates::Authority;
use tests::client::read_request;
use tests::process::command;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, Protocol, SetOnDrop, TestServer, Topology, notation, over_nodes, wait_until};

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        let reply = client.run(line);
        let is_unordered = ["SM", "HG"].iter().any(|start| line.starts_with(start));
        let found = if is_unordered { notation::unordered(&reply) } else { notation::reply(&reply) };
        assert_eq!(found, *wanted, "{line}");
    }
}

/// Copies from `source` (what follows `redis://`) to a server; the exit code, and what was said.
fn import(source: &str, target: SocketAddr, options: &[&str]) -> (Option<i32>, String, String) {
    import_over("redis", source, &format!("redis://{target}"), options)
}

fn import_over(scheme: &str, source: &str, to: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let source = format!("{scheme}://{source}");
    let args = [&["import", &source, "--to", to], options].concat();
    let output = command(&args).env_remove("REDISCLI_AUTH").output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // On a slow machine it says how far it is.
    let is_progress = |line: &&str| line.ends_with(" %") || line.ends_with(" keys");
    let told = text(&output.stderr)
        .lines()
        .filter(|line| !is_progress(line))
        .map(|line| format!("{line}\n"))
        .collect();
    (output.status.code(), text(&output.stdout), told)
}

/// Values of all types that Redis 7.0 has.
const VALUES: &[&str] = &[
    "CONFIG SET repl-diskless-sync-delay 0",
    "MSET text hello number 12",
    "SET later x PXAT 5102444800123",
    "SET soon x PX 1",
    "RPUSH list a 1 '' b",
    "HSET hash f v g w",
    "SADD set a b 1",
    "SADD numbers 1 2 3",
    "ZADD zset 1.5 a -inf b",
    "PFADD distinct a b c",
    "XADD stream 1-1 a 1 b text",
    "XADD stream 2-1 c 3",
    "XDEL stream 2-1",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group one STREAMS stream >",
    "EVAL \"for i = 1, 1500 do redis.call('set', 'many' .. i, ('x'):rep(i)) end\" 0",
    "SELECT 7",
    "SET text 'in another database'",
    "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 42 end)\"",
];

/// What of them a copy answers.
const ANSWERS: &[(&str, &str)] = &[
    ("MGET text number later soon", r#"["hello", "12", "x", nil]"#),
    ("PEXPIRETIME later", "5102444800123"),
    ("LRANGE list 0 -1", r#"["a", "1", "", "b"]"#),
    ("HGETALL hash", r#"unordered {["f", "v"], ["g", "w"]}"#),
    ("SMEMBERS set", r#"unordered ~{"1", "a", "b"}"#),
    ("SMEMBERS numbers", r#"unordered ~{"1", "2", "3"}"#),
    ("ZRANGE zset 0 -1 WITHSCORES", r#"[["b", -inf], ["a", 1.5]]"#),
    ("PFCOUNT distinct", "3"),
    ("XRANGE stream - +", r#"[["1-1", ["a", "1", "b", "text"]]]"#),
    ("XPENDING stream group", r#"[1, "1-1", "1-1", [["one", "1"]]]"#),
    ("STRLEN many1500", "1500"),
    ("FCALL f 0", "42"),
    ("SELECT 7", "+OK"),
    ("GET text", r#""in another database""#),
    ("DBSIZE", "1"),
    ("SELECT 0", "+OK"),
];

/// Redis with these values, in a folder that it saves to.
fn source(dir: &TempDir) -> Option<Oracle> {
    let redis = Oracle::start_in(dir.path())?;
    redis.client().run_all(VALUES);
    Some(redis)
}

fn all_data_is_copied_while_it_changes(on: Topology) {
    let dir = TempDir::made("import");
    let Some(redis) = source(&dir) else { return };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = redis.client();
            client.run_all(&["SELECT 3"]);
            while !stop.load(Ordering::Relaxed) {
                client.run_all(&["MULTI", "INCR a", "RPUSH list x", "INCR b", "EXEC"]);
            }
        });
        let _stops = SetOnDrop(&stop);
        let mut client = redis.client();
        client.run_all(&["SELECT 3"]);
        wait_until("it changes", || notation::reply(&client.run("EXISTS b")) == "1");
        // As it comes from memory, and from a file.
        for diskless in ["yes", "no"] {
            redis.client().run_all(&[&format!("CONFIG SET repl-diskless-sync {diskless}")]);
            let target = on.start(&[]);
            let (code, out, err) = import(&redis.address().to_string(), target.address(), &[]);
            assert_eq!((code, &*err), (Some(0), ""), "{out}");
            let wanted = "database 0: 1510 keys, 1 of which expire\n\
                          database 3: 3 keys, 0 of which expire\n\
                          database 7: 1 keys, 0 of which expire\n\
                          1514 keys, 1 libraries and 0 scripts imported, ";
            assert!(out.starts_with(wanted), "{out}");
            let mut client = Client::connect(target.address(), Protocol::Resp3);
            check(&mut client, ANSWERS);
            client.run_all(&["SELECT 3"]);
            let values = ["GET a", "GET b", "LLEN list"].map(|line| notation::reply(&client.run(line)));
            assert_eq!(values[0], values[1]);
            assert_eq!(values[0].trim_matches('"'), values[2]);
        }
    });
}

/// Store nodes report their counts later than they have the keys.
fn a_key_that_was_just_written_makes_a_target_not_empty(on: Topology) {
    let (source, target) = (TestServer::start(&[]), on.start(&[]));
    target.client().run_all(&["SET own 1"]);
    let (code, _, err) = import(&source.address().to_string(), target.address(), &[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("is not empty, it has 1 keys in database 0:"), "{err}");
}

over_nodes!(all_data_is_copied_while_it_changes, a_key_that_was_just_written_makes_a_target_not_empty);

#[test]
fn what_the_target_has_is_kept() {
    let dir = TempDir::made("import-merge");
    let Some(redis) = source(&dir) else { return };
    let target = TestServer::start(&[]);
    let mut client = target.client();
    client.run_all(&["SET text mine", "SELECT 9", "SET own 1"]);
    let from = redis.address().to_string();
    let (code, out, err) = import(&from, target.address(), &[]);
    assert_eq!((code, &*out), (Some(2), ""));
    let wanted = format!(
        "moonshard: {} is not empty, it has 1 keys in database 0, 1 keys in database 9: use --merge to keep these keys, or \
         --replace to replace those that the source has too; nothing was imported\n",
        target.address()
    );
    assert_eq!(err, wanted);
    // One database of the source.
    let (code, out, err) = import(&format!("{from}/7"), target.address(), &["--merge"]);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    assert!(
        out.starts_with(
            "database 7: 1 keys, 0 of which expire\n1 keys, 1 libraries and 0 scripts imported, "
        )
    );
    let (code, out, err) = import(&from, target.address(), &["--merge"]);
    assert_eq!(code, Some(2), "{out}");
    // The library, and the keys of the same names.
    let busy = "BUSYKEY Target key name already exists.";
    assert!(err.contains(&format!("moonshard: key \"text\" of database 0: {busy}\n")), "{err}");
    assert!(err.ends_with("moonshard: the server refused 3 keys, scripts or libraries\n"), "{err}");
    check(&mut client, &[("GET own", r#""1""#), ("SELECT 0", "+OK"), ("GET text", r#""mine""#)]);
    let (code, out, err) = import(&from, target.address(), &["--replace"]);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    check(&mut Client::connect(target.address(), Protocol::Resp3), ANSWERS);
    check(&mut client, &[("SELECT 9", "+OK"), ("GET own", r#""1""#)]);
}

#[test]
fn passwords_of_both_are_used() {
    let dir = TempDir::made("import-password");
    let Some(redis) = source(&dir) else { return };
    redis
        .client()
        .run_all(&["ACL SETUSER mover on >secret +psync +replconf +ping", "CONFIG SET requirepass p"]);
    let authority = Authority::new();
    let flags = authority.flags("server", &["127.0.0.1"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let flags = [&flags[..], &["--tls-auth-clients", "no"]].concat();
    let target = TestServer::start_with(&[("MOONSHARD_REQUIREPASS", "q".to_owned())], &flags);
    let (from, to) = (redis.address(), format!("rediss://{}", target.address()));
    let root = authority.root();
    let (file, wrong) = (dir.child("password"), dir.child("wrong"));
    fs::write(&file, "q\n").expect("written");
    fs::write(&wrong, "r\n").expect("written");
    let options = ["--tls-ca-cert-file", &*root, "--to-password-file"];
    let refused = |source: &str, password: &str, wanted: &str| {
        let options = [&options[..], &[password]].concat();
        let (code, out, err) = import_over("redis", source, &to, &options);
        assert_eq!((code, &*out), (Some(2), ""), "{err}");
        assert!(err.starts_with("moonshard: ") && err.contains(wanted), "{err}");
        assert!(err.ends_with("; nothing was imported\n") && err.lines().count() == 1, "{err}");
    };
    refused(&from.to_string(), &file, "requires a password: set --password-file FILE or REDISCLI_AUTH");
    refused(&format!(":no@{from}"), &file, "refused the connection: WRONGPASS ");
    refused(&format!(":p@{from}"), &wrong, "refused the connection: WRONGPASS ");
    let options = [&options[..], &[&file]].concat();
    // A user that may do no more than replicas need.
    let (code, out, err) = import_over("redis", &format!("mover:secret@{from}"), &to, &options);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    // From the server that has it now, as it was, with what only it has.
    let second = TestServer::start(&[]);
    let source = format!(":q@{}", target.address());
    let options = ["--tls-ca-cert-file", &*root];
    let (code, out, err) = import_over("rediss", &source, &format!("redis://{}", second.address()), &options);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    check(&mut Client::connect(second.address(), Protocol::Resp3), ANSWERS);
}

/// Two keys in a file, and their number.
const FILE: &[u8] = b"REDIS0010\xfe\0\0\x01a\x011\0\x01b\x012\xff\0\0\0\0\0\0\0\0";

/// What `moonshard import` says to a source that answers PSYNC with these bytes, and then ends the connection.
fn from_played(answer: &[u8]) -> (Option<i32>, String, String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let target = TestServer::start(&[]);
    let told = thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = BufReader::new(listener.accept().expect("a connection").0);
            loop {
                let request = read_request(&mut wire);
                let reply: &[u8] = match &*request[0] {
                    "PING" => b"+PONG\r\n",
                    "REPLCONF" => b"-ERR Unrecognized REPLCONF option\r\n",
                    "PSYNC" => break,
                    _ => b"-NOPERM no\r\n",
                };
                wire.get_mut().write_all(reply).expect("it is open");
            }
            // Who refuses it may leave before its end.
            let _ = wire.get_mut().write_all(answer);
        });
        import(&address.to_string(), target.address(), &[])
    });
    let keys = notation::reply(&target.client().run("MGET a b"));
    (
        told.0,
        told.1,
        told.2.replace(&address.to_string(), "SOURCE").replace(&target.address().to_string(), "TARGET"),
        keys,
    )
}

#[test]
fn sources_may_be_old_wrong_or_go_away() {
    let full = b"\n\n+FULLRESYNC 8de1787ba490483314a4d30f1c628bc5025eb761 0\r\n\n\n";
    let mark = b"0123456789012345678901234567890123456789";
    let sized = |len: usize, file: &[u8]| [full, format!("${len}\r\n").as_bytes(), file].concat();
    let marked = |file: &[u8]| [full, &b"$EOF:"[..], mark, b"\r\n", file].concat();
    let all = r#"["1", "2"]"#;
    // The commands behind the file are none of it.
    let followed = [sized(FILE.len(), FILE), b"*1\r\n$4\r\nPING\r\n".to_vec()].concat();
    for answer in [followed, marked(&[FILE, mark].concat())] {
        let (code, out, err, keys) = from_played(&answer);
        assert_eq!((code, &*err, &*keys), (Some(0), "", all), "{out}");
    }
    let lost = "SOURCE has ended the connection before its data was complete: its log says why";
    let stopped = |byte: u8| format!("stopped after 0 keys, which stay on TARGET: byte {byte}: {lost}");
    let damaged = "stopped after 0 keys: what SOURCE has sent is damaged: byte";
    let refused = "SOURCE gives no copy of its data: ";
    let unfinished = "$EOF:0123456789";
    for (answer, code, wanted) in [
        (sized(FILE.len(), &FILE[..15]), 2, &*stopped(15)),
        (marked(&[&FILE[..15], &mark[..]].concat()[..54]), 2, &*stopped(14)),
        (sized(15, FILE), 1, &*format!("{damaged} 15: the data end here")),
        (sized(12, b"HTTP/1.1 200"), 1, &*format!("{damaged} 9: damaged data: this is no RDB file")),
        // A string of as many bytes as none has.
        (sized(99, b"REDIS0010\0\x81\0\0\0\0\x7f\xff\xff\xff"), 1, "damaged data: a string is too long"),
        (
            b"-ERR unknown command 'PSYNC'\r\n".to_vec(),
            2,
            &*format!("{refused}ERR unknown command 'PSYNC'; nothing was imported"),
        ),
        (b"+CONTINUE\r\n".to_vec(), 2, &*format!("{refused}+CONTINUE; nothing")),
        ([full, unfinished.as_bytes(), b"\r\n"].concat(), 2, &*format!("{refused}{unfinished}; nothing")),
        (full.to_vec(), 2, "SOURCE did not reply: unexpected end of file; nothing was imported"),
    ] {
        let (found, out, err, keys) = from_played(&answer);
        assert_eq!((found, &*out, &*keys), (Some(code), "", "[nil, nil]"), "{err}");
        assert!(err.starts_with("moonshard: ") && err.contains(wanted) && err.lines().count() == 1, "{err}");
    }
}
