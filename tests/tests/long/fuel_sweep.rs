//! A script that is ended somewhere has never been: neither half of a write nor half of a script is ever seen,
//! wherever its fuel runs out and whenever it is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::dump::Dump;
use tests::generate::Chance;
use tests::{Client, SetOnDrop, TestServer, Value, notation, wait_until};

/// More threads than one, keys on several shards, and slices so short that a run often changes its thread.
const FLAGS: &[&str] = &["--threads", "2", "--shards", "16", "--script-fuel-slice", "1000"];

/// What is there before.
const DATA: [&str; 10] = [
    "SET text abc",
    "SET count 7",
    "SET old moved",
    "SET new replaced",
    "RPUSH list a b c",
    "EXPIREAT list 9999999999",
    "HSET hash field value other 1",
    "SADD set a b c",
    "ZADD zset 1 one 2 two",
    "PEXPIREAT zset 9999999999999",
];

const READS: [&str; 9] = [
    "GET text",
    "GET count",
    "GET old",
    "GET new",
    "LRANGE list 0 -1",
    "HGETALL hash",
    "SMEMBERS set",
    "ZRANGE zset 0 -1 WITHSCORES",
    "GET made",
];

/// Writes of every type. Two keys are declared, the others are found while it runs, and in its middle it wants the
/// whole store, for which it has to be undone once and begun again.
const WRITES: &str = "
    redis.call('APPEND', KEYS[1], 'def')
    redis.call('LPOP', KEYS[2])
    redis.call('PERSIST', KEYS[2])
    redis.call('HSET', 'hash', 'field', 2, 'third', 3)
    redis.call('DBSIZE')
    redis.call('ZADD', 'zset', 3, 'one')
    redis.call('RENAME', 'old', 'new')
    redis.call('SET', 'made', 1, 'EXAT', 9999999999)
    redis.call('DEL', 'set')
    return redis.call('INCR', 'count')";

/// The neighbour: holds keys that the other script has not declared, writes to them, and is never done.
const ENDLESS: &str = "
    redis.call('DEL', 'hash') redis.call('SADD', 'set', 'x') redis.call('SET', 'zset', 'half done')
    while true do redis.call('INCR', 'count') end";

/// How the script is called.
#[derive(Clone, Copy)]
enum Way {
    Alone,
    /// Between other writes, which go down with it.
    InTransaction,
}

type Request = Vec<Vec<u8>>;

fn request(line: &str) -> Request {
    notation::arguments(line).expect("balanced quotes")
}

impl Way {
    fn requests(self, sha: &str) -> Vec<Request> {
        let eval = format!("EVALSHA {sha} 2 text list");
        match self {
            Way::Alone => vec![request(&eval)],
            Way::InTransaction => {
                ["MULTI", "INCRBY count 100", &eval, "RPUSH list z", "EXEC"].map(request).into()
            }
        }
    }
}

/// What one call left.
struct Sample {
    reply: String,
    store: Vec<Value>,
}

/// Fuel for any script here.
const AMPLE: u64 = 1_000_000_000;

struct Sweep {
    client: Client,
    dump: Dump,
    call: Vec<Request>,
    before: Vec<Value>,
    after: Vec<Value>,
}

impl Sweep {
    fn new(server: &TestServer, way: Way) -> Sweep {
        let mut client = server.client();
        let sha = load(&mut client, WRITES);
        let mut sweep = Sweep {
            client,
            dump: Dump::of(&READS),
            call: way.requests(&sha),
            before: Vec::new(),
            after: Vec::new(),
        };
        sweep.reset();
        sweep.before = sweep.dump.take(&mut sweep.client);
        sweep.after = sweep.with_fuel([AMPLE]).remove(0).store;
        assert_ne!(sweep.before, sweep.after);
        sweep.reset();
        sweep
    }

    fn reset(&mut self) {
        reset(&mut self.client);
    }

    /// Calls the script with each of these, and looks at the store after each.
    fn with_fuel(&mut self, fuels: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        let mut requests = Vec::new();
        for fuel in fuels {
            requests.push(request(&format!("CONFIG SET script-fuel {fuel}")));
            requests.extend_from_slice(&self.call);
            requests.extend_from_slice(self.dump.requests());
        }
        let replies = self.client.pipeline(&requests);
        let seen = |replies: &[Value]| {
            let (call, store) = replies[1..].split_at(self.call.len());
            Sample { reply: notation::reply(&call[call.len() - 1]), store: store.to_vec() }
        };
        replies.chunks(1 + self.call.len() + self.dump.requests().len()).map(seen).collect()
    }

    /// Whether the script has happened, by its reply and by what it left, which must agree.
    fn has_happened(&self, fuel: u64, seen: &Sample) -> bool {
        let ended = seen.reply.starts_with("-SCRIPTLIMIT fuel: ");
        assert!(ended || !seen.reply.starts_with('-'), "with fuel {fuel}: {}", seen.reply);
        let wanted = if ended { &self.before } else { &self.after };
        assert_eq!(&seen.store, wanted, "with fuel {fuel} and the reply {}", seen.reply);
        !ended
    }

    /// The least fuel with which the script comes to its end.
    fn need(&mut self) -> u64 {
        let (mut too_little, mut enough) = (0, AMPLE);
        while enough - too_little > 1 {
            let fuel = (too_little + enough) / 2;
            let seen = self.with_fuel([fuel]).remove(0);
            if self.has_happened(fuel, &seen) {
                enough = fuel;
                self.reset();
            } else {
                too_little = fuel;
            }
        }
        enough
    }
}

fn load(client: &mut Client, script: &str) -> String {
    // Compiling takes fuel too.
    client.run(&format!("CONFIG SET script-fuel {AMPLE}"));
    let reply = client.call(["SCRIPT", "LOAD", script]);
    String::from_utf8_lossy(reply.text().expect("a sha")).into_owned()
}

/// Calls that are sent together.
const BATCH: u64 = 100;
/// One way of calling the script is tried with more values than the others, by so many times.
const FEWER: usize = 3;

/// One of so many values is tried. Between two of them few instructions are executed, seldom a call; `make fuel-sweep` tries all.
fn step() -> usize {
    std::env::var("MOONSHARD_FUEL_STEP").map_or(7, |step| step.parse().expect("a number"))
}

/// Tries each value of fuel that is so many steps from the last one.
fn hold_with_fuels(instances: &str, way: Way, steps: usize) {
    let step = step() * steps;
    let server = TestServer::start(&[FLAGS, &["--script-instances", instances]].concat());
    let mut sweep = Sweep::new(&server, way);
    let endless = load(&mut sweep.client, ENDLESS);
    let need = sweep.need();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut neighbour = server.client();
            while !ended.load(Ordering::Relaxed) && matches!(way, Way::Alone) {
                let reply = notation::reply(&neighbour.call(["EVALSHA", &endless, "2", "hash", "count"]));
                assert!(reply.starts_with("-SCRIPTLIMIT fuel: "), "{reply}");
                // Leaves the keys alone for a moment, or it would be met all the time.
                neighbour.pipeline(&vec![request("PING"); 100]);
            }
        });
        let _end = SetOnDrop(&ended);
        let mut fuel = 1;
        while fuel < need {
            let until = need.min(fuel + BATCH * step as u64);
            let fuels = || (fuel..until).step_by(step);
            for (fuel, seen) in fuels().zip(sweep.with_fuel(fuels())) {
                assert!(!sweep.has_happened(fuel, &seen), "done with {fuel} of {need}");
            }
            fuel = until;
        }
        for fuel in need..need + 10 {
            let seen = sweep.with_fuel([fuel]).remove(0);
            assert!(sweep.has_happened(fuel, &seen), "not done with {fuel}, but with {need}");
            sweep.reset();
        }
    });
    assert!(server.info("scripts_rerun") > 0 || matches!(way, Way::InTransaction), "nothing was widened");
    assert_eq!(server.info("script_traps"), 0);
}

#[test]
fn no_fuel_ends_a_script_halfway() {
    hold_with_fuels("rewind", Way::Alone, 1);
}

#[test]
fn no_fuel_ends_a_script_of_a_new_instance_halfway() {
    hold_with_fuels("fresh", Way::Alone, FEWER);
}

#[test]
fn no_fuel_ends_a_transaction_halfway() {
    hold_with_fuels("rewind", Way::InTransaction, FEWER);
}

#[test]
fn no_fuel_ends_a_transaction_with_a_new_instance_halfway() {
    hold_with_fuels("fresh", Way::InTransaction, FEWER);
}

/// Long, so that there is something to interrupt, and with every write another one than with half of it.
const LONG: &str = "
    for i = 1, ARGV[1] do
        redis.call('INCR', KEYS[1])
        redis.call('RPUSH', KEYS[2], i)
        redis.call('HSET', 'hash', 'field', i)
        redis.call('SADD', 'set', i)
        redis.call('ZADD', 'zset', i, 'one')
        redis.call('PEXPIREAT', 'zset', 9999999990000 + i)
        if i == 70 then redis.call('DBSIZE') end
    end
    return 'done'";

/// How a running script is interrupted.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    ScriptKill,
    ClientKill,
    HangUp,
    TimeLimit,
}

impl Interruption {
    /// Whether moments are counted in milliseconds; otherwise in answers that another client has got, which is finer.
    fn is_timed(self) -> bool {
        matches!(self, Interruption::HangUp | Interruption::TimeLimit)
    }
}

/// Each outcome is wanted this often.
const OFTEN: usize = 6;

/// Whether a client is still there is looked at every 50 ms, so a script that is to end by that has to run longer,
/// also where it was timed on a busier machine than it is interrupted on.
const LONGER_THAN_A_LOOK: Duration = Duration::from_millis(500);

fn reset(client: &mut Client) {
    client.run("FLUSHALL");
    client.pipeline(&DATA.map(request));
}

/// An undisturbed run.
struct Undisturbed {
    turns: u32,
    took: Duration,
    /// How many answers another client got in the meantime, if that was counted.
    answers: usize,
}

/// Moments to interrupt a script at. They come earlier after one that was too late, and later after one that was in
/// time, so that both are met often however long the script takes on a machine that is busy with other things.
struct Moments {
    chance: Chance,
    reach: f64,
}

impl Moments {
    fn next(&mut self) -> usize {
        self.chance.below(self.reach as usize + 1)
    }

    fn learn(&mut self, too_late: bool) {
        self.reach = (self.reach * if too_late { 0.8 } else { 1.25 }).max(1.0);
    }
}

impl Undisturbed {
    /// Finds how many turns of [`LONG`] take `least`.
    fn find(server: &TestServer, sha: &str, least: Duration, counting: bool) -> Undisturbed {
        let (mut caller, mut other) = (server.client(), server.client());
        let mut turns = 150;
        loop {
            reset(&mut other);
            let (started, ended) = (Instant::now(), AtomicBool::new(false));
            let mut answers = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _ends = SetOnDrop(&ended);
                    let reply = caller.call(["EVALSHA", sha, "2", "count", "list", &turns.to_string()]);
                    assert_eq!(notation::reply(&reply), "\"done\"");
                });
                while counting && !ended.load(Ordering::Relaxed) {
                    other.run("PING");
                    answers += 1;
                }
            });
            if started.elapsed() >= least {
                return Undisturbed { turns, took: started.elapsed(), answers };
            }
            turns *= 2;
        }
    }
}

fn hold_at_any_moment(instances: &str, interruption: Interruption) {
    let server = TestServer::start(&[FLAGS, &["--script-instances", instances]].concat());
    let mut other = server.client();
    let sha = load(&mut other, LONG);
    let dump = Dump::of(&READS);
    reset(&mut other);
    let before = dump.take(&mut other);
    let least = match interruption {
        Interruption::HangUp => LONGER_THAN_A_LOOK,
        Interruption::TimeLimit => Duration::from_millis(10),
        Interruption::ScriptKill | Interruption::ClientKill => Duration::ZERO,
    };
    let Undisturbed { turns, took, answers } =
        Undisturbed::find(&server, &sha, least, !interruption.is_timed());
    let after = dump.take(&mut other);
    assert_ne!(before, after);
    reset(&mut other);
    let reach = if interruption.is_timed() { took.as_millis() as usize * 2 } else { answers * 3 / 2 };
    let mut moments = Moments { chance: Chance::new(interruption as u64), reach: reach as f64 };
    let mut seen = [0, 0];
    for attempt in 0.. {
        assert!(attempt < 500, "{interruption:?}: still {seen:?}");
        let mut caller = server.client();
        let Value::Integer(id) = caller.run("CLIENT ID") else { panic!("a number") };
        let moment = moments.next();
        if matches!(interruption, Interruption::TimeLimit) {
            other.run(&format!("CONFIG SET script-timeout-ms {}", 1 + moment));
        }
        caller.send(["EVALSHA", &sha, "2", "count", "list", &turns.to_string()]);
        match interruption {
            Interruption::TimeLimit => {}
            // Counting answers until then would take as much time of the processor as the script.
            Interruption::HangUp => std::thread::sleep(Duration::from_millis(moment as u64)),
            Interruption::ScriptKill | Interruption::ClientKill => {
                (0..moment).for_each(|_| drop(other.run("PING")));
            }
        }
        // What the caller was told, if anything.
        let reply = match interruption {
            Interruption::TimeLimit => Some(caller.read()),
            Interruption::ScriptKill => {
                other.run("SCRIPT KILL");
                Some(caller.read())
            }
            Interruption::ClientKill => {
                other.run(&format!("CLIENT KILL ID {id}"));
                caller.try_read().expect("a reply or the end")
            }
            Interruption::HangUp => None,
        };
        drop(caller);
        // Otherwise its request might not even have been read.
        wait_until("the caller is gone", || {
            notation::reply(&other.run(&format!("CLIENT LIST ID {id}"))) == "\"\""
        });
        let store = dump.take(&mut other);
        let happened = store == after;
        assert!(happened || store == before, "{interruption:?} left half of the script: {store:?}");
        match reply.as_ref().map(notation::reply).as_deref() {
            None => {}
            Some("\"done\"") => assert!(happened, "its writes were lost"),
            Some(error) => {
                let known = ["-KILLED script ", "-SCRIPTLIMIT time: "];
                assert!(known.iter().any(|text| error.starts_with(text)), "{error}");
                assert!(!happened, "happened in spite of {error}");
            }
        }
        if happened {
            reset(&mut other);
        }
        moments.learn(happened);
        seen[usize::from(happened)] += 1;
        if seen.iter().all(|times| *times >= OFTEN) {
            break;
        }
    }
    assert_eq!(server.info("scripts_running"), 0);
    assert_eq!(server.info("script_traps"), 0);
}

const INTERRUPTIONS: [Interruption; 4] =
    [Interruption::ScriptKill, Interruption::ClientKill, Interruption::HangUp, Interruption::TimeLimit];

#[test]
fn no_interruption_leaves_half_of_a_script() {
    INTERRUPTIONS.iter().for_each(|interruption| hold_at_any_moment("rewind", *interruption));
}

#[test]
fn no_interruption_leaves_half_of_a_script_of_a_new_instance() {
    INTERRUPTIONS.iter().for_each(|interruption| hold_at_any_moment("fresh", *interruption));
}
