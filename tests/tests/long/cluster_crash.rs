//! Store nodes and gateways are killed, stopped and cut off while clients work on keys of all nodes; what the clients
//! saw and what is there afterwards has to be explained by whole transactions.
//!
//! `MOONSHARD_CLUSTER_SEED` starts elsewhere, `MOONSHARD_CLUSTER_SECONDS` goes on for longer than the bounded run of
//! `make test`, and has more kinds of faults: disks that stall or are full, clocks that jump, slots that move. A seed gives
//! the same faults, but not the same moments.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use store_engine::slot;
use tests::client::encode;
use tests::cluster::can_change_clocks;
use tests::generate::Chance;
use tests::history::{self, Ending, Op, Transaction};
use tests::process::command;
use tests::temp_dir::TempDir;
use tests::{Client, TestCluster, Value, notation, permits, wait_until};

const STORES: usize = 3;
const GATEWAYS: usize = 2;
/// Clients of each kind.
const PLAYERS: usize = 2;
/// Lists, accounts and marks of each store.
const EACH: usize = 2;
/// What each account has in the beginning.
const WEALTH: i64 = 1000;
/// Scripts that wait for others end like those of users do.
const FLAGS: &[&str] = &["--script-timeout-ms", "5000"];
/// Faults while the clients play, then all is looked at.
const FAULTS: usize = 5;

/// Moves money from the first account to the others.
const TRANSFER: &str = "for at = 2, #KEYS do
        redis.call('DECRBY', KEYS[1], ARGV[at])
        redis.call('INCRBY', KEYS[at], ARGV[at])
    end
    return {ok = 'done'}";
/// Writes the same everywhere.
const MARK: &str = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end return {ok = 'done'}";
/// Reads everything at one time.
const LOOK: &str =
    "local seen = {} for at, key in ipairs(KEYS) do seen[at] = redis.call('GET', key) end return seen";
/// Appends to lists and reads them.
const LISTS: &str = "local read = {}
    for at, key in ipairs(ARGV) do
        local list, value = string.match(key, '^(%S+) (%d+)$')
        if list then redis.call('RPUSH', list, value) else read[#read + 1] = redis.call('LRANGE', key, 0, -1) end
    end
    return read";

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

/// Places of the one that decides, which is the first, and of others.
const DECIDES: [&str; 3] = ["commit:before-record", "commit:before-flush", "commit:after-record"];
const FOLLOWS: [&str; 4] =
    ["prepare:before-record", "prepare:after-record", "decided:before", "decided:after"];

/// Names of keys on all stores.
struct Keys {
    accounts: Vec<String>,
    marks: Vec<String>,
    lists: Vec<String>,
}

impl Keys {
    fn new(cluster: &TestCluster, round: usize) -> Keys {
        let named = |what: &str| {
            let numbers = (0..EACH).flat_map(|number| (0..STORES).map(move |store| (store, number)));
            numbers.map(|(store, number)| cluster.key(store, &format!("{what}{round}:{number}"))).collect()
        };
        Keys { accounts: named("account"), marks: named("mark"), lists: named("list") }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.accounts.iter().chain(&self.marks).chain(&self.lists)
    }
}

/// What all players of a round share.
struct World<'a> {
    keys: &'a Keys,
    gateways: Vec<std::net::SocketAddr>,
    clock: AtomicU64,
    values: AtomicU64,
    over: AtomicBool,
}

impl World<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// Ends the players' game, also when the test fails.
struct Over<'a>(&'a World<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// What a client was told.
enum Outcome {
    Reply(Value),
    /// Nothing was done.
    Nothing,
    /// Nobody knows.
    Unknown,
}

/// A client that connects anew to any gateway when it is cut off.
struct Player<'a> {
    world: &'a World<'a>,
    chance: Chance,
    client: Option<Client>,
    counts: BTreeMap<&'static str, u64>,
}

impl<'a> Player<'a> {
    fn new(world: &'a World<'a>, seed: u64) -> Player<'a> {
        Player { world, chance: Chance::new(seed), client: None, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn is_over(&self) -> bool {
        self.world.over.load(Ordering::Relaxed)
    }

    /// Sends calls, of which the last one is answered by what they did.
    fn ask(&mut self, calls: &[Vec<String>]) -> Outcome {
        let outcome = self.try_ask(calls);
        match &outcome {
            Outcome::Reply(_) => self.count("done"),
            Outcome::Nothing => self.count("nothing"),
            Outcome::Unknown => self.count("unknown"),
        }
        outcome
    }

    fn try_ask(&mut self, calls: &[Vec<String>]) -> Outcome {
        // Not all stay with the gateway that lives longest.
        if self.client.is_none() || self.chance.percent(1) {
            let address = self.chance.pick(&self.world.gateways);
            self.client = Client::try_connect(address).ok();
        }
        let Some(client) = &mut self.client else {
            // It is not there at the moment.
            sleep(Duration::from_millis(5));
            return Outcome::Nothing;
        };
        let bytes: Vec<u8> = calls.iter().flat_map(encode).collect();
        let _ = client.send_raw(&bytes);
        let mut last = None;
        for _ in calls {
            last = client.try_read().ok().flatten();
        }
        let Some(reply) = last else {
            self.client = None;
            return Outcome::Unknown;
        };
        if matches!(reply, Value::Error(_)) {
            // Otherwise the fault is over before anything else happened.
            sleep(Duration::from_millis(2));
        }
        outcome(reply)
    }

    fn eval(&mut self, script: &str, keys: &[String], args: &[String]) -> Outcome {
        let head = ["EVAL".to_owned(), script.to_owned(), keys.len().to_string()];
        self.ask(&[head.into_iter().chain(keys.iter().cloned()).chain(args.iter().cloned()).collect()])
    }

    fn some(&mut self, from: &[String], most: usize) -> Vec<String> {
        let mut left = from.to_vec();
        let count = 2 + self.chance.below(most - 1);
        (0..count).map(|_| left.swap_remove(self.chance.below(left.len()))).collect()
    }

    fn transfer(mut self) -> Self {
        while !self.is_over() {
            let accounts = self.some(&self.world.keys.accounts, 4);
            let amounts: Vec<String> = accounts.iter().map(|_| self.chance.below(9).to_string()).collect();
            if self.chance.percent(60) {
                self.eval(TRANSFER, &accounts, &amounts);
            } else {
                let call = |words: [&str; 3]| words.map(str::to_owned).to_vec();
                let amount = &amounts[1];
                let calls = [
                    vec!["MULTI".to_owned()],
                    call(["DECRBY", &accounts[0], amount]),
                    call(["INCRBY", &accounts[1], amount]),
                    vec!["EXEC".to_owned()],
                ];
                self.ask(&calls);
            }
        }
        self
    }

    fn mark(mut self) -> Self {
        while !self.is_over() {
            let value = self.world.values.fetch_add(1, Ordering::Relaxed).to_string();
            let keys = &self.world.keys.marks;
            if self.chance.percent(30) {
                let all = keys.iter().flat_map(|key| [key.clone(), value.clone()]);
                self.ask(&[["MSET".to_owned()].into_iter().chain(all).collect()]);
            } else {
                self.eval(MARK, keys, &[value]);
            }
        }
        self
    }

    fn look(mut self) -> Self {
        while !self.is_over() {
            let keys = &self.world.keys.marks;
            let outcome = match self.chance.percent(30) {
                true => self.ask(&[["MGET".to_owned()].into_iter().chain(keys.iter().cloned()).collect()]),
                false => self.eval(LOOK, keys, &[]),
            };
            if let Outcome::Reply(reply) = outcome {
                assert_one_mark(&reply);
            }
            let accounts = &self.world.keys.accounts;
            if let Outcome::Reply(reply) = self.eval(LOOK, accounts, &[]) {
                assert_wealth(&reply);
            }
        }
        self
    }

    /// Appends to lists and reads them, in one of several ways.
    fn append(mut self, number: usize) -> (Self, Vec<Transaction>) {
        let mut played = Vec::new();
        while !self.is_over() {
            let mut ops: Vec<Op> = Vec::new();
            for _ in 0..1 + self.chance.below(4) {
                let list = self.world.keys.lists[self.chance.below(self.world.keys.lists.len())].clone();
                ops.push(match self.chance.percent(50) {
                    true => Op::Append(list, self.world.values.fetch_add(1, Ordering::Relaxed)),
                    false => Op::Read(list, Vec::new()),
                });
            }
            let began = self.world.now();
            let (kind, outcome) = match self.chance.below(4) {
                0 => {
                    ops.truncate(1);
                    ("plain", self.ask(&[plain(&ops[0])]))
                }
                1 => {
                    let calls = ops.iter().map(plain);
                    let all =
                        [vec!["MULTI".to_owned()]].into_iter().chain(calls).chain([vec!["EXEC".to_owned()]]);
                    ("EXEC", self.ask(&all.collect::<Vec<_>>()))
                }
                declared => {
                    let text = |op: &Op| match op {
                        Op::Append(key, value) => format!("{key} {value}"),
                        Op::Read(key, _) => key.clone(),
                    };
                    let args: Vec<String> = ops.iter().map(text).collect();
                    let key = |op: &Op| match op {
                        Op::Append(key, _) | Op::Read(key, _) => key.clone(),
                    };
                    let keys: Vec<String> =
                        if declared == 2 { ops.iter().map(key).collect() } else { Vec::new() };
                    ("script", self.eval(LISTS, &keys, &args))
                }
            };
            let ended = self.world.now();
            let ending = match outcome {
                Outcome::Reply(reply) => {
                    fill_in(kind, &mut ops, reply);
                    Ending::Committed
                }
                Outcome::Nothing => Ending::Undone,
                Outcome::Unknown => Ending::Unknown,
            };
            if ending != Ending::Committed {
                ops.retain(|op| matches!(op, Op::Append(..)));
            }
            let name = format!("client {number}, {kind}");
            played.push(Transaction { name, ops, ending, began, ended });
        }
        (self, played)
    }
}

fn outcome(reply: Value) -> Outcome {
    // Where a command of EXEC was lost all of it was.
    let text = match &reply {
        Value::Array(all) => all.iter().find(|value| matches!(value, Value::Error(_))).map(notation::reply),
        reply => Some(notation::reply(reply)),
    };
    match text.as_deref().unwrap_or_default() {
        text if text.starts_with("-CLUSTERDOWN ") || text.starts_with("-TRYAGAIN ") => Outcome::Nothing,
        text if text.starts_with("-EXECABORT ") => Outcome::Nothing,
        // It has waited so long for others.
        text if text.starts_with("-SCRIPTLIMIT time") => Outcome::Nothing,
        text if text.starts_with("-UNKNOWN ") => Outcome::Unknown,
        // The disk may have taken it nevertheless, or takes it later.
        text if text.starts_with("-MISCONF ") => Outcome::Unknown,
        text => {
            assert!(!text.starts_with('-'), "an error that no fault explains: {text}");
            Outcome::Reply(reply)
        }
    }
}

fn plain(op: &Op) -> Vec<String> {
    match op {
        Op::Append(key, value) => vec!["RPUSH".to_owned(), key.clone(), value.to_string()],
        Op::Read(key, _) => ["LRANGE", key, "0", "-1"].map(str::to_owned).to_vec(),
    }
}

fn number(value: &Value) -> u64 {
    let text = std::str::from_utf8(value.text().expect("a string")).expect("digits");
    text.parse().expect("a number")
}

/// Puts what was read where it was asked for.
fn fill_in(kind: &str, ops: &mut [Op], reply: Value) {
    let lists = match (kind, reply) {
        ("plain", reply) => vec![reply],
        ("EXEC", Value::Array(replies)) => {
            replies.into_iter().filter(|reply| matches!(reply, Value::Array(_))).collect()
        }
        (_, Value::Array(lists)) => lists,
        (_, reply) => panic!("{reply:?}"),
    };
    let mut lists = lists.into_iter();
    for op in ops {
        if let Op::Read(_, values) = op {
            let Some(Value::Array(list)) = lists.next() else { panic!("a list for each read") };
            *values = list.iter().map(number).collect();
        }
    }
}

fn assert_one_mark(reply: &Value) {
    let Value::Array(seen) = reply else { panic!("marks, not {reply:?}") };
    assert!(seen.iter().all(|value| *value == seen[0]), "a script is there by half: {seen:?}");
}

fn assert_wealth(reply: &Value) {
    let Value::Array(seen) = reply else { panic!("accounts, not {reply:?}") };
    let amount = |value: &Value| {
        let text = String::from_utf8_lossy(value.text().expect("a number")).into_owned();
        text.parse::<i64>().expect("a number")
    };
    let sum: i64 = seen.iter().map(amount).sum();
    assert_eq!(sum, WEALTH * seen.len() as i64, "money was lost or made: {seen:?}");
}

/// A run of faults.
struct Story {
    cluster: TestCluster,
    sync: bool,
    /// When a long run ends.
    until: Option<Instant>,
    chance: Chance,
    /// Of the keys of the round.
    slots: Vec<u16>,
    faults: BTreeMap<Fault, u64>,
    counts: BTreeMap<&'static str, u64>,
    transactions: usize,
}

impl Story {
    fn pause(&mut self, least: u64, most: u64) {
        sleep(Duration::from_millis(least + self.chance.below((most - least) as usize) as u64));
    }

    /// Lets something go wrong, and heals it. Whether it came to that.
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
        self.cluster.wires[store].heal();
        true
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
                if self.hurt(*fault) {
                    *self.faults.entry(*fault).or_default() += 1;
                }
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
            check(&client.eval(LOOK, &keys, &[]));
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
        if self.sync
            && let Err(anomaly) = history::check(&history)
        {
            panic!("{anomaly}");
        }
    }
}

/// Puts a copy in the place of a directory.
fn restore_copy(dir: &TempDir) {
    let copy = dir.copy("restored");
    std::fs::remove_dir_all(dir.path()).expect("nobody uses it");
    std::fs::rename(copy.path(), dir.path()).expect("its name is free");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn run_history(sync: bool) {
    let seed = setting("MOONSHARD_CLUSTER_SEED").unwrap_or(1);
    println!("seed {seed}");
    let until = setting("MOONSHARD_CLUSTER_SECONDS").map(|long| Instant::now() + Duration::from_secs(long));
    let durability = Some(if sync { "sync" } else { "periodic" });
    let mut kinds = ALL.to_vec();
    if until.is_some() {
        kinds.extend(MORE);
        kinds.retain(|fault| *fault != Fault::ClockJumps || can_change_clocks());
    }
    let cluster = match until {
        Some(_) => TestCluster::start_controlled(STORES, GATEWAYS, durability, FLAGS),
        None => TestCluster::start_with(STORES, GATEWAYS, durability, FLAGS),
    };
    let mut story = Story {
        cluster,
        sync,
        until,
        chance: Chance::new(seed),
        slots: Vec::new(),
        faults: BTreeMap::new(),
        counts: BTreeMap::new(),
        transactions: 0,
    };
    let mut next = kinds.clone();
    for round in 0.. {
        let faults: Vec<Fault> = next.drain(..next.len().min(FAULTS)).collect();
        story.round(round, &faults);
        if next.is_empty() {
            // A doomed one may be spared; then it is tried again.
            next = kinds.iter().copied().filter(|fault| !story.faults.contains_key(fault)).collect();
            if until.is_none_or(|until| Instant::now() >= until) {
                if next.is_empty() || round > 20 {
                    break;
                }
                continue;
            }
            let mut left = kinds.clone();
            next = (0..kinds.len()).map(|_| left.swap_remove(story.chance.below(left.len()))).collect();
        }
    }
    println!("sync {sync}: {:?}, {:?}, {} in histories", story.faults, story.counts, story.transactions);
    for fault in kinds {
        assert!(story.faults.contains_key(&fault), "{fault:?} never happened");
    }
    for outcome in ["done", "nothing", "unknown"] {
        assert!(story.counts.contains_key(outcome), "nobody was ever told: {outcome}");
    }
}

#[test]
fn with_sync_everything_told_is_kept() {
    let _permit = permits::disk();
    run_history(true);
}

#[test]
fn with_periodic_nothing_is_there_by_half() {
    let _permit = permits::disk();
    run_history(false);
}
