//! How the disk relates to memory: what the writer goes on from, and what each record of the journal changes in it.

use std::collections::VecDeque;

use store_engine::effect::Effect;

use super::checkpoint::Checkpointer;
use super::dirty::{DirtySet, NameRef};
use super::record;

/// A run of journal records on disk.
pub struct Chunk {
    /// Number of its first record.
    pub first: u64,
    /// Number of its last.
    pub last: u64,
    /// Its size.
    pub bytes: u64,
}

/// Records of a database that the checkpoint may have too many of.
pub struct Sweep {
    /// Its number.
    pub db: usize,
    /// The database that it was exchanged with.
    pub there: Option<usize>,
    /// The journal record that began it.
    pub since: u64,
    /// Where to go on.
    pub from: Vec<u8>,
}

/// How the disk relates to memory.
#[derive(Default)]
pub struct WriterState {
    /// What the checkpoint lacks.
    pub dirty: DirtySet,
    /// What the checkpoint has in parts.
    pub checkpoint: Checkpointer,
    /// The journal on disk.
    pub chunks: VecDeque<Chunk>,
    /// What the checkpoint may have too much.
    pub sweeps: VecDeque<Sweep>,
    /// Number of the newest record.
    pub newest: u64,
}

/// Notes what record `number` changed.
pub fn note(
    dirty: &mut DirtySet,
    checkpoint: &Checkpointer,
    sweeps: &mut VecDeque<Sweep>,
    number: u64,
    (db, key, effect): (usize, &[u8], Effect<'_>),
) {
    let mut sweep = |db, there| {
        dirty.mark_all_dirty(number, db, there);
        sweeps.push_back(Sweep { db, there, since: number, from: record::head_key(db, b"") });
    };
    match effect {
        Effect::Flush => sweep(db, None),
        Effect::Swap(other) => {
            sweep(db, Some(other));
            sweep(other, Some(db));
        }
        effect => {
            let name = NameRef { db, key };
            dirty.note(number, name, effect, || checkpoint.window(name));
        }
    }
}
