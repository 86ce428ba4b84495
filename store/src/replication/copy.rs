//! Where in the log of its group a copy of a node's data stands.

use consensus::{Log, Members, Position};

use super::entry;

/// A copy of the data of a group, which a replica has on its disk.
#[derive(Clone, Debug)]
pub struct Copied {
    /// It has all records of entries up to this one.
    pub position: Position,
    /// The members as of that entry.
    pub members: Members,
}

/// How much of the log is looked at in one go.
const LOOK_BYTES: usize = 8 << 20;

/// The last committed entry such that a copy with all records up to this one has all entries up to it.
pub fn position_of(record: u64, log: &Log) -> Copied {
    loop {
        let before = log.before();
        let position = last_within(record, log, before);
        // Entries were dropped meanwhile: those are on the disk that was copied.
        if let Some(members) = log.members_at(position.index) {
            return Copied { position, members };
        }
    }
}

fn last_within(record: u64, log: &Log, before: Position) -> Position {
    let mut position = before;
    loop {
        let entries = log.committed(position.index + 1, LOOK_BYTES).unwrap_or_default();
        if entries.is_empty() {
            return position;
        }
        for entry in entries {
            let is_within = entry::decode(&entry.data.head())
                .is_ok_and(|read| read.is_none_or(|read| read.last() <= record));
            if !is_within {
                return position;
            }
            position = entry.position;
        }
    }
}
