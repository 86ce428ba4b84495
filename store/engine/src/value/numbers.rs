//! Numbers in ascending order in one allocation: what small sets of numbers are made of. Each takes as many bytes as
//! the widest of them needs, so that what they take depends on nothing else.

use crate::size::allocated;

/// The width's power of two, in two bytes: less than where any [`super::packed::Packed`] starts.
const HEADER: usize = 2;

/// Bytes that a number needs.
pub const fn width_of(number: i64) -> usize {
    if number as i16 as i64 == number {
        2
    } else if number as i32 as i64 == number {
        4
    } else {
        8
    }
}

/// Bytes on the heap of `len` numbers, the widest of which needs `width` bytes.
pub const fn heap(len: usize, width: usize) -> usize {
    if len == 0 { 0 } else { allocated(HEADER + len * width) }
}

/// The numbers of a buffer that holds at least one.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    width: usize,
    bytes: &'a [u8],
}

impl<'a> Numbers<'a> {
    /// As they lie in a buffer that [`of`], [`insert`] or [`remove`] has made.
    pub fn in_buffer(buffer: &'a [u8]) -> Numbers<'a> {
        Numbers { width: 1 << buffer[0], bytes: &buffer[HEADER..] }
    }

    /// How many there are.
    pub fn len(self) -> usize {
        // No division, as the width is known to be a power of two only here.
        self.bytes.len() >> self.width.trailing_zeros()
    }

    /// Bytes on the heap.
    pub fn heap(self) -> usize {
        heap(self.len(), self.width)
    }

    /// The number at a position.
    #[inline]
    pub fn at(self, at: usize) -> Option<i64> {
        Some(match self.width {
            2 => i64::from(i16::from_le_bytes(*self.bytes.get(2 * at..)?.first_chunk()?)),
            4 => i64::from(i32::from_le_bytes(*self.bytes.get(4 * at..)?.first_chunk()?)),
            _ => i64::from_le_bytes(*self.bytes.get(8 * at..)?.first_chunk()?),
        })
    }

    /// Position of a number, or where it would have to be.
    pub fn find(self, number: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.at(middle).map(|held| held.cmp(&number)) {
                Some(std::cmp::Ordering::Less) => low = middle + 1,
                Some(std::cmp::Ordering::Equal) => return Ok(middle),
                _ => high = middle,
            }
        }
        Err(low)
    }

    /// All of them.
    pub fn iter(self) -> impl ExactSizeIterator<Item = i64> + Clone {
        (0..self.len()).map(move |at| self.at(at).unwrap_or_default())
    }

    /// Bytes that the widest needs: the first or the last.
    fn wanted_width(self) -> usize {
        let ends = [self.at(0), self.at(self.len() - 1)];
        ends.into_iter().flatten().map(width_of).max().unwrap_or(2)
    }
}

/// A buffer of these numbers, which ascend.
pub fn of(numbers: impl ExactSizeIterator<Item = i64> + Clone) -> Box<[u8]> {
    let Some(width) = numbers.clone().map(width_of).max() else { return Box::default() };
    let mut buffer = Vec::with_capacity(HEADER + numbers.len() * width);
    buffer.extend_from_slice(&[width.trailing_zeros() as u8, 0]);
    numbers.for_each(|number| buffer.extend_from_slice(&number.to_le_bytes()[..width]));
    buffer.into_boxed_slice()
}

/// Adds a number at a position that [`Numbers::find`] gave.
pub fn insert(buffer: Box<[u8]>, at: usize, number: i64) -> Box<[u8]> {
    let held = Numbers::in_buffer(&buffer);
    let width = held.width;
    if width_of(number) > width {
        let mut all: Vec<i64> = held.iter().collect();
        all.insert(at, number);
        return of(all.into_iter());
    }
    let offset = HEADER + at * width;
    let mut bytes = buffer.into_vec();
    bytes.reserve_exact(width);
    bytes.splice(offset..offset, number.to_le_bytes().into_iter().take(width));
    bytes.into_boxed_slice()
}

/// Takes out the number at a position.
pub fn remove(buffer: Box<[u8]>, at: usize) -> Box<[u8]> {
    let width = Numbers::in_buffer(&buffer).width;
    let offset = HEADER + at * width;
    let mut bytes = buffer.into_vec();
    bytes.drain(offset..offset + width);
    if bytes.len() == HEADER {
        return Box::default();
    }
    let left = Numbers::in_buffer(&bytes);
    if left.wanted_width() < width {
        return of(left.iter());
    }
    bytes.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => -20..20i64,
            1 => Just(i64::from(i16::MAX) + 1),
            1 => Just(i64::from(i32::MIN) - 1),
            1 => Just(i64::MAX),
            1 => any::<i64>(),
        ]
    }

    proptest! {
        #[test]
        fn numbers_equal_the_model(ops in prop::collection::vec((any_number(), any::<bool>()), 1..120)) {
            let (mut buffer, mut model) = (Box::<[u8]>::default(), BTreeSet::new());
            for (number, adds) in ops {
                let found = if buffer.is_empty() { Err(0) } else { Numbers::in_buffer(&buffer).find(number) };
                prop_assert_eq!(found.is_ok(), model.contains(&number));
                buffer = match found {
                    Ok(at) if !adds => {
                        model.remove(&number);
                        remove(buffer, at)
                    }
                    Err(_) if adds && buffer.is_empty() => {
                        model.insert(number);
                        of([number].into_iter())
                    }
                    Err(at) if adds => {
                        model.insert(number);
                        insert(buffer, at, number)
                    }
                    _ => buffer,
                };
                let Some(width) = model.iter().copied().map(width_of).max() else {
                    prop_assert!(buffer.is_empty());
                    continue;
                };
                let numbers = Numbers::in_buffer(&buffer);
                prop_assert_eq!((numbers.len(), numbers.heap()), (model.len(), heap(model.len(), width)));
                prop_assert!(numbers.iter().eq(model.iter().copied()));
                prop_assert_eq!(buffer.len(), HEADER + model.len() * width);
                prop_assert_eq!(numbers.at(model.len()), None);
            }
        }
    }
}
