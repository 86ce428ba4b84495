//! Hashes: packed while they are small, then a table. Either way fields have positions, in the order they came: a
//! random field and a scan need them, and they do not change with the form.
//!
//! A hash some of whose fields expire is a table, however small. A field whose time is over stays until somebody takes
//! it: who reads for a client asks [`Hash::live`].

mod expiries;
mod large;
mod table;

use std::fmt;
use std::num::NonZeroU64;

use super::form::{Form, Limit};
use super::packed::{Packed, room};
use expiries::Expiries;
use large::Large;
use table::{HashTable, ORDERED_UP_TO};

/// Measured: HGET took 0.6 of the time that it takes in a table with 6 fields, and 1.3 of it with 100.
const LIMIT: Limit = Limit { len: ORDERED_UP_TO, room: 4 << 10 };

/// A hash value.
#[derive(Clone)]
pub struct Hash(Form<Packed, Box<Large>>);

impl Default for Hash {
    fn default() -> Hash {
        Hash(Form::Packed(Packed::default()))
    }
}

/// Where a field is in a row.
struct FieldAt<'a> {
    position: usize,
    at: usize,
    value_at: usize,
    value: &'a [u8],
    end: usize,
}

fn find_field<'a>(row: &'a Packed, wanted: &[u8]) -> Option<FieldAt<'a>> {
    let mut at = row.start();
    for position in 0..row.len() / 2 {
        let (field, value_at) = row.read(at);
        let (value, end) = row.read(value_at);
        if field == wanted {
            return Some(FieldAt { position, at, value_at, value, end });
        }
        at = end;
    }
    None
}

impl Hash {
    /// Number of fields, those included whose time is over.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.len() / 2,
            Form::Large(large) => large.table().len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(row) => find_field(row, field).map(|found| found.value),
            Form::Large(large) => large.table().get(field),
        }
    }

    /// Position and value of `field`.
    pub fn find(&self, field: &[u8]) -> Option<(usize, &[u8])> {
        match &self.0 {
            Form::Packed(row) => find_field(row, field).map(|found| (found.position, found.value)),
            Form::Large(large) => large.table().find(field),
        }
    }

    /// Whether `field` is there.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Field and value at a position below [`Hash::len`].
    pub fn at(&self, at: usize) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            Form::Packed(row) => {
                let (field, next) = row.read((at < self.len()).then(|| row.offset(2 * at))?);
                Some((field, row.read(next).0))
            }
            Form::Large(large) => large.table().at(at),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        match &self.0 {
            Form::Packed(row) => Form::Packed(row.all_pairs()),
            Form::Large(large) => Form::Large(large.table().iter()),
        }
    }

    /// What clients see at this time.
    pub fn live(&self, now_ms: u64) -> Live<'_> {
        let expiries = self.expiries().filter(|expiries| expiries.may_be_due(now_ms));
        Live { hash: self, expiries, now_ms }
    }

    fn expiries(&self) -> Option<&Expiries> {
        match &self.0 {
            Form::Packed(_) => None,
            Form::Large(large) => large.expiries(),
        }
    }

    /// How many fields have a time at which they expire.
    pub fn expiring(&self) -> usize {
        self.expiries().map_or(0, Expiries::len)
    }

    /// Whether some field has a time at which it expires.
    pub fn is_expiring(&self) -> bool {
        self.expiries().is_some()
    }

    /// When `field` expires, in Unix milliseconds.
    pub fn expiry(&self, field: &[u8]) -> Option<NonZeroU64> {
        self.expiries()?.get(field)
    }

    /// A time before which no field expires, if any does.
    pub fn first_expiry(&self) -> Option<NonZeroU64> {
        self.expiries()?.first()
    }

    /// Whether `field` is there although its time is over.
    pub fn is_overdue(&self, field: &[u8], now_ms: u64) -> bool {
        self.expiries().is_some_and(|expiries| expiries.is_due(field, now_ms))
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.bytes(),
            Form::Large(large) if large.expiries().is_some() => large.bytes(),
            Form::Large(large) => {
                LIMIT.bytes(large.table().len(), large.table().weight.room, || large.bytes())
            }
        }
    }

    /// The large form, made if need be.
    fn enlarge(&mut self) -> &mut Large {
        if let Form::Packed(row) = &self.0 {
            let mut table = HashTable::default();
            row.all_pairs().for_each(|(field, value)| _ = table.insert(field, value));
            self.0 = Form::Large(Box::new(Large::Lasting(table)));
        }
        match &mut self.0 {
            Form::Large(large) => large,
            Form::Packed(_) => unreachable!("it was made large above"),
        }
    }

    /// Packs a large form that is `small` enough, unless fields expire.
    fn pack_if(&mut self, small: impl FnOnce(&HashTable) -> bool) {
        if let Form::Large(large) = &self.0
            && large.expiries().is_none()
            && small(large.table())
        {
            let elements: Vec<&[u8]> =
                large.table().iter().flat_map(|(field, value)| [field, value]).collect();
            self.0 = Form::Packed(Packed::of(&elements));
        }
    }

    /// Sets `field`, which does not expire then; whether it was new.
    pub(crate) fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Form::Packed(row) = &mut self.0 else {
            self.set_expiry(field, None);
            return match &mut self.0 {
                Form::Packed(_) => self.insert(field, value),
                Form::Large(large) => large.table_mut().insert(field, value),
            };
        };
        match find_field(row, field) {
            Some(FieldAt { value_at, end, .. }) if LIMIT.allows(0, row.room() + room(value.len())) => {
                row.splice(value_at..end, 1, &[value]);
                false
            }
            None if LIMIT.allows(row.len() / 2 + 1, row.room() + room(field.len()) + room(value.len())) => {
                let end = row.end();
                row.splice(end..end, 0, &[field, value]);
                true
            }
            _ => self.enlarge().table_mut().insert(field, value),
        }
    }

    /// Says when `field`, which must be there, expires.
    pub(crate) fn set_expiry(&mut self, field: &[u8], at: Option<NonZeroU64>) {
        match at {
            Some(at) => self.enlarge().expiries_made().set(field, at),
            None => {
                let Form::Large(large) = &mut self.0 else { return };
                if let Some(expiries) = large.expiries_mut()
                    && expiries.clear(field).is_some()
                {
                    self.settle();
                }
            }
        }
    }

    /// Times have gone: if they were the last ones, the hash is what it would be without any.
    fn settle(&mut self) {
        if let Form::Large(large) = &mut self.0 {
            large.settle();
            self.pack_if(|table| LIMIT.allows(table.len(), table.weight.room));
        }
    }

    /// Removes `field`; whether it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        self.set_expiry(field, None);
        match &mut self.0 {
            Form::Packed(row) => {
                let Some(FieldAt { at, end, .. }) = find_field(row, field) else { return false };
                row.splice(at..end, 2, &[]);
                true
            }
            Form::Large(large) => {
                let removed = large.table_mut().remove(field);
                self.pack_if(|table| LIMIT.calls_back(table.len(), table.weight.room));
                removed
            }
        }
    }

    /// Takes fields whose time is over away, with their times, from one place where there may be some: a bounded
    /// number of them. `None`: there is no such place.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<Vec<(Box<[u8]>, NonZeroU64)>> {
        let Form::Large(large) = &mut self.0 else { return None };
        let taken = large.expiries_mut()?.take_due(now_ms)?;
        taken.iter().for_each(|(field, _)| _ = large.table_mut().remove(field));
        self.settle();
        Some(taken)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Hash::remove`].
    pub(crate) fn restore(&mut self, at: usize, field: Box<[u8]>, value: Box<[u8]>) {
        match &mut self.0 {
            Form::Packed(row)
                if LIMIT.allows(row.len() / 2 + 1, row.room() + room(field.len()) + room(value.len())) =>
            {
                let at = row.offset(2 * at);
                row.splice(at..at, 0, &[&field, &value]);
            }
            _ => self.enlarge().table_mut().restore(at, field, value),
        }
    }
}

/// A hash as clients see it: the fields that have not expired at some time.
#[derive(Clone, Copy)]
pub struct Live<'h> {
    hash: &'h Hash,
    /// If something may have expired.
    expiries: Option<&'h Expiries>,
    now_ms: u64,
}

impl<'h> Live<'h> {
    fn shows(&self, field: &[u8]) -> bool {
        self.expiries.is_none_or(|expiries| !expiries.is_due(field, self.now_ms))
    }

    /// Whether all fields that the hash holds are seen for certain.
    pub fn is_all(&self) -> bool {
        self.expiries.is_none()
    }

    /// Number of fields. Looks at all that expire if some of them may have.
    #[allow(clippy::len_without_is_empty)] // asked only for how many follow
    pub fn len(&self) -> usize {
        self.hash.len() - self.expiries.map_or(0, |expiries| expiries.count_due(self.now_ms))
    }

    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<&'h [u8]> {
        self.hash.get(field).filter(|_| self.shows(field))
    }

    /// Whether `field` is there.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Of a field that is there, when it expires.
    pub fn expiry(&self, field: &[u8]) -> Option<Option<NonZeroU64>> {
        self.contains(field).then(|| self.hash.expiry(field))
    }

    /// Field and value at a position below [`Hash::len`], unless the field has expired.
    pub fn at(&self, at: usize) -> Option<(&'h [u8], &'h [u8])> {
        self.hash.at(at).filter(|(field, _)| self.shows(field))
    }

    /// All fields with their values.
    pub fn iter(self) -> impl Iterator<Item = (&'h [u8], &'h [u8])> {
        self.hash.iter().filter(move |(field, _)| self.shows(field))
    }
}

impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        let same =
            |(field, value)| other.get(field) == Some(value) && self.expiry(field) == other.expiry(field);
        self.len() == other.len() && self.iter().all(same)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.iter().map(|(field, value)| {
            let expiry = self.expiry(field).map(|at| format!(" until {at}")).unwrap_or_default();
            (field.escape_ascii(), format!("{}{expiry}", value.escape_ascii()))
        });
        f.debug_map().entries(pairs).finish()
    }
}

#[cfg(test)]
mod tests;
