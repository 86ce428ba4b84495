//! Many clients run short random transactions on a few lists, in every way there is to run one, while scripts are
//! ended by limits and kills and clients are cut off. What they saw has to be strictly serializable.
//!
//! `MOONSHARD_HISTORY_SEED` starts elsewhere, `MOONSHARD_HISTORY_SECONDS` goes on for longer than the bounded run of
//! `make test`. A seed gives the same transactions, but not the same interleaving.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tests::client::encode;
use tests::generate::Chance;
use tests::history::{self, Ending, Op, Transaction};
use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

const CLIENTS: usize = 8;
/// Transactions of each client in a history: lists stay short.
const TURNS: usize = 60;
/// Histories of each server in a bounded run: over nodes one costs four times as much.
const HISTORIES_ON_ONE_PROCESS: u64 = 6;
const HISTORIES_OVER_NODES: u64 = 3;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Between two looks at how far all have played: shorter than most transactions.
const LOOKS: Duration = Duration::from_micros(500);

/// Slices so short that most scripts are interrupted, and limits that are met only on purpose.
const FLAGS: &[&str] = &[
    "--script-fuel",
    "1000000",
    "--script-memory",
    "2mb",
    "--script-reply-max",
    "64kb",
    "--script-fuel-slice",
    "1000",
    "--script-concurrency",
    "5",
];

/// Each argument is a step.
const SCRIPT: &str = "
    local read = {}
    for _, step in ipairs(ARGV) do
        local what, key, value = string.match(step, '^(%a+) ?(%a*) ?(%d*)$')
        local list = 'list:' .. key
        if what == 'append' then redis.call('RPUSH', list, value)
        elseif what == 'read' then read[#read + 1] = redis.call('LRANGE', list, 0, -1)
        elseif what == 'count' then redis.call('DBSIZE')
        elseif what == 'compute' then for _ = 1, 300 do end
        elseif what == 'fail' then return redis.error_reply('ENOUGH of this')
        elseif what == 'endless' then while true do pcall(string.rep, 'x', 10) end
        elseif what == 'memory' then local all = {} while true do all[#all + 1] = string.rep('x', 9999) .. #all end
        elseif what == 'reply' then return string.rep('x', 100000) end
    end
    return read";

/// A part of a transaction.
#[derive(Clone, Debug)]
enum Step {
    Append(&'static str, u64),
    Read(&'static str),
    /// Something else that a script does; the last three are its end, and nothing of it stays.
    Other(&'static str),
}

const FATAL: [&str; 3] = ["endless", "memory", "reply"];

impl Step {
    fn text(&self) -> String {
        match self {
            Step::Append(key, value) => format!("append {key} {value}"),
            Step::Read(key) => format!("read {key}"),
            Step::Other(what) => (*what).to_owned(),
        }
    }

    fn key(&self) -> Option<&'static str> {
        match self {
            Step::Append(key, _) | Step::Read(key) => Some(key),
            Step::Other(_) => None,
        }
    }
}

/// What all clients of a history share.
struct World<'a> {
    server: &'a TestServer,
    sha: String,
    /// Ticks, so that times are all different.
    clock: AtomicU64,
    values: AtomicU64,
    done: AtomicU64,
    /// Numbers of connections, of those that may be killed.
    connections: Mutex<BTreeMap<usize, i64>>,
}

impl World<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// A client with its random numbers.
struct Player<'a> {
    world: &'a World<'a>,
    number: usize,
    chance: Chance,
    client: Client,
}

/// How one transaction ended, and what it did.
type Played = (&'static str, Vec<Op>, Ending);

/// The connection has ended.
struct Cut;

impl<'a> Player<'a> {
    fn new(world: &'a World<'a>, number: usize, seed: u64) -> Player<'a> {
        let client = world.server.client();
        let mut player = Player { world, number, chance: Chance::new(seed), client };
        player.connect();
        player
    }

    /// Begins anew until the connection lives so long that its number is known.
    fn connect(&mut self) {
        loop {
            self.client = self.world.server.client();
            if let Ok(Value::Integer(id)) = self.ask(["CLIENT", "ID"]) {
                self.world.connections.lock().expect("no panic").insert(self.number, id);
                return;
            }
        }
    }

    fn ask<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) -> Result<Value, Cut> {
        self.client.send_raw(&encode(args)).map_err(|_| Cut)?;
        self.client.try_read().expect("a reply or the end").ok_or(Cut)
    }

    fn key(&mut self) -> &'static str {
        self.chance.pick(&KEYS)
    }

    fn append(&mut self) -> Step {
        Step::Append(self.key(), self.world.values.fetch_add(1, Ordering::Relaxed))
    }

    /// Steps that have their effect, whatever comes after.
    fn steps(&mut self) -> Vec<Step> {
        let count = 1 + self.chance.below(5);
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.push(if self.chance.percent(50) { self.append() } else { Step::Read(self.key()) });
        }
        steps
    }

    /// What goes to the script: other things between the steps, and maybe a bad end.
    fn dressed(&mut self, mut steps: Vec<Step>) -> Vec<Step> {
        for (share, what) in [(40, "compute"), (4, "count")] {
            if self.chance.percent(share) {
                steps.insert(self.chance.below(steps.len() + 1), Step::Other(what));
            }
        }
        if self.chance.percent(15) {
            let end = self.chance.pick(&[FATAL[0], FATAL[0], FATAL[1], FATAL[2], "fail"]);
            steps.push(Step::Other(end));
        }
        steps
    }

    /// A call of the script with some of its keys declared, all, or none.
    fn script_call(&mut self, steps: &[Step]) -> Vec<String> {
        let share = self.chance.pick(&[0, 0, 50, 100, 100]);
        let mut keys: Vec<&str> = steps.iter().filter_map(Step::key).collect();
        keys.retain(|_| self.chance.percent(share));
        let reads_only = steps.iter().all(|step| !matches!(step, Step::Append(..)));
        let eval = if reads_only && self.chance.percent(50) { "EVALSHA_RO" } else { "EVALSHA" };
        let head = [eval.to_owned(), self.world.sha.clone(), keys.len().to_string()];
        let keys = keys.into_iter().map(|key| format!("list:{key}"));
        head.into_iter().chain(keys).chain(steps.iter().map(Step::text)).collect()
    }

    /// One transaction of any kind, with its times.
    fn play(&mut self) -> Transaction {
        let began = self.world.now();
        let (kind, ops, ending) = match self.chance.below(10) {
            0 => self.plain(),
            1..=5 => self.script(),
            6..=7 => self.exec(),
            8 => self.watch(),
            _ => self.hang_up(),
        };
        let ended = self.world.now();
        self.world.done.fetch_add(1, Ordering::Relaxed);
        if ending == Ending::Unknown {
            self.connect();
        }
        let name = format!("client {}, {kind}", self.number);
        Transaction { name, ops, ending, began, ended }
    }

    fn plain(&mut self) -> Played {
        let step = if self.chance.percent(50) { self.append() } else { Step::Read(self.key()) };
        let mut ops = appends(std::slice::from_ref(&step));
        let ending = match self.ask(plain_call(&step)) {
            Ok(reply) => {
                ops.extend(read_op(&step, &reply));
                Ending::Committed
            }
            Err(Cut) => Ending::Unknown,
        };
        ("plain", ops, ending)
    }

    fn script(&mut self) -> Played {
        let steps = self.steps();
        let steps = self.dressed(steps);
        let call = self.script_call(&steps);
        let (ops, ending) = match self.ask(call) {
            Ok(reply) => script_ops(&steps, &reply),
            Err(Cut) => (appends(&steps), Ending::Unknown),
        };
        ("script", ops, ending)
    }

    /// Plain calls and scripts in one EXEC.
    fn exec(&mut self) -> Played {
        let steps = self.steps();
        let mut parts: Vec<(Vec<Step>, bool)> = Vec::new();
        for step in steps {
            let scripted = self.chance.percent(30);
            parts.push(if scripted { (self.dressed(vec![step]), true) } else { (vec![step], false) });
        }
        let all: Vec<Step> = parts.iter().flat_map(|(steps, _)| steps).cloned().collect();
        let calls: Vec<Vec<String>> = parts
            .iter()
            .map(|(steps, scripted)| if *scripted { self.script_call(steps) } else { plain_call(&steps[0]) })
            .collect();
        let reply = self.transaction(&calls);
        let (ops, ending) = match reply {
            Err(Cut) => (appends(&all), Ending::Unknown),
            Ok(Value::Array(replies)) => {
                let mut ops = Vec::new();
                for ((steps, scripted), reply) in parts.iter().zip(&replies) {
                    if *scripted {
                        let (done, ending) = script_ops(steps, reply);
                        assert_eq!(ending, Ending::Committed, "{reply:?} in an EXEC that went on");
                        ops.extend(done);
                    } else {
                        ops.extend(appends(steps));
                        ops.extend(read_op(&steps[0], reply));
                    }
                }
                (ops, Ending::Committed)
            }
            Ok(reply) => {
                assert!(is_end(&reply), "EXEC of {calls:?} is answered by {reply:?}");
                (appends(&all), Ending::Undone)
            }
        };
        ("EXEC", ops, ending)
    }

    fn transaction(&mut self, calls: &[Vec<String>]) -> Result<Value, Cut> {
        self.ask(["MULTI"])?;
        for call in calls {
            assert_eq!(notation::reply(&self.ask(call)?), "+QUEUED", "{call:?}");
        }
        self.ask(["EXEC"])
    }

    /// Reads, then appends if nobody else has in the meantime.
    fn watch(&mut self) -> Played {
        let mut reads: Vec<&str> = (0..1 + self.chance.below(2)).map(|_| self.key()).collect();
        reads.dedup();
        let writes: Vec<Step> = (0..1 + self.chance.below(2)).map(|_| self.append()).collect();
        let calls: Vec<Vec<String>> = match self.chance.percent(50) {
            true => {
                let steps = self.dressed(writes.clone());
                vec![self.script_call(&steps)]
            }
            false => writes.iter().map(plain_call).collect(),
        };
        let mut ops = Vec::new();
        let mut run = || {
            self.ask(["WATCH".to_owned()].into_iter().chain(reads.iter().map(|key| format!("list:{key}"))))?;
            for key in &reads {
                let step = Step::Read(key);
                let reply = self.ask(plain_call(&step))?;
                ops.extend(read_op(&step, &reply));
            }
            self.transaction(&calls)
        };
        let ending = match run() {
            Ok(Value::Array(_)) => Ending::Committed,
            Ok(reply) => {
                assert!(reply.is_null() || is_end(&reply), "{reply:?}");
                Ending::Undone
            }
            Err(Cut) => {
                // What was read may have changed before EXEC.
                ops.clear();
                Ending::Unknown
            }
        };
        ops.extend(appends(&writes));
        ("WATCH", ops, ending)
    }

    /// Goes away while its script runs, or before, or after.
    fn hang_up(&mut self) -> Played {
        let steps = self.steps();
        let steps = self.dressed(steps);
        let call = self.script_call(&steps);
        let _ = self.client.send_raw(&encode(call));
        if self.chance.percent(50) {
            // Waits until the server has looked whether it is still there.
            let _ = self.client.stream().shutdown(Shutdown::Write);
            while let Ok(Some(_)) = self.client.try_read() {}
        }
        ("hung up", appends(&steps), Ending::Unknown)
    }
}

fn plain_call(step: &Step) -> Vec<String> {
    match step {
        Step::Append(key, value) => vec!["RPUSH".to_owned(), format!("list:{key}"), value.to_string()],
        Step::Read(key) => vec!["LRANGE".to_owned(), format!("list:{key}"), "0".to_owned(), "-1".to_owned()],
        Step::Other(_) => unreachable!("only scripts do other things"),
    }
}

fn appends(steps: &[Step]) -> Vec<Op> {
    let append = |step: &Step| match step {
        Step::Append(key, value) => Some(Op::Append((*key).to_owned(), *value)),
        _ => None,
    };
    steps.iter().filter_map(append).collect()
}

fn read_op(step: &Step, reply: &Value) -> Option<Op> {
    let Step::Read(key) = step else { return None };
    let Value::Array(values) = reply else { panic!("a list, not {reply:?}") };
    let value = |value: &Value| {
        let text = std::str::from_utf8(value.text().expect("a string")).expect("digits");
        text.parse().expect("a number")
    };
    Some(Op::Read((*key).to_owned(), values.iter().map(value).collect()))
}

/// Whether a script was ended from outside.
fn is_end(reply: &Value) -> bool {
    let text = notation::reply(reply);
    text.starts_with("-SCRIPTLIMIT ") || text.starts_with("-KILLED ")
}

/// What a script with these steps did, told by its reply.
fn script_ops(steps: &[Step], reply: &Value) -> (Vec<Op>, Ending) {
    match reply {
        Value::Array(lists) => {
            let mut lists = lists.iter();
            let op = |step: &Step| match step {
                Step::Append(key, value) => Some(Op::Append((*key).to_owned(), *value)),
                Step::Read(_) => read_op(step, lists.next().expect("a list for each read")),
                Step::Other(what) => {
                    assert!(!FATAL.contains(what), "{what} is survived");
                    None
                }
            };
            (steps.iter().filter_map(op).collect(), Ending::Committed)
        }
        // Its own error keeps what it wrote.
        Value::Error(text) if text == b"ENOUGH of this" => (appends(steps), Ending::Committed),
        reply => {
            assert!(is_end(reply), "a script is answered by {reply:?}");
            (appends(steps), Ending::Undone)
        }
    }
}

/// Kills scripts and clients now and then, until all have played.
fn disturb(world: &World, seed: u64, ended: &AtomicBool) {
    let mut chance = Chance::new(seed);
    let mut client = world.server.client();
    let mut next = 0;
    while !ended.load(Ordering::Relaxed) {
        if world.done.load(Ordering::Relaxed) < next {
            // Asking without a break would take a processor from those who play.
            std::thread::sleep(LOOKS);
            continue;
        }
        next += 1 + chance.below(40) as u64;
        if chance.percent(60) {
            client.run("SCRIPT KILL");
        } else {
            let number = chance.below(CLIENTS);
            let id = world.connections.lock().expect("no panic").get(&number).copied();
            if let Some(id) = id {
                client.run(&format!("CLIENT KILL ID {id}"));
            }
        }
    }
}

/// One history of all clients.
fn play(server: &TestServer, seed: u64) -> Vec<Transaction> {
    let mut first = server.client();
    first.run("FLUSHALL");
    let sha = first.call(["SCRIPT", "LOAD", SCRIPT]);
    let world = World {
        server,
        sha: String::from_utf8_lossy(sha.text().expect("a sha")).into_owned(),
        clock: AtomicU64::new(0),
        values: AtomicU64::new(0),
        done: AtomicU64::new(0),
        connections: Mutex::default(),
    };
    let ended = AtomicBool::new(false);
    let mut all: Vec<Transaction> = std::thread::scope(|scope| {
        let world = &world;
        let players: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let seed = seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
                scope.spawn(move || {
                    let mut player = Player::new(world, number, seed);
                    (0..TURNS).map(|_| player.play()).collect::<Vec<_>>()
                })
            })
            .collect();
        scope.spawn(|| disturb(world, seed, &ended));
        let played: Vec<_> = players.into_iter().map(|player| player.join()).collect();
        ended.store(true, Ordering::Relaxed);
        played.into_iter().flat_map(|played| played.expect("a history")).collect()
    });
    // Nobody who was cut off may still be at it when the next history begins.
    wait_until("all others are gone", || {
        let list = notation::reply(&first.run("CLIENT LIST"));
        list.matches("id=").count() == 1
    });
    for key in KEYS {
        let began = world.now();
        let step = Step::Read(key);
        let ops = read_op(&step, &first.call(plain_call(&step))).into_iter().collect();
        let ended = world.now();
        all.push(Transaction { name: "the end".to_owned(), ops, ending: Ending::Committed, began, ended });
    }
    all
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn hold(on: Topology, flags: &[&str]) {
    let server = on.start(&[FLAGS, flags].concat());
    let first = setting("MOONSHARD_HISTORY_SEED").unwrap_or(1).wrapping_mul(1 << 32);
    let until = setting("MOONSHARD_HISTORY_SECONDS").map(|long| Instant::now() + Duration::from_secs(long));
    let usual = if on == Topology::Local { HISTORIES_ON_ONE_PROCESS } else { HISTORIES_OVER_NODES };
    let mut endings = BTreeMap::new();
    for number in 0.. {
        if until.map_or(number >= usual, |until| Instant::now() >= until) {
            break;
        }
        let seed = first + number;
        let history = play(&server, seed);
        for transaction in &history {
            let kind = transaction.name.split_once(", ").map_or("", |(_, kind)| kind);
            *endings.entry(format!("{kind} {:?}", transaction.ending)).or_insert(0) += 1;
        }
        if let Err(anomaly) = history::check(&history) {
            panic!("history {number} of seed {} with {flags:?}: {anomaly}", first >> 32);
        }
    }
    println!("{flags:?}: {endings:?}");
    for often in ["script Committed", "script Undone", "EXEC Committed", "EXEC Undone", "WATCH Committed"] {
        assert!(endings.contains_key(often), "{often} never came: {endings:?}");
    }
    assert!(server.info("scripts_rerun") > 0);
    assert_eq!(server.info("script_traps"), 0);
    assert_eq!(server.info("scripts_running"), 0);
    assert_eq!(notation::reply(&server.client().run("FLUSHALL")), "+OK", "everything is free");
}

fn one_shard_and_one_thread(on: Topology) {
    hold(on, &["--threads", "1", "--shards", "1", "--script-instances", "rewind"]);
}

fn as_many_threads_as_cores(on: Topology) {
    hold(on, &["--threads", "2", "--shards", "4", "--script-instances", "fresh"]);
}

fn more_threads_than_cores(on: Topology) {
    hold(on, &["--threads", "4", "--shards", "16", "--script-instances", "rewind"]);
}

fn many_shards_and_new_instances(on: Topology) {
    hold(on, &["--threads", "3", "--shards", "64", "--script-instances", "fresh"]);
}

over_nodes! {
    one_shard_and_one_thread,
    as_many_threads_as_cores,
    more_threads_than_cores,
    many_shards_and_new_instances,
}
