//! A stack that is large at times: it grows by pieces, so that nothing is copied and no memory is taken twice.

/// Elements of a piece. The first one grows to this.
const PIECE: usize = 1024;
/// Where there are more elements than a few in the first piece there will be many: it grows at once to have room for these.
const FEW: usize = 4;
const MANY: usize = 64;

/// A stack of elements, which can be reached by their position.
#[derive(Debug)]
pub struct Pieces<T> {
    /// All but the last one are full.
    pieces: Vec<Vec<T>>,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { pieces: Vec::new() }
    }
}

impl<T> Pieces<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => {
                if last.len() == FEW {
                    last.reserve(MANY);
                }
                last.push(element);
            }
            last => {
                let mut piece = Vec::with_capacity(if last.is_some() { PIECE } else { 1 });
                piece.push(element);
                self.pieces.push(piece);
            }
        }
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.pieces.last_mut()?;
        let element = last.pop();
        if last.is_empty() {
            self.pieces.pop();
        }
        element
    }

    /// The last element.
    pub fn last(&self) -> Option<&T> {
        self.pieces.last()?.last()
    }

    /// The last element, to be changed.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.pieces.last_mut()?.last_mut()
    }

    /// The element at a position.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    /// All elements, from the first to the last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// All elements, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }
}

impl<T> Extend<T> for Pieces<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T> IntoIterator for Pieces<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_stack() {
        let (mut pieces, mut wanted) = (Pieces::default(), Vec::new());
        for number in 0..3 * PIECE + 7 {
            pieces.push(number);
            wanted.push(number);
            if number % 5 == 0 {
                assert_eq!(pieces.pop(), wanted.pop());
            }
            assert_eq!((pieces.len(), pieces.last()), (wanted.len(), wanted.last()));
        }
        assert!(pieces.iter().eq(&wanted) && pieces.iter().rev().eq(wanted.iter().rev()));
        assert!((0..=wanted.len()).all(|at| pieces.get(at) == wanted.get(at)));
        while let Some(number) = pieces.pop() {
            assert_eq!((Some(number), pieces.len()), (wanted.pop(), wanted.len()));
        }
        assert!(pieces.is_empty() && wanted.is_empty());
        pieces.extend(0..2 * PIECE);
        assert!(pieces.into_iter().eq(0..2 * PIECE));
    }
}
