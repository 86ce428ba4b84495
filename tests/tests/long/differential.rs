//! Random calls, made of our server and of Redis: the replies and what is left in the keys must agree.
//!
//! `MOONSHARD_DIFF_SEED` starts elsewhere, `MOONSHARD_DIFF_CALLS` makes more calls than the bounded run of
//! `make test`. A sequence with a difference is cut down to the calls that it takes.

use std::fmt::Write as _;

use tests::compare::{Sameness, essence, sameness, tame};
use tests::generate::{self, Call, Chance, KEYS, LEX};
use tests::{Client, Oracle, PROTOCOLS, Protocol, Topology, Value, over_nodes};

/// Random calls in a sequence: enough for states worth looking at, few enough to cut down quickly.
const SEQUENCE: usize = 100;

/// Calls of a bounded run. Most differences can be found on one process, where a call costs a sixth.
const CALLS_ON_ONE_PROCESS: u64 = 15_000;
const CALLS_OVER_NODES: u64 = 5_000;

/// Differences after which a run ends.
const ENOUGH: usize = 12;

/// What is known to differ: the command (any if empty), a part of either reply, and why it stays so.
const KNOWN: &[(&str, &str, &str)] = &[
    ("sort", "\\x00", "Redis compares texts up to their first zero byte"),
    ("sort_ro", "\\x00", "Redis compares texts up to their first zero byte"),
    ("sort", "can't be converted into double", "Redis looks at the errno of an earlier call"),
    ("sort_ro", "can't be converted into double", "Redis looks at the errno of an earlier call"),
    ("xautoclaim", "COUNT too high", "Redis takes memory for as many entries as are asked for"),
    ("zrank", "rong number of arg", "Redis 7.0 has no WITHSCORE"),
    ("zrevrank", "rong number of arg", "Redis 7.0 has no WITHSCORE"),
    ("object", "STICKY <key>", "Redis does not know the mark"),
    ("", "ERR Invalid arguments specified for command", "COMMAND GETKEYS of Redis reads 1e5 as one key"),
];

/// How a call travels.
#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    /// `redis.pcall`, with every key declared.
    Declared,
    /// `redis.pcall`, with none.
    Undeclared,
    /// `redis.call`, whose errors end the script.
    Raised,
    /// `redis.call` and `redis.pcall` whose results nobody reads, which may be collected.
    Unread,
    /// `redis.pcall` of a script without atomicity.
    Unlocked,
    /// `redis.pcall` under RESP3.
    Resp3,
    /// `redis.pcall` of EVAL_RO.
    ReadOnly,
    /// `redis.pcall` in a function, with every key declared.
    Function,
    /// `redis.call` in a function that has promised not to write.
    ReadOnlyFunction,
    /// Not at all: only its keys are asked for.
    Keys,
}

/// The functions that calls travel through.
const LIBRARY: &str = "#!lua name=ways
redis.register_function('tries', function(keys, args) return redis.pcall(unpack(args)) end)
redis.register_function{function_name='reads', flags={'no-writes'},
    callback=function(keys, args) return redis.call(unpack(args)) end}";

const WAYS: [Way; 17] = [
    Way::Direct,
    Way::Direct,
    Way::Direct,
    Way::Direct,
    Way::Direct,
    Way::Direct,
    Way::Declared,
    Way::Undeclared,
    Way::Raised,
    Way::Unread,
    Way::Unread,
    Way::Unlocked,
    Way::Resp3,
    Way::ReadOnly,
    Way::Function,
    Way::ReadOnlyFunction,
    Way::Keys,
];

/// A call with how it travels.
#[derive(Clone)]
struct Step {
    call: Call,
    way: Way,
}

impl Step {
    fn request(&self) -> Call {
        let script: &[u8] = match self.way {
            Way::Direct => return self.call.clone(),
            Way::Keys => {
                let head = [b"COMMAND".to_vec(), b"GETKEYS".to_vec()];
                return head.into_iter().chain(self.call.iter().cloned()).collect();
            }
            Way::Declared | Way::Undeclared | Way::ReadOnly => b"return redis.pcall(unpack(ARGV))",
            Way::Raised => b"return redis.call(unpack(ARGV))",
            Way::Unread => b"redis.call(unpack(ARGV)) redis.pcall(unpack(ARGV)) return 'done'",
            Way::Unlocked => b"--!df flags=disable-atomicity\nreturn redis.pcall(unpack(ARGV))",
            Way::Function => b"tries",
            Way::ReadOnlyFunction => b"reads",
            Way::Resp3 => b"redis.setresp(3) return redis.pcall(unpack(ARGV))",
        };
        let is_key = |word: &&Vec<u8>| KEYS.iter().chain([&LEX]).any(|key| key.as_bytes() == **word);
        let mut keys: Vec<_> = self.call.iter().skip(1).filter(is_key).cloned().collect();
        if !matches!(self.way, Way::Declared | Way::Function) {
            keys.clear();
        }
        let eval = match self.way {
            Way::ReadOnly => "EVAL_RO",
            Way::Function => "FCALL",
            Way::ReadOnlyFunction => "FCALL_RO",
            _ => "EVAL",
        };
        let head = [eval.into(), script.to_vec(), keys.len().to_string().into_bytes()];
        head.into_iter().chain(keys).chain(self.call.iter().cloned()).collect()
    }

    fn shown(&self) -> String {
        let words = self.call.iter().map(|word| {
            let plain = !word.is_empty() && word.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"');
            if word.len() > 200 {
                format!("<{} bytes>", word.len())
            } else if plain {
                word.escape_ascii().to_string()
            } else {
                format!("\"{}\"", word.escape_ascii())
            }
        });
        let words = words.collect::<Vec<_>>().join(" ");
        if matches!(self.way, Way::Direct) { words } else { format!("{words}    ({:?})", self.way) }
    }
}

/// The two servers.
struct Pair {
    ours: Client,
    theirs: Client,
}

/// Where the replies to a sequence part.
struct Difference {
    at: usize,
    ours: Value,
    theirs: Value,
}

impl Pair {
    /// Makes these calls of both, of databases without a key.
    fn first_difference(&mut self, steps: &[Step]) -> Option<Difference> {
        self.replies(steps, 0).err().flatten()
    }

    /// Makes those of these calls that begin at `from` of both: from the first one on of databases without a key, later ones
    /// of what those before have left. Our replies if both agree. What is known ends the search without a difference, as it
    /// may show in all that follows.
    fn replies(&mut self, steps: &[Step], from: usize) -> Result<Vec<Value>, Option<Difference>> {
        let clean = [vec![b"FLUSHALL".to_vec()], vec![b"SELECT".to_vec(), b"0".to_vec()]];
        let clean = if from == 0 { &clean[..] } else { &[] };
        let requests: Vec<Call> =
            clean.iter().cloned().chain(steps[from..].iter().map(Step::request)).collect();
        let (ours, theirs) = std::thread::scope(|scope| {
            let ours = scope.spawn(|| self.ours.pipeline(&requests));
            (ours.join(), self.theirs.pipeline(&requests))
        });
        let mut ours = ours.unwrap_or_else(|_| panic!("no reply to one of\n{}", shown(steps)));
        ours.drain(..clean.len());
        for (at, (ours, theirs)) in (from..).zip(ours.iter().zip(theirs.into_iter().skip(clean.len()))) {
            if !agree(&steps[at], ours, &theirs) {
                let known = is_known(&steps[..=at], ours, &theirs);
                return Err((!known).then(|| Difference { at, ours: ours.clone(), theirs }));
            }
        }
        Ok(ours)
    }

    /// The same as [`Pair::first_difference`], and of what the keys hold then. The calls that this takes are added: which
    /// these are is only known when the types of the keys are.
    fn difference_with_contents(&mut self, steps: &mut Vec<Step>) -> Option<Difference> {
        steps.extend(survey());
        let replies = match self.replies(steps, 0) {
            Ok(replies) => replies,
            Err(found) => return found,
        };
        let from = steps.len();
        steps.extend(inspection(&replies[from - survey().len()..]));
        self.replies(steps, from).err().flatten()
    }

    /// The fewest of these calls that still end in a difference. `None` when it does not come again: then the
    /// clock has struck between the two.
    fn minimal(&mut self, steps: &[Step], found: &Difference) -> Option<(Vec<Step>, Difference)> {
        let mut least = steps[..=found.at].to_vec();
        let mut last = self.first_difference(&least)?;
        least.truncate(last.at + 1);
        let mut width = least.len() / 2;
        while width > 0 {
            let mut end = least.len() - 1;
            while end > 0 {
                let start = end.saturating_sub(width);
                let fewer = [&least[..start], &least[end..]].concat();
                if let Some(difference) = self.first_difference(&fewer) {
                    least = fewer;
                    least.truncate(difference.at + 1);
                    last = difference;
                }
                end = start.min(least.len() - 1);
            }
            width /= 2;
        }
        Some((least, last))
    }
}

fn agree(step: &Step, ours: &Value, theirs: &Value) -> bool {
    let kind = match step.way {
        // Where the other keys of SORT stand, it finds out while it runs, with everything locked.
        Way::Keys if step.call[0].starts_with(b"SORT") => Sameness::Kind,
        Way::Keys => Sameness::Exact,
        // Maps have become tables, which have no order.
        Way::Resp3 if step.call[0].eq_ignore_ascii_case(b"XINFO") => Sameness::Kind,
        _ => sameness(&step.call),
    };
    // A sorted set of Redis keeps the sign of a zero or not, as its size was and whether SORT has seen it.
    let is_zset = step.call[0].starts_with(b"Z");
    let unsigned = |text: String| {
        if is_zset { text.replace("\"-0\"", "\"0\"").replace("-0.0", "0.0") } else { text }
    };
    let [ours, theirs] = [ours, theirs].map(|reply| unsigned(essence(reply, kind)));
    ours == theirs
}

/// Whether the replies to the last of `steps` differ as [`KNOWN`] says: the part is in them, or in what was sorted.
fn is_known(steps: &[Step], ours: &Value, theirs: &Value) -> bool {
    let name = String::from_utf8_lossy(&steps[steps.len() - 1].call[0]).to_ascii_lowercase();
    let texts = [ours, theirs].map(|reply| essence(reply, Sameness::Exact));
    let zeros = steps.iter().flat_map(|step| &step.call).any(|word| word.contains(&0));
    let holds = |part: &str| texts.iter().any(|text| text.contains(part)) || (zeros && part == "\\x00");
    KNOWN.iter().any(|(row, part, _)| (row.is_empty() || *row == name) && holds(part))
}

fn shown(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("  {}", step.shown())).collect::<Vec<_>>().join("\n")
}

/// Steps of calls as written, made directly.
fn direct(lines: &[String]) -> Vec<Step> {
    let words = |line: &String| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    lines.iter().map(|line| Step { call: words(line), way: Way::Direct }).collect()
}

/// Which keys there are, of which types, and when they expire.
fn survey() -> Vec<Step> {
    let mut lines = Vec::new();
    for database in 0..2 {
        lines.extend([format!("SELECT {database}"), "KEYS *".to_owned()]);
        for key in KEYS.into_iter().chain([LEX]) {
            lines.extend(["TYPE", "TTL"].map(|name| format!("{name} {key}")));
        }
    }
    direct(&lines)
}

/// Everything else there is to know about the keys, by the replies to [`survey`].
fn inspection(replies: &[Value]) -> Vec<Step> {
    let mut lines = Vec::new();
    for (step, reply) in survey().iter().zip(replies) {
        let words: Vec<_> = step.call.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let key = words.last().expect("a name");
        match (&*words[0], reply.text().unwrap_or_default()) {
            ("SELECT", _) => lines.push(words.join(" ")),
            ("TYPE", b"string") => lines.push(format!("GET {key}")),
            ("TYPE", b"list") => lines.push(format!("LRANGE {key} 0 -1")),
            ("TYPE", b"set") => lines.push(format!("SMEMBERS {key}")),
            ("TYPE", b"hash") => lines.push(format!("HGETALL {key}")),
            ("TYPE", b"zset") => lines.push(format!("ZRANGE {key} 0 -1 WITHSCORES")),
            ("TYPE", b"stream") => {
                lines.extend([format!("XRANGE {key} - +"), format!("XINFO STREAM {key}")]);
                lines.push(format!("XINFO GROUPS {key}"));
                lines.extend(["g", "h"].map(|group| format!("XPENDING {key} {group}")));
            }
            ("TYPE", kind) => assert_eq!(kind, b"none", "the type of {key}"),
            _ => {}
        }
    }
    direct(&lines)
}

/// A sequence of calls: the same one for the same seed.
fn sequence(seed: u64) -> Vec<Step> {
    let mut chance = Chance::new(seed);
    let mut steps: Vec<Step> =
        generate::start(&mut chance).into_iter().map(|call| Step { call, way: Way::Direct }).collect();
    for _ in 0..SEQUENCE {
        let mut call = generate::call(&mut chance);
        tame(&mut call);
        steps.push(Step { call, way: chance.pick(&WAYS) });
    }
    steps
}

/// Makes the calls that its arguments are: of each whether its result is used, and how many words it has.
const CALLS: &str = "local at, replies = 1, {}
    while ARGV[at] do
        local first, last = at + 2, at + 1 + ARGV[at + 1]
        if ARGV[at] == 'used' then replies[#replies + 1] = redis.pcall(unpack(ARGV, first, last))
        elseif ARGV[at] == 'raised' then redis.call(unpack(ARGV, first, last))
        else redis.pcall(unpack(ARGV, first, last)) end
        at = last + 1
    end
    return replies";

/// A script that makes a few calls and uses hardly any result; some of their keys are declared.
fn script(chance: &mut Chance) -> Call {
    let atomic = chance.percent(75);
    let header = if atomic { "" } else { "--!df flags=disable-atomicity\n" };
    let declared: Vec<&str> = KEYS.into_iter().filter(|_| chance.percent(50)).collect();
    let head = ["EVAL", &format!("{header}{CALLS}"), &declared.len().to_string()].map(|word| word.into());
    let mut words: Call = head.into_iter().chain(declared.into_iter().map(Vec::from)).collect();
    for _ in 0..2 + chance.below(6) {
        let (how, call) = match chance.below(10) {
            0..3 => {
                let name =
                    chance.pick(&["EXISTS", "TYPE", "STRLEN", "LLEN", "SCARD", "HLEN", "ZCARD", "XLEN"]);
                ("used", vec![name.into(), chance.pick(&KEYS).into()])
            }
            // Without atomicity it is told otherwise.
            3 if atomic => ("raised", unread(chance)),
            _ => ("unused", unread(chance)),
        };
        words.extend([how.into(), call.len().to_string().into()]);
        words.extend(call);
    }
    words
}

/// A call whose result nobody reads. Not of those whose outcome is known to differ, nor of one that takes long for large
/// values; rather often of those that have several keys.
fn unread(chance: &mut Chance) -> Call {
    loop {
        let mut call = generate::call(chance);
        tame(&mut call);
        let keys = call.iter().filter(|word| KEYS.iter().any(|key| key.as_bytes() == **word)).count();
        let is_known = KNOWN.iter().any(|(name, ..)| call[0].eq_ignore_ascii_case(name.as_bytes()));
        if !is_known && call[0] != b"LCS" && (keys > 1 || chance.percent(40)) {
            return call;
        }
    }
}

/// Such scripts, where some values are so large that they stay on their store nodes.
fn scripts(seed: u64) -> Vec<Step> {
    let mut chance = Chance::new(seed);
    let mut calls = generate::start(&mut chance);
    let large = vec![b'x'; 70_000];
    for (name, key) in [("APPEND", "str"), ("RPUSH", "lst"), ("SADD", "set")] {
        if chance.percent(40) {
            calls.push(vec![name.into(), key.into(), large.clone()]);
        }
    }
    for _ in 0..SEQUENCE / 5 {
        let in_transaction = chance.percent(25);
        calls.extend(in_transaction.then(|| vec![b"MULTI".to_vec()]));
        calls.push(script(&mut chance));
        calls.extend(in_transaction.then(|| vec![b"EXEC".to_vec()]));
    }
    calls.into_iter().map(|call| Step { call, way: Way::Direct }).collect()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn random_calls_are_answered_as_by_redis(on: Topology) {
    compare(on, sequence);
}

/// Neither what is collected nor where the keys are makes a difference.
fn scripts_of_random_calls_do_what_they_do_in_redis(on: Topology) {
    compare(on, scripts);
}

/// Such sequences, made of both.
fn compare(on: Topology, sequence: fn(u64) -> Vec<Step>) {
    let Some(oracle) = Oracle::start() else { return };
    let servers = [on.start(&[]), on.start(&["--script-auto-async", "always"])];
    let first = setting("MOONSHARD_DIFF_SEED", 1);
    let usual = if on == Topology::Local { CALLS_ON_ONE_PROCESS } else { CALLS_OVER_NODES };
    let sequences = setting("MOONSHARD_DIFF_CALLS", usual) / SEQUENCE as u64;
    let mut pairs: Vec<(Protocol, Pair)> = PROTOCOLS
        .into_iter()
        .zip(&servers)
        .map(|(protocol, server)| {
            let connect = |address| {
                let mut client = Client::connect(address, protocol);
                let loaded = client.call(["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
                assert_eq!(loaded, Value::Bulk(b"ways".to_vec()));
                client
            };
            (protocol, Pair { ours: connect(server.address()), theirs: connect(oracle.address()) })
        })
        .collect();
    let mut report = String::new();
    let mut commands = Vec::new();
    for number in 0..sequences {
        let seed = first.wrapping_mul(1 << 32).wrapping_add(number);
        let (protocol, pair) = &mut pairs[number as usize % PROTOCOLS.len()];
        let mut steps = sequence(seed);
        let Some(found) = pair.difference_with_contents(&mut steps) else { continue };
        let Some((least, last)) = pair.minimal(&steps, &found) else { continue };
        // One of a kind says enough.
        let command = least.iter().map(|step| step.call[0].clone()).collect::<Vec<_>>();
        if commands.contains(&command) {
            continue;
        }
        commands.push(command);
        let (ours, theirs) = (essence(&last.ours, Sameness::Exact), essence(&last.theirs, Sameness::Exact));
        writeln!(
            report,
            "sequence {seed}, {protocol:?}:\n{}\n    Redis {theirs}\n    ours  {ours}",
            shown(&least)
        )
        .expect("a string");
        if commands.len() >= ENOUGH {
            break;
        }
    }
    assert!(commands.is_empty(), "{} differences, seed {first}:\n{report}", commands.len());
}

fn hyperloglogs_of_any_size_are_those_of_redis(on: Topology) {
    let Some(oracle) = Oracle::start() else { return };
    let server = on.start(&[]);
    let [mut ours, mut theirs] =
        [server.address(), oracle.address()].map(|address| Client::connect(address, Protocol::Resp2));
    let mut chance = Chance::new(setting("MOONSHARD_DIFF_SEED", 1));
    let mut both = |call: Call| {
        let request = [call];
        let (ours, theirs) = (ours.pipeline(&request), theirs.pipeline(&request));
        assert_eq!(
            ours,
            theirs,
            "{}",
            request[0].iter().take(3).map(|word| word.escape_ascii().to_string() + " ").collect::<String>()
        );
    };
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Call>();
    for limit in [20, 300, 3000, 10_000] {
        both(words("FLUSHALL"));
        both(words(&format!("CONFIG SET hll-sparse-max-bytes {limit}")));
        for _ in 0..120 {
            let key = chance.pick(&["a", "b", "c", "d"]);
            match chance.below(6) {
                0 => both(words(&format!(
                    "PFMERGE {key} {} {}",
                    chance.pick(&["a", "b", "none"]),
                    chance.pick(&["c", "d"])
                ))),
                1 => both(words(&format!("PFCOUNT {key}"))),
                2 => both(words(&format!("PFCOUNT {key} {} none", chance.pick(&["a", "b", "c", "d"])))),
                _ => {
                    let count = 1 << chance.below(10);
                    let elements = (0..count).map(|_| chance.below(50_000).to_string().into_bytes());
                    let call: Call = words(&format!("PFADD {key}")).into_iter().chain(elements).collect();
                    both(call);
                }
            }
            both(words(&format!("GET {key}")));
        }
    }
}

over_nodes! {
    random_calls_are_answered_as_by_redis,
    scripts_of_random_calls_do_what_they_do_in_redis,
    hyperloglogs_of_any_size_are_those_of_redis,
}
