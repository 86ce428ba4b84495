//! Disks for tests: one in memory, and directories of the system that are deleted at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::disk::{Disk, DiskError, DiskRecord, Each, Op};

/// What a disk contains.
#[derive(Clone, Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    newest: u64,
}

/// A disk, whose flushes a test can delay.
#[derive(Default)]
pub(crate) struct Platter {
    state: Mutex<PlatterState>,
    change: Condvar,
}

#[derive(Default)]
struct PlatterState {
    written: Contents,
    flushed: Contents,
    is_held: bool,
}

impl Platter {
    /// From now on no flush returns, or all do.
    pub fn hold(&self, is_held: bool) {
        self.state.lock().is_held = is_held;
        self.change.notify_all();
    }

    /// The disk has what the other one has.
    pub fn replace(&self, other: &Platter) {
        let other = other.state.lock();
        let mut state = self.state.lock();
        (state.written, state.flushed) = (other.written.clone(), other.flushed.clone());
    }

    /// The disk as a crash of the machine leaves it.
    pub fn crashed(&self) -> Arc<Platter> {
        let flushed = self.state.lock().flushed.clone();
        let state = PlatterState { written: flushed.clone(), flushed, is_held: false };
        Arc::new(Platter { state: Mutex::new(state), change: Condvar::new() })
    }
}

/// The disk, for a writer.
pub(crate) struct MemoryDisk(pub Arc<Platter>);

impl Disk for MemoryDisk {
    fn seq(&self) -> u64 {
        self.0.state.lock().written.newest
    }

    fn apply(&mut self, number: u64, batch: &[Op]) -> Result<(), DiskError> {
        let written = &mut self.0.state.lock().written;
        written.newest = number;
        for op in batch.iter().cloned() {
            match op {
                Op::Put(key, value) => drop(written.records.insert(key, value)),
                Op::Delete(key) => drop(written.records.remove(&key)),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let mut state = self.0.state.lock();
        self.0.change.wait_while(&mut state, |state| state.is_held);
        state.flushed = state.written.clone();
        Ok(())
    }

    fn dir(&self) -> &Path {
        Path::new("memory")
    }

    fn scan(&self, prefix: &[u8], each: &mut Each<'_>) -> Result<(), DiskError> {
        let records = self.0.state.lock().written.records.clone();
        let mut found = records.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
        found.try_for_each(|(key, value)| each(key, value))
    }

    fn keys(&mut self, prefix: &[u8], from: &[u8], most: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        let state = self.0.state.lock();
        let found = state.written.records.range(from.to_vec()..).map(|(key, _)| key);
        Ok(found.take_while(|key| key.starts_with(prefix)).take(most).cloned().collect())
    }

    fn records(&mut self, from: &[u8], most_bytes: usize) -> Result<Vec<DiskRecord>, DiskError> {
        let (state, mut bytes) = (self.0.state.lock(), 0);
        let found = state.written.records.range(from.to_vec()..);
        let found = found.take_while(|(key, value)| {
            let is_first = bytes == 0;
            bytes += key.len() + value.len();
            is_first || bytes <= most_bytes
        });
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// A directory that does not exist yet, deleted when this is dropped.
pub(crate) struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        TempDir(std::env::temp_dir().join(format!("moonshard-store-{process}-{number}-{name}")))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A test that fails early may not have made it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
