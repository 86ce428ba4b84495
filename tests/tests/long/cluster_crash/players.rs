//! Clients that work on keys of all nodes, and what each of them has to see.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use tests::client::encode;
use tests::generate::Chance;
use tests::history::{Ending, Op, Transaction};
use tests::{Client, TestCluster, Value, notation};

/// The number of store nodes.
pub const STORES: usize = 3;
/// Lists, accounts and marks of each store.
const EACH: usize = 2;
/// What each account has in the beginning.
pub const WEALTH: i64 = 1000;

/// Moves money from the first account to the others.
const TRANSFER: &str = "for at = 2, #KEYS do
        redis.call('DECRBY', KEYS[1], ARGV[at])
        redis.call('INCRBY', KEYS[at], ARGV[at])
    end
    return {ok = 'done'}";
/// Writes the same everywhere.
const MARK: &str = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end return {ok = 'done'}";
/// Reads everything at one time.
pub const LOOK: &str =
    "local seen = {} for at, key in ipairs(KEYS) do seen[at] = redis.call('GET', key) end return seen";
/// Appends to lists and reads them.
const LISTS: &str = "local read = {}
    for at, key in ipairs(ARGV) do
        local list, value = string.match(key, '^(%S+) (%d+)$')
        if list then redis.call('RPUSH', list, value) else read[#read + 1] = redis.call('LRANGE', key, 0, -1) end
    end
    return read";

/// Names of keys on all stores.
pub struct Keys {
    pub accounts: Vec<String>,
    pub marks: Vec<String>,
    pub lists: Vec<String>,
}

impl Keys {
    pub fn new(cluster: &TestCluster, round: usize) -> Keys {
        let named = |what: &str| {
            let numbers = (0..EACH).flat_map(|number| (0..STORES).map(move |store| (store, number)));
            numbers.map(|(store, number)| cluster.key(store, &format!("{what}{round}:{number}"))).collect()
        };
        Keys { accounts: named("account"), marks: named("mark"), lists: named("list") }
    }

    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.accounts.iter().chain(&self.marks).chain(&self.lists)
    }
}

/// How long a player waits after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(2);

/// What all players of a round share.
pub struct World<'a> {
    pub keys: &'a Keys,
    pub gateways: Vec<std::net::SocketAddr>,
    pub clock: AtomicU64,
    pub values: AtomicU64,
    pub over: AtomicBool,
    /// Between two transactions of a player.
    pub pause: Duration,
}

impl World<'_> {
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// Ends the players' game, also when the test fails.
pub struct Over<'a>(pub &'a World<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// What a client was told.
pub enum Outcome {
    Reply(Value),
    /// Nothing was done.
    Nothing,
    /// It may have been done or not.
    Unknown,
}

/// A client that connects to any gateway again when its connection is lost.
pub struct Player<'a> {
    pub world: &'a World<'a>,
    pub chance: Chance,
    pub client: Option<Client>,
    pub counts: BTreeMap<&'static str, u64>,
}

impl<'a> Player<'a> {
    pub fn new(world: &'a World<'a>, seed: u64) -> Player<'a> {
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
        // An error without a pause would fill the whole time of a fault with errors.
        let pause = if matches!(reply, Value::Error(_)) { ERROR_PAUSE } else { self.world.pause };
        sleep(pause);
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

    pub fn transfer(mut self) -> Self {
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

    pub fn mark(mut self) -> Self {
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

    pub fn look(mut self) -> Self {
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
    pub fn append(mut self, number: usize) -> (Self, Vec<Transaction>) {
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

pub fn outcome(reply: Value) -> Outcome {
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

pub fn plain(op: &Op) -> Vec<String> {
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
pub fn fill_in(kind: &str, ops: &mut [Op], reply: Value) {
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

pub fn assert_one_mark(reply: &Value) {
    let Value::Array(seen) = reply else { panic!("marks, not {reply:?}") };
    assert!(seen.iter().all(|value| *value == seen[0]), "a script is there by half: {seen:?}");
}

pub fn assert_wealth(reply: &Value) {
    let Value::Array(seen) = reply else { panic!("accounts, not {reply:?}") };
    let amount = |value: &Value| {
        let text = String::from_utf8_lossy(value.text().expect("a number")).into_owned();
        text.parse::<i64>().expect("a number")
    };
    let sum: i64 = seen.iter().map(amount).sum();
    assert_eq!(sum, WEALTH * seen.len() as i64, "money was lost or made: {seen:?}");
}
