//! Calls made up from the syntax of the commands' rows.

use store_engine::command;
use store_engine::{Command, Group, rdb, syntax};

/// The present time of all calls, unless a test has another.
pub const NOW_MS: u64 = 1_000_000_000;

/// What the names of keys begin with: the type that they mostly have.
pub const KINDS: [&str; 8] = ["list", "hash", "set", "zset", "string", "hll", "stream", "json"];

/// What RESTORE may be given, before it is sealed; the last is no value.
const PAYLOADS: [&[u8]; 6] = [
    b"\x00\xc0\x0a",
    b"\x01\x02\x01a\x01b",
    b"\x02\x01\x01a",
    b"\x04\x01\x01a\x01b",
    b"\x05\x01\x01a\0\0\0\0\0\0\xf0\x3f",
    b"\x02\x00",
];

/// Paths into the documents below. The root is often: without it there are none.
const JSON_PATHS: [&str; 18] = [
    "$",
    "$",
    "$",
    ".",
    "$.a",
    "a",
    "$.b.a",
    "$.c[1]",
    "$.c[-1]",
    "$..a",
    "$..*",
    "$.*",
    "$.c[0:2]",
    "$..[0]",
    "$.c[?(@>1)]",
    "$['a','b']",
    "$.d",
    "$.new",
];

const JSON_STRINGS: [&str; 4] = [r#""a text""#, r#""""#, r#""é\n""#, "1"];

const JSON_VALUES: [&str; 12] = [
    r#"{"a":1,"b":{"a":[1,2],"b":true},"c":[1,2.5,"x",[3]]}"#,
    r#"{"a":{"a":{"a":1}},"c":[[1],[2,[3]]]}"#,
    r#"{"a":null,"b":{"a":null,"c":7},"d":{}}"#,
    r#"[1,{"a":[true,false]},"text",null]"#,
    "{}",
    "[]",
    "1",
    "-2.5",
    "true",
    "null",
    r#""a text""#,
    "wrong",
];

/// SplitMix64: one number gives one call, so that a failing case shrinks call by call.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: usize) -> usize {
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
            Group::Json => "json",
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
            "path" if self.words[0] == "json.set" && chance.one_in(2) => "$".into(),
            "path" => chance.pick(&JSON_PATHS).into(),
            "value" if self.words[0] == "json.strappend" => chance.pick(&JSON_STRINGS).into(),
            "value" if self.group == Group::Json => chance.pick(&JSON_VALUES).into(),
            "indent" | "newline" | "space" => chance.pick(&["", "-", "\n"]).into(),
            "group" | "groupname" => chance.pick(&["g", "h"]).into(),
            "consumer" | "consumername" => chance.pick(&["c", "d", "e"]).into(),
            "min-idle-time" | "ms" => chance.pick(&["0", "0", "5"]).into(),
            "entries_added" | "entries_read" => number(chance, -1, 300),
            "numids" | "numfields" => "1".into(),
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
            "integer" | "float" | "lowerbound" | "upperbound" | "increment" | "decrement" | "factor"
            | "index" | "count" | "start" | "stop" | "end" | "rank" => number(chance, -4, 8),
            "offset" | "limit" | "len" | "num-matches" | "min-match-len" => number(chance, 0, 40),
            "ifdeq-digest" | "ifdne-digest" => {
                chance.pick(&["e6c632b61e964e1f", "0000000000000000", "1"]).into()
            }
            "value" | "ifeq-value" | "ifne-value" | "element" | "member" | "member1" | "member2"
            | "field" | "pivot" | "message" => {
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

/// As many IDs as streams, or as many of them or of fields as their number says, which the syntax cannot say.
fn balance(words: &mut Vec<String>) {
    if let Some(at) = words.iter().position(|word| word == "IDS") {
        words[at + 1] = (words.len() - at - 2).to_string();
    }
    if let Some(at) = words.iter().position(|word| word == "FIELDS")
        && at + 2 < words.len()
    {
        let each = if words[0] == "hsetex" { 2 } else { 1 };
        words[at + 1] = ((words.len() - at - 2) / each).to_string();
    }
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
pub fn call_of(number: u64) -> Vec<String> {
    call_like(number, None)
}

/// A call of a command of hashes.
pub fn hash_call_of(number: u64) -> Vec<String> {
    let rows: Vec<&'static Command> = command::all().filter(|row| row.group == Group::Hash).collect();
    call_like(number, Some(Chance(number).pick(&rows).name))
}

/// The same; of a certain command, if `name` is given.
pub fn call_like(number: u64, name: Option<&str>) -> Vec<String> {
    let mut chance = Chance(number);
    let rows: Vec<&'static Command> = command::all().collect();
    let mut row = chance.pick(&rows);
    // A stream or document means something only when several of its commands have come together.
    if chance.one_in(3) {
        let group = chance.pick(&[Group::Stream, Group::Json]);
        let some: Vec<&'static Command> = command::all().filter(|row| row.group == group).collect();
        row = chance.pick(&some);
        // Most others need a document.
        if group == Group::Json && chance.one_in(2) {
            row = command::lookup(b"json.set").unwrap_or(row);
        }
    }
    // Emptying everything too often would leave little to look at.
    let row = if row.name.starts_with("flush") && !chance.one_in(4) { rows[0] } else { row };
    // It takes as long as hundreds of other calls, and no key.
    let row = if row.name == "pfselftest" && !chance.one_in(50) { rows[0] } else { row };
    let row = name.and_then(|name| command::lookup(name.as_bytes())).unwrap_or(row);
    let mut words = vec![row.name.to_owned()];
    let spec = if row.subcommands.is_empty() {
        row
    } else {
        let subcommand = &row.subcommands[chance.below(row.subcommands.len())];
        words.push(subcommand.name.to_owned());
        subcommand
    };
    let spaced = ["[", "]", "<", ">", "|"]
        .iter()
        .fold(syntax::manual(spec.syntax), |text, mark| text.replace(mark, &format!(" {mark} ")));
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
