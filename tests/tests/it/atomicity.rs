//! Scripts and transactions are atomic over all shards: no update is lost, nobody sees half of one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tests::{Client, TestServer, Topology, Value, over_nodes};

const CLIENTS: i64 = 8;
/// Fewer where each round is repeated until no other client was faster.
const RIVALS: i64 = 4;
const ROUNDS_ON_ONE_PROCESS: i64 = 50;
/// Each takes several times as long.
const ROUNDS_OVER_NODES: i64 = 25;
/// Between two looks of a reader, which would hold up the writers most of the time otherwise.
const PAUSE: Duration = Duration::from_millis(1);

/// Keys enough to lie in several shards.
const KEYS: [&str; 6] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];

/// One more thread than cores and many shards, whatever the machine is.
const FLAGS: &[&str] = &["--threads", "3", "--shards", "16"];

/// Reads all keys, then writes all of them.
const DECLARED: &str = "
    local values = {}
    for i, key in ipairs(KEYS) do values[i] = tonumber(redis.call('GET', key) or 0) end
    for i, key in ipairs(KEYS) do redis.call('SET', key, values[i] + 1) end
    return values[1] + 1";

/// The same with keys that are only known while it runs, in an order that differs from run to run.
const UNDECLARED: &str = "
    local names, start = {'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta'}, tonumber(ARGV[1])
    local values = {}
    for i = 1, #names do
        local name = names[(start + i) % #names + 1]
        values[name] = tonumber(redis.call('GET', name) or 0)
    end
    for name, value in pairs(values) do redis.call('SET', name, value + 1) end
    return 1";

fn load(server: &TestServer, script: &str) -> String {
    let reply = server.client().call(["SCRIPT", "LOAD", script]);
    String::from_utf8_lossy(reply.text().expect("a sha")).into_owned()
}

/// Lets so many clients do so many rounds each at the same time.
fn all_at_once(
    server: &TestServer,
    (clients, rounds): (i64, i64),
    round: impl Fn(&mut Client, i64, i64) + Sync,
) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            let round = &round;
            scope.spawn(move || {
                let mut client = server.client();
                (0..rounds).for_each(|at| round(&mut client, number, at));
            });
        }
    });
}

fn evalsha(client: &mut Client, sha: &str, keys: &[&str], args: &[&str]) -> Value {
    let count = keys.len().to_string();
    client.call(["EVALSHA", sha, &count].iter().chain(keys).chain(args))
}

/// Runs clients that read and write all keys, beside readers that must never see two keys differ.
fn hold(on: Topology, clients: i64, round: impl Fn(&TestServer, &mut Client, i64, i64) + Sync) {
    let server = on.start(FLAGS);
    let rounds = if on == Topology::Local { ROUNDS_ON_ONE_PROCESS } else { ROUNDS_OVER_NODES };
    let reader = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}";
    let by_name = "return {redis.call('GET', ARGV[1]), redis.call('GET', ARGV[2])}";
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(|| {
                let mut client = server.client();
                let mut seen = 0;
                while !ended.load(Ordering::Relaxed) || seen == 0 {
                    let (one, other) = (KEYS[seen % 6], KEYS[(seen + 1 + seen / 6 % 5) % 6]);
                    let pair = if seen % 2 == 0 {
                        client.eval(reader, &[one, other], &[])
                    } else {
                        client.eval(by_name, &[], &[one, other])
                    };
                    let Value::Array(pair) = pair else { panic!("two values, not {pair:?}") };
                    assert_eq!(pair[0], pair[1], "{one} and {other} differ");
                    seen += 1;
                    std::thread::sleep(PAUSE);
                }
            }),
            scope.spawn(|| {
                let mut client = server.client();
                let mut seen = 0;
                while !ended.load(Ordering::Relaxed) || seen == 0 {
                    let Value::Array(all) = client.run("MGET alpha beta gamma delta epsilon zeta") else {
                        panic!("an array")
                    };
                    assert!(all.iter().all(|value| *value == all[0]), "MGET sees half an update: {all:?}");
                    seen += 1;
                    std::thread::sleep(PAUSE);
                }
            }),
        ];
        // Ends the readers also when a writer panics.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            all_at_once(&server, (clients, rounds), |client, number, at| round(&server, client, number, at));
        }));
        ended.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("the reader saw equal keys");
        }
        done.expect("all writers wrote");
    });
    let mut client = server.client();
    let sum = (clients * rounds).to_string();
    for key in KEYS {
        assert_eq!(client.call(["GET", key]), Value::Bulk(sum.clone().into()), "updates of {key} are lost");
    }
    assert_eq!(server.info("scripts_running"), 0);
}

/// The keys, beginning with another one each time.
fn turned(by: i64) -> Vec<&'static str> {
    let by = usize::try_from(by).expect("a count") % KEYS.len();
    KEYS[by..].iter().chain(&KEYS[..by]).copied().collect()
}

fn scripts_that_declare_their_keys(on: Topology) {
    let sha = std::sync::OnceLock::new();
    hold(on, CLIENTS, |server, client, number, at| {
        let sha = sha.get_or_init(|| load(server, DECLARED));
        let reply = evalsha(client, sha, &turned(number + at), &[]);
        assert!(matches!(reply, Value::Integer(1..)), "{reply:?}");
    });
}

fn scripts_that_build_their_keys(on: Topology) {
    let sha = std::sync::OnceLock::new();
    hold(on, CLIENTS, |server, client, number, at| {
        let sha = sha.get_or_init(|| load(server, UNDECLARED));
        let reply = evalsha(client, sha, &[], &[&(number + at).to_string()]);
        assert_eq!(reply, Value::Integer(1));
    });
}

fn transactions(on: Topology) {
    hold(on, CLIENTS, |_, client, number, at| {
        client.run("MULTI");
        for key in turned(number + at) {
            client.call(["INCR", key]);
        }
        let Value::Array(replies) = client.run("EXEC") else { panic!("EXEC answers with an array") };
        assert!(replies.iter().all(|reply| *reply == replies[0]), "EXEC sees half an update: {replies:?}");
    });
}

fn watched_keys(on: Topology) {
    hold(on, RIVALS, |_, client, number, at| {
        let keys = turned(number + at);
        loop {
            client.call(["WATCH"].iter().chain(&keys));
            let values = client.call(["MGET"].iter().chain(&keys));
            let Value::Array(values) = values else { panic!("an array") };
            let next = |value: &Value| {
                let text = value.text().unwrap_or(b"0");
                (std::str::from_utf8(text).expect("digits").parse::<i64>().expect("a number") + 1).to_string()
            };
            client.run("MULTI");
            for (key, value) in keys.iter().zip(&values) {
                client.call(["SET", key, &next(value)]);
            }
            match client.run("EXEC") {
                Value::Array(_) => break,
                reply => assert!(reply.is_null(), "{reply:?}"),
            }
        }
    });
}

fn all_kinds_together(on: Topology) {
    let shas = std::sync::OnceLock::new();
    hold(on, CLIENTS, |server, client, number, at| {
        let (declared, undeclared) = shas.get_or_init(|| (load(server, DECLARED), load(server, UNDECLARED)));
        let turn = (number + at).to_string();
        match (number + at) % 4 {
            0 => drop(evalsha(client, declared, &turned(at), &[])),
            1 => drop(evalsha(client, undeclared, &[], &[&turn])),
            2 => {
                client.run("MULTI");
                evalsha(client, undeclared, &[], &[&turn]);
                let Value::Array(replies) = client.run("EXEC") else { panic!("EXEC answers with an array") };
                assert_eq!(replies, [Value::Integer(1)]);
            }
            // One that is undone at the first try, as its keys are locked only when it asks for them.
            _ => {
                let script = "for _, key in ipairs(ARGV) do redis.call('INCR', key) end return 1";
                assert_eq!(client.eval(script, &[], &turned(at)), Value::Integer(1));
            }
        }
    });
}

over_nodes! {
    scripts_that_declare_their_keys,
    scripts_that_build_their_keys,
    transactions,
    watched_keys,
    all_kinds_together,
}
