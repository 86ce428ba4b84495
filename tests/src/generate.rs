//! Random calls of the engine's commands, written after the syntax of their rows: most make sense, some do not.

use store_engine::spec::{Command, Group};
use store_engine::{command, rdb, syntax};

/// A call: its words.
pub type Call = Vec<Vec<u8>>;

/// The keys that calls use, named after the type they start with.
pub const KEYS: [&str; 10] = ["str", "num", "lst", "hsh", "set", "zst", "hll", "geo", "stm", "new"];

/// A sorted set that always has equal scores. With others, what lies between two texts is not defined.
pub const LEX: &str = "lex";

/// The one of [`KEYS`] that starts with places.
pub const PLACES: &str = "geo";

/// What the keys hold in the beginning.
const START: [&str; 15] = [
    "MSET str text num 10 w_a 3 w_b 1 w_c 2",
    "RPUSH lst a b 10 c a -5",
    "HSET hsh a 1 b text 10 3.5",
    "SADD set 1 10 -5 3",
    "ZADD zst 1 a 2 b 2 c 3.5 10 -inf d",
    "PFADD hll a b 10",
    "GEOADD geo 13.361389 38.115556 a 15.087269 37.502669 b 2.35 48.85 c 179.9 -10 d -179.9 -10.1 10",
    "EXPIRE str 70000",
    "EXPIRE lst 80000",
    "SET new 1 EXAT 1",
    "ZADD lex 0 a 0 b 0 c 0 ab 0 A 0 1 0 10 0 text",
    "XADD stm 1-1 a 1 b text",
    "XADD stm 1-2 a 10 b -5",
    "XADD stm 2-0 c 1",
    "XGROUP CREATE stm g 0",
];

/// Numbers at which something changes, and what is hardly one.
const EDGES: [&str; 32] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "-9223372036854775807",
    "18446744073709551616",
    "9007199254740992",
    "9007199254740993",
    "4294967296",
    "2147483648",
    "-2147483649",
    "1e300",
    "1e17",
    "-1e-5",
    "3.99",
    "0.1",
    "nan",
    "inf",
    "-inf",
    "+inf",
    "-0",
    "+1",
    " 1",
    "1 ",
    "01",
    "0x10",
    "1e5",
    "",
    "text",
];

/// Elements, fields, members and values.
const TEXTS: [&str; 12] = ["a", "b", "c", "d", "1", "10", "-5", "3.5", "", "text", "a\0\r\nb", "A"];

const PATTERNS: [&str; 14] =
    ["*", "a*", "?", "[a-c]", "[^a]", "\\*", "w_*", "hsh->*", "hsh->a", "#", "nosort", "str", "*->a", "[z-"];

const RANGE_ENDS: [&str; 14] =
    ["-inf", "+inf", "0", "1", "(1", "2", "(2", "-5", "[a", "(b", "-", "+", "[", "(3.5"];

/// What RESTORE may be given, before it is sealed. The last ones are no values.
const PAYLOADS: [&[u8]; 8] = [
    b"\x00\xc0\x0a",
    b"\x01\x02\x01a\x01b",
    b"\x02\x01\x01a",
    b"\x04\x01\x01a\x01b",
    b"\x05\x01\x01a\0\0\0\0\0\0\xf0\x3f",
    b"\x0b\x0a\x02\0\0\0\x01\0\0\0\x0a\0",
    b"\x02\x00",
    b"\x02\x02\x01a\x01a",
];

/// Commands and subcommands that Redis does not know, answers with numbers of its own, or takes long for.
const OURS: [&str; 24] = [
    "stick",
    "unstick",
    "sticky",
    "memory",
    "pfselftest",
    "delex",
    "delifeq",
    "digest",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "increx",
    "msetex",
    "xackdel",
    "xdelex",
];
/// The same of options, as they stand in a syntax.
const OUR_OPTIONS: [&str; 6] = [
    " [STICK]",
    " [CLAIM min-idle-time]",
    " [WITHSCORE]",
    " [NOVALUES]",
    " | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest",
    " [KEEPREF | DELREF | ACKED]",
];

/// A source of chance that gives the same again for the same seed (SplitMix64).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    /// One that starts here.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// True this many times of a hundred.
    pub fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The calls that give the keys their first values; sometimes many, which Redis keeps otherwise than few.
pub fn start(chance: &mut Chance) -> Vec<Call> {
    let split = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let mut calls: Vec<Call> = START.iter().map(|line| split(line)).collect();
    for (name, key) in [("RPUSH", "lst"), ("SADD", "set"), ("HSET", "hsh"), ("ZADD", "zst"), ("PFADD", "hll")]
    {
        if chance.percent(15) {
            let values = (0..300).map(|_| chance.below(1000).to_string().into_bytes());
            calls.push([name.into(), key.into()].into_iter().chain(values).collect());
        }
    }
    if chance.percent(15) {
        let mut call = split("GEOADD geo");
        for member in 0..300 {
            let (longitude, latitude) = (chance.below(360_000), chance.below(170_000));
            call.extend(split(&format!(
                "{} {} {member}",
                longitude as f64 / 1e3 - 180.0,
                latitude as f64 / 1e3 - 85.0
            )));
        }
        calls.push(call);
    }
    calls
}

/// A call of any command of the table.
pub fn call(chance: &mut Chance) -> Call {
    let theirs = |row: &&'static Command| !OURS.contains(&row.name) && row.group != Group::Json;
    let rows: Vec<&'static Command> = command::all().filter(theirs).collect();
    let mut row = chance.pick(&rows);
    // Emptying everything too often would leave little to look at.
    while (row.name.starts_with("flush") || row.name == "swapdb") && !chance.percent(10) {
        row = chance.pick(&rows);
    }
    // A stream means something only when several of its commands have come together.
    if chance.percent(12) {
        let streams: Vec<&'static Command> =
            command::all().filter(theirs).filter(|row| row.group == Group::Stream).collect();
        row = chance.pick(&streams);
    }
    let mut words = vec![row.name.to_ascii_uppercase().into_bytes()];
    let mut spec = row;
    if !row.subcommands.is_empty() {
        let subcommands: Vec<&'static Command> = row.subcommands.iter().filter(theirs).collect();
        spec = chance.pick(&subcommands);
        words.push(spec.name.to_ascii_uppercase().into_bytes());
    }
    let mut author = Author { chance, row, words, numkeys: None, keys: 0 };
    author.sequence(&tokens(&syntax::manual(spec.syntax)));
    let mut words = author.finished();
    balance(chance, &mut words);
    if chance.percent(12) {
        spoil(chance, &mut words);
    }
    if words[0].starts_with(b"XREAD") {
        // An ID of later versions.
        words.iter_mut().filter(|word| **word == b"+").for_each(|word| *word = b"-".to_vec());
    }
    words
}

/// As many IDs as streams, which the syntax cannot say.
fn balance(chance: &mut Chance, words: &mut Call) {
    if !words[0].starts_with(b"XREAD") {
        return;
    }
    let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case(b"STREAMS")) else { return };
    let rest = words.split_off(at + 1);
    let (keys, ids): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|word| KEYS.iter().any(|key| key.as_bytes() == *word));
    let count = keys.len();
    words.extend(keys);
    let new: &[u8] = if words[0].len() > 5 { b">" } else { b"$" };
    for id in ids.into_iter().cycle().take(count) {
        words.push(if chance.percent(40) { new.to_vec() } else { id });
    }
}

/// Takes a word away, adds one, or puts another in its place.
fn spoil(chance: &mut Chance, words: &mut Call) {
    let at = 1 + chance.below(words.len());
    let word = match chance.below(4) {
        0 => chance.pick(&["NX", "XX", "GT", "GET", "LIMIT", "COUNT", "EX", "KEEPTTL", "WITHSCORES", "REV"]),
        1 => chance.pick(&KEYS),
        _ => chance.pick(&EDGES),
    };
    match chance.below(3) {
        0 if at < words.len() => drop(words.remove(at)),
        1 if at < words.len() => words[at] = word.into(),
        _ => words.insert(at, word.into()),
    }
}

/// The words and brackets of a syntax.
fn tokens(syntax: &str) -> Vec<String> {
    let theirs = OUR_OPTIONS.iter().fold(syntax.to_owned(), |text, option| text.replace(option, ""));
    let spaced =
        ["[", "]", "<", ">", "|"].iter().fold(theirs, |text, mark| text.replace(mark, &format!(" {mark} ")));
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// How much deeper a token leads into brackets.
fn step(token: &str) -> i32 {
    i32::from(token == "[" || token == "<") - i32::from(token == "]" || token == ">")
}

/// Writes a call along its syntax.
struct Author<'a> {
    chance: &'a mut Chance,
    row: &'static Command,
    words: Call,
    /// Where the number of keys stands that is known only when they are written.
    numkeys: Option<usize>,
    /// How many keys have been written.
    keys: usize,
}

impl Author<'_> {
    fn sequence(&mut self, tokens: &[String]) {
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            if step(token) > 0 {
                let mut depth = 0;
                let inner = tokens[at..].iter().take_while(|token| {
                    depth += step(token);
                    depth > 0
                });
                let length = inner.count();
                self.bracket(&tokens[at + 1..at + length], token == "[");
                at += length + 1;
                continue;
            }
            if token.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let word = self.placeholder(token);
                self.words.push(word);
            } else {
                let lower = self.chance.percent(10);
                let word = if lower { token.to_ascii_lowercase() } else { token.clone() };
                self.words.push(word.into_bytes());
            }
            at += 1;
        }
    }

    fn bracket(&mut self, inner: &[String], optional: bool) {
        let repeats = inner.last().is_some_and(|token| token == "...");
        let inner = if repeats { &inner[..inner.len() - 1] } else { inner };
        let times = match (optional, repeats) {
            (false, _) => 1,
            // As many weights as keys, mostly.
            (true, true) if inner == ["weight"] && self.chance.percent(85) => self.keys.saturating_sub(1),
            (true, true) => self.chance.below(4),
            (true, false) => self.chance.below(5) / 3,
        };
        let mut depth = 0;
        let choices: Vec<&[String]> = inner
            .split(|token| {
                depth += step(token);
                token == "|" && depth == 0
            })
            .collect();
        for _ in 0..times {
            let choice = self.chance.pick(&choices);
            self.sequence(choice);
        }
    }

    fn key(&mut self) -> &'static str {
        self.keys += 1;
        let own: &[&str] = match self.row.group {
            Group::List => &["lst"],
            Group::Hash => &["hsh"],
            Group::Set => &["set"],
            Group::SortedSet => &["zst"],
            Group::HyperLogLog => &["hll"],
            Group::Geo => &["geo", "geo", "geo", "zst"],
            Group::String | Group::Bitmap => &["str", "num"],
            Group::Stream => &["stm", "stm", "stm", "new"],
            _ => &KEYS,
        };
        if self.chance.percent(65) { self.chance.pick(own) } else { self.chance.pick(&KEYS) }
    }

    fn number(&mut self, from: i64, to: i64) -> String {
        (from + self.chance.below((to - from) as usize) as i64).to_string()
    }

    /// An ID of an entry. Nearly none is greater than those that are made last, so that more can come.
    fn id(&mut self) -> String {
        match self.chance.below(8) {
            0 => self.number(0, 12),
            1 => self
                .chance
                .pick(&["0", "0-0", "*", "-", "+", "$", ">", "18446744073709551615", "5-", "1-1-1"])
                .into(),
            2 => "9-*".into(),
            3 => format!("9-{}", self.chance.below(12)),
            _ => format!("{}-{}", self.chance.below(9), self.chance.below(4)),
        }
    }

    /// A float of any size with up to 18 digits.
    fn float(&mut self) -> String {
        let digits = self.chance.below(10usize.pow(self.chance.clone().below(19) as u32).max(2));
        let exponent = self.chance.pick(&[0, 0, -1, -3, -9, 2, 12, 25, -25, 200, -300]);
        let sign = self.chance.pick(&["", "-"]);
        match self.chance.below(3) {
            0 => format!("{sign}{digits}e{exponent}"),
            1 => format!("{sign}{}.{:03}", digits / 1000, digits % 1000),
            _ => format!("{sign}{:e}", digits as f64),
        }
    }

    fn placeholder(&mut self, name: &str) -> Vec<u8> {
        let is_key = matches!(
            name,
            "key"
                | "key1"
                | "key2"
                | "newkey"
                | "source"
                | "destination"
                | "destkey"
                | "sourcekey"
                | "dst"
                | "src"
        );
        if is_key {
            let key = self.key();
            // What stands before the number of keys is none of them.
            if self.row.name.ends_with("store") && name == "destination" {
                self.keys = 0;
            }
            return key.into();
        }
        if name == "numkeys" {
            self.numkeys = Some(self.words.len());
            return Vec::new();
        }
        if self.chance.percent(6) {
            return self.chance.pick(&EDGES).into();
        }
        if name == "serialized-value" {
            let mut payload = self.chance.pick(&PAYLOADS).to_vec();
            rdb::seal(&mut payload);
            return payload;
        }
        let long = || "long text ".repeat(8);
        match name {
            // Nobody is there to end a longer wait.
            "milliseconds" if self.row.group == Group::Stream => "1".into(),
            "id" | "last-id" | "max_deleted_entry_id" => self.id(),
            // Of XTRIM either a length or an ID.
            "threshold" if self.chance.percent(40) => self.id(),
            "threshold" => self.number(0, 9),
            "start" | "end" if self.row.group == Group::Stream => match self.chance.below(4) {
                0 => self.id(),
                1 => format!("({}", self.id()),
                2 => "-".into(),
                _ => "+".into(),
            },
            "group" | "groupname" => self.chance.pick(&["g", "g", "h"]).into(),
            "consumer" | "consumername" => self.chance.pick(&["a", "b", "c"]).into(),
            // So long that the clock says the same of both servers.
            "min-idle-time" | "ms" => self.chance.pick(&["0", "0", "100000"]).into(),
            "entries_added" | "entries_read" => self.number(-1, 20),
            "seconds" | "milliseconds" if self.chance.percent(20) => self.number(-2, 1),
            // Long enough to be there till the end, and never twice the same, as GT and LT would ask the clock.
            "seconds" | "milliseconds" => self.number(100_000, 2_000_000_000),
            "unix-time-seconds" => self.chance.pick(&["1", "4102444800", "5102444800", "6102444800"]).into(),
            "unix-time-milliseconds" => {
                self.chance.pick(&["1", "4102444800123", "5102444800999", "6102444800000"]).into()
            }
            "db" | "destination-db" | "index1" | "index2" => {
                self.chance.pick(&["0", "1", "1", "15", "16"]).into()
            }
            "ttl" => self.chance.pick(&["0", "0", "100000", "5102444800123"]).into(),
            "frequency" => self.number(0, 256),
            "cursor" => "0".into(),
            "pattern" => self.chance.pick(&PATTERNS).into(),
            "operation" => self.chance.pick(&["AND", "OR", "XOR", "NOT", "DIFF"]).into(),
            "bit" => self.number(0, 3),
            // Nobody is there to end a longer wait.
            "timeout" => "0.001".into(),
            "score" | "weight" | "increment" if self.chance.percent(15) => self.float(),
            "score" | "weight" => {
                self.chance.pick(&["1", "2", "2.5", "-1", "0", "inf", "-inf", "1e20", "0.1", "3"]).into()
            }
            "min" | "max" if self.row.name.contains("lex") => {
                self.chance.pick(&["-", "+", "[a", "(a", "[b", "(c", "[", "["]).into()
            }
            "min" | "max" => self.chance.pick(&RANGE_ENDS).into(),
            // Redis says of a key that has expired in this moment that its type is "none", and lists it.
            "type" => self.chance.pick(&["list", "string", "ZSET", "set", "hash", "other"]).into(),
            "subcommand" => {
                self.chance.pick(&["ENCODING", "DECODE", "decode", "TODENSE", "GETREG", "NONE"]).into()
            }
            "longitude" => {
                self.chance.pick(&["13.5", "2.3522", "-179.95", "180", "-180", "15.08", "-0.5"]).into()
            }
            "latitude" => {
                self.chance.pick(&["38.1", "48.8566", "-10", "85.05112878", "-85", "37.50", "0"]).into()
            }
            "radius" | "width" | "height" => {
                self.chance.pick(&["0", "1", "50.5", "170", "900", "5000", "70000", "1e6", "20000000"]).into()
            }
            "encoding" => {
                let bits = self.chance.pick(&[1, 2, 4, 7, 8, 9, 16, 31, 32, 33, 62, 63, 64]);
                format!("{}{bits}", self.chance.pick(&["i", "u"]))
            }
            "offset" if self.row.name.starts_with("bitfield") => {
                format!("{}{}", self.chance.pick(&["", "", "#"]), self.chance.below(80))
            }
            "value" | "increment" if self.row.name == "bitfield" => match self.chance.below(3) {
                0 => self.chance.pick(&EDGES).into(),
                _ => self.number(-300, 300),
            },
            "increment" | "decrement" if self.chance.percent(30) => {
                self.chance.pick(&["0.1", "-2.5", "1e3", "3.0e-7", "1e17"]).into()
            }
            "start" | "stop" if self.row.name == "zrange" && self.chance.percent(50) => {
                self.chance.pick(&RANGE_ENDS).into()
            }
            "increment" | "decrement" | "index" | "count" | "start" | "stop" | "end" | "rank" => {
                self.number(-4, 7)
            }
            "offset" | "limit" | "len" | "num-matches" => self.number(-1, 12),
            "value" if self.row.name == "setbit" => self.number(0, 2),
            "value" | "element" | "member" | "member1" | "member2" | "field" | "pivot" | "message" => {
                match self.chance.below(60) {
                    0 => long(),
                    1 => self.number(-300, 300),
                    _ => self.chance.pick(&TEXTS).into(),
                }
            }
            other => panic!("what may stand for `{other}`? Teach this module"),
        }
        .into_bytes()
    }

    fn finished(self) -> Call {
        let mut words = self.words;
        if let Some(at) = self.numkeys {
            let wrong = self.chance.percent(8);
            let count = if wrong { self.chance.pick(&EDGES).to_owned() } else { self.keys.to_string() };
            words[at] = count.into_bytes();
        }
        words
    }
}
