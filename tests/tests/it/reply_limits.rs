//! Replies that are too large are refused while they are made, by HTTP as by RESP: a request of a few bytes cannot have the
//! server take gigabytes.

use serde_json::json;
use tests::{TestServer, notation, wait_until};

/// A server that lets no reply grow beyond 16 MB, with a text of a megabyte.
fn start() -> TestServer {
    let server = TestServer::start(&[
        "--http",
        "127.0.0.1:0",
        "--client-output-buffer-limit",
        "normal 16mb 16mb 60",
        "--http-body-max",
        "16mb",
    ]);
    let text = "t".repeat(1 << 20);
    assert_eq!(notation::reply(&server.client().call(["SET", "text", &text])), "+OK");
    // Bytes of which each takes six in JSON.
    assert_eq!(notation::reply(&server.client().run("SETRANGE zeros 3999999 x")), "4000000");
    server
}

#[test]
fn http_refuses_what_is_too_large_together() {
    let server = start();
    let mut http = server.http();
    let before = server.resident_bytes();
    let gets: Vec<_> = (0..3000).map(|_| json!(["GET", "text"])).collect();
    let names: Vec<_> = std::iter::once("MGET").chain(std::iter::repeat_n("text", 3000)).collect();
    let requests = [
        ("/v1/pipeline", json!({ "commands": gets })),
        ("/v1/pipeline", json!({ "commands": gets, "atomic": true })),
        ("/v1/command", json!({ "args": names })),
        ("/v1/command", json!({ "args": ["GET", "zeros"] })),
        ("/v1/pipeline", json!({ "commands": [["GET", "zeros"]] })),
    ];
    for (path, body) in requests {
        let answer = http.post(path, &body);
        let reply = answer.json();
        assert_eq!((answer.status, &reply["code"]), (422, &json!("REPLYLIMIT")), "{path} {reply}");
    }
    let script = json!({ "script": "return redis.call('GET', KEYS[1])", "keys": ["zeros"] });
    let answer = http.post("/v1/eval", &script);
    assert_eq!(answer.json()["code"], json!("REPLYLIMIT"));
    // What is not too large comes whole.
    let answer = http.post("/v1/command", &json!({ "args": ["GET", "text"] }));
    assert_eq!(answer.json()["reply"].as_str().map(str::len), Some(1 << 20));
    let gets: Vec<_> = (0..15).map(|_| json!(["GET", "text"])).collect();
    for atomic in [false, true] {
        let answer = http.post("/v1/pipeline", &json!({ "commands": gets, "atomic": atomic }));
        let replies = answer.json()["replies"].as_array().map(Vec::len);
        assert_eq!(replies, Some(15));
    }
    wait_until("its memory is free again", || server.resident_bytes() < before + (150 << 20));
}

#[test]
fn transactions_and_scripts_refuse_what_is_too_large_together() {
    let server = start();
    let mut client = server.client();
    let before = server.peak_bytes();
    client.call(["RPUSH", "texts"].into_iter().chain(std::iter::repeat_n(&*"e".repeat(1 << 20), 20)));
    client.run("XADD stream * field value");
    for _ in 0..20 {
        client.call(["XADD", "stream", "*", "field", &"e".repeat(1 << 20)]);
    }
    for at in 1..20 {
        client.run(&format!("SADD set {at}"));
        client.run(&format!("COPY text text:{at}"));
    }
    for call in
        ["LRANGE texts 0 -1", "XRANGE stream - +", "SORT set BY nosort GET text:*", "XREAD STREAMS stream 0"]
    {
        let reply = notation::reply(&client.run(call));
        assert!(reply.starts_with("-REPLYLIMIT "), "{call}: {reply:.100}");
    }
    client.run("MULTI");
    client.run("SET written 1");
    for _ in 0..3000 {
        client.run("GET text");
    }
    let reply = notation::reply(&client.run("EXEC"));
    assert!(reply.starts_with("-REPLYLIMIT "), "{reply:.100}");
    assert_eq!(notation::reply(&client.run("GET written")), "nil", "nothing of it is kept");
    let script = "local t = {} for i = 1, 3000 do t[i] = redis.call('GET', 'text') end return t";
    let reply = notation::reply(&client.eval(script, &["text"], &[]));
    assert!(reply.starts_with("-SCRIPTLIMIT "), "{reply:.100}");
    let grown = server.peak_bytes() - before;
    assert!(grown < 400 << 20, "{grown} bytes more at the peak");
}
