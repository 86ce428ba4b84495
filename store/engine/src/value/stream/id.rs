//! IDs of entries: a time and a number within it.

use std::fmt;

use smallvec::SmallVec;

/// An entry's place in its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id {
    /// Milliseconds, of the Unix time where nobody says otherwise.
    pub ms: u64,
    /// Tells those of the same millisecond apart.
    pub seq: u64,
}

impl Id {
    /// Before all entries: none has this one.
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    /// The last one possible.
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// The one behind it, if there is one.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before it, if there is one.
    pub fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Bytes in the order of the IDs.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// What [`Id::to_bytes`] made.
    pub fn from_bytes(bytes: [u8; 16]) -> Id {
        let both = u128::from_be_bytes(bytes);
        Id { ms: (both >> 64) as u64, seq: both as u64 }
    }

    /// As replies have it.
    pub fn spelled(self) -> SmallVec<[u8; 48]> {
        let mut text = SmallVec::new();
        text.extend_from_slice(itoa::Buffer::new().format(self.ms).as_bytes());
        text.push(b'-');
        text.extend_from_slice(itoa::Buffer::new().format(self.seq).as_bytes());
        text
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An ID as an argument spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelled {
    /// Its milliseconds.
    pub ms: u64,
    /// Its number; `None` for a star.
    pub seq: Option<u64>,
}

/// Reads `ms`, `ms-seq` or `ms-*`, as loosely as Redis does. Without a number it gets `missing_seq`.
pub fn parse(text: &[u8], missing_seq: u64) -> Option<Spelled> {
    // Redis has a buffer of this size, in which a zero ends the text.
    if text.len() > 127 {
        return None;
    }
    let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
    let (ms, seq) = match text.iter().position(|byte| *byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let ms = unsigned(ms)?;
    let seq = match seq {
        None => Some(missing_seq),
        Some(b"*") => None,
        Some(seq) => Some(unsigned(seq)?),
    };
    Some(Spelled { ms, seq })
}

/// Reads a number as C's `strtoull` does: behind blanks, with a sign, which turns it around.
fn unsigned(text: &[u8]) -> Option<u64> {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // What is a negative number in its one spelling is refused before.
    if crate::number::parse_i64(text).is_some_and(i64::is_negative) {
        return None;
    }
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_as_redis_reads_them() {
        let id = |ms, seq| Some(Spelled { ms, seq: Some(seq) });
        for (text, wanted) in [
            ("5", id(5, 7)),
            ("5-3", id(5, 3)),
            ("5-*", Some(Spelled { ms: 5, seq: None })),
            ("05-+3", id(5, 3)),
            (" 5- 3", id(5, 3)),
            ("18446744073709551615-18446744073709551615", id(u64::MAX, u64::MAX)),
            ("18446744073709551616", None),
            ("5--01", id(5, u64::MAX)),
            ("5--1", None),
            ("5-3-1", None),
            ("5\0x-1", id(5, 7)),
            ("", None),
            ("-", None),
            ("-5", None),
            ("5-", None),
            ("5 ", None),
            ("*", None),
            ("a-1", None),
        ] {
            assert_eq!(parse(text.as_bytes(), 7), wanted, "{text}");
        }
        assert_eq!(parse(&[b'0'; 127], 7), id(0, 7));
        assert_eq!(parse(&[b'0'; 128], 7), None);
    }

    #[test]
    fn neighbours() {
        let id = |ms, seq| Id { ms, seq };
        for (one, other) in
            [(id(0, 0), id(0, 1)), (id(4, u64::MAX), id(5, 0)), (id(u64::MAX, 3), id(u64::MAX, 4))]
        {
            assert_eq!((one.next(), other.previous()), (Some(other), Some(one)));
            assert_eq!(Id::from_bytes(one.to_bytes()), one);
            assert!(one.to_bytes() < other.to_bytes());
        }
        assert_eq!((Id::MAX.next(), Id::MIN.previous()), (None, None));
        assert_eq!(&*id(12, 3).spelled(), b"12-3");
    }
}
