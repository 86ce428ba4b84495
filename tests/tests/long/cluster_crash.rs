//! Store nodes and gateways are killed, stopped and cut off while clients work on keys of all nodes; what the clients
//! saw and what is there afterwards has to be explained by whole transactions.
//!
//! `MOONSHARD_CLUSTER_SEED` starts elsewhere, `MOONSHARD_CLUSTER_SECONDS` goes on for longer than the bounded run of
//! `make test`, and has more kinds of faults: disks that stall or are full, clocks that jump, slots that move. With replicas
//! faults overlap then. A run of under three minutes has those kinds that there is time for. A seed gives the same faults, but
//! not the same moments.

mod players;

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::sleep;
use std::time::{Duration, Instant};

use players::{
    Keys, LOOK, Outcome, Over, Player, STORES, WEALTH, World, assert_one_mark, assert_wealth, fill_in,
    outcome, plain,
};
use store_engine::slot;
use tests::cluster::{Member, can_change_clocks};
use tests::generate::Chance;
use tests::history::{self, Ending, Op, Transaction};
use tests::process::command;
use tests::proxy::Proxy;
use tests::temp_dir::TempDir;
use tests::{TestCluster, Value, notation, permits, wait_until};

const GATEWAYS: usize = 2;
/// Clients of each kind.
const PLAYERS: usize = 2;
/// Scripts that wait for others end like those of users do.
const FLAGS: &[&str] = &["--script-timeout-ms", "5000"];
/// Faults while the clients play, then all is looked at.
const FAULTS: usize = 5;
/// What each kind of fault happens in.
const ALL_KINDS: Duration = Duration::from_secs(180);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    StoreKilled,
    /// A wire that is stalled looks the same, so in a bounded run only for a short time.
    StoreStopped,
    /// It ends by itself at a place of a transaction.
    StoreDoomed,
    GatewayKilled,
    GatewayStopped,
    GatewayStoppedForLong,
    GatewayDoomed,
    Cut,
    Stalled,
    Slow,
    Down,
    /// A disk takes nothing for a while.
    DiskStalled,
    DiskFull,
    /// It starts again with a copy of its directory.
    Restored,
    ClockJumps,
    /// Slots move while a store is killed.
    MovedAndKilled,
    /// Two commands move slots at once.
    MovedTwice,
    /// All stores are killed at once.
    AllKilled,
    /// A store is killed, and its data deleted.
    DataDeleted,
}

const ALL: [Fault; 11] = [
    Fault::StoreDoomed,
    Fault::Cut,
    Fault::GatewayKilled,
    Fault::StoreStopped,
    Fault::Slow,
    Fault::GatewayDoomed,
    Fault::StoreKilled,
    Fault::GatewayStoppedForLong,
    Fault::Stalled,
    Fault::Down,
    Fault::GatewayStopped,
];

/// Those of a long run only.
const MORE: [Fault; 6] = [
    Fault::DiskStalled,
    Fault::DiskFull,
    Fault::Restored,
    Fault::ClockJumps,
    Fault::MovedAndKilled,
    Fault::MovedTwice,
];

/// With replicas.
const REPLICATED: [Fault; 5] =
    [Fault::StoreKilled, Fault::DataDeleted, Fault::StoreStopped, Fault::Down, Fault::AllKilled];

/// Those of a long run with replicas only.
const REPLICATED_MORE: [Fault; 12] = [
    Fault::StoreDoomed,
    Fault::Cut,
    Fault::GatewayKilled,
    Fault::Slow,
    Fault::GatewayDoomed,
    Fault::GatewayStoppedForLong,
    Fault::Stalled,
    Fault::DiskStalled,
    Fault::DiskFull,
    Fault::ClockJumps,
    Fault::MovedAndKilled,
    Fault::MovedTwice,
];

/// What the stores promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// What was acknowledged is on disk.
    Sync,
    /// It will be.
    Periodic,
    /// It is on the disks of a majority.
    Replicas,
}

/// Places of the one that decides, which is the first, and of others.
const DECIDES: [&str; 3] = ["commit:before-record", "commit:before-flush", "commit:after-record"];
const FOLLOWS: [&str; 4] =
    ["prepare:before-record", "prepare:after-record", "decided:before", "decided:after"];

/// A run of faults.
struct Story {
    cluster: TestCluster,
    promise: Promise,
    /// When a long run ends.
    until: Option<Instant>,
    /// Whether a long run goes on until each kind of fault has happened.
    has_all_kinds: bool,
    chance: Chance,
    /// Of the keys of the round.
    slots: Vec<u16>,
    faults: BTreeMap<Fault, u64>,
    counts: BTreeMap<&'static str, u64>,
    transactions: usize,
}

impl Story {
    fn shuffled(&mut self, faults: &[Fault]) -> Vec<Fault> {
        let mut left = faults.to_vec();
        (0..faults.len()).map(|_| left.swap_remove(self.chance.below(left.len()))).collect()
    }

    fn pause(&mut self, least: u64, most: u64) {
        sleep(Duration::from_millis(least + self.chance.below((most - least) as usize) as u64));
    }

    /// Lets something go wrong, and heals it, but for the wires. Whether it came to that.
    fn hurt(&mut self, fault: Fault) -> bool {
        let (store, gateway) = (self.chance.below(STORES), self.chance.below(GATEWAYS));
        match fault {
            Fault::StoreKilled => {
                self.cluster.stores[store].kill();
                self.pause(0, 1500);
                self.cluster.stores[store].start();
            }
            Fault::GatewayKilled => {
                self.cluster.gateways[gateway].kill();
                self.pause(0, 500);
                self.cluster.gateways[gateway].start();
            }
            Fault::StoreDoomed => {
                let place = if store == 0 { self.chance.pick(&DECIDES) } else { self.chance.pick(&FOLLOWS) };
                let turn = 1 + self.chance.below(10);
                self.cluster.stores[store].kill();
                self.cluster.stores[store].start_failing(&format!("{place}@{turn}=abort"));
                let ended = self.ends(|cluster| cluster.stores[store].is_running());
                self.pause(0, 1500);
                // One that never came to the place is not to come there later.
                if self.cluster.stores[store].is_running() {
                    self.cluster.stores[store].kill();
                }
                self.cluster.stores[store].start();
                return ended;
            }
            Fault::GatewayDoomed => {
                let turn = 1 + self.chance.below(10);
                self.cluster.gateways[gateway].kill();
                self.cluster.gateways[gateway].start_failing(&format!("work:prepared@{turn}=abort"));
                let ended = self.ends(|cluster| cluster.gateways[gateway].is_running());
                if self.cluster.gateways[gateway].is_running() {
                    self.cluster.gateways[gateway].kill();
                }
                self.cluster.gateways[gateway].start();
                return ended;
            }
            Fault::StoreStopped => {
                self.cluster.stores[store].freeze(true);
                let for_long = self.until.is_some() && self.chance.percent(50);
                self.stand_still(for_long);
                self.cluster.stores[store].freeze(false);
            }
            Fault::GatewayStopped | Fault::GatewayStoppedForLong => {
                self.cluster.gateways[gateway].freeze(true);
                self.stand_still(fault == Fault::GatewayStoppedForLong);
                self.cluster.gateways[gateway].freeze(false);
            }
            Fault::Cut => {
                for _ in 0..3 {
                    self.cluster.wires[store].cut();
                    self.pause(0, 200);
                }
            }
            Fault::Stalled => {
                self.cluster.wires[store].set_stalled(true);
                self.stand_still(true);
            }
            Fault::Slow => {
                let delay = 1 + self.chance.below(40) as u64;
                self.cluster.wires[store].set_delay(Duration::from_millis(delay));
                self.pause(300, 1500);
            }
            Fault::Down => {
                self.cluster.wires[store].set_down(true);
                self.pause(100, 1500);
            }
            Fault::AllKilled => {
                self.cluster.stores.iter_mut().for_each(Member::kill);
                self.cluster.stores.iter_mut().for_each(Member::start);
            }
            Fault::DataDeleted => {
                self.cluster.stores[store].kill();
                self.pause(0, 1500);
                std::fs::remove_dir_all(self.cluster.stores[store].data_dir()).expect("it is there");
                self.cluster.stores[store].start();
            }
            Fault::DiskStalled => {
                self.cluster.stores[store].set_disk_stalled(true);
                self.pause(100, 3000);
                self.cluster.stores[store].set_disk_stalled(false);
            }
            Fault::DiskFull => {
                self.cluster.stores[store].set_disk_full(true);
                self.pause(100, 3000);
                self.cluster.stores[store].set_disk_full(false);
            }
            Fault::Restored => {
                self.cluster.stores[store].kill();
                restore_copy(self.cluster.stores[store].dir.as_ref().expect("it keeps its data"));
                self.cluster.stores[store].start();
            }
            Fault::ClockJumps => {
                let seconds = self.chance.pick(&[-3600, -20, -2, 2, 20, 3600]);
                self.cluster.stores[store].set_clock(seconds);
                self.pause(1500, 4000);
                self.cluster.stores[store].set_clock(0);
            }
            Fault::MovedAndKilled => {
                let mut moving = self.begin_move();
                self.pause(0, 400);
                self.cluster.stores[store].kill();
                self.pause(0, 1500);
                self.cluster.stores[store].start();
                moving.wait().expect("it ends");
            }
            Fault::MovedTwice => {
                let moving = [self.begin_move(), self.begin_move()];
                for mut command in moving {
                    command.wait().expect("it ends");
                }
            }
        }
        true
    }

    /// In a long run with replicas a wire is bad while something else goes wrong.
    fn overlap(&mut self) {
        if self.promise != Promise::Replicas || self.until.is_none() {
            return;
        }
        let (store, delay) = (self.chance.below(STORES), 1 + self.chance.below(200) as u64);
        let wire = &self.cluster.wires[store];
        match self.chance.below(4) {
            0 => wire.set_stalled(true),
            1 => wire.set_down(true),
            2 => wire.set_delay(Duration::from_millis(delay)),
            _ => {}
        }
    }

    /// Begins to move slots around those of a key to any store.
    fn begin_move(&mut self) -> Child {
        let slot = usize::from(self.chance.pick(&self.slots));
        let first = slot.saturating_sub(self.chance.below(200));
        let range = format!("{first}-{}", slot + self.chance.below(16_384 - slot).min(200));
        let stores = self.cluster.wires[self.chance.below(STORES)].address().to_string();
        let to = self.cluster.wires[self.chance.below(STORES)].address().to_string();
        let mut command = command(&["topology", "--stores", &stores, "move", "--slots", &range, "--to", &to]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts")
    }

    /// The longest silence that is allowed is 5 seconds.
    fn stand_still(&mut self, for_long: bool) {
        match for_long {
            true if self.until.is_some() => self.pause(5_100, 8_000),
            true => self.pause(5_100, 5_500),
            false => self.pause(50, 1_500),
        }
    }

    /// Waits some time for a member to end by itself.
    fn ends(&mut self, is_running: impl Fn(&mut TestCluster) -> bool) -> bool {
        let started = Instant::now();
        while is_running(&mut self.cluster) {
            if started.elapsed() > Duration::from_secs(4) {
                return false;
            }
            sleep(Duration::from_millis(5));
        }
        true
    }

    fn round(&mut self, round: usize, faults: &[Fault]) {
        let keys = Keys::new(&self.cluster, round);
        self.slots = keys.all().map(|key| slot::slot(key.as_bytes())).collect();
        let mut first = self.cluster.client(0);
        for account in &keys.accounts {
            assert_eq!(notation::reply(&first.call(["SET", account, &WEALTH.to_string()])), "+OK");
        }
        // The beginning is not what a kill may take back.
        assert_eq!(notation::reply(&first.run("SAVE")), "+OK");
        let world = World {
            keys: &keys,
            gateways: self.cluster.gateways.iter().map(|gateway| gateway.address()).collect(),
            clock: AtomicU64::new(0),
            values: AtomicU64::new(0),
            over: AtomicBool::new(false),
            pause: if self.until.is_some() { Duration::ZERO } else { PAUSE },
        };
        let mut history = Vec::new();
        std::thread::scope(|scope| {
            let world = &world;
            let mut seeds: Vec<u64> = Vec::new();
            (0..4 * PLAYERS).for_each(|_| seeds.push(self.chance.below(usize::MAX) as u64));
            let mut player = || Player::new(world, seeds.pop().expect("one for each"));
            let mut others = Vec::new();
            let mut writers = Vec::new();
            for number in 0..PLAYERS {
                let [transfers, marks, looks, appends] = [player(), player(), player(), player()];
                others.push(scope.spawn(move || transfers.transfer()));
                others.push(scope.spawn(move || marks.mark()));
                others.push(scope.spawn(move || looks.look()));
                writers.push(scope.spawn(move || appends.append(number)));
            }
            let over = Over(world);
            for fault in faults {
                if self.until.is_some_and(|until| Instant::now() >= until) && !self.has_all_kinds {
                    break;
                }
                self.overlap();
                if self.hurt(*fault) {
                    *self.faults.entry(*fault).or_default() += 1;
                }
                self.cluster.wires.iter().for_each(Proxy::heal);
                self.is_healed(&keys);
            }
            drop(over);
            let mut count = |player: Player| {
                player
                    .counts
                    .into_iter()
                    .for_each(|(what, count)| *self.counts.entry(what).or_default() += count);
            };
            for player in others {
                count(player.join().expect("what was seen is whole"));
            }
            for writer in writers {
                let (player, played) = writer.join().expect("what was seen is whole");
                count(player);
                history.extend(played);
            }
        });
        self.look(&world, history);
    }

    /// Everything can be written again.
    fn is_healed(&mut self, keys: &Keys) {
        self.cluster.wait();
        if self.promise == Promise::Replicas {
            // Only a minority may be without its data at any time.
            wait_until("all replicas have caught up", || {
                self.cluster.stores.iter().all(|store| store.readiness() == "ready\n")
            });
        }
        let mut clients = [0, 1].map(|gateway| self.cluster.client(gateway));
        for (number, key) in keys.all().enumerate() {
            let client = &mut clients[number % GATEWAYS];
            wait_until("every key can be written", || {
                matches!(outcome(client.call(["PERSIST", key])), Outcome::Reply(_))
            });
        }
    }

    /// What is there when all is over.
    fn look(&mut self, world: &World, mut history: Vec<Transaction>) {
        let mut client = self.cluster.client(0);
        let strings = |keys: &[String]| keys.iter().map(String::clone).collect::<Vec<_>>();
        let marks = strings(&world.keys.marks);
        let accounts = strings(&world.keys.accounts);
        for (keys, check) in [(marks, assert_one_mark as fn(&Value)), (accounts, assert_wealth)] {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            // For a moment after a clock was set, transactions over its node are refused.
            let mut seen = Value::Null;
            wait_until("all can be read at once", || {
                seen = client.eval(LOOK, &keys, &[]);
                matches!(seen, Value::Array(_))
            });
            check(&seen);
        }
        for list in &world.keys.lists {
            let began = world.now();
            let mut ops = [Op::Read(list.clone(), Vec::new())];
            let reply = client.call(plain(&ops[0]));
            fill_in("plain", &mut ops, reply);
            let ended = world.now();
            let (name, ending) = ("the end".to_owned(), Ending::Committed);
            history.push(Transaction { name, ops: ops.to_vec(), ending, began, ended });
        }
        self.transactions += history.len();
        // A killed store may have forgotten the last that was told, unless it is to be on disk by then.
        if self.promise != Promise::Periodic
            && let Err(anomaly) = history::check(&history)
        {
            panic!("{anomaly}");
        }
    }
}

/// Puts a copy in the place of a directory.
fn restore_copy(dir: &TempDir) {
    let copy = dir.copy("restored");
    std::fs::remove_dir_all(dir.path()).expect("no process uses it");
    std::fs::rename(copy.path(), dir.path()).expect("its name is free");
}

/// Between two transactions of a player in a bounded run: other tests need the processors, too.
const PAUSE: Duration = Duration::from_millis(8);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn run_history(promise: Promise) {
    let seed = setting("MOONSHARD_CLUSTER_SEED").unwrap_or(1);
    println!("seed {seed}");
    let long = setting("MOONSHARD_CLUSTER_SECONDS").map(Duration::from_secs);
    let until = long.map(|long| Instant::now() + long);
    let has_all_kinds = long.is_none_or(|long| long >= ALL_KINDS);
    let (few, more) = match promise {
        Promise::Replicas => (&REPLICATED[..], &REPLICATED_MORE[..]),
        Promise::Sync | Promise::Periodic => (&ALL[..], &MORE[..]),
    };
    let mut kinds = few.to_vec();
    if until.is_some() {
        kinds.extend(more);
        kinds.retain(|fault| *fault != Fault::ClockJumps || can_change_clocks());
    }
    let start = |durability| match until {
        Some(_) => TestCluster::start_controlled(STORES, GATEWAYS, Some(durability), FLAGS),
        None => TestCluster::start_with(STORES, GATEWAYS, Some(durability), FLAGS),
    };
    let cluster = match promise {
        Promise::Sync => start("sync"),
        Promise::Periodic => start("periodic"),
        Promise::Replicas => TestCluster::start_replicated_with(STORES, GATEWAYS, FLAGS, until.is_some()),
    };
    let mut story = Story {
        cluster,
        promise,
        until,
        has_all_kinds,
        chance: Chance::new(seed),
        slots: Vec::new(),
        faults: BTreeMap::new(),
        counts: BTreeMap::new(),
        transactions: 0,
    };
    let mut next = kinds.clone();
    if until.is_some() {
        next = story.shuffled(&kinds);
    }
    for round in 0.. {
        let faults: Vec<Fault> = next.drain(..next.len().min(FAULTS)).collect();
        story.round(round, &faults);
        if !has_all_kinds && until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        if next.is_empty() {
            // A doomed one may be spared; then it is tried again.
            next = kinds.iter().copied().filter(|fault| !story.faults.contains_key(fault)).collect();
            if until.is_none_or(|until| Instant::now() >= until) {
                if next.is_empty() || round > 20 {
                    break;
                }
                continue;
            }
            next = story.shuffled(&kinds);
        }
    }
    println!("{promise:?}: {:?}, {:?}, {} in histories", story.faults, story.counts, story.transactions);
    for fault in kinds {
        assert!(!has_all_kinds || story.faults.contains_key(&fault), "{fault:?} never happened");
    }
    // With replicas gateways try again by themselves.
    let outcomes = if promise == Promise::Replicas { 1 } else { 3 };
    for outcome in &["done", "nothing", "unknown"][..outcomes] {
        assert!(story.counts.contains_key(*outcome), "no client ever saw: {outcome}");
    }
}

#[test]
fn with_sync_everything_told_is_kept() {
    let _permit = permits::disk();
    run_history(Promise::Sync);
}

#[test]
fn with_periodic_nothing_is_there_by_half() {
    let _permit = permits::disk();
    run_history(Promise::Periodic);
}

#[test]
fn with_replicas_everything_told_is_kept_whichever_disk_is_lost() {
    let _permit = permits::disk();
    run_history(Promise::Replicas);
}
