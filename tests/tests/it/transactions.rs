//! What a conversation cannot show of transactions: time and chance of their scripts, what they do that is about no key,
//! and kills.

use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

fn text(reply: &Value) -> String {
    notation::reply(reply)
}

fn array(reply: Value) -> Vec<Value> {
    match reply {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// The replies to the calls of a transaction.
fn transaction(client: &mut Client, calls: &[&[&str]]) -> Vec<Value> {
    client.run("MULTI");
    calls.iter().for_each(|call| assert_eq!(text(&client.call(*call)), "+QUEUED"));
    array(client.run("EXEC"))
}

fn scripts_of_a_transaction_have_one_time_and_do_not_repeat_chance(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    (0..100).for_each(|member| drop(client.run(&format!("SADD set {member}"))));
    let look = "local time = redis.call('TIME')
        return {time[1] .. '.' .. time[2], tostring(os.clock()), redis.call('SRANDMEMBER', KEYS[1])}";
    let call = ["EVAL", look, "1", "set"];
    let seen: Vec<Vec<String>> = transaction(&mut client, &[&call[..]; 20])
        .into_iter()
        .map(|reply| array(reply).iter().map(text).collect())
        .collect();
    let are_alike = |at: usize| seen.iter().all(|other| other[at] == seen[0][at]);
    assert!(are_alike(0), "time stands still: {seen:?}");
    assert!(are_alike(1) && seen[0][1] != "\"0\"", "os.clock stands still, and is the server's: {seen:?}");
    assert!(!are_alike(2), "one draws behind the other: {seen:?}");
}

/// Its rounds write what it watches, and are taken back.
fn a_transaction_that_is_repeated_has_not_changed_what_it_watches(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let counts = "redis.call('INCR', KEYS[1]) return redis.call('DBSIZE')";
    let swaps = "redis.call('INCR', KEYS[1]) redis.call('SWAPDB', 0, 1) redis.call('SWAPDB', 0, 1)
        redis.call('SET', 'one' .. 'more', 1) return redis.call('DBSIZE')";
    for (at, script) in [counts, swaps, counts, swaps].into_iter().enumerate() {
        client.run("WATCH watched other");
        let replies = transaction(&mut client, &[&["INCR", "other"], &["EVAL", script, "1", "watched"]]);
        assert_eq!(replies[0], Value::Integer(at as i64 + 1), "{replies:?}");
        assert_eq!(text(&client.run("GET watched")), format!("\"{}\"", at + 1));
    }
    assert!(server.info("scripts_rerun") >= 4);
}

fn a_watch_is_broken_by_what_stays(on: Topology) {
    let server = on.start(&["--script-fuel", "1000000"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.run("MSET watched here second here");
    let mut watching = |script: &str, keys: &[&str], is_broken: bool| {
        client.run("WATCH watched second none");
        let reply = text(&other.eval(script, keys, &[]));
        client.run("MULTI");
        client.run("GET watched");
        let done = client.run("EXEC");
        assert_eq!(done.is_null(), is_broken, "{script}: {reply}, {done:?}");
        assert!(is_broken || text(&done) == r#"["here"]"#, "{script}: {done:?}");
    };
    let writes = "for _, key in ipairs(KEYS) do redis.call('SET', key, 'here') end ";
    let fails = |does: &str| format!("#!lua on-error=rollback\n{does} error('no')");
    for keys in [&["watched"][..], &["none", "watched"], &["second", "none", "a", "b", "c", "watched"]] {
        watching(&fails(writes), keys, false);
        watching(&format!("{writes} while true do end"), keys, false);
        watching(&format!("#!lua flags=dry-run\n{writes}"), keys, false);
    }
    watching(&fails("redis.call('FLUSHALL')"), &[], false);
    watching(&fails("redis.call('SWAPDB', 0, 1)"), &[], false);
    watching(&fails("redis.call('RENAME', KEYS[1], KEYS[2])"), &["watched", "none"], false);
    watching(writes, &["watched"], true);
    watching(&format!("{writes} error('no')"), &["second"], true);
    watching(&format!("{writes} return redis.call('DBSIZE')"), &["none"], true);
    watching("redis.call('SWAPDB', 0, 1) redis.call('SWAPDB', 0, 1)", &[], true);
}

/// Has its key until somebody subscribes to `go`, and writes it then.
const UNTIL_GO: &str = "local _ = redis.call('GET', KEYS[1]) redis.log(redis.LOG_WARNING, 'it has the key')
    while redis.call('PUBSUB', 'NUMSUB', 'go')[2] == 0 do end
    return redis.call('SET', KEYS[1], 'changed')";

fn hold(server: &TestServer, holder: &mut Client) {
    holder.send(["EVAL", UNTIL_GO, "1", "held"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
}

/// The database that the client has selected, as it is told itself.
fn selected(client: &mut Client) -> String {
    let line = text(&client.run("CLIENT INFO"));
    let (_, rest) = line.split_once(" db=").expect("a database");
    rest.split(' ').next().expect("a number").to_owned()
}

fn what_is_about_no_key_is_not_done_if_a_watched_key_has_changed(on: Topology) {
    let server = on.start(&[]);
    let (mut holder, mut client, mut other) = (server.client(), server.client(), server.client());
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    client.run("WATCH held");
    hold(&server, &mut holder);
    client.run("MULTI");
    client.run("SET held mine");
    client.run("SELECT 3");
    client.run("CONFIG SET slowlog-max-len 77");
    client.call([
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('f', function() return 1 end)",
    ]);
    client.send(["EXEC"]);
    wait_until("it is there", || text(&other.run(&format!("CLIENT LIST ID {id}"))).contains(" cmd=exec "));
    let mut starter = server.client();
    starter.run("SUBSCRIBE go");
    assert_eq!(text(&holder.read()), "+OK");
    assert!(client.read().is_null());
    assert_eq!(selected(&mut client), "0");
    assert_eq!(text(&other.run("CONFIG GET slowlog-max-len")), r#"["slowlog-max-len", "128"]"#);
    assert_eq!(text(&other.run("FUNCTION LIST")), "[]");
    assert_eq!(text(&other.run("GET held")), r#""changed""#);
}

fn a_transaction_that_is_undone_leaves_the_database_selected(on: Topology) {
    let server = on.start(&["--script-fuel", "1000000"]);
    let mut client = server.client();
    client.run("MULTI");
    client.run("SELECT 3");
    client.run("SET key there");
    client.call(["EVAL", "while true do end", "0"]);
    assert!(text(&client.run("EXEC")).starts_with("-SCRIPTLIMIT fuel: "));
    assert_eq!(selected(&mut client), "0");
    client.run("SET key here");
    assert_eq!(text(&server.client().run("GET key")), r#""here""#);
}

fn what_is_about_no_key_is_done_in_its_place(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    client.run("HSET hash field value");
    let library =
        "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('TIME') end)";
    let calls: &[&[&str]] = &[
        &["SELECT", "3"],
        &["SET", "key", "value"],
        &["INFO", "keyspace"],
        &["CLUSTER", "COUNTKEYSINSLOT", "12539"],
        &["FUNCTION", "LOAD", library],
        &["TIME"],
        &["FCALL", "f", "1", "other"],
        &["FUNCTION", "FLUSH"],
        &["FCALL", "f", "1", "other"],
        &["SELECT", "0"],
        &["HLEN", "hash"],
    ];
    let replies = transaction(&mut client, calls);
    // What nodes elsewhere have is known as of a second ago.
    assert!(on == Topology::Nodes || text(&replies[2]).contains("db3:keys=1"), "{replies:?}");
    assert_eq!(text(&replies[4]), r#""lib""#);
    assert_eq!(replies[5], replies[6], "time stands still");
    assert_eq!(text(&replies[8]), "-ERR Function not found");
    assert_eq!(replies[10], Value::Integer(1));
}

/// A user has one turn for all that a transaction compiles and runs.
fn a_transaction_does_not_wait_for_itself(on: Topology) {
    let server = on.start(&["--script-concurrency", "1"]);
    let mut client = server.client();
    client.run("ACL SETUSER one on nopass +@all ~* &* limit:scripts-at-once=1");
    client.run("AUTH one any");
    let library =
        "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('INCR', keys[1]) end)";
    let calls: &[&[&str]] = &[
        &["EVAL", "return redis.call('INCR', KEYS[1])", "1", "key"],
        &["SCRIPT", "LOAD", "return 4711"],
        &["FUNCTION", "LOAD", library],
        &["FCALL", "f", "1", "key"],
    ];
    let replies = transaction(&mut client, calls);
    assert_eq!([&replies[0], &replies[3]], [&Value::Integer(1), &Value::Integer(2)]);
}

fn a_script_whose_transaction_waits_for_its_keys_can_be_killed(on: Topology) {
    let server = on.start(&[]);
    let (mut holder, mut client, mut other) = (server.client(), server.client(), server.client());
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    hold(&server, &mut holder);
    client.run("MULTI");
    client.run("SELECT 3");
    client.call(["EVAL", "return redis.call('SET', KEYS[1], 'mine')", "1", "held"]);
    client.run("SELECT 0");
    client.call(["EVAL", "return redis.call('SET', KEYS[1], 'mine')", "1", "held"]);
    client.send(["EXEC"]);
    wait_until("it waits", || array(other.run("SCRIPT RUNNING")).len() == 2);
    assert_eq!(text(&other.run(&format!("SCRIPT KILL CLIENT {id}"))), "+OK");
    let reply = text(&client.read());
    let end = " was stopped by SCRIPT KILL before its transaction executed a command";
    assert!(reply.starts_with("-KILLED script ") && reply.ends_with(end), "{reply}");
    assert_eq!(array(other.run("SCRIPT RUNNING")).len(), 1);
    other.run("SUBSCRIBE go");
    assert_eq!(text(&holder.read()), "+OK");
    assert_eq!(text(&client.run("GET held")), r#""changed""#);
}

over_nodes! {
    scripts_of_a_transaction_have_one_time_and_do_not_repeat_chance,
    a_transaction_that_is_repeated_has_not_changed_what_it_watches,
    a_watch_is_broken_by_what_stays,
    what_is_about_no_key_is_not_done_if_a_watched_key_has_changed,
    a_transaction_that_is_undone_leaves_the_database_selected,
    what_is_about_no_key_is_done_in_its_place,
    a_transaction_does_not_wait_for_itself,
    a_script_whose_transaction_waits_for_its_keys_can_be_killed,
}
