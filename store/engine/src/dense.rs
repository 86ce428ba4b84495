//! A table whose entries have positions: densely from 0, in the order they came, except that a removal moves the last
//! one into the gap.
//!
//! They lie in pieces that never move and are given back one by one, so a table that grows copies nothing but its
//! index, and has no memory that is neither full nor free.

use std::hash::BuildHasher;
use std::mem;
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::bytes_eq::bytes_eq;

/// Entries of a piece. Measured with keys of 64 bytes: eighteen such pieces fill a page of the allocator, where of 512
/// entries fifteen fit into the space of sixteen.
const PIECE: usize = 448;
/// An index for up to so many entries is not made smaller.
const SMALL: usize = 1024;

/// A key: owned bytes without spare capacity.
pub type Key = Box<[u8]>;

/// Keys with what belongs to them.
#[derive(Debug)]
pub struct Dense<V> {
    /// Positions, by the hash of the key there.
    index: HashTable<u32>,
    /// All full but the last, which is never empty.
    pieces: Vec<Vec<DenseSlot<V>>>,
    state: RandomState,
    /// The key that came last, or that [`Dense::find_again`] looked for since: how it looks, and where it was.
    last: (u64, u32),
}

#[derive(Debug)]
struct DenseSlot<V> {
    key: Key,
    value: V,
    /// So that a growing index need not read the keys again.
    hash: u32,
}

impl<V> Default for Dense<V> {
    fn default() -> Self {
        Dense { index: HashTable::new(), pieces: Vec::new(), state: RandomState::default(), last: (0, 0) }
    }
}

/// A hash as the index wants it: the place comes from the low bits, the tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A glance at a key, which tells most from each other without reading more than their ends.
fn fingerprint(key: &[u8]) -> u64 {
    let ends = match (key.first_chunk::<4>(), key.last_chunk::<8>(), key.last_chunk::<4>()) {
        (_, Some(last), _) => u64::from_le_bytes(*last),
        (Some(first), _, Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        _ => key.iter().fold(0, |ends, byte| ends << 8 | u64::from(*byte)),
    };
    ends ^ key.len() as u64
}

fn slot<V>(pieces: &[Vec<DenseSlot<V>>], at: u32) -> &DenseSlot<V> {
    let at = at as usize;
    &pieces[at / PIECE][at % PIECE]
}

impl<V> Dense<V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn hash(&self, key: &[u8]) -> u32 {
        let hash = self.state.hash_one(key);
        (hash ^ hash >> 32) as u32
    }

    /// The position of `key`.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = self.hash(key);
        let is_it = |at: &u32| {
            let slot = slot(&self.pieces, *at);
            slot.hash == hash && bytes_eq(&slot.key, key)
        };
        self.index.find(spread(hash), is_it).map(|at| *at as usize)
    }

    /// [`Dense::find`] for those who often look for the same key several times in a row, as scripts do.
    pub fn find_again(&mut self, key: &[u8]) -> Option<usize> {
        let (fingerprint, at) = (fingerprint(key), self.last.1 as usize);
        if self.last.0 == fingerprint
            && let Some(slot) = self.slot_at(at)
            && bytes_eq(&slot.key, key)
        {
            return Some(at);
        }
        let found = self.find(key)?;
        self.last = (fingerprint, found as u32);
        Some(found)
    }

    /// What belongs to `key`.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|at| &self[at])
    }

    fn slot_at(&self, at: usize) -> Option<&DenseSlot<V>> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    fn slot_at_mut(&mut self, at: usize) -> Option<&mut DenseSlot<V>> {
        self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)
    }

    /// What is at a position below [`Dense::len`].
    pub fn at(&self, at: usize) -> Option<(&Key, &V)> {
        self.slot_at(at).map(|slot| (&slot.key, &slot.value))
    }

    /// What is at a position below [`Dense::len`], to be changed.
    pub fn at_mut(&mut self, at: usize) -> Option<(&Key, &mut V)> {
        self.slot_at_mut(at).map(|slot| (&slot.key, &mut slot.value))
    }

    /// Adds a key that is not there; its position is the last.
    ///
    /// # Panics
    ///
    /// When there are 2^32 keys already.
    pub fn push(&mut self, key: &[u8], value: V) {
        let (hash, at) = (self.hash(key), u32::try_from(self.len()).expect("fewer than 2^32 keys"));
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            // Only the first one may have to grow: most databases are small or empty.
            let room = if self.pieces.is_empty() { 0 } else { PIECE };
            self.pieces.push(Vec::with_capacity(room));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(DenseSlot { key: key.into(), value, hash });
        }
        // Not before: the place in the index is probably in no cache, and what was copied above would wait for it.
        if self.index.len() == self.index.capacity() {
            self.rebuild();
        } else {
            self.index.insert_unique(spread(hash), at, |_| unreachable!("there is room for it"));
        }
        self.last = (fingerprint(key), at);
    }

    /// Makes an index that is half full; in the order of the entries, so that they are read one after another.
    fn rebuild(&mut self) {
        let mut index = HashTable::with_capacity(2 * self.len().max(1));
        for (at, slot) in (0..).zip(self.pieces.iter().flatten()) {
            index.insert_unique(spread(slot.hash), at, |_| unreachable!("there is room for all"));
        }
        self.index = index;
    }

    /// Removes what is at a position; the last entry comes there.
    pub fn swap_remove(&mut self, at: usize) -> Option<(Key, V)> {
        let last = self.len().checked_sub(1)?;
        let hash = self.slot_at(at)?.hash;
        if let Ok(entry) = self.index.find_entry(spread(hash), |held| *held as usize == at) {
            entry.remove();
        }
        let piece = self.pieces.last_mut()?;
        let mut removed = piece.pop()?;
        if piece.is_empty() {
            self.pieces.pop();
        }
        if at != last {
            if let Some(held) = self.index.find_mut(spread(removed.hash), |held| *held as usize == last) {
                *held = at as u32;
            }
            mem::swap(self.slot_at_mut(at)?, &mut removed);
        }
        if self.index.capacity() > SMALL.max(8 * self.len()) {
            self.rebuild();
        }
        Some((removed.key, removed.value))
    }

    /// Exchanges what is at two positions below [`Dense::len`].
    pub fn swap(&mut self, first: usize, second: usize) {
        if first == second {
            return;
        }
        let hash = |at| self.slot_at(at).map(|slot| spread(slot.hash));
        let (Some(one), Some(other)) = (hash(first), hash(second)) else { return };
        // Both are found before either is changed, since then they could be taken for each other.
        let bucket_of = |hash, at: usize| self.index.find_bucket_index(hash, |held| *held as usize == at);
        let (one, other) = (bucket_of(one, first), bucket_of(other, second));
        for (bucket, at) in [(one, second), (other, first)] {
            if let Some(held) = bucket.and_then(|bucket| self.index.get_bucket_mut(bucket)) {
                *held = at as u32;
            }
        }
        let (low, high) = (first.min(second), first.max(second));
        let (front, back) = self.pieces.split_at_mut(high / PIECE);
        let (low_piece, low) = (low / PIECE, low % PIECE);
        match front.get_mut(low_piece) {
            Some(piece) => mem::swap(&mut piece[low], &mut back[0][high % PIECE]),
            None => back[0].swap(low, high % PIECE),
        }
    }

    /// Everything that belongs to a key.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.pieces.iter_mut().flatten().map(|slot| &mut slot.value)
    }

    /// Everything, in order.
    pub fn into_entries(self) -> impl Iterator<Item = (Key, V)> {
        self.pieces.into_iter().flatten().map(|slot| (slot.key, slot.value))
    }
}

impl<V> Index<usize> for Dense<V> {
    type Output = V;

    fn index(&self, at: usize) -> &V {
        &self.pieces[at / PIECE][at % PIECE].value
    }
}

impl<V> IndexMut<usize> for Dense<V> {
    fn index_mut(&mut self, at: usize) -> &mut V {
        &mut self.pieces[at / PIECE][at % PIECE].value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Add(u16),
        Remove(usize),
        Swap(usize, usize),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..3000_u16).prop_map(Op::Add),
            2 => any::<usize>().prop_map(Op::Remove),
            1 => any::<(usize, usize)>().prop_map(|(first, second)| Op::Swap(first, second)),
        ]
    }

    fn bytes_eq(table: &mut Dense<u16>, model: &[u16]) {
        assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
        for (at, number) in model.iter().enumerate() {
            let key: Key = number.to_be_bytes().into();
            assert_eq!(table.at(at), Some((&key, number)));
            assert_eq!((table.find(&key), table.get(&key), table[at]), (Some(at), Some(number), *number));
            assert_eq!(table.find_again(&key), Some(at));
        }
        assert_eq!(table.at(model.len()), None);
        assert_eq!(table.pieces.len(), model.len().div_ceil(PIECE));
        assert!(table.index.capacity() <= 2 * SMALL.max(8 * model.len()));
    }

    fn apply(table: &mut Dense<u16>, model: &mut Vec<u16>, op: Op) {
        let len = model.len();
        match op {
            Op::Add(number) => {
                let key = number.to_be_bytes();
                assert_eq!(table.find(&key), model.iter().position(|held| *held == number));
                if !model.contains(&number) {
                    table.push(&key, number);
                    model.push(number);
                }
            }
            Op::Remove(at) if len > 0 => {
                let number = model.swap_remove(at % len);
                assert_eq!(table.swap_remove(at % len), Some((number.to_be_bytes().into(), number)));
            }
            Op::Swap(first, second) if len > 0 => {
                table.swap(first % len, second % len);
                model.swap(first % len, second % len);
            }
            Op::Remove(_) => assert_eq!(table.swap_remove(0), None),
            Op::Swap(first, second) => table.swap(first, second),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_table_equals_the_model(few in prop::collection::vec(any_op(), 0..40), many in prop::collection::vec(any_op(), 0..2500)) {
            let (mut table, mut model) = (Dense::default(), Vec::new());
            for op in few {
                apply(&mut table, &mut model, op);
                bytes_eq(&mut table, &model);
            }
            many.into_iter().for_each(|op| apply(&mut table, &mut model, op));
            bytes_eq(&mut table, &model);
            for value in table.values_mut() {
                *value /= 2;
            }
            let wanted: Vec<_> = model.iter().map(|held| (held.to_be_bytes().into(), held / 2)).collect();
            prop_assert_eq!(table.into_entries().collect::<Vec<(Key, u16)>>(), wanted);
        }
    }

    #[test]
    fn what_is_removed_is_given_back() {
        let (mut table, mut model) = (Dense::default(), Vec::new());
        (0..20_000).for_each(|number| apply(&mut table, &mut model, Op::Add(number)));
        for at in 0..19_990 {
            apply(&mut table, &mut model, Op::Remove(at * 7));
        }
        bytes_eq(&mut table, &model);
    }
}
