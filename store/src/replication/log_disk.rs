//! The logs of all groups of a process on one disk, so that one flush is for all of them.
//!
//! ```text
//! s<group>            what the replica has promised, and where its log begins
//! l<group><index>     an entry
//! ```

use std::collections::BTreeMap;

use consensus::{LogChange, LogKey, Saved};

use super::group_id::GroupId;
use crate::journal::{Disk, DiskError, Op};

const STATE: u8 = b's';
const ENTRY: u8 = b'l';

/// A disk with logs.
pub struct LogDisk {
    disk: Box<dyn Disk>,
    batch: Vec<Op>,
}

impl LogDisk {
    /// Reads all logs.
    pub fn open(disk: Box<dyn Disk>) -> Result<(LogDisk, BTreeMap<GroupId, Saved>), DiskError> {
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
        Ok((LogDisk { disk, batch: Vec::new() }, logs))
    }

    /// Adds changes of a group's log to the next batch.
    pub fn add(&mut self, group: GroupId, changes: Vec<LogChange>) {
        let op = |change| match change {
            LogChange::Put(key, record) => Op::Put(disk_key(group, key), record),
            LogChange::Delete(key) => Op::Delete(disk_key(group, key)),
        };
        self.batch.extend(changes.into_iter().map(op));
    }

    /// Writes the batch; it is durable then if it `must_flush`.
    pub fn write(&mut self, must_flush: bool) -> Result<(), DiskError> {
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
