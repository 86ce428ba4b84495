//! Nodes in one process, whose disks are in memory: what becomes of their transactions when messages and flushes are late.

mod membership;
mod snapshots;

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use proto::store::v1 as wire;
use store_engine::Effects;
use store_engine::effect::EntryMeta;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::response::Body as Answer;

use super::host::Host;
use super::pending;
use super::records::{DECIDED, ENDED, PREPARED, named};
use super::registry::{Found, Roles};
use super::resolve;
use super::step;
use super::{PeerCredentials, Service};
use crate::client::Cluster;
use crate::journal::disk::{Disk, Open};
use crate::journal::testing::{MemoryDisk, Platter};
use crate::journal::{Durability, unix_ms};
use crate::lock::{LockRequest, Mode};
use crate::persist::Kept;
use crate::topology::SlotMap;
use crate::txn::LocalTransaction;

/// The transaction that most tests are about.
const TXN: u64 = 7;

/// A node that listens. Its address outlives it.
struct TestNode {
    platter: Arc<Platter>,
    host: Arc<Host>,
    listener: std::net::TcpListener,
    address: String,
    kept: Option<Kept>,
    clock: fn() -> u64,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl TestNode {
    async fn start(platter: Arc<Platter>, listener: std::net::TcpListener) -> TestNode {
        TestNode::start_with(platter, listener, unix_ms).await
    }

    /// The same with another clock.
    async fn start_with(
        platter: Arc<Platter>,
        listener: std::net::TcpListener,
        clock: fn() -> u64,
    ) -> TestNode {
        let held = platter.clone();
        let open: Open = Box::new(move || Ok(Box::new(MemoryDisk(held.clone())) as Box<dyn Disk>));
        let kept = Kept::open(open, 2, Durability::Periodic).expect("the disk is readable");
        let service = Service::new(
            kept.node.clone(),
            PeerCredentials::default(),
            clock,
            Box::new(|_| Ok(())),
            None,
            |_| (),
        );
        let service = service.await.expect("the records are readable");
        let address = listener.local_addr().expect("it is bound").to_string();
        let taken = listener.try_clone().expect("a descriptor is free");
        let taken = TcpListener::from_std(taken).expect("it does not block");
        let host = service.host.clone();
        let serving = tokio::spawn(service.serve(taken, std::future::pending()));
        TestNode { platter, host, listener, address, kept: Some(kept), clock, serving }
    }

    /// The machine crashes, and the node starts again with what is on its disk.
    async fn crash(self) -> TestNode {
        let platter = self.platter.crashed();
        self.replace(platter).await
    }

    /// The same with another disk.
    async fn replace(self, platter: Arc<Platter>) -> TestNode {
        let (listener, clock) = (self.listener.try_clone().expect("a descriptor is free"), self.clock);
        drop(self);
        TestNode::start_with(platter, listener, clock).await
    }

    /// Ends the node: connections to it are refused. Its disk and address are left.
    async fn stop(mut self) -> (Arc<Platter>, String) {
        self.serving.abort();
        // The task has a copy of the listener.
        let ended = (&mut self.serving).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it serves until it is stopped");
        (self.platter.crashed(), self.address.clone())
    }

    /// Starts a node that was stopped.
    async fn start_again((platter, address): (Arc<Platter>, String)) -> TestNode {
        // A connection of another program may have been given the port meanwhile.
        let deadline = Instant::now() + Duration::from_secs(60);
        let listener = loop {
            match std::net::TcpListener::bind(&address) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                    sleep(Duration::from_millis(1)).await;
                }
                bound => break bound.expect("its port is free"),
            }
        };
        listener.set_nonblocking(true).expect("a socket may not block");
        TestNode::start(platter, listener).await
    }

    async fn decide(&self, commit: bool) -> Answer {
        resolve::decide(self.host.clone(), wire::Decide { txn: TXN, commit }).await
    }

    /// Prepares a transaction that sets a key.
    async fn prepare(&self, number: u64, coordinator: &TestNode, siblings: &[&TestNode]) {
        let request = LockRequest { db: 0, key: (*b"key").into(), mode: Mode::Exclusive };
        let mut txn = LocalTransaction::begin(&self.host.node, vec![request]).await;
        let mut changes = Effects::default();
        changes.put_string(0, b"key", b"value", EntryMeta::default());
        txn.apply(changes.as_bytes(), unix_ms()).expect("the key is locked");
        assert!(matches!(self.host.registry.take(number, 1, true), Found::New));
        let roles = Roles {
            coordinator: coordinator.address.clone(),
            identity: coordinator.host.membership.identity(),
            siblings: siblings.iter().map(|sibling| sibling.address.clone()).collect(),
        };
        let prepared = pending::prepare(&self.host, number, txn, roles, None);
        prepared.await.expect("it can be prepared");
    }

    /// A transaction is being committed here: a node that asks for its outcome waits.
    fn begin_commit(&self, number: u64) {
        assert!(matches!(self.host.registry.take(number, 1, true), Found::New));
        assert!(self.host.registry.finishes(number));
    }

    /// It is committed for this participant.
    fn end_commit(&self, number: u64, participant: &TestNode) {
        self.host.node.put_record(&named(DECIDED, number), participant.address.as_bytes());
        self.host.registry.finished(number);
    }

    async fn flush(&self) {
        let journal = self.host.node.journal().expect("it has a disk");
        assert!(journal.flush().await.is_ok());
    }

    fn has(&self, prefix: &[u8], number: u64) -> bool {
        !self.host.node.records(&named(prefix, number)).is_empty()
    }

    fn has_key(&self) -> bool {
        self.host.node.usage().keys[0] == 1
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.serving.abort();
        self.host.sessions.end();
        self.platter.hold(false);
        if let Some(kept) = self.kept.take() {
            let closed = kept.close(true);
            assert!(closed.is_ok(), "the writer ends");
        }
    }
}

/// Nodes of a cluster.
async fn cluster<const COUNT: usize>() -> [TestNode; COUNT] {
    cluster_with([unix_ms; COUNT]).await
}

/// The same with these clocks.
async fn cluster_with<const COUNT: usize>(clocks: [fn() -> u64; COUNT]) -> [TestNode; COUNT] {
    let mut nodes = Vec::new();
    for clock in clocks {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a socket may not block");
        nodes.push(TestNode::start_with(Arc::default(), listener, clock).await);
    }
    let names: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    let map = SlotMap::even(&names).expect("good names").founded();
    for (at, node) in nodes.iter().enumerate() {
        let taken = node.host.membership.take(&node.host.node, map.clone(), at);
        assert!(taken.is_ok(), "an empty node takes any place");
    }
    nodes.try_into().unwrap_or_else(|_| unreachable!("there are as many as were started"))
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not happen in time: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Does what a task does before it waits.
fn begin<F: Future + ?Sized>(task: &mut Pin<Box<F>>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending(), "it has to wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_without_a_coordinator_is_not_prepared() {
    let [node] = cluster().await;
    let begin = wire::Begin { everything: true, wait: true, ..wire::Begin::default() };
    let mut request = wire::Step { txn: TXN, begin: Some(begin), ..wire::Step::default() };
    request.set_finish(wire::step::Finish::Prepare);
    let answer = step::step(node.host.clone(), 1, Arc::default(), request).await;
    assert!(matches!(answer, Answer::Refusal(refused) if refused.code() == Code::Invalid));
    node.prepare(TXN, &node, &[]).await;
    assert!(node.has(PREPARED, TXN), "neither its number nor its locks are taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_kept_until_its_participant_has_it_on_disk() {
    let [coordinator, participant] = cluster().await;
    participant.prepare(TXN, &coordinator, &[]).await;
    coordinator.begin_commit(TXN);
    let mut first = Box::pin(resolve::resolve(participant.host.clone(), TXN));
    let mut second = Box::pin(resolve::resolve(participant.host.clone(), TXN));
    begin(&mut first);
    begin(&mut second);
    participant.platter.hold(true);
    coordinator.end_commit(TXN, &participant);
    // Both hear that it is committed. One of them waits for the flush.
    let other: Pin<Box<dyn Future<Output = ()>>> = tokio::select! {
        () = &mut first => second,
        () = &mut second => first,
    };
    assert!(
        coordinator.has(DECIDED, TXN),
        "the decision is forgotten before it is on the participant's disk"
    );
    participant.platter.hold(false);
    other.await;
    until("the decision is acknowledged", || !coordinator.has(DECIDED, TXN)).await;
    let participant = participant.crash().await;
    assert!(participant.has_key());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_comes_too_late_is_certain_to_have_done_nothing() {
    let [node] = cluster().await;
    assert!(matches!(node.host.registry.take(TXN, 1, true), Found::New));
    assert!(!pending::outcome(&node.host, TXN).await, "a participant asked first");
    let txn = LocalTransaction::begin(&node.host.node, Vec::new()).await;
    let late = pending::commit(&node.host, TXN, txn, &["other".to_owned()]).await;
    assert_eq!(late.expect_err("it is refused").code(), Code::Invalid);
    assert!(!node.has(DECIDED, TXN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_is_not_forgotten_because_others_follow() {
    let [node] = cluster().await;
    node.host.registry.finished(TXN);
    (0..100_000).for_each(|other| node.host.registry.finished(1000 + other));
    assert!(pending::outcome(&node.host, TXN).await, "it is said that nothing was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_is_acknowledged_outlives_a_crash() {
    let [coordinator, participant] = cluster().await;
    coordinator.begin_commit(TXN);
    coordinator.end_commit(TXN, &participant);
    coordinator.flush().await;
    let coordinator = coordinator.crash().await;
    pending::forget_decision(&coordinator.host, TXN, &participant.address);
    coordinator.flush().await;
    let coordinator = coordinator.crash().await;
    assert!(pending::outcome(&coordinator.host, TXN).await, "it is said that nothing was done");
    assert_eq!(pending::decisions(&coordinator.host), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_follows_another_one_if_the_coordinator_has_lost_its_data() {
    let [coordinator, one, other] = cluster().await;
    one.prepare(TXN, &coordinator, &[&other]).await;
    other.prepare(TXN, &coordinator, &[&one]).await;
    coordinator.end_commit(TXN, &one);
    resolve::resolve(one.host.clone(), TXN).await;
    assert!(one.has_key() && one.has(ENDED, TXN));
    // Another directory, which is accepted.
    let coordinator = coordinator.replace(Arc::default()).await;
    let one = one.crash().await;
    resolve::resolve(other.host.clone(), TXN).await;
    assert!(other.has_key(), "half of the transaction is rolled back");
    assert!(!pending::outcome(&coordinator.host, TXN).await);
    until("no participant needs the record", || !one.has(ENDED, TXN) && !other.has(ENDED, TXN)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_without_its_data_decides_nothing() {
    let [coordinator, participant] = cluster().await;
    participant.prepare(TXN, &coordinator, &[]).await;
    coordinator.end_commit(TXN, &participant);
    let _coordinator = coordinator.replace(Arc::default()).await;
    let participant = participant.crash().await;
    let is_in_doubt = || participant.host.registry.in_doubt_since.borrow().contains_key(&TXN);
    until("it is in doubt or ended", || is_in_doubt() || !participant.has(PREPARED, TXN)).await;
    assert!(is_in_doubt() && participant.has(PREPARED, TXN), "it is rolled back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_reaches_participants_that_are_not_in_doubt_yet_and_the_first_one_counts() {
    let [coordinator, one, other] = cluster().await;
    one.prepare(TXN, &coordinator, &[&other]).await;
    other.prepare(TXN, &coordinator, &[&one]).await;
    coordinator.stop().await;
    let answer = one.decide(true).await;
    assert!(matches!(answer, Answer::Done(_)), "the decision is ignored: {answer:?}");
    assert!(one.has_key());
    // A second operator, who has not heard of the first one.
    let answer = other.decide(false).await;
    let is_refused = matches!(&answer, Answer::Refusal(refusal) if refusal.code() == Code::Contradiction);
    assert!(is_refused && other.has_key(), "half of the transaction is rolled back: {answer:?}");
    let answers = [one.decide(true).await, other.decide(true).await];
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Done(_))), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_names_the_participants_that_it_does_not_reach() {
    let [coordinator, one, other] = cluster().await;
    one.prepare(TXN, &coordinator, &[&other]).await;
    other.prepare(TXN, &coordinator, &[&one]).await;
    let map = one.host.membership.taken().expect("it has a place").map;
    coordinator.stop().await;
    let other = other.stop().await;
    let gateway = Cluster::of(SlotMap::clone(&map), Arc::default(), PeerCredentials::default());
    for link in gateway.links() {
        // Two of them are down.
        drop(link.connected().await);
    }
    let decided = gateway.decide(TXN, true).await.expect("there is no contradiction");
    assert_eq!(decided.nodes, std::slice::from_ref(&one.address));
    let missed: Vec<&String> = decided.missed.iter().map(|(node, _)| node).collect();
    assert_eq!(missed, [&other.1]);
    // It finds out by itself.
    let other = TestNode::start_again(other).await;
    until("it is committed", || other.has_key()).await;
}
