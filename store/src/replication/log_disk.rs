//! The logs of all groups of a process on one disk, so that one flush is for all of them.
//!
//! ```text
//! f                   which cluster the process belongs to
//! s<group>            what the replica has promised, and where its log begins
//! l<group><index>     an entry
//! ```

use std::collections::BTreeMap;

use consensus::{LogChange, LogKey, Saved};

use super::group_id::GroupId;
use crate::journal::{Disk, DiskError, Op};

const FOUNDING: &[u8] = b"f";
const STATE: u8 = b's';
const ENTRY: u8 = b'l';

/// A disk with logs.
pub struct LogDisk {
    disk: Box<dyn Disk>,
    batch: Vec<Op>,
    /// As they were read, of groups without a replica yet.
    logs: BTreeMap<GroupId, Saved>,
    founding: Option<Vec<u8>>,
}

impl LogDisk {
    /// Reads all logs.
    pub fn open(disk: Box<dyn Disk>) -> Result<LogDisk, DiskError> {
        let mut founding = None;
        disk.scan(FOUNDING, &mut |_, record| {
            founding = Some(record.to_vec());
            Ok(())
        })?;
        let mut logs: BTreeMap<GroupId, Saved> = BTreeMap::new();
        let damaged = |key: &[u8]| DiskError::Damaged {
            file: disk.dir().to_owned(),
            location: format!("record \"{}\"", key.escape_ascii()),
            what: "it does not belong to a log".to_owned(),
        };
        for prefix in [STATE, ENTRY] {
            disk.scan(&[prefix], &mut |key, record| {
                let (group, rest) = key[1..].split_first_chunk().ok_or_else(|| damaged(key))?;
                let log = logs.entry(GroupId(u32::from_be_bytes(*group))).or_default();
                match (prefix, rest) {
                    (STATE, []) => log.state = Some(record.to_vec()),
                    (ENTRY, index) if let Ok(index) = index.try_into() => {
                        log.entries.push((u64::from_be_bytes(index), record.to_vec()));
                    }
                    _ => return Err(damaged(key)),
                }
                Ok(())
            })?;
        }
        Ok(LogDisk { disk, batch: Vec::new(), logs, founding })
    }

    /// Which cluster the process belongs to, as [`Founding::to_record`] wrote it; none if it belongs to none.
    ///
    /// [`Founding::to_record`]: super::Founding::to_record
    pub fn founding(&self) -> Option<&[u8]> {
        self.founding.as_deref()
    }

    /// The process belongs to this cluster from now on. Durable when this returns.
    pub fn found(&mut self, record: Vec<u8>) -> Result<(), DiskError> {
        self.batch.push(Op::Put(FOUNDING.to_vec(), record.clone()));
        self.founding = Some(record);
        self.write(true)
    }

    /// The groups whose logs were read and not taken.
    pub fn groups(&self) -> Vec<GroupId> {
        self.logs.keys().copied().collect()
    }

    /// Deletes a log that was read and not taken. Durable when this returns.
    pub fn forget(&mut self, group: GroupId) -> Result<(), DiskError> {
        let entries = self.take(group).entries;
        let keys = entries.into_iter().map(|(index, _)| LogKey::Entry(index)).chain([LogKey::State]);
        self.add(group, keys.map(LogChange::Delete).collect());
        self.write(true)
    }

    /// Takes the log of a group as it was read.
    pub(super) fn take(&mut self, group: GroupId) -> Saved {
        self.logs.remove(&group).unwrap_or_default()
    }

    /// Adds changes of a group's log to the next batch.
    pub(super) fn add(&mut self, group: GroupId, changes: Vec<LogChange>) {
        let op = |change| match change {
            LogChange::Put(key, record) => Op::Put(disk_key(group, key), record),
            LogChange::Delete(key) => Op::Delete(disk_key(group, key)),
        };
        self.batch.extend(changes.into_iter().map(op));
    }

    /// Writes the batch; it is durable then if it `must_flush`.
    pub(super) fn write(&mut self, must_flush: bool) -> Result<(), DiskError> {
        if !self.batch.is_empty() {
            let number = self.disk.seq() + 1;
            self.disk.apply(number, &self.batch)?;
            self.batch.clear();
        }
        if must_flush { self.disk.flush() } else { Ok(()) }
    }
}

fn disk_key(group: GroupId, key: LogKey) -> Vec<u8> {
    let group = group.0.to_be_bytes();
    match key {
        LogKey::State => [&[STATE], &group[..]].concat(),
        LogKey::Entry(index) => [&[ENTRY], &group[..], &index.to_be_bytes()].concat(),
    }
}
