//! What a set shows of its members: their text, also of those that are kept as numbers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// The text of a member.
#[derive(Clone, Copy)]
pub struct Member<'a>(Text<'a>);

impl AsRef<[u8]> for Member<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[derive(Clone, Copy)]
enum Text<'a> {
    Held(&'a [u8]),
    /// The digits of a number, and how many they are.
    Spelled([u8; LONGEST], u8),
}

/// Bytes of the longest number.
const LONGEST: usize = "-9223372036854775808".len();

impl<'a> Member<'a> {
    /// One that is kept as text.
    pub fn of_text(text: &'a [u8]) -> Member<'a> {
        Member(Text::Held(text))
    }

    /// One that is kept as a number.
    pub fn of_number(number: i64) -> Member<'a> {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        let mut spelled = [0; LONGEST];
        spelled[..digits.len()].copy_from_slice(digits);
        Member(Text::Spelled(spelled, digits.len() as u8))
    }
}

impl Deref for Member<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Text::Held(text) => text,
            Text::Spelled(digits, len) => &digits[..usize::from(*len)],
        }
    }
}

impl PartialEq for Member<'_> {
    fn eq(&self, other: &Member<'_>) -> bool {
        **self == **other
    }
}

impl Eq for Member<'_> {}

impl PartialOrd for Member<'_> {
    fn partial_cmp(&self, other: &Member<'_>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Member<'_> {
    fn cmp(&self, other: &Member<'_>) -> std::cmp::Ordering {
        (**self).cmp(other)
    }
}

impl Hash for Member<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.escape_ascii(), f)
    }
}
