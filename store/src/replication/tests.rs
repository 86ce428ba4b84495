//! Three processes in one, with data and wires in memory: what the leader has acknowledged is there whichever
//! process fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store_engine::{Args, Protocol, Reply, command};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use consensus::{Follower, MemberChange};

use super::{
    Copied, Driver, Fetched, Group, GroupId, GroupSettings, Leadership, LogDisk, ReplicaHandle, Transport,
    position_of,
};
use crate::call::ParsedCall;
use crate::journal::testing::{MemoryDisk, Platter, TempDir};
use crate::journal::{CopyPiece, Disk, Open, Reads, unix_ms};
use crate::node::Node;

const GROUP: GroupId = GroupId(0);
const VOTERS: [u64; 3] = [1, 2, 3];
/// As many processes as a test may have.
const MOST: u64 = 4;
/// No test waits longer.
const LONG: Duration = Duration::from_secs(60);

/// The wires between the processes.
#[derive(Default)]
struct Wires {
    drivers: Mutex<BTreeMap<u64, Arc<Driver>>>,
    /// Pairs between which nothing comes through.
    cut: Mutex<BTreeSet<(u64, u64)>>,
}

impl Transport for Wires {
    fn send(&self, group: GroupId, from: u64, to: u64, message: Bytes) {
        let driver = self.drivers.lock().get(&to).cloned();
        if let Some(driver) = driver.filter(|_| !self.cut.lock().contains(&(from, to))) {
            driver.receive(group, message);
        }
    }
}

/// The replicas of the processes that run.
type Handles = Mutex<BTreeMap<u64, ReplicaHandle>>;

/// Copies the data of the leader to a disk.
async fn fetch(leading: Arc<Leading>, handles: Arc<Handles>, data: Arc<Platter>) -> Result<Copied, String> {
    let Some((id, node)) = leading.borrow().clone() else { return Err("no leader".to_owned()) };
    let log = handles.lock()[&id].log.clone();
    let mut pieces = node.journal().expect("it has one").copy();
    drop(node);
    let copy = Arc::<Platter>::default();
    let mut disk = MemoryDisk(copy.clone());
    while let Some(piece) = pieces.recv().await {
        match piece {
            CopyPiece::Changes(ops) => disk.apply(0, &ops).expect("it is in memory"),
            CopyPiece::End(record) => {
                disk.apply(record, &[]).and_then(|()| disk.flush()).expect("it is in memory");
                data.replace(&copy);
                return Ok(position_of(record, &log));
            }
        }
    }
    Err("the leader has ended".to_owned())
}

/// The node that leads at present, if there is one, and the number of its process.
type Leading = watch::Sender<Option<(u64, Arc<Node>)>>;

struct Process {
    id: u64,
    log: TempDir,
    data: Arc<Platter>,
    stop: watch::Sender<bool>,
    running: Option<JoinHandle<()>>,
}

struct Cluster {
    wires: Arc<Wires>,
    leading: Arc<Leading>,
    handles: Arc<Handles>,
    /// Who serves the group does so no more, although it may still lead.
    gives_up: Arc<Notify>,
    processes: Vec<Process>,
    reads: Reads,
    number: AtomicU64,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::start_reading(Reads::Lease)
    }

    fn start_reading(reads: Reads) -> Cluster {
        let leading = Arc::new(watch::Sender::new(None));
        let process = |id| Process {
            id,
            log: TempDir::new("log"),
            data: Arc::default(),
            stop: watch::Sender::new(false),
            running: None,
        };
        let mut cluster = Cluster {
            wires: Arc::default(),
            leading,
            handles: Arc::default(),
            gives_up: Arc::default(),
            processes: (1..=MOST).map(process).collect(),
            reads,
            number: AtomicU64::new(0),
        };
        (0..3).for_each(|at| cluster.start_process(at));
        cluster
    }

    fn start_process(&mut self, at: usize) {
        let Process { id, log, data, stop, running } = &mut self.processes[at];
        let warn = |text: &str| println!("{text}");
        let disk = LogDisk::open(&log.0).expect("it is whole");
        let driver = Arc::new(Driver::start(disk, self.wires.clone(), warn).expect("it starts"));
        self.wires.drivers.lock().insert(*id, driver.clone());
        let voters = if VOTERS.contains(id) { &VOTERS[..] } else { &[] };
        let replica = driver.add(GROUP, *id, voters).expect("its log is whole");
        self.handles.lock().insert(*id, replica.clone());
        *stop = watch::Sender::new(false);
        let (data, to) = (data.clone(), data.clone());
        let (leading, handles) = (self.leading.clone(), self.handles.clone());
        let fetch =
            Arc::new(move || -> Fetched { Box::pin(fetch(leading.clone(), handles.clone(), to.clone())) });
        let open = Arc::new(move || {
            let data = data.clone();
            Box::new(move || Ok(Box::new(MemoryDisk(data.clone())) as Box<dyn Disk>)) as Open
        });
        let settings =
            GroupSettings { open, opened: Arc::new(|_| ()), fetch, shards: 3, reads: self.reads, warn };
        let group = Group::new(settings, replica, stop.subscribe());
        let (leading, gives_up, id) = (self.leading.clone(), self.gives_up.clone(), *id);
        *running = Some(tokio::spawn(async move {
            let lead = |node: Arc<Node>, mut leadership: Leadership| {
                let (leading, gives_up) = (leading.clone(), gives_up.clone());
                async move {
                    leading.send_replace(Some((id, node)));
                    tokio::select! {
                        _ = leadership.lost() => {}
                        () = gives_up.notified() => {}
                    }
                    leading.send_if_modified(|held| {
                        let mine = held.as_ref().is_some_and(|(leader, _)| *leader == id);
                        mine && held.take().is_some()
                    });
                }
            };
            if let Err(error) = group.run(lead).await {
                panic!("replica {id}: {error}");
            }
        }));
    }

    /// Ends a process as a loss of power does: what was not flushed is lost.
    async fn kill(&mut self, at: usize) {
        let Process { id, data, stop, running, .. } = &mut self.processes[at];
        let driver = self.wires.drivers.lock().remove(id);
        // What the log has not flushed is in the memory of its owner only.
        *data = data.crashed();
        let _ = stop.send(true);
        // Its last owner waits for the thread.
        tokio::task::spawn_blocking(move || drop(driver)).await.expect("it ends");
        let running = running.take().expect("it runs");
        timeout(LONG, running).await.expect("it ends").expect("it does not panic");
    }

    /// The process and the node that lead, once one does that is not `but`.
    async fn leader(&self, but: Option<u64>) -> (u64, Arc<Node>) {
        let mut leading = self.leading.subscribe();
        let other = |held: &Option<(u64, Arc<Node>)>| held.as_ref().is_some_and(|(id, _)| Some(*id) != but);
        let found = timeout(LONG, leading.wait_for(other)).await;
        let found = found.expect("one leads").expect("it is there").clone();
        found.expect("that was waited for")
    }

    /// Counts in the group; the new value once it is acknowledged.
    async fn count(&self) -> Option<u64> {
        let node = self.leading.borrow().clone()?.1;
        let reply = execute(&node, &["INCR", "counter"]);
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        execute(&node, &["RPUSH", "list", &number.to_string()]);
        execute(&node, &["HSET", &format!("hash{}", number % 7), &number.to_string(), "value"]);
        let journal = node.journal().expect("it has one");
        let settled = timeout(LONG, journal.settle(true)).await.expect("it is decided");
        drop(node);
        settled.ok()?;
        reply.trim_start_matches(':').trim_end().parse().ok()
    }

    /// Waits until all have the same data, which each of them has applied for itself.
    async fn is_equal(&mut self) {
        let (_, node) = self.leader(None).await;
        let expected = contents(&node);
        drop(node);
        let have_applied = async {
            let newest = || self.handles.lock().values().map(|replica| replica.log.committed_index()).max();
            let running = || self.processes.iter().filter(|process| process.running.is_some());
            let applied = |process: &Process| self.handles.lock()[&process.id].applied();
            while running().any(|process| Some(applied(process)) < newest()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, have_applied).await.expect("all catch up");
        for process in &self.processes {
            process.stop.send_replace(true);
        }
        for at in 0..self.processes.len() {
            let Some(running) = self.processes[at].running.take() else { continue };
            timeout(LONG, running).await.expect("it ends").expect("it does not panic");
            let open: Open = {
                let data = self.processes[at].data.clone();
                Box::new(move || Ok(Box::new(MemoryDisk(data.clone())) as Box<dyn Disk>))
            };
            let kept = crate::persist::Kept::open(open, 2, crate::journal::Durability::Periodic)
                .expect("it is whole");
            assert_eq!(contents(&kept.node), expected, "replica {}", self.processes[at].id);
            kept.close(true).expect("nothing was changed");
        }
    }
}

fn execute(node: &Arc<Node>, line: &[&str]) -> String {
    let items: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
    let args = Args::new(&items);
    let row = command::lookup(&args.name().to_ascii_lowercase()).expect("a command");
    let call = ParsedCall::new(row, args).expect("arguments").of_server();
    let mut out = Reply::new(Protocol::Resp2);
    node.try_execute(&call.at(0, unix_ms()), &mut 1, &mut out).expect("no key is locked");
    String::from_utf8_lossy(&out.buf).into_owned()
}

/// All keys with what DUMP says of them.
fn contents(node: &Arc<Node>) -> BTreeMap<String, String> {
    let keys = ["counter", "list", "hash0", "hash1", "hash2", "hash3", "hash4", "hash5", "hash6"];
    let long = ["text1", "text2", "text3", "torn1", "torn2", "torn3"];
    let shown = |key: &str| match key.as_bytes()[0] {
        b'c' => execute(node, &["GET", key]),
        b'l' => execute(node, &["LRANGE", key, "0", "-1"]),
        b't' => execute(node, &["STRLEN", key]),
        _ => {
            let mut fields: Vec<String> = execute(node, &["HKEYS", key]).lines().map(str::to_owned).collect();
            fields.sort_unstable();
            fields.concat()
        }
    };
    keys.iter().chain(&long).map(|key| (key.to_string(), shown(key))).collect()
}

/// A leader that is cut off answers until its lease is over, or, if it is to ask, not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_to_ask_answers_nothing_without_a_majority() {
    for reads in [Reads::Lease, Reads::Quorum] {
        let cluster = Cluster::start_reading(reads);
        let (leader, node) = cluster.leader(None).await;
        let journal = node.journal().expect("it has one");
        timeout(LONG, journal.settle(false)).await.expect("it is answered").expect("it leads");
        let others = VOTERS.into_iter().filter(|id| *id != leader);
        cluster.wires.cut.lock().extend(others.flat_map(|id| [(id, leader), (leader, id)]));
        // Answers that are on their way still count.
        sleep(Duration::from_millis(50)).await;
        let settled = timeout(LONG, journal.settle(false)).await.expect("it is decided");
        assert_eq!(settled.is_ok(), reads == Reads::Lease);
        cluster.wires.cut.lock().clear();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_outlives_the_leader() {
    let mut cluster = Cluster::start();
    let mut acknowledged = 0;
    for round in 0..4 {
        let (leader, node) = cluster.leader(None).await;
        drop(node);
        for _ in 0..50 {
            if let Some(counted) = cluster.count().await {
                assert!(counted > acknowledged, "{counted} after {acknowledged}, in round {round}");
                acknowledged = counted;
            }
        }
        let at = leader as usize - 1;
        cluster.kill(at).await;
        let (next, node) = cluster.leader(Some(leader)).await;
        assert_ne!(next, leader);
        let found: u64 =
            execute(&node, &["GET", "counter"]).lines().nth(1).expect("a bulk").parse().expect("a number");
        assert!(found >= acknowledged, "{found} after {acknowledged}, in round {round}");
        drop(node);
        cluster.start_process(at);
    }
    assert!(acknowledged >= 100, "{acknowledged}");
    // The last one to come has to hear of it all.
    sleep(Duration::from_millis(500)).await;
    cluster.is_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_acknowledges_nothing_and_reads_nothing() {
    let cluster = Cluster::start();
    let (leader, node) = cluster.leader(None).await;
    cluster.count().await.expect("all are there");
    let others = VOTERS.into_iter().filter(|id| *id != leader);
    cluster.wires.cut.lock().extend(others.flat_map(|other| [(leader, other), (other, leader)]));
    execute(&node, &["INCR", "counter"]);
    let lost = timeout(LONG, node.journal().expect("it has one").settle(true)).await.expect("it notices");
    assert_eq!(lost.expect_err("it is alone").cause.to_string(), crate::journal::group::LEADERSHIP_LOST);
    drop(node);
    let (next, node) = cluster.leader(Some(leader)).await;
    assert_ne!(next, leader);
    assert_eq!(execute(&node, &["GET", "counter"]), "$1\r\n1\r\n", "what the others never had is not there");
    drop(node);
    assert_eq!(cluster.count().await, Some(2));
    // It comes back, and has what the others have, not what it had alone.
    cluster.wires.cut.lock().clear();
    assert_eq!(cluster.count().await, Some(3));
    let mut cluster = cluster;
    sleep(Duration::from_millis(1500)).await;
    cluster.is_equal().await;
}

/// A value that takes several entries of the log is there whole, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_any_length_outlives_the_leader() {
    let mut cluster = Cluster::start();
    for round in 1..=3 {
        let (leader, node) = cluster.leader(None).await;
        let length = round * 3_000_000;
        execute(&node, &["SET", &format!("text{round}"), &"x".repeat(length)]);
        let settled = timeout(LONG, node.journal().expect("it has one").settle(true)).await;
        settled.expect("it is decided").expect("all are there");
        // One that was not acknowledged may be lost.
        execute(&node, &["SET", &format!("torn{round}"), &"x".repeat(length)]);
        drop(node);
        cluster.kill(leader as usize - 1).await;
        let (_, node) = cluster.leader(Some(leader)).await;
        let found = |key: &str| execute(&node, &["STRLEN", &format!("{key}{round}")]);
        assert_eq!(found("text"), format!(":{length}\r\n"));
        let torn = found("torn");
        assert!([0, length].map(|length| format!(":{length}\r\n")).contains(&torn), "{torn}");
        drop(node);
        cluster.start_process(leader as usize - 1);
    }
    cluster.is_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_serve_stays_in_its_group() {
    let mut cluster = Cluster::start();
    let (leader, node) = cluster.leader(None).await;
    cluster.count().await.expect("all are there");
    let others = VOTERS.into_iter().filter(|id| *id != leader);
    cluster.wires.cut.lock().extend(others.flat_map(|other| [(leader, other), (other, leader)]));
    execute(&node, &["INCR", "counter"]);
    drop(node);
    cluster.gives_up.notify_waiters();
    let (next, node) = cluster.leader(Some(leader)).await;
    assert_ne!(next, leader);
    drop(node);
    cluster.wires.cut.lock().clear();
    assert_eq!(cluster.count().await, Some(2));
    cluster.is_equal().await;
}

/// Leaders are cut off while others count. What the one that is cut off still answers is not older than what was acknowledged
/// before it was asked. `MOONSHARD_CUTS` says how often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_stale_while_a_leader_is_cut_off() {
    let cuts = std::env::var("MOONSHARD_CUTS").map_or(2, |cuts| cuts.parse().expect("a number"));
    let cluster = Cluster::start();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut reads = 0;
    for _ in 0..cuts {
        let (leader, node) = cluster.leader(None).await;
        let others = VOTERS.into_iter().filter(|id| *id != leader);
        cluster.wires.cut.lock().extend(others.flat_map(|id| [(id, leader), (leader, id)]));
        let known = acknowledged.clone();
        let reading = tokio::spawn(async move {
            let journal = node.journal().expect("it has one");
            for answered in 0.. {
                let before = known.load(Ordering::SeqCst);
                let reply = execute(&node, &["GET", "counter"]);
                if journal.settle(false).await.is_err() {
                    return answered;
                }
                let found = reply.lines().nth(1).map_or(0, |count| count.parse().expect("a number"));
                assert!(found >= before, "{found} was read after {before} was acknowledged");
                sleep(Duration::from_micros(200)).await;
            }
            unreachable!("it is cut off")
        });
        timeout(LONG, cluster.leader(Some(leader))).await.expect("another one leads");
        let mut counted = 0;
        while counted < 20 {
            if let Some(count) = cluster.count().await {
                acknowledged.fetch_max(count, Ordering::SeqCst);
                counted += 1;
            }
        }
        reads += timeout(LONG, reading).await.expect("it notices").expect("no read is stale");
        cluster.wires.cut.lock().clear();
    }
    assert!(reads > 0, "none was answered");
    println!("{reads} reads of {cuts} leaders that were cut off");
}

impl Cluster {
    /// Changes the members until the leader says that the replica is, or is not, a voter.
    async fn change(&self, change: MemberChange, id: u64, is_voter: bool) {
        let changed = async {
            loop {
                let (leader, _) = self.leader(None).await;
                let replica = self.handles.lock()[&leader].clone();
                if replica.log.members().voters.contains(&id) == is_voter {
                    return;
                }
                let has_caught_up = |follower: &Follower| follower.id == id && follower.has_caught_up;
                if change != MemberChange::Promote(id) || replica.followers().iter().any(has_caught_up) {
                    replica.change_members(change);
                } else if !replica.log.members().contain(id) {
                    replica.change_members(MemberChange::AddLearner(id));
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, changed).await.expect("it is changed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_joins_gets_a_copy_and_may_lead() {
    let mut cluster = Cluster::start();
    cluster.leader(None).await;
    for _ in 0..200 {
        cluster.count().await;
    }
    cluster.start_process(3);
    cluster.change(MemberChange::Promote(4), 4, true).await;
    // Of the first three one is left: without the new one there is no majority.
    let (leader, _) = cluster.leader(None).await;
    let gone = VOTERS.iter().position(|id| *id != leader).expect("there are three");
    cluster.kill(gone).await;
    cluster.change(MemberChange::Remove(VOTERS[gone]), VOTERS[gone], false).await;
    cluster.kill(leader as usize - 1).await;
    cluster.leader(Some(leader)).await;
    let counted = timeout(LONG, async {
        loop {
            if let Some(counted) = cluster.count().await {
                return counted;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(counted.await.expect("two of three go on") > 200);
    cluster.is_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_data_is_gone_gets_a_copy() {
    let mut cluster = Cluster::start();
    let (leader, node) = cluster.leader(None).await;
    drop(node);
    for _ in 0..50 {
        cluster.count().await;
    }
    // The log of the leader is shortened once all have all on disk.
    let shortened = async {
        while cluster.handles.lock()[&leader].log.before().index < 40 {
            cluster.count().await;
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, shortened).await.expect("it is shortened");
    // What is acknowledged later is flushed with it.
    cluster.count().await;
    let at = leader as usize - 1;
    cluster.kill(at).await;
    cluster.processes[at].data = Arc::default();
    cluster.start_process(at);
    cluster.leader(Some(leader)).await;
    for _ in 0..50 {
        cluster.count().await;
    }
    cluster.is_equal().await;
}
