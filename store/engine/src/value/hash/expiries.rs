//! When fields of a hash expire: beside those that do, so that others cost nothing.
//!
//! Fields lie densely, as keys in [`crate::Keyspace`], and what is due is found in the same way.

use std::num::NonZeroU64;

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::expiry_index::{ExpiryIndex, SPAN};
use crate::size::{allocated, dense_table, doubling};

/// Bytes of a field's entry: its name, its time and the kept hash.
const ENTRY: usize = size_of::<(Box<[u8]>, NonZeroU64, usize)>();
/// Places that may stay unused, as in a table.
const SPARE: usize = 256;

/// The fields of a hash that expire; Unix times in milliseconds.
#[derive(Clone, Default)]
pub struct Expiries {
    times: IndexMap<Box<[u8]>, NonZeroU64, RandomState>,
    due: ExpiryIndex,
    /// Bytes of the names.
    heap: usize,
}

impl Expiries {
    /// How many fields expire.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether no field expires.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// When `field` expires.
    pub fn get(&self, field: &[u8]) -> Option<NonZeroU64> {
        self.times.get(field).copied()
    }

    /// A time before which no field expires.
    pub fn first(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.due.first()).filter(|_| !self.is_empty())
    }

    /// How many fields have expired.
    pub fn count_due(&self, now_ms: u64) -> usize {
        self.times.values().filter(|at| at.get() <= now_ms).count()
    }

    /// Bytes on the heap, beside those of the structure itself.
    pub fn bytes(&self) -> usize {
        let spans = self.times.len().div_ceil(SPAN);
        self.heap + dense_table(self.times.len(), ENTRY) + doubling(spans, size_of::<u64>())
    }

    /// `field` expires then.
    pub fn set(&mut self, field: &[u8], at: NonZeroU64) {
        let place = match self.times.get_full_mut(field) {
            Some((place, _, held)) => {
                *held = at;
                place
            }
            None => {
                self.heap += allocated(field.len());
                self.times.insert_full(field.into(), at).0
            }
        };
        self.due.note(place, Some(at));
    }

    /// `field` does not expire any more; when it did.
    pub fn clear(&mut self, field: &[u8]) -> Option<NonZeroU64> {
        let place = self.times.get_index_of(field)?;
        self.take_at(place).map(|(_, at)| at)
    }

    fn take_at(&mut self, place: usize) -> Option<(Box<[u8]>, NonZeroU64)> {
        let (field, at) = self.times.swap_remove_index(place)?;
        self.heap -= allocated(field.len());
        self.due.cut(self.times.len());
        // The last one has come here.
        self.due.note(place, self.times.get_index(place).map(|(_, moved)| *moved));
        if self.times.capacity() > SPARE + 4 * self.times.len() {
            self.times.shrink_to(2 * self.times.len());
        }
        Some((field, at))
    }

    /// Takes fields that have expired, with their times, from one place where there may be some. `None`: there is no
    /// such place.
    pub fn take_due(&mut self, now_ms: u64) -> Option<Vec<(Box<[u8]>, NonZeroU64)>> {
        let span = self.due.take_due(now_ms)?;
        let mut taken = Vec::new();
        for place in (span * SPAN..self.times.len().min((span + 1) * SPAN)).rev() {
            match self.times.get_index(place) {
                Some((_, at)) if at.get() <= now_ms => taken.extend(self.take_at(place)),
                Some((_, at)) => self.due.note(place, Some(*at)),
                None => {}
            }
        }
        Some(taken)
    }
}
