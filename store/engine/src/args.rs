//! The call as bytes, name first, and a cursor that parses it.

use crate::error::{self, CommandError};
use crate::number;

/// One call: the command's name and its arguments, borrowed from wherever they arrived (a connection's input
/// buffer, a guest's memory). Copying it copies two words.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    items: &'a [&'a [u8]],
}

impl<'a> Args<'a> {
    /// `items` must hold at least the command's name.
    pub fn new(items: &'a [&'a [u8]]) -> Self {
        debug_assert!(!items.is_empty());
        Args { items }
    }

    /// The name as the caller spelled it.
    pub fn name(&self) -> &'a [u8] {
        self.items[0]
    }

    /// Number of items, the name included: what Redis calls argc.
    #[allow(clippy::len_without_is_empty)] // a call always has its name
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// All items, the name first.
    pub fn items(&self) -> &'a [&'a [u8]] {
        self.items
    }

    /// Item `at`, if the call is that long.
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        self.items.get(at).copied()
    }

    /// The items from `at` on; empty if the call is shorter.
    pub fn rest(&self, at: usize) -> &'a [&'a [u8]] {
        self.items.get(at..).unwrap_or(&[])
    }

    /// A cursor that stands on item `at`.
    pub fn cursor(&self, at: usize) -> Cursor<'a> {
        Cursor { items: self.items, at }
    }

    /// Item `at` as a 64-bit integer, or Redis' "value is not an integer or out of range".
    pub fn integer(&self, at: usize) -> Result<i64, CommandError> {
        number::parse_i64(self[at]).ok_or(error::NOT_AN_INTEGER)
    }

    /// Item `at` as an integer whose negative must exist too: counts whose sign says something.
    pub fn negatable(&self, at: usize) -> Result<i64, CommandError> {
        match self.integer(at)? {
            i64::MIN => Err(CommandError::new(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            )),
            value => Ok(value),
        }
    }

    /// Item `at` as a finite or infinite float, or Redis' "value is not a valid float".
    pub fn float(&self, at: usize) -> Result<f64, CommandError> {
        number::parse_f64(self[at]).ok_or(error::NOT_A_FLOAT)
    }
}

impl<'a> std::ops::Index<usize> for Args<'a> {
    type Output = &'a [u8];

    /// For positions that the arity of the command guarantees.
    fn index(&self, at: usize) -> &&'a [u8] {
        &self.items[at]
    }
}

/// Walks over the arguments behind the fixed ones: options, flags, pairs.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    items: &'a [&'a [u8]],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Whether everything has been read.
    pub fn is_done(&self) -> bool {
        self.at >= self.items.len()
    }

    /// Number of items not read yet.
    pub fn remaining(&self) -> usize {
        self.items.len().saturating_sub(self.at)
    }

    /// Index (within the call) of the item that comes next.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next item without taking it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.items.get(self.at).copied()
    }

    /// Takes the next item; a missing one is a syntax error.
    pub fn bytes(&mut self) -> Result<&'a [u8], CommandError> {
        let item = self.peek().ok_or(error::SYNTAX)?;
        self.at += 1;
        Ok(item)
    }

    /// Takes the next item as an integer.
    pub fn integer(&mut self) -> Result<i64, CommandError> {
        number::parse_i64(self.bytes()?).ok_or(error::NOT_AN_INTEGER)
    }

    /// Takes the next item as a float.
    pub fn float(&mut self) -> Result<f64, CommandError> {
        number::parse_f64(self.bytes()?).ok_or(error::NOT_A_FLOAT)
    }

    /// Takes the next item if it is the word `word` (in any case).
    pub fn flag(&mut self, word: &str) -> bool {
        let hit = self.peek().is_some_and(|item| item.eq_ignore_ascii_case(word.as_bytes()));
        if hit {
            self.at += 1;
        }
        hit
    }

    /// Takes the next `n` items; fewer are a syntax error.
    pub fn take(&mut self, n: usize) -> Result<&'a [&'a [u8]], CommandError> {
        if n > self.remaining() {
            return Err(error::SYNTAX);
        }
        let items = &self.items[self.at..self.at + n];
        self.at += n;
        Ok(items)
    }

    /// All that is left, leaving the cursor at the end.
    pub fn rest(&mut self) -> &'a [&'a [u8]] {
        let items = &self.items[self.at.min(self.items.len())..];
        self.at = self.items.len();
        items
    }
}

/// Positions from `first` to `last` in what has `len` elements; negative ones count from the end. Empty ranges may have any
/// start.
pub fn positions(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let from_end = |at: i64| if at < 0 { at.saturating_add(len as i64) } else { at };
    let (first, last) = (from_end(first).max(0), from_end(last));
    if last < first {
        return 0..0;
    }
    // Neither is negative here.
    (first as usize).min(len)..(last as usize).saturating_add(1).min(len)
}

/// How many elements the range has that the third and the fourth item of a call name; all of them if they are no numbers.
pub fn range(args: Args<'_>, len: usize) -> usize {
    let number = |at: usize| args.get(at).and_then(number::parse_i64);
    number(2).zip(number(3)).map_or(len, |(first, last)| positions(first, last, len).len())
}

/// How many elements a call takes whose third item may be their number, as LPOP.
pub fn count(args: Args<'_>, len: usize) -> usize {
    let count = args.get(2).and_then(number::parse_i64).unwrap_or(1);
    usize::try_from(count).map_or(len, |count| count.min(len))
}
