//! Hundreds wait for what a long script holds, and many of them never get it, as they hang up or are killed: the others
//! are served in their order, and in the end nothing stays locked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tests::generate::Chance;
use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

/// Limits that no test here meets unless it wants to.
const AMPLE: &[&str] = &[
    "--script-fuel",
    "1000000000000000",
    "--script-timeout-ms",
    "86400000",
    "--script-fuel-slice",
    "20000",
    "--shards",
    "4",
];

/// Looks at what it wrote: over store nodes, what nobody looks at is sent at the end.
const ENDLESS: &str = "local length = redis.call('RPUSH', KEYS[1], 'half done') while length > 0 do end";
const APPEND: &str = "return redis.call('RPUSH', KEYS[1], ARGV[1])";
const READ: &str = "return redis.call('LRANGE', KEYS[1], 0, -1)";

const INSTANCES: [&str; 2] = ["rewind", "fresh"];

fn start(on: Topology, instances: &str, more: &[&str]) -> TestServer {
    on.start(&[AMPLE, &["--script-instances", instances], more].concat())
}

fn id(client: &mut Client) -> i64 {
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    id
}

fn wait_for_scripts(server: &TestServer, count: u64) {
    wait_until("so many scripts run", || server.info("scripts_running") == count);
}

/// Waits until so many of the test's own connections are left.
fn wait_for_clients(server: &TestServer, count: usize) {
    // One more asks.
    wait_until("the others are gone", || server.info("connected_clients") == count as u64 + 1);
}

fn assert_all_is_free(server: &TestServer) {
    wait_for_scripts(server, 0);
    let mut client = server.client();
    // Both need every shard.
    assert!(matches!(client.run("DBSIZE"), Value::Integer(_)));
    assert_eq!(notation::reply(&client.run("FLUSHALL")), "+OK");
    assert_eq!(client.eval("return redis.call('DBSIZE')", &[], &[]), Value::Integer(0));
    assert_eq!(server.info("script_traps"), 0);
}

/// How somebody who waits wants the list.
#[derive(Clone, Copy, Debug)]
enum Want {
    Append,
    Read,
    ScriptAppend,
    ScriptRead,
    Transaction,
}

const WANTS: [Want; 5] = [Want::Append, Want::Read, Want::ScriptAppend, Want::ScriptRead, Want::Transaction];

impl Want {
    fn send(self, client: &mut Client, key: &str, value: &str) {
        match self {
            Want::Append => client.send(["RPUSH", key, value]),
            Want::Read => client.send(["LRANGE", key, "0", "-1"]),
            Want::ScriptAppend => client.send(["EVAL", APPEND, "1", key, value]),
            Want::ScriptRead => client.send(["EVAL_RO", READ, "1", key]),
            Want::Transaction => {
                client.run("MULTI");
                client.call(["RPUSH", key, value]);
                client.send(["EXEC"]);
            }
        }
    }

    fn reads(self) -> bool {
        matches!(self, Want::Read | Want::ScriptRead)
    }
}

/// What becomes of somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Served,
    HangsUp,
    Killed,
}

const FATES: [Fate; 4] = [Fate::Served, Fate::Served, Fate::HangsUp, Fate::Killed];

fn texts(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("no list: {reply:?}") };
    let text = |item: &Value| match item {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("no text: {other:?}"),
    };
    items.iter().map(text).collect()
}

/// What an append answers, in a transaction or not.
fn length_in(reply: &Value) -> usize {
    match reply {
        Value::Integer(length) => *length as usize,
        Value::Array(items) if items.len() == 1 => length_in(&items[0]),
        other => panic!("no length: {other:?}"),
    }
}

fn hold_order(on: Topology, instances: &str, how_the_holder_ends: &str) {
    const WAITING: usize = 100;
    // With one thread an answer tells that all who asked before are in the queue, unless that is a store node's: who
    // came there first is not to be seen from here.
    let order_is_known = on == Topology::Local;
    let server = start(on, instances, &["--threads", "1", "--script-concurrency", "300"]);
    let (mut holder, mut other) = (server.client(), server.client());
    let holders_id = id(&mut holder);
    holder.send(["EVAL", ENDLESS, "1", "list"]);
    wait_for_scripts(&server, 1);
    let mut chance = Chance::new(how_the_holder_ends.len() as u64);
    let mut kills: Vec<Vec<Vec<u8>>> = Vec::new();
    let (mut served, mut killed, mut hung_up) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WAITING {
        let (want, fate) = (chance.pick(&WANTS), chance.pick(&FATES));
        let mut client = server.client();
        let id = id(&mut client);
        want.send(&mut client, "list", &number.to_string());
        // Twice: the first may be read together with the request.
        for _ in 0..2 {
            assert_eq!(notation::reply(&other.run("PING")), "+PONG", "others are answered");
        }
        match fate {
            Fate::Served => served.push((number, want, client)),
            Fate::HangsUp => hung_up.push(client),
            Fate::Killed => {
                kills.push(["CLIENT", "KILL", "ID", &id.to_string()].map(Vec::from).into());
                killed.push(client);
            }
        }
    }
    drop(hung_up);
    assert!(other.pipeline(&kills).iter().all(|reply| *reply == Value::Integer(1)));
    assert!(killed.iter_mut().all(Client::is_closed));
    wait_for_clients(&server, served.len() + 2);
    // Now the first of the others may go.
    match how_the_holder_ends {
        "SCRIPT KILL" => {
            // Only this one: those who wait are to have their turn.
            assert_eq!(notation::reply(&other.run(&format!("SCRIPT KILL CLIENT {holders_id}"))), "+OK");
            assert!(notation::reply(&holder.read()).starts_with("-KILLED "));
        }
        "CLIENT KILL" => {
            assert_eq!(other.run(&format!("CLIENT KILL ID {holders_id}")), Value::Integer(1));
            assert!(holder.is_closed());
        }
        _ => drop(holder),
    }
    let replies: Vec<Value> = served.iter_mut().map(|(_, _, client)| client.read()).collect();
    let list = texts(&other.run("LRANGE list 0 -1"));
    let mut appended = 0;
    for ((number, want, _), reply) in served.iter().zip(&replies) {
        let length = if want.reads() {
            let seen = texts(reply);
            assert!(
                list.starts_with(&seen),
                "{number} reads what those before it wrote: {seen:?} of {list:?}"
            );
            seen.len()
        } else {
            appended += 1;
            let length = length_in(reply);
            assert_eq!(
                list.get(length - 1),
                Some(&number.to_string()),
                "{number} {want:?} is served in its turn"
            );
            length
        };
        assert!(
            !order_is_known || length == appended,
            "{number} {want:?} has its turn at {length}, not {appended}"
        );
    }
    assert!(!order_is_known || list.len() == appended, "who is gone wrote nothing: {list:?}");
    assert_all_is_free(&server);
}

fn who_waits_is_served_in_order_when_the_holder_is_killed(on: Topology) {
    INSTANCES.iter().for_each(|instances| hold_order(on, instances, "SCRIPT KILL"));
}

fn who_waits_is_served_in_order_when_the_holder_loses_its_client(on: Topology) {
    hold_order(on, "rewind", "CLIENT KILL");
    hold_order(on, "fresh", "hang up");
}

/// Everything at once, with more scripts than may run: nobody who stays is forgotten. Endless scripts run out of time
/// with every other seed, and are killed with the others.
fn hold_storm(on: Topology, instances: &str, seed: u64) {
    const CLIENTS: usize = 150;
    const KEYS: [&str; 3] = ["one", "two", "three"];
    let server = start(on, instances, &["--threads", "2", "--script-concurrency", "8"]);
    let mut chance = Chance::new(seed);
    let mut other = server.client();
    let by_time = seed % 2 == 1;
    if by_time {
        other.run("CONFIG SET script-timeout-ms 20");
    }
    let end = if by_time { "-SCRIPTLIMIT time: " } else { "-KILLED " };
    let mut clients: Vec<(Client, i64, String)> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.client();
            let id = id(&mut client);
            let (key, value) = (chance.pick(&KEYS), number.to_string());
            let what = match chance.below(10) {
                0 | 1 => {
                    client.send(["EVAL", ENDLESS, "1", key]);
                    "endless"
                }
                2 => {
                    // Needs one key after the other, and then everything.
                    let script = "for _, key in ipairs(ARGV) do redis.call('RPUSH', key, 'seen') end
                        return redis.call('DBSIZE')";
                    client.send(["EVAL", script, "0", key, chance.pick(&KEYS), chance.pick(&KEYS)]);
                    "everything"
                }
                3 => {
                    client.send(["DBSIZE"]);
                    "everything"
                }
                _ => {
                    let want = chance.pick(&WANTS);
                    want.send(&mut client, key, &value);
                    if want.reads() { "read" } else { "append" }
                }
            };
            (client, id, what.to_owned())
        })
        .collect();
    let mut kills: Vec<Vec<Vec<u8>>> = Vec::new();
    clients.retain(|(_, id, _)| {
        let fate = chance.pick(&FATES);
        if fate == Fate::Killed {
            kills.push(["CLIENT", "KILL", "ID", &id.to_string()].map(Vec::from).into());
        }
        fate == Fate::Served
    });
    // Some have been dropped by now, and find themselves hung up.
    other.pipeline(&kills);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) && !by_time {
                other.run("SCRIPT KILL");
                // Other tests need the processors, too.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let read = |(client, _, what): &mut (Client, i64, String)| {
            let reply = notation::reply(&client.try_read().expect("an answer").expect("an answer"));
            match what.as_str() {
                "endless" => assert!(reply.starts_with(end), "{reply}"),
                // What ends them ends whatever has been running for a while.
                _ => assert!(!reply.starts_with('-') || reply.starts_with(end), "{what}: {reply}"),
            }
            assert!(!reply.contains("half done"), "{reply}");
        };
        let all =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clients.iter_mut().for_each(read)));
        ended.store(true, Ordering::Relaxed);
        all.expect("everybody was answered");
    });
    for key in KEYS {
        let list = notation::reply(&server.client().call(["LRANGE", key, "0", "-1"]));
        assert!(!list.contains("half done"), "{list}");
    }
    server.client().run("CONFIG SET script-timeout-ms 60000");
    assert_all_is_free(&server);
}

fn nobody_is_forgotten_in_a_storm(on: Topology) {
    (0..3).for_each(|seed| hold_storm(on, "rewind", seed));
}

fn nobody_is_forgotten_in_a_storm_of_new_instances(on: Topology) {
    (0..3).for_each(|seed| hold_storm(on, "fresh", seed));
}

/// Those whose turn it is when running scripts lose their clients find room, however long those take to end.
fn the_place_of_a_script_that_was_cut_off_is_free_at_once(on: Topology) {
    const PLACES: usize = 8;
    for instances in INSTANCES {
        let server = start(on, instances, &["--threads", "2", "--script-concurrency", &PLACES.to_string()]);
        let mut other = server.client();
        for _ in 0..15 {
            let mut running: Vec<Client> = (0..PLACES).map(|_| server.client()).collect();
            let ids: Vec<i64> = running.iter_mut().map(id).collect();
            for (number, client) in running.iter_mut().enumerate() {
                client.send(["EVAL", ENDLESS, "1", &number.to_string()]);
            }
            wait_for_scripts(&server, PLACES as u64);
            let mut next: Vec<Client> = (0..2 * PLACES).map(|_| server.client()).collect();
            next.iter_mut()
                .for_each(|client| client.send(["EVAL", "return pcall(error, 'x') and 0 or 1", "0"]));
            let kills: Vec<_> = ids
                .iter()
                .map(|id| ["CLIENT", "KILL", "ID", &id.to_string()].map(Vec::from).into())
                .collect();
            other.pipeline(&kills);
            for client in &mut next {
                assert_eq!(client.read(), Value::Integer(1));
            }
        }
        assert_all_is_free(&server);
    }
}

/// Scripts without an end, whatever they do about it.
const UNENDING: [&str; 3] = [
    "while true do end",
    "while true do pcall(error, 'again') end",
    "while true do pcall(redis.call, 'INCR', KEYS[1]) pcall(redis.call, 'LPOP', KEYS[1]) end",
];

/// Runs `count` of `body` until the limit has ended them all. Whether somebody was answered while they ran.
fn run_unending(server: &TestServer, body: &str, count: usize, limit: &str) -> bool {
    let mut other = server.client();
    let ended = || server.info(&format!("script_limit_{limit}"));
    let before = ended();
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(["EVAL", body, "1", &format!("key:{number}")]);
    }
    let mut answered = false;
    wait_until("all have ended", || {
        let (was_running, had_ended) = (server.info("scripts_running"), ended());
        assert_eq!(notation::reply(&other.run("PING")), "+PONG");
        // Nobody came or went, and some were there: so they were there when PING was answered.
        answered |= was_running > 0 && ended() == had_ended;
        ended() == before + count as u64
    });
    for client in &mut clients {
        let reply = notation::reply(&client.read());
        assert!(reply.starts_with(&format!("-SCRIPTLIMIT {limit}: ")), "{reply}");
    }
    assert_all_is_free(server);
    answered
}

fn hold_unending(on: Topology, instances: &str, count: usize) {
    let server = start(on, instances, &["--threads", "2"]);
    let set = |name: &str, value: u64| {
        let reply = server.client().run(&format!("CONFIG SET {name} {value}"));
        assert_eq!(notation::reply(&reply), "+OK");
    };
    // How long somebody takes to be answered is the machine's matter: who came too late has more of it the next time.
    let limits = [("time", "script-timeout-ms", 100), ("fuel", "script-fuel", 40_000_000 / count as u64)];
    for (limit, parameter, start) in limits {
        for body in UNENDING {
            let in_the_meantime = (0..8).any(|doubled| {
                set(parameter, start << doubled);
                run_unending(&server, body, count, limit)
            });
            assert!(in_the_meantime, "nobody was answered while {count} of {body} ran");
        }
        set("script-timeout-ms", 86_400_000);
    }
}

fn an_endless_script_ends_and_others_are_served(on: Topology) {
    INSTANCES.iter().for_each(|instances| hold_unending(on, instances, 1));
}

fn a_hundred_endless_scripts_end_and_others_are_served(on: Topology) {
    hold_unending(on, "rewind", 100);
    // New instances differ in how they begin and end: a few of them show that.
    hold_unending(on, "fresh", 30);
}

over_nodes! {
    who_waits_is_served_in_order_when_the_holder_is_killed,
    who_waits_is_served_in_order_when_the_holder_loses_its_client,
    nobody_is_forgotten_in_a_storm,
    nobody_is_forgotten_in_a_storm_of_new_instances,
    the_place_of_a_script_that_was_cut_off_is_free_at_once,
    an_endless_script_ends_and_others_are_served,
    a_hundred_endless_scripts_end_and_others_are_served,
}
