//! Which node belongs to which cluster, what gateways know of that, and how far clocks may be apart.

use super::*;
use crate::client::{DistributedTransaction, MAX_CLOCK_DIFFERENCE};
use crate::server::membership::renew_identity;
use crate::server::records::IDENTITY;
use crate::topology::Identity;

fn gateway(map: SlotMap) -> Arc<Cluster> {
    Cluster::of(map, Arc::default(), PeerCredentials::default())
}

/// The map that a gateway derives from its configuration.
fn guess(nodes: &[&TestNode]) -> SlotMap {
    let names: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    SlotMap::even(&names).expect("good names")
}

async fn alone() -> TestNode {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("a socket may not block");
    TestNode::start(Arc::default(), listener).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_nodes_found_a_cluster_once_most_of_them_are_there() {
    let (first, second, third) = (alone().await, alone().await, alone().await);
    let nodes = [&first, &second, &third];
    let guess = guess(&nodes);
    let third = third.stop().await;
    let cluster = gateway(guess);
    let is_refused = |node: usize| {
        cluster
            .link(node)
            .is_up()
            .is_err_and(|reason| reason.to_string().contains("waits until 2 of the other nodes"))
    };
    until("both wait for the third", || is_refused(0) && is_refused(1)).await;
    until("one vote was counted", || {
        cluster.link(0).is_up().is_err_and(|reason| reason.to_string().contains("(1 have)"))
    })
    .await;
    assert!(first.host.membership.taken().is_none());
    let third = TestNode::start_again(third).await;
    until("all are reached", || cluster.links().iter().all(|link| link.is_up().is_ok())).await;
    for node in [&first, &second, &third] {
        assert!(node.host.membership.taken().is_some_and(|taken| !taken.map.is_guess()));
    }
}

/// It may lack decisions: participants that ask for one see by its number that it is not the coordinator that they know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_recovered_cluster_gets_another_number_once() {
    let [first, _second] = cluster().await;
    let before = first.host.membership.identity();
    let kept = |node: &TestNode| node.host.node.records(IDENTITY)[0].1.clone();
    renew_identity(&first.host.node, 9, 1 << 40);
    let renewed = kept(&first);
    renew_identity(&first.host.node, 9, 2 << 40);
    assert_eq!(kept(&first), renewed, "it has one of this recovery");
    first.flush().await;
    let first = first.crash().await;
    let (node, membership) = (&first.host.node, &first.host.membership);
    let identity = || membership.taken().expect("it has its place").map.identities()[0];
    assert_eq!(identity().id, before);
    membership.accept_renewed(node).expect("it has its place");
    assert_eq!(identity(), Identity { id: membership.identity(), version: 1 });
    assert!(membership.identity() != before && membership.identity().to_le_bytes() == *renewed);
    membership.accept_renewed(node).expect("it is accepted");
    assert_eq!(identity().version, 1);
    renew_identity(node, 10, 3 << 40);
    assert_ne!(kept(&first), renewed, "another recovery");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_does_not_serve_a_gateway_that_knows_nothing() {
    let [first, second] = cluster().await;
    let (guess, names) = (guess(&[&first, &second]), [first.address.clone(), second.address.clone()]);
    let before = gateway(first.host.membership.taken().expect("it has its place").map.as_ref().clone());
    let knows = |node: &TestNode| {
        let map = node.host.membership.taken().map(|taken| taken.map);
        map.is_some_and(|map| map.identities().iter().all(|identity| identity.id != 0))
    };
    until("each knows the directory of the other", || knows(&first) && knows(&second)).await;
    drop(before);
    second.flush().await;
    let second = second.stop().await;
    let first = first.replace(Arc::default()).await;
    let cluster = gateway(guess);
    until("it waits for the other", || {
        cluster
            .link(0)
            .is_up()
            .is_err_and(|reason| reason.to_string().contains("waits until 1 of the other nodes"))
    })
    .await;
    let second = TestNode::start_again(second).await;
    until("it is known that its data is lost", || {
        let lost = format!("this node does not have the data of {}", names[0]);
        cluster.link(0).is_up().is_err_and(|reason| reason.to_string().contains(&lost))
    })
    .await;
    until("the other one serves", || cluster.link(1).is_up().is_ok()).await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_learns_from_a_node_what_it_missed_whatever_the_epoch() {
    let [first, second, third] = cluster().await;
    let map = first.host.membership.taken().expect("it has its place").map;
    let cluster = gateway(SlotMap::clone(&map));
    until("all are reached", || cluster.links().iter().all(|link| link.is_up().is_ok())).await;
    let behind = |node: &TestNode| {
        let map = node.host.membership.taken().expect("it has its place").map;
        node.host.sessions.behind(map.digest())
    };
    until("the gateway knows the maps of all", || [&first, &second, &third].map(behind) == [0; 3]).await;
    // Two nodes give slots away at the same time. The gateway learns of two moves of the first, and so has a later epoch than the
    // second.
    let moved =
        |slots: &[u16], to| slots.iter().fold(SlotMap::clone(&map), |map, slot| map.moved(&[*slot], to));
    let (of_first, of_second) = (moved(&[1, 2], 2), moved(&[8000], 0));
    assert!(of_first.epoch() > of_second.epoch());
    let changes = (&mut Effects::default(), &mut Default::default());
    second.host.membership.change(&second.host.node, changes, &of_second);
    cluster.learn(&of_first.to_wire()).expect("it is of this cluster");
    assert_eq!(behind(&second), 1, "the gateway does not know it yet");
    until("the gateway knows it", || behind(&second) == 0).await;
    assert_eq!((cluster.map().owner(8000), cluster.map().owner(1)), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_clocks_differ_take_part_in_no_transaction_together() {
    fn ahead() -> u64 {
        unix_ms() + 10_000
    }
    let [first, second, third] = cluster_with([unix_ms, ahead, unix_ms]).await;
    let map = first.host.membership.taken().expect("it has its place").map;
    let cluster = gateway(SlotMap::clone(&map));
    until("the clocks are known", || cluster.links().iter().all(|link| link.clock().is_some())).await;
    let key = |node| {
        let names = (0..).map(|number| format!("key:{number}"));
        let key = names.into_iter().find(|name| map.owner_of(name.as_bytes()) == node);
        key.expect("one of many").into_bytes().into_boxed_slice()
    };
    let begin = async |nodes: &[usize]| {
        let lock = |node: &usize| LockRequest { db: 0, key: key(*node), mode: Mode::Exclusive };
        let requests = nodes.iter().map(lock).collect();
        DistributedTransaction::new(&cluster, requests, false, None, Vec::new()).begin().await
    };
    let refused = format!("{:?}", begin(&[0, 1]).await);
    let reason = format!("the clocks of the nodes {} and {} differ by ", first.address, second.address);
    assert!(refused.contains(&format!("TRYAGAIN nothing was done: {reason}")), "{refused}");
    assert!(begin(&[1]).await.is_ok(), "alone it is consistent");
    assert!(begin(&[0, 2]).await.is_ok());
    let refused = cluster.move_some(0, (0, 0), 1).await.expect_err("it is refused");
    assert!(refused.why.to_string().contains(&reason), "{}", refused.why);
    let offset = cluster.members()[1].clock.expect("it is known").ahead_ms;
    let allowed = MAX_CLOCK_DIFFERENCE.as_millis() as u64;
    assert!(offset.abs_diff(10_000) <= allowed, "{offset}");
    drop(third);
}
