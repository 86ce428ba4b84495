//! What holds for every input of the engine. Shared by the fuzz targets, each of which calls the function of its name, and
//! by the test that CI runs, `store/engine/tests/fuzz_seeds.rs`.

use store_engine::keyspace::ENTRY_OVERHEAD;
use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::rdb::{Dialect, Payload, Version};
use store_engine::size::allocated;
use store_engine::value::Json;
use store_engine::value::json::{Path as JsonPath, parse, printed, select};
use store_engine::{
    Args, Ctx, Effects, Entry, Partition, Partitions, Protocol, Reply, Stamp, UndoLog, Value, Work, command,
    glob as globs, hyperloglog as registers, rdb,
};

const NOW_MS: u64 = 1_000_000_000;
/// More calls than that find nothing new, only later.
const MOST_CALLS: usize = 40;

type Call = Vec<Vec<u8>>;

/// Calls as text: one in a line, words with blanks between, `\xff` for any byte.
pub fn calls(text: &[u8]) {
    let lines = text.split(|byte| *byte == b'\n').take(MOST_CALLS);
    let words = |line: &[u8]| {
        line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(unescaped).collect()
    };
    let calls: Vec<Call> =
        lines.map(words).filter(|call: &Call| !call.is_empty() && !is_huge(call)).collect();
    check(&calls);
}

fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = word;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.strip_prefix(b"x").and_then(|behind| behind.get(..2));
        let digits = digits.filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

/// Whether a call rightly makes a value or a reply so large that nothing else would be tried.
fn is_huge(call: &Call) -> bool {
    let name = call[0].to_ascii_lowercase();
    let grows = [&b"setrange"[..], b"setbit", b"bitfield"].contains(&&*name);
    let draws = name.ends_with(b"randmember") || name.ends_with(b"randfield");
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<i64>().ok();
    call[1..].iter().any(|word| {
        let number = number(word.strip_prefix(b"#").unwrap_or(word));
        number.is_some_and(|number| {
            grows && (100_000..=i64::from(u32::MAX)).contains(&number) || draws && number < -100_000
        })
    })
}

/// A body of DUMP: what is taken for a value is one, with which all commands can do whatever they do.
pub fn restore(body: &[u8]) {
    for version in [Version::Redis7_4, Version::Valkey9_0] {
        // Below 22 a kind means the same to both.
        if version == Version::Valkey9_0 && body.first().is_none_or(|kind| *kind < 22) {
            continue;
        }
        if let Ok(value) = rdb::load(Payload { body, dialect: version.dialect() }, &Work::unlimited()) {
            same_again(&value);
        }
        let mut payload = body.to_vec();
        rdb::seal_as(version, &mut payload);
        let mut calls: Vec<Call> = vec![vec![b"restore".into(), b"k".into(), b"0".into(), payload]];
        let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Call>();
        calls.extend(ON_ANYTHING.iter().map(words));
        check(&calls);
    }
}

/// Of which those that are for another type are refused.
const ON_ANYTHING: &[&str] = &[
    "object encoding k",
    "memory usage k",
    "copy k other",
    "getrange k -3 -1",
    "append k x",
    "incr k",
    "bitcount k",
    "pfcount k",
    "lrange k 0 -1",
    "lpush k x",
    "rpop k",
    "lset k 0 y",
    "lrem k 0 a",
    "ltrim k 1 -2",
    "hgetall k",
    "hset k f v",
    "hdel k a",
    "hscan k 0",
    "smembers k",
    "sadd k 7 x",
    "srem k 1",
    "spop k 2",
    "zrange k 0 -1 withscores",
    "zadd k 1.5 m",
    "zrangebyscore k -inf +inf",
    "zrank k m",
    "zpopmin k",
    "geosearch k fromlonlat 1 1 byradius 9000 km",
    "xrange k - +",
    "xrevrange k + - count 3",
    "xinfo stream k full",
    "xinfo groups k",
    "xpending k g - + 9",
    "xreadgroup group g c count 2 streams k >",
    "xautoclaim k g d 0 0",
    "xadd k * f v",
    "xdel k 1-1",
    "xtrim k maxlen 2",
    "json.get k $..*",
    "json.resp k",
    "json.debug memory k $..*",
    "json.numincrby k $..* 1",
    "json.toggle k $..*",
    "json.strappend k $..* \"x\"",
    "json.arrappend k $..* [1]",
    "json.arrpop k $..* 0",
    "json.merge k $..* {\"a\":null,\"b\":{\"c\":1}}",
    "json.clear k $..a",
    "json.del k $..b",
    "json.set k $.new 1",
    "sort k alpha",
    "dump k",
    "rename k other",
    "del other",
];

/// A whole file of Redis, event by event.
pub fn rdb_file(bytes: &[u8]) {
    let Ok(reader) = RdbReader::new(bytes) else { return };
    for event in reader {
        match event {
            Ok(RdbItem::Key { entry, .. }) => same_again(&entry.value),
            Ok(_) => {}
            Err(_) => break,
        }
    }
}

/// A string that is taken for a HyperLogLog.
pub fn hyperloglog(text: &[u8]) {
    let set = vec![b"set".to_vec(), b"h".to_vec(), text.to_vec()];
    let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Call>();
    let lines =
        ["pfcount h", "pfadd h a b c", "pfcount h", "pfmerge d h", "pfcount d h", "pfmerge h d", "pfadd d e"];
    check(&[vec![set], lines.iter().map(words).collect()].concat());
    if registers::encoding(text).is_some() {
        let (mut dense, before) = (text.to_vec(), registers::count(text));
        if registers::make_dense(&mut dense).is_ok() {
            assert_eq!(registers::count(&dense), before, "of {}", text.escape_ascii());
        }
    }
}

/// A path and, in the next line, a document: whatever the path selects is at the place that is said to be its, no value is
/// selected twice, and the work is bounded.
pub fn json_path(input: &[u8]) {
    let mut lines = input.splitn(2, |byte| *byte == b'\n');
    let (path, text) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let work = Work::unlimited();
    let (Ok(path), Ok(root)) = (JsonPath::parse(path), parse(text, &work)) else { return };
    assert_eq!(parse(printed(&root).as_bytes(), &work).as_ref(), Ok(&root), "printed and read");
    // Filters in filters look at every value for every value; without them each segment looks at each once.
    let is_plain = !path.text.contains('?');
    let (json, work) = (Json::new(root.clone()), Work::unlimited());
    let matches = select(&path.segments, &root, &work).expect("nothing ends the work");
    let mut places = matches.places();
    for (place, found) in places.iter().zip(&matches.found) {
        assert_eq!(json.node(place), Some(found.node), "{place:?} of {}", path.text);
    }
    places.sort_unstable();
    assert!(places.windows(2).all(|two| two[0] != two[1]), "{} selects something twice", path.text);
    let values = text.len() as u64 + 1;
    let selectors = path.segments.iter().map(|segment| segment.selectors.len() as u64).sum::<u64>();
    assert!(!is_plain || work.steps() <= 8 * values * (1 + selectors * selectors), "{} steps", work.steps());
}

/// A pattern and, in the next line, a text.
pub fn glob(input: &[u8]) {
    let mut lines = input.splitn(2, |byte| *byte == b'\n');
    let (pattern, text) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if pattern.len() * text.len() < 1 << 20 {
        let position = || format!("{} on {}", pattern.escape_ascii(), text.escape_ascii());
        assert_eq!(globs::matches(pattern, text), matches_by_table(pattern, text), "{}", position());
    }
}

/// The same as a table of which beginnings match: slow, and easy to be sure of.
fn matches_by_table(mut pattern: &[u8], text: &[u8]) -> bool {
    // Whether the text up to each place is matched by the pattern so far.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    while let Some((&first, rest)) = pattern.split_first() {
        if first == b'*' {
            pattern = rest;
            let start = reached.iter().position(|reached| *reached).unwrap_or(reached.len());
            reached[start..].fill(true);
            continue;
        }
        let mut accepted = [false; 256];
        pattern = match (first, rest) {
            (b'?', _) => {
                accepted.fill(true);
                rest
            }
            (b'\\', [byte, rest @ ..]) => {
                accepted[usize::from(*byte)] = true;
                rest
            }
            (b'[', _) => class(rest, &mut accepted),
            _ => {
                accepted[usize::from(first)] = true;
                rest
            }
        };
        for place in (0..text.len()).rev() {
            reached[place + 1] = reached[place] && accepted[usize::from(text[place])];
        }
        reached[0] = false;
    }
    reached[text.len()]
}

/// What a class accepts; what is behind it. The pattern's end closes it, too.
fn class<'p>(inside: &'p [u8], accepted: &mut [bool; 256]) -> &'p [u8] {
    let mut rest = inside.strip_prefix(b"^").unwrap_or(inside);
    let negated = rest.len() < inside.len();
    let behind = loop {
        rest = match rest {
            [] => break rest,
            [b']', rest @ ..] => break rest,
            [b'\\', byte, rest @ ..] => {
                accepted[usize::from(*byte)] = true;
                rest
            }
            [one, b'-', other, rest @ ..] => {
                accepted[usize::from(*one.min(other))..=usize::from(*one.max(other))].fill(true);
                rest
            }
            [byte, rest @ ..] => {
                accepted[usize::from(*byte)] = true;
                rest
            }
        };
    };
    accepted.iter_mut().for_each(|accepted| *accepted ^= negated);
    behind
}

/// What a journal or another node says has been changed. What is malformed is refused.
pub fn effects(bytes: &[u8]) {
    let mut engine = Engine::default();
    for effect in Effects::read(bytes) {
        let Ok((db, key, effect)) = effect else { break };
        if effect.apply(db, key, &mut Partitions::One(&mut engine.partition)).is_err() {
            break;
        }
    }
    engine.recount();
    // A few bytes may rightly make a string of 512 MB, which would be all that is tried for a while.
    if engine.partition.bytes() > 1 << 24 {
        return;
    }
    // What is cut off may end where a collection is about to be removed, and numbers may be none that commands make;
    // but what DUMP makes of it is a value like others.
    for (_, entry) in engine.entries() {
        let payload = rdb::dump(&entry.value, Dialect::Valkey);
        if let Ok(value) = rdb::load(rdb::unseal(&payload).expect("our own seal"), &Work::unlimited()) {
            same_again(&value);
        }
    }
}

/// A value survives DUMP and RESTORE.
fn same_again(value: &Value) {
    for reader in [Dialect::Redis, Dialect::Valkey] {
        let payload = rdb::dump(value, reader);
        let again = rdb::load(rdb::unseal(&payload).expect("our own seal"), &Work::unlimited());
        assert_eq!(meaning(&again.expect("what DUMP gives can be restored")), meaning(value));
    }
}

/// Calls do not panic; what they change is taken back as if it never was; and their effects repeat it.
fn check(calls: &[Call]) {
    let mut engine = Engine::default();
    let (first, second) = calls.split_at(calls.len() / 2);
    first.iter().for_each(|call| engine.run(call, None));
    let (before, seed, position) = (engine.contents(), engine.seed, engine.effects.mark());
    let mut log = UndoLog::default();
    second.iter().for_each(|call| engine.run(call, Some(&mut log)));
    engine.recount();
    log.roll_back(&mut Partitions::One(&mut engine.partition));
    assert_eq!(engine.contents(), before, "after taking back");
    engine.effects.truncate(position);
    engine.seed = seed;
    second.iter().for_each(|call| engine.run(call, None));
    engine.recount();

    let mut repeated = Engine::default();
    for effect in Effects::read(engine.effects.as_bytes()) {
        let (db, key, effect) = effect.expect("well formed");
        effect.apply(db, key, &mut Partitions::One(&mut repeated.partition)).expect("well formed");
    }
    assert_eq!(repeated.meaning(), engine.meaning(), "repeated");
}

struct Engine {
    partition: Partition,
    seed: u64,
    effects: Effects,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine { partition: Partition::default(), seed: 1, effects: Effects::default() }
    }
}

impl Engine {
    fn run(&mut self, call: &Call, undo: Option<&mut UndoLog>) {
        let words: Vec<&[u8]> = call.iter().map(|word| &**word).collect();
        let args = Args::new(&words);
        let row = command::lookup(&words[0].to_ascii_lowercase()).and_then(|row| command::resolve(row, args));
        let Some(row) = row.filter(|row| row.arity.allows(args.len())) else { return };
        let mut out = Reply::new(Protocol::Resp3);
        let mut ctx = Ctx {
            partitions: Partitions::One(&mut self.partition),
            db: 0,
            now_ms: NOW_MS,
            seed: &mut self.seed,
            undo,
            effects: Some(&mut self.effects),
            key_actions: None,
            work: &Work::unlimited(),
            out: &mut out,
        };
        // Errors are replies, too.
        let _ = (row.run)(&mut ctx, args);
    }

    fn entries(&self) -> impl Iterator<Item = (Vec<u8>, &Entry)> {
        let spaces = self.partition.databases.iter();
        let pairs = spaces.flat_map(|space| (0..space.len()).filter_map(|at| space.pair_at(at)));
        pairs.map(|(key, entry)| (key.to_vec(), entry))
    }

    /// What has not expired: what has is gone for good whenever somebody comes upon it.
    fn alive(&self) -> impl Iterator<Item = (Vec<u8>, &Entry)> {
        self.entries().filter(|(_, entry)| !entry.is_expired(NOW_MS))
    }

    fn contents(&self) -> Vec<String> {
        let seen = |(key, entry): (Vec<u8>, &Entry)| {
            let entry = Entry { stamp: Stamp::default(), ..entry.clone() };
            format!("{} {entry:?} {}", key.escape_ascii(), entry.value.bytes())
        };
        let mut all: Vec<String> = self.alive().map(seen).collect();
        all.sort_unstable();
        all
    }

    fn meaning(&self) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut all: Vec<_> = self.alive().map(|(key, entry)| (key, meaning(&entry.value))).collect();
        all.sort_unstable();
        all
    }

    /// Compares the account of bytes with a new count.
    fn recount(&self) {
        let of =
            |(key, entry): (Vec<u8>, &Entry)| ENTRY_OVERHEAD + allocated(key.len()) + entry.value.bytes();
        assert_eq!(self.partition.bytes(), self.entries().map(of).sum::<usize>());
    }
}

/// A value as bytes, which tell nothing of how it came to be what it is.
fn meaning(value: &Value) -> Vec<Vec<u8>> {
    let mut elements: Vec<Vec<u8>> = match value {
        Value::String(text) => vec![text.as_bytes().into_owned()],
        Value::List(list) => list.iter_from(0).map(<[u8]>::to_vec).collect(),
        Value::Hash(hash) => {
            let expiry = |field| hash.expiry(field).map_or(0, |at| at.get()).to_le_bytes();
            hash.iter().map(|(field, value)| [&expiry(field)[..], field, b"=", value].concat()).collect()
        }
        Value::Set(set) => set.iter().map(|member| member.to_vec()).collect(),
        Value::ZSet(zset) => {
            zset.iter_from(0).map(|(member, score)| [&score.to_le_bytes()[..], member].concat()).collect()
        }
        Value::Stream(stream) => {
            let part = |part: store_engine::value::stream::Part<'_>| stream.part(part).unwrap_or_default();
            stream.parts().map(|name| [name.encoded(), part(name)].concat()).collect()
        }
        Value::Json(json) => vec![printed(json.root()).into_bytes()],
    };
    if matches!(value, Value::Hash(_) | Value::Set(_)) {
        elements.sort_unstable();
    }
    elements.push(value.type_name().into());
    elements
}
