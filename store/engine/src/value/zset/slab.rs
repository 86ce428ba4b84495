//! Large sorted sets: members in a slab, an index over their bytes, and a counted tree over (score, member).
//!
//! A member is one allocation and a slot in the slab. Its slot's number never changes while it is there, so
//! index and tree refer to it by that number and a scan over the slots misses none that stays. Slots of
//! removed members are used again, the last freed first, so that undoing changes in reverse order puts
//! members back where they were; the slab itself is given back when the set becomes empty.
//!
//! Up to `UNINDEXED` members there is no index: comparing so few is as fast, and small sets stay small.

use std::hash::BuildHasher;
use std::{fmt, mem};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::row;
use crate::size::allocated;
use crate::value::form::Weight;
use crate::value::ranked::{self, Item, Ranked};

/// Up to this many members are found by comparing them all.
const UNINDEXED: usize = 16;
/// Bytes a member costs beside its own; see [`Slab::bytes`].
const MEMBER_OVERHEAD: usize = 64;
/// Bytes of the structure itself.
const SLAB_OVERHEAD: usize = allocated(size_of::<Slab>());
/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

#[derive(Clone)]
enum SlabSlot {
    Held { member: Box<[u8]>, score: f64 },
    Free { next: u32 },
}

const _: () = assert!(size_of::<SlabSlot>() == 24);

impl SlabSlot {
    /// The member; an empty one for a free slot, which nothing refers to.
    fn member(&self) -> &[u8] {
        match self {
            SlabSlot::Held { member, .. } => member,
            SlabSlot::Free { .. } => &[],
        }
    }
}

/// Finds slots by member bytes.
#[derive(Clone)]
struct Index {
    table: HashTable<u32>,
    /// By slot, so that a growing table need not read the members again.
    hashes: Vec<u32>,
    state: RandomState,
}

impl Index {
    fn with_room(len: usize) -> Index {
        let (table, hashes) = (HashTable::with_capacity(len), Vec::with_capacity(len));
        Index { table, hashes, state: RandomState::default() }
    }

    fn hash(&self, member: &[u8]) -> u32 {
        let hash = self.state.hash_one(member);
        (hash ^ hash >> 32) as u32
    }

    fn add(&mut self, slot: u32, member: &[u8]) {
        let hash = self.hash(member);
        let at = slot as usize;
        if at >= self.hashes.len() {
            self.hashes.resize(at + 1, 0);
        }
        self.hashes[at] = hash;
        self.table.insert_unique(spread(hash), slot, |&slot| spread(self.hashes[slot as usize]));
    }

    fn remove(&mut self, slot: u32) {
        let hash = spread(self.hashes[slot as usize]);
        if let Ok(entry) = self.table.find_entry(hash, |&held| held == slot) {
            entry.remove();
        }
        if self.table.capacity() > self.table.len().max(UNINDEXED) * 8 {
            self.table.shrink_to(self.table.len() * 2, |&slot| spread(self.hashes[slot as usize]));
        }
    }
}

/// A hash as the table wants it: the place comes from the low bits, the tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A sorted set. Members are ordered by score, those with equal scores by their bytes; -0.0 equals 0.0.
/// Positions ("ranks") count from 0 in that order. Scores are never NaN.
#[derive(Clone)]
pub struct Slab {
    slots: Vec<SlabSlot>,
    free: u32,
    tree: Ranked,
    /// None up to [`UNINDEXED`] members since the set was empty.
    index: Option<Box<Index>>,
    /// Of members and scores.
    pub weight: Weight,
}

impl Default for Slab {
    fn default() -> Slab {
        Slab {
            slots: Vec::new(),
            free: NONE,
            tree: Ranked::default(),
            index: None,
            weight: Weight::default(),
        }
    }
}

impl Slab {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Bytes on the heap: the structure itself, `MEMBER_OVERHEAD` (64) for each member, and the members' own
    /// bytes as the allocator rounds them. The same members always count the same, however they came there.
    ///
    /// The overhead is what a member of a large set costs on average: 24 bytes for the slot and 4 for the
    /// kept hash, both with a vector's slack of up to as much again, 6 to 11 for the index, 12 for the tree's
    /// item at a fill of 65 to 100 %, and 1 for the inner nodes. The space of slots whose members were removed
    /// is left out.
    pub fn bytes(&self) -> usize {
        SLAB_OVERHEAD + self.weight.heap + self.len() * MEMBER_OVERHEAD
    }

    /// Removes all members and gives their space back.
    pub fn clear(&mut self) {
        *self = Slab::default();
    }

    /// The score of `member`, if it is there.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.find(member).map(|(_, score)| score)
    }

    /// Gives `member`, new or not, this score, which must not be NaN; its former score. Giving -0.0 for 0.0
    /// or the reverse changes nothing, as in Redis.
    ///
    /// # Panics
    ///
    /// When there are `u32::MAX` members already.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        self.update(member, |_| Some(score)).flatten()
    }

    /// Shows `decide` the score of `member`, if it is there, and gives it what that returns, as
    /// [`Slab::insert`] does. Returns the former score, or `None` if `decide` did.
    pub fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<Option<f64>> {
        if let Some((id, old)) = self.find(member) {
            let score = decide(Some(old))?;
            debug_assert!(!score.is_nan(), "a score is a number");
            if old != score {
                self.tree.remove(not_behind(&self.slots, id, old, member));
                if let SlabSlot::Held { score: held, .. } = &mut self.slots[id as usize] {
                    *held = score;
                }
                self.tree.insert(Item { score, id }, before(&self.slots, id, score, member));
                self.weight.room = self.weight.room - row::room(member, old) + row::room(member, score);
            }
            return Some(Some(old));
        }
        let score = decide(None)?;
        debug_assert!(!score.is_nan(), "a score is a number");
        let id = self.fill_slot(SlabSlot::Held { member: member.into(), score });
        self.tree.insert(Item { score, id }, before(&self.slots, id, score, member));
        self.weight.heap += allocated(member.len());
        self.weight.room += row::room(member, score);
        if let Some(index) = &mut self.index {
            index.add(id, member);
        } else if self.len() > UNINDEXED {
            let mut index = Box::new(Index::with_room(2 * UNINDEXED));
            for (id, slot) in (0..).zip(&self.slots) {
                index.add(id, slot.member());
            }
            self.index = Some(index);
        }
        Some(None)
    }

    /// Takes `member` out, if it is there, with its score.
    pub fn take(&mut self, member: &[u8]) -> Option<(Box<[u8]>, f64)> {
        let (id, score) = self.find(member)?;
        self.take_slot(id, score)
    }

    /// Takes the member at a position out, with its score.
    pub fn take_at(&mut self, rank: usize) -> Option<(Box<[u8]>, f64)> {
        let Item { id, score } = self.tree.select(rank)?;
        self.take_slot(id, score)
    }

    /// Takes the member in slot `id` out, which is held.
    fn take_slot(&mut self, id: u32, score: f64) -> Option<(Box<[u8]>, f64)> {
        let member = self.slots[id as usize].member();
        self.tree.remove(not_behind(&self.slots, id, score, member));
        if let Some(index) = &mut self.index {
            index.remove(id);
        }
        let slot = mem::replace(&mut self.slots[id as usize], SlabSlot::Free { next: self.free });
        let SlabSlot::Held { member, .. } = slot else { return None };
        self.free = id;
        self.weight.heap -= allocated(member.len());
        self.weight.room -= row::room(&member, score);
        if self.is_empty() {
            self.clear();
        }
        Some((member, score))
    }

    /// The position of `member`, if it is there, in O(log n).
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let (id, score) = self.find(member)?;
        Some(self.tree.count(before(&self.slots, id, score, member)))
    }

    /// Member and score at a position, in O(log n); none from [`Slab::len`] on.
    pub fn select(&self, rank: usize) -> Option<(&[u8], f64)> {
        self.tree.select(rank).map(|item| self.pair(item))
    }

    /// Members and scores from a position on, in order; nothing from [`Slab::len`] on.
    pub fn iter_from(&self, rank: usize) -> Iter<'_> {
        Pairs { slab: self, items: self.tree.iter_from(rank) }
    }

    /// Members and scores from a position down to the first, backwards; nothing from [`Slab::len`] on, so
    /// that the whole set is `rev_iter_from(len - 1)`.
    pub fn rev_iter_from(&self, rank: usize) -> RevIter<'_> {
        Pairs { slab: self, items: self.tree.rev_iter_from(rank) }
    }

    /// How many members have a score below `score`: the position of the first that has not. In O(log n).
    pub fn count_below(&self, score: f64) -> usize {
        self.tree.count(|item| item.score < score)
    }

    /// How many members have a score of at most `score`: the position of the first above it. In O(log n).
    pub fn count_up_to(&self, score: f64) -> usize {
        self.tree.count(|item| item.score <= score)
    }

    /// How many members are below `bound` as bytes, in O(log n). Only meaningful while all scores are equal.
    pub fn lex_count_below(&self, bound: &[u8]) -> usize {
        self.tree.count(|item| self.slots[item.id as usize].member() < bound)
    }

    /// How many members are below or equal to `bound` as bytes, in O(log n). Only meaningful while all scores
    /// are equal.
    pub fn lex_count_up_to(&self, bound: &[u8]) -> usize {
        self.tree.count(|item| self.slots[item.id as usize].member() <= bound)
    }

    /// One step of a walk over all members in no particular order: from `cursor` (0 to begin) up to `count`
    /// (at least one) members with their scores, and the cursor for the next step, 0 at the end. A member
    /// that is there during the whole walk is visited once; one that is inserted or removed meanwhile may be
    /// visited or not, and after being removed and inserted again, twice. A step passes at most ten slots for
    /// each of `count`, so among many removed members it may find none without being the last.
    pub fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&[u8], f64)>) {
        let count = count.max(1);
        let mut found = Vec::new();
        let start = usize::try_from(cursor).unwrap_or(usize::MAX).min(self.slots.len());
        let end = start.saturating_add(count.saturating_mul(10)).min(self.slots.len());
        for (at, slot) in (start..end).zip(&self.slots[start..end]) {
            if found.len() == count {
                return (at as u64, found);
            }
            if let SlabSlot::Held { member, score } = slot {
                found.push((&**member, *score));
            }
        }
        (if end == self.slots.len() { 0 } else { end as u64 }, found)
    }

    fn pair(&self, item: Item) -> (&[u8], f64) {
        (self.slots[item.id as usize].member(), item.score)
    }

    fn find(&self, wanted: &[u8]) -> Option<(u32, f64)> {
        let held = |slot: &SlabSlot| match slot {
            SlabSlot::Held { member, score } if **member == *wanted => Some(*score),
            _ => None,
        };
        let Some(index) = &self.index else {
            return (0..).zip(&self.slots).find_map(|(id, slot)| Some((id, held(slot)?)));
        };
        let mut score = None;
        let id = index.table.find(spread(index.hash(wanted)), |&id| {
            score = held(&self.slots[id as usize]);
            score.is_some()
        })?;
        Some((*id, score?))
    }

    fn fill_slot(&mut self, slot: SlabSlot) -> u32 {
        let at = self.free;
        if at == NONE {
            let at = u32::try_from(self.slots.len()).ok().filter(|&at| at != NONE);
            self.slots.push(slot);
            return at.expect("fewer than 2^32 members");
        }
        if let SlabSlot::Free { next } = mem::replace(&mut self.slots[at as usize], slot) {
            self.free = next;
        }
        at
    }
}

/// Whether an item comes before slot `id`, which has this score and member.
fn before(slots: &[SlabSlot], id: u32, score: f64, member: &[u8]) -> impl Fn(Item) -> bool {
    move |item| {
        item.score < score
            || item.score == score && item.id != id && slots[item.id as usize].member() < member
    }
}

/// Whether an item comes before slot `id`, which has this score and member, or is it.
fn not_behind(slots: &[SlabSlot], id: u32, score: f64, member: &[u8]) -> impl Fn(Item) -> bool {
    move |item| {
        item.score < score
            || item.score == score && (item.id == id || slots[item.id as usize].member() < member)
    }
}

impl PartialEq for Slab {
    fn eq(&self, other: &Slab) -> bool {
        self.len() == other.len() && self.iter_from(0).eq(other.iter_from(0))
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter_from(0).map(|(member, score)| (member.escape_ascii().to_string(), score)))
            .finish()
    }
}

/// Members and scores, from [`Slab::iter_from`] or [`Slab::rev_iter_from`].
#[derive(Clone, Debug)]
pub struct Pairs<'a, I> {
    slab: &'a Slab,
    items: I,
}

/// Members and scores in order.
pub type Iter<'a> = Pairs<'a, ranked::Iter<'a>>;
/// Members and scores backwards.
pub type RevIter<'a> = Pairs<'a, ranked::RevIter<'a>>;

impl<'a, I: ExactSizeIterator<Item = Item>> Iterator for Pairs<'a, I> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<(&'a [u8], f64)> {
        self.items.next().map(|item| self.slab.pair(item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I: ExactSizeIterator<Item = Item>> ExactSizeIterator for Pairs<'_, I> {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The model: members with scores, kept in order.
    #[derive(Default)]
    struct Model(Vec<(Vec<u8>, f64)>);

    impl Model {
        fn rank(&self, member: &[u8]) -> Option<usize> {
            self.0.iter().position(|held| held.0 == member)
        }

        fn count(&self, wanted: impl Fn(&(Vec<u8>, f64)) -> bool) -> usize {
            self.0.iter().filter(|held| wanted(held)).count()
        }

        fn remove(&mut self, member: &[u8]) -> Option<f64> {
            self.rank(member).map(|at| self.0.remove(at).1)
        }

        fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
            let old = self.remove(member);
            // An equal score keeps its sign.
            let score = old.filter(|&old| old == score).unwrap_or(score);
            self.0.push((member.to_vec(), score));
            self.0.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap().then_with(|| a.0.cmp(&b.0)));
            old
        }
    }

    /// Every structure by itself, and that they agree.
    fn check(zset: &Slab) {
        let member = |item: Item| zset.slots[item.id as usize].member();
        zset.tree.check(|a, b| a.score < b.score || a.score == b.score && member(a) < member(b));
        let mut free = HashSet::new();
        let mut at = zset.free;
        while let Some(slot) = zset.slots.get(at as usize) {
            let SlabSlot::Free { next } = slot else { panic!("a member in the list of free slots") };
            assert!(free.insert(at));
            at = *next;
        }
        assert_eq!(at, NONE);
        assert_eq!(zset.slots.len(), zset.len() + free.len());
        for item in zset.tree.iter_from(0) {
            let SlabSlot::Held { score, .. } = zset.slots[item.id as usize] else {
                panic!("a free slot in the tree")
            };
            assert_eq!(score.to_bits(), { item.score }.to_bits());
            assert_eq!(zset.find(member(item)).map(|(id, _)| id), Some(item.id));
        }
        match &zset.index {
            Some(index) => assert_eq!(index.table.len(), zset.len()),
            None => assert!(zset.slots.len() <= UNINDEXED),
        }
        let payload: usize = zset.iter_from(0).map(|(member, _)| allocated(member.len())).sum();
        assert_eq!(zset.bytes(), allocated(size_of::<Slab>()) + payload + 64 * zset.len());
    }

    fn bits((member, score): (&[u8], f64)) -> (Vec<u8>, u64) {
        (member.to_vec(), score.to_bits())
    }

    fn scan_all(zset: &Slab, count: usize) -> Vec<(Vec<u8>, u64)> {
        let (mut all, mut cursor) = (Vec::new(), 0);
        loop {
            let (next, found) = zset.scan(cursor, count);
            assert!(found.len() <= count && (next == 0 || next > cursor));
            all.extend(found.into_iter().map(bits));
            cursor = next;
            if cursor == 0 {
                return all;
            }
        }
    }

    fn same(zset: &Slab, model: &Model) {
        check(zset);
        let held = &model.0;
        let mut wanted: Vec<_> = held.iter().map(|(member, score)| bits((member, *score))).collect();
        assert_eq!((zset.len(), zset.is_empty()), (held.len(), held.is_empty()));
        assert!(zset.iter_from(0).map(bits).eq(wanted.iter().cloned()));
        assert!(zset.rev_iter_from(held.len().wrapping_sub(1)).map(bits).eq(wanted.iter().rev().cloned()));
        for (at, (member, score)) in held.iter().enumerate() {
            assert_eq!(zset.rank(member), Some(at));
            assert_eq!(zset.score(member), Some(*score));
            assert_eq!(zset.select(at), Some((&**member, *score)));
            assert_eq!(zset.iter_from(at).len(), held.len() - at);
            assert_eq!(zset.rev_iter_from(at).count(), at + 1);
        }
        assert_eq!((zset.select(held.len()), zset.iter_from(held.len()).next()), (None, None));
        let mut scanned = scan_all(zset, 3);
        scanned.sort();
        wanted.sort();
        assert_eq!(scanned, wanted);
    }

    fn any_score() -> impl Strategy<Value = f64> {
        let special = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 1e-300, 0.5];
        prop_oneof![prop::sample::select(special), (-4..4i8).prop_map(f64::from)]
    }

    fn any_member(many: bool) -> impl Strategy<Value = Vec<u8>> {
        let kinds = if many { 4 } else { 2u8 };
        prop::collection::vec(prop::sample::select((0..kinds).map(|at| at * 85).collect::<Vec<_>>()), 0..5)
    }

    type Op = (Vec<u8>, Option<f64>);

    /// Inserts and removals; three of four insert.
    fn any_ops(most: usize, many: bool) -> impl Strategy<Value = Vec<Op>> {
        prop::collection::vec((any_member(many), prop::option::weighted(0.75, any_score())), 0..most)
    }

    fn apply(zset: &mut Slab, model: &mut Model, (member, score): &Op) {
        match score {
            Some(score) => assert_eq!(zset.insert(member, *score), model.insert(member, *score)),
            None => assert_eq!(zset.take(member).map(|(_, score)| score), model.remove(member)),
        }
    }

    proptest! {
        #[test]
        fn few_members_equal_the_model(ops in any_ops(60, false)) {
            let (mut zset, mut model) = (Slab::default(), Model::default());
            for op in &ops {
                apply(&mut zset, &mut model, op);
                same(&zset, &model);
            }
        }

        #[test]
        fn many_members_equal_the_model(
            ops in any_ops(900, true),
            bounds in prop::collection::vec((any_score(), any_member(true)), 8),
        ) {
            let (mut zset, mut model) = (Slab::default(), Model::default());
            ops.iter().for_each(|op| apply(&mut zset, &mut model, op));
            same(&zset, &model);
            for (score, member) in &bounds {
                prop_assert_eq!(zset.rank(member), model.rank(member));
                prop_assert_eq!(zset.count_below(*score), model.count(|held| held.1 < *score));
                prop_assert_eq!(zset.count_up_to(*score), model.count(|held| held.1 <= *score));
            }
            let copy = zset.clone();
            prop_assert_eq!(&copy, &zset);
            for (member, _) in copy.iter_from(0) {
                apply(&mut zset, &mut model, &(member.to_vec(), Some(0.0)));
            }
            same(&zset, &model);
            for (_, bound) in &bounds {
                prop_assert_eq!(zset.lex_count_below(bound), model.count(|held| held.0 < *bound));
                prop_assert_eq!(zset.lex_count_up_to(bound), model.count(|held| held.0 <= *bound));
            }
            for (member, _) in copy.iter_from(0) {
                apply(&mut zset, &mut model, &(member.to_vec(), None));
            }
            same(&zset, &model);
            check(&copy);
        }

        #[test]
        fn a_scan_visits_what_stays(
            start in any_ops(300, true), ops in any_ops(100, true), count in 1..9usize,
        ) {
            let (mut zset, mut model) = (Slab::default(), Model::default());
            start.iter().for_each(|op| apply(&mut zset, &mut model, op));
            let mut stays: HashSet<_> = model.0.iter().map(|held| held.0.clone()).collect();
            let (mut cursor, mut ops) = (0, ops.iter());
            loop {
                let (next, found) = zset.scan(cursor, count);
                stays.retain(|member| !found.iter().any(|held| held.0 == member));
                cursor = next;
                if cursor == 0 {
                    break;
                }
                if let Some((member, score)) = ops.next() {
                    apply(&mut zset, &mut model, &(member.clone(), *score));
                    if score.is_none() {
                        stays.remove(member);
                    }
                }
            }
            prop_assert!(stays.is_empty());
        }

        #[test]
        fn changes_undone_in_reverse_leave_every_slot(start in any_ops(200, true), ops in any_ops(60, true)) {
            let (mut zset, mut model) = (Slab::default(), Model::default());
            zset.insert(b"the set never becomes empty", 1.0);
            model.insert(b"the set never becomes empty", 1.0);
            start.iter().for_each(|op| apply(&mut zset, &mut model, op));
            let before = scan_all(&zset, 10);
            let mut undo: Vec<Op> = Vec::new();
            for op in &ops {
                undo.push((op.0.clone(), zset.score(&op.0)));
                apply(&mut zset, &mut model, op);
            }
            undo.iter().rev().for_each(|op| apply(&mut zset, &mut model, op));
            same(&zset, &model);
            prop_assert_eq!(scan_all(&zset, 10), before);
        }
    }

    #[test]
    fn an_empty_set_has_nothing() {
        let mut zset = Slab::default();
        zset.insert(b"a", 1.0);
        zset.clear();
        assert_eq!((zset.take(b"a"), zset.rank(b"a")), (None, None));
        assert_eq!((zset.count_up_to(f64::INFINITY), zset.lex_count_up_to(b"z")), (0, 0));
        assert_eq!((zset.scan(0, 10), zset.scan(u64::MAX, 0)), ((0, vec![]), (0, vec![])));
        assert_eq!((zset.bytes(), zset.slots.capacity()), (allocated(size_of::<Slab>()), 0));
        assert!(zset == Slab::default() && format!("{zset:?}") == "{}");
    }

    #[test]
    fn a_scan_among_removed_members_is_bounded() {
        let mut zset = Slab::default();
        (0..1000u32).for_each(|at| assert_eq!(zset.insert(&at.to_be_bytes(), 0.0), None));
        (0..999u32).for_each(|at| assert_eq!(zset.take(&at.to_be_bytes()).map(|taken| taken.1), Some(0.0)));
        assert_eq!(zset.scan(0, 10), (100, vec![]));
        assert_eq!(zset.scan(950, 10), (0, vec![(&999u32.to_be_bytes()[..], 0.0)]));
        assert!(zset.index.as_ref().unwrap().table.capacity() <= 128);
        check(&zset);
    }
}
