//! Snapshots: the entries of keyspaces as they were at one moment, read while others change them.
//!
//! Entries are read in slices from the end downwards, as SCAN does. An entry that is about to change before it was read is
//! written to a [`SnapshotBuffer`] first, which is bounded. What takes everything out of a keyspace for good, as FLUSHALL
//! does, ends the snapshot.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::Entry;
use crate::dense::Key;
use crate::rdb::key::write_key;
use crate::rdb::{Dialect, KeyMeta};

/// What a key costs that is remembered, beside its bytes.
const KEY_BYTES: usize = 48;

/// Parts are joined up to so many bytes.
const PART_BYTES: usize = 256 << 10;

/// Entries of one database in the form in which they stand in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The database, by its number when the snapshot began.
    pub db: usize,
    /// How many entries these are.
    pub keys: u64,
    /// They themselves.
    pub bytes: Vec<u8>,
}

impl SnapshotPart {
    /// An empty part of a database.
    pub(crate) fn new(db: usize) -> SnapshotPart {
        SnapshotPart { db, ..SnapshotPart::default() }
    }

    /// Adds an entry.
    pub(crate) fn write(&mut self, key: &[u8], entry: &Entry, reader: Dialect) {
        self.keys += 1;
        let meta = KeyMeta { sticky: entry.sticky, ..KeyMeta::default() };
        write_key(&mut self.bytes, key, entry, meta, reader).expect("memory takes everything");
    }
}

/// Why a snapshot is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFailure {
    /// More was changed than the buffer may hold.
    TooManyChanges,
    /// Keys were flushed before they were read.
    Flushed,
}

/// What all keyspaces of a snapshot share.
#[derive(Debug)]
pub struct SnapshotBuffer {
    /// When the snapshot began: keys that had expired are left out.
    now_ms: u64,
    most_bytes: usize,
    /// For whom entries are written.
    reader: Dialect,
    state: Mutex<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    /// What was written because it was about to change.
    parts: Vec<SnapshotPart>,
    /// Bytes of these parts, and of the keys that the keyspaces remember.
    bytes: usize,
    /// Keyspaces that are not read to their end.
    unread: usize,
    failure: Option<SnapshotFailure>,
}

impl SnapshotBuffer {
    /// An empty buffer that takes at most so many bytes, for a snapshot for `reader` that begins at `now_ms`.
    pub fn new(now_ms: u64, most_bytes: usize, reader: Dialect) -> Arc<SnapshotBuffer> {
        Arc::new(SnapshotBuffer { now_ms, most_bytes, reader, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was written because it was about to change.
    pub fn take(&self) -> Vec<SnapshotPart> {
        let mut state = self.state();
        let parts = std::mem::take(&mut state.parts);
        state.bytes -= parts.iter().map(|part| part.bytes.len()).sum::<usize>();
        parts
    }

    /// What the written entries and the remembered keys take.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Whether all keyspaces are read: nothing will be written any more.
    pub fn is_complete(&self) -> bool {
        self.state().unread == 0
    }

    /// Why the snapshot will not be complete, if that is so.
    pub fn failure(&self) -> Option<SnapshotFailure> {
        self.state().failure
    }

    /// Adds a part, and a key of so many bytes that is remembered. Whether the snapshot goes on.
    fn add(&self, part: SnapshotPart, key_bytes: usize) -> bool {
        let mut state = self.state();
        state.bytes += key_bytes;
        if state.failure.is_none() && part.keys > 0 {
            state.bytes += part.bytes.len();
            match state.parts.last_mut() {
                Some(last) if last.db == part.db && last.bytes.len() < PART_BYTES => {
                    last.keys += part.keys;
                    last.bytes.extend_from_slice(&part.bytes);
                }
                _ => state.parts.push(part),
            }
        }
        if state.bytes > self.most_bytes {
            state.fail(SnapshotFailure::TooManyChanges);
        }
        state.failure.is_none()
    }
}

impl BufferState {
    fn fail(&mut self, failure: SnapshotFailure) {
        self.failure.get_or_insert(failure);
        let parts = std::mem::take(&mut self.parts);
        self.bytes -= parts.iter().map(|part| part.bytes.len()).sum::<usize>();
    }
}

/// How far one keyspace is read. It goes with the entries when these go to another keyspace.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The number of its database when the snapshot began.
    pub db: usize,
    /// The entries at positions below this one are still to be read, except those in `done`.
    pub below: usize,
    /// Keys of entries that were written before they changed, or have come to such a position since.
    done: HashSet<Key, RandomState>,
    /// What these keys take.
    done_bytes: usize,
    buffer: Arc<SnapshotBuffer>,
}

impl Unread {
    /// The first `below` entries of a keyspace, at least one, as those of database `db`.
    pub fn new(db: usize, below: usize, buffer: &Arc<SnapshotBuffer>) -> Unread {
        buffer.state().unread += 1;
        Unread { db, below, done: HashSet::default(), done_bytes: 0, buffer: buffer.clone() }
    }

    /// Adds an entry to what is read, unless it was written before.
    pub fn read(&mut self, key: &[u8], entry: &Entry, part: &mut SnapshotPart) {
        if !self.forget(key) && !entry.is_expired(self.buffer.now_ms) {
            part.write(key, entry, self.buffer.reader);
        }
    }

    /// Writes an entry that is about to change, unless it was written before. Whether the snapshot goes on.
    pub fn write_early(&mut self, key: &Key, entry: &Entry) -> bool {
        if !self.remember(key) {
            return true;
        }
        let mut part = SnapshotPart::new(self.db);
        if !entry.is_expired(self.buffer.now_ms) {
            part.write(key, entry, self.buffer.reader);
        }
        self.buffer.add(part, key.len() + KEY_BYTES)
    }

    /// Remembers that the entry of `key` is not to be read. Whether the snapshot goes on.
    pub fn skip(&mut self, key: &Key) -> bool {
        !self.remember(key) || self.buffer.add(SnapshotPart::new(self.db), key.len() + KEY_BYTES)
    }

    /// What the remembered keys take.
    pub fn bytes(&self) -> usize {
        self.done_bytes
    }

    /// Remembers a key; whether that is new.
    fn remember(&mut self, key: &Key) -> bool {
        let is_new = self.done.insert(key.clone());
        self.done_bytes += if is_new { key.len() + KEY_BYTES } else { 0 };
        is_new
    }

    /// Forgets a key; whether it was remembered.
    pub fn forget(&mut self, key: &[u8]) -> bool {
        let was_known = self.done.remove(key);
        if was_known {
            self.done_bytes -= key.len() + KEY_BYTES;
            self.buffer.state().bytes -= key.len() + KEY_BYTES;
        }
        was_known
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let mut state = self.buffer.state();
        state.bytes -= self.done_bytes;
        if self.below > 0 {
            state.fail(SnapshotFailure::Flushed);
        } else {
            state.unread -= 1;
        }
    }
}
