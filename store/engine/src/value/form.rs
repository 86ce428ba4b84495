//! The two forms of a collection: packed while it is small, and whatever is fast when it is large.

use super::packed;
use crate::size::allocated;

/// One of two forms, of a value or of what walks over it.
#[derive(Clone)]
pub enum Form<P, L> {
    /// Small: one allocation.
    Packed(P),
    /// Large.
    Large(L),
}

/// How much is kept packed: more than that is large at once. What was large is packed again when half of that is left,
/// so that a collection at the limit does not change its form all the time.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Number of elements.
    pub len: usize,
    /// Bytes of the elements in their row.
    pub room: usize,
}

impl Limit {
    /// Whether a collection may be packed.
    pub const fn allows(self, len: usize, room: usize) -> bool {
        len <= self.len && room <= self.room
    }

    /// Whether a large one has become small enough.
    pub const fn calls_back(self, len: usize, room: usize) -> bool {
        2 * len <= self.len && 2 * room <= self.room
    }

    /// Bytes on the heap, by what is held and not by its form, which depends on what was held before: the bytes of a
    /// row if that may hold it, else `large`.
    pub fn bytes(self, len: usize, room: usize, large: impl FnOnce() -> usize) -> usize {
        if self.allows(len, room) { packed::heap(room) } else { large() }
    }
}

/// What the elements of a large collection take.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Weight {
    /// Bytes on the heap, each by itself.
    pub heap: usize,
    /// Bytes they would take in a row.
    pub room: usize,
}

impl Weight {
    /// Adds an element of `len` bytes.
    pub fn add(&mut self, len: usize) {
        self.heap += allocated(len);
        self.room += packed::room(len);
    }

    /// Takes an element of `len` bytes away.
    pub fn take(&mut self, len: usize) {
        self.heap -= allocated(len);
        self.room -= packed::room(len);
    }
}

impl<T, P: Iterator<Item = T>, L: Iterator<Item = T>> Iterator for Form<P, L> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Form::Packed(items) => items.next(),
            Form::Large(items) => items.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Form::Packed(items) => items.size_hint(),
            Form::Large(items) => items.size_hint(),
        }
    }

    fn nth(&mut self, n: usize) -> Option<T> {
        match self {
            Form::Packed(items) => items.nth(n),
            Form::Large(items) => items.nth(n),
        }
    }

    fn fold<A, F: FnMut(A, T) -> A>(self, init: A, f: F) -> A {
        match self {
            Form::Packed(items) => items.fold(init, f),
            Form::Large(items) => items.fold(init, f),
        }
    }
}

impl<T, P, L> DoubleEndedIterator for Form<P, L>
where
    P: DoubleEndedIterator<Item = T>,
    L: DoubleEndedIterator<Item = T>,
{
    fn next_back(&mut self) -> Option<T> {
        match self {
            Form::Packed(items) => items.next_back(),
            Form::Large(items) => items.next_back(),
        }
    }
}

impl<T, P, L> ExactSizeIterator for Form<P, L>
where
    P: ExactSizeIterator<Item = T>,
    L: ExactSizeIterator<Item = T>,
{
}
