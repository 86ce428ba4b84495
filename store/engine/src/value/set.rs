//! Sets: members densely behind a hash index, as fields in [`super::hash`].

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use crate::size::{allocated, dense_table};

/// Bytes of a member's entry: fat pointer and kept hash.
const ENTRY: usize = size_of::<(Box<[u8]>, usize)>();
/// Bytes of the structure itself.
const SET_OVERHEAD: usize = allocated(size_of::<Set>());

/// Places that may stay unused; with most members gone, memory is given back.
const SPARE: usize = 256;

/// A set value.
#[derive(Clone, Default, Debug)]
pub struct Set {
    members: IndexSet<Box<[u8]>, RandomState>,
    payload: usize,
}

impl Set {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether `member` is there.
    pub fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    /// Position of `member`.
    pub fn find(&self, member: &[u8]) -> Option<usize> {
        self.members.get_index_of(member)
    }

    /// The member at a position below [`Set::len`].
    pub fn at(&self, at: usize) -> Option<&[u8]> {
        self.members.get_index(at).map(|member| &**member)
    }

    /// All members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.members.iter().map(|member| &**member)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        SET_OVERHEAD + self.payload + dense_table(self.members.len(), ENTRY)
    }

    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        if self.members.contains(member) {
            return false;
        }
        self.payload += allocated(member.len());
        self.members.insert(member.into())
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.members.swap_remove(member);
        if removed {
            self.payload -= allocated(member.len());
        }
        removed
    }

    /// Takes the member at `at`; the last one gets its place.
    pub(crate) fn remove_at(&mut self, at: usize) -> Option<Box<[u8]>> {
        let member = self.members.swap_remove_index(at)?;
        self.payload -= allocated(member.len());
        if self.members.capacity() > SPARE + 4 * self.members.len() {
            self.members.shrink_to(2 * self.members.len());
        }
        Some(member)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Set::remove_at`].
    pub(crate) fn restore(&mut self, at: usize, member: Box<[u8]>) {
        self.payload += allocated(member.len());
        let (last, _) = self.members.insert_full(member);
        self.members.swap_indices(at, last);
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.members == other.members
    }
}
