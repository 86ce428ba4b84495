//! Processes join and leave a cluster of replicated groups, or lose their disks, while it is in use.

use tests::cluster::{Member, TestCluster};
use tests::counting::{counted, goes_on};
use tests::temp_dir::TempDir;
use tests::{Value, wait_until};

/// What a change of members may cost single requests: those on their way when a group gets another leader.
const MAY_FAIL: [&str; 3] = ["UNKNOWN", "CLUSTERDOWN", "TRYAGAIN"];

pub fn done(cluster: &TestCluster, arguments: &[&str], says: &str) {
    let (code, text) = cluster.topology(arguments);
    assert!(code == Some(0) && text.contains(says), "{arguments:?}: {code:?}: {text}");
}

pub fn refused(cluster: &TestCluster, arguments: &[&str], why: &str) {
    let (code, text) = cluster.topology(arguments);
    assert!(code == Some(1) && text.contains(why), "{arguments:?}: {code:?}: {text}");
}

/// Which groups have data in a directory.
pub fn data_of(store: &Member) -> Vec<String> {
    let entries = std::fs::read_dir(store.data_dir().join("replicas")).expect("it is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("it is read").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .filter(|name| name != "log")
        .collect();
    names.sort();
    names
}

#[test]
fn replicas_are_added_and_processes_come_and_go_under_load() {
    let mut cluster = TestCluster::start_founded(3, 1, "1");
    let first = cluster.wires[0].address().to_string();
    let told = counted(&mut cluster, "grow", |cluster| {
        goes_on(cluster);
        done(cluster, &["replicas", "3"], "each group has 3 replicas");
        goes_on(cluster);
        // Each group has two others now.
        cluster.stores[1].kill();
        goes_on(cluster);
        cluster.stores[1].start();
        let fourth = cluster.add_store().to_string();
        done(cluster, &["join", &fourth], "has joined the cluster");
        assert!(!data_of(&cluster.stores[3]).is_empty(), "it has its share");
        goes_on(cluster);
        done(cluster, &["leave", &first], "has left the cluster and can be stopped");
        wait_until("its data is deleted", || data_of(&cluster.stores[0]).is_empty());
        cluster.stores[0].stop();
        goes_on(cluster);
        cluster.stores[2].kill();
        goes_on(cluster);
        cluster.stores[2].start();
        goes_on(cluster);
    });
    told.failed_only_with(&MAY_FAIL);
    // It does not come back.
    let flags =
        ["store", "--grpc", "127.0.0.1:0", "--data-dir", &cluster.stores[0].data_dir().to_string_lossy()];
    let output = tests::process::command(&flags).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("has no process 1, or not any more"), "{text}");
    assert_eq!(cluster.groups()["processes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_process_that_is_lost_is_replaced() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let lost = cluster.wires[2].address().to_string();
    let told = counted(&mut cluster, "replace", |cluster| {
        goes_on(cluster);
        cluster.stores[2].kill();
        goes_on(cluster);
        let new = cluster.add_store().to_string();
        done(cluster, &["replace", &lost, &new], &format!("{new} has replaced {lost}, which can be stopped"));
        assert_eq!(data_of(&cluster.stores[3]), ["g0", "g1", "g2", "meta"]);
        goes_on(cluster);
        cluster.stores[1].kill();
        goes_on(cluster);
        cluster.stores[1].start();
        goes_on(cluster);
    });
    told.failed_only_with(&MAY_FAIL);
    // It comes back, hears that it was replaced, and serves no requests.
    cluster.stores[2].start();
    wait_until("it hears of it", || {
        cluster.stores[2].server().log().contains("this process does not belong to its cluster any more")
    });
    wait_until("its data is deleted", || data_of(&cluster.stores[2]).is_empty());
    goes_on(&cluster);
}

#[test]
fn a_process_that_has_lost_its_disk_is_made_whole() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    let told = counted(&mut cluster, "disk", |cluster| {
        goes_on(cluster);
        cluster.stores[1].kill();
        goes_on(cluster);
        std::fs::remove_dir_all(cluster.stores[1].data_dir()).expect("it is there");
        cluster.stores[1].start();
        wait_until("it has all replicas again", || is_ready(&cluster.stores[1]));
        let groups = cluster.groups();
        let mut states = groups["processes"].as_array().expect("a list").iter();
        assert!(states.all(|process| process["state"] == "active" && process["id"] != 2), "{groups}");
        assert_eq!(data_of(&cluster.stores[1]), ["g0", "g1", "g2", "meta"]);
        cluster.stores[0].kill();
        goes_on(cluster);
        cluster.stores[0].start();
        goes_on(cluster);
    });
    told.failed_only_with(&MAY_FAIL);
}

/// What a process says that is not ready, when it says this.
fn waits_for(store: &Member, what: &str) -> String {
    let mut said = String::new();
    wait_until(what, || {
        said = store.readiness();
        said.starts_with("not ready: ") && said.contains(what)
    });
    said
}

fn is_ready(store: &Member) -> bool {
    store.readiness() == "ready\n"
}

#[test]
fn a_process_is_ready_when_its_replicas_have_caught_up() {
    let mut cluster = TestCluster::start_replicated(3, 1);
    for store in &cluster.stores {
        wait_until("all have caught up", || is_ready(store));
    }
    let dir = TempDir::made("caught-up");
    let go_on = |name: &str| std::fs::write(dir.path().join(name), "").expect("it can be written");

    // It lacks entries.
    cluster.stores[1].kill();
    goes_on(&cluster);
    cluster.stores[1].start_failing(&format!("applying=until:{}/apply", dir.text()));
    waits_for(&cluster.stores[1], "entries of the log");
    go_on("apply");
    wait_until("it has applied them", || is_ready(&cluster.stores[1]));

    // It lacks its data.
    cluster.stores[1].kill();
    std::fs::remove_dir_all(cluster.stores[1].data_dir()).expect("it is there");
    cluster.stores[1].start_failing(&format!("copying=until:{}/copy", dir.text()));
    let said = waits_for(&cluster.stores[1], "needs a copy of the data");
    assert!(said.starts_with("not ready: the replica of group "), "{said}");
    let asked = tests::process::command(&["health", "--http", &cluster.stores[1].probes().to_string()])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && text.contains("503 ") && text.contains("not ready: "), "{text}");
    go_on("copy");
    wait_until("it has its copies", || is_ready(&cluster.stores[1]));
    assert_eq!(data_of(&cluster.stores[1]), ["g0", "g1", "g2", "meta"]);

    // It hears of no leader.
    cluster.stores[0].kill();
    cluster.stores[2].kill();
    waits_for(&cluster.stores[1], "knows no leader");
    cluster.stores[0].start();
    cluster.stores[2].start();
    for store in &cluster.stores {
        wait_until("all have caught up again", || is_ready(store));
    }

    // It belongs to no cluster yet; one that belongs to it joins only once.
    let fourth = cluster.add_store().to_string();
    wait_until("no cluster takes it for one of its processes", || is_ready(&cluster.stores[3]));
    for _ in 0..2 {
        done(&cluster, &["join", "--if-missing", &fourth], "has joined the cluster");
    }
    wait_until("it has its share", || is_ready(&cluster.stores[3]));
    assert_eq!(cluster.groups()["processes"].as_array().map(Vec::len), Some(4));
}

#[test]
fn another_process_leads_when_it_is_to() {
    let cluster = TestCluster::start_replicated(3, 1);
    let addresses: Vec<String> = cluster.wires.iter().map(|wire| wire.address().to_string()).collect();
    for at in [1, 2, 0] {
        let address = &addresses[at];
        done(&cluster, &["transfer", "g0", address], "leads the group g0");
        wait_until("it leads", || cluster.leader("g0") == at);
        let set = cluster.client(0).call(["SET", &cluster.key(0, "key"), address]);
        assert_eq!(set, Value::Status("OK".into()));
    }
}

#[test]
fn a_cluster_without_replicas_gets_some() {
    let mut cluster = TestCluster::start(3, 1, Some("periodic"));
    let addresses: Vec<String> = cluster.wires.iter().map(|wire| wire.address().to_string()).collect();
    let mut client = cluster.client(0);
    let keys: Vec<String> = (0..3).map(|store| cluster.key(store, "old")).collect();
    for key in &keys {
        assert_eq!(client.call(["SET", key, key]), Value::Status("OK".into()));
    }
    let sha = client.run("SCRIPT LOAD 'return 7'").text().map(<[u8]>::to_vec).expect("its name");
    cluster.stores[1].stop();
    let (code, text) = cluster.topology(&["adopt"]);
    assert!(code == Some(1) && text.contains(&format!("{}: ", addresses[1])), "one is missing: {text}");
    cluster.stores[1].start();
    cluster.wait();
    // The gateway goes on. What it is answered meanwhile is left to the clients.
    counted(&mut cluster, "adopt", |cluster| {
        goes_on(cluster);
        for _ in 0..2 {
            done(cluster, &["adopt"], "3 nodes are groups with one replica");
        }
        goes_on(cluster);
        done(cluster, &["replicas", "3"], "each group has 3 replicas");
        goes_on(cluster);
        cluster.stores[1].kill();
        goes_on(cluster);
        cluster.stores[1].start();
        goes_on(cluster);
    });
    assert_eq!(data_of(&cluster.stores[1]), ["g0", "g1", "g2", "meta"]);
    // The groups have the names of the nodes, and slots still move between them.
    done(&cluster, &["transfer", &addresses[0], &addresses[2]], "leads the group");
    done(&cluster, &["move", "--slots", "0-99", "--to", &addresses[1]], "100 of 100 slots moved");
    let mut client = cluster.client(0);
    for key in &keys {
        assert_eq!(client.call(["GET", key]), Value::Bulk(key.clone().into_bytes()));
    }
    assert_eq!(client.call([&b"EVALSHA"[..], &sha, b"0"]), Value::Integer(7));
    cluster.stores.iter_mut().for_each(Member::kill);
    cluster.stores.iter_mut().for_each(Member::start);
    cluster.wait();
    assert_eq!(cluster.client(0).call(["GET", &keys[0]]), Value::Bulk(keys[0].clone().into_bytes()));
}

#[test]
fn the_replicas_of_a_group_are_in_different_zones() {
    let zones = ["a", "a", "b", "c"];
    let store = |zone: &&str| Member::store(Some("sync"), &["--zone", zone]);
    let cluster = TestCluster::of_stores(zones.iter().map(store).collect(), "3");
    wait_until("each zone has a replica of each group", || {
        let groups = cluster.groups();
        let all = groups["groups"].as_array().expect("a list");
        all.iter().all(|group| {
            let replicas = group["replicas"].as_array().expect("a list");
            let on: Vec<u64> = replicas.iter().filter_map(|replica| replica["process"].as_u64()).collect();
            on.len() == 3 && on.contains(&3) && on.contains(&4)
        })
    });
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let cluster = TestCluster::start_replicated(3, 1);
    let own = cluster.wires[0].address().to_string();
    refused(&cluster, &["adopt"], "these processes belong to a cluster of replicated groups already");
    refused(&cluster, &["replicas", "2"], "2 replicas protect from no more failures than 1; use 1, 3 or 5");
    refused(
        &cluster,
        &["replicas", "5"],
        "5 replicas need 5 processes on machines of their own, there are 3",
    );
    refused(&cluster, &["leave", &own], "3 replicas need 3 processes on machines of their own, there are 2");
    refused(&cluster, &["leave", "127.0.0.1:1"], "127.0.0.1:1 is not a process of this cluster");
    refused(&cluster, &["join", &own], "belongs to the cluster already");
    refused(
        &cluster,
        &["join", "127.0.0.1:1"],
        "127.0.0.1:1 does not join: cannot connect: Connection refused",
    );
    refused(
        &cluster,
        &["transfer", "g9", &own],
        "g9 is not a group of this cluster; its groups are g0, g1, g2, meta",
    );
    // A process that has data.
    let mut other = Member::store(Some("sync"), &[]);
    other.start();
    let mut gateway = Member::gateway(&[other.address()], &[]);
    gateway.start();
    assert_eq!(gateway.client().run("SET key value"), Value::Status("OK".into()));
    let other = other.address().to_string();
    refused(&cluster, &["join", &other], "this process has data, or belongs to a cluster");
    refused(&cluster, &["replace", &own, &other], "this process has data, or belongs to a cluster");
    wait_until("all are as they were", || {
        let processes = cluster.groups()["processes"].clone();
        let is_active = |process: &serde_json::Value| process["state"] == "active";
        processes.as_array().is_some_and(|all| all.len() == 3 && all.iter().all(is_active))
    });
    assert_eq!(gateway.client().run("GET key"), Value::Bulk(b"value".to_vec()));
}
