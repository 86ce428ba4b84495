//! Reading the disk at the start: the checkpoint, then the journal over it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use foldhash::fast::RandomState;
use store_engine::codec::{Input, Malformed};
use store_engine::ctx::partition_of;
use store_engine::effect::{CATALOG, Effect, Effects};
use store_engine::keyspace::Key;
use store_engine::value::{Hash, Kind};
use store_engine::{Entry, Partition, Partitions, Value};

use super::checkpoint::Checkpointer;
use super::dirty::{Name, NameRef};
use super::disk::{Disk, DiskError};
use super::record::{self, HEAD, LOG, PART, Parts, TIME};
use super::state::{Chunk, WriterState, note};

/// What a disk holds.
pub struct Loaded {
    /// The data.
    pub partitions: Vec<Partition>,
    /// What is no client's data.
    pub catalog: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// What the writer goes on from.
    pub state: WriterState,
    /// Whether nothing was wrong. Otherwise the disk is sound again when everything is folded and the waste is gone.
    pub is_sound: bool,
    /// Records of the disk that mean nothing, which the judge let pass.
    pub garbage: Vec<Vec<u8>>,
}

/// Called with what is wrong; an error from it ends the reading, `Ok` lets it go on without what is wrong.
pub type Judge<'a> = dyn FnMut(DiskError) -> Result<(), DiskError> + 'a;

/// Reads everything into as many partitions.
pub fn load(disk: &dyn Disk, partitions: usize, judge: &mut Judge) -> Result<Loaded, DiskError> {
    let newest = disk.seq();
    let mut is_sound = true;
    let judge: &mut Judge = &mut |error| {
        is_sound = false;
        judge(error)
    };
    let mut log = Vec::new();
    let mut meaningless = Vec::new();
    disk.scan(&[LOG], &mut |disk_key, bytes| match record::log_number(disk_key) {
        Ok(first) => {
            log.push((first, bytes.to_vec()));
            Ok(())
        }
        Err(error) => {
            meaningless.push(disk_key.to_vec());
            judge(malformed(disk, disk_key)(error))
        }
    })?;
    let log_start = log.first().map_or(newest + 1, |(first, _)| *first).max(1);
    let mut loader = Loader {
        disk,
        partitions: (0..partitions).map(|_| Partition::default()).collect(),
        catalog: BTreeMap::new(),
        ahead: hashbrown::HashMap::default(),
        in_parts: HashMap::default(),
        newest_version: 0,
        meaningless,
    };
    loader.read_heads(log_start, judge)?;
    let mut garbage = loader.read_parts(judge)?;
    loader.read_times(&mut garbage, judge)?;
    let incomplete = loader.count_parts(judge)?;
    let Loader { partitions, catalog, ahead, in_parts, newest_version, meaningless, .. } = loader;
    let big = in_parts.into_values().map(|InParts { name, parts, is_list, .. }| (name, parts, is_list));
    let mut checkpoint = Checkpointer::new(big, newest_version);
    checkpoint.garbage.extend(garbage);
    let mut state = WriterState { checkpoint, newest: log_start - 1, ..WriterState::default() };
    for name in incomplete {
        state.dirty.mark_dirty(log_start, NameRef { db: name.db, key: &name.key });
    }
    let loaded = Loaded { partitions, catalog, state, is_sound: true, garbage: meaningless };
    let mut replay = Replay { disk, loaded, ahead };
    log.iter().try_for_each(|(first, chunk)| replay.repeat_chunk(*first, chunk, judge))?;
    let mut loaded = replay.loaded;
    if loaded.state.newest != newest {
        let what = format!("it ends with record {}, but record {newest} was written", loaded.state.newest);
        let location = "the journal".to_owned();
        judge(DiskError::Damaged { file: disk.dir().to_owned(), location, what })?;
        loaded.state.newest = loaded.state.newest.max(newest);
    }
    loaded.is_sound = is_sound;
    if !is_sound {
        loaded.remove_empty();
    }
    Ok(loaded)
}

impl Loaded {
    /// Where something is missing, what removed the last element of a collection may be missing too, or all of them.
    fn remove_empty(&mut self) {
        let Loaded { partitions, state, .. } = self;
        for (db, space) in
            partitions.iter_mut().flat_map(|partition| partition.databases.iter_mut().enumerate())
        {
            let pairs = (0..space.len()).filter_map(|at| space.pair_at(at));
            let empty = pairs.filter(|(_, entry)| entry.value.is_empty_collection());
            for key in empty.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                space.remove(&key);
                state.dirty.mark_dirty(state.newest.max(1), NameRef { db, key: &key });
            }
        }
    }
}

/// A collection whose parts are still to come, or have come.
struct InParts {
    name: Name,
    parts: Parts,
    is_list: bool,
    found: u64,
    /// Times of fields that were found.
    times: i64,
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
    /// Records without a meaning.
    meaningless: Vec<Vec<u8>>,
}

/// The partition of a key alone, which is faster than to put all together.
fn of_key<'a>(partitions: &'a mut [Partition], key: &[u8]) -> Partitions<'a> {
    let number = partition_of(key, partitions.len());
    Partitions::One(&mut partitions[number])
}

fn all(partitions: &mut [Partition]) -> Partitions<'_> {
    let total = partitions.len();
    Partitions::Some { held: partitions.iter_mut().enumerate().collect(), total }
}

fn damaged(disk: &dyn Disk, key: &[u8], what: &str) -> DiskError {
    let location = format!("record \"{}\"", key.escape_ascii());
    DiskError::Damaged { file: disk.dir().to_owned(), location, what: what.to_owned() }
}

fn malformed<'a>(disk: &'a dyn Disk, key: &'a [u8]) -> impl Fn(Malformed) -> DiskError + 'a {
    move |_| damaged(disk, key, "it is malformed")
}

impl Loader<'_> {
    fn read_heads(&mut self, log_start: u64, judge: &mut Judge) -> Result<(), DiskError> {
        self.disk.scan(&[HEAD], &mut |disk_key, bytes| {
            self.read_head(log_start, disk_key, bytes).or_else(|error| {
                self.meaningless.push(disk_key.to_vec());
                judge(error)
            })
        })
    }

    fn read_head(&mut self, log_start: u64, disk_key: &[u8], bytes: &[u8]) -> Result<(), DiskError> {
        let Loader { disk, partitions, catalog, ahead, in_parts, newest_version, .. } = self;
        let malformed = malformed(*disk, disk_key);
        let (db, key) = record::head_name(disk_key).map_err(&malformed)?;
        let head = record::head(bytes).map_err(&malformed)?;
        let entry = head.entry.entry().map_err(&malformed)?;
        let name = NameRef { db, key };
        if head.number > disk.seq() {
            let what = format!("it knows of record {}, but {} was the last", head.number, disk.seq());
            return Err(damaged(*disk, disk_key, &what));
        }
        if let Some(parts) = head.parts {
            *newest_version = parts.version.max(*newest_version);
            if in_parts.contains_key(&parts.version) {
                return Err(damaged(*disk, disk_key, "it shares its elements with another"));
            }
            let is_list = matches!(entry.value, Value::List(_));
            let name = Name::from(&name);
            in_parts.insert(parts.version, InParts { name, parts, is_list, found: 0, times: 0 });
        }
        if db == CATALOG {
            note_record(catalog, key, Effect::Put(head.entry)).map_err(&malformed)?;
        } else {
            Effect::Put(head.entry).apply(db, key, &mut of_key(partitions, key)).map_err(&malformed)?;
        }
        if head.number >= log_start {
            ahead.insert(Name::from(&name), head.number);
        }
        Ok(())
    }

    /// Fills the collections that are in parts; returns the versions of parts that belong to none.
    fn read_parts(&mut self, judge: &mut Judge) -> Result<HashSet<u64>, DiskError> {
        let Loader { disk, partitions, in_parts, newest_version, meaningless, .. } = self;
        let disk = *disk;
        let mut partitions = all(partitions);
        let mut garbage = HashSet::new();
        let mut read_part = |disk_key: &[u8], bytes: &[u8], judge: &mut Judge| {
            let malformed = malformed(disk, disk_key);
            let (version, part) = record::part_name(disk_key).map_err(&malformed)?;
            *newest_version = version.max(*newest_version);
            let Some(InParts { name, parts, found, .. }) = in_parts.get_mut(&version) else {
                garbage.insert(version);
                return Ok(());
            };
            let space = partitions.keyspace(name.db, &name.key);
            let value = space.peek(&name.key, 0).map(|entry| &entry.value);
            let effect = match value {
                Some(Value::Hash(_)) => Effect::HashSet(part, bytes),
                Some(Value::Set(_)) => Effect::SetAdd(part),
                Some(Value::Stream(_)) => Effect::StreamPut(part, bytes),
                Some(Value::ZSet(_)) => Effect::ZSetAdd(part, Input(bytes).score().map_err(&malformed)?),
                Some(Value::List(_)) => {
                    let index = record::part_index(part).map_err(&malformed)?;
                    let wanted = parts.first + found.cast_signed();
                    if index != wanted {
                        judge(damaged(disk, disk_key, "it is not the next element of its list"))?;
                        parts.first += index - wanted;
                    }
                    Effect::Push(false, bytes)
                }
                _ => return Err(damaged(disk, disk_key, "it belongs to a key that has no elements")),
            };
            effect.apply(name.db, &name.key, &mut partitions).map_err(&malformed)?;
            *found += 1;
            Ok(())
        };
        disk.scan(&[PART], &mut |disk_key, bytes| {
            read_part(disk_key, bytes, judge).or_else(|error| {
                meaningless.push(disk_key.to_vec());
                judge(error)
            })
        })?;
        Ok(garbage)
    }

    /// Reads when fields of hashes in parts expire; adds the versions of times that belong to none to `garbage`.
    fn read_times(&mut self, garbage: &mut HashSet<u64>, judge: &mut Judge) -> Result<(), DiskError> {
        let Loader { disk, partitions, in_parts, newest_version, meaningless, .. } = self;
        let disk = *disk;
        let mut read_time = |disk_key: &[u8], bytes: &[u8]| {
            let malformed = malformed(disk, disk_key);
            let (version, field) = record::part_name(disk_key).map_err(&malformed)?;
            *newest_version = version.max(*newest_version);
            let Some(InParts { name, times, .. }) = in_parts.get_mut(&version) else {
                garbage.insert(version);
                return Ok(());
            };
            let mut input = Input(bytes);
            let at = input.number().ok().and_then(NonZeroU64::new).filter(|_| input.is_empty());
            let at = at.ok_or(Malformed).map_err(&malformed)?;
            let mut partitions = of_key(partitions, &name.key);
            let hash = partitions.peek(name.db, &name.key, 0).and_then(|entry| Hash::of(&entry.value));
            if !hash.is_some_and(|hash| hash.contains(field)) {
                return Err(damaged(disk, disk_key, "it belongs to a field that is not there"));
            }
            *times += 1;
            let effect = Effect::HashExpiry(field, Some(at));
            effect.apply(name.db, &name.key, &mut partitions).map_err(&malformed)
        };
        disk.scan(&[TIME], &mut |disk_key, bytes| {
            read_time(disk_key, bytes).or_else(|error| {
                meaningless.push(disk_key.to_vec());
                judge(error)
            })
        })
    }

    /// Looks whether all elements have come; returns those keys of which some have not.
    fn count_parts(&mut self, judge: &mut Judge) -> Result<Vec<Name>, DiskError> {
        let mut incomplete = Vec::new();
        for InParts { name, parts, is_list, found, times } in self.in_parts.values() {
            let what = if *found != parts.count {
                format!("it has {} elements, {found} were found", parts.count)
            } else if !is_list && *times != parts.first {
                format!("it has {} fields that expire, times of {times} were found", parts.first)
            } else {
                continue;
            };
            let head = record::head_key(name.db, &name.key);
            judge(damaged(self.disk, &head, &what))?;
            incomplete.push(name.clone());
        }
        Ok(incomplete)
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
    /// If the judge wants it, what follows missing or malformed records is repeated all the same: keys that only later
    /// ones are about are as they should be.
    fn repeat_chunk(&mut self, first: u64, chunk: &[u8], judge: &mut Judge) -> Result<(), DiskError> {
        let (disk, disk_key) = (self.disk, record::log_key(first));
        if first != self.loaded.state.newest + 1 {
            let what = format!("it follows record {}: some are missing", self.loaded.state.newest);
            judge(damaged(disk, &disk_key, &what))?;
            self.loaded.state.newest = first.saturating_sub(1);
        }
        let mut input = Input(chunk);
        while !input.is_empty() {
            let repeated = input.bytes().and_then(|effects| {
                self.loaded.state.newest += 1;
                self.repeat(effects)
            });
            if let Err(error) = repeated {
                judge(malformed(disk, &disk_key)(error))?;
                break;
            }
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
                effect => effect.apply(db, key, &mut of_key(&mut self.loaded.partitions, key))?,
            }
            let WriterState { dirty, checkpoint, sweeps, .. } = &mut self.loaded.state;
            note(dirty, checkpoint, sweeps, number, (db, key, effect));
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
        of_key(&mut self.loaded.partitions, key).keyspace(db, key).insert(key, entry);
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
