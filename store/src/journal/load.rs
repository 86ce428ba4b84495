//! Reading the disk at the start: the checkpoint, then the journal over it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use store_engine::codec::{Input, Malformed};
use store_engine::effect::{CATALOG, Effect, Effects};
use store_engine::keyspace::Key;
use store_engine::{Entry, Partition, Partitions, Value};

use super::dirt::{Name, NameRef};
use super::disk::{Disk, DiskError};
use super::fold::Fold;
use super::record::{self, HEAD, LOG, PART, Parts};
use super::writer::{Chunk, State, note};

/// What a disk holds.
pub struct Loaded {
    /// The data.
    pub partitions: Vec<Partition>,
    /// What is no client's data.
    pub catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// What the writer goes on from.
    pub state: State,
}

/// Reads everything into as many partitions.
pub fn load(disk: &dyn Disk, partitions: usize) -> Result<Loaded, DiskError> {
    let newest = disk.seq();
    let mut log = Vec::new();
    disk.scan(&[LOG], &mut |disk_key, bytes| {
        let first = record::log_number(disk_key).map_err(malformed(disk, disk_key))?;
        log.push((first, bytes.to_vec()));
        Ok(())
    })?;
    let log_start = log.first().map_or(newest + 1, |(first, _)| *first);
    let mut loader = Loader {
        disk,
        partitions: (0..partitions).map(|_| Partition::default()).collect(),
        catalog: BTreeMap::new(),
        ahead: hashbrown::HashMap::default(),
        in_parts: HashMap::default(),
        newest_version: 0,
    };
    loader.read_heads(log_start)?;
    let waste = loader.read_parts()?;
    let Loader { partitions, catalog, ahead, in_parts, newest_version, .. } = loader;
    let big = in_parts.into_values().map(|InParts { name, parts, is_list, .. }| (name, parts, is_list));
    let mut fold = Fold::new(big, newest_version);
    fold.waste.extend(waste);
    let state = State { fold, newest: log_start - 1, ..State::default() };
    let mut replay = Replay { disk, loaded: Loaded { partitions, catalog, state }, ahead };
    log.iter().try_for_each(|(first, chunk)| replay.repeat_chunk(*first, chunk))?;
    let loaded = replay.loaded;
    if loaded.state.newest != newest {
        let what = format!("it ends with record {}, but record {newest} was written", loaded.state.newest);
        let place = "the journal".to_owned();
        return Err(DiskError::Damaged { file: disk.folder().to_owned(), place, what });
    }
    Ok(loaded)
}

/// A collection whose parts are still to come, or have come.
struct InParts {
    name: Name,
    parts: Parts,
    is_list: bool,
    found: u64,
}

struct Loader<'a> {
    disk: &'a dyn Disk,
    partitions: Vec<Partition>,
    catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// Keys whose checkpoint is newer than the journal's first record, with the record it knows of.
    ahead: hashbrown::HashMap<Name, u64, RandomState>,
    /// By version.
    in_parts: HashMap<u64, InParts, RandomState>,
    newest_version: u64,
}

fn all(partitions: &mut [Partition]) -> Partitions<'_> {
    let total = partitions.len();
    Partitions::Some { held: partitions.iter_mut().enumerate().collect(), total }
}

fn damaged(disk: &dyn Disk, key: &[u8], what: &str) -> DiskError {
    let place = format!("record \"{}\"", key.escape_ascii());
    DiskError::Damaged { file: disk.folder().to_owned(), place, what: what.to_owned() }
}

fn malformed<'a>(disk: &'a dyn Disk, key: &'a [u8]) -> impl Fn(Malformed) -> DiskError + 'a {
    move |_| damaged(disk, key, "it is malformed")
}

impl Loader<'_> {
    fn read_heads(&mut self, log_start: u64) -> Result<(), DiskError> {
        let Loader { disk, partitions, catalog, ahead, in_parts, newest_version } = self;
        let disk = *disk;
        let mut partitions = all(partitions);
        disk.scan(&[HEAD], &mut |disk_key, bytes| {
            let (db, key) = record::head_name(disk_key).map_err(malformed(disk, disk_key))?;
            let head = record::head(bytes).map_err(malformed(disk, disk_key))?;
            let entry = head.entry.entry().map_err(malformed(disk, disk_key))?;
            let name = NameRef { db, key };
            if head.number >= log_start {
                ahead.insert(Name::from(&name), head.number);
            }
            if let Some(parts) = head.parts {
                let is_list = matches!(entry.value, Value::List(_));
                *newest_version = parts.version.max(*newest_version);
                let taken = in_parts
                    .insert(parts.version, InParts { name: Name::from(&name), parts, is_list, found: 0 });
                if taken.is_some() {
                    return Err(damaged(disk, disk_key, "it shares its elements with another"));
                }
            }
            if db == CATALOG {
                note_record(catalog, key, Effect::Put(head.entry)).map_err(malformed(disk, disk_key))?;
                return Ok(());
            }
            Effect::Put(head.entry).apply(db, key, &mut partitions).map_err(malformed(disk, disk_key))?;
            Ok(())
        })
    }

    /// Fills the collections that are in parts; returns the versions of parts that belong to none.
    fn read_parts(&mut self) -> Result<HashSet<u64>, DiskError> {
        let Loader { disk, partitions, in_parts, newest_version, .. } = self;
        let disk = *disk;
        let mut partitions = all(partitions);
        let mut waste = HashSet::new();
        disk.scan(&[PART], &mut |disk_key, bytes| {
            let (version, part) = record::part_name(disk_key).map_err(malformed(disk, disk_key))?;
            *newest_version = version.max(*newest_version);
            let Some(InParts { name, parts, found, .. }) = in_parts.get_mut(&version) else {
                waste.insert(version);
                return Ok(());
            };
            let space = partitions.keyspace(name.db, &name.key);
            let value = space.peek(&name.key, 0).map(|entry| &entry.value);
            let effect = match value {
                Some(Value::Hash(_)) => Effect::HashSet(part, bytes),
                Some(Value::Set(_)) => Effect::SetAdd(part),
                Some(Value::ZSet(_)) => {
                    let score = Input(bytes).score().map_err(malformed(disk, disk_key))?;
                    Effect::ZSetAdd(part, score)
                }
                Some(Value::List(_)) => {
                    let index = record::part_index(part).map_err(malformed(disk, disk_key))?;
                    if index != parts.first + found.cast_signed() {
                        return Err(damaged(disk, disk_key, "it is not the next element of its list"));
                    }
                    Effect::Push(false, bytes)
                }
                _ => return Err(damaged(disk, disk_key, "it belongs to a key that has no elements")),
            };
            *found += 1;
            effect.apply(name.db, &name.key, &mut partitions).map_err(malformed(disk, disk_key))?;
            Ok(())
        })?;
        for InParts { name, parts, found, .. } in in_parts.values() {
            if *found != parts.count {
                let head = record::head_key(name.db, &name.key);
                return Err(damaged(
                    disk,
                    &head,
                    &format!("it has {} elements, {found} were found", parts.count),
                ));
            }
        }
        Ok(waste)
    }
}

/// What became of a record of the catalog.
fn note_record(
    catalog: &mut BTreeMap<Vec<u8>, Arc<[u8]>>,
    name: &[u8],
    effect: Effect<'_>,
) -> Result<(), Malformed> {
    match effect {
        Effect::Remove => drop(catalog.remove(name)),
        Effect::Put(put) => match put.entry()?.value {
            Value::String(text) => drop(catalog.insert(name.into(), text.as_bytes().into())),
            _ => return Err(Malformed),
        },
        _ => return Err(Malformed),
    }
    Ok(())
}

/// The journal being repeated.
struct Replay<'a> {
    disk: &'a dyn Disk,
    loaded: Loaded,
    ahead: hashbrown::HashMap<Name, u64, RandomState>,
}

impl Replay<'_> {
    fn repeat_chunk(&mut self, first: u64, chunk: &[u8]) -> Result<(), DiskError> {
        let (disk, disk_key) = (self.disk, record::log_key(first));
        if first != self.loaded.state.newest + 1 {
            let what = format!("it follows record {}: some are missing", self.loaded.state.newest);
            return Err(damaged(disk, &disk_key, &what));
        }
        let mut input = Input(chunk);
        while !input.is_empty() {
            let effects = input.bytes().map_err(malformed(disk, &disk_key))?;
            self.loaded.state.newest += 1;
            self.repeat(effects).map_err(malformed(disk, &disk_key))?;
        }
        let (last, bytes) = (self.loaded.state.newest, chunk.len() as u64);
        self.loaded.state.chunks.push_back(Chunk { first, last, bytes });
        Ok(())
    }

    fn repeat(&mut self, effects: &[u8]) -> Result<(), Malformed> {
        let number = self.loaded.state.newest;
        for effect in Effects::read(effects) {
            let (db, key, effect) = effect?;
            match effect {
                Effect::Flush | Effect::Swap(_) | Effect::Rename(..) if db == CATALOG => {
                    return Err(Malformed);
                }
                Effect::Swap(CATALOG) | Effect::Rename(CATALOG, _) => return Err(Malformed),
                Effect::Flush => drop(self.take_older(number, db)),
                Effect::Swap(other) => self.swap(number, db, other),
                Effect::Rename(to_db, to) => self.rename(number, (db, key), (to_db, to)),
                _ if self.knows(number, db, key) => continue,
                effect if db == CATALOG => note_record(&mut self.loaded.catalog, key, effect)?,
                effect => effect.apply(db, key, &mut all(&mut self.loaded.partitions))?,
            }
            let State { dirt, fold, sweeps, .. } = &mut self.loaded.state;
            note(dirt, fold, sweeps, number, (db, key, effect));
        }
        Ok(())
    }

    /// Whether the key's checkpoint has this record already.
    fn knows(&self, number: u64, db: usize, key: &[u8]) -> bool {
        self.ahead.get(&NameRef { db, key }).is_some_and(|known| *known >= number)
    }

    /// Takes a database's keys, but those that the checkpoint knows to have come later.
    fn take_older(&mut self, number: u64, db: usize) -> Vec<(Key, Entry)> {
        let spaces = self.loaded.partitions.iter_mut().map(|partition| &mut partition.databases[db]);
        let entries: Vec<_> = spaces.flat_map(|space| std::mem::take(space).into_entries()).collect();
        let (newer, older) = entries.into_iter().partition(|(key, _)| self.knows(number, db, key));
        let newer: Vec<(Key, Entry)> = newer;
        newer.into_iter().for_each(|(key, entry)| self.put(db, &key, entry));
        older
    }

    fn put(&mut self, db: usize, key: &[u8], entry: Entry) {
        all(&mut self.loaded.partitions).keyspace(db, key).insert(key, entry);
    }

    fn swap(&mut self, number: u64, db: usize, other: usize) {
        let (here, there) = (self.take_older(number, db), self.take_older(number, other));
        for (entries, db) in [(here, other), (there, db)] {
            for (key, entry) in entries {
                if !self.knows(number, db, &key) {
                    self.put(db, &key, entry);
                }
            }
        }
    }

    fn rename(&mut self, number: u64, (db, key): (usize, &[u8]), (to_db, to): (usize, &[u8])) {
        if self.knows(number, db, key) {
            return;
        }
        let mut partitions = all(&mut self.loaded.partitions);
        let Some(entry) = partitions.keyspace(db, key).remove(key) else { return };
        if !self.knows(number, to_db, to) {
            self.put(to_db, to, entry);
        }
    }
}
