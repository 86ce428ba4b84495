//! The log of a replica in memory, from the oldest entry that may still be needed, and what of it has to be on disk.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;
use prost::Message as _;
use proto::disk::v1 as disk;
use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::error::ConsensusError;
use crate::members::Members;
use crate::parts::{self, Assembler, Committed};
use crate::position::Position;

/// Which record of a log on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogKey {
    /// What the replica has promised, and where its log begins.
    State,
    /// The entry with this number.
    Entry(u64),
}

/// A change of a log on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogChange {
    /// The record has this content from now on.
    Put(LogKey, Vec<u8>),
    /// The record, which need not be there, is gone.
    Delete(LogKey),
}

/// What the disk holds of a log.
#[derive(Clone, Default, Debug)]
pub struct Saved {
    /// The record [`LogKey::State`]; none of a replica that has never started.
    pub state: Option<Vec<u8>>,
    /// The entries by number, ascending.
    pub entries: Vec<(u64, Vec<u8>)>,
}

/// A log, shared by the replica and those who read what is committed.
#[derive(Clone, Default)]
pub struct Log(Arc<RwLock<Inner>>);

#[derive(Default)]
struct Inner {
    promised: HardState,
    /// The entry before the first one that is here.
    before: Position,
    /// The members as of that entry, and as of each later one that changed them.
    members: Members,
    changes: VecDeque<(u64, Members)>,
    entries: VecDeque<Entry>,
    /// Of the data of all entries.
    bytes: usize,
    /// Up to here entries are committed, as far as readers may know.
    committed: u64,
}

impl Log {
    /// The log of a new replica. If it founds a group with these voters, the log begins behind an entry that no replica has: one
    /// that joins later then needs a copy, which has the list of members. Without voters it is empty, and waits for a copy.
    pub(crate) fn new(voters: &[u64]) -> Log {
        let mut inner = Inner::default();
        if !voters.is_empty() {
            inner.members.voters = voters.to_vec();
            inner.before = Position { index: 1, term: 1 };
            inner.promised = HardState { term: 1, commit: 1, ..HardState::default() };
            inner.committed = 1;
        }
        Log(Arc::new(RwLock::new(inner)))
    }

    /// The log that the disk holds. An error: a record cannot be read, or entries are missing.
    pub(crate) fn load(saved: Saved) -> Result<Log, ConsensusError> {
        let damaged = |what: &str| ConsensusError::Damaged(what.to_owned());
        let state = saved.state.ok_or_else(|| damaged("its state is missing"))?;
        let unreadable = |what: &str| ConsensusError::Damaged(format!("{what} cannot be read"));
        let state = disk::ReplicaState::decode(&*state).map_err(|_| unreadable("its state"))?;
        let members =
            ConfState::parse_from_bytes(&state.members).map_err(|_| unreadable("its list of members"))?;
        let members = Members::of(&members);
        let promised =
            HardState { term: state.term, vote: state.vote, commit: state.commit, ..HardState::default() };
        let before = Position { index: state.before_index, term: state.before_term };
        let mut inner = Inner { promised, members, before, ..Inner::default() };
        for (index, record) in saved.entries {
            // A record from before the log was shortened may be left.
            if index <= before.index {
                continue;
            }
            if index != inner.last() + 1 {
                return Err(ConsensusError::Damaged(format!("entry {} is missing", inner.last() + 1)));
            }
            let entry =
                disk::LogEntry::decode(&*record).map_err(|_| unreadable(&format!("entry {index}")))?;
            let kind = match entry.kind() {
                disk::log_entry::Kind::Normal => EntryType::EntryNormal,
                disk::log_entry::Kind::Members => EntryType::EntryConfChangeV2,
            };
            inner.push(Entry {
                entry_type: kind,
                term: entry.term,
                index,
                context: parts::context_of(entry.following),
                data: entry.data,
                ..Entry::default()
            })?;
        }
        if inner.promised.commit > inner.last() {
            let what =
                format!("entry {} was committed, but {} is the last", inner.promised.commit, inner.last());
            return Err(ConsensusError::Damaged(what));
        }
        Ok(Log(Arc::new(RwLock::new(inner))))
    }

    /// Makes this replica the only member of its group from the beginning of the log on that the disk holds, or of an empty one;
    /// returns what that changes on disk. All that the log has is committed then. Done once more it changes nothing. The other
    /// replicas must never exchange a message with this one again: their majority may go on as the group that it was.
    pub fn recover(saved: Saved, id: u64) -> Result<Vec<LogChange>, ConsensusError> {
        let is_new = saved.state.is_none() && saved.entries.is_empty();
        let log = if is_new { Log::new(&[id]) } else { Log::load(saved)? };
        let mut inner = log.0.write();
        inner.members = Members::of_voters(&[id]);
        // Entries that would change the members, committed or not, become empty ones.
        let is_change = |entry: &&Entry| entry.entry_type != EntryType::EntryNormal;
        let emptied = |entry: &Entry| {
            let empty = Entry { index: entry.index, term: entry.term, ..Entry::default() };
            LogChange::Put(LogKey::Entry(entry.index), record_of(&empty))
        };
        let mut changes: Vec<LogChange> = inner.entries.iter().filter(is_change).map(emptied).collect();
        changes.push(inner.state());
        Ok(changes)
    }

    /// Takes what a round brings; returns what of it has to be on disk. An error: the leader sent parts of proposals that do not
    /// follow each other.
    pub(crate) fn store(
        &self,
        promised: Option<&HardState>,
        entries: &[Entry],
    ) -> Result<Vec<LogChange>, ConsensusError> {
        let mut inner = self.0.write();
        let mut changes = Vec::new();
        if let Some(first) = entries.first() {
            let last = inner.last();
            inner.cut(first.index);
            for entry in entries {
                inner.push(entry.clone())?;
                changes.push(LogChange::Put(LogKey::Entry(entry.index), record_of(entry)));
            }
            changes.extend((inner.last() + 1..=last).map(|index| LogChange::Delete(LogKey::Entry(index))));
        }
        if let Some(promised) = promised {
            inner.promised = promised.clone();
        }
        if promised.is_some() {
            changes.push(inner.state());
        }
        Ok(changes)
    }

    /// Drops all entries: the node has a copy of the data up to the entry `before`, and the log continues behind that entry.
    /// Returns what changes on disk.
    pub(crate) fn restore(&self, before: Position, members: Members) -> Vec<LogChange> {
        let mut inner = self.0.write();
        let gone = std::mem::take(&mut inner.entries);
        let mut changes: Vec<_> =
            gone.iter().map(|entry| LogChange::Delete(LogKey::Entry(entry.index))).collect();
        (inner.bytes, inner.before, inner.members) = (0, before, members);
        inner.changes.clear();
        inner.promised.commit = inner.promised.commit.max(before.index);
        inner.committed = inner.committed.max(before.index);
        changes.push(inner.state());
        changes
    }

    /// What deletes the log on disk.
    pub fn deleted(&self) -> Vec<LogChange> {
        let inner = self.0.read();
        let entries = (inner.before.index + 1..=inner.last()).map(LogKey::Entry);
        entries.chain([LogKey::State]).map(LogChange::Delete).collect()
    }

    /// The members are these from this entry on.
    pub(crate) fn change_members(&self, index: u64, members: &ConfState) {
        self.0.write().changes.push_back((index, Members::of(members)));
    }

    /// The state as it is, for the disk.
    pub(crate) fn state(&self) -> LogChange {
        self.0.read().state()
    }

    /// Lets readers see what is committed up to this entry.
    pub(crate) fn publish(&self, committed: u64) {
        let mut inner = self.0.write();
        inner.committed = inner.committed.max(committed);
    }

    /// Drops the entries up to this one that are committed, but none of a proposal that goes on behind it; returns what that changes on
    /// disk.
    pub(crate) fn shorten(&self, to: u64) -> Vec<LogChange> {
        let mut inner = self.0.write();
        let (mut assembler, mut whole) = (Assembler::default(), Vec::new());
        let committed = to.min(inner.committed);
        for entry in inner.entries.iter().take_while(|entry| entry.index <= committed) {
            assembler.take(entry, &mut whole);
        }
        let to = whole.last().map_or(0, |last| last.position.index);
        let mut changes = Vec::new();
        while let Some(entry) = inner.entries.pop_front_if(|entry| entry.index <= to) {
            inner.bytes -= entry.data.len();
            inner.before = Position { index: entry.index, term: entry.term };
            while let Some((_, members)) = inner.changes.pop_front_if(|(index, _)| *index <= entry.index) {
                inner.members = members;
            }
            changes.push(LogChange::Delete(LogKey::Entry(entry.index)));
        }
        if !changes.is_empty() {
            changes.push(inner.state());
        }
        changes
    }

    /// What is committed from the entry `from` on, in order, with at least one proposal if there is any and about `most_bytes` at
    /// most. `from` is the first entry of the log, or the one behind what was given before. `None`: the log begins later.
    pub fn committed(&self, from: u64, most_bytes: usize) -> Option<Vec<Committed>> {
        let inner = self.0.read();
        let skipped = usize::try_from(from.checked_sub(inner.before.index + 1)?).unwrap_or(usize::MAX);
        let (mut assembler, mut all, mut bytes) = (Assembler::default(), Vec::new(), 0);
        for entry in inner.entries.iter().skip(skipped).take_while(|entry| entry.index <= inner.committed) {
            bytes += entry.data.len() + 1;
            if bytes > most_bytes && !all.is_empty() && !assembler.is_open() {
                break;
            }
            assembler.take(entry, &mut all);
        }
        Some(all)
    }

    /// Up to which entry all are committed.
    pub fn committed_index(&self) -> u64 {
        self.0.read().committed
    }

    /// The entry before the first one that is here.
    pub fn before(&self) -> Position {
        self.0.read().before
    }

    /// The last entry.
    pub fn last_index(&self) -> u64 {
        self.0.read().last()
    }

    /// Where the last entry stands; of a log that has had none: before the first.
    pub fn last(&self) -> Position {
        let inner = self.0.read();
        let last = inner.entries.back().map(|entry| Position { index: entry.index, term: entry.term });
        last.unwrap_or(inner.before)
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.0.read().bytes
    }

    /// Who belongs to the group, as far as entries that change that are committed here.
    pub fn members(&self) -> Members {
        let inner = self.0.read();
        inner.changes.back().map_or(&inner.members, |(_, members)| members).clone()
    }

    /// The same as of this entry; `None`: the log begins later.
    pub fn members_at(&self, index: u64) -> Option<Members> {
        let inner = self.0.read();
        if index < inner.before.index {
            return None;
        }
        let change = inner.changes.iter().rev().find(|(changed, _)| *changed <= index);
        Some(change.map_or(&inner.members, |(_, members)| members).clone())
    }
}

impl Inner {
    fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    /// Appends an entry, which must continue the proposal before if that is not whole.
    fn push(&mut self, entry: Entry) -> Result<(), ConsensusError> {
        let before = self.entries.iter().rev().find(|before| parts::has_data(before));
        if !parts::may_follow(before, &entry) {
            let what = format!("entry {} does not continue the proposal before", entry.index);
            return Err(ConsensusError::Damaged(what));
        }
        self.bytes += entry.data.len();
        self.entries.push_back(entry);
        Ok(())
    }

    /// Drops the entries from this one on.
    fn cut(&mut self, from: u64) {
        while let Some(entry) = self.entries.pop_back_if(|entry| entry.index >= from) {
            self.bytes -= entry.data.len();
        }
    }

    fn state(&self) -> LogChange {
        // The list of members is short, and writing it into memory cannot fail.
        let members = self.members.state().write_to_bytes().unwrap_or_default();
        let state = disk::ReplicaState {
            term: self.promised.term,
            vote: self.promised.vote,
            commit: self.promised.commit,
            members: members.into(),
            before_index: self.before.index,
            before_term: self.before.term,
        };
        LogChange::Put(LogKey::State, state.encode_to_vec())
    }

    /// Where the entry stands in memory; an error if it is not here.
    fn place(&self, index: u64) -> raft::Result<usize> {
        match index.checked_sub(self.before.index + 1) {
            None => Err(raft::Error::Store(StorageError::Compacted)),
            Some(place) if place < self.entries.len() as u64 => Ok(place as usize),
            Some(_) => Err(raft::Error::Store(StorageError::Unavailable)),
        }
    }
}

/// What the Raft implementation knows of a copy of the data.
pub(crate) fn snapshot_of(position: Position, members: &Members) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (position.index, position.term);
    metadata.set_conf_state(members.state());
    snapshot
}

/// An entry as it is on disk.
fn record_of(entry: &Entry) -> Vec<u8> {
    let kind = match entry.entry_type {
        EntryType::EntryNormal => disk::log_entry::Kind::Normal,
        _ => disk::log_entry::Kind::Members,
    };
    // Without a number it would not be in the log.
    let following = parts::following(entry).unwrap_or_default();
    disk::LogEntry { term: entry.term, kind: kind.into(), data: entry.data.clone(), following }
        .encode_to_vec()
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let inner = self.0.read();
        Ok(RaftState::new(inner.promised.clone(), inner.members.state()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let inner = self.0.read();
        let first = inner.place(low)?;
        let count = usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        let mut entries: Vec<Entry> = inner.entries.iter().skip(first).take(count).cloned().collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let inner = self.0.read();
        if index == inner.before.index {
            return Ok(inner.before.term);
        }
        inner.place(index).map(|place| inner.entries[place].term)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.0.read().before.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.0.read().last())
    }

    /// Only says that a copy of the data is needed: the replica gets the copy on another way, of a later entry.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        let inner = self.0.read();
        Ok(snapshot_of(inner.before, &inner.members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: vec![index as u8; 3].into(), ..Entry::default() }
    }

    fn apply(disk: &mut BTreeMap<LogKey, Vec<u8>>, changes: Vec<LogChange>) {
        for change in changes {
            match change {
                LogChange::Put(key, record) => drop(disk.insert(key, record)),
                LogChange::Delete(key) => drop(disk.remove(&key)),
            }
        }
    }

    fn saved(disk: &BTreeMap<LogKey, Vec<u8>>) -> Saved {
        let entries = disk.iter().filter_map(|(key, record)| match key {
            LogKey::Entry(index) => Some((*index, record.clone())),
            LogKey::State => None,
        });
        Saved { state: disk.get(&LogKey::State).cloned(), entries: entries.collect() }
    }

    #[test]
    fn what_is_on_disk_is_what_was_stored() {
        let (log, mut disk) = (Log::new(&[1, 2, 3]), BTreeMap::new());
        let promised = HardState { term: 2, vote: 3, commit: 3, ..HardState::default() };
        apply(
            &mut disk,
            log.store(None, &[entry(2, 1), entry(3, 1), entry(4, 1), entry(5, 1)]).expect("they follow"),
        );
        // Another leader has other entries from the fourth on.
        apply(&mut disk, log.store(Some(&promised), &[entry(4, 2)]).expect("they follow"));
        log.publish(3);
        apply(&mut disk, log.shorten(2));
        let read = Log::load(saved(&disk)).expect("it is whole");
        assert_eq!((read.before(), read.last_index()), (Position { index: 2, term: 1 }, 4));
        assert_eq!((read.term(2).ok(), read.term(4).ok(), read.bytes()), (Some(1), Some(2), 6));
        let state = read.initial_state().expect("it is there");
        assert_eq!((state.hard_state, &*state.conf_state.voters), (promised, &[1, 2, 3][..]));
        assert_eq!(disk.len(), 3);
    }

    #[test]
    fn readers_see_what_is_committed() {
        let log = Log::new(&[1]);
        log.store(None, &[entry(2, 1), entry(3, 1), entry(4, 1)]).expect("they follow");
        assert!(log.committed(2, 100).is_some_and(|all| all.is_empty()));
        log.publish(3);
        let seen = |from, most| {
            log.committed(from, most).map(|all| all.iter().map(|at| at.position.index).collect())
        };
        assert_eq!(seen(2, 100), Some(vec![2, 3]));
        assert_eq!(seen(2, 1), Some(vec![2]), "one is always given");
        assert_eq!(seen(4, 100), Some(vec![]));
        assert_eq!(log.shorten(4).len(), 3, "what is not committed stays");
        assert_eq!((seen(3, 100), seen(4, 100)), (None, Some(vec![])));
    }

    #[test]
    fn a_proposal_of_several_entries_is_read_and_dropped_as_one() {
        let (log, mut disk) = (Log::new(&[1]), BTreeMap::new());
        let part = |index, following| Entry { context: parts::context_of(following), ..entry(index, 1) };
        let entries = [part(2, 0), part(3, 2), part(4, 1), part(5, 0), part(6, 1)];
        let promised = HardState { term: 1, commit: 5, ..HardState::default() };
        apply(&mut disk, log.store(Some(&promised), &entries).expect("they follow"));
        log.publish(4);
        let seen = |log: &Log, from, most| {
            let all = log.committed(from, most).unwrap_or_default();
            all.iter().map(|it| (it.first, it.position.index, it.data.whole().len())).collect::<Vec<_>>()
        };
        assert_eq!(seen(&log, 2, 100), [(2, 2, 3)], "the last part is not committed");
        log.publish(5);
        assert_eq!(seen(&log, 2, 100), [(2, 2, 3), (3, 5, 9)]);
        assert_eq!(seen(&log, 3, 1), [(3, 5, 9)], "one is always given");
        apply(&mut disk, log.shorten(4));
        assert_eq!((log.before().index, seen(&log, 3, 100)), (2, vec![(3, 5, 9)]), "a part of it stays");
        let read = Log::load(saved(&disk)).expect("it is whole");
        read.publish(6);
        assert_eq!(seen(&read, 3, 100), [(3, 5, 9)]);
        assert!(log.store(None, &[entry(7, 1), part(8, 3), part(9, 1)]).is_err());
        assert_eq!((log.shorten(5).len(), log.before().index), (4, 5));
    }

    #[test]
    fn the_members_of_each_entry_are_known() {
        let (log, mut disk) = (Log::new(&[1, 2, 3]), BTreeMap::new());
        let promised = HardState { term: 1, commit: 4, ..HardState::default() };
        apply(
            &mut disk,
            log.store(Some(&promised), &[entry(2, 1), entry(3, 1), entry(4, 1)]).expect("they follow"),
        );
        let founders = Members::of_voters(&[1, 2, 3]);
        let joint = Members { outgoing: vec![1, 2, 3], learners: vec![5], ..Members::of_voters(&[1, 2, 4]) };
        log.change_members(3, &joint.state());
        log.publish(4);
        assert_eq!((log.members_at(0), log.members_at(2)), (None, Some(founders)));
        assert_eq!(log.members_at(3), Some(joint.clone()));
        apply(&mut disk, log.shorten(2));
        let read = Log::load(saved(&disk)).expect("it is whole");
        assert!(!read.members().contain(4), "the entry is applied again");
        apply(&mut disk, log.shorten(3));
        assert_eq!(Log::load(saved(&disk)).expect("it is whole").members(), joint);
        let copied = Position { index: 9, term: 2 };
        apply(&mut disk, log.restore(copied, Members::of_voters(&[2, 4])));
        let read = Log::load(saved(&disk)).expect("it is whole");
        assert_eq!((read.before(), read.last_index(), disk.len()), (copied, 9, 1));
        assert_eq!(read.members().voters, [2, 4]);
        apply(&mut disk, read.store(None, &[entry(10, 2)]).expect("they follow"));
        apply(&mut disk, read.deleted());
        assert_eq!(disk.len(), 0);
    }

    #[test]
    fn one_replica_goes_on_alone() {
        let (log, mut disk) = (Log::new(&[1, 2, 3]), BTreeMap::new());
        let change = Entry { entry_type: EntryType::EntryConfChangeV2, ..entry(3, 1) };
        let promised = HardState { term: 4, vote: 3, commit: 3, ..HardState::default() };
        apply(
            &mut disk,
            log.store(Some(&promised), &[entry(2, 1), change, entry(4, 4)]).expect("they follow"),
        );
        for _ in 0..2 {
            let changes = Log::recover(saved(&disk), 2).expect("it is whole");
            apply(&mut disk, changes);
            let read = Log::load(saved(&disk)).expect("it is whole");
            let entries = read.entries(2, 5, None, GetEntriesContext::empty(false)).expect("they are there");
            let kinds: Vec<_> = entries.iter().map(|entry| (entry.term, entry.entry_type)).collect();
            let normal = EntryType::EntryNormal;
            assert_eq!(kinds, [(1, normal), (1, normal), (4, normal)]);
            assert!(entries[1].data.is_empty() && !entries[0].data.is_empty() && !entries[2].data.is_empty());
            assert_eq!((read.members().voters, read.last()), (vec![2], Position { index: 4, term: 4 }));
            assert_eq!(read.initial_state().expect("it is there").hard_state, promised);
        }
        let mut disk = BTreeMap::new();
        apply(&mut disk, Log::recover(Saved::default(), 5).expect("it is empty"));
        let read = Log::load(saved(&disk)).expect("it is whole");
        assert_eq!((read.members().voters, read.last()), (vec![5], Position { index: 1, term: 1 }));
    }

    #[test]
    fn a_damaged_log_is_refused() {
        let (log, mut disk) = (Log::new(&[1]), BTreeMap::new());
        let promised = HardState { term: 1, vote: 1, commit: 3, ..HardState::default() };
        apply(&mut disk, log.store(Some(&promised), &[entry(2, 1), entry(3, 1)]).expect("they follow"));
        let error = |change: fn(&mut Saved)| {
            let mut saved = saved(&disk);
            change(&mut saved);
            Log::load(saved).err().expect("it is refused").to_string()
        };
        let text = "the replicated log is damaged:";
        assert_eq!(error(|saved| saved.state = None), format!("{text} its state is missing"));
        assert_eq!(error(|saved| saved.state = Some(vec![7])), format!("{text} its state cannot be read"));
        assert_eq!(error(|saved| drop(saved.entries.remove(0))), format!("{text} entry 2 is missing"));
        assert_eq!(error(|saved| saved.entries[1].1 = vec![7]), format!("{text} entry 3 cannot be read"));
        let lost = format!("{text} entry 3 was committed, but 2 is the last");
        assert_eq!(error(|saved| drop(saved.entries.pop())), lost);
    }
}
