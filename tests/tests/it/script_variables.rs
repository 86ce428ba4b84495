//! The variables of a script at each of its calls, which a trace has on request.

use serde_json::{Value, json};
use tests::http::Answer;
use tests::openapi::Description;
use tests::{Http, TestServer, Topology, over_nodes};

const HTTP: &[&str] = &["--http", "127.0.0.1:0", "--script-timeout-ms", "60000"];

/// Asks for a run; the answer is as the API's own description has it.
fn eval(http: &mut Http, body: &Value) -> Answer {
    let description = Description::new(http.get("/v1/openapi.json").json());
    let headers = [("Content-Type", "application/json")];
    let answer = http.send("POST", "/v1/eval", &headers, body.to_string().as_bytes());
    assert_eq!(description.faults("POST", "/v1/eval", &answer), Vec::<String>::new());
    answer
}

/// A dry run with variables.
fn stepped(http: &mut Http, script: &str) -> Answer {
    let body = json!({"script": script, "keys": ["k"], "dry_run": true, "trace": true, "variables": true});
    eval(http, &body)
}

/// The calls of a trace.
fn calls(answer: &Value) -> Vec<&Value> {
    let steps = answer["trace"]["steps"].as_array().expect("steps");
    steps.iter().map(|step| &step["call"]).filter(|call| call.is_object()).collect()
}

/// Of the innermost function.
fn variable<'a>(call: &'a Value, name: &str) -> &'a Value {
    let variables = call["frames"][0]["variables"].as_array().expect("variables");
    let found = variables.iter().find(|variable| variable["name"] == *name);
    found.map_or(&Value::Null, |variable| &variable["value"])
}

fn each_call_has_its_line_and_the_variables(on: Topology) {
    let server = on.start(HTTP);
    let (mut http, mut client) = (server.http(), server.client());
    client.run("SET k old");
    let script = "local list = {'a', true, {deep = 1.5}}
        redis.log(redis.LOG_NOTICE, 'begin')
        redis.call('SET', KEYS[1], 'new')
        local function read(name)
            local got = redis.call('GET', name)
            redis.pcall('LPUSH', name, got)
            return got
        end
        local got = read(KEYS[1])
        return redis.call('APPEND', 'undeclared', got .. '\\255')";
    let answer = stepped(&mut http, script);
    assert_eq!(answer.status, 200);
    let reported = answer.json();
    let calls = calls(&reported);
    let lines: Vec<&Value> = calls.iter().map(|call| &call["line"]).collect();
    assert_eq!(lines, [3, 5, 6, 10]);
    let deep =
        json!([[{"type": "string", "value": "deep", "length": 4}, {"type": "number", "value": "1.5"}]]);
    assert_eq!(
        *variable(calls[0], "list"),
        json!({"type": "table", "count": 3, "entries": [
            [{"type": "number", "value": "1"}, {"type": "string", "value": "a", "length": 1}],
            [{"type": "number", "value": "2"}, {"type": "boolean", "value": true}],
            [{"type": "number", "value": "3"}, {"type": "table", "count": 1, "entries": deep}],
        ]})
    );
    assert_eq!(*variable(calls[0], "got"), Value::Null, "it is declared later");
    let functions = |call: &Value| -> Vec<(Value, Value)> {
        let frames = call["frames"].as_array().expect("frames");
        frames.iter().map(|frame| (frame["function"].clone(), frame["line"].clone())).collect()
    };
    assert_eq!(functions(calls[1]), [(json!("read"), json!(5)), (json!("main chunk"), json!(9))]);
    assert_eq!(*variable(calls[1], "name"), json!({"type": "string", "value": "k", "length": 1}));
    assert_eq!(*variable(calls[1], "got"), Value::Null);
    assert_eq!(*variable(calls[2], "got"), json!({"type": "string", "value": "new", "length": 3}));
    assert_eq!(calls[2]["error"]["code"], "WRONGTYPE");
    assert_eq!(functions(calls[3]), [(json!("main chunk"), json!(10))]);
    assert!(calls.iter().all(|call| call["frames_cut"] == false));
    assert_eq!((&reported["trace"]["frames_omitted"], &reported["reply"]), (&json!(0), &json!(4)));
    // It was undone, and is reported as without variables.
    assert_eq!(reported["writes"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (client.run("GET k").text(), client.run("DBSIZE")),
        (Some(&b"old"[..]), tests::Value::Integer(1))
    );
    let body = json!({"script": script, "keys": ["k"], "dry_run": true, "trace": true});
    let without = eval(&mut http, &body).json();
    assert_eq!((&without["reply"], &without["writes"]), (&reported["reply"], &reported["writes"]));
    assert!(without["trace"]["frames_omitted"].is_null());
    assert!(self::calls(&without).iter().all(|call| call["frames"].is_null() && call["line"].is_null()));
}

over_nodes! {
    each_call_has_its_line_and_the_variables,
}

#[test]
fn a_run_that_fails_has_them_up_to_its_end() {
    let server = TestServer::start(HTTP);
    let mut http = server.http();
    let failing = "local at = 'begin' redis.call('SET', KEYS[1], 1)
        at = 'end' redis.call('LPUSH', KEYS[1], 1)";
    let answer = stepped(&mut http, failing);
    assert_ne!(answer.status, 200);
    let answer = answer.json();
    let at: Vec<&Value> = calls(&answer).iter().map(|call| &variable(call, "at")["value"]).collect();
    assert_eq!((at, &answer["code"]), (vec![&json!("begin"), &json!("end")], &json!("WRONGTYPE")));

    let endless = "local n = 0 while true do n = n + 1 redis.call('SET', KEYS[1], n) end";
    let body = json!({"script": endless, "keys": ["k"], "dry_run": true, "trace": true, "variables": true,
        "limits": {"fuel": 200_000}});
    let answer = eval(&mut http, &body).json();
    assert_eq!(answer["code"], "SCRIPTLIMIT");
    for (at, call) in calls(&answer).iter().enumerate() {
        assert_eq!(variable(call, "n")["value"], (at + 1).to_string());
    }
    assert!(calls(&answer).len() > 10, "{answer}");
    assert_eq!(server.client().run("EXISTS k"), tests::Value::Integer(0));
}

#[test]
fn what_is_kept_of_a_run_has_bounds() {
    let server = TestServer::start(HTTP);
    let mut http = server.http();
    let large = "local rows = {}
        for i = 1, 16 do
            rows[i] = {}
            for j = 1, 16 do rows[i][j] = ('x'):rep(1000) end
        end
        for i = 1, 1500 do redis.call('SET', KEYS[1], i) end";
    let body = json!({"script": large, "keys": ["k"], "trace": true, "variables": true,
        "limits": {"fuel": 1_000_000_000}});
    let answer = eval(&mut http, &body);
    assert_eq!(answer.status, 200, "{}", answer.body.escape_ascii());
    assert!(answer.body.len() < 16 << 20, "{} bytes", answer.body.len());
    let answer = answer.json();
    let calls = calls(&answer);
    let (with, without): (Vec<&Value>, _) = calls.iter().partition(|call| call["frames"].is_array());
    assert!((100..200).contains(&with.len()), "{}", with.len());
    assert_eq!(answer["trace"]["frames_omitted"], json!(without.len()));
    assert_eq!((calls.len(), &answer["trace"]["omitted"]), (1000, &json!(500)));
    assert!(with.iter().all(|call| call["frames_cut"] == true));
    let first = &variable(with[0], "rows")["entries"][0][1]["entries"][0][1];
    assert_eq!(*first, json!({"type": "string", "value": "x".repeat(128), "length": 1000}));
    assert_eq!(server.client().run("GET k").text(), Some(&b"1500"[..]), "it was no dry run");
}

#[test]
fn they_are_a_part_of_the_trace() {
    let server = TestServer::start(HTTP);
    let mut http = server.http();
    let answer = eval(&mut http, &json!({"script": "return 1", "dry_run": true, "variables": true}));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("REQUEST")));
    let answer = stepped(&mut http, "return 1").json();
    assert_eq!(answer["trace"], json!({"steps": [], "omitted": 0, "frames_omitted": 0, "reruns": []}));
}
