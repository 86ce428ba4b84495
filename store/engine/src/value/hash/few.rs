//! A small hash some of whose fields expire: a row as of other small ones, and the times beside it.

use std::num::NonZeroU64;

use crate::size::{allocated, doubling};
use crate::value::packed::{self, Packed};

/// A row of fields and values, and when the fields expire.
#[derive(Clone)]
pub struct Few {
    /// The fields with their values.
    pub row: Packed,
    /// Of each field by its position, in Unix milliseconds; 0: it does not expire.
    times: Vec<u64>,
    /// The first of them.
    first: Option<NonZeroU64>,
}

impl Few {
    /// These fields, none of which expires yet.
    pub fn new(row: Packed) -> Few {
        Few { times: vec![0; row.len() / 2], row, first: None }
    }

    /// Bytes that one of `len` fields takes on the heap, if their row takes `room`.
    pub fn bytes(len: usize, room: usize) -> usize {
        allocated(size_of::<Few>()) + packed::heap(room) + doubling(len, size_of::<u64>())
    }

    /// A time before which no field expires, if any does.
    pub fn first(&self) -> Option<NonZeroU64> {
        self.first
    }

    /// When the field at this position expires.
    pub fn time(&self, position: usize) -> Option<NonZeroU64> {
        self.times.get(position).copied().and_then(NonZeroU64::new)
    }

    /// The times of all fields that expire.
    pub fn times(&self) -> impl Iterator<Item = NonZeroU64> {
        self.times.iter().copied().filter_map(NonZeroU64::new)
    }

    /// Says when the field at this position expires.
    pub fn set(&mut self, position: usize, at: Option<NonZeroU64>) {
        if let Some(time) = self.times.get_mut(position) {
            *time = at.map_or(0, NonZeroU64::get);
        }
        self.first = self.times().min();
    }

    /// A field that does not expire has come to this position of the row.
    pub fn came(&mut self, position: usize) {
        self.times.insert(position, 0);
    }

    /// The field at this position has left the row.
    pub fn left(&mut self, position: usize) {
        self.times.remove(position);
        self.first = self.times().min();
    }
}
