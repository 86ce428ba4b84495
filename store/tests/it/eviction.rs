//! Memory that is short: who goes, who stays, and how well that is chosen.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store::{Demand, Evicted, LocalTransaction, LockRequest, Mode, Node, ParsedCall};
use store_engine::evict::{Order, Policy};
use store_engine::{Aging, Args, Protocol, Reply, command};

const LRU: Policy = Policy { volatile: false, order: Order::Idle };
const LFU: Policy = Policy { volatile: false, order: Order::Rare };

/// A node with a clock that only the test moves.
struct Store {
    node: Arc<Node>,
    now_ms: u64,
}

impl Store {
    fn new(shards: usize) -> Store {
        let node = Node::new(shards);
        node.keep_account(true);
        Store { node, now_ms: 1_000_000 }
    }

    /// The reply to a client's command, which must not have to wait.
    fn run(&self, line: &str) -> String {
        let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let args = Args::new(&items);
        let command = command::lookup(&args.name().to_ascii_lowercase()).expect("a command");
        let command = command::resolve(command, args).expect("a subcommand");
        let call = ParsedCall::new(command, args).expect("arguments").of_server();
        let mut out = Reply::new(Protocol::Resp2);
        self.node.try_execute(&call.at(0, self.now_ms), &mut 1, &mut out).expect("no lock is in the way");
        String::from_utf8_lossy(&out.buf).trim_end().to_owned()
    }

    /// Evicts as many keys as it takes; there is no hurry.
    fn evict(&self, limit: usize, policy: Option<Policy>) -> Evicted {
        let demand = Demand { limit, policy, samples: 5, time: Duration::from_secs(3600) };
        self.node.evict(&demand, self.now_ms)
    }
}

#[test]
fn sticky_keys_stay_whatever_it_costs() {
    let store = Store::new(8);
    for number in 0..500 {
        store.run(&format!("SET keep:{number} value STICK"));
        store.run(&format!("SET cache:{number} value"));
    }
    for (policy, left) in [(None, 1000), (Some(Policy { volatile: true, ..LRU }), 1000), (Some(LRU), 500)] {
        assert_eq!(store.evict(0, policy), Evicted::Exhausted);
        assert_eq!(store.run("DBSIZE"), format!(":{left}"));
    }
    assert!((0..500).all(|number| store.run(&format!("GET keep:{number}")) == "$5\r\nvalue"));
    assert_eq!(store.node.counts().evicted, 500);
    store.run("UNSTICK keep:7");
    assert_eq!(store.evict(0, Some(LRU)), Evicted::Exhausted);
    assert_eq!(store.run("EXISTS keep:7 keep:8"), ":1");
}

#[tokio::test]
async fn what_a_transaction_holds_is_not_evicted_under_it() {
    let store = Store::new(4);
    for number in 0..100 {
        store.run(&format!("SET key:{number} value"));
    }
    let request = LockRequest { db: 0, key: b"key:5"[..].into(), mode: Mode::Shared };
    let txn = LocalTransaction::begin(&store.node, vec![request]).await;
    assert_eq!(store.evict(0, Some(LRU)), Evicted::Exhausted);
    assert_eq!(store.node.usage().keys[0], 1);
    drop(txn);
    assert_eq!(store.evict(0, Some(LRU)), Evicted::Enough);
    assert_eq!(store.node.accounted_bytes(), 0);
}

#[test]
fn the_one_that_may_go_is_found_among_many_that_may_not() {
    let store = Store::new(2);
    for number in 0..5_000 {
        store.run(&format!("SET keep:{number} value STICK"));
    }
    for round in 0..20 {
        store.run(&format!("SET lasts:{round} value"));
        store.run(&format!("SET goes:{round} value EX 100"));
        let limit = store.node.accounted_bytes() - 1;
        assert_eq!(
            store.evict(limit, Some(Policy { volatile: true, order: Order::Soonest })),
            Evicted::Enough
        );
        assert_eq!(store.run(&format!("EXISTS goes:{round}")), ":0");
    }
    assert_eq!(store.run("DBSIZE"), ":5020");
}

#[test]
fn those_who_watch_a_key_hear_that_it_went() {
    let store = Store::new(1);
    store.run("SET a value");
    let flag = Arc::new(AtomicBool::new(false));
    store.node.watch(0, b"a", store.now_ms, &flag);
    assert_eq!(store.evict(0, Some(Policy { volatile: false, order: Order::Random })), Evicted::Enough);
    assert!(flag.load(Ordering::Relaxed));
}

#[tokio::test]
async fn the_account_is_true_whatever_happens() {
    let mut store = Store::new(4);
    let node = store.node.clone();
    let holds = |store: &Store, what: &str| {
        assert_eq!(node.accounted_bytes(), store.node.usage().bytes, "{what}");
    };
    for round in 0..300 {
        store.run(&format!("SET key:{} {}", round % 50, "x".repeat(1 + round % 70)));
        store.run(&format!("RPUSH list:{} a b c", round % 7));
        store.run(&format!("PEXPIRE key:{} 3000", round % 13));
        store.run(&format!("RENAME list:{} other:{}", round % 7, round % 5));
        store.now_ms += 50;
        while (0..4).any(|shard| store.node.sweep(shard, store.now_ms)) {}
        holds(&store, "after commands");
        if round % 10 == 0 {
            let request =
                |key: &str| LockRequest { db: 0, key: key.as_bytes().into(), mode: Mode::Exclusive };
            let mut txn = LocalTransaction::begin(&node, vec![request("key:1"), request("list:2")]).await;
            for line in ["SET key:1 changed", "RPUSH list:2 x y z", "DEL key:1"] {
                let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                let args = Args::new(&items);
                let command = command::lookup(&args.name().to_ascii_lowercase()).expect("a command");
                let call = ParsedCall::new(command, args).expect("arguments").of_server();
                let done = txn.execute(
                    &call.at(0, store.now_ms),
                    Mode::Exclusive,
                    &mut 1,
                    &mut Reply::new(Protocol::Resp2),
                );
                assert_eq!(done, Ok(true));
            }
            drop(txn);
            holds(&store, "after an undo");
        }
        if round == 150 {
            node.keep_account(false);
            assert_eq!(node.accounted_bytes(), 0);
            store.run("SET unseen value");
            node.keep_account(true);
            holds(&store, "after a pause");
            store.run("FLUSHALL");
            holds(&store, "after everything went");
        }
    }
    assert!(node.accounted_bytes() > 0);
}

/// Zipf's law over some keys: the first one is asked for most often.
struct Zipf {
    cumulated: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf { cumulated: cumulated.collect(), state: 1 }
    }

    fn next(&mut self) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let roll = (self.state >> 11) as f64 / (1u64 << 53) as f64 * self.cumulated[self.cumulated.len() - 1];
        self.cumulated.partition_point(|sum| *sum < roll)
    }
}

/// A cache that always drops the least recently used.
#[derive(Default)]
struct ExactLru {
    used: HashMap<usize, u64>,
    by_use: BTreeMap<u64, usize>,
}

impl ExactLru {
    fn ask(&mut self, key: usize, time: u64, room: usize) -> bool {
        let old = self.used.insert(key, time);
        old.map(|old| self.by_use.remove(&old));
        self.by_use.insert(time, key);
        if self.used.len() > room
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        old.is_some()
    }
}

const KEYS: usize = 10_000;
const ROOM: usize = 1_000;
const ASKED: u64 = 60_000;

/// Percent of hits in the second half of a Zipf load, of a store with room for a tenth of the keys and of an exact
/// LRU of that size.
fn hit_rates(policy: Policy, aging: Aging) -> (f64, f64) {
    let mut store = Store::new(8);
    store.node.set_aging(aging);
    let (mut zipf, mut exact) = (Zipf::new(KEYS, 0.9), ExactLru::default());
    let (mut hits, mut exact_hits) = (0, 0);
    store.run("SET key:00000 value");
    let limit = ROOM * store.node.accounted_bytes();
    for time in 0..ASKED {
        store.now_ms += 700;
        let key = zipf.next();
        let hit = store.run(&format!("GET key:{key:05}")) != "$-1";
        if !hit {
            store.run(&format!("SET key:{key:05} value"));
            assert_eq!(store.evict(limit, Some(policy)), Evicted::Enough);
        }
        let exact_hit = exact.ask(key, time, ROOM);
        if time > ASKED / 2 {
            hits += u64::from(hit);
            exact_hits += u64::from(exact_hit);
        }
    }
    let percent = |hits: u64| 200.0 * hits as f64 / ASKED as f64;
    println!("{policy:?}: {:.2} % hits, exact LRU {:.2} %", percent(hits), percent(exact_hits));
    (percent(hits), percent(exact_hits))
}

#[test]
fn sampling_is_nearly_as_good_as_an_exact_lru() {
    let (sampled, exact) = hit_rates(LRU, Aging::Recency);
    assert!((sampled - exact).abs() <= 3.0, "{sampled:.2} % hits, exact LRU {exact:.2} %");
    let (random, _) = hit_rates(Policy { order: Order::Random, ..LRU }, Aging::Recency);
    assert!(sampled > random + 1.0, "{sampled:.2} % hits, {random:.2} % by chance");
}

#[test]
fn counting_accesses_is_better_where_favourites_last() {
    let (counted, exact) = hit_rates(LFU, Aging::Frequency { log_factor: 10, decay_minutes: 60 });
    assert!(counted > exact, "{counted:.2} % hits, exact LRU {exact:.2} %");
}
