//! The limits of scripts on a running server: each ends the script whatever it does about it, is told and counted,
//! and leaves nothing of the script's writes; everybody else is served meanwhile.

use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

/// Fuel, time and memory that no test here uses up unless it wants to.
const AMPLE: &[&str] = &[
    "--threads",
    "1",
    "--script-fuel",
    "1000000000000000",
    "--script-timeout-ms",
    "86400000",
    "--script-memory",
    "4mb",
    "--script-fuel-slice",
    "20000",
];

const ENDLESS: &str = "redis.call('SET', KEYS[1], 'half done') while true do end";

/// A limit: its name in errors and INFO, how it is made small, and what exceeds it.
struct Limit {
    name: &'static str,
    setting: Option<(&'static str, &'static str)>,
    body: &'static str,
}

const LIMITS: [Limit; 3] = [
    Limit { name: "fuel", setting: Some(("script-fuel", "3000000")), body: "while true do end" },
    Limit { name: "time", setting: Some(("script-timeout-ms", "20")), body: "while true do end" },
    Limit {
        name: "memory",
        setting: None,
        body: "local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end",
    },
];

/// Ways in which a script may try to outlive its end.
const CATCHERS: [&str; 6] = [
    "BODY",
    "pcall(function() BODY end)",
    "while true do pcall(function() BODY end) end",
    "xpcall(function() BODY end, function() redis.call('SET', KEYS[1], 'caught') end)",
    "local c = coroutine.create(function() BODY end) while true do coroutine.resume(c) end",
    "pcall(coroutine.wrap(function() pcall(string.gsub, 'a', 'a', function() BODY end) end))",
];

fn set(client: &mut Client, setting: &str, value: &str) {
    assert_eq!(notation::reply(&client.call(["CONFIG", "SET", setting, value])), "+OK", "{setting}");
}

fn error(reply: &Value) -> String {
    let Value::Error(text) = reply else { panic!("no error but {reply:?}") };
    String::from_utf8_lossy(text).into_owned()
}

/// Keeps a snapshot of texts that name scripts.
fn assert_texts(name: &str, texts: &[String]) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter("[0-9a-f]{40}", "<sha>");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, texts.join("\n")));
}

/// What `data` puts there; a script that is undone must leave it alone.
const DATA: [&str; 3] = ["SET text before", "RPUSH list a b c", "HSET hash field value"];
const WRITES: &str = "
    redis.call('SET', KEYS[1], 'half done')
    redis.call('LPOP', KEYS[2])
    redis.call('DEL', 'hash')
    redis.call('INCR', 'new')\n";

fn data(client: &mut Client) -> Vec<Value> {
    client.run("FLUSHALL");
    DATA.iter().for_each(|line| drop(client.run(line)));
    dump(client)
}

fn dump(client: &mut Client) -> Vec<Value> {
    ["GET text", "LRANGE list 0 -1", "HGETALL hash", "EXISTS new"].map(|line| client.run(line)).into()
}

fn a_limit_ends_the_script_and_undoes_it(on: Topology) {
    hold_limits(on, "rewind");
}

fn a_limit_ends_the_script_with_new_instances(on: Topology) {
    hold_limits(on, "fresh");
}

fn hold_limits(on: Topology, instances: &str) {
    let server = on.start(&[AMPLE, &["--script-instances", instances]].concat());
    let mut client = server.client();
    let before = data(&mut client);
    let mut texts = Vec::new();
    for Limit { name, setting, body } in &LIMITS {
        if let Some((setting, value)) = setting {
            set(&mut client, setting, value);
        }
        for (number, catcher) in CATCHERS.iter().enumerate() {
            let script = format!("{WRITES}{}\nreturn 'survived'", catcher.replace("BODY", body));
            let text = error(&client.eval(&script, &["text", "list"], &[]));
            assert!(text.starts_with(&format!("SCRIPTLIMIT {name}: ")), "{script}\n{text}");
            assert_eq!(dump(&mut client), before, "{name} left something behind of {script}");
            assert_eq!(server.info(&format!("script_limit_{name}")), number as u64 + 1);
            if number == 0 {
                texts.push(text);
            }
        }
        // The next limit is to be met first.
        set(&mut client, "script-fuel", AMPLE[3]);
        set(&mut client, "script-timeout-ms", AMPLE[5]);
    }
    set(&mut client, "script-reply-max", "1kb");
    for script in ["return string.rep('x', 2000)", "local t = {} for i = 1, 999 do t[i] = i end return t"] {
        let text = error(&client.eval(&format!("{WRITES}{script}"), &["text", "list"], &[]));
        assert_eq!(dump(&mut client), before);
        texts.push(text);
    }
    assert_eq!(server.info("script_limit_reply"), 2);
    assert_eq!(notation::reply(&client.eval("return string.rep('x', 900)", &[], &[])).len(), 902);
    assert_eq!(server.info("script_traps"), 0);
    assert_eq!(server.info("scripts_running"), 0);
    assert_texts("limits", &texts);
}

fn compiling_is_limited_too(on: Topology) {
    let server = on.start(AMPLE);
    let mut client = server.client();
    set(&mut client, "script-fuel", "20000");
    let long = format!("local t = {{{}}} return #t", "{1, 'x'}, ".repeat(2000));
    let texts =
        [client.call(["SCRIPT", "LOAD", &long]), client.eval(&long, &[], &[])].map(|reply| error(&reply));
    assert_texts("compile_limits", &texts);
    set(&mut client, "script-fuel", "2000000000");
    assert_eq!(client.eval(&long, &[], &[]), Value::Integer(2000));
    let huge = format!("return #'{}'", "x".repeat(3 << 20));
    let text = error(&client.eval(&huge, &[], &[]));
    assert!(text.starts_with("SCRIPTLIMIT memory: "), "{text}");
}

fn a_limit_undoes_the_transaction_it_is_part_of(on: Topology) {
    let server = on.start(AMPLE);
    let mut client = server.client();
    let before = data(&mut client);
    set(&mut client, "script-fuel", "3000000");
    client.run("MULTI");
    client.run("SET text changed");
    client.eval("redis.call('DEL', 'list') while true do end", &[], &[]);
    client.run("INCR new");
    let text = error(&client.run("EXEC"));
    assert!(text.starts_with("SCRIPTLIMIT fuel: "), "{text}");
    assert_eq!(dump(&mut client), before);
    assert_eq!(notation::reply(&client.run("PING")), "+PONG", "the connection has left MULTI");
}

/// Waits until so many scripts run. The question is itself answered by the one thread that there is.
fn wait_for_scripts(server: &TestServer, count: u64) {
    wait_until("scripts run or have ended", || server.info("scripts_running") == count);
}

fn others_are_served_while_a_script_computes_and_kill_ends_it(on: Topology) {
    let server = on.start(AMPLE);
    let (mut busy, mut other, mut waiting) = (server.client(), server.client(), server.client());
    assert_eq!(
        error(&other.run("SCRIPT KILL")),
        "NOTBUSY No scripts in execution right now.",
        "as long as nothing runs"
    );
    other.run("SET job before");
    busy.send(["EVAL", ENDLESS, "1", "job"]);
    wait_for_scripts(&server, 1);
    assert_eq!(notation::reply(&other.run("PING")), "+PONG");
    for number in 0..50 {
        other.run(&format!("SET key:{number} {number}"));
        let script = "return redis.call('INCR', KEYS[1])";
        assert_eq!(other.eval(script, &[&format!("key:{number}")], &[]), Value::Integer(number + 1));
    }
    // Only who wants the same key waits, and never sees what the script wrote.
    waiting.send(["GET", "job"]);
    // Killable from its second slice on.
    wait_until("the script is killed", || notation::reply(&other.run("SCRIPT KILL")) == "+OK");
    assert_texts("kill", &[error(&busy.read())]);
    assert_eq!(notation::reply(&waiting.read()), "\"before\"");
    assert_eq!(server.info("scripts_killed"), 1);
    wait_for_scripts(&server, 0);
    assert_eq!(notation::reply(&busy.run("PING")), "+PONG", "the connection goes on");
}

#[test]
fn a_script_of_machine_code_ends_like_others() {
    let server = TestServer::start(&[AMPLE, &["--script-compile", "always"]].concat());
    let (mut busy, mut other) = (server.client(), server.client());
    let before = data(&mut other);
    let counts = format!("{WRITES} local n = 0 while true do n = n + 1 end");
    for Limit { name, setting, .. } in &LIMITS {
        let Some((setting, value)) = setting else { continue };
        set(&mut other, setting, value);
        let text = error(&other.eval(&counts, &["text", "list"], &[]));
        assert!(text.starts_with(&format!("SCRIPTLIMIT {name}: ")), "{text}");
        assert_eq!(dump(&mut other), before);
        set(&mut other, "script-fuel", AMPLE[3]);
        set(&mut other, "script-timeout-ms", AMPLE[5]);
    }
    assert_eq!(server.info("script_compiled_runs"), 2);
    busy.send(["EVAL", &counts, "2", "text", "list"]);
    wait_for_scripts(&server, 1);
    wait_until("the script is killed", || notation::reply(&other.run("SCRIPT KILL")) == "+OK");
    assert!(error(&busy.read()).starts_with("KILLED "));
    assert_eq!(dump(&mut other), before);
    assert_eq!(server.info("script_traps"), 0);
}

fn all_threads_may_be_busy(on: Topology) {
    let server = on.start(AMPLE);
    let mut busy: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for (number, client) in busy.iter_mut().enumerate() {
        client.send(["EVAL", ENDLESS, "1", &format!("job:{number}")]);
    }
    wait_for_scripts(&server, 10);
    let mut other = server.client();
    assert_eq!(other.eval("return 5", &[], &[]), Value::Integer(5));
    assert_eq!(notation::reply(&other.run("SET x y")), "+OK");
    // Those that have not yet been seen to run go on until the next one.
    wait_until("all scripts are killed", || {
        other.run("SCRIPT KILL");
        server.info("scripts_running") == 0
    });
    for client in &mut busy {
        assert!(error(&client.read()).starts_with("KILLED script "));
    }
    assert_eq!(other.run("DBSIZE"), Value::Integer(1));
}

fn the_end_of_a_client_ends_its_script(on: Topology) {
    let server = on.start(AMPLE);
    let mut other = server.client();
    other.run("SET job before");
    let mut gone = server.client();
    // Over store nodes it has the key from the first call on whose result it uses.
    let holds = "local _ = redis.call('SET', KEYS[1], 'half done')
        redis.log(redis.LOG_WARNING, 'it has the key') while true do end";
    gone.send(["EVAL", holds, "1", "job"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
    // One that waits behind it for the key, also with a script.
    let mut waiting = server.client();
    waiting.send(["EVAL", "return redis.call('APPEND', KEYS[1], '!')", "1", "job"]);
    wait_until("the script waits", || server.info("scripts_waiting") == 1);
    drop(waiting);
    wait_until("the script is gone", || server.info("scripts_waiting") == 0);
    drop(gone);
    wait_for_scripts(&server, 0);
    assert_eq!(notation::reply(&other.run("GET job")), "\"before\"");
    assert_eq!(notation::reply(&other.run("SET job after")), "+OK");
    // `other` and the one that asks.
    wait_until("the connections are gone", || server.info("connected_clients") == 2);
    assert_eq!(server.info("script_traps"), 0);
}

fn the_end_of_a_client_ends_its_transaction(on: Topology) {
    let server = on.start(AMPLE);
    let mut other = server.client();
    other.run("SET job before");
    let mut gone = server.client();
    gone.run("MULTI");
    gone.run("SET job during");
    gone.eval(ENDLESS, &["job"], &[]);
    gone.send(["EXEC"]);
    wait_for_scripts(&server, 1);
    drop(gone);
    wait_for_scripts(&server, 0);
    assert_eq!(notation::reply(&other.run("GET job")), "\"before\"");
}

fn client_kill_ends_a_script(on: Topology) {
    let server = on.start(AMPLE);
    let (mut busy, mut other) = (server.client(), server.client());
    let Value::Integer(id) = busy.run("CLIENT ID") else { panic!("a number") };
    busy.send(["EVAL", ENDLESS, "1", "job"]);
    wait_for_scripts(&server, 1);
    assert_eq!(other.run(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    wait_for_scripts(&server, 0);
    assert_eq!(other.run("EXISTS job"), Value::Integer(0));
    assert!(busy.is_closed());
}

/// Bytes by which memory may differ for other reasons: pools, the allocator's habits.
const SLACK: u64 = 24 << 20;

fn a_flood_of_scripts_leaves_memory_flat(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let loaded: Vec<(i64, String)> = (0..20)
        .map(|number| {
            let reply = client.call(["SCRIPT", "LOAD", &format!("return {number} * 1000")]);
            (number * 1000, String::from_utf8_lossy(reply.text().expect("a sha")).into_owned())
        })
        .collect();
    let mut resident = Vec::new();
    for batch in 0..10 {
        let bodies = (batch * 500..(batch + 1) * 500)
            .map(|number| format!("local names = {{{}}} return {number}", "'a name', ".repeat(50)));
        let requests: Vec<Vec<Vec<u8>>> =
            bodies.map(|body| vec![b"EVAL".to_vec(), body.into_bytes(), b"0".to_vec()]).collect();
        for (at, reply) in client.pipeline(&requests).iter().enumerate() {
            assert_eq!(*reply, Value::Integer(batch * 500 + at as i64));
        }
        resident.push(server.resident_bytes());
    }
    let (early, late) = (resident[3], resident[9]);
    assert!(late < early + SLACK, "memory after each 500 scripts: {resident:?}");
    assert!(server.info("number_of_cached_scripts") <= 1000 + 20);
    assert!(server.info("evicted_scripts") >= 4000);
    for (number, sha) in &loaded {
        assert_eq!(client.call(["EVALSHA", sha, "0"]), Value::Integer(*number), "a loaded script is gone");
    }
    client.run("SCRIPT FLUSH");
    assert_eq!(server.info("number_of_cached_scripts"), 0);
    assert!(error(&client.call(["EVALSHA", &loaded[0].1, "0"])).starts_with("NOSCRIPT"));
}

over_nodes! {
    a_limit_ends_the_script_and_undoes_it,
    a_limit_ends_the_script_with_new_instances,
    compiling_is_limited_too,
    a_limit_undoes_the_transaction_it_is_part_of,
    others_are_served_while_a_script_computes_and_kill_ends_it,
    all_threads_may_be_busy,
    the_end_of_a_client_ends_its_script,
    the_end_of_a_client_ends_its_transaction,
    client_kill_ends_a_script,
    a_flood_of_scripts_leaves_memory_flat,
}
