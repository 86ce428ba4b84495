//! What every command of the engine must keep, whichever comes: a change can be taken back to the byte and to the
//! place, its effects repeat it, a refused call changes nothing, and the byte account is what a recount gives.
//!
//! Calls are made up from the `syntax` of the rows, so a new command is covered as soon as it has a row.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use store_engine::command::{self, lookup};
use store_engine::keyspace::{ENTRY_OVERHEAD, Sticky};
use store_engine::size::allocated;
use store_engine::value::Str;
use store_engine::{
    Args, Command, Ctx, DATABASES, Effects, Entry, Group, Partition, Partitions, Protocol, Reply, Stamp,
    UndoLog, Value, rdb, syntax,
};

const NOW_MS: u64 = 1_000_000_000;

/// Later by so much that some keys have expired.
const LATER_MS: u64 = NOW_MS + 1_000_000;

/// What the names of keys begin with: the type that they mostly have.
const KINDS: [&str; 7] = ["list", "hash", "set", "zset", "string", "hll", "stream"];

/// What RESTORE may be given, before it is sealed; the last is no value.
const PAYLOADS: [&[u8]; 6] = [
    b"\x00\xc0\x0a",
    b"\x01\x02\x01a\x01b",
    b"\x02\x01\x01a",
    b"\x04\x01\x01a\x01b",
    b"\x05\x01\x01a\0\0\0\0\0\0\xf0\x3f",
    b"\x02\x00",
];

/// SplitMix64: one number gives one call, so that a failing case shrinks call by call.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Makes up arguments in the notation of the manual: words in capitals stand for themselves, `[a | b]` may be left
/// out, `<a | b>` may not, and dots at the end of a bracket let it come several times.
struct Author<'c> {
    chance: &'c mut Chance,
    group: Group,
    words: Vec<String>,
}

impl Author<'_> {
    fn sequence(&mut self, tokens: &[String]) {
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            if token == "[" || token == "<" {
                let end = closing(tokens, at);
                self.bracket(&tokens[at + 1..end], token == "[");
                at = end;
            } else if !token.contains(|c: char| c.is_ascii_lowercase()) {
                self.words.push(token.clone());
            } else {
                let word = self.placeholder(token);
                self.words.push(word);
            }
            at += 1;
        }
    }

    fn bracket(&mut self, inner: &[String], optional: bool) {
        let repeats = inner.last().is_some_and(|token| token == "...");
        let inner = if repeats { &inner[..inner.len() - 1] } else { inner };
        let times = match (optional, repeats) {
            (false, _) => 1,
            (true, true) => self.chance.below(4),
            (true, false) => self.chance.below(5) / 3,
        };
        let mut choices = vec![Vec::new()];
        let mut depth = 0;
        for token in inner {
            depth += i32::from(token == "[" || token == "<") - i32::from(token == "]" || token == ">");
            match choices.last_mut() {
                Some(choice) if token != "|" || depth > 0 => choice.push(token.clone()),
                _ => choices.push(Vec::new()),
            }
        }
        for _ in 0..times {
            let choice = self.chance.below(choices.len());
            self.sequence(&choices[choice]);
        }
    }

    fn key(&mut self) -> String {
        // Mostly keys of the command's own type.
        let kind = match self.group {
            Group::List => "list",
            Group::Hash => "hash",
            Group::Set => "set",
            Group::SortedSet | Group::Geo => "zset",
            Group::HyperLogLog => "hll",
            Group::String | Group::Bitmap => "string",
            Group::Stream => "stream",
            _ => self.chance.pick(&KINDS),
        };
        let kind = if self.chance.one_in(12) { "list" } else { kind };
        format!("{kind}{}", self.chance.below(3))
    }

    fn placeholder(&mut self, name: &str) -> String {
        const ELEMENTS: [&str; 14] = [
            "a",
            "b",
            "c",
            "",
            "1",
            "2",
            "3",
            "-7",
            "10",
            "3.5",
            "a longer text that needs a buffer",
            "d",
            "e",
            "f",
        ];
        let chance = &mut *self.chance;
        let number = |chance: &mut Chance, from: i64, to: i64| {
            (from + chance.below((to - from) as usize) as i64).to_string()
        };
        match name {
            "id" | "last-id" | "max_deleted_entry_id" => stream_id(chance),
            // Of XTRIM either a length or an ID.
            "threshold" => match chance.below(3) {
                0 => stream_id(chance),
                _ => number(chance, 0, 12),
            },
            "start" | "end" if self.group == Group::Stream => match chance.below(3) {
                0 => stream_id(chance),
                1 => format!("({}", stream_id(chance)),
                _ => chance.pick(&["-", "+"]).into(),
            },
            "group" | "groupname" => chance.pick(&["g", "h"]).into(),
            "consumer" | "consumername" => chance.pick(&["c", "d", "e"]).into(),
            "min-idle-time" | "ms" => chance.pick(&["0", "0", "5"]).into(),
            "entries_added" | "entries_read" => number(chance, -1, 300),
            "numkeys" => number(chance, 1, 4),
            "key" | "key1" | "key2" | "newkey" | "source" | "sourcekey" | "destination" | "destkey"
            | "dst" | "src" => self.key(),
            "subcommand" => chance.pick(&["ENCODING", "DECODE", "TODENSE", "GETREG"]).into(),
            "encoding" => chance.pick(&["u1", "u4", "u8", "i13", "i64", "u63"]).into(),
            "longitude" | "latitude" => chance.pick(&["0", "12.5", "-80.1", "33.3"]).into(),
            "radius" | "width" | "height" => chance.pick(&["0", "10", "3000", "99999"]).into(),
            "serialized-value" => {
                let mut payload = chance.pick(&PAYLOADS).to_vec();
                rdb::seal(&mut payload);
                payload.into_iter().map(char::from).collect()
            }
            "ttl" => chance.pick(&["0", "100000", "1000100000"]).into(),
            "frequency" => number(chance, 0, 256),
            "seconds" | "milliseconds" => chance.pick(&["100", "5000", "100000", "-1"]).into(),
            "unix-time-seconds" => chance.pick(&["1000100", "1005000"]).into(),
            "unix-time-milliseconds" => chance.pick(&["1000100000", "1000050000"]).into(),
            "db" | "destination-db" | "index1" | "index2" => number(chance, 0, 3),
            "cursor" => "0".into(),
            "pattern" => chance.pick(&["*", "list*", "#", "string*", "hash*->a"]).into(),
            "operation" => chance.pick(&["AND", "OR", "XOR", "NOT"]).into(),
            "bit" => number(chance, 0, 2),
            "timeout" => chance.pick(&["0", "2.5"]).into(),
            "score" | "weight" => chance.pick(&["1", "2.5", "-1", "0", "inf"]).into(),
            "min" | "max" => chance.pick(&["-inf", "+inf", "0", "(1", "2", "[a", "(c", "-", "+"]).into(),
            "type" => chance.pick(&["list", "string"]).into(),
            "increment" | "decrement" | "index" | "count" | "start" | "stop" | "end" | "rank" => {
                number(chance, -4, 8)
            }
            "offset" | "limit" | "len" | "num-matches" | "min-match-len" => number(chance, 0, 40),
            "value" | "element" | "member" | "member1" | "member2" | "field" | "pivot" | "message" => {
                // Few of the long ones are more than is kept packed.
                let long = chance.one_in(12).then(|| format!("{:0>1$}", chance.below(4), 2000));
                let numbered = || {
                    let numbered = chance.one_in(3);
                    numbered.then(|| format!("{}{}", chance.pick(&["m", ""]), chance.below(300)))
                };
                long.or_else(numbered).unwrap_or_else(|| chance.pick(&ELEMENTS).into())
            }
            other => panic!("what may stand for `{other}`? Teach this test"),
        }
    }
}

/// An ID as small as a test's or as those that are made here.
fn stream_id(chance: &mut Chance) -> String {
    match chance.below(6) {
        0 => format!("{}", chance.below(40)),
        1 => format!("{}-{}", chance.below(40), chance.below(3)),
        2 => format!("{NOW_MS}-*"),
        3 => "0".into(),
        _ => format!("{NOW_MS}-{}", chance.below(6)),
    }
}

/// As many IDs as streams, which the syntax cannot say.
fn balance(words: &mut Vec<String>) {
    let Some(at) = words.iter().position(|word| word == "STREAMS") else { return };
    let rest = words.split_off(at + 1);
    let is_key = |word: &&String| KINDS.iter().any(|kind| word.starts_with(kind));
    let keys: Vec<String> = rest.iter().filter(is_key).cloned().collect();
    let mut ids = rest.iter().filter(|word| !is_key(word)).cloned().cycle();
    let of_group = words[0] == "xreadgroup";
    for at in 0..keys.len() {
        ids.next().into_iter().for_each(|id| words.push(id));
        let last = words.len() - 1;
        if of_group && at % 3 != 2 {
            words[last] = ">".into();
        }
    }
    words.splice(at + 1..at + 1, keys);
}

fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(token == "[" || token == "<") - i32::from(token == "]" || token == ">");
        if depth == 0 {
            return at;
        }
    }
    panic!("a bracket of {tokens:?} stays open")
}

/// A call of any command of the table.
fn call_of(number: u64) -> Vec<String> {
    call_like(number, None)
}

/// The same; of a certain command, if `name` is given.
fn call_like(number: u64, name: Option<&str>) -> Vec<String> {
    let mut chance = Chance(number);
    let rows: Vec<&'static Command> = command::all().collect();
    let mut row = chance.pick(&rows);
    // A stream means something only when several of its commands have come together.
    if chance.one_in(4) {
        let streams: Vec<&'static Command> = command::stream::FAMILIES.iter().copied().flatten().collect();
        row = chance.pick(&streams);
    }
    // Emptying everything too often would leave little to look at.
    let row = if row.name.starts_with("flush") && !chance.one_in(4) { rows[0] } else { row };
    let row = name.and_then(|name| command::lookup(name.as_bytes())).unwrap_or(row);
    let mut words = vec![row.name.to_owned()];
    let facts = if row.subcommands.is_empty() {
        row
    } else {
        let subcommand = &row.subcommands[chance.below(row.subcommands.len())];
        words.push(subcommand.name.to_owned());
        subcommand
    };
    let spaced = ["[", "]", "<", ">", "|"]
        .iter()
        .fold(syntax::manual(facts.syntax), |text, mark| text.replace(mark, &format!(" {mark} ")));
    let tokens: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    let mut author = Author { chance: &mut chance, group: row.group, words };
    author.sequence(&tokens);
    let mut words = author.words;
    balance(&mut words);
    if chance.one_in(40) {
        words.pop();
    }
    if words.is_empty() { vec!["dbsize".into()] } else { words }
}

struct Engine {
    partitions: Vec<Partition>,
    seed: u64,
    db: usize,
    now_ms: u64,
    /// Of all calls.
    effects: Effects,
}

/// Of each key its expiry, whether it is sticky, and its elements.
type Meaning = BTreeMap<(usize, Vec<u8>), (Option<NonZeroU64>, bool, Vec<Vec<u8>>)>;

impl Engine {
    fn new() -> Engine {
        let partitions = (0..3).map(|_| Partition::default()).collect();
        Engine { partitions, seed: 1, db: 0, now_ms: NOW_MS, effects: Effects::default() }
    }

    fn all(&mut self) -> Partitions<'_> {
        let total = self.partitions.len();
        Partitions::Some { held: self.partitions.iter_mut().enumerate().collect(), total }
    }

    /// Runs a call; whether it succeeded.
    fn run(&mut self, words: &[String], undo: Option<&mut UndoLog>) -> bool {
        // A character is a byte, so that a payload is a word too.
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.chars().map(|c| c as u8).collect()).collect();
        let items: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let args = Args::new(&items);
        let command = lookup(items[0]).and_then(|row| command::resolve(row, args));
        let Some(command) = command.filter(|command| command.arity.allows(args.len())) else { return false };
        let (mut seed, db, now_ms) = (self.seed, self.db, self.now_ms);
        let mut out = Reply::new(Protocol::Resp3);
        let mut kept = std::mem::take(&mut self.effects);
        let (partitions, effects) = (self.all(), Some(&mut kept));
        let mut ctx =
            Ctx { partitions, db, now_ms, seed: &mut seed, undo, effects, touches: None, out: &mut out };
        let done = ctx.watched(|ctx| (command.run)(ctx, args)).is_ok();
        (self.seed, self.effects) = (seed, kept);
        done
    }

    /// Everything there is, each thing at its place, and every account.
    fn contents(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, partition) in self.partitions.iter().enumerate() {
            for (db, space) in partition.databases.iter().enumerate() {
                if !space.is_empty() {
                    lines.push(format!(
                        "{number}/{db}: {} bytes, {} expiring, {:?}",
                        space.bytes(),
                        space.expiring(),
                        space.sticky()
                    ));
                }
                lines.extend((0..space.len()).filter_map(|at| {
                    let (key, entry) = space.pair_at(at)?;
                    Some(format!(
                        "{number}/{db} {} {} {}",
                        key.escape_ascii(),
                        seen(entry),
                        entry.value.bytes()
                    ))
                }));
            }
        }
        lines
    }

    /// The keys that have not expired, each with its database, value and expiry.
    fn alive(&self) -> BTreeMap<(usize, Vec<u8>), String> {
        let spaces = self.partitions.iter().flat_map(|partition| partition.databases.iter().enumerate());
        let entries = spaces.flat_map(|(db, space)| {
            (0..space.len()).filter_map(|at| space.pair_at(at)).map(move |(key, entry)| (db, key, entry))
        });
        let alive = entries.filter(|(_, _, entry)| !entry.is_expired(self.now_ms));
        alive.map(|(db, key, entry)| ((db, key.to_vec()), seen(entry))).collect()
    }

    /// The same as bytes, which tell nothing of how a value came to be what it is. Elements of sets and hashes,
    /// whose order means nothing, are put in order.
    fn meaning(&self) -> Meaning {
        let spaces = self.partitions.iter().flat_map(|partition| partition.databases.iter().enumerate());
        let entries = spaces.flat_map(|(db, space)| {
            (0..space.len()).filter_map(|at| space.pair_at(at)).map(move |(key, entry)| (db, key, entry))
        });
        let alive = entries.filter(|(_, _, entry)| !entry.is_expired(self.now_ms));
        let elements = |value: &Value| {
            let mut elements = vec![value.type_name().into()];
            match value {
                Value::String(text) => elements.push(text.as_bytes().into_owned()),
                Value::List(list) => elements.extend(list.iter_from(0).map(<[u8]>::to_vec)),
                Value::Hash(hash) => {
                    elements.extend(hash.iter().map(|(field, value)| [field, b"=", value].concat()))
                }
                Value::Set(set) => elements.extend(set.iter().map(|member| member.to_vec())),
                Value::ZSet(zset) => elements.extend(
                    zset.iter_from(0).map(|(member, score)| [&score.to_le_bytes()[..], member].concat()),
                ),
                Value::Stream(stream) => elements.extend(
                    stream
                        .parts()
                        .map(|part| [part.encoded(), stream.part(part).unwrap_or_default()].concat()),
                ),
            }
            if matches!(value, Value::Hash(_) | Value::Set(_)) {
                elements.sort_unstable();
            }
            elements
        };
        alive
            .map(|(db, key, entry)| {
                ((db, key.to_vec()), (entry.expire_at_ms, entry.sticky, elements(&entry.value)))
            })
            .collect()
    }

    /// What the effects of all calls make of nothing.
    fn repeated(&self) -> Engine {
        let mut engine = Engine::new();
        engine.now_ms = self.now_ms;
        for effect in Effects::read(self.effects.as_bytes()) {
            let (db, key, effect) = effect.expect("well formed");
            effect.apply(db, key, &mut engine.all()).expect("well formed");
        }
        engine
    }

    /// Watches every key that calls use; the flags are raised when they change.
    fn watch(&mut self) -> BTreeMap<(usize, Vec<u8>), Arc<AtomicBool>> {
        let mut flags = BTreeMap::new();
        for db in 0..DATABASES {
            for (kind, number) in KINDS.iter().flat_map(|kind| (0..3).map(move |number| (kind, number))) {
                let (key, flag) = (format!("{kind}{number}").into_bytes(), Arc::new(AtomicBool::new(false)));
                self.partitions.iter_mut().for_each(|part| part.watch(db, &key, flag.clone()));
                flags.insert((db, key), flag);
            }
        }
        flags
    }

    /// Sweeps until nothing may have expired, and checks that nothing has.
    fn sweep(&mut self) {
        let mut removed = Vec::new();
        for space in self.partitions.iter_mut().flat_map(|partition| &mut partition.databases) {
            while space.sweep(self.now_ms, |_| false, &mut removed) {}
            let mut entries = (0..space.len()).filter_map(|at| space.pair_at(at));
            assert!(entries.all(|(_, entry)| !entry.is_expired(self.now_ms)));
        }
        assert!(removed.iter().all(|(_, entry)| entry.is_expired(self.now_ms)));
    }

    /// Compares every account with a new count.
    fn recount(&self) {
        for space in self.partitions.iter().flat_map(|partition| &partition.databases) {
            let entries = || (0..space.len()).filter_map(|at| space.pair_at(at));
            let bytes =
                |key: &[u8], entry: &Entry| ENTRY_OVERHEAD + allocated(key.len()) + entry.value.bytes();
            assert_eq!(space.bytes(), entries().map(|(key, entry)| bytes(key, entry)).sum::<usize>());
            let sticky = || entries().filter(|(_, entry)| entry.sticky);
            let sticky = Sticky {
                keys: sticky().count(),
                bytes: sticky().map(|(key, entry)| bytes(key, entry)).sum(),
                expiring: sticky().filter(|(_, entry)| entry.expire_at_ms.is_some()).count(),
            };
            assert_eq!(space.sticky(), sticky);
            assert_eq!(space.expiring(), entries().filter(|(_, entry)| entry.expire_at_ms.is_some()).count());
            for (key, entry) in entries() {
                assert_eq!(entry.value.bytes(), bytes_of_copy(&entry.value), "{}", key.escape_ascii());
            }
        }
    }
}

fn is_raised(flag: &Arc<AtomicBool>) -> bool {
    flag.load(Ordering::Relaxed)
}

/// What has to be restored of an entry: all but when it was used.
fn seen(entry: &Entry) -> String {
    format!("{:?}", Entry { stamp: Stamp::default(), ..entry.clone() })
}

/// What the same value takes when it is made anew, element by element.
fn bytes_of_copy(value: &Value) -> usize {
    let mut engine = Engine::new();
    let mut add = |name: &[u8], rest: &[&[u8]]| {
        let items = [&[name, &b"k"[..]], rest].concat();
        let (mut seed, mut out) = (1, Reply::new(Protocol::Resp2));
        let partitions = engine.all();
        let mut ctx = Ctx {
            partitions,
            db: 0,
            now_ms: 1,
            seed: &mut seed,
            undo: None,
            effects: None,
            touches: None,
            out: &mut out,
        };
        let done = lookup(name).map(|command| (command.run)(&mut ctx, Args::new(&items)));
        assert_eq!(done, Some(Ok(())));
    };
    match value {
        Value::String(Str::Int(_)) => return 0,
        // Spare capacity counts, so a string's bytes are no matter of its content alone.
        Value::String(Str::Raw(bytes)) => return allocated(bytes.capacity()),
        Value::List(list) => list.iter_from(0).for_each(|element| add(b"rpush", &[element])),
        Value::Hash(hash) => hash.iter().for_each(|(field, value)| add(b"hset", &[field, value])),
        Value::Set(set) => set.iter().for_each(|member| add(b"sadd", &[&member])),
        Value::Stream(_) => add(b"restore", &[b"0", &rdb::dump(value)]),
        Value::ZSet(zset) => {
            zset.iter_from(0)
                .for_each(|(member, score)| add(b"zadd", &[score.to_string().as_bytes(), member]));
        }
    }
    let spaces = engine.partitions.iter().map(|partition| &partition.databases[0]);
    spaces.filter_map(|space| space.pair_at(0)).map(|(_, entry)| entry.value.bytes()).sum()
}

fn calls(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_taken_back_was_never_there(before in calls(60), inside in calls(60)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let wanted = engine.contents();
        let mut log = UndoLog::default();
        let mut told = Vec::new();
        for call in &inside {
            let words = call_of(*call);
            engine.db = (call >> 60) as usize % 8 / 6;
            engine.run(&words, Some(&mut log));
            told.push(words);
        }
        log.roll_back(&mut engine.all());
        prop_assert_eq!(engine.contents(), wanted, "after taking back {:?}", told);
    }

    /// A key that has expired may be removed at any time, and stays so.
    #[test]
    fn what_is_taken_back_was_never_there_though_keys_expire(before in calls(60), inside in calls(60)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        engine.now_ms = LATER_MS;
        let wanted = engine.alive();
        let mut log = UndoLog::default();
        for call in &inside {
            engine.db = (call >> 60) as usize % 8 / 6;
            engine.run(&call_of(*call), Some(&mut log));
        }
        log.roll_back(&mut engine.all());
        prop_assert_eq!(engine.alive(), wanted.clone());
        engine.sweep();
        prop_assert_eq!(engine.alive(), wanted);
        engine.recount();
    }

    /// Effects repeat what happened; those of a transaction that was taken back are cut off.
    #[test]
    fn effects_repeat_what_was_done(first in calls(60), undone in calls(20), last in calls(60)) {
        let mut engine = Engine::new();
        for (part, calls) in [first, undone, last].iter().enumerate() {
            let (mark, mut log) = (engine.effects.mark(), UndoLog::default());
            for call in calls {
                engine.db = (call >> 60) as usize % 8 / 6;
                engine.run(&call_of(*call), Some(&mut log));
            }
            if part == 1 {
                log.roll_back(&mut engine.all());
                engine.effects.truncate(mark);
                engine.now_ms = LATER_MS;
            }
        }
        let repeated = engine.repeated();
        prop_assert_eq!(repeated.meaning(), engine.meaning());
        repeated.recount();
    }

    /// Hostile or damaged bytes are refused or mean something; they never panic.
    #[test]
    fn damaged_effects_do_no_harm(calls in calls(40), damage in prop::collection::vec(any::<(usize, u8)>(), 1..4)) {
        let mut engine = Engine::new();
        for call in &calls {
            engine.run(&call_of(*call), None);
        }
        let mut bytes = engine.effects.as_bytes().to_vec();
        for (at, byte) in damage {
            if let Some(len) = std::num::NonZeroUsize::new(bytes.len()) {
                bytes[at % len] = byte;
            }
        }
        let mut engine = Engine::new();
        for effect in Effects::read(&bytes) {
            let Ok((db, key, effect)) = effect else { break };
            if effect.apply(db, key, &mut engine.all()).is_err() {
                break;
            }
        }
    }

    /// Whoever watches a key hears of every change that stays, and not before.
    #[test]
    fn watchers_hear_of_changes(before in calls(40), inside in calls(6), alone in any::<bool>()) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let (mut log, old) = (UndoLog::default(), engine.alive());
        let (flags, mut told) = (engine.watch(), Vec::new());
        for call in &inside {
            told.push(call_of(*call));
            engine.run(&told[told.len() - 1], (!alone).then_some(&mut log));
        }
        let new = engine.alive();
        prop_assert!(alone || !flags.values().any(is_raised), "too early of {:?}", told);
        log.tell_watchers();
        for (name, flag) in &flags {
            let (old, new) = (old.get(name), new.get(name));
            prop_assert!(old == new || is_raised(flag), "{:?}: {:?} → {:?} by {:?}", name, old, new, told);
        }
    }

    /// What is taken back was never there for those who watch, whenever they came; and they go on watching.
    #[test]
    fn watchers_do_not_hear_of_what_is_taken_back(before in calls(40), inside in calls(6), more in calls(6)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let early = engine.watch();
        let mut whole = UndoLog::default();
        for calls in [&inside, &more] {
            let mut part = UndoLog::default();
            for call in calls {
                engine.run(&call_of(*call), Some(&mut part));
            }
            whole.append(part);
        }
        let late = engine.watch();
        whole.roll_back(&mut engine.all());
        prop_assert!(!early.values().chain(late.values()).any(is_raised));
        for (db, key) in early.keys() {
            engine.db = *db;
            engine.run(&["del".to_owned(), String::from_utf8_lossy(key).into_owned()], None);
            engine.run(&["set".to_owned(), String::from_utf8_lossy(key).into_owned(), "v".to_owned()], None);
        }
        prop_assert!(early.values().chain(late.values()).all(is_raised));
    }

    #[test]
    fn a_refused_call_changes_nothing_and_every_account_is_true(inside in calls(80)) {
        let mut engine = Engine::new();
        for call in &inside {
            let words = call_of(*call);
            let before = engine.contents();
            engine.db = (call >> 60) as usize % 8 / 6;
            if !engine.run(&words, None) {
                prop_assert_eq!(engine.contents(), before, "{:?}", words);
            }
        }
        engine.recount();
        for db in 0..DATABASES {
            engine.db = db;
            engine.run(&["flushdb".into()], None);
        }
        prop_assert!(engine.contents().is_empty());
    }
}

#[test]
fn most_calls_made_up_here_are_good_ones() {
    let mut engine = Engine::new();
    let mut chance = Chance(1);
    let done = (0..5_000).filter(|_| engine.run(&call_of(chance.below(usize::MAX) as u64), None)).count();
    assert!(done > 3_000, "only {done} of 5000 calls were good");
}

/// So that nothing above is true only because a command never does anything here.
#[test]
fn every_write_command_changes_something_here() {
    let mut engine = Engine::new();
    let mut chance = Chance(1);
    let writes = command::all().filter(|row| row.is_write());
    let mut idle: BTreeSet<String> = writes.map(|row| row.name.to_owned()).collect();
    assert!(idle.len() > 50, "{idle:?}");
    for turn in 0..150_000 {
        // Those that seldom find what they change are tried more often.
        let name = idle.iter().nth(turn / 2 % idle.len()).filter(|_| turn % 2 == 1);
        let words = call_like(chance.below(usize::MAX) as u64, name.map(String::as_str));
        let before = engine.contents();
        let mut log = UndoLog::default();
        engine.run(&words, Some(&mut log));
        if engine.contents() == before {
            continue;
        }
        log.roll_back(&mut engine.all());
        assert_eq!(engine.contents(), before, "after taking back {words:?}");
        engine.run(&words, None);
        idle.remove(&words[0]);
        if idle.is_empty() {
            return;
        }
    }
    panic!("these never changed anything: {idle:?}");
}
