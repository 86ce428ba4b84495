//! Script modes with several clients: what others see, who waits for whom, and whom a kill reaches.

use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

/// Over store nodes it has its key from the first call on whose result it uses.
const ENDLESS: &str = "local _ = redis.call('SET', KEYS[1], 'half done')
    redis.log(redis.LOG_WARNING, 'it has the key') while true do end";

/// Lets a script have the key `held` until it is ended.
fn hold(server: &TestServer, holder: &mut Client) {
    holder.send(["EVAL", ENDLESS, "1", "held"]);
    // It is listed, and can be killed, from its second slice on.
    let mut other = server.client();
    wait_until("it has the key", || server.log().contains("it has the key") && running(&mut other) == 1);
}

/// Writes to keys of many shards and waits in between until somebody else says `go`.
const INTERLEAVED: &str = "--!df flags=disable-atomicity
    for i = 1, 20 do redis.call('SET', 'step:' .. i, i) end
    while redis.call('GET', 'go') ~= 'now' do end
    for i = 1, 20 do redis.call('INCR', 'step:' .. i) end
    return redis.call('GET', 'step:20')";

fn text(reply: &Value) -> String {
    notation::reply(reply)
}

fn running(client: &mut Client) -> usize {
    match client.run("SCRIPT RUNNING") {
        Value::Array(runs) => runs.len(),
        other => panic!("no list of runs: {other:?}"),
    }
}

fn id(client: &mut Client) -> i64 {
    match client.run("CLIENT ID") {
        Value::Integer(id) => id,
        other => panic!("no number: {other:?}"),
    }
}

fn without_atomicity_others_see_and_change_what_the_script_does(on: Topology) {
    for instances in ["rewind", "fresh"] {
        let server = on.start(&["--script-instances", instances]);
        let (mut script, mut other) = (server.client(), server.client());
        script.send(["EVAL", INTERLEAVED, "0"]);
        wait_until("its writes are seen", || text(&other.run("MGET step:1 step:20")) == r#"["1", "20"]"#);
        assert_eq!(text(&other.run("SET step:20 100")), "+OK");
        other.run("SET go now");
        assert_eq!(text(&script.read()), r#""101""#);
    }
}

fn an_atomic_script_keeps_to_itself_until_it_ends(on: Topology) {
    let server = on.start(&[]);
    let (mut script, mut other, mut waiting) = (server.client(), server.client(), server.client());
    let read = "redis.call('GET', KEYS[1])";
    let has = format!("local _ = {read} redis.log(redis.LOG_WARNING, 'it has the key')\n while");
    let atomic = INTERLEAVED.replace("--!df flags=disable-atomicity", "--!df");
    let atomic = atomic.replace("redis.call('GET', 'go')", read).replace("while", &has);
    script.send(["EVAL", &atomic, "1", "go"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
    assert_eq!(text(&other.run("SET free 1")), "+OK");
    // It never sees another value: whoever sets it waits until the script has ended.
    waiting.send(["SET", "go", "now"]);
    wait_until("it is killed", || text(&other.run("SCRIPT KILL")) == "+OK");
    assert!(text(&script.read()).starts_with("-KILLED "));
    assert_eq!(text(&waiting.read()), "+OK");
    assert_eq!(text(&other.run("KEYS step:*")), "[]");
}

/// The server's time.
fn seconds(client: &mut Client) -> u64 {
    let Value::Array(parts) = client.run("TIME") else { panic!("a time") };
    String::from_utf8_lossy(parts[0].text().expect("seconds")).parse().expect("a number")
}

fn what_expires_while_a_script_has_it_is_there_until_it_ends(on: Topology) {
    let server = on.start(&[]);
    let (mut holder, mut other) = (server.client(), server.client());
    // So long that store nodes keep it to themselves.
    other.call(["RPUSH", "held", &"x".repeat(100_000)]);
    let lives_on = "redis.call('EXPIRE', KEYS[1], 1) while redis.call('LLEN', KEYS[1]) == 2 do end";
    let script = ENDLESS.replace("'SET'", "'RPUSH'").replace("while true do end", lives_on);
    holder.send(["EVAL", &script, "1", "held"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
    let began = seconds(&mut other);
    wait_until("the key's time is over", || seconds(&mut other) > began + 1);
    assert_eq!(text(&other.run("WATCH held")), "+OK");
    assert_eq!(text(&other.run("SCRIPT KILL")), "+OK");
    assert!(text(&holder.read()).starts_with("-KILLED "));
    assert_eq!(text(&other.run("LLEN held")), "1");
}

fn nobody_changes_what_a_running_transaction_watches(on: Topology) {
    let server = on.start(&[]);
    let (mut runs, mut other, mut third) = (server.client(), server.client(), server.client());
    runs.run("WATCH watched");
    runs.run("MULTI");
    runs.call(["EVAL", ENDLESS, "1", "held"]);
    runs.send(["EXEC"]);
    wait_until("it has its keys", || server.log().contains("it has the key"));
    wait_until("it can be killed", || running(&mut other) == 1);
    let id = id(&mut other);
    other.send(["SET", "watched", "changed"]);
    wait_until("it is asked", || text(&third.run(&format!("CLIENT LIST ID {id}"))).contains("cmd=set"));
    assert_eq!(text(&third.run("PING")), "+PONG");
    assert!(!is_answered(&other), "it waits until the transaction has ended");
    assert_eq!(text(&third.run("SCRIPT KILL")), "+OK");
    assert!(text(&runs.read()).starts_with("-KILLED "));
    assert_eq!(text(&other.read()), "+OK");
}

fn a_transaction_may_write_what_it_watches(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    client.run("WATCH one two");
    client.run("MULTI");
    let script = "redis.call('SET', 'one', 1) redis.call('SET', 'two', 2) return redis.call('GET', 'one')";
    client.eval(script, &[], &[]);
    assert_eq!(text(&client.run("EXEC")), r#"["1"]"#);
}

/// Whether something has come for it.
fn is_answered(client: &Client) -> bool {
    client.stream().set_nonblocking(true).expect("a socket");
    let answered = client.stream().peek(&mut [0]).is_ok();
    client.stream().set_nonblocking(false).expect("a socket");
    answered
}

fn what_expires_while_a_transaction_waits_has_changed(on: Topology) {
    let server = on.start(&["--shards", "1"]);
    let (mut holder, mut waits, mut other) = (server.client(), server.client(), server.client());
    hold(&server, &mut holder);
    // It has the key that it watches before it waits for the other.
    wait_until("the key is watched before it expires", || {
        waits.run("UNWATCH");
        waits.run("SET a_watched here PX 1000");
        waits.run("WATCH a_watched");
        text(&waits.run("EXISTS a_watched")) == "1"
    });
    for call in ["MULTI", "GET a_watched", "SET held now"] {
        waits.run(call);
    }
    waits.send(["EXEC"]);
    let began = seconds(&mut other);
    wait_until("the key's time is over", || seconds(&mut other) > began + 1);
    assert_eq!(text(&other.run("SCRIPT KILL")), "+OK");
    assert!(text(&holder.read()).starts_with("-KILLED "));
    assert_eq!(text(&waits.read()), "nil[]");
}

fn a_script_without_atomicity_waits_for_locked_keys_only(on: Topology) {
    let server = on.start(&["--script-concurrency", "1"]);
    let (mut holder, mut free, mut other) = (server.client(), server.client(), server.client());
    other.run("SET held before");
    hold(&server, &mut holder);
    // The unread write waits for its key with all that follows on the same node; what came before is done.
    let script = "--!df flags=disable-atomicity
        redis.call('SET', 'one', 1) redis.call('GETRANGE', 'one', 0, 0)
        redis.call('APPEND', 'held', '!')
        redis.call('SET', '{held}two', 2)
        return redis.call('GET', 'held')";
    free.send(["EVAL", script, "0"]);
    wait_until("it waits", || text(&other.run("GET one")) == r#""1""#);
    assert_eq!(text(&other.run("EXISTS {held}two")), "0");
    let holder_id = first_client(&mut other);
    assert_eq!(text(&other.run(&format!("SCRIPT KILL CLIENT {holder_id}"))), "+OK");
    assert!(text(&holder.read()).starts_with("-KILLED "));
    assert_eq!(text(&free.read()), r#""before!""#);
    assert_eq!(text(&other.run("GET {held}two")), r#""2""#);
}

/// The client of the script that has run longest.
fn first_client(client: &mut Client) -> i64 {
    let Value::Array(runs) = client.run("SCRIPT RUNNING") else { panic!("a list") };
    let Value::Array(fields) = &runs[0] else { panic!("a run") };
    match &fields[3] {
        Value::Integer(id) => *id,
        other => panic!("no number: {other:?}"),
    }
}

fn its_time_is_over_also_while_it_waits_for_a_key(on: Topology) {
    let server = on.start(&[]);
    let (mut holder, mut other) = (server.client(), server.client());
    hold(&server, &mut holder);
    let script = "--!df flags=disable-atomicity timeout=50\nreturn redis.call('GET', 'held')";
    let reply = text(&other.eval(script, &[], &[]));
    assert!(reply.starts_with("-SCRIPTLIMIT time: "), "{reply}");
    other.run("SCRIPT KILL");
    assert!(text(&holder.read()).starts_with("-KILLED "));
}

fn a_kill_reaches_whom_it_names(on: Topology) {
    let server = on.start(&[]);
    let mut other = server.client();
    let sha = |client: &mut Client, number: i64| {
        let source = format!("redis.call('SET', KEYS[1], {number}) while true do end");
        match client.call(["SCRIPT", "LOAD", &source]) {
            Value::Bulk(sha) => String::from_utf8(sha).expect("hexadecimal digits"),
            other => panic!("no digest: {other:?}"),
        }
    };
    let shas = [sha(&mut other, 1), sha(&mut other, 2)];
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let ids: Vec<i64> = clients.iter_mut().map(id).collect();
    // Two of each script; the second of the first script waits for the key of the first.
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(["EVALSHA", &shas[at / 2], "1", if at < 2 { "same" } else { ["c", "d"][at - 2] }]);
        wait_until("it runs or waits", || running(&mut other) == at + 1);
    }
    assert_eq!(text(&other.run(&format!("SCRIPT KILL CLIENT {}", ids[1]))), "+OK");
    assert!(text(&clients[1].read()).starts_with("-KILLED "), "one that waits is killed as well");
    assert_eq!(running(&mut other), 3);
    assert_eq!(text(&other.run(&format!("SCRIPT KILL {}", shas[1].to_uppercase()))), "+OK");
    for client in &mut clients[2..] {
        assert!(text(&client.read()).starts_with(&format!("-KILLED script {}", shas[1])));
    }
    wait_until("only one is left", || running(&mut other) == 1);
    assert_eq!(text(&other.run("SCRIPT KILL")), "+OK");
    assert!(text(&clients[0].read()).starts_with("-KILLED "));
    assert_eq!(text(&other.run("DBSIZE")), "0");
    assert_eq!(server.info("scripts_killed"), 4);
}

fn what_a_script_without_atomicity_has_sent_stays_when_it_is_killed(on: Topology) {
    let server = on.start(&[]);
    let (mut script, mut other) = (server.client(), server.client());
    let source = "--!df flags=disable-atomicity
        redis.call('SET', 'sent', 'yes') local _ = redis.call('GET', 'sent')
        redis.call('SET', 'collected', 'yes') redis.log(redis.LOG_WARNING, 'it has collected') while true do end";
    script.send(["EVAL", source, "0"]);
    wait_until("it has collected", || server.log().contains("it has collected"));
    wait_until("it can be killed", || running(&mut other) == 1);
    assert_eq!(text(&other.run("SCRIPT KILL")), "+OK");
    let reply = text(&script.read());
    assert!(reply.ends_with("; its writes were not rolled back, because it is not atomic"), "{reply}");
    assert_eq!(text(&other.run("MGET sent collected")), r#"["yes", nil]"#);
}

fn a_script_may_outlive_its_client(on: Topology) {
    let server = on.start(&["--script-client-gone", "finish"]);
    let (mut gone, mut other) = (server.client(), server.client());
    other.run("SET held here");
    // A holder, so that the script cannot have ended before its client is gone.
    let mut holder = server.client();
    hold(&server, &mut holder);
    gone.send(["EVAL", "return redis.call('APPEND', KEYS[1], '!')", "1", "held"]);
    wait_until("it waits", || running(&mut other) == 2);
    drop(gone);
    let holder_id = first_client(&mut other);
    assert_eq!(text(&other.run(&format!("SCRIPT KILL CLIENT {holder_id}"))), "+OK");
    wait_until("it has run", || text(&other.run("GET held")) == r#""here!""#);
}

fn replies_do_not_wait_for_a_later_request(on: Topology) {
    // Over store nodes the script has to end by itself.
    let flags: &[&str] = if on == Topology::Nodes { &["--script-timeout-ms", "1000"] } else { &[] };
    let server = on.start(flags);
    let (mut holder, mut piped, mut other) = (server.client(), server.client(), server.client());
    hold(&server, &mut holder);
    piped.send(["PING"]);
    piped.send(["GET", "held"]);
    assert_eq!(text(&piped.read()), "+PONG");
    let killed = text(&other.run("SCRIPT KILL"));
    // Over store nodes the first reply is sent with the second one: the script has ended by itself before.
    assert!(killed == "+OK" || on == Topology::Nodes, "{killed}");
    assert_eq!(text(&piped.read()), "nil");
}

/// What SCRIPT STATS tells of a script, by name.
fn stats(client: &mut Client, sha: &str) -> impl Fn(&str) -> i64 + use<> {
    let Value::Array(fields) = client.run(&format!("SCRIPT STATS {sha}")) else { panic!("fields") };
    move |name| {
        let at = fields.iter().position(|field| *field == Value::Bulk(name.as_bytes().to_vec()));
        match fields[at.expect("a field of this name") + 1] {
            Value::Integer(value) => value,
            ref other => panic!("no number: {other:?}"),
        }
    }
}

/// What they used is not known.
fn scripts_that_were_killed_are_counted_and_nothing_more(on: Topology) {
    let server = on.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let source = "while ARGV[1] == 'endless' do end return 1";
    let Value::Bulk(sha) = client.call(["SCRIPT", "LOAD", source]) else { panic!("a digest") };
    let sha = String::from_utf8(sha).expect("hexadecimal digits");
    for argument in ["fine", "fine", "endless", "endless", "endless"] {
        client.send(["EVALSHA", &sha, "0", argument]);
        if argument == "endless" {
            wait_until("it is killed", || text(&other.run("SCRIPT KILL")) == "+OK");
        }
        client.read();
    }
    let of = stats(&mut client, &sha);
    assert_eq!(["runs", "killed"].map(&of), [5, 3]);
    assert!(of("fuel_p50") > 0 && of("fuel_p50") == of("fuel_max"));
}

fn flags_given_from_outside_say_the_same_as_a_header(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let mut load = |source: &str| match client.call(["SCRIPT", "LOAD", source]) {
        Value::Bulk(sha) => String::from_utf8(sha).expect("hexadecimal digits"),
        other => panic!("no digest: {other:?}"),
    };
    let reads = load("#!lua\nreturn redis.call('GET', 'key')");
    let allows = load("--!df flags=allow-undeclared-keys\nreturn redis.call('GET', 'key')");
    let evaluated = |client: &mut Client, call: &str, sha: &str| text(&client.call([call, sha, "0"]));
    let refused = "-ERR Can not execute a script with write flag using *_ro command.";
    assert_eq!(evaluated(&mut client, "EVALSHA_RO", &reads), refused);
    client.run(&format!("SCRIPT FLAGS {reads} no-writes"));
    assert_eq!(evaluated(&mut client, "EVALSHA_RO", &reads), "nil");
    // A header counts before them, by its flag as well as by a value.
    for sha in [&reads, &allows] {
        client.run(&format!("SCRIPT FLAGS {sha} undeclared-keys=reject"));
    }
    let refused = evaluated(&mut client, "EVALSHA", &reads);
    assert!(refused.contains(&format!("or set undeclared-keys=widen in script {reads}")), "{refused}");
    client.run(&format!("SCRIPT FLAGS {reads} undeclared-keys=widen"));
    assert_eq!(evaluated(&mut client, "EVALSHA", &reads), "nil");
    assert_eq!(evaluated(&mut client, "EVALSHA", &allows), "nil");
}

/// Over nodes, too, where what a script does not wait for goes with its end.
fn an_error_comes_before_that_of_the_script_which_did_not_wait_for_it(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    client.run("SET text x");
    for header in ["#!lua", "#!lua on-error=rollback"] {
        let script = format!("{header}\nredis.call('INCR', KEYS[1])\nerror('of its own')");
        let reply = text(&client.eval(&script, &["text"], &[]));
        assert!(reply.starts_with("-ERR value is not an integer or out of range script: "), "{reply}");
        assert!(reply.ends_with(", on @user_script:2."), "{reply}");
    }
}

fn what_scripts_did_is_counted_for_each(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let source = "if ARGV[1] == 'fail' then error('no') end redis.call('SET', 'undeclared', 1)
        while ARGV[1] == 'long' do end return redis.call('GET', 'undeclared')";
    let Value::Bulk(sha) = client.call(["SCRIPT", "LOAD", source]) else { panic!("a digest") };
    let sha = String::from_utf8(sha).expect("hexadecimal digits");
    client.run(&format!("SCRIPT FLAGS {sha} fuel=1000000"));
    for argument in ["fine", "fail", "long", "fine", "fine"] {
        client.call(["EVALSHA", &sha, "0", argument]);
    }
    let of = stats(&mut client, &sha);
    assert_eq!(["runs", "errors", "limits_hit", "killed", "reruns"].map(&of), [5, 1, 1, 0, 0]);
    assert_eq!(["commands", "undeclared_keys"].map(&of), [7, 3]);
    assert!(of("fuel_max") > 1_000_000 && of("fuel_p50") < 1_000_000);
    let complaint = format!("script {sha} uses the key undeclared");
    wait_until("the log says so", || server.log().contains(&complaint));
    // In a transaction too, where a round that is repeated does not count.
    client.run("MULTI");
    client.call(["EVALSHA", &sha, "0", "fine"]);
    client.call(["EVAL", "return redis.call('DBSIZE')", "0"]);
    assert_eq!(text(&client.run("EXEC")), r#"["1", 1]"#);
    let of = stats(&mut client, &sha);
    assert_eq!(["runs", "errors", "undeclared_keys"].map(of), [6, 1, 4]);
    client.run("SCRIPT STATS RESET");
    let Value::Array(fields) = client.run("SCRIPT STATS") else { panic!("fields") };
    assert!(fields.iter().skip(1).step_by(2).all(|value| *value == Value::Integer(0)));
}

over_nodes! {
    without_atomicity_others_see_and_change_what_the_script_does,
    an_atomic_script_keeps_to_itself_until_it_ends,
    what_expires_while_a_script_has_it_is_there_until_it_ends,
    nobody_changes_what_a_running_transaction_watches,
    a_transaction_may_write_what_it_watches,
    what_expires_while_a_transaction_waits_has_changed,
    a_script_without_atomicity_waits_for_locked_keys_only,
    its_time_is_over_also_while_it_waits_for_a_key,
    a_kill_reaches_whom_it_names,
    what_a_script_without_atomicity_has_sent_stays_when_it_is_killed,
    a_script_may_outlive_its_client,
    replies_do_not_wait_for_a_later_request,
    scripts_that_were_killed_are_counted_and_nothing_more,
    flags_given_from_outside_say_the_same_as_a_header,
    an_error_comes_before_that_of_the_script_which_did_not_wait_for_it,
    what_scripts_did_is_counted_for_each,
}
