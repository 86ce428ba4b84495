//! Lists: packed up to a few kilobytes, then a ring of elements.

mod ring;

use std::fmt;

use super::form::{Form, Limit};
use super::packed::{Packed, room};
use ring::Ring;
use smallvec::SmallVec;

/// An element that was taken out of a list: most are short, and need no heap.
pub type Taken = SmallVec<[u8; 24]>;

/// Redis' nodes have 8 KB too. A list that is pushed to at an end moves nothing most of the time.
const LIMIT: Limit = Limit { len: 512, room: 8 << 10 };

/// A list value.
#[derive(Clone)]
pub struct List(Form<Packed, Box<Ring>>);

impl Default for List {
    fn default() -> List {
        List(Form::Packed(Packed::default()))
    }
}

impl List {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.len(),
            Form::Large(ring) => ring.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `at`.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        match &self.0 {
            Form::Packed(row) => row.get(at),
            Form::Large(ring) => ring.get(at),
        }
    }

    /// Elements from `from` on.
    pub fn iter_from(&self, from: usize) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        match &self.0 {
            Form::Packed(row) => Form::Packed(row.iter_from(from)),
            Form::Large(ring) => Form::Large(ring.iter_from(from)),
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(row) => row.bytes(),
            Form::Large(ring) => LIMIT.bytes(ring.len(), ring.weight.room, || ring.bytes()),
        }
    }

    /// The large form, made if need be.
    fn enlarge(&mut self) -> &mut Ring {
        if let Form::Packed(row) = &self.0 {
            let mut ring = Box::<Ring>::default();
            row.iter_from(0).for_each(|element| ring.push(false, element));
            self.0 = Form::Large(ring);
        }
        match &mut self.0 {
            Form::Large(ring) => ring,
            Form::Packed(_) => unreachable!("it was made large above"),
        }
    }

    /// The form that `len` elements more may have, with `room` bytes more.
    fn with_room(&mut self, len: usize, room: usize) -> Form<&mut Packed, &mut Ring> {
        if let Form::Packed(row) = &self.0
            && !LIMIT.allows(row.len() + len, row.room() + room)
        {
            self.enlarge();
        }
        match &mut self.0 {
            Form::Packed(row) => Form::Packed(row),
            Form::Large(ring) => Form::Large(ring),
        }
    }

    /// Packs what has become small.
    fn settle(&mut self) {
        if let Form::Large(ring) = &self.0
            && LIMIT.calls_back(ring.len(), ring.weight.room)
        {
            let elements: Vec<&[u8]> = ring.iter_from(0).collect();
            self.0 = Form::Packed(Packed::of(&elements));
        }
    }

    pub(crate) fn push(&mut self, front: bool, element: &[u8]) {
        match self.with_room(1, room(element.len())) {
            Form::Packed(row) => row.push(front, element),
            Form::Large(ring) => ring.push(front, element),
        }
    }

    pub(crate) fn pop(&mut self, front: bool) -> Option<Taken> {
        self.pop_with(front, Taken::from_slice)
    }

    /// Takes the element at the front or back, after `look` has seen it.
    pub(crate) fn pop_with<R>(&mut self, front: bool, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match &mut self.0 {
            Form::Packed(row) => row.pop(front, look),
            Form::Large(ring) => {
                let element = ring.pop(front);
                self.settle();
                element.map(|element| look(&element))
            }
        }
    }

    /// Takes `count` elements, at most all, off the front or back, in the order of the list.
    pub(crate) fn trim(&mut self, front: bool, count: usize) -> Vec<Box<[u8]>> {
        match &mut self.0 {
            Form::Packed(row) => {
                let kept = row.len().saturating_sub(count);
                let (from, count) = if front { (0, row.len() - kept) } else { (kept, row.len() - kept) };
                let taken = row.iter_from(from).take(count).map(Into::into).collect();
                row.splice(row.offset(from)..row.offset(from + count), count, &[]);
                taken
            }
            Form::Large(ring) => {
                let taken = ring.trim(front, count);
                self.settle();
                taken
            }
        }
    }

    /// Takes [`List::trim`] back.
    pub(crate) fn untrim(&mut self, front: bool, elements: Vec<Box<[u8]>>) {
        let more = elements.iter().map(|element| room(element.len())).sum();
        match self.with_room(elements.len(), more) {
            Form::Packed(row) => {
                let at = if front { row.start() } else { row.end() };
                let elements: Vec<&[u8]> = elements.iter().map(|element| &**element).collect();
                row.splice(at..at, 0, &elements);
            }
            Form::Large(ring) => ring.untrim(front, elements),
        }
    }

    /// Removes the elements at `positions`, which ascend, in one pass.
    pub(crate) fn remove_all(&mut self, positions: &[usize]) -> Vec<(usize, Box<[u8]>)> {
        match &mut self.0 {
            Form::Packed(row) => {
                let (mut taken, mut kept) =
                    (Vec::with_capacity(positions.len()), Vec::with_capacity(row.len()));
                let mut wanted = positions.iter().copied().peekable();
                for (at, element) in row.iter_from(0).enumerate() {
                    match wanted.next_if_eq(&at) {
                        Some(_) => taken.push((at, element.into())),
                        None => kept.push(element),
                    }
                }
                *row = Packed::of(&kept);
                taken
            }
            Form::Large(ring) => {
                let taken = ring.remove_all(positions);
                self.settle();
                taken
            }
        }
    }

    /// Takes [`List::remove_all`] back, in one pass.
    pub(crate) fn unpick(&mut self, elements: Vec<(usize, Box<[u8]>)>) {
        let more = elements.iter().map(|(_, element)| room(element.len())).sum();
        match self.with_room(elements.len(), more) {
            Form::Packed(row) => {
                let mut held = row.iter_from(0);
                let mut all: Vec<&[u8]> = Vec::with_capacity(held.len() + elements.len());
                for (at, element) in &elements {
                    let between = at - all.len();
                    all.extend(held.by_ref().take(between));
                    all.push(element);
                }
                all.extend(held);
                *row = Packed::of(&all);
            }
            Form::Large(ring) => ring.unpick(elements),
        }
    }

    pub(crate) fn set(&mut self, at: usize, element: &[u8]) -> Box<[u8]> {
        match self.with_room(0, room(element.len())) {
            Form::Packed(row) => {
                let from = row.offset(at);
                let (old, to) = row.read(from);
                let old = old.into();
                row.splice(from..to, 1, &[element]);
                old
            }
            Form::Large(ring) => ring.set(at, element),
        }
    }

    pub(crate) fn insert(&mut self, at: usize, element: &[u8]) {
        match self.with_room(1, room(element.len())) {
            Form::Packed(row) => {
                let at = row.offset(at);
                row.splice(at..at, 0, &[element]);
            }
            Form::Large(ring) => ring.insert(at, element),
        }
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Box<[u8]>> {
        match &mut self.0 {
            Form::Packed(row) => row.remove(at),
            Form::Large(ring) => {
                let element = ring.remove(at);
                self.settle();
                element
            }
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.iter_from(0).eq(other.iter_from(0))
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter_from(0).map(<[u8]>::escape_ascii)).finish()
    }
}

#[cfg(test)]
mod tests;
