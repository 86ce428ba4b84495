//! Sets: numbers in order while they are few and nothing else, packed while they are small, then a table. Members have
//! positions as the fields of [`super::hash`], and keep them while the form stays; among numbers they are ranks.

mod member;
mod table;

use std::fmt;
use std::mem;

use super::form::{Form, Limit};
use super::numbers::{self, Numbers};
use super::packed::{Packed, room};
use crate::value::Str;
pub use member::Member;
use table::{ORDERED_UP_TO, Table};

/// As for hashes.
const LIMIT: Limit = Limit { len: ORDERED_UP_TO, room: 4 << 10 };

/// So many numbers are kept in order, as in Redis. A table of numbers becomes this again at half of it.
pub const MOST_NUMBERS: usize = 512;

/// A set value. What is packed is a row of texts, or numbers in its place.
#[derive(Clone)]
pub struct Set(Form<Packed, Box<Table>>);

impl Default for Set {
    fn default() -> Set {
        Set(Form::Packed(Packed::default()))
    }
}

/// The form that a set has.
enum View<'a> {
    Numbers(Numbers<'a>),
    Row(&'a Packed),
    Table(&'a Table),
}

impl Set {
    #[inline]
    fn view(&self) -> View<'_> {
        match &self.0 {
            Form::Packed(row) => match row.guest() {
                Some(buffer) => View::Numbers(Numbers::in_buffer(buffer)),
                None => View::Row(row),
            },
            Form::Large(table) => View::Table(table),
        }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        match self.view() {
            View::Numbers(numbers) => numbers.len(),
            View::Row(row) => row.len(),
            View::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all members are numbers and few enough that Redis keeps them as such.
    pub fn is_numbers(&self) -> bool {
        match self.view() {
            View::Numbers(_) => true,
            View::Row(_) => false,
            View::Table(table) => table.len() <= MOST_NUMBERS && table.widest_number().is_some(),
        }
    }

    /// Whether members are kept in order, so that those that come move others to higher positions. Who walks over a
    /// set step by step must then look at all of it in one step.
    pub fn is_ordered(&self) -> bool {
        matches!(self.view(), View::Numbers(_))
    }

    /// Whether `member` is there.
    pub fn contains(&self, member: &[u8]) -> bool {
        match self.view() {
            View::Numbers(numbers) => find_number(numbers, member).is_some(),
            View::Row(row) => row.iter_from(0).any(|held| held == member),
            View::Table(table) => table.contains(member),
        }
    }

    /// Position of `member`.
    pub fn find(&self, member: &[u8]) -> Option<usize> {
        match self.view() {
            View::Numbers(numbers) => find_number(numbers, member),
            View::Row(row) => row.iter_from(0).position(|held| held == member),
            View::Table(table) => table.find(member),
        }
    }

    /// The member at a position below [`Set::len`].
    pub fn at(&self, at: usize) -> Option<Member<'_>> {
        match self.view() {
            View::Numbers(numbers) => numbers.at(at).map(Member::of_number),
            View::Row(row) => row.get(at).map(Member::of_text),
            View::Table(table) => table.at(at).map(Member::of_text),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Member<'_>> {
        match self.view() {
            View::Numbers(numbers) => Form::Packed(numbers.iter().map(Member::of_number)),
            View::Row(row) => Form::Large(Form::Packed(row.iter_from(0).map(Member::of_text))),
            View::Table(table) => Form::Large(Form::Large(table.iter().map(Member::of_text))),
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match self.view() {
            View::Numbers(numbers) => numbers.heap(),
            View::Row(row) => row.bytes(),
            View::Table(table) => match table.widest_number() {
                Some(width) if table.len() <= MOST_NUMBERS => numbers::heap(table.len(), width),
                _ => LIMIT.bytes(table.len(), table.weight.room, || table.bytes()),
            },
        }
    }

    /// The large form, made if need be.
    fn enlarge(&mut self) -> &mut Table {
        if !matches!(self.0, Form::Large(_)) {
            let mut table = Box::<Table>::default();
            self.iter().for_each(|member| _ = table.insert(&member));
            self.0 = Form::Large(table);
        }
        match &mut self.0 {
            Form::Large(table) => table,
            Form::Packed(_) => unreachable!("it was made large above"),
        }
    }

    /// Texts in the place of numbers, in their order.
    fn spell(&mut self) {
        let members: Vec<Member<'_>> = self.iter().collect();
        let texts: Vec<&[u8]> = members.iter().map(|member| &**member).collect();
        if LIMIT.allows(texts.len(), texts.iter().map(|text| room(text.len())).sum()) {
            self.0 = Form::Packed(Packed::of(&texts));
        } else {
            self.enlarge();
        }
    }

    /// Numbers in the place of texts, if nothing else is left and they are few enough.
    fn put_in_order(&mut self) {
        let mut numbers: Vec<i64> = match self.view() {
            View::Row(row) => match row.iter_from(0).map(Str::integer_of).collect() {
                Some(numbers) => numbers,
                None => return,
            },
            View::Table(table) if table.widest_number().is_some() && 2 * table.len() <= MOST_NUMBERS => {
                table.iter().filter_map(Str::integer_of).collect()
            }
            _ => return,
        };
        numbers.sort_unstable();
        self.0 = Form::Packed(Packed::hosting(numbers::of(numbers.into_iter())));
    }

    /// Whether members change their places, more than by closing the gap, when the one at `at` is removed: then only
    /// numbers are left.
    pub(crate) fn reorders(&self, at: usize) -> bool {
        let is_number = |text: &[u8]| Str::integer_of(text).is_some();
        match self.view() {
            View::Numbers(_) => false,
            View::Row(row) => {
                row.len() > 1
                    && row.iter_from(0).enumerate().all(|(other, text)| other == at || is_number(text))
            }
            View::Table(table) => {
                let goes = table.at(at).is_some_and(|text| !is_number(text));
                table.texts() == usize::from(goes) && 2 * (table.len() - 1) <= MOST_NUMBERS
            }
        }
    }

    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(row) if row.guest().is_some() || row.len() == 0 => {
                self.insert_first_or_number(member)
            }
            Form::Packed(row) if row.iter_from(0).any(|held| held == member) => false,
            Form::Packed(row) if LIMIT.allows(row.len() + 1, row.room() + room(member.len())) => {
                row.push(false, member);
                true
            }
            _ => self.enlarge().insert(member),
        }
    }

    /// [`Set::insert`] where no texts are.
    fn insert_first_or_number(&mut self, member: &[u8]) -> bool {
        let number = Str::integer_of(member);
        let Form::Packed(row) = &mut self.0 else { return self.enlarge().insert(member) };
        let place = match (row.guest().map(Numbers::in_buffer), number) {
            (Some(held), Some(number)) => match held.find(number) {
                Ok(_) => return false,
                Err(at) if held.len() < MOST_NUMBERS => Some((at, number)),
                Err(_) => None,
            },
            (None, Some(number)) => Some((0, number)),
            (Some(_), None) => None,
            (None, None) if LIMIT.allows(1, room(member.len())) => {
                row.push(false, member);
                return true;
            }
            (None, None) => None,
        };
        let Some((at, number)) = place else {
            self.spell();
            return match &mut self.0 {
                Form::Packed(row) if LIMIT.allows(row.len() + 1, row.room() + room(member.len())) => {
                    row.push(false, member);
                    true
                }
                _ => self.enlarge().insert(member),
            };
        };
        let buffer = mem::take(row).into_buffer();
        *row = Packed::hosting(match buffer.is_empty() {
            true => numbers::of([number].into_iter()),
            false => numbers::insert(buffer, at, number),
        });
        true
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.find(member).is_some_and(|at| self.remove_at(at).is_some())
    }

    /// Takes the member at `at`.
    pub(crate) fn remove_at(&mut self, at: usize) -> Option<Box<[u8]>> {
        let member = match &mut self.0 {
            Form::Packed(row) => match row.guest().map(Numbers::in_buffer) {
                Some(held) => {
                    let number = held.at(at)?;
                    let left = numbers::remove(mem::take(row).into_buffer(), at);
                    *row = Packed::hosting(left);
                    return Some((*Member::of_number(number)).into());
                }
                None => row.remove(at)?,
            },
            Form::Large(table) => table.remove_at(at)?,
        };
        if !self.is_empty() {
            self.put_in_order();
        }
        if let Form::Large(table) = &self.0
            && LIMIT.calls_back(table.len(), table.weight.room)
        {
            let members: Vec<&[u8]> = table.iter().collect();
            self.0 = Form::Packed(Packed::of(&members));
        }
        Some(member)
    }

    /// Takes a removal from position `at` back, to the place: the inverse of [`Set::remove_at`] unless that
    /// [`Set::reorders`].
    pub(crate) fn restore(&mut self, at: usize, member: Box<[u8]>) {
        match &mut self.0 {
            Form::Packed(row) if row.guest().is_some() || row.len() == 0 => _ = self.insert(&member),
            Form::Packed(row) if LIMIT.allows(row.len() + 1, row.room() + room(member.len())) => {
                let at = row.offset(at);
                row.splice(at..at, 0, &[&member]);
            }
            _ => self.enlarge().restore(at, member),
        }
    }
}

/// Position of a number that is given as text.
fn find_number(numbers: Numbers<'_>, member: &[u8]) -> Option<usize> {
    numbers.find(Str::integer_of(member)?).ok()
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.contains(&member))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
