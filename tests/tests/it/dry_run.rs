//! Scripts that are undone when they have ended, and tell what they would have changed.

use tests::{Client, PROTOCOLS, Protocol, Topology, Value, notation, over_nodes, wait_until};

const CHANGES: &str = "redis.call('SET', KEYS[1], 'new')
    redis.call('RPUSH', KEYS[2], 'c')
    redis.call('PEXPIREAT', KEYS[2], 99999999999999)
    redis.call('DEL', KEYS[3])
    redis.call('SADD', 'undeclared', 'm')
    redis.call('STICK', KEYS[1])
    return redis.call('GET', KEYS[1])";

fn text(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

/// The reply with the numbers that nobody may rely on taken out.
fn reported(reply: Value) -> String {
    let hide = |(name, value): (Value, Value)| {
        let number = matches!(value, Value::Integer(number) if number > 0);
        let varies = name.text().is_some_and(|name| name == b"fuel" || name == b"memory");
        let value = if varies && number { Value::Status(b"some".into()) } else { value };
        (name, value)
    };
    notation::reply(&match reply {
        Value::Map(pairs) => Value::Map(pairs.into_iter().map(hide).collect()),
        Value::Array(flat) if flat.len() == 12 => Value::Array(
            flat.chunks(2)
                .flat_map(|pair| {
                    let (name, value) = hide((pair[0].clone(), pair[1].clone()));
                    [name, value]
                })
                .collect(),
        ),
        other => other,
    })
}

fn prepare(client: &mut Client) {
    for line in ["FLUSHALL", "SET a old", "RPUSH l a b", "HSET h f v"] {
        client.run(line);
    }
}

fn it_tells_what_it_would_have_changed_and_changes_nothing(on: Topology) {
    let server = on.start(&[]);
    let mut shown = String::new();
    for protocol in PROTOCOLS {
        let mut client = Client::connect(server.address(), protocol);
        prepare(&mut client);
        let dry = format!("#!lua flags=dry-run\n{CHANGES}");
        let reply = client.eval(&dry, &["a", "l", "h"], &[]);
        shown += &format!("{protocol:?}\n{}\n", reported(reply));
        assert_eq!(text(&mut client, "MGET a undeclared"), r#"["old", nil]"#);
        assert_eq!(text(&mut client, "LRANGE l 0 -1"), r#"["a", "b"]"#);
        assert_eq!(text(&mut client, "PTTL l"), "-1");
        assert_eq!(text(&mut client, "HGET h f"), r#""v""#);
        assert_eq!(text(&mut client, "DBSIZE"), "3");
        // The same script for real does all of that.
        let wet = client.eval(CHANGES, &["a", "l", "h"], &[]);
        assert_eq!(notation::reply(&wet), r#""new""#);
        assert_eq!(text(&mut client, "EXISTS h undeclared"), "1");
    }
    insta::assert_snapshot!("it_tells_what_it_would_have_changed_and_changes_nothing", shown);
}

fn errors_and_whole_databases_are_told_too(on: Topology) {
    let server = on.start(&[]);
    let mut client = Client::connect(server.address(), Protocol::Resp3);
    let mut shown = String::new();
    for (header, script) in [
        ("flags=dry-run", "redis.call('SET', 'a', 'x') return redis.error_reply('FULL')"),
        ("flags=dry-run on-error=rollback", "redis.call('SET', 'a', 'x') return redis.error_reply('FULL')"),
        ("flags=dry-run", "redis.call('FLUSHALL') redis.call('SET', 'a', 'x')"),
        ("flags=dry-run", "return redis.call('GET', 'a')"),
        ("flags=dry-run,disable-atomicity", "return redis.call('GET', 'a')"),
        ("flags=dry-run fuel=100000", "redis.call('SET', 'a', 'x') while true do end"),
    ] {
        prepare(&mut client);
        let reply = client.eval(&format!("#!lua {header}\n{script}"), &[], &[]);
        shown += &format!("{header} {script}\n{}\n\n", reported(reply));
        assert_eq!(text(&mut client, "GET a"), r#""old""#);
        assert_eq!(text(&mut client, "DBSIZE"), "3");
    }
    insta::assert_snapshot!("errors_and_whole_databases_are_told_too", shown);
}

fn any_source_of_flags_may_ask_for_it(on: Topology) {
    let server = on.start(&[]);
    let mut client = Client::connect(server.address(), Protocol::Resp3);
    let is_dry = |reply: &Value| matches!(reply, Value::Map(pairs) if pairs.len() == 6);
    let set = "return redis.call('SET', KEYS[1], 'x')";
    let Value::Bulk(sha) = client.call(["SCRIPT", "LOAD", set]) else { panic!("no digest") };
    let sha = String::from_utf8(sha).expect("hexadecimal digits");
    assert_eq!(text(&mut client, &format!("SCRIPT FLAGS {sha} dry-run")), "+OK");
    assert!(is_dry(&client.run(&format!("EVALSHA {sha} 1 k"))));
    client.run("SCRIPT FLUSH");
    client.run("CONFIG SET default-script-flags dry-run");
    assert!(is_dry(&client.eval(set, &["k"], &[])));
    client.run(
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function(keys) return redis.call('SET', keys[1], 1) end)\"",
    );
    assert!(is_dry(&client.run("FCALL f 1 k")));
    assert_eq!(text(&mut client, "EXISTS k"), "0");
}

fn in_a_transaction_only_the_script_is_undone(on: Topology) {
    let server = on.start(&[]);
    let mut client = Client::connect(server.address(), Protocol::Resp3);
    client.run("MULTI");
    client.run("SET k before");
    client.eval("#!lua flags=dry-run\nreturn redis.call('SET', KEYS[1], 'dry')", &["k"], &[]);
    client.run("APPEND k !");
    let Value::Array(replies) = client.run("EXEC") else { panic!("no array") };
    let Value::Map(parts) = &replies[1] else { panic!("no map: {:?}", replies[1]) };
    let writes = notation::reply(&parts[1].1);
    assert!(writes.contains(r#"["before"]"#) && writes.contains(r#"["dry"]"#), "{writes}");
    assert!(matches!(parts[3].1, Value::Integer(fuel) if fuel > 0));
    assert_eq!(text(&mut client, "GET k"), r#""before!""#);
}

fn others_wait_for_it_and_see_nothing_of_it(on: Topology) {
    let server = on.start(&["--script-timeout-ms", "60000"]);
    let (mut client, mut other, mut waiting) = (server.client(), server.client(), server.client());
    client.run("SET k old");
    waiting.send(["BLPOP", "queue", "0"]);
    wait_until("it waits", || server.info("blocked_clients") == 1);
    client.send([
        "EVAL",
        "#!lua flags=dry-run\nredis.call('SET', KEYS[1], 'dry') redis.call('RPUSH', KEYS[2], 1)
        redis.log(redis.LOG_WARNING, 'it runs') for i = 1, 20000000 do end",
        "2",
        "k",
        "queue",
    ]);
    wait_until("it runs", || server.log().contains("it runs"));
    assert_eq!(text(&mut other, "GET k"), r#""old""#);
    assert!(matches!(client.read(), Value::Array(_)));
    assert_eq!(server.info("blocked_clients"), 1, "nobody was served by it");
    other.run("RPUSH queue real");
    assert_eq!(notation::reply(&waiting.read()), r#"["queue", "real"]"#);
}

over_nodes! {
    it_tells_what_it_would_have_changed_and_changes_nothing,
    errors_and_whole_databases_are_told_too,
    any_source_of_flags_may_ask_for_it,
    in_a_transaction_only_the_script_is_undone,
    others_wait_for_it_and_see_nothing_of_it,
}
