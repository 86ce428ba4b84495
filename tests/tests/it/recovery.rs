//! Clusters of replicated groups that have lost majorities for good go on with what is left.

use tests::cluster::{Member, TestCluster};
use tests::{Value, wait_until};

use super::membership::{data_of, done, refused};

/// Counts in keys of several groups.
const ALL: &str = "for _, key in ipairs(KEYS) do redis.call('INCR', key) end return #KEYS";

/// A key of each group.
fn keys(cluster: &TestCluster) -> Vec<String> {
    (0..cluster.stores.len()).map(|store| cluster.key(store, "key")).collect()
}

/// Counts once in all of these keys.
fn count(gateway: &Member, keys: &[String]) {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let counted = gateway.client().eval(ALL, &keys, &[]);
    assert_eq!(counted, Value::Integer(keys.len() as i64));
}

fn have_counted(gateway: &Member, keys: &[String], times: &str) {
    for key in keys {
        assert_eq!(gateway.client().call(["GET", key]), Value::Bulk(times.as_bytes().to_vec()), "{key}");
    }
}

/// Waits until no replica lacks anything: each of them is all of its group.
fn catch_up(cluster: &TestCluster) {
    wait_until("all replicas have all", || {
        let groups = cluster.groups();
        let mut all = groups["groups"].as_array().expect("a list").iter();
        all.all(|group| {
            let mut replicas = group["replicas"].as_array().expect("a list").iter();
            replicas.all(|replica| replica["lag_entries"] == 0)
        })
    });
}

/// How many replicas each group has.
fn replicas(cluster: &TestCluster) -> Vec<usize> {
    let groups = cluster.groups();
    let all = groups["groups"].as_array().expect("a list").iter();
    all.map(|group| group["replicas"].as_array().expect("a list").len()).collect()
}

#[test]
fn the_last_machine_of_three_goes_on() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let keys = keys(&cluster);
    count(&cluster.gateways[0], &keys);
    let is_whole = "nothing was done: a majority of the replicas of each group answers";
    refused(&cluster, &["recover", "--accept-loss"], &format!("{is_whole} (3 of 3)"));
    cluster.stores[1].kill();
    refused(&cluster, &["recover", "--accept-loss"], &format!("{is_whole} (2 of 3)"));
    cluster.wait();
    count(&cluster.gateways[0], &keys);
    wait_until("the other two have all", || {
        let groups = cluster.groups();
        let mut all = groups["groups"].as_array().expect("a list").iter();
        all.all(|group| {
            let replicas = group["replicas"].as_array().expect("a list");
            replicas.iter().filter(|replica| replica["lag_entries"] == 0).count() == 2
        })
    });
    cluster.stores[2].kill();

    refused(&cluster, &["recover"], "nothing was done: --accept-loss does this");
    let (_, text) = cluster.topology(&["recover"]);
    let lost = format!("given up: process 2, {}", cluster.wires[1].address());
    assert!(text.contains(&lost) && text.contains("group meta: 1 of 3 replicas answer"), "{text}");
    assert_eq!(replicas(&cluster), [3, 3, 3, 3], "nothing was done");
    done(&cluster, &["recover", "--accept-loss"], "each group has 1 replica\n");
    assert_eq!(replicas(&cluster), [1, 1, 1, 1]);
    assert_eq!(cluster.groups()["processes"].as_array().map(Vec::len), Some(1));
    refused(&cluster, &["recover", "--accept-loss"], &format!("{is_whole} (1 of 1)"));
    cluster.wait();
    have_counted(&cluster.gateways[0], &keys, "2");
    count(&cluster.gateways[0], &keys);

    // Together they have a majority of the cluster as it was.
    for at in [1, 2] {
        cluster.stores[at].start();
    }
    for at in [1, 2] {
        wait_until("it hears of the recovery", || {
            cluster.stores[at].server().log().contains("the cluster was recovered without this process")
        });
        assert_eq!(data_of(&cluster.stores[at]), ["g0", "g1", "g2", "meta"], "its data is kept");
    }
    have_counted(&cluster.gateways[0], &keys, "3");
    let addresses: Vec<_> = cluster.wires.iter().rev().map(|wire| wire.address()).collect();
    let mut gateway = Member::gateway(&addresses, &[]);
    gateway.start();
    wait_until("it finds the groups", || matches!(gateway.client().run("DBSIZE"), Value::Integer(3)));
    have_counted(&gateway, &keys, "3");
    cluster.stores[1].kill();
    let flags =
        ["store", "--grpc", "127.0.0.1:0", "--data-dir", &cluster.stores[1].data_dir().to_string_lossy()];
    let output = tests::process::command(&flags).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("has no process 2, or not any more"), "{text}");

    cluster.stores[2].kill();
    for at in [1, 2] {
        std::fs::remove_dir_all(cluster.stores[at].data_dir()).expect("it is there");
        cluster.stores[at].start();
        done(&cluster, &["join", &cluster.wires[at].address().to_string()], "has joined the cluster");
    }
    done(&cluster, &["replicas", "3"], "each group has 3 replicas");
    catch_up(&cluster);
    count(&cluster.gateways[0], &keys);
    cluster.stores[0].kill();
    cluster.wait();
    have_counted(&cluster.gateways[0], &keys, "4");
    count(&cluster.gateways[0], &keys);
}

/// The decision of a transaction may be among what is lost: it is not taken for one that was never made.
#[test]
fn a_transaction_stays_in_doubt_whose_decision_may_be_lost() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let keys = keys(&cluster);
    count(&cluster.gateways[0], &keys);
    cluster.stores[0].kill();
    cluster.stores[0].start_failing("commit:before-record@1=abort");
    wait_until("it leads again", || cluster.leader("g0") == 0);
    cluster.stores[1].kill();
    cluster.wait();
    // The first key's group decides, and only what the third process knows is left.
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let reply = cluster.client(0).eval(ALL, &names, &[]);
    assert!(matches!(&reply, Value::Error(text) if text.starts_with(b"UNKNOWN ")), "{reply:?}");
    wait_until("the coordinator has ended", || !cluster.stores[0].is_running());
    done(&cluster, &["recover", "--accept-loss"], "each group has 1 replica\n");

    let mut in_doubt = String::new();
    wait_until("both participants are in doubt", || {
        in_doubt = cluster.topology(&["transactions", "--in-doubt"]).1;
        in_doubt.lines().filter(|line| line.contains("in doubt")).count() == 2
    });
    let number = in_doubt.split(' ').next().expect("a number");
    done(&cluster, &["decide", number, "rollback"], "rolled back on 2 nodes");
    cluster.wait();
    have_counted(&cluster.gateways[0], &keys, "1");
    count(&cluster.gateways[0], &keys);
}

#[test]
fn what_is_left_of_five_machines_goes_on() {
    let mut cluster = TestCluster::start_replicated(5, 1);
    let keys = keys(&cluster);
    count(&cluster.gateways[0], &keys);
    catch_up(&cluster);
    cluster.stores[0].kill();
    cluster.stores[1].kill();
    let (code, text) = cluster.topology(&["recover", "--accept-loss"]);
    assert_eq!(code, Some(0), "{text}");
    // These have two of their three replicas.
    for group in ["g1", "g2", "g3"] {
        assert!(text.contains(&format!("group {group}: ")), "{text}");
    }
    assert!(text.contains("group g1: 2 of 3 replicas answer; it keeps its data\n"), "{text}");
    assert!(text.contains("group g0: 1 of 3 replicas answer; it goes on with the data of "), "{text}");
    assert!(text.ends_with("shows them, `moonshard topology decide` ends them.\n"), "{text}");
    assert_eq!(replicas(&cluster), [3; 6]);
    cluster.wait();
    have_counted(&cluster.gateways[0], &keys, "1");
    count(&cluster.gateways[0], &keys);
    wait_until("the lost processes do not count any more", || {
        cluster.stores[2..].iter().all(|store| store.readiness() == "ready\n")
    });
    cluster.stores[2].kill();
    cluster.wait();
    have_counted(&cluster.gateways[0], &keys, "2");
    count(&cluster.gateways[0], &keys);
}
