//! The HTTP API of a running server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::http::Answer;
use tests::openapi::Description;
use tests::temp_dir::TempDir;
use tests::{Client, Http, TIMEOUT, TestServer, notation, wait_until};

const HTTP: &[&str] = &["--http", "127.0.0.1:0", "--shards", "4", "--threads", "2"];

/// Never ends, and has written before.
const ENDLESS: &str = "redis.call('SET', KEYS[1], 'half done') while true do end";

/// Waits until somebody else says `go`, then writes.
const WAITING: &str = "--!df flags=disable-atomicity
    while redis.call('GET', 'go') ~= 'now' do end
    redis.call('SET', KEYS[1], 'done')";

fn start(more: &[&str]) -> TestServer {
    TestServer::start(&[HTTP, more].concat())
}

fn text(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn running(client: &mut Client) -> usize {
    match client.run("SCRIPT RUNNING") {
        tests::Value::Array(runs) => runs.len(),
        other => panic!("no list of runs: {other:?}"),
    }
}

/// A request that nobody waits for the answer of: the connection, to be dropped.
fn send_only(server: &TestServer, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut stream = TcpStream::connect(server.http_address()).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("the server reads");
    stream
}

/// The answer with what differs from run to run taken out.
fn redacted(mut value: Value) -> Value {
    const VARIES: &[&str] = &[
        "request_id",
        "compile_fuel",
        "fuel",
        "memory_bytes",
        "microseconds",
        "at_microseconds",
        "id",
        "resp",
        "version",
        "bytes",
    ];
    match &mut value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                *member = if VARIES.contains(&&**name) { json!("…") } else { redacted(member.take()) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = redacted(item.take())),
        _ => {}
    }
    value
}

/// Talks to a server, writes down what is said, and holds all of it to the API's own description.
struct Talk {
    http: Http,
    description: Description,
    transcript: String,
    faults: Vec<String>,
}

impl Talk {
    fn new(server: &TestServer) -> Talk {
        let mut http = server.http();
        let description = Description::new(http.get("/v1/openapi.json").json());
        Talk { http, description, transcript: String::new(), faults: Vec::new() }
    }

    fn say(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let answer = self.http.send(method, path, headers, body);
        let faults = self.description.faults(method, path, &answer);
        self.faults.extend(faults.into_iter().map(|fault| format!("{method} {path}: {fault}")));
        self.transcript += &format!("{method} {path} {}\n", body.escape_ascii());
        let kind = answer.header("content-type");
        let shown = match kind.ends_with("json") {
            true => redacted(answer.json()).to_string(),
            false => answer.body.escape_ascii().to_string(),
        };
        self.transcript += &format!("{} {kind}\n{shown}\n\n", answer.status);
        answer
    }

    fn get(&mut self, path: &str) -> Answer {
        self.say("GET", path, &[], b"")
    }

    fn post(&mut self, path: &str, body: Value) -> Answer {
        self.say("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    fn end(self) -> String {
        assert!(self.faults.is_empty(), "not as openapi.json says:\n{}", self.faults.join("\n"));
        self.transcript
    }
}

#[test]
fn commands_and_pipelines() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    for args in [
        json!(["SET", "text", "é"]),
        json!(["SET", "number", 1.5]),
        json!(["SET", {"base64": "/wA="}, {"base64": "/wA="}]),
        json!(["GET", {"base64": "/wA="}]),
        json!(["HSET", "hash", "f", 1, "g", {"base64": "/w=="}]),
        json!(["HGETALL", "hash"]),
        json!(["ZADD", "zset", 1, "a", "inf", "b"]),
        json!(["ZRANGE", "zset", 0, -1, "WITHSCORES"]),
        json!(["GET", "nothing"]),
        json!(["LPUSH", "text", 1]),
        json!(["BLPOP", "nothing", 0.01]),
        json!(["NOPE", "a"]),
        json!(["GET"]),
        json!(["MULTI"]),
        json!(["SELECT", 1]),
        json!([]),
    ] {
        talk.post("/v1/command", json!({ "args": args }));
    }
    talk.post("/v1/command?lossless=true", json!({"args": ["SET", "text", "x"]}));
    talk.post("/v1/command?lossless=true", json!({"args": ["HGETALL", "hash"]}));
    talk.post("/v1/command?lossless=perhaps", json!({"args": ["PING"]}));
    talk.post("/v1/command?db=1", json!({"args": ["DBSIZE"]}));
    talk.post("/v1/command?db=16", json!({"args": ["DBSIZE"]}));
    talk.post("/v1/command", json!({"args": ["PING"], "more": 1}));
    let json_in = ("Content-Type", "application/json; charset=utf-8");
    let command = br#"{"args":["HGETALL","hash"]}"#;
    talk.say("POST", "/v1/command", &[json_in, ("Accept", "application/resp")], command);
    talk.say("POST", "/v1/command", &[json_in, ("X-Moonshard-Db", "3")], command);
    talk.say("POST", "/v1/command", &[json_in], b"{");
    talk.say("POST", "/v1/command", &[], b"{}");
    let commands = json!([["INCR", "n"], ["LPUSH", "text", 1], ["GET", "n"]]);
    talk.post("/v1/pipeline", json!({ "commands": commands }));
    talk.post("/v1/pipeline", json!({ "commands": commands, "atomic": true }));
    talk.post("/v1/pipeline", json!({"commands": [["INCR", "n"], ["NOPE"], ["GET"]], "atomic": true}));
    talk.post("/v1/pipeline", json!({"commands": [["WATCH", "n"]]}));
    talk.post("/v1/pipeline", json!({ "commands": [] }));
    talk.get("/v1/nothing");
    talk.say("PATCH", "/v1/keys", &[], b"");
    talk.get("/healthz");
    talk.get("/readyz");
    insta::assert_snapshot!(talk.end());
}

#[test]
fn keys_of_all_types() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    for body in [json!({"value": "v"}), json!({"value": {"base64": "/w=="}, "sticky": true}), json!({})] {
        let headers = [("Content-Type", "application/json")];
        talk.say("PUT", "/v1/key/a%2Fb%00%ff", &headers, body.to_string().as_bytes());
    }
    talk.get("/v1/key/a%2Fb%00%ff");
    let bytes = ("Content-Type", "application/octet-stream");
    talk.say("PUT", "/v1/key/raw?ttl_ms=100000000", &[bytes], b"\0\xff\r\n");
    let raw = talk.say("GET", "/v1/key/raw", &[("Accept", "application/octet-stream")], b"");
    assert_eq!(raw.body, b"\0\xff\r\n");
    assert_eq!(
        talk.http.get("/v1/key/raw").json()["ttl_ms"].as_u64().map(|ttl| ttl > 90_000_000),
        Some(true)
    );
    talk.say("PUT", "/v1/key/raw", &[("Content-Type", "text/plain")], b"x");
    let mut client = server.client();
    for line in [
        "RPUSH list 0 1 2 3 4",
        "HSET hash f v",
        "SADD set m",
        "ZADD zset 1.5 a 2 b",
        "XADD stream 1-1 f v g 1",
    ] {
        client.run(line);
    }
    for path in
        ["list", "list?cursor=3&count=1", "list?cursor=4", "hash", "set", "zset?count=1", "stream", "none"]
    {
        talk.get(&format!("/v1/key/{path}"));
    }
    client.run("XADD stream 1-2 f v");
    let page = talk.http.get("/v1/key/stream?count=1").json();
    let cursor = page["cursor"].as_str().expect("there is more").to_owned();
    let rest = talk.http.get(&format!("/v1/key/stream?count=2&cursor={cursor}")).json();
    assert_eq!(rest["value"], json!([{ "id": "1-2", "fields": [["f", "v"]] }]));
    assert_eq!(rest["cursor"], json!(null));
    talk.say("GET", "/v1/key/list", &[("Accept", "application/octet-stream")], b"");
    talk.get("/v1/key/list?cursor=x");
    talk.say("DELETE", "/v1/key/list", &[], b"");
    talk.say("DELETE", "/v1/key/list", &[], b"");
    talk.get("/v1/keys?type=zset");
    talk.get("/v1/keys?match=a%2F*");
    talk.get("/v1/keys?db=3");
    talk.get("/v1/keys?cursor=x");
    insta::assert_snapshot!(talk.end());

    // Page after page, each key comes once.
    let mut http = server.http();
    for number in 0..100 {
        client.run(&format!("SET key{number} 1"));
    }
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = http.get(&format!("/v1/keys?match=key*&count=10&cursor={cursor}")).json();
        found.extend(page["keys"].as_array().expect("keys").iter().map(Value::to_string));
        match page["cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 100);
}

#[test]
fn scripts_and_what_they_did() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    talk.post("/v1/eval", json!({"script": "return {1, 'a', false, ARGV[1]}", "args": [{"base64": "/w=="}]}));
    talk.post(
        "/v1/eval",
        json!({"script": "return redis.call('SET', KEYS[1], ARGV[1])", "keys": ["k"], "args": [7]}),
    );
    talk.post("/v1/eval", json!({"script": "redis.setresp(3) return redis.call('HGETALL', 'none')"}));
    talk.post("/v1/eval", json!({"script": "return redis.error_reply('FULL at 2')", "trace": true}));
    talk.post("/v1/eval", json!({"script": "return redis.call('SET', 'k', 1)", "read_only": true}));
    talk.post("/v1/eval", json!({"script": "nonsense("}));
    talk.post("/v1/eval", json!({"script": ENDLESS, "keys": ["k"], "limits": {"fuel": 100000}}));
    talk.post("/v1/eval", json!({"script": "return 1", "limits": {"timeout_ms": 1e15 as u64}}));
    talk.post("/v1/eval", json!({"script": "return 1", "limits": {"memory": "8mb"}, "flags": ["no-writes"]}));
    talk.post("/v1/eval", json!({"script": "return 1", "flags": ["quickly"]}));
    talk.post("/v1/eval", json!({"script": "return 1", "flags": ["disable-atomicity"], "dry_run": true}));
    talk.post("/v1/eval", json!({"keys": []}));
    let traced = "redis.log(redis.LOG_NOTICE, 'begin')
        redis.call('SET', KEYS[1], 'x')
        redis.pcall('LPUSH', KEYS[1], 1)
        redis.call('SETRANGE', 'long', 999, 'x')
        redis.call('GET', 'long')
        return redis.call('GET', KEYS[1])";
    talk.post("/v1/eval", json!({"script": traced, "keys": ["t"], "trace": true}));
    talk.post(
        "/v1/eval",
        json!({"script": traced, "keys": ["t"], "trace": true, "flags": ["disable-atomicity"]}),
    );
    let sha = talk.post("/v1/scripts", json!({"script": "#!lua name=one flags=no-writes\nreturn 1"})).json();
    let sha = sha["sha"].as_str().expect("a digest").to_owned();
    talk.post(&format!("/v1/evalsha/{sha}"), json!({"dry_run": true}));
    talk.post("/v1/evalsha/0000000000000000000000000000000000000000", json!({}));
    talk.post("/v1/scripts", json!({"script": "nonsense("}));
    talk.get("/v1/scripts");
    talk.get(&format!("/v1/scripts/{sha}"));
    talk.get("/v1/scripts/0000000000000000000000000000000000000000");
    talk.post(&format!("/v1/scripts/{sha}/kill"), json!({}));
    let stats = talk.http.get(&format!("/v1/scripts/{sha}/stats"));
    assert_eq!((stats.status, &stats.json()["runs"]), (200, &json!(1)));
    talk.say("DELETE", "/v1/scripts", &[], b"");
    talk.get("/v1/scripts");
    insta::assert_snapshot!(talk.end());
}

#[test]
fn a_script_is_checked_without_being_kept() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    let right = talk.post("/v1/check", json!({"script": "#!lua name=one flags=no-writes\nreturn 1"})).json();
    assert_eq!((&right["name"], &right["flags"]), (&json!("one"), &json!(["no-writes"])));
    let wrong = talk.post("/v1/check", json!({"script": "local a = 1\nnonsense("}));
    assert_eq!(wrong.status, 400);
    assert!(wrong.json()["detail"].as_str().expect("a text").contains("user_script:2:"), "{}", wrong.json());
    assert_eq!(talk.post("/v1/check", json!({"script": "#!lua flags=quickly\nreturn 1"})).status, 400);
    assert_eq!(talk.get("/v1/scripts").json()["scripts"], json!([]));
    let loaded = talk.post("/v1/scripts", json!({"script": "#!lua name=one flags=no-writes\nreturn 1"}));
    assert_eq!(loaded.json()["sha"], right["sha"]);
    talk.end();
}

#[test]
fn a_run_tells_what_it_wrote_and_returned() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    let mut client = server.client();
    client.run("RPUSH list a b");
    let script = "redis.call('RPUSH', KEYS[1], ARGV[1])
        redis.call('SET', 'beside', math.random() .. redis.call('TIME')[2])
        return {redis.call('GET', 'beside'), {ok = 'fine'}, false, 2}";
    let run = talk.post(
        "/v1/eval",
        json!({"script": script, "keys": ["list"], "args": ["c"], "writes": true, "raw": true, "trace": true}),
    );
    let reported = run.json();
    let (list, beside) = (&reported["writes"][0], &reported["writes"][1]);
    assert_eq!((&list["key"], &list["before"]["elements"]), (&json!("list"), &json!(["a", "b"])));
    assert_eq!(list["after"]["elements"], json!(["a", "b", "c"]));
    // What is told is what is there, random numbers and time included, and was done once.
    assert_eq!(text(&mut client, "LRANGE list 0 -1"), r#"["a", "b", "c"]"#);
    assert_eq!((&beside["before"], &beside["after"]["elements"][0]), (&Value::Null, &reported["reply"][0]));
    let kept = reported["reply"][0].as_str().expect("a string");
    assert_eq!(text(&mut client, "GET beside"), format!("{kept:?}"));
    assert_eq!((&reported["writes_omitted"], &reported["run"]["calls"]), (&json!(0), &json!(4)));
    assert_eq!(reported["trace"]["steps"].as_array().map(Vec::len), Some(4));
    let raw = format!("*4\r\n${}\r\n{kept}\r\n+fine\r\n_\r\n:2\r\n", kept.len());
    assert_eq!(reported["raw"], json!(raw));

    let wanting = |script: &str, more: Value| {
        let mut body = json!({"script": script, "keys": ["list"], "writes": true});
        body.as_object_mut().expect("an object").append(&mut more.as_object().expect("an object").clone());
        body
    };
    let failing = "redis.call('RPUSH', KEYS[1], 'd') return redis.call('GET', KEYS[1])";
    let undone = talk.post("/v1/eval", wanting(failing, json!({"flags": ["on-error=rollback"]}))).json();
    assert_eq!((&undone["code"], &undone["writes"]), (&json!("WRONGTYPE"), &json!([])));
    assert_eq!(text(&mut client, "LLEN list"), "3");
    let kept = talk.post("/v1/eval", wanting(failing, json!({}))).json();
    assert_eq!((&kept["code"], &kept["writes"][0]["after"]["length"]), (&json!("WRONGTYPE"), &json!(4)));
    assert_eq!(text(&mut client, "LLEN list"), "4");
    let ended = talk.post("/v1/eval", wanting(ENDLESS, json!({"limits": {"fuel": 100_000}}))).json();
    assert_eq!((&ended["code"], &ended["writes"]), (&json!("SCRIPTLIMIT"), &Value::Null));
    let calm =
        talk.post("/v1/eval", wanting("return redis.call('LLEN', KEYS[1])", json!({"raw": true}))).json();
    assert_eq!((&calm["writes"], &calm["raw"]), (&json!([]), &json!(":4\r\n")));
    talk.end();
}

#[test]
fn the_console_is_served_as_it_was_built() {
    let server = start(&[]);
    let mut http = server.http();
    let page = http.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").to_owned();
    for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe-inline"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    for path in ["/nothing", "/../Cargo.toml", "/assets/", "/%2e%2e/Cargo.toml"] {
        assert_eq!(http.get(path).status, 404, "{path}");
    }
    assert_eq!(http.send("POST", "/", &[("Content-Type", "application/json")], b"{}").status, 404);

    // Without Node.js nothing was built, and that is what the page says.
    let text = String::from_utf8(page.body.clone()).expect("text");
    let Some((_, script)) = text.split_once("src=\"/assets/") else {
        assert!(text.contains("make build"), "{text}");
        return;
    };
    let script = format!("/assets/{}", script.split('"').next().unwrap_or_default());
    let plain = http.get(&script);
    assert_eq!((plain.status, plain.header("content-type")), (200, "text/javascript; charset=utf-8"));
    assert!(plain.header("cache-control").contains("immutable"), "its name has a digest of it");
    let small = http.send("GET", &script, &[("Accept-Encoding", "br, gzip;q=0.8")], b"");
    assert_eq!((small.status, small.header("content-encoding")), (200, "gzip"));
    assert!(small.body.len() < plain.body.len());
    let tag = plain.header("etag").to_owned();
    let again = http.send("GET", &script, &[("If-None-Match", &tag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert!(page.header("cache-control").contains("no-cache"), "or a new server would show the old page");
}

#[test]
fn the_server_describes_itself() {
    let server = start(&[]);
    let mut talk = Talk::new(&server);
    let topology = talk.get("/v1/topology").json();
    assert_eq!((&topology["mode"], &topology["nodes"][0]["shards"]), (&json!("embedded"), &json!(4)));
    assert!(["replicas", "processes", "groups"].iter().all(|name| topology[name].is_null()), "{topology}");
    let docs = talk.get("/v1/docs").json();
    let names: Vec<&String> = docs.as_object().expect("commands").keys().collect();
    assert_eq!(names.len() as u64, {
        let tests::Value::Integer(count) = server.client().run("COMMAND COUNT") else { panic!("no number") };
        count as u64
    });
    assert_eq!(docs["get"]["syntax"], json!("key"));
    assert_eq!(docs["object"]["subcommands"]["freq"]["group"], json!("generic"));
    talk.end();
}

#[test]
fn foreign_pages_and_names_are_refused() {
    let server = start(&["--http-origins", "https://console.example", "--http-hosts", "shard.example"]);
    let mut http = server.http();
    let mut outcome = |headers: &[(&str, &str)]| {
        let all = [headers, &[("Content-Type", "application/json")]].concat();
        let answer = http.send("POST", "/v1/command", &all, br#"{"args":["PING"]}"#);
        (answer.status, answer.header("access-control-allow-origin").to_owned())
    };
    assert_eq!(outcome(&[("Host", "evil.example")]), (403, String::new()));
    assert_eq!(outcome(&[("Host", "shard.example:80")]), (200, String::new()));
    assert_eq!(outcome(&[("Origin", "http://evil.example")]), (403, String::new()));
    assert_eq!(outcome(&[("Origin", "http://localhost")]), (200, String::new()));
    let console = ("Origin", "https://console.example");
    assert_eq!(outcome(&[console]), (200, console.1.to_owned()));
    assert_eq!(outcome(&[("Host", "evil.example"), console]), (403, String::new()));

    let requested = ("Access-Control-Request-Method", "POST");
    let preflight = http.send("OPTIONS", "/v1/command", &[console, requested], b"");
    assert_eq!((preflight.status, preflight.header("access-control-max-age")), (204, "600"));
    let foreign = http.send("OPTIONS", "/v1/command", &[("Origin", "http://evil.example"), requested], b"");
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, ""));
    // Whoever looks after the process may call it by any name.
    assert_eq!(http.send("GET", "/healthz", &[("Host", "10.9.9.9")], b"").status, 200);
}

/// The users are those of the Redis protocol: there is one, who accepts any password.
#[test]
fn requests_say_who_they_are() {
    let server = start(&[]);
    let mut http = server.http();
    for (said, status) in [
        ("Basic ZGVmYXVsdDphbnk=", 200),
        ("Bearer any", 200),
        ("Basic bm9ib2R5OmFueQ==", 401),
        ("Basic no-base64!", 401),
        ("Digest any", 401),
        ("any", 401),
    ] {
        let headers = [("Authorization", said), ("Content-Type", "application/json")];
        let answer = http.send("POST", "/v1/command", &headers, br#"{"args":["PING"]}"#);
        assert_eq!(answer.status, status, "{said}");
        assert_eq!(answer.header("www-authenticate").is_empty(), status == 200, "{said}");
        if status == 401 {
            assert_eq!(answer.json()["code"], "WRONGPASS", "{said}");
        }
    }
}

/// `Basic` makes a browser open its own prompt in front of the console's dialog.
#[test]
fn scripts_of_pages_are_not_offered_basic_authentication() {
    let server = start(&[]);
    let mut http = server.http();
    let both = r#"Basic realm="moonshard", Bearer realm="moonshard""#;
    let bearer = r#"Bearer realm="moonshard""#;
    for (header, offered) in [
        (("Accept", "*/*"), both),
        (("Sec-Fetch-Mode", "navigate"), both),
        (("Sec-Fetch-Mode", "cors"), bearer),
        (("Sec-Fetch-Mode", "no-cors"), bearer),
        (("X-Requested-With", "XMLHttpRequest"), bearer),
        (("X-Requested-With", "com.example.app"), both),
    ] {
        let answer =
            http.send("GET", "/v1/topology", &[("Authorization", "Basic bm9ib2R5OmFueQ=="), header], b"");
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, offered), "{header:?}");
    }
}

#[test]
fn keys_that_may_not_be_read_are_forbidden() {
    let server = start(&[]);
    let mut admin = server.client();
    text(&mut admin, "SET secret 1");
    // One may see no such key, one may only write it, one may not run GET.
    for (user, rules) in [("none", "~public +@all"), ("writes", "%W~* +@all"), ("asks", "~* +@all -get")] {
        assert_eq!(text(&mut admin, &format!("ACL SETUSER {user} on >pw {rules}")), "+OK");
        let password = format!("Basic {}", STANDARD.encode(format!("{user}:pw")));
        for accept in ["application/json", "application/octet-stream"] {
            let headers = [("Authorization", &*password), ("Accept", accept)];
            let answer = server.http().send("GET", "/v1/key/secret", &headers, b"");
            assert_eq!(answer.status, 403, "{user}, {accept}");
        }
    }
}

#[test]
fn requests_have_names_and_limits() {
    let server = start(&["--http-body-max", "1kb"]);
    let mut http = server.http();
    let named = http.send("GET", "/v1/nothing", &[("X-Request-Id", "mine-7")], b"");
    assert_eq!((named.header("x-request-id"), &named.json()["request_id"]), ("mine-7", &json!("mine-7")));
    let (first, second) = (http.get("/healthz"), http.get("/healthz"));
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));

    let long = json!({"args": ["SET", "k", "x".repeat(2000)]});
    let refused = server.http().post("/v1/command", &long);
    assert_eq!((refused.status, &refused.json()["code"]), (413, &json!("TOOLARGE")));

    // Elements that are many times as large in memory are counted before they are read.
    let mut client = server.client();
    assert_eq!(text(&mut client, "CONFIG SET http-body-max 64mb"), "+OK");
    let many = format!("{{\"args\":[\"DEL\"{}]}}", ",\"\"".repeat(1024 * 1024));
    let refused =
        server.http().send("POST", "/v1/command", &[("Content-Type", "application/json")], many.as_bytes());
    assert_eq!((refused.status, &refused.json()["code"]), (413, &json!("TOOLARGE")));
    let fewer =
        json!({"args": std::iter::once("DEL").chain(std::iter::repeat_n("k", 200_000)).collect::<Vec<_>>()});
    assert_eq!(server.http().post("/v1/command", &fewer).status, 200);

    // What waits longer than the limit is ended, and takes nothing afterwards.
    let mut client = server.client();
    assert_eq!(text(&mut client, "CONFIG SET http-timeout-ms 500"), "+OK");
    let waited = http.post("/v1/command", &json!({"args": ["BLPOP", "queue", 0]}));
    assert_eq!((waited.status, &waited.json()["code"]), (504, &json!("TIMEOUT")));
    let ended = http.post("/v1/eval", &json!({"script": ENDLESS, "keys": ["job"]}));
    assert_eq!(ended.status, 504);
    assert_eq!(text(&mut client, "CONFIG SET http-timeout-ms 60000"), "+OK");
    assert_eq!(text(&mut client, "RPUSH queue x"), "1");
    assert_eq!(text(&mut client, "LRANGE queue 0 -1"), r#"["x"]"#);
    assert_eq!(text(&mut client, "GET job"), "nil");
    // The connection goes on.
    assert_eq!(http.get("/healthz").status, 200);
}

#[test]
fn a_script_whose_client_hangs_up_is_undone_or_goes_on() {
    let server = start(&[]);
    let mut client = server.client();
    for path in ["/v1/eval", "/v1/command"] {
        let body = match path {
            "/v1/eval" => json!({"script": ENDLESS, "keys": ["job"]}),
            _ => json!({"args": ["EVAL", ENDLESS, 1, "job"]}),
        };
        let stream = send_only(&server, path, &body);
        wait_until("the script runs", || running(&mut client) == 1);
        stream.shutdown(Shutdown::Both).expect("a connection");
        drop(stream);
        wait_until("the script is ended", || running(&mut client) == 0);
        assert_eq!(text(&mut client, "GET job"), "nil");
    }
    assert_eq!(text(&mut client, "CONFIG SET script-client-gone finish"), "+OK");
    let stream = send_only(&server, "/v1/eval", &json!({"script": WAITING, "keys": ["job"]}));
    wait_until("the script runs", || running(&mut client) == 1);
    drop(stream);
    // This one, and the one that asks.
    wait_until("it is known that the client is gone", || server.info("connected_clients") == 2);
    client.run("SET go now");
    wait_until("the script has ended", || running(&mut client) == 0);
    assert_eq!(text(&mut client, "GET job"), r#""done""#);
}

#[test]
fn clients_of_http_are_clients() {
    let server = start(&[]);
    let mut client = server.client();
    let stream = send_only(&server, "/v1/command", &json!({"args": ["BLPOP", "queue", 0]}));
    wait_until("it waits", || server.info("blocked_clients") == 1);
    let address = stream.local_addr().expect("an address");
    assert!(text(&mut client, "CLIENT LIST").contains(&format!("addr={address}")));
    assert_eq!(text(&mut client, &format!("CLIENT KILL {address}")), "+OK");
    wait_until("it is gone", || server.info("blocked_clients") == 0 && server.info("connected_clients") == 2);

    let mut stream = send_only(&server, "/v1/command", &json!({"args": ["BLPOP", "queue", 0]}));
    wait_until("it waits", || server.info("blocked_clients") == 1);
    client.run("RPUSH queue x");
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert_eq!(text(&mut client, "LLEN queue"), "0");
}

#[test]
fn a_trace_tells_why_a_script_ran_again() {
    let server = start(&[]);
    let mut client = server.client();
    let mut holder = server.client();
    let number = text(&mut holder, "CLIENT ID");
    holder.send(["EVAL", ENDLESS, "1", "held"]);
    wait_until("the key is held", || running(&mut client) == 1);
    let waiting = {
        let mut http = server.http();
        let script = "redis.call('SET', KEYS[1], 1) return redis.call('APPEND', 'held', 'x')";
        let body = json!({"script": script, "keys": ["own"], "trace": true});
        std::thread::spawn(move || http.post("/v1/eval", &body).json())
    };
    wait_until("it was undone", || server.info("scripts_rerun") == 1);
    assert_eq!(text(&mut client, &format!("SCRIPT KILL CLIENT {number}")), "+OK");
    let reported = waiting.join().expect("no panic");
    assert_eq!(reported["reply"], json!(1), "what the other wrote was undone");
    assert_eq!(reported["trace"]["reruns"], json!([{"why": "key", "db": 0, "key": "held"}]));
    assert_eq!(reported["trace"]["steps"].as_array().map(Vec::len), Some(2), "those of the last round");
}

/// The events of a stream, as they come.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn new(server: &TestServer) -> Listener {
        let mut stream = TcpStream::connect(server.http_address()).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the server reads");
        let mut listener = Listener(BufReader::new(stream));
        assert_eq!(listener.next().0, "listening");
        listener
    }

    /// Name and data of the next event.
    fn next(&mut self) -> (String, Value) {
        let name = self.field("event: ");
        (name, serde_json::from_str(&self.field("data: ")).expect("JSON"))
    }

    fn field(&mut self, field: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line in time") > 0, "the stream has ended");
            if let Some(value) = line.strip_prefix(field) {
                return value.trim_end().to_owned();
            }
        }
    }
}

#[test]
fn events_tell_of_runs() {
    let server = start(&[]);
    let mut listener = Listener::new(&server);
    let mut client = server.client();
    let mut expect = |mode: &str, outcome: &str| {
        let (kind, began) = listener.next();
        assert_eq!((&*kind, &began["mode"]), ("began", &json!(mode)), "{began}");
        let (kind, ended) = listener.next();
        assert_eq!((&*kind, &ended["outcome"]), ("ended", &json!(outcome)), "{ended}");
        assert_eq!(began["run"], ended["run"]);
        assert!(ended["sha"].as_str().is_some_and(|sha| sha.len() == 40));
        ended["fuel"].as_u64().expect("fuel")
    };
    client.eval("return 1", &[], &[]);
    assert!(expect("atomic", "ok") > 0);
    client.eval("return redis.error_reply('x')", &[], &[]);
    expect("atomic", "error");
    client.eval("--!df flags=disable-atomicity\nreturn 1", &[], &[]);
    expect("async", "ok");
    client.run("EVAL_RO 'return 1' 0");
    expect("read-only", "ok");
    for line in ["MULTI", "EVAL 'return 1' 0", "EXEC"] {
        client.run(line);
    }
    expect("transaction", "ok");
    client.eval("#!lua fuel=100000\nwhile true do end", &[], &[]);
    assert_eq!(expect("atomic", "limit"), 100_000);
    let stream = send_only(&server, "/v1/eval", &json!({"script": ENDLESS, "keys": ["job"]}));
    wait_until("it runs", || running(&mut client) == 1);
    drop(stream);
    expect("atomic", "gone");
    let _stream = send_only(&server, "/v1/eval", &json!({"script": ENDLESS, "keys": ["job"]}));
    wait_until("it is killed", || text(&mut client, "SCRIPT KILL") == "+OK");
    expect("atomic", "killed");
}

#[test]
fn the_server_ends_although_somebody_listens() {
    let mut server = start(&[]);
    let mut listener = Listener::new(&server);
    let mut idle = server.http();
    assert_eq!(idle.get("/healthz").status, 200);
    let _blocked = send_only(&server, "/v1/command", &json!({"args": ["BLPOP", "queue", 0]}));
    wait_until("it waits", || server.info("blocked_clients") == 1);
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
    let mut rest = String::new();
    listener.0.read_to_string(&mut rest).expect("the end of the stream");
    assert!(!server.log().contains("cut off"), "nobody had to be cut off");
}

#[test]
fn what_the_disk_does_not_take_is_a_problem() {
    let dir = TempDir::new("http");
    let flags = [HTTP, &["--data-dir", dir.text(), "--durability", "sync"]].concat();
    let server = TestServer::start_failing(&flags, "");
    let mut http = server.http();
    let headers = [("Content-Type", "application/octet-stream")];
    assert_eq!(http.send("PUT", "/v1/key/k", &headers, b"v").status, 204);
    let newest = server.info("journal_newest");
    let dry = json!({"script": "return redis.call('SET', KEYS[1], 'x')", "keys": ["k"], "dry_run": true});
    assert_eq!(http.post("/v1/eval", &dry).json()["writes"][0]["after"]["elements"], json!(["x"]));
    assert_eq!(server.info("journal_newest"), newest, "a dry run is not written down");
    server.kill();
    let server = TestServer::start(&flags);
    assert_eq!(server.http().get("/v1/key/k").json()["value"], json!("v"));
}
