//! The smallest pieces of the protocol, shared by all that reads it.

use std::fmt;

use store_engine::number;

/// How large a reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// How many aggregates may stand inside each other. A guest's own rule yields about half the default.
    pub max_depth: usize,
    /// Length of the whole reply.
    pub max_bytes: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        ReplyLimits { max_depth: 256, max_bytes: 512 << 20 }
    }
}

/// Why some bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The bytes end before the reply does, or it announces more elements than could follow.
    Truncated,
    /// Something follows the reply.
    TrailingBytes,
    /// No type begins with this byte, or none that may stand here.
    UnknownType(u8),
    /// Longer than [`ReplyLimits::max_bytes`].
    TooLong,
    /// Deeper than [`ReplyLimits::max_depth`].
    TooDeep,
    /// A line or a bulk string that does not end with CR LF, or a line with a CR or LF within.
    LineEnd,
    /// A length or count that is no number or negative.
    Length,
    /// An integer or double spelled wrong.
    Number,
    /// Neither `#t` nor `#f`.
    Boolean,
    /// A null with something in it.
    Null,
    /// A verbatim string without its three-letter format.
    Verbatim,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::Truncated => "reply ends too early",
            ReplyError::TrailingBytes => "bytes behind the reply",
            ReplyError::UnknownType(byte) => {
                return write!(f, "unknown reply type '{}'", byte.escape_ascii());
            }
            ReplyError::TooLong => "reply is too long",
            ReplyError::TooDeep => "reply is nested too deeply",
            ReplyError::LineEnd => "reply has a wrong line end",
            ReplyError::Length => "reply has an invalid length",
            ReplyError::Number => "reply has an invalid number",
            ReplyError::Boolean => "reply has an invalid boolean",
            ReplyError::Null => "reply has an invalid null",
            ReplyError::Verbatim => "reply has an invalid verbatim string",
        })
    }
}

impl std::error::Error for ReplyError {}

/// The number in a line such as `$12\r\n` (whatever its first byte is) and the length of the line. None if it
/// is not there as a whole, is longer than seven digits, or is not spelled as Redis wants it: then the slow
/// path decides.
#[inline(always)]
pub(crate) fn short_number(line: &[u8]) -> Option<(u32, usize)> {
    let [_, first, second, _, ..] = *line else { return None };
    let mut value = u32::from(first.wrapping_sub(b'0'));
    if value > 9 {
        return None;
    }
    if second == b'\r' {
        return Some((value, 4));
    }
    if value == 0 {
        return None;
    }
    let mut at = 2;
    while at < 9 && at + 1 < line.len() {
        let digit = u32::from(line[at].wrapping_sub(b'0'));
        if digit > 9 {
            return (line[at] == b'\r').then_some((value, at + 2));
        }
        value = value * 10 + digit;
        at += 1;
    }
    None
}

/// Where the line ends in which `at` stands: the position of its CR. Truncated if that may still come.
#[inline]
pub(crate) fn line_end(bytes: &[u8], at: usize) -> Result<usize, ReplyError> {
    // Most lines are a few digits or "OK": not worth the call of a vectorised search.
    let near = bytes.len().min(at + 12);
    let mut end = at;
    while end < near && !matches!(bytes[end], b'\r' | b'\n') {
        end += 1;
    }
    if end == near {
        let found = memchr::memchr2(b'\r', b'\n', &bytes[near..]).ok_or(ReplyError::Truncated)?;
        end = near + found;
    }
    if bytes[end] == b'\n' {
        return Err(ReplyError::LineEnd);
    }
    match bytes.get(end + 1) {
        Some(b'\n') => Ok(end),
        Some(_) => Err(ReplyError::LineEnd),
        None => Err(ReplyError::Truncated),
    }
}

/// A length or count in its line. None: the -1 of RESP2 that means a missing value.
pub(crate) fn length(text: &[u8]) -> Result<Option<usize>, ReplyError> {
    match number::parse_i64(text) {
        Some(-1) => Ok(None),
        Some(value) => usize::try_from(value).map(Some).map_err(|_| ReplyError::Length),
        None => Err(ReplyError::Length),
    }
}

/// A double as RESP3 spells it: digits with fraction and exponent, or `inf`, `-inf`, `nan`, `-nan`.
pub(crate) fn is_double(text: &[u8]) -> bool {
    let unsigned = unsigned(text);
    if matches!(text, b"inf" | b"-inf" | b"nan" | b"-nan") {
        return true;
    }
    let (mut at, whole) = digits(unsigned, 0);
    let mut any = whole;
    if unsigned.get(at) == Some(&b'.') {
        let (end, fraction) = digits(unsigned, at + 1);
        if !fraction {
            return false;
        }
        (at, any) = (end, true);
    }
    if any && matches!(unsigned.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(unsigned.get(at + 1), Some(b'+' | b'-')));
        (at, any) = digits(unsigned, at + 1 + sign);
    }
    any && at == unsigned.len()
}

fn unsigned(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")).unwrap_or(text)
}

/// Where the digits from `at` on end, and whether there are any.
fn digits(text: &[u8], at: usize) -> (usize, bool) {
    let len = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (at + len, len > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_up_to_seven_digits_are_short() {
        for (line, wanted) in [
            ("$0\r\n", Some((0, 4))),
            ("$7\r\nx", Some((7, 4))),
            ("$10\r\n", Some((10, 5))),
            ("$1234567\r\n", Some((1234567, 10))),
            ("$12345678\r\n", None),
            ("$1\r", None),
            ("$10\r", None),
            ("$10", None),
            ("$", None),
            ("", None),
            ("$01\r\n", None),
            ("$-1\r\n", None),
            ("$1x\r\n", None),
            ("$\r\n\r\n", None),
        ] {
            assert_eq!(short_number(line.as_bytes()), wanted, "{line:?}");
        }
    }

    #[test]
    fn doubles() {
        for good in
            ["0", "-1", "+1.5", "10.25", "1e5", "1E-7", "1.5e+300", "inf", "-inf", "nan", "-nan", ".5", "-.5"]
        {
            assert!(is_double(good.as_bytes()), "{good}");
        }
        for bad in [
            "", "-", "+", ".", "1.", "1.e5", "e5", "1e", "1e+", "+inf", "+nan", "Inf", "0x10", "1 ", " 1",
            "1,5", "--1",
        ] {
            assert!(!is_double(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn line_ends() {
        for text in ["", "a", "0123456789ab", "a long line that no loop wants to read byte by byte"] {
            let end = text.len() + 1;
            assert_eq!(line_end(format!("+{text}\r\nx").as_bytes(), 1), Ok(end));
            assert_eq!(line_end(format!("+{text}\r").as_bytes(), 1), Err(ReplyError::Truncated));
            assert_eq!(line_end(format!("+{text}").as_bytes(), 1), Err(ReplyError::Truncated));
            assert_eq!(line_end(format!("+{text}\n").as_bytes(), 1), Err(ReplyError::LineEnd));
            assert_eq!(line_end(format!("+{text}\rx\r\n").as_bytes(), 1), Err(ReplyError::LineEnd));
        }
    }
}
