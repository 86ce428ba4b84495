//! Large hashes: fields in the order they came, densely behind a hash index, so that a random field and a scan
//! position are an index, as in [`crate::Keyspace`].

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::size::{allocated, dense_table};
use crate::value::form::Weight;

/// Up to this many fields a removal keeps the order of the others, as Redis' compact encoding does.
pub const ORDERED_UP_TO: usize = 64;

/// Bytes of a field's entry: two fat pointers and the kept hash.
const ENTRY: usize = size_of::<(Box<[u8]>, Box<[u8]>, usize)>();
/// Bytes of the structure itself.
const TABLE_OVERHEAD: usize = allocated(size_of::<HashTable>());
/// Places that may stay unused; with most fields gone, memory is given back.
const SPARE: usize = 256;

/// A large hash.
#[derive(Clone, Default)]
pub struct HashTable {
    fields: IndexMap<Box<[u8]>, Box<[u8]>, RandomState>,
    /// Of the fields and values.
    pub weight: Weight,
}

impl HashTable {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(|value| &**value)
    }

    /// Position and value of `field`.
    pub fn find(&self, field: &[u8]) -> Option<(usize, &[u8])> {
        self.fields.get_full(field).map(|(at, _, value)| (at, &**value))
    }

    /// Field and value at a position below [`HashTable::len`].
    pub fn at(&self, at: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get_index(at).map(|(field, value)| (&**field, &**value))
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(field, value)| (&**field, &**value))
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        TABLE_OVERHEAD + self.weight.heap + dense_table(self.fields.len(), ENTRY)
    }

    /// Sets `field`; whether it was new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.weight.add(value.len());
        if let Some(held) = self.fields.get_mut(field) {
            let old = std::mem::replace(held, value.into());
            self.weight.take(old.len());
            return false;
        }
        self.weight.add(field.len());
        self.fields.insert(field.into(), value.into());
        true
    }

    /// Takes `field` away: its position and value, if it was there.
    pub fn take(&mut self, field: &[u8]) -> Option<(usize, Box<[u8]>)> {
        let (at, field, value) = if self.fields.len() <= ORDERED_UP_TO {
            self.fields.shift_remove_full(field)
        } else {
            self.fields.swap_remove_full(field)
        }?;
        self.weight.take(field.len());
        self.weight.take(value.len());
        if self.fields.capacity() > SPARE + 4 * self.fields.len() {
            self.fields.shrink_to(2 * self.fields.len());
        }
        Some((at, value))
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`HashTable::take`].
    pub fn restore(&mut self, at: usize, field: Box<[u8]>, value: Box<[u8]>) {
        self.weight.add(field.len());
        self.weight.add(value.len());
        if self.fields.len() < ORDERED_UP_TO {
            self.fields.shift_insert(at, field, value);
        } else {
            let (last, _) = self.fields.insert_full(field, value);
            self.fields.swap_indices(at, last);
        }
    }
}
