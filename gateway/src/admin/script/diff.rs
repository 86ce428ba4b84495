//! What a dry run would have changed, as a diff.

use std::fmt::Write as _;

use resp::Value;

use super::error::ToolError;
use super::show::{member, quoted, readable};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// The reply of a dry run for people: the reply of the script, and the keys that it would have changed.
/// `now_ms` is Unix time, to which expiries are related.
pub fn of_dry_run(value: &Value, now_ms: u64, colour: bool) -> Result<String, ToolError> {
    let wrong = || ToolError::new("the server did not reply as to a dry run");
    let reply = member(value, "reply").ok_or_else(wrong)?;
    let Some(Value::Array(writes)) = member(value, "writes") else { return Err(wrong()) };
    let number = |name| match member(value, name) {
        Some(Value::Integer(number)) => *number,
        _ => 0,
    };
    let mut out = readable(reply);
    // A key that was created and deleted again is as before.
    let differs = |change: &&Value| side(change, "before").or(side(change, "after")).is_some();
    let writes: Vec<&Value> = writes.iter().filter(differs).collect();
    for change in &writes {
        let line = |mark: char, text: String, out: &mut String| {
            let (start, end) = match mark {
                _ if !colour => ("", ""),
                '-' => (RED, PLAIN),
                '+' => (GREEN, PLAIN),
                _ => (YELLOW, PLAIN),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{start}{text}{end}");
        };
        let (before, after) = (side(change, "before"), side(change, "after"));
        let mark = match (before, after) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        line(mark, format!("{mark} {}", key(change)), &mut out);
        for (mark, side) in [('-', before), ('+', after)] {
            if let Some(side) = side {
                line(mark, format!("    {mark} {}", preview(side, now_ms)), &mut out);
            }
        }
    }
    let count = writes.len() as i64 + number("omitted");
    if number("omitted") > 0 {
        let _ = writeln!(out, "… and {} more", number("omitted"));
    }
    let keys = keys(count);
    let _ = writeln!(out, "{keys} would change; fuel {}", number("fuel"));
    Ok(out)
}

fn keys(count: i64) -> String {
    match count {
        0 => "no key".to_owned(),
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    }
}

/// What a key was or becomes, if it was there or is then.
fn side<'a>(change: &'a Value, name: &str) -> Option<&'a Value> {
    member(change, name).filter(|side| !side.is_null())
}

/// A key, with its database if that is not the first. One that is nil stands for a whole database.
fn key(change: &Value) -> String {
    let name = match member(change, "key").and_then(Value::text) {
        Some(text) if is_plain(text) => String::from_utf8_lossy(text).into_owned(),
        Some(text) => quoted(text),
        None => "all keys".to_owned(),
    };
    match member(change, "db") {
        Some(Value::Integer(db)) if *db != 0 => format!("{name} (database {db})"),
        _ => name,
    }
}

fn is_plain(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
}

/// So many bytes of a document are shown at most.
const MOST_JSON_BYTES: usize = 256;

/// A value: its type, its first elements, and what else is known of it.
fn preview(side: &Value, now_ms: u64) -> String {
    let type_name = member(side, "type").and_then(Value::text).unwrap_or_default();
    let mut text = String::from_utf8_lossy(type_name).into_owned();
    let length = match member(side, "length") {
        Some(Value::Integer(length)) => usize::try_from(*length).unwrap_or_default(),
        _ => 0,
    };
    if type_name == b"database" {
        return keys(length as i64);
    }
    let elements: Vec<&[u8]> = match member(side, "elements") {
        Some(Value::Array(elements)) => elements.iter().filter_map(Value::text).collect(),
        _ => Vec::new(),
    };
    let is_string = type_name == b"string";
    let is_json = type_name == b"ReJSON-RL";
    if is_json {
        text.push(':');
    } else if !is_string {
        let _ = write!(text, " of {length}:");
    }
    for element in &elements {
        let _ = write!(text, " {}", quoted(element));
    }
    // Of a long string or document there is the beginning; of hashes and sorted sets there are two elements for each member.
    let per_member = if matches!(type_name, b"hash" | b"zset") { 2 } else { 1 };
    let shown = elements.first().map_or(0, |element| element.len());
    let is_cut = match is_string {
        true => shown < length,
        false if is_json => shown >= MOST_JSON_BYTES,
        false => elements.len() < length * per_member,
    };
    if is_cut {
        text.push_str(" …");
        if is_string {
            let _ = write!(text, " ({length} bytes)");
        }
    }
    if let Some(Value::Integer(at)) = member(side, "expire_at_ms") {
        let _ = write!(text, ", expires in {:.0} s", (*at as f64 - now_ms as f64) / 1000.0);
    }
    if let Some(Value::Boolean(true) | Value::Integer(1)) = member(side, "sticky") {
        text.push_str(", sticky");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
        Value::Map(pairs.into_iter().map(|(name, value)| (bulk(name), value)).collect())
    }

    fn value(type_name: &str, length: i64, elements: &[&str], expires: Value) -> Value {
        map([
            ("type", bulk(type_name)),
            ("length", Value::Integer(length)),
            ("expire_at_ms", expires),
            ("sticky", Value::Boolean(false)),
            ("elements", Value::Array(elements.iter().copied().map(bulk).collect())),
        ])
    }

    fn change(db: i64, key: Value, before: Value, after: Value) -> Value {
        map([("db", Value::Integer(db)), ("key", key), ("before", before), ("after", after)])
    }

    fn report() -> Value {
        let writes = vec![
            change(0, bulk("new"), Value::Null, value("string", 3, &["one"], Value::Integer(61_000))),
            change(0, bulk("gone"), Value::Null, Value::Null),
            change(
                0,
                Value::Null,
                value("database", 2, &[], Value::Null),
                value("database", 1, &[], Value::Null),
            ),
            change(2, bulk("a b"), value("hash", 1, &["f", "v"], Value::Null), Value::Null),
            change(
                0,
                bulk("l"),
                value("list", 1, &["a"], Value::Null),
                value("list", 99, &["a", "b"], Value::Null),
            ),
            change(
                0,
                bulk("s"),
                value("string", 9, &["a"], Value::Null),
                value("string", 1, &["a"], Value::Null),
            ),
        ];
        map([
            ("reply", Value::Integer(1)),
            ("writes", Value::Array(writes)),
            ("omitted", Value::Integer(3)),
            ("fuel", Value::Integer(123)),
        ])
    }

    #[test]
    fn changes_are_shown_as_a_diff() {
        insta::assert_snapshot!(of_dry_run(&report(), 1000, false).expect("a dry run"), @r#"
        (integer) 1
        + new
            + string "one", expires in 60 s
        ~ all keys
            - 2 keys
            + 1 key
        - "a b" (database 2)
            - hash of 1: "f" "v"
        ~ l
            - list of 1: "a"
            + list of 99: "a" "b" …
        ~ s
            - string "a" … (9 bytes)
            + string "a"
        … and 3 more
        8 keys would change; fuel 123
        "#);
    }

    #[test]
    fn lines_are_coloured_if_that_is_wanted() {
        let text = of_dry_run(&report(), 1000, true).expect("a dry run");
        assert!(text.contains("\x1b[32m+ new\x1b[0m\n") && text.contains("\x1b[33m~ l\x1b[0m\n"), "{text}");
    }

    #[test]
    fn another_reply_is_refused() {
        assert!(of_dry_run(&Value::Integer(1), 0, false).is_err());
    }
}
