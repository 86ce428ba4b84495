//! What `/v1/topology` says of a cluster with replicas.

use serde_json::{Value, json};
use tests::cluster::{Member, TestCluster};
use tests::openapi::Description;
use tests::{Http, TestServer, wait_until};

/// A gateway over these store nodes that serves HTTP.
fn gateway(cluster: &TestCluster) -> TestServer {
    let stores: Vec<String> = cluster.wires.iter().map(|wire| wire.address().to_string()).collect();
    TestServer::start(&["--http", "127.0.0.1:0", "--stores", &stores.join(",")])
}

/// What it says, which is as the API's own description has it.
fn topology(http: &mut Http) -> Value {
    let description = Description::new(http.get("/v1/openapi.json").json());
    let answer = http.get("/v1/topology");
    let faults = description.faults("GET", "/v1/topology", &answer);
    assert!(answer.status == 200 && faults.is_empty(), "{}: {faults:?}", answer.status);
    answer.json()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn named<'a>(topology: &'a Value, name: &str) -> &'a Value {
    list(topology, "groups").iter().find(|group| group["name"] == *name).expect("it is one of the groups")
}

/// Whether every group has a leader, and all replicas of all processes what it has.
fn is_whole(topology: &Value) -> bool {
    let replicas = |group: &Value| list(group, "replicas").iter().all(|replica| replica["lag_entries"] == 0);
    let groups = list(topology, "groups");
    !groups.is_empty()
        && groups.iter().all(|group| group["leader"].is_string() && replicas(group))
        && list(topology, "processes").iter().all(|process| process["answers"] == true)
}

#[test]
fn groups_are_shown_with_their_leaders_and_processes_that_do_not_answer() {
    // The third machine does not say where it is.
    let zone_of = |id: usize| ["east", "west", ""][id - 1];
    let flags = [&["--zone", "east"][..], &["--zone", "west"], &[]];
    let stores = flags.map(|flags| Member::store(Some("sync"), flags));
    let mut cluster = TestCluster::of_stores(stores.into(), "3");
    let addresses: Vec<String> = cluster.wires.iter().map(|wire| wire.address().to_string()).collect();
    let gateway = gateway(&cluster);
    let mut http = gateway.http();
    wait_until("the zones are known", || {
        let shown = topology(&mut http);
        let zones: Vec<&Value> = list(&shown, "processes").iter().map(|process| &process["zone"]).collect();
        zones == [1, 2, 3].map(zone_of)
    });
    wait_until("all groups have leaders and all replicas have caught up", || is_whole(&topology(&mut http)));
    wait_until("each group is led by the first of its list", || {
        let groups = topology(&mut http);
        (0..3).all(|at| named(&groups, &format!("g{at}"))["leader"] == addresses[at])
    });

    let shown = topology(&mut http);
    assert_eq!((&shown["mode"], &shown["replicas"]), (&json!("distributed"), &json!(3)));
    let processes: Vec<Value> = (1..=3)
        .map(|id| {
            let address = &addresses[id - 1];
            json!({
                "id": id, "address": address, "zone": zone_of(id), "state": "active", "answers": true, "error": null,
            })
        })
        .collect();
    assert_eq!(shown["processes"], json!(processes));
    let names: Vec<&Value> = list(&shown, "groups").iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["g0", "g1", "g2", "meta"]);
    let group = named(&shown, "g1");
    assert_eq!((&group["slots"], &group["changing"]), (&json!("5462-10922"), &json!(false)));
    assert!(group["term"].as_u64().is_some_and(|term| term > 0), "{group}");
    let replica = |id: usize, state| {
        json!({
            "process": id, "address": addresses[id - 1], "state": state, "leads": state == "leader",
            "lag_entries": 0, "answers": true, "leaves": false,
        })
    };
    let replicas = [replica(2, "leader"), replica(3, "follower"), replica(1, "follower")];
    assert_eq!(group["replicas"], json!(replicas));
    assert_eq!(named(&shown, "meta")["slots"], "");

    cluster.stores[1].kill();
    let mut shown = Value::Null;
    wait_until("its groups have other leaders", || {
        shown = topology(&mut http);
        let leader = &named(&shown, "g1")["leader"];
        leader.is_string() && *leader != addresses[1]
    });
    let process = &shown["processes"][1];
    assert_eq!((&process["answers"], &process["state"]), (&json!(false), &json!("active")));
    assert!(process["error"].is_string(), "{process}");
    let lost = json!({
        "process": 2, "address": addresses[1], "state": "missing", "leads": false,
        "lag_entries": null, "answers": false, "leaves": false,
    });
    assert_eq!(named(&shown, "g1")["replicas"][0], lost);

    cluster.stores[1].start();
    wait_until("it has caught up", || is_whole(&topology(&mut http)));
    // A process that stands still accepts connections, and says nothing.
    cluster.stores[2].freeze(true);
    wait_until("it is not waited for", || topology(&mut http)["processes"][2]["answers"] == false);
    cluster.stores[2].freeze(false);
    wait_until("it answers again", || is_whole(&topology(&mut http)));
}

#[test]
fn store_nodes_without_replicas_have_no_groups() {
    let cluster = TestCluster::start(2, 0, None);
    let gateway = gateway(&cluster);
    let mut http = gateway.http();
    wait_until("both are reached", || {
        list(&topology(&mut http), "members").iter().all(|member| member["reachable"] == true)
    });
    let shown = topology(&mut http);
    assert_eq!(list(&shown, "members").len(), 2);
    assert_eq!([&shown["replicas"], &shown["processes"], &shown["groups"]], [&Value::Null; 3]);
}
