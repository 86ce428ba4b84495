//! The log of a replica in memory, from the oldest entry that may still be needed, and what of it has to be on disk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message as _;
use proto::disk::v1 as disk;
use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::error::ConsensusError;

/// Where an entry stands.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Position {
    /// Its number; the first is 1.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
}

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

/// An entry that a majority has on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Where it stands.
    pub position: Position,
    /// What was proposed; empty in entries of the consensus itself.
    pub data: Bytes,
}

/// A log, shared by the replica and those who read what is committed.
#[derive(Clone, Default)]
pub struct Log(Arc<RwLock<Inner>>);

#[derive(Default)]
struct Inner {
    promised: HardState,
    members: ConfState,
    /// The entry before the first one that is here.
    before: Position,
    entries: VecDeque<Entry>,
    /// Of the data of all entries.
    bytes: usize,
    /// Up to here entries are committed, as far as readers may know.
    committed: u64,
}

impl Log {
    /// The log of a new replica of a group with these members.
    pub(crate) fn new(voters: &[u64]) -> Log {
        let members = ConfState { voters: voters.to_vec(), ..ConfState::default() };
        Log(Arc::new(RwLock::new(Inner { members, ..Inner::default() })))
    }

    /// The log that the disk holds. An error: a record cannot be read, or entries are missing.
    pub(crate) fn load(saved: Saved) -> Result<Log, ConsensusError> {
        let damaged = |what: &str| ConsensusError::Damaged(what.to_owned());
        let state = saved.state.ok_or_else(|| damaged("its state is missing"))?;
        let unreadable = |what: &str| ConsensusError::Damaged(format!("{what} cannot be read"));
        let state = disk::ReplicaState::decode(&*state).map_err(|_| unreadable("its state"))?;
        let members =
            ConfState::parse_from_bytes(&state.members).map_err(|_| unreadable("its list of members"))?;
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
            inner.bytes += entry.data.len();
            inner.entries.push_back(Entry {
                entry_type: kind,
                term: entry.term,
                index,
                data: entry.data,
                ..Entry::default()
            });
        }
        if inner.promised.commit > inner.last() {
            let what =
                format!("entry {} was committed, but {} is the last", inner.promised.commit, inner.last());
            return Err(ConsensusError::Damaged(what));
        }
        Ok(Log(Arc::new(RwLock::new(inner))))
    }

    /// Takes what a round brings; returns what of it has to be on disk.
    pub(crate) fn store(&self, promised: Option<&HardState>, entries: &[Entry]) -> Vec<LogChange> {
        let mut inner = self.0.write();
        let mut changes = Vec::new();
        if let Some(first) = entries.first() {
            let last = inner.last();
            inner.cut(first.index);
            for entry in entries {
                changes.push(LogChange::Put(LogKey::Entry(entry.index), record_of(entry)));
                inner.bytes += entry.data.len();
                inner.entries.push_back(entry.clone());
            }
            changes.extend((inner.last() + 1..=last).map(|index| LogChange::Delete(LogKey::Entry(index))));
        }
        if let Some(promised) = promised {
            inner.promised = promised.clone();
        }
        if promised.is_some() {
            changes.push(inner.state());
        }
        changes
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

    /// Drops the entries up to this one, which must be committed; returns what that changes on disk.
    pub(crate) fn shorten(&self, to: u64) -> Vec<LogChange> {
        let mut inner = self.0.write();
        let to = to.min(inner.committed);
        let mut changes = Vec::new();
        while let Some(entry) = inner.entries.pop_front_if(|entry| entry.index <= to) {
            inner.bytes -= entry.data.len();
            inner.before = Position { index: entry.index, term: entry.term };
            changes.push(LogChange::Delete(LogKey::Entry(entry.index)));
        }
        if !changes.is_empty() {
            changes.push(inner.state());
        }
        changes
    }

    /// Committed entries from number `from` on, in order, with at least one if there is any and about `most_bytes` at most.
    /// `None`: the log begins later.
    pub fn committed(&self, from: u64, most_bytes: usize) -> Option<Vec<Committed>> {
        let inner = self.0.read();
        let skipped = usize::try_from(from.checked_sub(inner.before.index + 1)?).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let entries = inner.entries.iter().skip(skipped).take_while(|entry| entry.index <= inner.committed);
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += entry.data.len() + 1;
            first || bytes <= most_bytes
        };
        let entry = |entry: &Entry| Committed {
            position: Position { index: entry.index, term: entry.term },
            data: match entry.entry_type {
                EntryType::EntryNormal => entry.data.clone(),
                _ => Bytes::new(),
            },
        };
        Some(entries.take_while(fits).map(entry).collect())
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

    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.0.read().bytes
    }

    /// Whether this replica is a member of its group.
    pub(crate) fn is_member(&self, id: u64) -> bool {
        let inner = self.0.read();
        inner.members.voters.contains(&id) || inner.members.learners.contains(&id)
    }
}

impl Inner {
    fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    /// Drops the entries from this one on.
    fn cut(&mut self, from: u64) {
        while let Some(entry) = self.entries.pop_back_if(|entry| entry.index >= from) {
            self.bytes -= entry.data.len();
        }
    }

    fn state(&self) -> LogChange {
        // The list of members is short, and writing it into memory cannot fail.
        let members = self.members.write_to_bytes().unwrap_or_default();
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

/// An entry as it is on disk.
fn record_of(entry: &Entry) -> Vec<u8> {
    let kind = match entry.entry_type {
        EntryType::EntryNormal => disk::log_entry::Kind::Normal,
        _ => disk::log_entry::Kind::Members,
    };
    disk::LogEntry { term: entry.term, kind: kind.into(), data: entry.data.clone() }.encode_to_vec()
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let inner = self.0.read();
        Ok(RaftState::new(inner.promised.clone(), inner.members.clone()))
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

    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
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
        let promised = HardState { term: 2, vote: 3, commit: 2, ..HardState::default() };
        apply(&mut disk, log.store(None, &[entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)]));
        // Another leader has other entries from the third on.
        apply(&mut disk, log.store(Some(&promised), &[entry(3, 2)]));
        log.publish(2);
        apply(&mut disk, log.shorten(1));
        let read = Log::load(saved(&disk)).expect("it is whole");
        assert_eq!((read.before(), read.last_index()), (Position { index: 1, term: 1 }, 3));
        assert_eq!((read.term(1).ok(), read.term(3).ok(), read.bytes()), (Some(1), Some(2), 6));
        let state = read.initial_state().expect("it is there");
        assert_eq!((state.hard_state, &*state.conf_state.voters), (promised, &[1, 2, 3][..]));
        assert_eq!(disk.len(), 3);
    }

    #[test]
    fn readers_see_what_is_committed() {
        let log = Log::new(&[1]);
        log.store(None, &[entry(1, 1), entry(2, 1), entry(3, 1)]);
        assert_eq!(log.committed(1, 100), Some(vec![]));
        log.publish(2);
        let seen = |from, most| {
            log.committed(from, most).map(|all| all.iter().map(|at| at.position.index).collect())
        };
        assert_eq!(seen(1, 100), Some(vec![1, 2]));
        assert_eq!(seen(1, 1), Some(vec![1]), "one is always given");
        assert_eq!(seen(3, 100), Some(vec![]));
        assert_eq!(log.shorten(3).len(), 3, "what is not committed stays");
        assert_eq!((seen(2, 100), seen(3, 100)), (None, Some(vec![])));
    }

    #[test]
    fn a_damaged_log_is_refused() {
        let (log, mut disk) = (Log::new(&[1]), BTreeMap::new());
        let promised = HardState { term: 1, vote: 1, commit: 2, ..HardState::default() };
        apply(&mut disk, log.store(Some(&promised), &[entry(1, 1), entry(2, 1)]));
        let error = |change: fn(&mut Saved)| {
            let mut saved = saved(&disk);
            change(&mut saved);
            Log::load(saved).err().expect("it is refused").to_string()
        };
        let text = "the replicated log is damaged:";
        assert_eq!(error(|saved| saved.state = None), format!("{text} its state is missing"));
        assert_eq!(error(|saved| saved.state = Some(vec![7])), format!("{text} its state cannot be read"));
        assert_eq!(error(|saved| drop(saved.entries.remove(0))), format!("{text} entry 1 is missing"));
        assert_eq!(error(|saved| saved.entries[1].1 = vec![7]), format!("{text} entry 2 cannot be read"));
        let lost = format!("{text} entry 2 was committed, but 1 is the last");
        assert_eq!(error(|saved| drop(saved.entries.pop())), lost);
    }
}
