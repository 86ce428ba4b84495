//! What a hash is that is no mere row: a table, or one whose fields expire.

use super::expiries::Expiries;
use super::few::Few;
use super::table::HashTable;
use crate::size::allocated;

/// A large hash, or one whose fields expire.
#[derive(Clone)]
pub enum Large {
    /// No field expires.
    Lasting(HashTable),
    /// Some do; in an allocation of its own, so that the others take no room for it.
    Expiring(Box<Expiring>),
    /// Some do, and there are few fields.
    Few(Box<Few>),
}

// It takes no more than the table.
const _: () = assert!(size_of::<Large>() == size_of::<HashTable>());

/// A table some of whose fields expire.
#[derive(Clone, Default)]
pub struct Expiring {
    /// The fields with their values.
    pub table: HashTable,
    /// When they expire.
    pub expiries: Expiries,
}

impl Expiring {
    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + allocated(size_of::<Expiring>()) + self.expiries.bytes()
    }
}
