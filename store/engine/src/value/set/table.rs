//! Large sets: members densely behind a hash index, as fields in [`super::hash`].

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use crate::size::{allocated, dense_table};
use crate::value::Str;
use crate::value::form::Weight;
use crate::value::numbers::width_of;

/// Up to this many members a removal keeps the order of the others.
pub const ORDERED_UP_TO: usize = 64;

/// Bytes of a member's entry: fat pointer and kept hash.
const ENTRY: usize = size_of::<(Box<[u8]>, usize)>();
/// Bytes of the structure itself.
const TABLE_OVERHEAD: usize = allocated(size_of::<Table>());

/// Places that may stay unused; with most members gone, memory is given back.
const SPARE: usize = 256;

/// A large set.
#[derive(Clone, Default)]
pub struct Table {
    members: IndexSet<Box<[u8]>, RandomState>,
    /// Of the members.
    pub weight: Weight,
    /// How many members are no number, and how many are numbers of each width.
    census: Census,
}

/// Counts by the width of a number's power of two; first those of texts.
type Census = [u32; 4];

/// Where a member is counted.
fn class_of(member: &[u8]) -> usize {
    Str::integer_of(member).map_or(0, |number| width_of(number).trailing_zeros() as usize)
}

impl Table {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Number of members that are no number.
    pub fn texts(&self) -> usize {
        self.census[0] as usize
    }

    /// Bytes that the widest number needs, if all members are numbers.
    pub fn widest_number(&self) -> Option<usize> {
        let widest = self.census.iter().rposition(|count| *count > 0)?;
        (self.census[0] == 0).then_some(1 << widest)
    }

    /// Whether `member` is there.
    pub fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    /// Position of `member`.
    pub fn find(&self, member: &[u8]) -> Option<usize> {
        self.members.get_index_of(member)
    }

    /// The member at a position below [`Table::len`].
    pub fn at(&self, at: usize) -> Option<&[u8]> {
        self.members.get_index(at).map(|member| &**member)
    }

    /// All members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.members.iter().map(|member| &**member)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        TABLE_OVERHEAD + self.weight.heap + dense_table(self.members.len(), ENTRY)
    }

    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        if self.members.contains(member) {
            return false;
        }
        self.count(member);
        self.members.insert(member.into())
    }

    fn count(&mut self, member: &[u8]) {
        self.weight.add(member.len());
        self.census[class_of(member)] += 1;
    }

    /// Takes the member at `at`.
    pub fn remove_at(&mut self, at: usize) -> Option<Box<[u8]>> {
        let member = if self.members.len() <= ORDERED_UP_TO {
            self.members.shift_remove_index(at)
        } else {
            self.members.swap_remove_index(at)
        }?;
        self.weight.take(member.len());
        self.census[class_of(&member)] -= 1;
        if self.members.capacity() > SPARE + 4 * self.members.len() {
            self.members.shrink_to(2 * self.members.len());
        }
        Some(member)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Table::remove_at`].
    pub fn restore(&mut self, at: usize, member: Box<[u8]>) {
        self.count(&member);
        if self.members.len() < ORDERED_UP_TO {
            self.members.shift_insert(at, member);
        } else {
            let (last, _) = self.members.insert_full(member);
            self.members.swap_indices(at, last);
        }
    }
}
