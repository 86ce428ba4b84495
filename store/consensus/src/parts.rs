//! Proposals of any length: a long one becomes several entries, its parts. So no message, no write and no flush is long, and
//! other groups and heartbeats need not wait for one.
//!
//! All parts of a proposal have the same term, in which nothing but changes of the members comes between them. An entry of another
//! term therefore shows that the leader was lost before it could append the rest: such parts are no proposal.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use raft::eraftpb::{Entry, EntryType};

use crate::position::Position;

/// An entry carries so many bytes of a proposal at most. The head of a proposal is shorter.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// What was proposed.
#[derive(Clone, Debug, Default)]
pub struct Data(Vec<Bytes>);

impl Data {
    /// Whether it is that of entries of the consensus itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first bytes: all, or those of the first part.
    pub fn head(&self) -> Bytes {
        self.0.first().cloned().unwrap_or_default()
    }

    /// All bytes. Those of several parts are copied.
    pub fn whole(&self) -> Bytes {
        match &self.0[..] {
            [] => Bytes::new(),
            [only] => only.clone(),
            parts => parts.concat().into(),
        }
    }
}

/// Entries that a majority has on disk: those of one proposal, with changes of the members between them, or one or more of the
/// consensus itself.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The number of the first entry.
    pub first: u64,
    /// Where the last entry stands.
    pub position: Position,
    /// What was proposed.
    pub data: Data,
}

/// Divides a proposal, the bytes of these pieces, into its parts, each with how many follow it. A part that is within a piece is
/// not copied.
pub(crate) fn divide(pieces: Vec<Bytes>, part_bytes: usize) -> VecDeque<(Bytes, u32)> {
    let part_bytes = part_bytes.max(1);
    let mut missing: usize = pieces.iter().map(Bytes::len).sum();
    let (mut parts, mut begun) = (VecDeque::new(), BytesMut::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let wanted = part_bytes.min(missing) - begun.len();
            let mut part = piece.split_to(wanted.min(piece.len()));
            let is_last = part.len() == wanted;
            if !(is_last && begun.is_empty()) {
                begun.extend_from_slice(&part);
                if !is_last {
                    continue;
                }
                part = std::mem::take(&mut begun).freeze();
            }
            missing -= part.len();
            // A proposal is in memory: its parts are fewer than 2^32.
            parts.push_back((part, missing.div_ceil(part_bytes) as u32));
        }
    }
    parts
}

/// The entry of a part.
pub(crate) fn entry_of(data: Bytes, following: u32) -> Entry {
    Entry { data, context: context_of(following), ..Entry::default() }
}

/// What an entry has beside its data: how many parts follow.
pub(crate) fn context_of(following: u32) -> Bytes {
    match following {
        0 => Bytes::new(),
        following => Bytes::copy_from_slice(&following.to_be_bytes()),
    }
}

/// How many parts of the same proposal follow; none if the entry does not say it as it should.
pub(crate) fn following(entry: &Entry) -> Option<u32> {
    match entry.context.is_empty() {
        true => Some(0),
        false => entry.context[..].try_into().ok().map(u32::from_be_bytes),
    }
}

/// Whether the entry has a part of a proposal, if not a whole one.
pub(crate) fn has_data(entry: &Entry) -> bool {
    entry.entry_type == EntryType::EntryNormal && !entry.data.is_empty()
}

/// Whether a log whose last entry with data is `before` may continue with this one.
pub(crate) fn may_follow(before: Option<&Entry>, entry: &Entry) -> bool {
    let Some(following_it) = following(entry) else { return false };
    if !has_data(entry) {
        return following_it == 0;
    }
    let before = before.filter(|before| before.term == entry.term);
    match before.and_then(following) {
        None | Some(0) => true,
        Some(missing) => following_it == missing - 1,
    }
}

/// Puts proposals together again.
#[derive(Default)]
pub(crate) struct Assembler {
    /// The number of the first entry, while parts are missing.
    first: Option<u64>,
    last: Position,
    parts: Vec<Bytes>,
}

impl Assembler {
    /// Whether parts of a proposal are missing.
    pub fn is_open(&self) -> bool {
        self.first.is_some()
    }

    /// Takes the next entry of a log; whether something is whole now is seen by what is added to `all`.
    pub fn take(&mut self, entry: &Entry, all: &mut Vec<Committed>) {
        if entry.term != self.last.term
            && let Some(first) = self.first.take()
        {
            self.parts.clear();
            all.push(Committed { first, position: self.last, data: Data::default() });
        }
        let first = *self.first.get_or_insert(entry.index);
        self.last = Position { index: entry.index, term: entry.term };
        let is_last = match has_data(entry) {
            true => {
                self.parts.push(entry.data.clone());
                following(entry).is_none_or(|following| following == 0)
            }
            false => self.parts.is_empty(),
        };
        if is_last {
            self.first = None;
            let data = Data(std::mem::take(&mut self.parts));
            all.push(Committed { first, position: self.last, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(data: &'static [u8], first: u64, term: u64) -> Vec<Entry> {
        let parts = divide(vec![Bytes::from_static(data)], 3).into_iter();
        parts
            .zip(first..)
            .map(|((data, following), index)| Entry { index, term, ..entry_of(data, following) })
            .collect()
    }

    fn assembled(entries: &[Entry]) -> Vec<(u64, u64, Bytes)> {
        let (mut assembler, mut all) = (Assembler::default(), Vec::new());
        entries.iter().for_each(|entry| assembler.take(entry, &mut all));
        all.iter().map(|it| (it.first, it.position.index, it.data.whole())).collect()
    }

    #[test]
    fn a_divided_proposal_is_whole_again() {
        let whole = |data: &'static [u8]| Bytes::from_static(data);
        for (data, last) in [(&b"a"[..], 1), (b"abc", 1), (b"abcd", 2), (b"abcdefghi", 3)] {
            let entries = parts(data, 1, 1);
            assert_eq!(assembled(&entries), [(1, last, whole(data))]);
            assert_eq!(assembled(&entries[1..]).len(), usize::from(last > 1), "the last ends it");
        }
        let mut entries = parts(b"abcdef", 1, 4);
        entries[1].index = 3;
        let change =
            Entry { index: 2, term: 4, entry_type: EntryType::EntryConfChangeV2, ..Entry::default() };
        entries.insert(1, change);
        entries.extend(parts(b"gh", 4, 4));
        assert_eq!(assembled(&entries), [(1, 3, whole(b"abcdef")), (4, 4, whole(b"gh"))]);
    }

    #[test]
    fn pieces_are_divided_as_if_they_were_one() {
        let all = Bytes::from_static(b"abcdefghijklm");
        for first in 0..=all.len() {
            for second in first..=all.len() {
                let pieces = vec![all.slice(..first), all.slice(first..second), all.slice(second..)];
                let parts = divide(pieces, 4);
                assert_eq!(parts, divide(vec![all.clone()], 4), "{first}, {second}");
            }
        }
        let parts = divide(vec![all.slice(..2), all.slice(2..)], 4);
        let is_shared = |part: &Bytes| all.as_ptr_range().contains(&part.as_ptr());
        let shared: Vec<bool> = parts.iter().map(|(part, _)| is_shared(part)).collect();
        assert_eq!(shared, [false, true, true, true]);
        assert_eq!(divide(Vec::new(), 4).len(), 0);
    }

    #[test]
    fn parts_without_the_rest_are_no_proposal() {
        let mut entries = parts(b"abcdefg", 1, 1);
        entries.pop();
        assert_eq!(assembled(&entries), []);
        entries.push(Entry { index: 3, term: 2, ..Entry::default() });
        entries.extend(parts(b"xyz", 4, 2));
        let empty = Bytes::new();
        let expected = [(1, 2, empty.clone()), (3, 3, empty), (4, 4, Bytes::from_static(b"xyz"))];
        assert_eq!(assembled(&entries), expected);
    }

    #[test]
    fn a_log_has_no_part_in_the_wrong_place() {
        let [first, second, third] = &parts(b"abcdefg", 1, 1)[..] else { panic!("three parts") };
        assert!(may_follow(None, first) && may_follow(Some(first), second) && may_follow(Some(third), first));
        assert!(!may_follow(Some(first), third), "one is missing");
        assert!(!may_follow(Some(first), first), "one comes twice");
        let later = Entry { term: 2, ..first.clone() };
        assert!(may_follow(Some(second), &later), "the leader was lost");
        let wrong = Entry { context: Bytes::from_static(b"abc"), ..first.clone() };
        assert!(!may_follow(None, &wrong), "what it says cannot be read");
        let change = Entry { entry_type: EntryType::EntryConfChangeV2, ..second.clone() };
        assert!(!may_follow(Some(first), &change), "a change of the members has no parts");
    }
}
