//! How the arguments of a call are shown to people: without passwords, quoted and shortened.

use std::fmt::Write as _;

use store_engine::Args;

/// Whether the argument at `at` belongs to credentials, or to rules of users.
pub fn is_secret(args: Args<'_>, at: usize) -> bool {
    let is =
        |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let of_hello = || is(0, "hello") && (1..=2).any(|back| at > back + 1 && is(at - back, "auth"));
    let of_users =
        || is(0, "acl") && at > 1 && ["setuser", "deluser", "getuser"].iter().any(|word| is(1, word));
    let of_config = || is(0, "config") && is(1, "set") && at > 2 && is(at - 1, "requirepass");
    let of_migrate =
        || is(0, "migrate") && at > 1 && (is(at - 1, "auth") || (1..=2).any(|back| is(at - back, "auth2")));
    (is(0, "auth") && at > 0) || of_hello() || of_users() || of_config() || of_migrate()
}

/// Appends text between quotes, in letters that are seen.
pub fn quote(text: &[u8], line: &mut String) {
    line.push('"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            7 => line.push_str("\\a"),
            8 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => write!(line, "\\x{byte:02x}").expect("writing to a string cannot fail"),
        }
    }
    line.push('"');
}

/// Arguments of a call that are kept.
const MOST_ARGS: usize = 32;
/// Bytes of each that are kept.
const MOST_ARG_BYTES: usize = 128;

/// A call as it is kept: without passwords, and not too long.
pub fn shortened(args: Args<'_>) -> Vec<Vec<u8>> {
    let items = args.items();
    let kept = if items.len() > MOST_ARGS { MOST_ARGS - 1 } else { items.len() };
    let shortened = |(at, arg): (usize, &&[u8])| match is_secret(args, at) {
        true => b"(redacted)".to_vec(),
        false => cut(arg, MOST_ARG_BYTES),
    };
    let mut words: Vec<Vec<u8>> = items[..kept].iter().enumerate().map(shortened).collect();
    if kept < items.len() {
        words.push(format!("... ({} more arguments)", items.len() - kept).into_bytes());
    }
    words
}

/// The first bytes of a text that a log keeps, with the number of the others.
pub fn cut(text: &[u8], most: usize) -> Vec<u8> {
    match text.split_at_checked(most) {
        Some((first, others)) if !others.is_empty() => {
            [first, format!("... ({} more bytes)", others.len()).as_bytes()].concat()
        }
        _ => text.to_vec(),
    }
}
