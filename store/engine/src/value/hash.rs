//! Hashes: fields in the order they came, densely behind a hash index, so that a random field and a scan
//! position are an index, as in [`crate::Keyspace`].

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::size::{allocated, dense_table};

/// Bytes of a field's entry: two fat pointers and the kept hash.
const ENTRY: usize = size_of::<(Box<[u8]>, Box<[u8]>, usize)>();
/// Bytes of the structure itself.
const HASH_OVERHEAD: usize = allocated(size_of::<Hash>());
/// Up to this many fields a removal keeps the order of the others, as Redis' compact encoding does.
const ORDERED_UP_TO: usize = 64;

/// Places that may stay unused; with most fields gone, memory is given back.
const SPARE: usize = 256;

/// A hash value.
#[derive(Clone, Default, Debug)]
pub struct Hash {
    fields: IndexMap<Box<[u8]>, Box<[u8]>, RandomState>,
    payload: usize,
}

impl Hash {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(|value| &**value)
    }

    /// Position and value of `field`.
    pub fn find(&self, field: &[u8]) -> Option<(usize, &[u8])> {
        self.fields.get_full(field).map(|(at, _, value)| (at, &**value))
    }

    /// Whether `field` is there.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.fields.contains_key(field)
    }

    /// Field and value at a position below [`Hash::len`].
    pub fn at(&self, at: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get_index(at).map(|(field, value)| (&**field, &**value))
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(field, value)| (&**field, &**value))
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        HASH_OVERHEAD + self.payload + dense_table(self.fields.len(), ENTRY)
    }

    pub(crate) fn insert(&mut self, field: &[u8], value: &[u8]) -> Option<Box<[u8]>> {
        self.payload += allocated(value.len());
        if let Some(held) = self.fields.get_mut(field) {
            let old = std::mem::replace(held, value.into());
            self.payload -= allocated(old.len());
            return Some(old);
        }
        self.payload += allocated(field.len());
        self.fields.insert(field.into(), value.into());
        None
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> Option<Box<[u8]>> {
        let value = if self.fields.len() <= ORDERED_UP_TO {
            self.fields.shift_remove(field)
        } else {
            self.fields.swap_remove(field)
        }?;
        self.payload -= allocated(field.len()) + allocated(value.len());
        if self.fields.capacity() > SPARE + 4 * self.fields.len() {
            self.fields.shrink_to(2 * self.fields.len());
        }
        Some(value)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Hash::remove`].
    pub(crate) fn restore(&mut self, at: usize, field: Box<[u8]>, value: Box<[u8]>) {
        self.payload += allocated(field.len()) + allocated(value.len());
        if self.fields.len() < ORDERED_UP_TO {
            self.fields.shift_insert(at, field, value);
        } else {
            let (last, _) = self.fields.insert_full(field, value);
            self.fields.swap_indices(at, last);
        }
    }
}

impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        self.fields == other.fields
    }
}
