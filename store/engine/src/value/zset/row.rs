//! Small sorted sets: members in their order, each behind its score. Everything is found by looking at one after another.

use smallvec::SmallVec;

use super::score;
use crate::value::packed::{self, Packed};

/// A small sorted set.
#[derive(Clone, Default)]
pub struct Row(Packed);

/// What is known of a member that was found.
#[derive(Clone, Copy)]
pub struct MemberAt {
    /// Its position.
    pub rank: usize,
    /// Its score.
    pub score: f64,
    at: usize,
    next: usize,
}

fn scored(element: &[u8]) -> (&[u8], f64) {
    let (score, member) = score::split(element);
    (member, score)
}

impl Row {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.0.len()
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
    pub fn find(&self, wanted: &[u8]) -> Option<MemberAt> {
        let mut at = self.0.start();
        for rank in 0..self.len() {
            let (element, next) = self.0.read(at);
            // Most end in another way: that is quicker to see than where they begin.
            if element.ends_with(wanted) {
                let (score, member) = score::split(element);
                if member.len() == wanted.len() {
                    return Some(MemberAt { rank, score, at, next });
                }
            }
            at = next;
        }
        None
    }

    /// How many pairs come before the first for which `before` does not hold, and its offset.
    fn border(&self, before: impl Fn(f64, &[u8]) -> bool) -> (usize, usize) {
        let mut at = self.0.start();
        for rank in 0..self.len() {
            let (element, next) = self.0.read(at);
            let (score, member) = score::split(element);
            if !before(score, member) {
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
        let (bytes, len) = score::bytes(score);
        let mut element = SmallVec::<[u8; 64]>::from_slice(&bytes[..len]);
        element.extend_from_slice(member);
        self.0.splice(at..at, 0, &[&element]);
    }

    /// Takes out what was found.
    pub fn remove(&mut self, found: MemberAt) {
        self.0.splice(found.at..found.next, 1, &[]);
    }

    /// The member at a position, with its score.
    pub fn at(&self, rank: usize) -> Option<(&[u8], MemberAt)> {
        if rank >= self.len() {
            return None;
        }
        let at = self.0.offset(rank);
        let (element, next) = self.0.read(at);
        let (score, member) = score::split(element);
        Some((member, MemberAt { rank, score, at, next }))
    }

    /// Members and scores from a position on.
    pub fn iter_from(&self, rank: usize) -> Scored<'_> {
        self.0.iter_from(rank.min(self.len())).map(scored)
    }

    /// Members and scores up to a position and with it.
    pub fn iter_up_to(&self, rank: usize) -> Scored<'_> {
        self.0.iter(0..if rank < self.len() { rank + 1 } else { 0 }).map(scored)
    }
}

/// Members with their scores.
pub type Scored<'a> = std::iter::Map<packed::Iter<'a>, fn(&'a [u8]) -> (&'a [u8], f64)>;

/// Bytes that a member and its score take at most.
pub const fn most_room(member: &[u8]) -> usize {
    packed::room(member.len() + score::MOST_ROOM)
}

/// Bytes that a member and its score take.
pub fn room(member: &[u8], score: f64) -> usize {
    packed::room(member.len() + score::len(score))
}
