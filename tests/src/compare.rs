//! What it means that two replies to a call agree.

use resp::Value;
use store_engine::wait;

use crate::generate::{Call, LEX, PLACES};
use crate::notation;

/// How much of a reply has to be the same. Errors always have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// All of it.
    Exact,
    /// All but the order of elements.
    Unordered,
    /// Types and lengths.
    Shape,
    /// The type of the whole.
    Kind,
    /// Of numbers, which are times, the sign.
    Sign,
}

/// Commands whose replies are not compared word by word.
const TABLE: &[(&str, Sameness, &str)] = &[
    ("dbsize", Sameness::Kind, "expired keys count until somebody looks at them"),
    ("dump", Sameness::Kind, "how a value is packed tells of its history"),
    ("hgetall", Sameness::Unordered, "hashes have no order"),
    ("hkeys", Sameness::Unordered, "hashes have no order"),
    ("hvals", Sameness::Unordered, "hashes have no order"),
    ("keys", Sameness::Unordered, "keys have no order"),
    ("sdiff", Sameness::Unordered, "sets have no order"),
    ("sinter", Sameness::Unordered, "sets have no order"),
    ("smembers", Sameness::Unordered, "sets have no order"),
    ("spop", Sameness::Unordered, "only calls that take all members are made"),
    ("sunion", Sameness::Unordered, "sets have no order"),
    ("scan", Sameness::Kind, "how far a step goes depends on the size of the table"),
    ("hscan", Sameness::Kind, "how far a step goes depends on the size of the table"),
    ("sscan", Sameness::Kind, "how far a step goes depends on the size of the table"),
    ("zscan", Sameness::Kind, "how far a step goes depends on the size of the table"),
    ("hrandfield", Sameness::Shape, "chance"),
    ("randomkey", Sameness::Kind, "chance"),
    ("srandmember", Sameness::Shape, "chance"),
    ("zrandmember", Sameness::Shape, "chance"),
    ("ttl", Sameness::Sign, "the clock"),
    ("pttl", Sameness::Sign, "the clock"),
    ("expiretime", Sameness::Sign, "the clock"),
    ("pexpiretime", Sameness::Sign, "the clock"),
    ("xpending", Sameness::Shape, "the clock"),
    ("xinfo", Sameness::Shape, "the clock"),
    ("object", Sameness::Kind, "encodings tell of a key's history, which is not ours"),
];

fn is_alpha(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ALPHA")
}

/// Leaves a timeout only if it is refused.
fn shorten(timeout: &mut Vec<u8>) {
    if wait::timeout_ms(timeout).is_ok() {
        *timeout = b"0.001".to_vec();
    }
}

/// What has to be the same in the replies to this call.
pub fn sameness(call: &Call) -> Sameness {
    let name = String::from_utf8_lossy(&call[0]).to_ascii_lowercase();
    let after = |word: &str| {
        let at = call.iter().position(|item| item.eq_ignore_ascii_case(word.as_bytes()))?;
        call.get(at + 1)
    };
    let count: usize =
        after("COUNT").and_then(|word| std::str::from_utf8(word).ok()?.parse().ok()).unwrap_or(0);
    let cursor = call.get(if name == "scan" { 1 } else { 2 });
    let scans_all = name.ends_with("scan") && count >= 1000 && cursor.is_some_and(|cursor| cursor == b"0");
    // Where nothing is said of the clock.
    let counts = (name == "xpending" && call.len() == 3)
        || (name == "xinfo" && call.len() < 4 && call.get(1).is_some_and(|word| word.len() != 9));
    // Asked not to sort, or to leave equals where they were, and a set has no order.
    let by_nothing = |pattern: &Vec<u8>| !pattern.contains(&b'*') || call.iter().any(|word| is_alpha(word));
    let unsorted = name.starts_with("sort") && after("BY").is_some_and(by_nothing);
    match TABLE.iter().find(|(row, ..)| *row == name) {
        Some(_) if counts => Sameness::Exact,
        Some(_) if scans_all => Sameness::Unordered,
        Some((_, sameness, _)) => *sameness,
        None if unsorted => Sameness::Kind,
        None => Sameness::Exact,
    }
}

/// Those parts of a reply that have to be the same, as text.
pub fn essence(value: &Value, sameness: Sameness) -> String {
    let shape = |text: &str| text.to_owned();
    match (sameness, value) {
        (Sameness::Exact, _) | (_, Value::Error(_) | Value::Null | Value::NullArray) => {
            notation::reply(value)
        }
        (Sameness::Unordered, Value::Array(items)) => {
            let mut lines: Vec<_> = items.iter().map(|item| essence(item, sameness)).collect();
            lines.sort();
            format!("[{}]", lines.join(", "))
        }
        (Sameness::Unordered, _) => notation::unordered(value),
        (Sameness::Sign, Value::Integer(number)) if *number > 0 => shape("a time"),
        (Sameness::Sign, _) => notation::reply(value),
        (Sameness::Shape, Value::Array(items)) => {
            let items: Vec<_> = items.iter().map(|item| essence(item, sameness)).collect();
            format!("[{}]", items.join(", "))
        }
        (Sameness::Shape, Value::Map(items)) => {
            let items =
                items.iter().flat_map(|(name, item)| [notation::reply(name), essence(item, sameness)]);
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        (_, Value::Integer(_)) => shape("an integer"),
        (_, Value::Bulk(_)) => shape("a string"),
        (_, Value::Array(_)) => shape("an array"),
        (_, Value::Double(_)) => shape("a double"),
        _ => notation::reply(value),
    }
}

/// Changes a call whose outcome would be left to chance, or would need more memory than a test may take, into
/// one of the same command that is neither.
pub fn tame(call: &mut Call) {
    let name = String::from_utf8_lossy(&call[0]).to_ascii_lowercase();
    let small = |word: &[u8], from: i64, to: i64| {
        let number: Option<i64> = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        number.is_some_and(|number| (from..=to).contains(&number))
    };
    let by_text = name.contains("lex") || call.iter().any(|word| word.eq_ignore_ascii_case(b"BYLEX"));
    let counts = call.iter().any(|word| word.eq_ignore_ascii_case(b"COUNT"));
    let stores = call.iter().any(|word| word.eq_ignore_ascii_case(b"STORE"));
    match name.as_str() {
        "zrangestore" if by_text && call.len() > 2 => call[2] = LEX.into(),
        _ if by_text && name.starts_with('z') && call.len() > 1 => call[1] = LEX.into(),
        // Which of equally near places are among the nearest is left to chance, and only there are none.
        "geosearchstore" if counts && call.len() > 2 => call[2] = PLACES.into(),
        _ if counts && name.starts_with("geo") && call.len() > 1 => call[1] = PLACES.into(),
        // Would store in an order that is left to chance.
        "sort" => call.retain(|word| !(stores && is_alpha(word))),
        // Nobody is there to end a long wait.
        "blpop" | "brpop" | "blmove" | "brpoplpush" | "bzpopmin" | "bzpopmax" => {
            call.last_mut().into_iter().for_each(shorten);
        }
        // The clocks of both would give other IDs.
        "xadd" => {
            call.iter_mut().filter(|word| *word == b"*").for_each(|word| *word = b"9-*".to_vec());
        }
        "xread" | "xreadgroup" => {
            let block = call.iter().position(|word| word.eq_ignore_ascii_case(b"BLOCK"));
            if let Some(word) = block.and_then(|at| call.get_mut(at + 1))
                && wait::whole_timeout_ms(word).is_ok()
            {
                *word = b"1".to_vec();
            }
        }
        "blmpop" | "bzmpop" => call.get_mut(1).into_iter().for_each(shorten),
        // Takes all members or none.
        "spop" if call.len() == 2 => call.push(b"1000".to_vec()),
        "spop" if call.len() == 3 && small(&call[2], 1, 900) => call[2] = b"1000".to_vec(),
        "scan" | "sscan" | "hscan" | "zscan" => {
            for word in call.iter_mut().skip(2).filter(|word| small(word, 1, 999)) {
                word.extend_from_slice(b"000");
            }
        }
        // As many members as are asked for.
        "srandmember" | "hrandfield" | "zrandmember" => {
            for word in call.iter_mut().skip(2).filter(|word| small(word, i64::MIN + 1, -1000)) {
                *word = b"-20".to_vec();
            }
        }
        // As many bytes as are asked for.
        "setbit" | "setrange" | "bitfield" => {
            for word in call.iter_mut().skip(2).filter(|word| small(word, 100_000, 1 << 32)) {
                *word = b"1000".to_vec();
            }
        }
        "restore" => {
            // Redis does not know the word.
            call.retain(|word| !word.eq_ignore_ascii_case(b"STICK"));
            if let Some(ttl) = call.get_mut(2).filter(|word| small(word, 1, 99_999)) {
                ttl.extend_from_slice(b"00000");
            }
        }
        // No key may expire while it is looked at.
        "expire" | "pexpire" | "set" | "setex" | "psetex" | "getex" => {
            for word in call.iter_mut().skip(2).filter(|word| small(word, 1, 99_999)) {
                word.extend_from_slice(b"00000");
            }
        }
        _ => {}
    }
}
