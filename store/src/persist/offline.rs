//! What can be done with the data of a server that does not run: to read it, and to fill a new directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store_engine::effect::CATALOG;
use store_engine::{Entry, Keyspace, Partition};

use super::writer::Writer;
use crate::journal::dirty::NameRef;
use crate::journal::disk::{Disk, DiskError, DiskRecord, Each, Op, Open};
use crate::journal::load::{self, Loaded};
use crate::journal::record::log_key;
use crate::journal::state::{Chunk, WriterState};
use crate::journal::{Database, Durability, Journal, in_dir};
use crate::node::Node;

/// Keys, and what is kept beside them.
#[derive(Default)]
pub struct Contents {
    partition: Partition,
    catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
}

impl Contents {
    /// The keys of each database.
    pub fn databases(&self) -> impl Iterator<Item = (usize, &Keyspace)> {
        self.partition.databases.iter().enumerate()
    }

    /// The records whose names begin with `prefix`, in the order of their names, which are given without it.
    pub fn records<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let named = self.catalog.range(prefix.to_vec()..);
        named.map_while(move |(name, record)| Some((name.strip_prefix(prefix)?, &**record)))
    }

    /// Adds a key; whether it was not there.
    pub fn put(&mut self, db: usize, key: &[u8], entry: Entry) -> bool {
        self.partition.databases[db].insert(key, entry).is_none()
    }

    /// Adds a record; whether it was not there.
    pub fn put_record(&mut self, name: &[u8], record: &[u8]) -> bool {
        self.catalog.insert(name.into(), record.into()).is_none()
    }
}

/// What was found in a directory.
pub struct Examined {
    /// What the next start would see.
    pub contents: Contents,
    /// How many records the journal has that are not in the checkpoint.
    pub journal_records: u64,
    /// Their bytes.
    pub journal_bytes: u64,
}

/// Reads a directory that no process has open, and changes nothing. What is damaged is passed to `problem` and left out.
pub fn examine(dir: &Path, problem: &mut dyn FnMut(DiskError)) -> Result<Examined, DiskError> {
    if !Database::is_in(dir) {
        let dir = dir.display();
        return Err(DiskError::Refused(format!("{dir} is not a data-dir: it has no data of this server")));
    }
    let mut found = DiskRecords { dir: dir.to_owned(), seq: 0, records: BTreeMap::new() };
    let mut each = |key: &[u8], value: &[u8]| {
        found.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    };
    found.seq = Database::examine(dir, &mut each, problem)?;
    let Loaded { mut partitions, catalog, state, .. } = load::load(&found, 1, &mut |error| {
        problem(error);
        Ok(())
    })?;
    let partition = partitions.pop().unwrap_or_default();
    Ok(Examined {
        contents: Contents { partition, catalog },
        journal_records: state.chunks.iter().map(|chunk| (chunk.last + 1).saturating_sub(chunk.first)).sum(),
        journal_bytes: state.chunks.iter().map(|chunk| chunk.bytes).sum(),
    })
}

/// Makes these the contents of a directory, which must be empty; it is created if it does not exist.
///
/// Until all is written, the directory has a journal without its one record: it is not taken for complete after a crash.
pub fn fill(dir: PathBuf, contents: Contents) -> Result<(), DiskError> {
    fill_disk(in_dir(dir), contents)
}

pub(super) fn fill_disk(open: Open, contents: Contents) -> Result<(), DiskError> {
    let mut disk = open()?;
    disk.scan(b"", &mut |_, _| {
        let dir = disk.dir().display();
        Err(DiskError::Refused(format!(
            "{dir} already has data; use a directory that is empty or does not exist"
        )))
    })?;
    let number = disk.seq() + 1;
    disk.apply(number, &[Op::Put(log_key(number), Vec::new())])?;
    disk.flush()?;
    let mut state = WriterState { newest: number, ..WriterState::default() };
    state.chunks.push_back(Chunk { first: number, last: number, bytes: 0 });
    let Contents { partition, catalog } = contents;
    for (db, space) in partition.databases.iter().enumerate() {
        for (key, _) in (0..space.len()).filter_map(|at| space.pair_at(at)) {
            state.dirty.mark_dirty(number, NameRef { db, key });
        }
    }
    for name in catalog.keys() {
        state.dirty.mark_dirty(number, NameRef { db: CATALOG, key: name });
    }
    let journal = Journal::new(Durability::Periodic, number, None);
    let node = Arc::new(Node::with(vec![partition], Some(journal)));
    *node.catalog.lock() = catalog;
    Writer::new(node, disk, open, state).checkpoint_all()
}

/// All records of a directory, for reading.
struct DiskRecords {
    dir: PathBuf,
    seq: u64,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl DiskRecords {
    fn refuse<T>(&self) -> Result<T, DiskError> {
        Err(DiskError::Refused(format!("{} is opened read-only", self.dir.display())))
    }
}

impl Disk for DiskRecords {
    fn seq(&self) -> u64 {
        self.seq
    }

    fn apply(&mut self, _: u64, _: &[Op]) -> Result<(), DiskError> {
        self.refuse()
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.refuse()
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn scan(&self, prefix: &[u8], each: &mut Each) -> Result<(), DiskError> {
        let from = self.records.range(prefix.to_vec()..);
        from.take_while(|(key, _)| key.starts_with(prefix)).try_for_each(|(key, value)| each(key, value))
    }

    fn keys(&mut self, _: &[u8], _: &[u8], _: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        self.refuse()
    }

    fn records(&mut self, _: &[u8], _: usize) -> Result<Vec<DiskRecord>, DiskError> {
        self.refuse()
    }
}
