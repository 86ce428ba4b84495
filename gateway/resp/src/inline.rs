//! Splits an inline command, the form people type into telnet, the way Redis' `sdssplitargs` does.

use std::ops::Range;

/// A quote that is never closed, or that is closed in the middle of a word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unbalanced;

/// What separates words and may follow a closing quote: C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Splits `line` (without its line end) into `words`. Words without quotes are ranges of `line`, and the
/// answer is false; if the line holds any quote, all words are written to `text`, the ranges are its, and the
/// answer is true.
pub(crate) fn split(
    line: &[u8],
    words: &mut Vec<Range<u32>>,
    text: &mut Vec<u8>,
) -> Result<bool, Unbalanced> {
    let quoted = memchr::memchr2(b'"', b'\'', line).is_some();
    let mut at = 0;
    loop {
        while at < line.len() && is_space(line[at]) {
            at += 1;
        }
        if at == line.len() {
            return Ok(quoted);
        }
        if quoted {
            let start = text.len();
            at = unquote(line, at, text)?;
            words.push(start as u32..text.len() as u32);
        } else {
            let start = at;
            at = line[at..].iter().position(|byte| ends_word(*byte)).map_or(line.len(), |len| at + len);
            words.push(start as u32..at as u32);
        }
    }
}

/// The words of a line that is split as an inline command is; `None` when its quotes are not balanced.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut text) = (Vec::new(), Vec::new());
    let owned = split(line, &mut words, &mut text).ok()?;
    let source = if owned { &text } else { line };
    Some(words.iter().map(|word| source[word.start as usize..word.end as usize].to_vec()).collect())
}

/// Inside a word only these four end it; Redis leaves vertical tab and form feed in.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Appends the word that starts at `at`; returns where it ended. A closing quote always ends its word.
fn unquote(line: &[u8], mut at: usize, text: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    while at < line.len() {
        match line[at] {
            b'"' => return closing(line, double_quoted(line, at + 1, text)?),
            b'\'' => return closing(line, single_quoted(line, at + 1, text)?),
            byte if ends_word(byte) => return Ok(at),
            byte => text.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

/// `after` is the position behind a closing quote: there must be a blank or the end of the line.
fn closing(line: &[u8], after: usize) -> Result<usize, Unbalanced> {
    match line.get(after) {
        Some(byte) if !is_space(*byte) => Err(Unbalanced),
        _ => Ok(after),
    }
}

fn double_quoted(line: &[u8], mut at: usize, text: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        let (byte, len) = match &line[at..] {
            [] => return Err(Unbalanced),
            [b'"', ..] => return Ok(at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), 4)
            }
            [b'\\', escaped, ..] => (unescape(*escaped), 2),
            [byte, ..] => (*byte, 1),
        };
        text.push(byte);
        at += len;
    }
}

fn single_quoted(line: &[u8], mut at: usize, text: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        let (byte, len) = match &line[at..] {
            [] => return Err(Unbalanced),
            [b'\'', ..] => return Ok(at + 1),
            [b'\\', b'\'', ..] => (b'\'', 2),
            [byte, ..] => (*byte, 1),
        };
        text.push(byte);
        at += len;
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row was asked of redis-server 7.0.15 (`ECHO` with this text).
    #[test]
    fn one_word_as_redis_reads_it() {
        for (line, wanted) in [
            (&b"\"a b\""[..], &b"a b"[..]),
            (b"\"a\\x41\\n\\r\\t\\b\\a\\q\\\\\\\"z\"", b"aA\n\r\t\x08\x07q\\\"z"),
            (b"'a\\'b\\n\"'", b"a'b\\n\""),
            (b"a\"b c\"", b"ab c"),
            (b"a'b c'", b"ab c"),
            (b"\"\\x4\"", b"x4"),
            (b"\"\\xgg\"", b"xgg"),
            (b"\"\"", b""),
            (b"''", b""),
            (b"\"a\"\x0b", b"a"),
            (b"a\\x41", b"a\\x41"),
            (b"a\"b\"", b"ab"),
            (b" \t\x0b\x0ca\x0bb", b"a\x0bb"),
            (b"\"\\xfF\"", b"\xff"),
        ] {
            assert_eq!(split_words(line), Some(vec![wanted.to_vec()]), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn unbalanced_quotes() {
        for line in
            ["\"abc", "'abc", "\"abc\"d", "'a'd", "\"a\\", "'a\\", "a\"b\"c", "\"", "'", "\"a\\\"", "''''"]
        {
            assert_eq!(split_words(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn several_words_and_none() {
        assert_eq!(split_words(b""), Some(vec![]));
        assert_eq!(split_words(b" \t "), Some(vec![]));
        assert_eq!(split_words(b" set  k\tv "), Some(vec![b"set".to_vec(), b"k".to_vec(), b"v".to_vec()]));
        assert_eq!(split_words(b"set 'k' \"\""), Some(vec![b"set".to_vec(), b"k".to_vec(), b"".to_vec()]));
        assert_eq!(split_words(b"a\rb"), Some(vec![b"a".to_vec(), b"b".to_vec()]));
    }
}
