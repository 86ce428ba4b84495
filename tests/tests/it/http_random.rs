//! Random requests of HTTP: each is answered as the API describes, none by a fault of the server, and the connection
//! serves the next one.
//!
//! `MOONSHARD_HTTP_SEED` starts elsewhere, `MOONSHARD_HTTP_REQUESTS` makes more requests than the bounded run of
//! `make test`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Map, Value, json};
use tests::compare::tame;
use tests::generate::{self, Chance, KEYS};
use tests::openapi::Description;
use tests::{Http, TIMEOUT, TestServer, notation};

/// Scripts that came by chance to an endless loop end soon, and so does whoever waits.
const FLAGS: &[&str] = &[
    "--http",
    "127.0.0.1:0",
    "--script-fuel",
    "2000000",
    "--script-fuel-max",
    "20000000",
    "--http-timeout-ms",
    "5000",
];

/// A fault of the server; what it may say beside: it is not ready, it took too long, memory is full.
fn is_fault(status: u16) -> bool {
    status >= 500 && ![503, 504, 507].contains(&status)
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

const STRINGS: &[&str] = &[
    "",
    "GET",
    "str",
    "a b",
    "\u{0}",
    "\u{1f600}",
    "-1",
    "no-writes",
    "disable-atomicity",
    "dry-run",
    "return 1",
    "return KEYS[1]",
    "return redis.call('GET', KEYS[1])",
    "return {1, 'a', {ok = 'x'}, {err = 'y z'}, false}",
    "#!lua flags=no-writes\nreturn redis.pcall('SET', 'str', 1)",
    "redis.setresp(3) return redis.call('HGETALL', 'hsh')",
    "error('x')",
    "return (",
    "return ('x'):rep(1e6)",
    "local t = {} t[1] = t return t",
    "while true do end",
    "/wA=",
];

/// Bodies as they are meant.
fn meant(chance: &mut Chance) -> Value {
    let word =
        |word: Vec<u8>| String::from_utf8(word).map_or_else(|_| json!({ "base64": "/wA=" }), Value::from);
    let command = |chance: &mut Chance| {
        let mut call = generate::call(chance);
        tame(&mut call);
        Value::Array(call.into_iter().map(word).collect())
    };
    let script = chance.pick(STRINGS);
    let key = chance.pick(&KEYS);
    match chance.below(5) {
        0 => json!({ "args": command(chance) }),
        1 => json!({ "commands": [command(chance), command(chance)], "atomic": chance.percent(50) }),
        2 => {
            json!({ "script": script, "keys": [key], "args": [1, "x"], "flags": ["no-writes"], "trace": true,
            "limits": { "fuel": 100_000, "timeout_ms": "50", "memory": "4mb" }, "raw": true, "writes": true, "variables": true })
        }
        3 => json!({ "script": script, "keys": [key, 1.5], "dry_run": true, "read_only": false }),
        _ => json!({ "value": script, "ttl_ms": 100_000, "sticky": true }),
    }
}

fn any_json(chance: &mut Chance, depth: usize) -> Value {
    let items = if depth == 0 { 0 } else { chance.below(4) };
    match chance.below(12) {
        0 => Value::Null,
        1 => json!(chance.percent(50)),
        2 => json!(chance.pick(&[0, 1, -1, i64::MIN, i64::MAX, 1 << 40])),
        3 => json!(u64::MAX),
        4 => json!(chance.pick(&[0.1, -0.0, 1e308, 5e-324, 1e18])),
        5 => json!({ "base64": chance.pick(STRINGS) }),
        6 => (0..items).map(|_| any_json(chance, depth - 1)).collect(),
        7 => {
            let names = ["args", "script", "keys", "base64", "fuel", "x"];
            let members = (0..items).map(|_| (chance.pick(&names).to_owned(), any_json(chance, depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        _ => json!(chance.pick(STRINGS)),
    }
}

/// Puts something else in some place.
fn spoil(chance: &mut Chance, value: &mut Value) {
    let inner: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    };
    let count = inner.len();
    if count == 0 || chance.percent(15) {
        *value = any_json(chance, 3);
    } else if let Some(one) = inner.into_iter().nth(chance.below(count)) {
        spoil(chance, one);
    }
}

fn spoil_bytes(chance: &mut Chance, bytes: &mut Vec<u8>) {
    const TOKENS: &[&[u8]] = &[
        b"{", b"}", b"[", b"]", b"\"", b"\\", b"\\u", b"\\ud800", b":", b",", b"1e999", b"-", b"null",
        b"\xff", b"\0", b" ", b"/", b"%", b"?", b"\r\n", b"..",
    ];
    for _ in 0..1 + chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(4) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => drop(bytes.splice(at..at, chance.pick(TOKENS).iter().copied())),
        }
    }
}

fn body(chance: &mut Chance) -> Vec<u8> {
    // No longer than what comes with the head: whoever needs no body ends the connection rather than read on.
    if chance.percent(2) {
        return "[".repeat(1 + chance.below(3000)).into_bytes();
    }
    let mut value = meant(chance);
    if chance.percent(50) {
        spoil(chance, &mut value);
    }
    let mut bytes = value.to_string().into_bytes();
    if chance.percent(25) {
        spoil_bytes(chance, &mut bytes);
    }
    bytes
}

/// What a path or query may have, as it is or as `%xx`.
fn encoded(chance: &mut Chance, bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+*:@!$',;%".contains(&byte);
    let shown = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    let text: String = bytes.iter().map(shown).collect();
    if chance.percent(5) { format!("{text}/") } else { text }
}

fn segment(chance: &mut Chance) -> String {
    let mut bytes = match chance.below(3) {
        0 => chance.pick(STRINGS).as_bytes().to_vec(),
        1 => b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db".to_vec(),
        _ => chance.pick(&KEYS).as_bytes().to_vec(),
    };
    if chance.percent(20) {
        spoil_bytes(chance, &mut bytes);
    }
    encoded(chance, &bytes)
}

fn query(chance: &mut Chance) -> String {
    let names =
        ["db", "cursor", "count", "match", "type", "ttl_ms", "sticky", "lossless", "group", "mode", "x"];
    let values: [&[u8]; 14] = [
        b"",
        b"0",
        b"1",
        b"15",
        b"16",
        b"-1",
        b"18446744073709551615",
        b"340282366920938463463374607431768211455",
        b"1e3",
        b"true",
        b"zset",
        b"[a-",
        b"s*",
        b"\xff\0",
    ];
    let pairs = (0..chance.below(4)).map(|_| {
        let (name, mut value) = (chance.pick(&names), chance.pick(&values).to_vec());
        if chance.percent(10) {
            spoil_bytes(chance, &mut value);
        }
        format!("{name}={}", encoded(chance, &value))
    });
    let text = pairs.collect::<Vec<_>>().join("&");
    if text.is_empty() { text } else { format!("?{text}") }
}

/// One of the paths that are described, or one that is not.
fn path(chance: &mut Chance, described: &[String]) -> String {
    let template = &described[chance.below(described.len())];
    let parts = template.split('/').skip(1).map(|part| match part.starts_with('{') || chance.percent(3) {
        true => segment(chance),
        false => part.to_owned(),
    });
    format!("/{}{}", parts.collect::<Vec<_>>().join("/"), query(chance))
}

fn headers(chance: &mut Chance) -> Vec<(&'static str, &'static str)> {
    let media =
        ["application/json", "application/octet-stream", "text/plain", "application/json;charset=x", "/"];
    let mut headers = vec![("Content-Type", if chance.percent(85) { media[0] } else { chance.pick(&media) })];
    if chance.percent(15) {
        let kinds = ["application/resp", "application/octet-stream", "*/*", "text/html,,;", ""];
        headers.push(("Accept", chance.pick(&kinds)));
    }
    if chance.percent(10) {
        headers.push(chance.pick(&[
            ("X-Moonshard-Db", "3"),
            ("X-Moonshard-Db", "99"),
            ("X-Moonshard-Db", "x"),
            ("Authorization", "Basic ZGVmYXVsdDp4"),
            ("Authorization", "Basic ?"),
            ("Authorization", "Bearer"),
            ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("Traceparent", "00-0-0-"),
            ("X-Request-Id", "\"\\"),
            ("Origin", "null"),
            ("Host", "[::1"),
            ("Range", "bytes=5-"),
        ]));
    }
    headers
}

#[test]
fn random_requests_are_answered() {
    let server = TestServer::start(FLAGS);
    let mut http = server.http();
    let openapi = http.get("/v1/openapi.json").json();
    let paths: Vec<String> = openapi["paths"].as_object().expect("paths").keys().cloned().collect();
    let description = Description::new(openapi);
    let mut chance = Chance::new(setting("MOONSHARD_HTTP_SEED", 1));
    let mut redis = server.client();
    let mut wrong = Vec::new();
    for number in 0..setting("MOONSHARD_HTTP_REQUESTS", 4000) {
        if number % 200 == 0 {
            generate::start(&mut chance).into_iter().for_each(|call| drop(redis.call(call)));
        }
        let method =
            chance.pick(&["GET", "GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]);
        let path = match chance.percent(40) {
            true => {
                format!("{}{}", chance.pick(&["/v1/command", "/v1/pipeline", "/v1/eval"]), query(&mut chance))
            }
            false => path(&mut chance, &paths),
        };
        // It has no end.
        if path.starts_with("/v1/events") {
            continue;
        }
        let (headers, body) = (headers(&mut chance), body(&mut chance));
        let answer = http.send(method, &path, &headers, &body);
        let mut faults = Vec::new();
        if is_fault(answer.status) {
            faults.push(format!("{}: {}", answer.status, answer.body.escape_ascii()));
        }
        // What was refused before anybody looked at the path has no description there.
        // Who asks for RESP is told of errors in it, too.
        let is_resp = answer.header("content-type") == "application/resp";
        if method != "HEAD" && method != "OPTIONS" && path.starts_with("/v1/") && !is_resp {
            faults.extend(description.faults(method, &path, &answer));
        }
        let shown = body.escape_ascii();
        wrong.extend(
            faults.into_iter().map(|fault| format!("{method} {path} {headers:?} {shown:.900}\n    {fault}")),
        );
        if wrong.len() > 5 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(http.get("/healthz").status, 200);
    assert_eq!(notation::reply(&redis.run("PING")), "+PONG");
}

/// What is no HTTP is refused or closes its own connection.
#[test]
fn random_bytes_end_at_most_their_own_connection() {
    let server = TestServer::start(FLAGS);
    let mut chance = Chance::new(setting("MOONSHARD_HTTP_SEED", 1));
    for _ in 0..setting("MOONSHARD_HTTP_REQUESTS", 4000) / 20 {
        let (kind, body) =
            (chance.pick(&["Content-Length: ", "Transfer-Encoding: chunked\r\nX: "]), body(&mut chance));
        let head = format!(
            "POST /v1/command{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{kind}{}\r\n\r\n",
            query(&mut chance),
            body.len()
        );
        let mut bytes = [head.as_bytes(), &body].concat();
        for _ in 0..1 + chance.below(4) {
            spoil_bytes(&mut chance, &mut bytes);
        }
        let mut stream = TcpStream::connect(server.http_address()).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        let mut answer = Vec::new();
        // The server may have hung up before all was sent or read.
        if stream.write_all(&bytes).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
            let read = stream.read_to_end(&mut answer);
            let waited = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!waited, "no end of the answer to {}", bytes.escape_ascii());
        }
        let status = answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        assert!(!status.is_some_and(is_fault), "{}\n    {}", bytes.escape_ascii(), answer.escape_ascii());
    }
    assert_eq!(Http::connect(server.http_address()).get("/healthz").status, 200);
}
