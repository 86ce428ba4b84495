//! Single faults between gateways and store nodes, each at the place where it hurts most.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::client::encode;
use tests::cluster::{Member, TestCluster, key_on};
use tests::process::command;
use tests::temp_dir::TempDir;
use tests::{Client, Value, notation, wait_until};

/// Writes the same everywhere.
const MARK: &str = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end return {ok = 'done'}";
/// Reads everything at one time.
const LOOK: &str =
    "local seen = {} for at, key in ipairs(KEYS) do seen[at] = redis.call('GET', key) end return seen";

/// What a client was told, or that it was cut off.
fn reported(client: &mut Client, script: &str, keys: &[String], mark: &str) -> String {
    ask(client, script, keys, mark);
    answer(client)
}

fn ask(client: &mut Client, script: &str, keys: &[String], mark: &str) {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let count = keys.len().to_string();
    let call = ["EVAL", script, &count].into_iter().chain(keys).chain([mark]);
    // Whoever is cut off finds no answer.
    let _ = client.send_raw(&encode(call));
}

fn answer(client: &mut Client) -> String {
    match client.try_read() {
        Ok(Some(reply)) => notation::reply(&reply),
        _ => "cut off".to_owned(),
    }
}

/// The one value that all keys have.
fn mark_seen(client: &mut Client, keys: &[String]) -> String {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let Value::Array(seen) = client.eval(LOOK, &keys, &[]) else { panic!("no values") };
    assert!(seen.iter().all(|value| *value == seen[0]), "half of it: {seen:?}");
    String::from_utf8_lossy(seen[0].text().expect("a value")).into_owned()
}

/// A key on each store.
fn keys(cluster: &TestCluster, name: &str) -> Vec<String> {
    (0..cluster.stores.len()).map(|store| cluster.key(store, name)).collect()
}

/// Whether an error says that nothing was done.
fn is_nothing(reply: &str) -> bool {
    reply.starts_with("-CLUSTERDOWN ") || reply.starts_with("-TRYAGAIN ")
}

/// Whether nobody knows.
fn is_unknown(reply: &str) -> bool {
    reply.starts_with("-UNKNOWN ") || reply == "cut off"
}

/// Everybody can write everything.
fn all_is_free(cluster: &TestCluster, keys: &[String]) {
    for key in keys {
        assert!(matches!(cluster.client(0).call(["APPEND", key, ""]), Value::Integer(_)), "{key}");
    }
}

/// A store that dies at any place of a transaction that is over three: all or nothing is there afterwards, as the
/// client was told.
#[test]
fn a_store_ends_while_it_prepares_decides_or_follows() {
    std::thread::scope(|scope| {
        scope.spawn(|| end_everywhere("periodic"));
        scope.spawn(|| end_everywhere("sync"));
    });
}

fn end_everywhere(durability: &str) {
    // The first writer decides, the others prepare.
    let coordinator = ["commit:before-record", "commit:before-flush", "commit:after-record"];
    let other = ["prepare:before-record", "prepare:after-record", "decided:before", "decided:after"];
    let mut cluster = TestCluster::start(3, 1, Some(durability));
    let keys = keys(&cluster, "mark");
    let mut client = cluster.client(0);
    let mut mark = 0;
    for (store, place) in coordinator.map(|place| (0, place)).into_iter().chain(other.map(|place| (2, place)))
    {
        wait_until("it is asked in time what became of it", || {
            let before = format!("mark{mark}");
            assert_eq!(reported(&mut client, MARK, &keys, &before), "+done");
            // Nothing of it is under way any more.
            assert_eq!(mark_seen(&mut client, &keys), before);
            assert_eq!(notation::reply(&client.run("SAVE")), "+OK");
            cluster.stores[store].kill();
            cluster.stores[store].start_failing(&format!("{place}@1=abort"));
            cluster.wait();
            mark += 1;
            let after = format!("mark{mark}");
            let asked = Instant::now();
            ask(&mut client, MARK, &keys, &after);
            wait_until("the store has ended", || !cluster.stores[store].is_running());
            cluster.stores[store].start();
            let reply = answer(&mut client);
            // The gateway waits for it for five seconds, which is not enough where the machine is too busy.
            let came_late = is_unknown(&reply) && asked.elapsed() >= Duration::from_secs(5);
            cluster.wait();
            let found = mark_seen(&mut client, &keys);
            let right = match place {
                _ if came_late => found == before || found == after,
                // Who decides is asked what became of it, as soon as it is back.
                "commit:before-record" => found == before && is_nothing(&reply),
                "commit:after-record" => found == after && reply == "+done",
                "commit:before-flush" => found == if reply == "+done" { &*after } else { &*before },
                "prepare:before-record" | "prepare:after-record" => {
                    found == before && (is_nothing(&reply) || is_unknown(&reply))
                }
                _ => found == after && reply == "+done",
            };
            assert!(right, "{durability}, {place}: {before} became {found} after {reply}");
            all_is_free(&cluster, &keys);
            mark += 1;
            !came_late
        });
    }
}

#[test]
fn a_gateway_ends_between_prepare_and_commit() {
    let mut cluster = TestCluster::start(3, 2, Some("sync"));
    let keys = keys(&cluster, "mark");
    let mut other = cluster.client(1);
    assert_eq!(reported(&mut other, MARK, &keys, "before"), "+done");
    cluster.gateways[0].kill();
    cluster.gateways[0].start_failing("work:prepared@1=abort");
    cluster.wait();
    assert_eq!(reported(&mut cluster.client(0), MARK, &keys, "after"), "cut off");
    assert_eq!(mark_seen(&mut other, &keys), "before");
    assert_eq!(reported(&mut other, MARK, &keys, "next"), "+done");
    wait_until("the gateway has ended", || !cluster.gateways[0].is_running());
    cluster.gateways[0].start();
    cluster.wait();
    all_is_free(&cluster, &keys);
}

/// What would tell the decider that it may forget is lost with the gateway: it asks.
#[test]
fn a_decision_is_forgotten_though_nobody_told_that_it_was_followed() {
    let mut cluster = TestCluster::start(3, 2, Some("sync"));
    let keys = keys(&cluster, "mark");
    cluster.gateways[0].kill();
    cluster.gateways[0].start_failing("work:followed@1=abort");
    cluster.wait();
    let mut client = cluster.client(0);
    // The next step of the transaction may come after the reply, or before.
    let reply = reported(&mut client, MARK, &keys, "after");
    assert!(["+done", "cut off"].contains(&&*reply), "{reply}");
    wait_until("the gateway has ended", || !cluster.gateways[0].is_running());
    let mut other = cluster.client(1);
    assert_eq!(mark_seen(&mut other, &keys), "after");
    let server = cluster.gateways[1].server();
    let left = |what: &str| server.info_text("store0").split(',').any(|part| part == what);
    // For five seconds at least; a machine that stands still may miss them.
    let decided = Instant::now();
    wait_until("the node tells of the decision", || left("decided=1") || decided.elapsed().as_secs() > 20);
    wait_until("the decision is forgotten", || left("decided=0"));
    cluster.stores[0].kill();
    cluster.stores[0].start();
    cluster.gateways[0].start();
    cluster.wait();
    assert_eq!(mark_seen(&mut other, &keys), "after");
}

/// What is told to whoever wants a key of a transaction in doubt.
const IN_DOUBT: &str =
    "-TRYAGAIN nothing was done: the key is locked by a transaction in doubt, whose coordinator ";

/// Who has prepared and cannot ask keeps its keys: whoever wants them is told so, and all else goes on.
#[test]
fn a_decider_that_stays_away_holds_only_the_keys_of_its_transaction() {
    let mut cluster = TestCluster::start_hurried(3, 2, Some("sync"));
    let keys = keys(&cluster, "mark");
    let aside = self::keys(&cluster, "aside");
    let mut client = cluster.client(1);
    assert_eq!(reported(&mut client, MARK, &keys, "before"), "+done");
    cluster.stores[0].kill();
    cluster.stores[0].start_failing("commit:after-record@1=abort");
    cluster.wait();
    let reply = reported(&mut cluster.client(0), MARK, &keys, "after");
    assert!(is_unknown(&reply), "{reply}");
    let mut waiting = cluster.client(1);
    waiting.send(["GET", &keys[2]]);
    for _ in 0..100 {
        assert!(is_nothing(&notation::reply(&client.call(["SET", &aside[0], "x"]))));
        assert_eq!(notation::reply(&client.call(["SET", &aside[1], "x"])), "+OK");
        assert_eq!(notation::reply(&client.call(["SET", &aside[2], "x"])), "+OK");
    }
    let reply = notation::reply(&waiting.read());
    assert!(reply.starts_with(IN_DOUBT), "{reply}");
    let pair = [keys[2].clone(), aside[2].clone()];
    let reply = reported(&mut client, MARK, &pair, "x");
    assert!(reply.starts_with(IN_DOUBT), "{reply}");
    assert_eq!(notation::reply(&client.call(["SET", &aside[2], "y"])), "+OK", "it is free again");
    // Its whole life long a participant knows that: also when it is started again.
    cluster.stores[1].kill();
    cluster.stores[1].start();
    wait_until("the store is reached", || notation::reply(&client.call(["SET", &aside[1], "y"])) == "+OK");
    let reply = notation::reply(&client.call(["GET", &keys[1]]));
    assert!(reply.starts_with(IN_DOUBT), "{reply}");
    let server = cluster.gateways[1].server();
    for store in ["store1", "store2"] {
        wait_until("the node tells of it", || server.info_text(store).contains("in_doubt=1"));
    }
    cluster.stores[0].start();
    cluster.wait();
    assert_eq!(mark_seen(&mut client, &keys), "after");
    all_is_free(&cluster, &keys);
}

/// An operator may decide for one that is away; the nodes that wait follow.
#[test]
fn an_operator_decides_for_a_decider_that_stays_away() {
    std::thread::scope(|scope| {
        scope.spawn(|| decided_by_hand("commit:after-record", "commit", "committed"));
        scope.spawn(|| decided_by_hand("commit:before-record", "rollback", "rolled back"));
    });
}

/// One who decides otherwise than the one that was away hears of it when that is back.
#[test]
fn an_operator_who_decided_otherwise_is_told() {
    std::thread::scope(|scope| {
        scope.spawn(|| decided_by_hand("commit:after-record", "rollback", "rolled back"));
        scope.spawn(|| decided_by_hand("commit:before-record", "commit", "committed"));
    });
}

/// The coordinator of a transaction that a participant has not ended cannot be stopped, although it has no slots left.
#[test]
fn drain_waits_for_participants_that_need_the_node() {
    let mut cluster = TestCluster::start_hurried(3, 1, Some("sync"));
    let keys = keys(&cluster, "mark");
    let mut client = cluster.client(0);
    assert_eq!(reported(&mut client, MARK, &keys, "before"), "+done");
    // Nothing of it is under way any more.
    assert_eq!(mark_seen(&mut client, &keys), "before");
    assert_eq!(notation::reply(&client.run("SAVE")), "+OK");
    cluster.stores[2].kill();
    cluster.stores[2].start_failing("decided:before@1=abort");
    cluster.wait();
    ask(&mut client, MARK, &keys, "after");
    wait_until("the participant has ended", || !cluster.stores[2].is_running());
    let addresses: Vec<String> = cluster.wires.iter().map(|wire| wire.address().to_string()).collect();
    let topology = |task: &[&str]| {
        let mut command = command(&[&["topology", "--stores", &addresses[0]], task].concat());
        let output = command.env("FAIL_POINTS", "drain-ms=1000").output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, reported) = topology(&["move", "--slots", "0-5461", "--to", &addresses[1]]);
    assert_eq!(code, Some(0), "{reported}");
    // Before that it waits for the gateway.
    wait_until("only a decision is left", || {
        let (code, reported) = topology(&["drain", &addresses[0]]);
        assert_eq!(code, Some(1), "{reported}");
        reported.contains("1 of its decisions are not acknowledged by all participants")
    });
    cluster.stores[2].start();
    wait_until("the node can be stopped", || {
        let (code, reported) = topology(&["drain", &addresses[0]]);
        code == Some(0) && reported.ends_with("the node can be stopped\n")
    });
    assert_eq!(answer(&mut client), "+done");
    cluster.wait();
    assert_eq!(mark_seen(&mut client, &keys), "after");
}

fn decided_by_hand(place: &str, how: &str, fate: &str) {
    let mut cluster = TestCluster::start_hurried(3, 1, Some("sync"));
    let keys = keys(&cluster, "mark");
    let mut client = cluster.client(0);
    assert_eq!(reported(&mut client, MARK, &keys, "before"), "+done");
    cluster.stores[0].kill();
    cluster.stores[0].start_failing(&format!("{place}@1=abort"));
    cluster.wait();
    assert!(is_unknown(&reported(&mut client, MARK, &keys, "after")));
    let stores = cluster.wires[1].address().to_string();
    let topology = |task: &[&str]| {
        let output =
            command(&[&["topology", "--stores", &stores], task].concat()).output().expect("it starts");
        if !output.status.success() {
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut in_doubt = String::new();
    wait_until("both nodes are in doubt", || {
        in_doubt = topology(&["transactions", "--in-doubt"]).1;
        in_doubt.lines().count() == 2
    });
    let number = in_doubt.split(' ').next().expect("a number").to_owned();
    for (line, key) in in_doubt.lines().zip(&keys[1..]) {
        assert!(line.starts_with(&number) && line.contains(&format!("locks \"{key}\"")), "{line}");
    }
    assert_eq!(topology(&["decide", "0", how]).0, Some(1), "there is no such transaction");
    let (code, reported) = topology(&["decide", &number, how]);
    assert_eq!(code, Some(0));
    assert!(reported.starts_with(&format!("transaction {number} {fate} on 2 nodes")), "{reported}");
    let after = if how == "commit" { "after" } else { "before" };
    for key in &keys[1..] {
        assert_eq!(client.call(["GET", key]).text(), Some(after.as_bytes()));
    }
    assert_eq!(topology(&["transactions", "--in-doubt"]).1, "no transactions\n");
    assert_eq!(topology(&["decide", &number, how]).0, Some(0), "it is decided so");
    let otherwise = if how == "commit" { "rollback" } else { "commit" };
    assert_eq!(topology(&["decide", &number, otherwise]).0, Some(1), "it is decided differently");
    // A crash does not make it forget that somebody has decided.
    cluster.stores[1].kill();
    cluster.stores[1].start();
    cluster.stores[0].start();
    cluster.wait();
    let decided = if place == "commit:after-record" { "after" } else { "before" };
    for (key, mark) in keys.iter().zip([decided, after, after]) {
        assert_eq!(client.call(["GET", key]).text(), Some(mark.as_bytes()), "{key}");
    }
    all_is_free(&cluster, &keys);
    let server = cluster.gateways[0].server();
    let says = |store: &str, what: &str| server.info_text(store).split(',').any(|part| part == what);
    wait_until("nobody will ask the decider any more", || says("store0", "decided=0"));
    let warning =
        format!("transaction {number} is partly committed: it was {fate} here by a decision of an operator");
    for (store, name) in [(1, "store1"), (2, "store2")] {
        let warned = || cluster.stores[store].server().log().contains(&warning);
        if decided == after {
            assert!(!warned() && says(name, "contradicted=0"));
        } else {
            wait_until("the node warns", || warned() && says(name, "contradicted=1"));
        }
    }
}

/// What waits for a lock on a node is given up with its client.
#[test]
fn a_command_that_waits_is_not_done_for_a_client_that_hung_up() {
    let cluster = TestCluster::start_with(2, 1, None, UNHURRIED);
    let (key, beside) = (cluster.key(1, "key"), cluster.key(1, "beside"));
    let server = cluster.gateways[0].server();
    let mut holds = cluster.client(0);
    // Its key is locked once it uses what it finds there.
    let endless =
        "if not redis.call('GET', KEYS[1]) then redis.log(redis.LOG_NOTICE, 'it runs') end while true do end";
    holds.send(["EVAL", endless, "1", &key]);
    wait_until("it runs", || server.log().contains("it runs"));
    // So large that it is seen to have come.
    let large = "x".repeat(1 << 20);
    let behind = [["APPEND", &key, "a"], ["SET", &beside, "x"]];
    for behind in [&behind[..0], &behind] {
        let calls: Vec<[&str; 3]> = [["SET", &key, &large]].iter().chain(behind).copied().collect();
        // The one that holds the key, and the one that asks.
        wait_until("the others are gone", || server.info("connected_clients") == 2);
        let come = server.info("total_net_input_bytes");
        let mut late = cluster.client(0);
        late.send_raw(&calls.iter().flat_map(encode).collect::<Vec<u8>>()).expect("it is connected");
        wait_until("it has come", || server.info("total_net_input_bytes") > come + large.len() as u64);
        drop(late);
        wait_until("the gateway has noticed", || server.info("connected_clients") == 2);
    }
    assert_eq!(notation::reply(&cluster.client(0).run("SCRIPT KILL")), "+OK");
    assert!(notation::reply(&holds.read()).starts_with("-KILLED "));
    assert!(holds.call(["GET", &key]).is_null());
    assert!(holds.call(["GET", &beside]).is_null());
    assert_eq!(notation::reply(&holds.call(["SET", &key, "x"])), "+OK");
}

/// Users are kept with the data. A gateway that starts first, and finds their node empty, refuses all clients.
#[test]
fn a_node_that_lost_the_users_lets_no_client_in() {
    let mut cluster = TestCluster::start(2, 1, Some("sync"));
    assert_eq!(notation::reply(&cluster.client(0).run("ACL SETUSER default resetpass >secret")), "+OK");
    cluster.gateways[0].kill();
    cluster.stores.iter_mut().for_each(Member::kill);
    let dir = cluster.stores[0].dir.as_ref().expect("it keeps its data").path().to_owned();
    let aside = TempDir::new("aside");
    std::fs::rename(&dir, aside.path()).expect("a free name");
    cluster.stores[0].start();
    cluster.gateways[0].start();
    let answers = |cluster: &TestCluster, text: &str| {
        let reply = notation::reply(&cluster.client(0).run("GET key"));
        assert!(reply.starts_with('-'), "a client was let in: {reply}");
        reply.contains(text)
    };
    wait_until("it waits for the other node", || answers(&cluster, "waits until 1 of the other nodes"));
    cluster.stores[1].start();
    let lost = format!("this node does not have the data of {}", cluster.wires[0].address());
    wait_until("the other node knows that it had data", || answers(&cluster, &lost));

    cluster.stores[0].kill();
    std::fs::remove_dir_all(&dir).expect("the directory it was started with");
    std::fs::rename(aside.path(), &dir).expect("a free name");
    cluster.stores[0].start();
    wait_until("the users are known", || answers(&cluster, "NOAUTH"));
    let mut client = cluster.client(0);
    assert_eq!(notation::reply(&client.run("AUTH secret")), "+OK");
    wait_until("all nodes are reached", || matches!(client.run("DBSIZE"), Value::Integer(_)));
}

/// A node that comes back without its data serves nothing of it, whoever asks, until that is what somebody wants.
#[test]
fn a_node_without_its_data_is_refused_until_somebody_accepts_that() {
    let mut cluster = TestCluster::start(2, 2, Some("sync"));
    let keys = keys(&cluster, "mark");
    assert_eq!(reported(&mut cluster.client(0), MARK, &keys, "before"), "+done");
    cluster.stores[1].kill();
    let dir = cluster.stores[1].dir.as_ref().expect("it keeps its data").path().to_owned();
    let aside = TempDir::new("aside");
    std::fs::rename(&dir, aside.path()).expect("a free name");
    cluster.stores[1].start();
    let lost = format!("this node does not have the data of {}", cluster.wires[1].address());
    let is_refused = |client: &mut Client| {
        let reply = notation::reply(&client.call(["GET", &keys[1]]));
        assert!(is_nothing(&reply), "{reply}");
        reply.contains(&lost)
    };
    wait_until("a gateway that knew it says so", || is_refused(&mut cluster.client(0)));
    // One that starts now knows nothing yet.
    cluster.gateways[1].kill();
    cluster.gateways[1].start();
    wait_until("a new gateway says so", || is_refused(&mut cluster.client(1)));
    wait_until("others go on", || cluster.client(1).call(["GET", &keys[0]]).text() == Some(&b"before"[..]));
    cluster.stores[1].kill();
    cluster.stores[1].start();
    wait_until("it is still so", || is_refused(&mut cluster.client(1)));

    // With its own folder all is well.
    cluster.stores[1].kill();
    std::fs::remove_dir_all(&dir).expect("the folder it was started with");
    std::fs::rename(aside.path(), &dir).expect("a free name");
    cluster.stores[1].start();
    cluster.wait();
    assert_eq!(mark_seen(&mut cluster.client(1), &keys), "before");

    cluster.stores[1].kill();
    std::fs::remove_dir_all(&dir).expect("its folder");
    cluster.stores[1].start();
    wait_until("it is refused", || is_refused(&mut cluster.client(0)));
    let stores = cluster.wires[0].address().to_string();
    let node = cluster.wires[1].address().to_string();
    let accepted = command(&["topology", "--stores", &stores, "accept", &node]).output().expect("it starts");
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));
    cluster.wait();
    for gateway in 0..2 {
        assert!(cluster.client(gateway).call(["GET", &keys[1]]).is_null());
        assert_eq!(cluster.client(gateway).call(["GET", &keys[0]]).text(), Some(&b"before"[..]));
    }
    assert_eq!(reported(&mut cluster.client(0), MARK, &keys, "after"), "+done");
    cluster.stores[1].kill();
    cluster.stores[1].start();
    cluster.gateways[0].kill();
    cluster.gateways[0].start();
    cluster.wait();
    assert_eq!(mark_seen(&mut cluster.client(0), &keys), "after");
}

/// For scripts that run until something has happened. How long they turn in a circle for that is doubled if it was too
/// short: that is the machine's matter.
const UNHURRIED: &[&str] = &["--script-fuel", "100000000000", "--script-timeout-ms", "60000"];

/// A gateway that stops in the middle loses its keys, and cannot do anything with them when it goes on.
#[test]
fn a_gateway_that_stands_still_loses_its_transactions() {
    let cluster = TestCluster::start_with(3, 2, Some("sync"), UNHURRIED);
    let keys = keys(&cluster, "mark");
    let mut other = cluster.client(1);
    assert_eq!(reported(&mut other, MARK, &keys, "before"), "+done");
    let slow = "redis.call('SET', KEYS[1], ARGV[1])
        if redis.call('GET', KEYS[2]) then redis.log(redis.LOG_NOTICE, 'it runs') end
        for _ = 1, ARGV[2] do end
        redis.call('SET', KEYS[3], ARGV[1]) return {ok = 'done'}";
    let mut client = cluster.client(0);
    let mut turns = 15_000_000;
    wait_until("it is stopped while it runs", || {
        turns *= 2;
        let runs = || cluster.gateways[0].server().log().matches("it runs").count();
        let before = runs();
        client.send(["EVAL", slow, "3", &keys[0], &keys[1], &keys[2], "late", &turns.to_string()]);
        wait_until("it runs", || runs() > before);
        cluster.gateways[0].freeze(true);
        assert_eq!(reported(&mut other, MARK, &keys, "after"), "+done");
        cluster.gateways[0].freeze(false);
        let reply = notation::reply(&client.read());
        assert_eq!(mark_seen(&mut other, &keys), "after");
        cluster.wait();
        // The machine may have stood still just when it came to its end.
        assert!(is_nothing(&reply) || is_unknown(&reply) || reply == "+done", "{reply}");
        is_nothing(&reply)
    });
    all_is_free(&cluster, &keys);
}

/// A machine that stands still as a whole, as virtual ones do, is not a silence of anybody: what was begun goes on.
#[test]
fn a_machine_that_stands_still_loses_nothing() {
    let cluster = TestCluster::start(2, 1, None);
    let key = cluster.key(1, "key");
    let mut client = cluster.client(0);
    // Forgotten with the link.
    assert_eq!(notation::reply(&client.call(["WATCH", &key])), "+OK");
    let all = || cluster.gateways.iter().chain(&cluster.stores);
    all().for_each(|member| member.freeze(true));
    // Longer than anybody may be silent.
    std::thread::sleep(Duration::from_secs(7));
    all().for_each(|member| member.freeze(false));
    assert_eq!(notation::reply(&client.run("MULTI")), "+OK");
    client.call(["SET", &key, "x"]);
    assert_eq!(notation::reply(&client.run("EXEC")), "[+OK]");
    let log = cluster.gateways[0].server().log();
    // A link may have been looked at before it was up.
    let is_lost = |line: &str| line.contains("cannot be used") && !line.ends_with("not connected yet");
    assert!(!log.lines().any(is_lost), "{log}");
}

/// A transaction whose link breaks has lost its locks there: whatever it does next, what it read may be no more true.
#[test]
fn what_was_read_must_still_be_locked_in_the_end() {
    let cluster = TestCluster::start_with(2, 2, None, UNHURRIED);
    let read = cluster.key(0, "read");
    let (beside, elsewhere) = (cluster.key(0, "beside"), cluster.key(1, "elsewhere"));
    let script = "local seen = redis.call('GET', KEYS[1]) redis.log(redis.LOG_NOTICE, 'it runs ' .. ARGV[1])
        for _ = 1, ARGV[2] do end
        redis.call('SET', ARGV[1], seen) return {ok = 'done'}";
    let mut other = cluster.client(1);
    let mut turns = 30_000_000;
    for written in [&beside, &elsewhere] {
        for declared in [1, 2] {
            wait_until("it is cut off while it runs", || {
                cluster.wait();
                other.call(["DEL", written]);
                assert_eq!(notation::reply(&other.call(["SET", &read, "before"])), "+OK");
                let text = format!("it runs {written}");
                let runs = || cluster.gateways[0].server().log().matches(&text).count();
                let before = runs();
                let mut client = cluster.client(0);
                let (count, most) = (declared.to_string(), turns.to_string());
                let call = ["EVAL", script, &count, &read].into_iter();
                client.send(call.chain((declared == 2).then_some(&**written)).chain([&**written, &most]));
                wait_until("it runs", || runs() > before);
                assert!(cluster.wires[0].cut() > 0);
                wait_until("others write", || notation::reply(&other.call(["SET", &read, "after"])) == "+OK");
                let reply = notation::reply(&client.read());
                if reply == "+done" || is_unknown(&reply) {
                    turns *= 2;
                    return false;
                }
                assert!(is_nothing(&reply), "{written} of {declared} declared keys: {reply}");
                assert!(other.call(["GET", written]).is_null());
                true
            });
        }
    }
}

#[test]
fn a_store_may_come_after_its_gateways() {
    let mut stores: Vec<Member> = (0..2).map(|_| Member::store(None, &[])).collect();
    let addresses: Vec<SocketAddr> = stores.iter().map(Member::address).collect();
    let mut gateway = Member::gateway(&addresses, &[]);
    gateway.start();
    let mut client = gateway.client();
    let keys = [key_on(0, 2, "key"), key_on(1, 2, "key")];
    for key in &keys {
        assert!(is_nothing(&notation::reply(&client.call(["SET", key, "x"]))));
    }
    stores[0].start();
    wait_until("one is reached", || notation::reply(&client.call(["SET", &keys[0], "x"])) == "+OK");
    assert!(is_nothing(&notation::reply(&client.call(["SET", &keys[1], "x"]))));
    stores[1].start();
    wait_until("both are reached", || notation::reply(&client.call(["SET", &keys[1], "x"])) == "+OK");
    assert_eq!(reported(&mut client, MARK, &keys, "done"), "+done");
}

/// Gateways that have another idea of the cluster, or no right to it, are told so, and do nothing.
#[test]
fn a_gateway_of_another_cluster_is_refused() {
    let dir = TempDir::made("token");
    let token = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("a small file");
        dir.child(name)
    };
    let (right, wrong) = (token("right", "open sesame"), token("wrong", "open barley"));
    let flags = ["--cluster-token-file", &right];
    let mut stores: Vec<Member> = (0..3).map(|_| Member::store(None, &flags)).collect();
    stores.iter_mut().for_each(Member::start);
    let [a, b, c] = [0, 1, 2].map(|store: usize| stores[store].address());
    let mut gateway = Member::gateway(&[a, b], &flags);
    gateway.start();
    let mut client = gateway.client();
    let keys = [key_on(0, 2, "key"), key_on(1, 2, "key")];
    for key in &keys {
        wait_until("both are reached", || notation::reply(&client.call(["SET", key, "x"])) == "+OK");
    }
    let cases: [(&[SocketAddr], &[&str], &str); 4] = [
        (&[b, a], &flags, "this node belongs to another cluster: "),
        (&[a, b, c], &flags, "this node belongs to another cluster: "),
        (&[a, b], &["--cluster-token-file", &wrong], "wrong cluster token"),
        (&[a, b], &[], "wrong cluster token"),
    ];
    for (nodes, flags, why) in cases {
        let mut foreign = Member::gateway(nodes, flags);
        foreign.start();
        wait_until("the log says why", || {
            let log = foreign.server().log();
            [a, b].iter().all(|node| log.contains(&format!("store node {node} cannot be used: {why}")))
        });
        for key in &keys {
            let reply = notation::reply(&foreign.client().call(["SET", key, "y"]));
            assert!(reply.starts_with("-CLUSTERDOWN ") && reply.contains(why), "{reply}");
        }
    }
    for key in &keys {
        assert_eq!(client.call(["GET", key]).text(), Some(&b"x"[..]));
    }
}

/// Whoever asks for much and fetches nothing is given up, and does not fill the memory before.
#[test]
fn a_gateway_that_fetches_nothing_costs_a_store_no_memory() {
    const CLIENTS: usize = 300;
    const BYTES: usize = 4 << 20;
    let cluster = TestCluster::start(1, 2, None);
    let key = cluster.key(0, "large");
    assert_eq!(notation::reply(&cluster.client(0).call(["SET", &key, &"x".repeat(BYTES)])), "+OK");
    cluster.wires[0].set_deaf(true);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| cluster.client(0)).collect();
    clients.iter_mut().for_each(|client| client.send(["GET", &key]));
    for client in &mut clients {
        let reply = notation::reply(&client.read());
        assert!(is_nothing(&reply), "{reply}");
    }
    let peak = cluster.stores[0].server().peak_bytes() as usize;
    println!("{} MB at most", peak >> 20);
    // A peer may leave 64 MB unread; these are there more than once while they are sent.
    assert!(peak < CLIENTS * BYTES * 2 / 3, "{peak} bytes");
    cluster.wires[0].heal();
    cluster.wait();
    assert_eq!(cluster.client(0).call(["GET", &key]).text().map(<[u8]>::len), Some(BYTES));
}

/// The same the other way round: what nobody fetches waits in a queue that has an end.
#[test]
fn a_store_that_fetches_nothing_costs_a_gateway_no_memory() {
    const CLIENTS: usize = 8;
    const CALLS: usize = 50;
    let cluster = TestCluster::start(1, 1, None);
    let key = cluster.key(0, "large");
    let value = vec![b'x'; 1 << 20];
    cluster.stores[0].freeze(true);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = cluster.client(0);
            let call = vec![b"SET".to_vec(), key.clone().into_bytes(), value.clone()];
            scope.spawn(move || {
                for reply in client.pipeline(&vec![call; CALLS]) {
                    let reply = notation::reply(&reply);
                    assert!(is_nothing(&reply) || is_unknown(&reply), "{reply}");
                }
            });
        }
    });
    let peak = cluster.gateways[0].server().peak_bytes() as usize;
    println!("{} MB at most", peak >> 20);
    assert!(peak < CLIENTS * CALLS * value.len() / 2, "{peak} bytes");
    cluster.stores[0].freeze(false);
    cluster.wait();
    assert_eq!(notation::reply(&cluster.client(0).call(["SET", &key, "x"])), "+OK");
}

/// On its way nothing else moves for longer than any silence that is allowed.
#[test]
fn a_long_value_crosses_a_slow_wire() {
    let cluster = TestCluster::start(1, 1, None);
    let mut client = cluster.client(0);
    // Each read of the wire takes 64 KB at most.
    cluster.wires[0].set_delay(Duration::from_millis(400));
    let long = "x".repeat(1 << 20);
    assert_eq!(notation::reply(&client.call(["SET", "long", &long])), "+OK");
    assert_eq!(client.call(["GET", "long"]).text(), Some(long.as_bytes()));
}
