//! Clusters whose groups have three replicas: what was acknowledged is there, whichever process is lost.

use std::time::Duration;

use tests::cluster::{Member, TestCluster, can_change_clocks, found};
use tests::counting::{counted, goes_on};
use tests::proxy::Proxy;
use tests::{Value, notation, wait_until};

#[test]
fn any_process_may_be_killed() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    for at in 0..3 {
        let told = counted(&mut cluster, &format!("kill{at}"), |cluster| {
            goes_on(cluster);
            cluster.stores[at].kill();
            goes_on(cluster);
            cluster.stores[at].start();
            goes_on(cluster);
        });
        told.failed_only_with(&["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"]);
    }
}

#[test]
fn a_process_that_is_stopped_hands_over_what_it_leads() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    for at in 0..3 {
        let told = counted(&mut cluster, &format!("stop{at}"), |cluster| {
            goes_on(cluster);
            cluster.stores[at].stop();
            goes_on(cluster);
            cluster.stores[at].start();
            goes_on(cluster);
        });
        // What was on its way in the moment of the change.
        told.failed_only_with(&["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"]);
    }
}

#[test]
fn all_is_there_after_all_were_killed() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let told = counted(&mut cluster, "all", |cluster| {
        goes_on(cluster);
        cluster.stores.iter_mut().for_each(Member::kill);
        cluster.stores.iter_mut().for_each(Member::start);
        goes_on(cluster);
        let logs_its_start = |store: &Member| store.server().log().contains(", a store node\n");
        wait_until("the log says what runs", || cluster.stores.iter().all(logs_its_start));
    });
    assert!(told.counts.len() == 4, "{:?}", told.counts);
}

/// Whether a store that was just started finds that it lacks too much. It may also find in the logs of the others what it lacks.
fn has_copied(store: &Member) -> bool {
    (0..60).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        store.server().log().contains("it was copied from")
    })
}

#[test]
fn a_process_that_lacks_too_much_gets_a_copy() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    for store in &mut cluster.stores {
        store.kill();
        store.start_failing("log-bytes=20000");
    }
    cluster.wait();
    let keys: Vec<String> = (0..3).map(|store| cluster.key(store, "far")).collect();
    let (mut written, mut away) = (0, Duration::ZERO);
    wait_until("the others have dropped what it lacks", || {
        cluster.stores[2].kill();
        let mut client = cluster.client(0);
        for key in &keys {
            for _ in 0..20 {
                written += 1;
                let reply = client.call(["RPUSH", key, &format!("{written}{}", "x".repeat(2000))]);
                // While a group has no leader it may be unknown whether it was done.
                assert!(matches!(reply, Value::Integer(_) | Value::Error(_)), "{reply:?}");
            }
        }
        // Each time for longer.
        away += Duration::from_secs(1);
        std::thread::sleep(away);
        cluster.stores[2].start_failing("log-bytes=20000");
        cluster.wait();
        has_copied(&cluster.stores[2])
    });
    let lengths: Vec<Value> = keys.iter().map(|key| cluster.client(0).call(["LLEN", key])).collect();
    // Without the copy there would be no majority.
    let told = counted(&mut cluster, "copied", |cluster| {
        goes_on(cluster);
        cluster.stores[0].kill();
        goes_on(cluster);
        cluster.stores[0].start();
        goes_on(cluster);
        cluster.stores[1].kill();
        goes_on(cluster);
        cluster.stores[1].start();
        goes_on(cluster);
    });
    told.failed_only_with(&["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"]);
    let found: Vec<Value> = keys.iter().map(|key| cluster.client(0).call(["LLEN", key])).collect();
    assert_eq!(found, lengths);
}

#[test]
fn a_process_whose_data_is_deleted_gets_a_copy() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let mut client = cluster.client(0);
    let keys: Vec<String> = (0..3).map(|store| cluster.key(store, "kept")).collect();
    for store in &mut cluster.stores {
        store.kill();
        store.start_failing("log-bytes=20000");
    }
    cluster.wait();
    for key in &keys {
        for number in 0..50 {
            client.call(["HSET", key, &number.to_string(), &"x".repeat(1000)]);
        }
    }
    wait_until("a log was shortened", || {
        cluster.stores[0].kill();
        for group in ["g0", "g1", "g2"] {
            let dir = cluster.stores[0].data_dir().join("replicas").join(group);
            std::fs::remove_dir_all(dir).expect("it is there");
        }
        // One that is on its way when the process is killed may be answered with UNKNOWN.
        for key in &keys {
            let set = ["HSET", key, "field", &"x".repeat(1000)];
            wait_until("it is acknowledged", || !matches!(client.call(set), Value::Error(_)));
        }
        cluster.stores[0].start_failing("log-bytes=20000");
        cluster.wait();
        has_copied(&cluster.stores[0])
    });
    cluster.stores[1].kill();
    cluster.wait();
    for key in &keys {
        assert_eq!(cluster.client(0).call(["HSTRLEN", key, "field"]), Value::Integer(1000));
    }
}

#[test]
fn the_majority_goes_on_without_a_process_that_hangs() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let told = counted(&mut cluster, "cut", |cluster| {
        goes_on(cluster);
        // It hears neither the others nor gateways.
        cluster.wires[0].set_stalled(true);
        cluster.stores[0].freeze(true);
        goes_on(cluster);
        cluster.stores[0].freeze(false);
        cluster.wires[0].heal();
        goes_on(cluster);
    });
    told.failed_only_with(&["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"]);
}

/// A process whose disk takes nothing, or refuses everything, stands still and goes on later.
#[test]
fn the_majority_goes_on_without_a_disk() {
    let mut cluster = TestCluster::start_replicated_with(3, 1, &[], true);
    for is_full in [false, true] {
        let at = cluster.leader("g0");
        let told = counted(&mut cluster, &format!("disk{is_full}"), |cluster| {
            goes_on(cluster);
            let set = |fails| match is_full {
                true => cluster.stores[at].set_disk_full(fails),
                false => cluster.stores[at].set_disk_stalled(fails),
            };
            set(true);
            wait_until("another one leads", || cluster.leader("g0") != at);
            goes_on(cluster);
            set(false);
            wait_until("it has caught up", || cluster.stores[at].readiness().starts_with("ready"));
            goes_on(cluster);
        });
        told.failed_only_with(&["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"]);
    }
}

#[test]
fn only_processes_without_data_become_a_cluster() {
    let mut stores: Vec<Member> = (0..3).map(|_| Member::store(Some("sync"), &[])).collect();
    stores.iter_mut().for_each(Member::start);
    let addresses: Vec<_> = stores.iter().map(Member::address).collect();
    let refused = |replicas: &str, addresses: &[_], why: &str| {
        let (code, text) = found(addresses, replicas);
        assert!(code == Some(1) && text.contains(why), "{code:?}: {text}");
    };
    refused("2", &addresses, "2 replicas protect from no more failures than 1; use 1, 3 or 5");
    refused("3", &addresses[..2], "3 replicas need 3 processes on machines of their own, there are 2");
    // One of them serves a gateway on its own.
    let mut gateway = Member::gateway(&addresses[2..], &[]);
    gateway.start();
    assert_eq!(gateway.client().run("SET key value"), Value::Status("OK".into()));
    refused("3", &addresses, "this process has data, or belongs to a cluster");
    let mut other = Member::store(Some("sync"), &[]);
    other.start();
    let with_another = [addresses[0], addresses[1], other.address()];
    refused("3", &with_another, &format!("{}: another process belongs to the cluster", other.address()));
    gateway.kill();
}

#[test]
fn gateways_wait_until_the_cluster_is_founded() {
    let mut stores: Vec<Member> = (0..3).map(|_| Member::replicated_store()).collect();
    stores.iter_mut().for_each(Member::start);
    let addresses: Vec<_> = stores.iter().map(Member::address).collect();
    let mut gateway = Member::gateway(&addresses, &[]);
    gateway.start();
    let waits = "this store node waits for moonshard topology found or join";
    wait_until("it is refused", || notation::reply(&gateway.client().run("INFO stores")).contains(waits));
    for store in &stores {
        wait_until("no cluster takes it for one of its processes", || store.readiness() == "ready\n");
    }
    let (code, text) = found(&addresses, "3");
    assert!(code == Some(0) && text.contains(" founded: 3 groups with 3 replicas each"), "{text}");
    wait_until("it serves", || gateway.client().run("SET key value") == Value::Status("OK".into()));
    for store in &stores {
        wait_until("its replicas have caught up", || store.readiness() == "ready\n");
    }
    let (code, text) = found(&addresses, "3");
    assert!(code == Some(0) && text.contains(" was founded before: 3 groups"), "{text}");
    assert_eq!(gateway.client().run("GET key"), Value::Bulk(b"value".to_vec()));
}

/// Each leader knows when fields expire, and which fields have expired.
#[test]
fn fields_expire_in_all_replicas() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let keys: Vec<String> = (0..3).map(|store| cluster.key(store, "hash")).collect();
    let mut client = cluster.client(0);
    for key in &keys {
        client.call(["HSETEX", key, "PXAT", "4102444800000", "FIELDS", "2", "a", "1", "b", "2"]);
        client.call(["HPERSIST", key, "FIELDS", "1", "b"]);
        client.call(["HSETEX", key, "PX", "20", "FIELDS", "1", "gone", "3"]);
        wait_until("it expires", || client.call(["HLEN", key]) == Value::Integer(2));
    }
    for at in 0..3 {
        cluster.stores[at].kill();
        goes_on(&cluster);
        for key in &keys {
            let times = cluster.client(0).call(["HPEXPIRETIME", key, "FIELDS", "3", "a", "b", "gone"]);
            assert_eq!(notation::reply(&times), "[4102444800000, -1, -2]", "without {at}");
            assert_eq!(cluster.client(0).call(["HLEN", key]), Value::Integer(2));
        }
        cluster.stores[at].start();
        goes_on(&cluster);
    }
}

/// A leader whose clock is ahead finds a key expired, and another one leads whose clock is right.
#[test]
fn a_key_that_was_seen_to_have_expired_stays_away() {
    if !can_change_clocks() {
        return;
    }
    let mut cluster = TestCluster::start_replicated_with(3, 1, &[], true);
    let keys: Vec<String> = ["read", "asked"].iter().map(|name| cluster.key(0, name)).collect();
    let mut client = cluster.client(0);
    for key in &keys {
        client.call(["SET", key, "value", "PX", "600000"]);
    }
    let leader = cluster.leader("g0");
    cluster.stores[leader].set_clock(3600);
    wait_until("it is expired there", || client.call(["GET", &keys[0]]) == Value::Null);
    assert_eq!(
        client.call(["EVAL", "return redis.call('EXISTS', KEYS[1])", "1", &keys[1]]),
        Value::Integer(0)
    );
    cluster.stores[leader].kill();
    cluster.wait();
    for key in &keys {
        assert_eq!(cluster.client(0).call(["EXISTS", key]), Value::Integer(0));
    }
}

/// A key is set while the leader cannot reach the others: it alone has the change, and is lost with it.
#[test]
fn events_tell_of_nothing_that_a_lost_leader_takes_with_it() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let mut client = cluster.client(0);
    client.call(["CONFIG", "SET", "notify-keyspace-events", "K$"]);
    let mut subscriber = cluster.client(0);
    subscriber.run("PSUBSCRIBE __keyspace*");
    let keys: Vec<String> = ["lost", "kept"].iter().map(|name| cluster.key(0, name)).collect();
    let leader = cluster.leader("g0");
    (0..3).filter(|at| *at != leader).for_each(|at| cluster.wires[at].set_down(true));
    client.send(["SET", &keys[0], "value"]);
    // Long enough for the leader to execute it, and not long enough for it to notice.
    std::thread::sleep(Duration::from_millis(300));
    cluster.stores[leader].kill();
    cluster.wires.iter().for_each(Proxy::heal);
    cluster.wait();
    wait_until("another one is set", || {
        cluster.client(0).call(["SET", &keys[1], "value"]) == Value::Status("OK".into())
    });
    let event = notation::reply(&subscriber.read());
    assert!(event.contains("kept"), "{event}");
    assert_eq!(cluster.client(0).call(["EXISTS", &keys[0]]), Value::Integer(0));
}

/// A node whose disk has failed refuses changes until it has tried the disk again, while its group takes the records of
/// transactions already.
#[test]
fn no_half_of_a_transaction_is_done_where_a_disk_has_failed() {
    let cluster = TestCluster::start_replicated_with(3, 1, &[], true);
    let mut client = cluster.client(0);
    let at = cluster.leader("g1");
    let keys = [0, 1].map(|store| cluster.key(store, "account"));
    for key in &keys {
        assert_eq!(notation::reply(&client.call(["SET", key, "100"])), "+OK");
    }
    let mut other = cluster.client(0);
    // The reply to the second call is used, so that it is made with the first one, on both nodes.
    let transfer = "redis.call('DECRBY', KEYS[1], 2) return redis.call('INCRBY', KEYS[2], 2)";
    for (from, to) in [(&keys[0], &keys[1]), (&keys[1], &keys[0])] {
        cluster.stores[at].set_disk_full(true);
        other.send(["SAVE"]);
        wait_until("it refuses changes", || {
            cluster.stores[at].server().log().contains("changes are refused")
        });
        cluster.stores[at].set_disk_full(false);
        other.read();
        wait_until("it takes changes", || {
            for call in [&["MULTI"][..], &["DECRBY", from, "2"], &["INCRBY", to, "2"]] {
                client.call(call);
            }
            let replies = [client.call(["EXEC"]), client.eval(transfer, &[from, to], &[])];
            replies.iter().all(|reply| !matches!(reply, Value::Error(_)))
        });
        let value =
            |reply: Value| notation::reply(&reply).trim_matches('"').parse::<i64>().expect("a number");
        let sum: i64 = keys.iter().map(|key| value(client.call(["GET", key]))).sum();
        assert_eq!(sum, 200, "money was lost or made");
    }
}

/// The others do not hear that their connections are of no use any more, and connect again nevertheless.
#[cfg(debug_assertions)]
#[test]
fn connections_that_were_lost_silently_are_made_again() {
    let cluster = TestCluster::start_replicated_timed(3, "probe-ms=1000");
    let is_ready = || cluster.stores[1].readiness() == "ready\n";
    wait_until("it has caught up", is_ready);
    cluster.wires[1].forget();
    wait_until("it misses the others", || !is_ready());
    wait_until("it hears of the others again", is_ready);
}
