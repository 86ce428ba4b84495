//! Hashes: packed while they are small, then a table. Either way fields have positions, in the order they came: a
//! random field and a scan need them, and they do not change with the form.
//!
//! If fields expire, their times stand beside that. A field that has expired stays until it is removed: commands that
//! read for a client use [`Hash::live`].

mod expiries;
mod few;
mod large;
mod table;

use std::fmt;
use std::num::NonZeroU64;

use super::form::{Form, Limit};
use super::packed::{Packed, room};
use crate::size::allocated;
use expiries::Expiries;
use few::Few;
use large::{Expiring, Large};
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

/// How the fields are kept.
enum View<'a> {
    Row(&'a Packed),
    Table(&'a HashTable),
}

/// A row as it is changed, with the times beside it if fields expire.
enum RowMut<'a> {
    Plain(&'a mut Packed),
    Few(&'a mut Few),
}

impl RowMut<'_> {
    fn row(&mut self) -> &mut Packed {
        match self {
            RowMut::Plain(row) => row,
            RowMut::Few(few) => &mut few.row,
        }
    }

    /// Puts a field that does not expire to this position, if the row may hold it.
    fn put(&mut self, position: usize, field: &[u8], value: &[u8]) -> bool {
        let row = self.row();
        let may = LIMIT.allows(row.len() / 2 + 1, row.room() + room(field.len()) + room(value.len()));
        if may {
            let at = row.offset(2 * position);
            row.splice(at..at, 0, &[field, value]);
            if let RowMut::Few(few) = self {
                few.came(position);
            }
        }
        may
    }
}

impl Hash {
    #[inline]
    fn view(&self) -> View<'_> {
        match &self.0 {
            Form::Packed(row) => View::Row(row),
            Form::Large(large) => match &**large {
                Large::Lasting(table) => View::Table(table),
                Large::Expiring(expiring) => View::Table(&expiring.table),
                Large::Few(few) => View::Row(&few.row),
            },
        }
    }

    fn row_mut(&mut self) -> Option<RowMut<'_>> {
        match &mut self.0 {
            Form::Packed(row) => Some(RowMut::Plain(row)),
            Form::Large(large) => match &mut **large {
                Large::Few(few) => Some(RowMut::Few(few)),
                Large::Lasting(_) | Large::Expiring(_) => None,
            },
        }
    }

    /// Number of fields, those included whose time is over.
    pub fn len(&self) -> usize {
        match self.view() {
            View::Row(row) => row.len() / 2,
            View::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match self.view() {
            View::Row(row) => find_field(row, field).map(|found| found.value),
            View::Table(table) => table.get(field),
        }
    }

    /// Position and value of `field`.
    pub fn find(&self, field: &[u8]) -> Option<(usize, &[u8])> {
        match self.view() {
            View::Row(row) => find_field(row, field).map(|found| (found.position, found.value)),
            View::Table(table) => table.find(field),
        }
    }

    /// Whether `field` is there.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Field and value at a position below [`Hash::len`].
    pub fn at(&self, at: usize) -> Option<(&[u8], &[u8])> {
        match self.view() {
            View::Row(row) => {
                let (field, next) = row.read((at < self.len()).then(|| row.offset(2 * at))?);
                Some((field, row.read(next).0))
            }
            View::Table(table) => table.at(at),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        match self.view() {
            View::Row(row) => Form::Packed(row.all_pairs()),
            View::Table(table) => Form::Large(table.iter()),
        }
    }

    /// What clients see at this time.
    pub fn live(&self, now_ms: u64) -> Live<'_> {
        let may_be_due = self.first_expiry().is_some_and(|at| at.get() <= now_ms);
        Live { hash: self, may_be_due, now_ms }
    }

    /// How many fields have a time at which they expire.
    pub fn expiring(&self) -> usize {
        let Form::Large(large) = &self.0 else { return 0 };
        match &**large {
            Large::Lasting(_) => 0,
            Large::Expiring(expiring) => expiring.expiries.len(),
            Large::Few(few) => few.times().count(),
        }
    }

    /// Whether some field has a time at which it expires.
    pub fn is_expiring(&self) -> bool {
        matches!(&self.0, Form::Large(large) if !matches!(**large, Large::Lasting(_)))
    }

    /// When `field` expires, in Unix milliseconds.
    pub fn expiry(&self, field: &[u8]) -> Option<NonZeroU64> {
        let Form::Large(large) = &self.0 else { return None };
        match &**large {
            Large::Lasting(_) => None,
            Large::Expiring(expiring) => expiring.expiries.get(field),
            Large::Few(few) => few.time(find_field(&few.row, field)?.position),
        }
    }

    /// A time before which no field expires, if any does.
    pub fn first_expiry(&self) -> Option<NonZeroU64> {
        let Form::Large(large) = &self.0 else { return None };
        match &**large {
            Large::Lasting(_) => None,
            Large::Expiring(expiring) => expiring.expiries.first(),
            Large::Few(few) => few.first(),
        }
    }

    /// Whether `field` is there although its time is over.
    pub fn is_overdue(&self, field: &[u8], now_ms: u64) -> bool {
        self.expiry(field).is_some_and(|at| at.get() <= now_ms)
    }

    /// How many fields are.
    fn count_due(&self, now_ms: u64) -> usize {
        let Form::Large(large) = &self.0 else { return 0 };
        match &**large {
            Large::Lasting(_) => 0,
            Large::Expiring(expiring) => expiring.expiries.count_due(now_ms),
            Large::Few(few) => few.times().filter(|at| at.get() <= now_ms).count(),
        }
    }

    /// Bytes on the heap, by what is held and not by its form.
    pub fn bytes(&self) -> usize {
        let large = match &self.0 {
            Form::Packed(row) => return row.bytes(),
            Form::Large(large) => large,
        };
        let few = |len, room| allocated(size_of::<Large>()) + Few::bytes(len, room);
        match &**large {
            Large::Lasting(table) => LIMIT.bytes(table.len(), table.weight.room, || table.bytes()),
            Large::Expiring(expiring) => {
                let (len, room) = (expiring.table.len(), expiring.table.weight.room);
                if LIMIT.allows(len, room) { few(len, room) } else { expiring.bytes() }
            }
            Large::Few(held) => few(held.row.len() / 2, held.row.room()),
        }
    }

    /// The table, made if need be.
    fn enlarge(&mut self) -> &mut HashTable {
        if let View::Row(row) = self.view() {
            let mut table = HashTable::default();
            let mut expiries = Expiries::default();
            for (position, (field, value)) in row.all_pairs().enumerate() {
                table.insert(field, value);
                if let Form::Large(large) = &self.0
                    && let Large::Few(few) = &**large
                    && let Some(at) = few.time(position)
                {
                    expiries.set(field, at);
                }
            }
            let large = match expiries.is_empty() {
                true => Large::Lasting(table),
                false => Large::Expiring(Box::new(Expiring { table, expiries })),
            };
            self.0 = Form::Large(Box::new(large));
        }
        let Form::Large(large) = &mut self.0 else { unreachable!("it was made large above") };
        match &mut **large {
            Large::Lasting(table) => table,
            Large::Expiring(expiring) => &mut expiring.table,
            Large::Few(_) => unreachable!("it was made a table above"),
        }
    }

    /// Makes a table that is `small` enough a row.
    fn pack_if(&mut self, small: impl FnOnce(&HashTable) -> bool) {
        let View::Table(table) = self.view() else { return };
        if !small(table) {
            return;
        }
        let elements: Vec<&[u8]> = table.iter().flat_map(|(field, value)| [field, value]).collect();
        let row = Packed::of(&elements);
        if !self.is_expiring() {
            self.0 = Form::Packed(row);
            return;
        }
        let mut few = Few::new(row);
        for (position, (field, _)) in table.iter().enumerate() {
            few.set(position, self.expiry(field));
        }
        self.0 = Form::Large(Box::new(Large::Few(Box::new(few))));
    }

    /// Sets `field`, which does not expire then; whether it was new.
    pub(crate) fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        if self.is_expiring() {
            self.set_expiry(field, None);
        }
        let Some(mut held) = self.row_mut() else { return self.enlarge().insert(field, value) };
        let row = held.row();
        match find_field(row, field) {
            Some(FieldAt { value_at, end, .. }) if LIMIT.allows(0, row.room() + room(value.len())) => {
                row.splice(value_at..end, 1, &[value]);
                false
            }
            None => {
                let position = row.len() / 2;
                held.put(position, field, value) || self.enlarge().insert(field, value)
            }
            Some(_) => self.enlarge().insert(field, value),
        }
    }

    /// Says when `field`, which must be there, expires.
    pub(crate) fn set_expiry(&mut self, field: &[u8], at: Option<NonZeroU64>) {
        if let Form::Packed(row) = &mut self.0 {
            if at.is_none() {
                return;
            }
            let few = Few::new(std::mem::take(row));
            self.0 = Form::Large(Box::new(Large::Few(Box::new(few))));
        }
        let Form::Large(large) = &mut self.0 else { return };
        if let (Large::Lasting(table), true) = (&mut **large, at.is_some()) {
            let table = std::mem::take(table);
            **large = Large::Expiring(Box::new(Expiring { table, expiries: Expiries::default() }));
        }
        match (&mut **large, at) {
            (Large::Few(few), at) => {
                if let Some(found) = find_field(&few.row, field) {
                    let position = found.position;
                    few.set(position, at);
                }
            }
            (Large::Expiring(expiring), Some(at)) => expiring.expiries.set(field, at),
            (Large::Expiring(expiring), None) => _ = expiring.expiries.clear(field),
            (Large::Lasting(_), _) => {}
        }
        if at.is_none() {
            self.settle();
        }
    }

    /// Times have gone: if they were the last ones, the hash is what it would be without any.
    fn settle(&mut self) {
        let Form::Large(large) = &mut self.0 else { return };
        match &mut **large {
            Large::Few(few) if few.first().is_none() => self.0 = Form::Packed(std::mem::take(&mut few.row)),
            Large::Expiring(expiring) if expiring.expiries.is_empty() => {
                **large = Large::Lasting(std::mem::take(&mut expiring.table));
                self.pack_if(|table| LIMIT.allows(table.len(), table.weight.room));
            }
            _ => {}
        }
    }

    /// Removes `field`; whether it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        self.remove_with(field, |_, _| {})
    }

    /// [`Hash::remove`] that shows `going` the position and the value of a field that is there. Saves looking for it before.
    pub(crate) fn remove_with(&mut self, field: &[u8], going: impl FnOnce(usize, &[u8])) -> bool {
        if self.is_expiring() {
            self.set_expiry(field, None);
        }
        let Some(mut held) = self.row_mut() else {
            let Some((at, value)) = self.enlarge().take(field) else { return false };
            going(at, &value);
            self.pack_if(|table| LIMIT.calls_back(table.len(), table.weight.room));
            return true;
        };
        let row = held.row();
        let Some(FieldAt { position, at, value, end, .. }) = find_field(row, field) else { return false };
        going(position, value);
        row.splice(at..end, 2, &[]);
        if let RowMut::Few(few) = held {
            few.left(position);
        }
        true
    }

    /// Takes fields whose time is over away, with their times, from one place where there may be some: a bounded
    /// number of them. `None`: there is no such place.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<Vec<(Box<[u8]>, NonZeroU64)>> {
        let Form::Large(large) = &mut self.0 else { return None };
        let taken = match &mut **large {
            Large::Lasting(_) => return None,
            Large::Expiring(expiring) => {
                let taken = expiring.expiries.take_due(now_ms)?;
                taken.iter().for_each(|(field, _)| _ = expiring.table.take(field));
                taken
            }
            Large::Few(few) => {
                few.first().filter(|first| first.get() <= now_ms)?;
                let pairs = few.row.all_pairs().enumerate();
                let due = pairs.filter_map(|(position, (field, _))| {
                    Some((field.into(), few.time(position).filter(|at| at.get() <= now_ms)?))
                });
                let due: Vec<(Box<[u8]>, NonZeroU64)> = due.collect();
                for (field, _) in &due {
                    if let Some(FieldAt { position, at, end, .. }) = find_field(&few.row, field) {
                        few.row.splice(at..end, 2, &[]);
                        few.left(position);
                    }
                }
                due
            }
        };
        self.settle();
        self.pack_if(|table| LIMIT.calls_back(table.len(), table.weight.room));
        Some(taken)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Hash::remove`].
    pub(crate) fn restore(&mut self, at: usize, field: Box<[u8]>, value: Box<[u8]>) {
        let is_put = self.row_mut().is_some_and(|mut row| row.put(at, &field, &value));
        if !is_put {
            self.enlarge().restore(at, field, value);
        }
    }
}

/// A hash as clients see it: the fields that have not expired at some time.
#[derive(Clone, Copy)]
pub struct Live<'h> {
    hash: &'h Hash,
    /// Whether something may have expired.
    may_be_due: bool,
    now_ms: u64,
}

impl<'h> Live<'h> {
    fn shows(&self, field: &[u8]) -> bool {
        !self.may_be_due || !self.hash.is_overdue(field, self.now_ms)
    }

    /// Whether all fields that the hash holds are seen for certain.
    pub fn is_all(&self) -> bool {
        !self.may_be_due
    }

    /// Number of fields. Looks at all that expire if some of them may have.
    #[allow(clippy::len_without_is_empty)] // asked only for how many follow
    pub fn len(&self) -> usize {
        self.hash.len() - if self.may_be_due { self.hash.count_due(self.now_ms) } else { 0 }
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
