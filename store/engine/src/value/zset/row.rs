//! Small sorted sets: scores and members in turn, in their order. Everything is found by looking at one after another.

use super::score;
use crate::value::packed::{Packed, Pairs, room};

/// A small sorted set.
#[derive(Clone, Default)]
pub struct Row(Packed);

/// What is known of a member that was found.
#[derive(Clone, Copy)]
pub struct Found {
    /// Its position.
    pub rank: usize,
    /// Its score.
    pub score: f64,
    at: usize,
    next: usize,
}

fn scored<'a>((score, member): (&'a [u8], &'a [u8])) -> (&'a [u8], f64) {
    (member, score::of(score))
}

impl Row {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Bytes that members and scores take.
    pub fn room(&self) -> usize {
        self.0.room()
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Looks for `member`.
    pub fn find(&self, wanted: &[u8]) -> Option<Found> {
        let mut at = self.0.start();
        for rank in 0..self.len() {
            let (held, middle) = self.0.read(at);
            let (member, next) = self.0.read(middle);
            if member == wanted {
                return Some(Found { rank, score: score::of(held), at, next });
            }
            at = next;
        }
        None
    }

    /// How many pairs come before the first for which `before` does not hold, and its offset.
    fn border(&self, before: impl Fn(f64, &[u8]) -> bool) -> (usize, usize) {
        let mut at = self.0.start();
        for rank in 0..self.len() {
            let (held, middle) = self.0.read(at);
            let (member, next) = self.0.read(middle);
            if !before(score::of(held), member) {
                return (rank, at);
            }
            at = next;
        }
        (self.len(), at)
    }

    /// How many members come before the first for which `before` does not hold.
    pub fn count(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.border(before).0
    }

    /// Adds a member that is not there.
    pub fn insert(&mut self, member: &[u8], score: f64) {
        let (_, at) = self.border(|held, other| held < score || held == score && other < member);
        self.0.splice(at..at, 0, &[&score::bytes(score)[..score::len(score)], member]);
    }

    /// Takes out what was found.
    pub fn remove(&mut self, found: Found) {
        self.0.splice(found.at..found.next, 2, &[]);
    }

    /// The member at a position, with its score.
    pub fn at(&self, rank: usize) -> Option<(&[u8], Found)> {
        if rank >= self.len() {
            return None;
        }
        let at = self.0.offset(2 * rank);
        let (held, middle) = self.0.read(at);
        let (member, next) = self.0.read(middle);
        Some((member, Found { rank, score: score::of(held), at, next }))
    }

    /// Members and scores from a position on.
    pub fn iter_from(&self, rank: usize) -> Scored<'_> {
        self.0.pairs(rank..self.len()).map(scored)
    }

    /// Members and scores up to a position and with it.
    pub fn iter_up_to(&self, rank: usize) -> Scored<'_> {
        self.0.pairs(0..if rank < self.len() { rank + 1 } else { 0 }).map(scored)
    }
}

/// Members with their scores.
pub type Scored<'a> = std::iter::Map<Pairs<'a>, fn((&'a [u8], &'a [u8])) -> (&'a [u8], f64)>;

/// Bytes that a member and its score take at most.
pub const fn most_room(member: &[u8]) -> usize {
    room(size_of::<f64>()) + room(member.len())
}
