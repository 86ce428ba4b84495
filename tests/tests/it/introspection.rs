//! What the server tells of itself and of its clients: the clock, CLIENT LIST, and what of it scripts may ask.

use tests::{Client, Oracle, Protocol, TestServer, Value, notation, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

/// Microseconds of a TIME.
fn micros(reply: &Value) -> u64 {
    let Value::Array(parts) = reply else { panic!("{reply:?}") };
    let number = |part: &Value| {
        let text = String::from_utf8_lossy(part.text().expect("text")).into_owned();
        text.parse::<u64>().expect("a number")
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

#[test]
fn the_clock_is_exact_and_stands_still_for_scripts() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let mut exact = [false; 2];
    for _ in 0..50 {
        let before = micros(&client.run("TIME"));
        let twice = client.eval("local t = redis.call('TIME') return {t, redis.call('TIME')}", &[], &[]);
        let after = micros(&client.run("TIME"));
        let Value::Array(twice) = twice else { panic!("{twice:?}") };
        let within = micros(&twice[0]);
        assert_eq!(within, micros(&twice[1]));
        // Its milliseconds are those by which its keys expire.
        assert!((before / 1000..=after / 1000).contains(&(within / 1000)), "{before} {within} {after}");
        exact[0] |= !before.is_multiple_of(1000);
        exact[1] |= !within.is_multiple_of(1000);
    }
    assert_eq!(exact, [true; 2], "more than milliseconds");
    assert_eq!(say(&mut client, "TIME now"), "-ERR wrong number of arguments for 'time' command");
}

/// Names and values of the fields of a line of CLIENT LIST.
fn fields(line: &str) -> Vec<(&str, &str)> {
    let line = line.trim_matches('"').trim_end_matches("\\n");
    line.split(' ').map(|field| field.split_once('=').expect("name=value")).collect()
}

fn field(line: &str, name: &str) -> String {
    let fields = fields(line);
    let (_, value) = fields.iter().find(|(known, _)| *known == name).expect("the field");
    (*value).to_owned()
}

#[test]
fn clients_are_described_as_in_redis() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let line = say(&mut client, "CLIENT INFO");
    if let Some(oracle) = Oracle::start() {
        let redis = say(&mut Client::connect(oracle.address(), Protocol::Resp2), "CLIENT INFO");
        let names = |line: &str| fields(line).iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&line), names(&redis));
        for same in
            ["name", "flags", "db", "sub", "multi", "oll", "omem", "events", "cmd", "user", "redir", "resp"]
        {
            assert_eq!(field(&line, same), field(&redis, same), "{same}");
        }
    }
    let number = |line: &str, name: &str| field(line, name).parse::<i64>().expect("a number");
    assert!(number(&line, "fd") > 2, "{line}");
    assert_eq!(number(&line, "qbuf"), "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n".len() as i64);
    assert!(
        number(&line, "qbuf-free") > 0 && number(&line, "tot-mem") > number(&line, "qbuf-free"),
        "{line}"
    );

    let (mut other, mut third) = (server.client(), server.client());
    let id = say(&mut other, "CLIENT ID").trim_start_matches(':').to_owned();
    let mut seen = |what: &[&str]| {
        let line = say(&mut client, &format!("CLIENT LIST ID {id}"));
        what.iter().map(|name| field(&line, name)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(seen(&["flags", "multi", "multi-mem", "qbuf", "qbuf-free"]), "N -1 0 0 0");
    say(&mut other, "MULTI");
    assert_eq!(seen(&["flags", "multi", "multi-mem"]), "x 0 0");
    say(&mut other, "SET key value");
    say(&mut other, "GET key");
    assert_eq!(seen(&["flags", "multi"]), "x 2");
    assert_ne!(seen(&["multi-mem"]), "0");
    say(&mut other, "EXEC");
    assert_eq!(seen(&["flags", "multi", "multi-mem"]), "N -1 0");
    say(&mut other, "MULTI");
    say(&mut other, "DISCARD");
    assert_eq!(seen(&["flags", "multi"]), "N -1");
    say(&mut other, "WATCH key");
    assert_eq!(seen(&["flags"]), "N");
    say(&mut third, "SET key changed");
    assert_eq!(seen(&["flags"]), "d");
    say(&mut other, "UNWATCH");
    wait_until("nothing waits to be read", || seen(&["flags", "obl", "events"]) == "N 0 r");
    // Who does not read leaves replies behind, which are too many for its socket.
    say(&mut third, &format!("SET key {}", "x".repeat(1 << 20)));
    other.send_raw("GET key\r\n".repeat(30).as_bytes()).expect("sent");
    wait_until("replies wait", || seen(&["events"]) == "rw" && seen(&["obl"]) != "0");
    for _ in 0..30 {
        assert_eq!(other.read().text().map(<[u8]>::len), Some(1 << 20));
    }
    wait_until("all is read", || seen(&["obl", "events"]) == "0 r");
    // Those who say which library they are, are shown with it.
    say(&mut other, "CLIENT SETINFO LIB-NAME lib");
    assert_eq!(seen(&["resp", "lib-name", "lib-ver"]), "2 lib ");
}

/// Commands that Redis lets scripts call and this server does not, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("cluster|countkeysinslot", "it looks at all keys, which the script may have locked"),
    ("cluster|getkeysinslot", "it looks at all keys, which the script may have locked"),
    ("migrate", "it waits for another server"),
];

#[test]
fn scripts_may_call_what_they_may_call_in_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let mut ours = server.client();
    let mut theirs = Client::connect(oracle.address(), Protocol::Resp2);
    let Value::Array(names) = theirs.run("COMMAND LIST") else { panic!("an array") };
    let mut wrong = Vec::new();
    for name in names {
        let name = String::from_utf8_lossy(name.text().expect("a name")).into_owned();
        let Value::Array(info) = ours.call(["COMMAND", "INFO", &name]) else { panic!("an array") };
        let Value::Array(spec) = &info[0] else { continue };
        let Value::Integer(arity) = spec[1] else { panic!("{spec:?}") };
        let mut call: Vec<String> = name.split('|').map(str::to_owned).collect();
        call.resize(call.len().max(arity.unsigned_abs() as usize), "x".to_owned());
        let ask = |client: &mut Client| {
            let call: Vec<&str> = call.iter().map(String::as_str).collect();
            let reply = notation::reply(&client.eval("return redis.pcall(unpack(ARGV))", &[], &call));
            reply.contains("not allowed from script")
        };
        let known = NOT_HERE.iter().any(|(known, _)| *known == name);
        if !known && ask(&mut ours) != ask(&mut theirs) {
            wrong.push(name);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn scripts_hear_what_a_client_hears() {
    // On a busy machine any call may be slow.
    let server = TestServer::start(&["--slowlog-log-slower-than", "-1"]);
    let mut client = server.client();
    for flags in ["", "#!lua flags=disable-atomicity\n"] {
        let mut script = |body: &str| notation::reply(&client.eval(&format!("{flags}{body}"), &[], &[]));
        assert_eq!(script("return redis.call('COMMAND', 'INFO', 'get')[1][1]"), "\"get\"");
        assert_eq!(script("return redis.call('INFO', 'keyspace'):sub(1, 10)"), "\"# Keyspace\"");
        assert_eq!(script("return #redis.call('SLOWLOG', 'GET')"), "0");
        assert_eq!(script("return redis.call('LASTSAVE') > 0"), "1");
        assert_eq!(
            script("redis.call('SELECT', 3) redis.call('SET', 'k', 'three') return redis.call('DBSIZE')"),
            "1"
        );
        assert_eq!(
            script("return redis.pcall('SELECT', 'x')"),
            "-ERR value is not an integer or out of range"
        );
        assert_eq!(script("return redis.pcall('SELECT', 16)"), "-ERR DB index is out of range");
        for call in ["'CONFIG', 'GET', 'port'", "'MULTI'", "'CLIENT', 'ID'", "'ACL', 'WHOAMI'"] {
            let reported = script(&format!("return redis.pcall({call})"));
            assert!(reported.contains("This Redis command is not allowed from script"), "{call}: {reported}");
        }
    }
    // It is counted as what it was, and the connection's database is what it was.
    assert!(say(&mut client, "INFO commandstats").contains("cmdstat_lastsave:calls=2,"));
    assert_eq!(say(&mut client, "DBSIZE"), "0");
    assert_eq!(field(&say(&mut client, "CLIENT INFO"), "db"), "0");
}

#[test]
fn nothing_expires_while_clients_are_paused() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    // Paused before its time is over, however long that takes.
    for millis in (8..).map(|power| 1 << power) {
        say(&mut client, &format!("SET gone value PX {millis}"));
        say(&mut client, "CLIENT PAUSE 3600000 WRITE");
        if !say(&mut client, "PTTL gone").starts_with('-') {
            break;
        }
        say(&mut client, "CLIENT UNPAUSE");
    }
    let expired = server.info("expired_keys");
    wait_until("it is gone for whoever asks", || say(&mut client, "GET gone") == "nil");
    assert_eq!(say(&mut client, "EXISTS gone"), "0");
    assert_eq!((say(&mut client, "DBSIZE"), server.info("expired_keys")), ("1".to_owned(), expired));
    say(&mut client, "CLIENT UNPAUSE");
    wait_until("it is removed", || say(&mut client, "DBSIZE") == "0");
    assert_eq!(server.info("expired_keys"), expired + 1);
}

#[test]
fn the_doctor_of_memory_counts_keys() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    say(&mut client, "MSET a 1 b 2 c 3");
    let said = say(&mut client, "MEMORY DOCTOR");
    assert!(said.contains("No problems found: 3 keys use 0 MB."), "{said}");
}
