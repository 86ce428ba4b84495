//! What the log tells of administrators and of whoever is refused something.

use serde_json::Value as Json;
use tests::{TestServer, wait_until};

use super::{all, say};

fn audit(server: &TestServer) -> Vec<Json> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    lines.filter(|line| line["source"] == "audit").collect()
}

/// The lines as texts, once the last one ends like this.
fn reported(server: &TestServer, last: &str) -> Vec<String> {
    let text = |line: &Json, fields: &[&str]| {
        let values = fields.iter().map(|field| line[*field].as_str().unwrap_or("?").to_owned());
        values.collect::<Vec<_>>().join(" / ")
    };
    let shown = |line: &Json| {
        assert!(line["addr"].as_str().is_some_and(|addr| addr.starts_with("127.0.0.1:")), "{line}");
        match line["message"].as_str() {
            Some("admin") => text(line, &["user", "command", "outcome"]),
            _ => text(line, &["message", "user", "reason", "context", "object"]),
        }
    };
    let mut lines = Vec::new();
    wait_until("the lines are there", || {
        lines = audit(server).iter().map(shown).collect();
        lines.last().is_some_and(|line| line.ends_with(last))
    });
    // A script that is run again makes its calls again.
    lines.dedup();
    lines
}

#[test]
fn the_log_tells_who_changed_what_and_who_was_refused() {
    let flags = ["--log-format", "json", "--log-level", "warning", "--http", "127.0.0.1:0"];
    let server = TestServer::start(&flags);
    let mut admin = server.client();
    let mut user = server.client();
    for line in [
        "ACL SETUSER u on >Xyzzy ~k* +get +multi +exec +eval",
        "ACL SETUSER u Xyzzy",
        "CONFIG SET hz 10 requirepass Xyzzy",
        "ACL LIST",
        "CONFIG GET hz",
        "ACL LOG",
        "SCRIPT LOAD 'return 1'",
        "SCRIPT FLUSH",
        "FLUSHALL",
        "MULTI",
        "CONFIG SET hz 11",
        "FLUSHDB",
        "PING",
        "EXEC",
        "EVAL \"redis.call('SET', 'k', 1) return redis.call('FLUSHALL', 'async')\" 0",
        "EVAL \"#!lua flags=disable-atomicity\\nreturn redis.call('FLUSHDB')\" 0",
    ] {
        admin.run(line);
    }
    all(&mut user, &[("AUTH u Xyzzy", "+OK"), ("GET k", "nil")]);
    for line in ["AUTH u 'no addr=1.2.3.4'", "GET x", "DEL k", "EVAL \"return redis.pcall('DEL', 'k')\" 0"] {
        user.run(line);
    }
    let mut http = server.http();
    let headers = [("Content-Type", "application/json"), ("Authorization", "Bearer Xyzzy")];
    let answer = http.send("POST", "/v1/command", &headers, br#"{"args":["ACL","DELUSER","u"]}"#);
    assert_eq!(answer.status, 200);
    let wrong = [("Content-Type", "application/json"), ("Authorization", "Bearer nothing")];
    assert_eq!(http.send("POST", "/v1/command", &wrong, br#"{"args":["PING"]}"#).status, 401);
    assert_eq!(
        reported(&server, "default / auth / toplevel / AUTH"),
        [
            "default / ACL SETUSER u on (redacted) ~k* +get +multi +exec +eval / ok",
            "default / ACL SETUSER u (redacted) / ERR",
            "default / CONFIG SET hz 10 requirepass (redacted) / ok",
            "default / SCRIPT FLUSH / ok",
            "default / FLUSHALL / ok",
            "default / CONFIG SET hz 11 / ok",
            "default / FLUSHDB / ok",
            "default / FLUSHALL async / called by a script",
            "default / FLUSHDB / called by a script",
            "denied / u / auth / toplevel / AUTH",
            "denied / u / key / toplevel / x",
            "denied / u / command / toplevel / del",
            "denied / u / command / lua / del",
            "default / ACL DELUSER u / ok",
            "denied / default / auth / toplevel / AUTH",
        ]
    );
    assert!(!server.log().contains("Xyzzy"), "{}", server.log());
    // Each half can be left out.
    all(&mut admin, &[("CONFIG SET audit-log denied", "+OK"), ("CONFIG SET hz 12", "+OK")]);
    admin.run("AUTH u nothing");
    let lines = reported(&server, "u / auth / toplevel / AUTH");
    let turned = "default / CONFIG SET audit-log denied / ok";
    assert_eq!(&lines[15..], [turned, "denied / u / auth / toplevel / AUTH"]);
    all(&mut admin, &[("CONFIG SET audit-log admin", "+OK")]);
    admin.run("AUTH u nothing");
    admin.send(["SHUTDOWN", "NOSAVE"]);
    let lines = reported(&server, "SHUTDOWN NOSAVE / ok");
    assert_eq!(&lines[17..], ["default / CONFIG SET audit-log admin / ok", "default / SHUTDOWN NOSAVE / ok"]);
}

#[test]
fn people_read_it_too() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    client.run("AUTH 'a addr=b' pw");
    client.run("CLIENT KILL ID 0");
    for part in [
        " audit: denied user=\"a addr=b\" addr=127.0.0.1:",
        " reason=auth context=toplevel object=AUTH",
        " audit: admin user=default addr=127.0.0.1:",
        " command=\"CLIENT KILL ID 0\" outcome=",
    ] {
        wait_until("the log has it", || server.log().contains(part));
    }
    assert_eq!(say(&mut client, "PING"), "+PONG");
}
