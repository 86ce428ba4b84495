//! Short byte strings in a row in one allocation: what small collections are made of.
//!
//! Each element has its length in front of it and, backwards, behind it, so that a walk can go either way. Free space
//! is at both ends: an element added or removed moves the shorter of the two parts beside it, so a list is cheap to
//! push to at both ends. Elements are known by their offsets, which any change makes void.
//!
//! A row is an even number of elements, field and value in turn, where somebody makes pairs of them.

use std::ops::Range;

use crate::size::allocated;

/// Where the elements begin and end and how many there are, each two bytes, at the start of the buffer.
const HEADER: usize = 6;
/// Most bytes of a buffer: offsets have two bytes.
const MOST_BYTES: usize = u16::MAX as usize;

/// Bytes that an element of `len` takes in a row.
pub const fn room(len: usize) -> usize {
    len + 2 * width(len)
}

/// Bytes that a row takes on the heap if its elements take `room`.
pub const fn heap(room: usize) -> usize {
    if room == 0 { 0 } else { allocated(HEADER + room) }
}

/// Bytes of the length of an element of `len`.
const fn width(len: usize) -> usize {
    if len < 0x80 { 1 } else { 2 }
}

/// A row of byte strings, all together less than 64 KB.
#[derive(Clone, Default)]
pub struct Packed(Box<[u8]>);

impl Packed {
    /// A row of these elements.
    pub fn of(elements: &[&[u8]]) -> Packed {
        let mut row = Packed::default();
        row.splice(row.start()..row.end(), 0, elements);
        row
    }

    /// Keeps a buffer of another kind in a row's place. Its first two bytes must be a number below any row's start,
    /// and nothing else may be asked of it than [`Packed::guest`] and [`Packed::into_buffer`].
    pub fn hosting(guest: Box<[u8]>) -> Packed {
        debug_assert!(guest.is_empty() || Packed(guest.clone()).start() < HEADER);
        Packed(guest)
    }

    /// The buffer of another kind, if it is one.
    pub fn guest(&self) -> Option<&[u8]> {
        (self.start() < HEADER).then_some(&self.0)
    }

    /// The buffer itself.
    pub fn into_buffer(self) -> Box<[u8]> {
        self.0
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        if self.0.is_empty() { 0 } else { self.number(4) }
    }

    /// Offset of the first element.
    pub fn start(&self) -> usize {
        if self.0.is_empty() { HEADER } else { self.number(0) }
    }

    /// Offset behind the last element.
    pub fn end(&self) -> usize {
        if self.0.is_empty() { HEADER } else { self.number(2) }
    }

    /// Bytes that the elements take.
    pub fn room(&self) -> usize {
        self.end() - self.start()
    }

    /// Bytes on the heap, without spare ones.
    pub fn bytes(&self) -> usize {
        heap(self.room())
    }

    fn number(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    /// The element at an offset that is below [`Packed::end`], and the offset of the next one.
    #[inline]
    pub fn read(&self, at: usize) -> (&[u8], usize) {
        let first = usize::from(self.0[at]);
        let (width, len) =
            if first < 0x80 { (1, first) } else { (2, (first & 0x7F) << 8 | usize::from(self.0[at + 1])) };
        let from = at + width;
        (&self.0[from..from + len], from + len + width)
    }

    /// The element that ends at an offset above [`Packed::start`], and its own offset.
    #[inline]
    pub fn read_back(&self, end: usize) -> (&[u8], usize) {
        let last = usize::from(self.0[end - 1]);
        let (width, len) =
            if last < 0x80 { (1, last) } else { (2, (last & 0x7F) << 8 | usize::from(self.0[end - 2])) };
        let to = end - width;
        (&self.0[to - len..to], to - len - width)
    }

    /// Offset of the element at `position`, which is at most [`Packed::len`]; found from the nearer end.
    #[inline]
    pub fn offset(&self, position: usize) -> usize {
        let behind = self.len() - position;
        if position <= behind {
            (0..position).fold(self.start(), |at, _| self.read(at).1)
        } else {
            (0..behind).fold(self.end(), |at, _| self.read_back(at).1)
        }
    }

    /// The element at `position`.
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        (position < self.len()).then(|| self.read(self.offset(position)).0)
    }

    /// The elements at these positions.
    pub fn iter(&self, positions: Range<usize>) -> Iter<'_> {
        let end = positions.end.min(self.len());
        let start = positions.start.min(end);
        Iter { row: self, at: self.offset(start), end: self.offset(end), left: end - start }
    }

    /// The elements from `position` on.
    pub fn iter_from(&self, position: usize) -> Iter<'_> {
        self.iter(position..self.len())
    }

    /// All pairs.
    pub fn all_pairs(&self) -> Pairs<'_> {
        Pairs(self.iter_from(0))
    }

    /// Replaces `count` elements, which take the bytes of `range`, by `with`. All together must stay below 64 KB.
    pub fn splice(&mut self, range: Range<usize>, count: usize, with: &[&[u8]]) {
        let added: usize = with.iter().map(|element| room(element.len())).sum();
        let (start, end) = (self.start(), self.end());
        let (head, tail) = (range.start - start, end - range.end);
        let len = self.len() + with.len() - count;
        let room = head + added + tail;
        let wanted = allocated(HEADER + room);
        debug_assert!(wanted <= MOST_BYTES, "offsets have two bytes");
        if len == 0 {
            self.0 = Box::default();
            return;
        }
        // Where the next one comes probably, so that it finds space there.
        let at_front = head < tail;
        let mut at = if at_front { end.wrapping_sub(room) } else { start };
        let capacity = self.0.len();
        let fits = HEADER + room <= capacity;
        let stays = fits && !is_spacious(capacity, wanted);
        let capacity = if stays { capacity } else { wanted };
        if !stays || at < HEADER || at.saturating_add(room) > capacity {
            at = if at_front { capacity - room } else { HEADER };
        }
        let middle = at + head;
        if !stays {
            let old = std::mem::replace(&mut self.0, vec![0; capacity].into_boxed_slice());
            if !old.is_empty() {
                self.0[at..middle].copy_from_slice(&old[start..range.start]);
                self.0[middle + added..at + room].copy_from_slice(&old[range.end..end]);
            }
        } else if at <= start {
            // Neither part may be overwritten before it has moved.
            self.shift(start..range.start, at);
            self.shift(range.end..end, middle + added);
        } else {
            self.shift(range.end..end, middle + added);
            self.shift(start..range.start, at);
        }
        self.set_numbers(at, at + room, len);
        with.iter().fold(middle, |at, element| self.write(at, element));
    }

    /// Sets what [`Packed::start`], [`Packed::end`] and [`Packed::len`] tell.
    fn set_numbers(&mut self, start: usize, end: usize, len: usize) {
        for (place, number) in [start, end, len].into_iter().enumerate() {
            self.0[2 * place..][..2].copy_from_slice(&(number as u16).to_le_bytes());
        }
    }

    fn shift(&mut self, from: Range<usize>, to: usize) {
        if from.start != to && !from.is_empty() {
            self.0.copy_within(from, to);
        }
    }

    /// Writes an element with its lengths; the offset behind it.
    fn write(&mut self, at: usize, element: &[u8]) -> usize {
        let len = element.len();
        let (from, end) = (at + width(len), at + room(len));
        let (first, second) = if len < 0x80 { (len as u8, 0) } else { (0x80 | (len >> 8) as u8, len as u8) };
        self.0[at] = first;
        self.0[end - 1] = first;
        if len >= 0x80 {
            self.0[at + 1] = second;
            self.0[end - 2] = second;
        }
        self.0[from..from + len].copy_from_slice(element);
        end
    }

    /// Adds an element at the front or back.
    pub fn push(&mut self, front: bool, element: &[u8]) {
        let (start, end, added) = (self.start(), self.end(), room(element.len()));
        // Mostly there is space, and nothing else moves.
        if front && start >= HEADER + added {
            self.set_numbers(start - added, end, self.len() + 1);
            self.write(start - added, element);
        } else if !front && end + added <= self.0.len() {
            self.set_numbers(start, end + added, self.len() + 1);
            self.write(end, element);
        } else {
            let at = if front { start } else { end };
            self.splice(at..at, 0, &[element]);
        }
    }

    /// Takes the element at the front or back, after `look` has seen it.
    pub fn pop<R>(&mut self, front: bool, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let left = self.len().checked_sub(1)?;
        let (start, end) = (self.start(), self.end());
        let (element, range, rest) = if front {
            let (element, next) = self.read(start);
            (look(element), start..next, next..end)
        } else {
            let (element, at) = self.read_back(end);
            (look(element), at..end, start..at)
        };
        if left > 0 && !is_spacious(self.0.len(), heap(rest.len())) {
            self.set_numbers(rest.start, rest.end, left);
        } else {
            self.splice(range, 1, &[]);
        }
        Some(element)
    }

    /// Takes the element at `position`.
    pub fn remove(&mut self, position: usize) -> Option<Box<[u8]>> {
        if position >= self.len() {
            return None;
        }
        let at = self.offset(position);
        let (element, next) = self.read(at);
        let element = element.into();
        self.splice(at..next, 1, &[]);
        Some(element)
    }
}

/// Bytes that a buffer may have beyond twice of what is used.
const SPARE: usize = 64;

/// Whether a buffer is too large for what is in it.
fn is_spacious(capacity: usize, wanted: usize) -> bool {
    capacity > 2 * wanted + SPARE
}

/// Elements of a row, from [`Packed::iter_from`].
#[derive(Clone)]
pub struct Iter<'a> {
    row: &'a Packed,
    at: usize,
    end: usize,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (element, next) = self.row.read(self.at);
        self.at = next;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (element, at) = self.row.read_back(self.end);
        self.end = at;
        Some(element)
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Elements of a row two by two, from [`Packed::pairs`].
#[derive(Clone)]
pub struct Pairs<'a>(Iter<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.left / 2, Some(self.0.left / 2))
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let second = self.0.next_back()?;
        Some((self.0.next_back()?, second))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// At a position, that many elements are replaced by these.
    type Op = (usize, usize, Vec<Vec<u8>>);

    fn any_op() -> impl Strategy<Value = Op> {
        let len = prop_oneof![8 => 0..9usize, 2 => 100..150usize, 1 => 250..600usize];
        let element = (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
        let place = prop_oneof![Just(0), Just(usize::MAX), 0..40usize];
        (
            place,
            prop_oneof![2 => Just(0), 2 => 0..4usize, 1 => 0..30usize],
            prop::collection::vec(element, 0..4),
        )
    }

    fn same(row: &Packed, model: &[Vec<u8>]) {
        assert_eq!(row.len(), model.len());
        assert!(row.iter_from(0).eq(model.iter()));
        assert!(row.iter_from(0).rev().eq(model.iter().rev()));
        for (at, element) in model.iter().enumerate() {
            assert_eq!(row.get(at), Some(&**element));
            assert_eq!((row.iter_from(at).len(), row.iter_from(at).next()), (model.len() - at, row.get(at)));
        }
        assert_eq!(row.get(model.len()), None);
        if model.len().is_multiple_of(2) {
            let pairs = model.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1]));
            assert!(row.all_pairs().eq(pairs.clone()) && row.all_pairs().rev().eq(pairs.clone().rev()));
        }
        assert_eq!(row.room(), model.iter().map(|element| room(element.len())).sum::<usize>());
        assert!(row.0.len() <= 2 * heap(row.room()) + SPARE);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_row_equals_the_model(ops in prop::collection::vec(any_op(), 0..60)) {
            let (mut row, mut model) = (Packed::default(), Vec::<Vec<u8>>::new());
            for (position, count, with) in ops {
                let position = position.min(model.len());
                let count = count.min(model.len() - position);
                let range = row.offset(position)..row.offset(position + count);
                let elements: Vec<&[u8]> = with.iter().map(|element| &**element).collect();
                row.splice(range, count, &elements);
                model.splice(position..position + count, with.iter().cloned());
                same(&row, &model);
            }
        }

        /// As with a list that is kept short.
        #[test]
        fn pushes_at_one_end_and_cuts_at_the_other(front in any::<bool>(), lens in prop::collection::vec(0..20usize, 300)) {
            let (mut row, mut model) = (Packed::default(), std::collections::VecDeque::new());
            for len in lens {
                let element = vec![b'a' + len as u8; len];
                row.push(front, &element);
                if front { model.push_front(element) } else { model.push_back(element) }
                if model.len() > 20 {
                    let range = if front { row.offset(20)..row.end() } else { row.start()..row.offset(1) };
                    row.splice(range, 1, &[]);
                    if front { model.pop_back() } else { model.pop_front() };
                }
                same(&row, model.make_contiguous());
            }
        }
    }
}
