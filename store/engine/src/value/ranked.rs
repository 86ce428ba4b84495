//! A counted B+tree: an ordered sequence whose inner nodes know how many items lie below each child, so that
//! position by key, key by position, insertion and removal are all O(log n), and whose leaves are linked, so
//! that walking it in either direction is a walk over slices.
//!
//! The tree does not know the order of its items. Every descent takes a predicate that is true for a first
//! part of the sequence and false for the rest, and finds the border; [`super::zset`] derives the predicates
//! from scores and member bytes.
//!
//! Nodes live in two arenas and link each other by `u32`. Their contents are vectors that start small and
//! never reserve more than `CAP`, so a tree of a few items is one short vector. An inner leaf holds at least
//! 3/8 of `CAP`; the first and the last leaf may hold any number, so that growing at an end fills leaves
//! completely and taking from an end does not shift items about.

/// No node.
const NONE: u32 = u32::MAX;

/// What the tree orders: 12 bytes, without padding.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, packed(4))]
pub struct Item {
    /// The score.
    pub score: f64,
    /// The owner's number for the member.
    pub id: u32,
}

/// A child of an inner node.
#[derive(Clone, Copy, Debug)]
struct RankSlot {
    /// The first item below.
    first: Item,
    /// Its place in the arena of leaves or of inner nodes, by height.
    child: u32,
    /// Number of items below.
    count: u32,
}

#[derive(Clone, Debug)]
struct Leaf {
    items: Vec<Item>,
    prev: u32,
    /// The next leaf; for an unused node the next unused one.
    next: u32,
}

#[derive(Clone, Debug)]
struct InnerNode {
    slots: Vec<RankSlot>,
    /// For an unused node the next unused one.
    free: u32,
}

/// An ordered sequence of at most `u32::MAX` items. `CAP` (at least 8) is the most a node holds.
#[derive(Clone, Debug)]
pub struct Ranked<const CAP: usize = 64> {
    leaves: Vec<Leaf>,
    inners: Vec<InnerNode>,
    free_leaf: u32,
    free_inner: u32,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: u32,
    len: u32,
}

impl<const CAP: usize> Default for Ranked<CAP> {
    fn default() -> Ranked<CAP> {
        Ranked {
            leaves: Vec::new(),
            inners: Vec::new(),
            free_leaf: NONE,
            free_inner: NONE,
            root: NONE,
            height: 0,
            len: 0,
        }
    }
}

impl<const CAP: usize> Ranked<CAP> {
    /// The least an inner node, or a leaf that is neither first nor last, holds.
    const MIN: usize = CAP * 3 / 8;
    /// Two neighbours with no more than this become one, which then still has room.
    const MERGE: usize = CAP * 3 / 4;

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many items `before` is true for, in O(log n). It must be true for a first part of the sequence
    /// only.
    pub fn count(&self, before: impl Fn(Item) -> bool) -> usize {
        if self.len == 0 {
            return 0;
        }
        let (mut node, mut passed) = (self.root, 0);
        for _ in 0..self.height {
            let slots = &self.inners[node as usize].slots;
            let at = child_at(slots, &before);
            passed += total(&slots[..at]);
            node = slots[at].child;
        }
        passed as usize + self.leaves[node as usize].items.partition_point(|&item| before(item))
    }

    /// The item at a position, counted from 0, in O(log n); none from [`Ranked::len`] on.
    pub fn select(&self, rank: usize) -> Option<Item> {
        self.locate(rank).map(|(leaf, at)| self.leaves[leaf as usize].items[at])
    }

    /// The items from position `rank` on, in order.
    pub fn iter_from(&self, rank: usize) -> Iter<'_, CAP> {
        let Some((leaf, at)) = self.locate(rank) else {
            return Iter { tree: self, items: [].iter(), next: NONE, left: 0 };
        };
        let leaf = &self.leaves[leaf as usize];
        Iter { tree: self, items: leaf.items[at..].iter(), next: leaf.next, left: self.len() - rank }
    }

    /// The items from position `rank` down to the first, backwards; none if there is no such position.
    pub fn rev_iter_from(&self, rank: usize) -> RevIter<'_, CAP> {
        let Some((leaf, at)) = self.locate(rank) else {
            return RevIter { tree: self, items: [].iter(), prev: NONE, left: 0 };
        };
        let leaf = &self.leaves[leaf as usize];
        RevIter { tree: self, items: leaf.items[..=at].iter(), prev: leaf.prev, left: rank + 1 }
    }

    /// Puts `item` behind the first part of the sequence, the one `before` is true for, in O(log n).
    ///
    /// # Panics
    ///
    /// When there are `u32::MAX` items already.
    pub fn insert(&mut self, item: Item, before: impl Fn(Item) -> bool) {
        self.len = self.len.checked_add(1).expect("fewer than 2^32 items");
        if self.root == NONE {
            self.root = self.add_leaf(Leaf { items: Vec::new(), prev: NONE, next: NONE });
        }
        if let Some(split) = self.insert_below(self.root, self.height, item, &before) {
            let slots = vec![self.summary(self.root, self.height), split];
            self.root = self.add_inner(slots);
            self.height += 1;
        }
    }

    /// Takes out the last item `upto` is true for, in O(log n); none if it is true for no item. As with
    /// [`Ranked::count`] it must be true for a first part of the sequence only.
    pub fn remove(&mut self, upto: impl Fn(Item) -> bool) -> Option<Item> {
        if self.len == 0 {
            return None;
        }
        let removed = self.remove_below(self.root, self.height, &upto)?;
        self.len -= 1;
        if self.len == 0 {
            *self = Ranked::default();
        } else if self.height > 0 && self.inners[self.root as usize].slots.len() == 1 {
            let emptied = self.root;
            self.root = self.inners[emptied as usize].slots[0].child;
            self.height -= 1;
            self.free_inner(emptied);
        }
        Some(removed)
    }

    fn insert_below(
        &mut self,
        node: u32,
        height: u32,
        item: Item,
        before: &impl Fn(Item) -> bool,
    ) -> Option<RankSlot> {
        if height == 0 {
            return self.insert_leaf(node, item, before);
        }
        let slots = &self.inners[node as usize].slots;
        let at = child_at(slots, before);
        let child = slots[at].child;
        let split = self.insert_below(child, height - 1, item, before);
        let first = self.first(child, height - 1);
        let slots = &mut self.inners[node as usize].slots;
        slots[at] = RankSlot { first, child, count: slots[at].count + 1 };
        let split = split?;
        slots[at].count -= split.count;
        if slots.len() < CAP {
            make_room(slots, CAP);
            slots.insert(at + 1, split);
            return None;
        }
        let mut upper = slots.split_off(CAP / 2);
        if at < CAP / 2 {
            slots.insert(at + 1, split);
        } else {
            make_room(&mut upper, CAP);
            upper.insert(at + 1 - CAP / 2, split);
        }
        let upper = self.add_inner(upper);
        Some(self.summary(upper, height))
    }

    fn insert_leaf(&mut self, node: u32, item: Item, before: &impl Fn(Item) -> bool) -> Option<RankSlot> {
        let leaf = &mut self.leaves[node as usize];
        let at = leaf.items.partition_point(|&held| before(held));
        if leaf.items.len() < CAP {
            make_room(&mut leaf.items, CAP);
            leaf.items.insert(at, item);
            return None;
        }
        let cut = match leaf {
            Leaf { next: NONE, .. } if at == CAP => CAP,
            Leaf { prev: NONE, .. } if at == 0 => 0,
            _ => CAP / 2,
        };
        let mut items = leaf.items.split_off(cut);
        if at > cut || cut == CAP {
            make_room(&mut items, CAP);
            items.insert(at - cut, item);
        } else {
            leaf.items.insert(at, item);
        }
        let next = std::mem::replace(&mut leaf.next, NONE);
        let upper = self.add_leaf(Leaf { items, prev: node, next });
        self.leaves[node as usize].next = upper;
        if next != NONE {
            self.leaves[next as usize].prev = upper;
        }
        Some(self.summary(upper, 0))
    }

    fn remove_below(&mut self, node: u32, height: u32, upto: &impl Fn(Item) -> bool) -> Option<Item> {
        if height == 0 {
            let items = &mut self.leaves[node as usize].items;
            let at = items.partition_point(|&item| upto(item)).checked_sub(1)?;
            return Some(items.remove(at));
        }
        let slots = &self.inners[node as usize].slots;
        let at = child_at(slots, upto);
        let child = slots[at].child;
        let removed = self.remove_below(child, height - 1, upto)?;
        self.inners[node as usize].slots[at].count -= 1;
        if self.is_short(child, height - 1) {
            self.rebalance(node, height, at.saturating_sub(1));
        } else {
            self.inners[node as usize].slots[at].first = self.first(child, height - 1);
        }
        Some(removed)
    }

    fn is_short(&self, node: u32, height: u32) -> bool {
        if height > 0 {
            return self.inners[node as usize].slots.len() < Self::MIN;
        }
        let leaf = &self.leaves[node as usize];
        leaf.items.is_empty() || leaf.items.len() < Self::MIN && leaf.prev != NONE && leaf.next != NONE
    }

    /// Makes one node of the children `at` and `at + 1` of an inner node, or spreads their contents evenly.
    fn rebalance(&mut self, node: u32, height: u32, at: usize) {
        let slots = &self.inners[node as usize].slots;
        let (lower, upper) = (slots[at].child, slots[at + 1].child);
        let merged = if height == 1 {
            let [low, high] =
                self.leaves.get_disjoint_mut([lower as usize, upper as usize]).expect("two leaves");
            let merged = spread(&mut low.items, &mut high.items, Self::MERGE, CAP);
            if merged {
                let next = high.next;
                low.next = next;
                if next != NONE {
                    self.leaves[next as usize].prev = lower;
                }
                self.free_leaf(upper);
            }
            merged
        } else {
            let [low, high] =
                self.inners.get_disjoint_mut([lower as usize, upper as usize]).expect("two nodes");
            let merged = spread(&mut low.slots, &mut high.slots, Self::MERGE, CAP);
            if merged {
                self.free_inner(upper);
            }
            merged
        };
        self.inners[node as usize].slots[at] = self.summary(lower, height - 1);
        if merged {
            self.inners[node as usize].slots.remove(at + 1);
        } else {
            self.inners[node as usize].slots[at + 1] = self.summary(upper, height - 1);
        }
    }

    fn locate(&self, rank: usize) -> Option<(u32, usize)> {
        let mut rank = u32::try_from(rank).ok().filter(|&rank| rank < self.len)?;
        let mut node = self.root;
        for _ in 0..self.height {
            let slots = &self.inners[node as usize].slots;
            let mut at = 0;
            while rank >= slots[at].count {
                rank -= slots[at].count;
                at += 1;
            }
            node = slots[at].child;
        }
        Some((node, rank as usize))
    }

    fn first(&self, node: u32, height: u32) -> Item {
        match height {
            0 => self.leaves[node as usize].items[0],
            _ => self.inners[node as usize].slots[0].first,
        }
    }

    fn summary(&self, node: u32, height: u32) -> RankSlot {
        let count = match height {
            0 => self.leaves[node as usize].items.len() as u32,
            _ => total(&self.inners[node as usize].slots),
        };
        RankSlot { first: self.first(node, height), child: node, count }
    }

    fn add_leaf(&mut self, leaf: Leaf) -> u32 {
        let at = self.free_leaf;
        if at != NONE {
            self.free_leaf = std::mem::replace(&mut self.leaves[at as usize], leaf).next;
            return at;
        }
        self.leaves.reserve_exact(usize::from(self.leaves.is_empty()));
        self.leaves.push(leaf);
        (self.leaves.len() - 1) as u32
    }

    fn add_inner(&mut self, slots: Vec<RankSlot>) -> u32 {
        let at = self.free_inner;
        if at != NONE {
            self.free_inner =
                std::mem::replace(&mut self.inners[at as usize], InnerNode { slots, free: NONE }).free;
            return at;
        }
        self.inners.push(InnerNode { slots, free: NONE });
        (self.inners.len() - 1) as u32
    }

    fn free_leaf(&mut self, at: u32) {
        self.leaves[at as usize] = Leaf { items: Vec::new(), prev: NONE, next: self.free_leaf };
        self.free_leaf = at;
    }

    fn free_inner(&mut self, at: u32) {
        self.inners[at as usize] = InnerNode { slots: Vec::new(), free: self.free_inner };
        self.free_inner = at;
    }
}

/// The child in which the first part of the sequence ends.
fn child_at(slots: &[RankSlot], before: &impl Fn(Item) -> bool) -> usize {
    slots[1..].partition_point(|slot| before(slot.first))
}

fn total(slots: &[RankSlot]) -> u32 {
    slots.iter().map(|slot| slot.count).sum()
}

/// Room for one more: twice the space, from 4 up to `cap` places, as `Vec` alone would reserve beyond `cap`.
fn make_room<T>(held: &mut Vec<T>, cap: usize) {
    if held.len() == held.capacity() {
        held.reserve_exact((held.len() * 2).clamp(4, cap) - held.len());
    }
}

/// Moves everything into `low` (and says so) if that is no more than `merge` or one of them is empty;
/// otherwise moves between them until they are equally long.
fn spread<T>(low: &mut Vec<T>, high: &mut Vec<T>, merge: usize, cap: usize) -> bool {
    let sum = low.len() + high.len();
    let merged = sum <= merge || low.is_empty() || high.is_empty();
    let half = if merged { sum } else { sum / 2 };
    if low.len() < half {
        low.reserve_exact(if merged { half } else { cap } - low.len());
        low.extend(high.drain(..half - low.len()));
    } else if low.len() > half {
        high.reserve_exact(cap - high.len());
        high.splice(..0, low.drain(half..));
    }
    merged
}

/// Forward iterator of [`Ranked::iter_from`].
#[derive(Clone, Debug)]
pub struct Iter<'a, const CAP: usize = 64> {
    tree: &'a Ranked<CAP>,
    items: std::slice::Iter<'a, Item>,
    next: u32,
    left: usize,
}

impl<const CAP: usize> Iterator for Iter<'_, CAP> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(&item) = self.items.next() {
                self.left -= 1;
                return Some(item);
            }
            let leaf = self.tree.leaves.get(self.next as usize)?;
            (self.items, self.next) = (leaf.items.iter(), leaf.next);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<const CAP: usize> ExactSizeIterator for Iter<'_, CAP> {}

/// Backward iterator of [`Ranked::rev_iter_from`].
#[derive(Clone, Debug)]
pub struct RevIter<'a, const CAP: usize = 64> {
    tree: &'a Ranked<CAP>,
    items: std::slice::Iter<'a, Item>,
    prev: u32,
    left: usize,
}

impl<const CAP: usize> Iterator for RevIter<'_, CAP> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(&item) = self.items.next_back() {
                self.left -= 1;
                return Some(item);
            }
            let leaf = self.tree.leaves.get(self.prev as usize)?;
            (self.items, self.prev) = (leaf.items.iter(), leaf.prev);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<const CAP: usize> ExactSizeIterator for RevIter<'_, CAP> {}

#[cfg(test)]
impl<const CAP: usize> Ranked<CAP> {
    /// Panics unless counts, fill, order by `less`, links between leaves and the lists of unused nodes are
    /// right.
    pub(crate) fn check(&self, less: impl Fn(Item, Item) -> bool) {
        let (mut leaves, mut inners) = (Vec::new(), 0);
        if self.root == NONE {
            assert!(self.len == 0 && self.leaves.is_empty() && self.inners.is_empty());
            return;
        }
        assert_eq!(self.check_below(self.root, self.height, &mut leaves, &mut inners), self.len);
        let mut prev = NONE;
        for (at, &node) in leaves.iter().enumerate() {
            let leaf = &self.leaves[node as usize];
            assert!(leaf.items.len() >= if at == 0 || at == leaves.len() - 1 { 1 } else { Self::MIN });
            assert!(leaf.items.len() <= CAP && leaf.items.capacity() <= CAP);
            assert_eq!((leaf.prev, leaf.next), (prev, leaves.get(at + 1).copied().unwrap_or(NONE)));
            prev = node;
        }
        let items: Vec<Item> =
            leaves.iter().flat_map(|&node| self.leaves[node as usize].items.clone()).collect();
        assert!(items.windows(2).all(|pair| less(pair[0], pair[1])));
        let unused = |free, next: &dyn Fn(u32) -> u32| {
            let used = |at: u32| Some(at).filter(|&at| at != NONE);
            std::iter::successors(used(free), |&at| used(next(at))).count()
        };
        let unused_leaves = unused(self.free_leaf, &|at| self.leaves[at as usize].next);
        let unused_inners = unused(self.free_inner, &|at| self.inners[at as usize].free);
        assert_eq!(unused_leaves + leaves.len(), self.leaves.len());
        assert_eq!(unused_inners + inners, self.inners.len());
    }

    fn check_below(&self, node: u32, height: u32, leaves: &mut Vec<u32>, inners: &mut usize) -> u32 {
        if height == 0 {
            leaves.push(node);
            return self.leaves[node as usize].items.len() as u32;
        }
        *inners += 1;
        let slots = &self.inners[node as usize].slots;
        assert!(slots.len() >= if node == self.root { 2 } else { Self::MIN });
        assert!(slots.len() <= CAP && slots.capacity() <= CAP);
        for slot in slots {
            assert_eq!(slot.first, self.first(slot.child, height - 1));
            assert_eq!(slot.count, self.check_below(slot.child, height - 1, leaves, inners));
        }
        total(slots)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(item: Item) -> (f64, u32) {
        (item.score, item.id)
    }

    fn less(a: Item, b: Item) -> bool {
        key(a) < key(b)
    }

    /// Inserts or, if it is there, removes the item, in the tree and in the model.
    fn toggle<const CAP: usize>(tree: &mut Ranked<CAP>, model: &mut Vec<(f64, u32)>, item: Item) {
        let at = model.partition_point(|&held| held < key(item));
        assert_eq!(tree.count(|held| less(held, item)), at);
        if model.get(at) == Some(&key(item)) {
            model.remove(at);
            assert_eq!(tree.remove(|held| !less(item, held)), Some(item));
        } else {
            model.insert(at, key(item));
            tree.insert(item, |held| less(held, item));
        }
    }

    fn same<const CAP: usize>(tree: &Ranked<CAP>, model: &[(f64, u32)]) {
        tree.check(less);
        assert_eq!(tree.len(), model.len());
        assert_eq!(tree.is_empty(), model.is_empty());
        assert!(tree.iter_from(0).map(key).eq(model.iter().copied()));
        assert!(tree.rev_iter_from(model.len().wrapping_sub(1)).map(key).eq(model.iter().rev().copied()));
        assert!(tree.select(model.len()).is_none());
        assert_eq!(tree.iter_from(model.len()).count() + tree.rev_iter_from(model.len()).count(), 0);
        for at in (0..model.len()).step_by(1 + model.len() / 20) {
            assert_eq!(tree.select(at).map(key), Some(model[at]));
            assert_eq!(tree.iter_from(at).len(), model.len() - at);
            assert_eq!(tree.iter_from(at).map(key).next(), Some(model[at]));
            assert_eq!(tree.rev_iter_from(at).len(), at + 1);
            assert_eq!(tree.rev_iter_from(at).map(key).last(), Some(model[0]));
        }
    }

    proptest! {
        #[test]
        fn any_toggles_equal_a_vector(ops in prop::collection::vec((0..40u32, 0..12u32), 0..900)) {
            let (mut tree, mut model) = (Ranked::<8>::default(), Vec::new());
            for (at, &(score, id)) in ops.iter().enumerate() {
                toggle(&mut tree, &mut model, Item { score: f64::from(score), id });
                if at % 16 == 0 {
                    tree.check(less);
                }
            }
            same(&tree, &model);
            same(&tree.clone(), &model);
        }
    }

    /// Grows to `n` in the order of `grow`, then shrinks to nothing in the order of `shrink`.
    fn there_and_back<const CAP: usize>(n: u32, grow: impl Fn(u32) -> u32, shrink: impl Fn(u32) -> u32) {
        let (mut tree, mut model) = (Ranked::<CAP>::default(), Vec::new());
        for order in [&grow as &dyn Fn(u32) -> u32, &shrink] {
            for at in 0..n {
                toggle(&mut tree, &mut model, Item { score: f64::from(order(at) / 3), id: order(at) });
                if at % (n / 16) == 0 {
                    same(&tree, &model);
                }
            }
            same(&tree, &model);
        }
        assert!(tree.is_empty() && tree.leaves.is_empty() && tree.inners.is_empty());
        assert!(tree.remove(|_| true).is_none());
    }

    #[test]
    fn grows_and_shrinks_in_every_order() {
        let n = 3001;
        let (up, down) = (|at| at, move |at| n - 1 - at);
        let mixed = move |at: u32| at * 1009 % n;
        there_and_back::<8>(n, up, up);
        there_and_back::<8>(n, up, down);
        there_and_back::<8>(n, down, up);
        there_and_back::<8>(n, down, mixed);
        there_and_back::<8>(n, mixed, up);
        there_and_back::<64>(10_007, |at| at * 5003 % 10_007, |at| at * 1009 % 10_007);
    }

    #[test]
    fn growing_at_an_end_fills_leaves() {
        for down in [false, true] {
            let mut tree = Ranked::<8>::default();
            for at in 0..800 {
                let item = Item { score: if down { -f64::from(at) } else { f64::from(at) }, id: at };
                tree.insert(item, |held| less(held, item));
            }
            assert_eq!(tree.leaves.len(), 100);
        }
    }
}
