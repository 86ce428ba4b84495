//! Sets: packed while they are small, then a table; members have positions as the fields of [`super::hash`].

mod table;

use std::fmt;

use super::form::{Form, Limit};
use super::packed::{Packed, room};
use table::Table;

/// As for hashes.
const LIMIT: Limit = Limit { len: ORDERED_UP_TO, room: 4 << 10 };

/// Up to this many members a removal keeps the order of the others.
const ORDERED_UP_TO: usize = 64;

/// A set value.
#[derive(Clone)]
pub struct Set(Form<Packed, Box<Table>>);

impl Default for Set {
    fn default() -> Set {
        Set(Form::Packed(Packed::default()))
    }
}

impl Set {
    /// Number of members.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.len(),
            Form::Large(table) => table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `member` is there.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Form::Packed(row) => row.iter_from(0).any(|held| held == member),
            Form::Large(table) => table.contains(member),
        }
    }

    /// Position of `member`.
    pub fn find(&self, member: &[u8]) -> Option<usize> {
        match &self.0 {
            Form::Packed(row) => row.iter_from(0).position(|held| held == member),
            Form::Large(table) => table.find(member),
        }
    }

    /// The member at a position below [`Set::len`].
    pub fn at(&self, at: usize) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(row) => row.get(at),
            Form::Large(table) => table.at(at),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        match &self.0 {
            Form::Packed(row) => Form::Packed(row.iter_from(0)),
            Form::Large(table) => Form::Large(table.iter()),
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.bytes(),
            Form::Large(table) => LIMIT.bytes(table.len(), table.weight.room, || table.bytes()),
        }
    }

    /// The large form, made if need be.
    fn enlarge(&mut self) -> &mut Table {
        if let Form::Packed(row) = &self.0 {
            let mut table = Box::<Table>::default();
            row.iter_from(0).for_each(|member| _ = table.insert(member));
            self.0 = Form::Large(table);
        }
        match &mut self.0 {
            Form::Large(table) => table,
            Form::Packed(_) => unreachable!("it was made large above"),
        }
    }

    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(row) if row.iter_from(0).any(|held| held == member) => false,
            Form::Packed(row) if LIMIT.allows(row.len() + 1, row.room() + room(member.len())) => {
                row.push(false, member);
                true
            }
            _ => self.enlarge().insert(member),
        }
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.find(member).is_some_and(|at| self.remove_at(at).is_some())
    }

    /// Takes the member at `at`.
    pub(crate) fn remove_at(&mut self, at: usize) -> Option<Box<[u8]>> {
        match &mut self.0 {
            Form::Packed(row) => row.remove(at),
            Form::Large(table) => {
                let member = table.remove_at(at);
                if LIMIT.calls_back(table.len(), table.weight.room) {
                    let members: Vec<&[u8]> = table.iter().collect();
                    self.0 = Form::Packed(Packed::of(&members));
                }
                member
            }
        }
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Set::remove_at`].
    pub(crate) fn restore(&mut self, at: usize, member: Box<[u8]>) {
        match &mut self.0 {
            Form::Packed(row) if LIMIT.allows(row.len() + 1, row.room() + room(member.len())) => {
                let at = row.offset(at);
                row.splice(at..at, 0, &[&member]);
            }
            _ => self.enlarge().restore(at, member),
        }
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.contains(member))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(<[u8]>::escape_ascii)).finish()
    }
}

#[cfg(test)]
mod tests;
