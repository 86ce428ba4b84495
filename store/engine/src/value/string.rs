//! Strings. Invariant: bytes that spell a 64-bit integer canonically are kept as that integer until somebody
//! edits them in place, so counters cost no allocation.

use std::borrow::Cow;

use crate::size::allocated;
use crate::{Work, number};

/// A string value.
#[derive(Clone, Debug)]
pub enum Str {
    /// A counter.
    Int(i64),
    /// Any bytes.
    Raw(Vec<u8>),
}

/// Bytes that are written between two looks at whether the call is to end.
const PIECE_BYTES: usize = 1 << 20;

/// Fills `raw` with zeros up to `len` bytes, or less when the work is cancelled; says whether it is filled.
fn fill(raw: &mut Vec<u8>, len: usize, work: &Work) -> bool {
    while raw.len() < len {
        let piece = (len - raw.len()).min(PIECE_BYTES);
        if !work.step_bytes(piece) {
            return false;
        }
        raw.resize(raw.len() + piece, 0);
    }
    true
}

impl Str {
    /// The longest string there may be: 512 MB, as in Redis.
    pub const MAX_BYTES: usize = 512 << 20;

    /// From bytes.
    pub fn new(bytes: &[u8]) -> Str {
        Str::integer_of(bytes).map_or_else(|| Str::Raw(bytes.to_vec()), Str::Int)
    }

    /// From bytes of which no copy is made.
    pub(crate) fn from_vec(mut bytes: Vec<u8>) -> Str {
        bytes.shrink_to_fit();
        Str::integer_of(&bytes).map_or(Str::Raw(bytes), Str::Int)
    }

    /// The number that `bytes` are kept as, if they spell one.
    pub(crate) fn integer_of(bytes: &[u8]) -> Option<i64> {
        // 20 bytes are the longest 64-bit integer.
        if bytes.len() <= 20 { number::parse_i64(bytes) } else { None }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Str::Int(value) => Cow::Owned(itoa::Buffer::new().format(*value).as_bytes().to_vec()),
            Str::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Str::Int(value) => itoa::Buffer::new().format(*value).len(),
            Str::Raw(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value as a 64-bit integer, if it spells one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Str::Int(value) => Some(*value),
            Str::Raw(bytes) => number::parse_i64(bytes),
        }
    }

    /// The bytes to edit; an integer becomes its spelling first.
    pub(crate) fn raw_mut(&mut self) -> &mut Vec<u8> {
        if let Str::Int(_) = self {
            *self = Str::Raw(self.as_bytes().into_owned());
        }
        match self {
            Str::Raw(bytes) => bytes,
            Str::Int(_) => unreachable!("integers were turned into bytes above"),
        }
    }

    /// So many zeros, unless the work is cancelled.
    pub(crate) fn zeros(len: usize, work: &Work) -> Option<Vec<u8>> {
        let mut zeros = Vec::with_capacity(len);
        fill(&mut zeros, len, work).then_some(zeros)
    }

    /// Whether it takes long to fill it with zeros up to `filled` bytes, with room for `len`.
    pub(crate) fn is_slow_to_grow(&self, filled: usize, len: usize) -> bool {
        let moves = match self {
            Str::Int(_) => false,
            Str::Raw(raw) => len > raw.capacity() && raw.len() >= PIECE_BYTES,
        };
        moves || filled.saturating_sub(self.len()) >= PIECE_BYTES
    }

    /// Fills it with zeros up to `filled` bytes, with room for `len`; says whether the work was not cancelled before.
    pub(crate) fn grow(&mut self, filled: usize, len: usize, work: &Work) -> bool {
        let raw = self.raw_mut();
        if len > raw.capacity() {
            // As much as it would have got when bytes are added.
            let mut grown = Vec::with_capacity(len.max(2 * raw.capacity()));
            for piece in raw.chunks(PIECE_BYTES) {
                if !work.step_bytes(piece.len()) {
                    return false;
                }
                grown.extend_from_slice(piece);
            }
            *raw = grown;
        }
        fill(raw, filled, work)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match self {
            Str::Int(_) => 0,
            Str::Raw(bytes) => allocated(bytes.capacity()),
        }
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
