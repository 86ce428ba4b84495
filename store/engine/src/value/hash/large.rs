//! The large form of a hash: a table, and when its fields expire if any does.

use super::expiries::Expiries;
use super::table::HashTable;
use crate::size::allocated;

/// A large hash.
#[derive(Clone)]
pub enum Large {
    /// No field expires.
    Lasting(HashTable),
    /// Some do; in an allocation of its own, so that the others take no room for it.
    Expiring(Box<Expiring>),
}

// It takes no more than the table.
const _: () = assert!(size_of::<Large>() == size_of::<HashTable>());

/// A table some of whose fields expire.
#[derive(Clone, Default)]
pub struct Expiring {
    table: HashTable,
    expiries: Expiries,
}

impl Default for Large {
    fn default() -> Large {
        Large::Lasting(HashTable::default())
    }
}

impl Large {
    /// The fields with their values.
    pub fn table(&self) -> &HashTable {
        match self {
            Large::Lasting(table) => table,
            Large::Expiring(expiring) => &expiring.table,
        }
    }

    /// The same, to be changed.
    pub fn table_mut(&mut self) -> &mut HashTable {
        match self {
            Large::Lasting(table) => table,
            Large::Expiring(expiring) => &mut expiring.table,
        }
    }

    /// When fields expire, if any does.
    pub fn expiries(&self) -> Option<&Expiries> {
        match self {
            Large::Lasting(_) => None,
            Large::Expiring(expiring) => Some(&expiring.expiries),
        }
    }

    /// The same, to be changed. Who has taken the last calls [`Large::settle`].
    pub fn expiries_mut(&mut self) -> Option<&mut Expiries> {
        match self {
            Large::Lasting(_) => None,
            Large::Expiring(expiring) => Some(&mut expiring.expiries),
        }
    }

    /// The same, made if need be: something is added then.
    pub fn expiries_made(&mut self) -> &mut Expiries {
        if let Large::Lasting(table) = self {
            let table = std::mem::take(table);
            *self = Large::Expiring(Box::new(Expiring { table, expiries: Expiries::default() }));
        }
        match self {
            Large::Expiring(expiring) => &mut expiring.expiries,
            Large::Lasting(_) => unreachable!("it was made expiring above"),
        }
    }

    /// If no field expires any more, what was kept for that goes.
    pub fn settle(&mut self) {
        if let Large::Expiring(expiring) = self
            && expiring.expiries.is_empty()
        {
            *self = Large::Lasting(std::mem::take(&mut expiring.table));
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let beside = self.expiries().map_or(0, |held| allocated(size_of::<Expiring>()) + held.bytes());
        self.table().bytes() + beside
    }
}
