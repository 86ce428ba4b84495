//! Values as text: as redis-cli shows them to people, or as JSON.

use std::fmt::Write as _;
use std::io::IsTerminal;

use resp::Value;
use store_engine::number;

use super::error::ToolError;
use crate::net::http::json::{Shape, Shown};

/// Writes to standard output.
pub fn print(text: &str) -> Result<(), ToolError> {
    crate::admin::print(text)
        .map_err(|error| ToolError::new(format_args!("cannot write to standard output: {error}")))
}

/// Whether standard output is a terminal that may have colours, see <https://no-color.org>.
pub fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stdout().is_terminal()
}

/// A member of a map whose keys are names.
pub fn member<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else { return None };
    pairs.iter().find(|(key, _)| key.text() == Some(name.as_bytes())).map(|(_, value)| value)
}

/// A value as JSON, in a line.
pub fn json(value: &Value) -> String {
    let mut text = serde_json::to_string(&Shown(value, Shape::Plain))
        .expect("keys of objects are strings, nothing else could fail");
    text.push('\n');
    text
}

/// A value as redis-cli shows it.
pub fn readable(value: &Value) -> String {
    let mut text = String::new();
    append(value, "", &mut text);
    text
}

fn append(value: &Value, indent: &str, out: &mut String) {
    let lossy = String::from_utf8_lossy;
    let line = match value {
        Value::Status(text) | Value::Verbatim { text, .. } | Value::BigNumber(text) => {
            lossy(text).into_owned()
        }
        Value::Error(text) => format!("(error) {}", lossy(text)),
        Value::Integer(number) => format!("(integer) {number}"),
        Value::Bulk(text) => quoted(text),
        Value::Null | Value::NullArray => "(nil)".to_owned(),
        Value::Boolean(value) => format!("({value})"),
        Value::Double(value) => {
            let mut digits = Vec::new();
            number::push_f64(&mut digits, *value);
            format!("(double) {}", lossy(&digits))
        }
        Value::Array(items) => return list(items, (')', "array"), indent, out),
        Value::Set(items) => return list(items, ('~', "set"), indent, out),
        Value::Push(items) => return list(items, ('>', "push"), indent, out),
        Value::Map(pairs) => return map(pairs, indent, out),
        Value::Attribute { value, .. } => return append(value, indent, out),
    };
    out.push_str(&line);
    out.push('\n');
}

fn list(items: &[Value], (mark, name): (char, &str), indent: &str, out: &mut String) {
    numbered(items.iter(), items.len(), (mark, name), indent, out, |item, inner, out| {
        append(item, inner, out)
    });
}

fn map(pairs: &[(Value, Value)], indent: &str, out: &mut String) {
    numbered(pairs.iter(), pairs.len(), ('#', "hash"), indent, out, |(key, value), inner, out| {
        append(key, inner, out);
        out.truncate(out.trim_end_matches('\n').len());
        out.push_str(" => ");
        append(value, inner, out);
    });
}

/// Numbers items; the lines of each but the first are indented to stand below it.
fn numbered<T>(
    items: impl Iterator<Item = T>,
    count: usize,
    (mark, name): (char, &str),
    indent: &str,
    out: &mut String,
    append: impl Fn(T, &str, &mut String),
) {
    if count == 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "(empty {name})");
        return;
    }
    let width = count.to_string().len();
    let inner = format!("{indent}{}", " ".repeat(width + 2));
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(indent);
        }
        let _ = write!(out, "{:>width$}{mark} ", index + 1);
        append(item, &inner, out);
    }
}

/// A string in quotes, with escapes for what cannot be shown, as redis-cli shows it.
pub fn quoted(text: &[u8]) -> String {
    let mut shown = String::from("\"");
    for byte in text {
        match byte {
            b'\\' | b'"' => shown.extend(['\\', char::from(*byte)]),
            b'\n' => shown.push_str("\\n"),
            b'\r' => shown.push_str("\\r"),
            b'\t' => shown.push_str("\\t"),
            7 => shown.push_str("\\a"),
            8 => shown.push_str("\\b"),
            0x20..0x7f => shown.push(char::from(*byte)),
            _ => {
                let _ = write!(shown, "\\x{byte:02x}");
            }
        }
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_redis_cli_shows_them() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let many = (1..=10).map(Value::Integer).collect();
        let value = Value::Array(vec![
            Value::Status("OK".into()),
            bulk("a\"\\\n\u{1}é"),
            Value::Array(vec![Value::Null, Value::Array(Vec::new()), Value::Boolean(true)]),
            Value::Map(vec![
                (bulk("k"), Value::Array(vec![Value::Integer(1), Value::Integer(2)])),
                (bulk("l"), Value::Double(1.5)),
            ]),
            Value::Set(vec![Value::Error("ERR no".into())]),
            Value::Array(many),
        ]);
        insta::assert_snapshot!(readable(&value), @r#"
        1) OK
        2) "a\"\\\n\x01\xc3\xa9"
        3) 1) (nil)
           2) (empty array)
           3) (true)
        4) 1# "k" => 1) (integer) 1
              2) (integer) 2
           2# "l" => (double) 1.5
        5) 1~ (error) ERR no
        6)  1) (integer) 1
            2) (integer) 2
            3) (integer) 3
            4) (integer) 4
            5) (integer) 5
            6) (integer) 6
            7) (integer) 7
            8) (integer) 8
            9) (integer) 9
           10) (integer) 10
        "#);
    }

    #[test]
    fn json_is_one_line() {
        let value = Value::Map(vec![(Value::Bulk("a\n".into()), Value::Null)]);
        assert_eq!(json(&value), "{\"a\\n\":null}\n");
    }
}
