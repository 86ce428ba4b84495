//! Large lists: a ring buffer of elements. Both ends and any position by index are O(1); inserting in the middle
//! moves the nearer half.

use std::collections::VecDeque;

use crate::size::{allocated, doubling};
use crate::value::form::Weight;

/// Bytes of an element's place in the ring.
const SLOT_BYTES: usize = size_of::<Box<[u8]>>();
/// Bytes of the structure itself.
const RING_OVERHEAD: usize = allocated(size_of::<Ring>());

/// Places that may stay unused.
const SPARE: usize = 256;

/// A large list.
#[derive(Clone, Default)]
pub struct Ring {
    ring: VecDeque<Box<[u8]>>,
    /// Of the elements.
    pub weight: Weight,
}

impl Ring {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// The element at `at`.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.ring.get(at).map(|element| &**element)
    }

    /// Elements from `from` on.
    pub fn iter_from(&self, from: usize) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.ring.range(from.min(self.ring.len())..).map(|element| &**element)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        RING_OVERHEAD + self.weight.heap + doubling(self.ring.len(), SLOT_BYTES)
    }

    pub fn push(&mut self, front: bool, element: &[u8]) {
        self.weight.add(element.len());
        if front { self.ring.push_front(element.into()) } else { self.ring.push_back(element.into()) }
    }

    pub fn pop(&mut self, front: bool) -> Option<Box<[u8]>> {
        let element = if front { self.ring.pop_front() } else { self.ring.pop_back() }?;
        self.weight.take(element.len());
        self.give_back();
        Some(element)
    }

    /// Gives memory back after most elements have gone; at most one move per removal on average.
    fn give_back(&mut self) {
        if self.ring.capacity() > SPARE + 4 * self.ring.len() {
            self.ring.shrink_to(2 * self.ring.len());
        }
    }

    /// Takes `count` elements, at most all, off the front or back, in the order of the list.
    pub fn trim(&mut self, front: bool, count: usize) -> Vec<Box<[u8]>> {
        let kept = self.ring.len().saturating_sub(count);
        let range = if front { 0..self.ring.len() - kept } else { kept..self.ring.len() };
        let taken: Vec<_> = self.ring.drain(range).collect();
        taken.iter().for_each(|element| self.weight.take(element.len()));
        self.give_back();
        taken
    }

    /// Takes [`Ring::trim`] back.
    pub fn untrim(&mut self, front: bool, elements: Vec<Box<[u8]>>) {
        elements.iter().for_each(|element| self.weight.add(element.len()));
        if front {
            elements.into_iter().rev().for_each(|element| self.ring.push_front(element));
        } else {
            self.ring.extend(elements);
        }
    }

    /// Removes the elements at `positions`, which ascend, in one pass.
    pub fn remove_all(&mut self, positions: &[usize]) -> Vec<(usize, Box<[u8]>)> {
        let mut taken = Vec::with_capacity(positions.len());
        let mut wanted = positions.iter().copied().peekable();
        let mut at = 0;
        self.ring.retain_mut(|element| {
            let goes = wanted.next_if_eq(&at).is_some();
            if goes {
                taken.push((at, std::mem::take(element)));
            }
            at += 1;
            !goes
        });
        taken.iter().for_each(|(_, element)| self.weight.take(element.len()));
        self.give_back();
        taken
    }

    /// Takes [`Ring::remove_all`] back, in one pass.
    pub fn unpick(&mut self, elements: Vec<(usize, Box<[u8]>)>) {
        elements.iter().for_each(|(_, element)| self.weight.add(element.len()));
        let mut held = std::mem::take(&mut self.ring).into_iter();
        self.ring.reserve_exact(held.len() + elements.len());
        for (at, element) in elements {
            let between = at - self.ring.len();
            self.ring.extend(held.by_ref().take(between));
            self.ring.push_back(element);
        }
        self.ring.extend(held);
    }

    pub fn set(&mut self, at: usize, element: &[u8]) -> Box<[u8]> {
        self.weight.add(element.len());
        let old = std::mem::replace(&mut self.ring[at], element.into());
        self.weight.take(old.len());
        old
    }

    pub fn insert(&mut self, at: usize, element: &[u8]) {
        self.weight.add(element.len());
        self.ring.insert(at, element.into());
    }

    pub fn remove(&mut self, at: usize) -> Option<Box<[u8]>> {
        let element = self.ring.remove(at)?;
        self.weight.take(element.len());
        Some(element)
    }
}
