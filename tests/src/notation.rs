//! Text for requests and replies, as it stands in the files in `cases/`.

use resp::Value;

/// Splits a line into arguments as redis-cli does: blanks between them, `"…"` with escapes, `'…'` without.
/// `None` when quotes do not close.
///
/// One addition: `"x"*100` is an argument of a hundred times `x`.
pub fn arguments(line: &str) -> Option<Vec<Vec<u8>>> {
    let mut rest = line.as_bytes();
    let mut found = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        let arg = match rest.first() {
            None => return Some(found),
            Some(b'"') => double_quoted(&mut rest)?,
            Some(b'\'') => single_quoted(&mut rest)?,
            Some(_) => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                rest = after;
                found.push(word.to_vec());
                continue;
            }
        };
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (suffix, after) = rest.split_at(end);
        rest = after;
        let times = match suffix {
            [] => 1,
            [b'*', digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
            _ => return None,
        };
        found.push(arg.repeat(times));
    }
}

fn double_quoted(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut arg = Vec::new();
    let mut at = 1;
    loop {
        match (*rest.get(at)?, rest.get(at + 1)) {
            (b'"', _) => break,
            (b'\\', Some(b'x')) => {
                let hex = std::str::from_utf8(rest.get(at + 2..at + 4)?).ok()?;
                arg.push(u8::from_str_radix(hex, 16).ok()?);
                at += 4;
            }
            (b'\\', Some(&escaped)) => {
                arg.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => other,
                });
                at += 2;
            }
            (byte, _) => {
                arg.push(byte);
                at += 1;
            }
        }
    }
    *rest = &rest[at + 1..];
    Some(arg)
}

fn single_quoted(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = 1 + rest[1..].iter().position(|&byte| byte == b'\'')?;
    let arg = rest[1..end].to_vec();
    *rest = &rest[end + 1..];
    Some(arg)
}

/// A reply on one line.
pub fn reply(value: &Value) -> String {
    // The quotes that matter are double ones.
    format!("{value:?}").replace("\\'", "'")
}

/// A reply on one line, with the elements of its outermost array, set or map in alphabetical order: for
/// commands that promise no order.
pub fn unordered(value: &Value) -> String {
    let sorted = |items: &[Value]| {
        let mut lines: Vec<_> = items.iter().map(reply).collect();
        lines.sort();
        lines.join(", ")
    };
    match value {
        Value::Array(items) => format!("unordered [{}]", sorted(items)),
        Value::Set(items) => format!("unordered ~{{{}}}", sorted(items)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| Value::Array(vec![key.clone(), value.clone()]));
            format!("unordered {{{}}}", sorted(&pairs.collect::<Vec<_>>()))
        }
        other => reply(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_as_in_redis_cli() {
        let split = |line| arguments(line).map(|args| args.join(&b'|').escape_ascii().to_string());
        assert_eq!(split(r#"SET  k "a \"b\" \x00\n" 'c\n'"#).unwrap(), r#"SET|k|a \"b\" \x00\n|c\\n"#);
        assert_eq!(split(r#"SET k """#).unwrap(), "SET|k|");
        assert_eq!(split(r#"SET k "ab"*3"#).unwrap(), "SET|k|ababab");
        assert_eq!(split(r#"SET k "ab"#), None);
        assert_eq!(split(r#"SET k "ab"c"#), None);
    }

    #[test]
    fn order_is_taken_away() {
        let value = Value::Array(vec![Value::Integer(2), Value::Integer(1)]);
        assert_eq!(unordered(&value), "unordered [1, 2]");
        assert_eq!(unordered(&Value::Null), "nil");
    }
}
