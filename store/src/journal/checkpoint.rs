//! Folding: writing what changed into checkpoint records, key by key.
//!
//! A small value is one record. A big collection has a record per element, so that a change of one writes one; its
//! head names the version its elements belong to. A new version is written in slices, before the head that makes
//! it count, so that no shard is locked for long.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use store_engine::codec::put_number;
use store_engine::value::stream::Part;
use store_engine::value::{Hash, List, ZSet};
use store_engine::{Entry, Value};

use super::dirty::{Name, NameRef, What, Window};
use super::disk::Op;
use super::record::{self, Parts, index_part, part_key, time_key};

/// [`Checkpointer::big_bytes`] unless a test has another: an element's record costs some tens of bytes beside it.
const BIG_BYTES: usize = 16 << 10;

/// How a big collection is on disk.
#[derive(Debug)]
struct Big {
    /// What the head says, or will say. Of a list, the indices of elements that are on disk.
    parts: Parts,
    is_list: bool,
    /// Whether times of fields may be on disk.
    has_times: bool,
    /// The version that the head on disk names until the new one is written.
    former: Option<u64>,
    /// How far the elements of a new version are written; `None`: all.
    building: Option<Cursor>,
}

/// The elements that are still to be written.
#[derive(Debug)]
enum Cursor {
    /// Those at positions below this one.
    Below(usize),
    /// Those behind this score and member, or all.
    Behind(Option<(f64, Box<[u8]>)>),
    /// Those behind this part of a stream, or all.
    After(Option<Vec<u8>>),
    /// Those that the change's window names.
    Window,
}

/// The checkpoint's side of folding.
pub struct Checkpointer {
    /// From this size on a collection is kept in parts; at half of it, it is whole again.
    pub big_bytes: usize,
    big: HashMap<Name, Big, RandomState>,
    newest_version: u64,
    /// Versions whose parts are of no use any more.
    pub garbage: VecDeque<u64>,
}

/// Operations for the next batch, and what they weigh.
#[derive(Default)]
pub struct CheckpointBatch {
    /// The operations.
    pub ops: Vec<Op>,
    /// Their keys and values together.
    pub bytes: usize,
}

impl CheckpointBatch {
    /// Adds a record.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.ops.push(Op::Put(key, value));
    }

    /// Adds a removal.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.bytes += key.len();
        self.ops.push(Op::Delete(key));
    }
}

impl Default for Checkpointer {
    fn default() -> Checkpointer {
        Checkpointer::new([], 0)
    }
}

impl Checkpointer {
    /// As the disk has it: big collections, and the highest version ever used.
    pub fn new(big: impl IntoIterator<Item = (Name, Parts, bool)>, newest_version: u64) -> Checkpointer {
        let big = big.into_iter().map(|(name, parts, is_list)| {
            let has_times = !is_list && parts.first > 0;
            (name, Big { parts, is_list, has_times, former: None, building: None })
        });
        let big = big.collect();
        Checkpointer { big_bytes: BIG_BYTES, big, newest_version, garbage: VecDeque::new() }
    }

    /// The indices on disk of a list that is kept in parts.
    pub fn window(&self, name: NameRef<'_>) -> Option<Window> {
        let big = self.big.get(&name).filter(|big| big.is_list)?;
        Some(Window::clean(big.parts.first, big.parts.count))
    }

    /// Whether the entry is, or will be, kept in parts.
    pub fn is_big(&self, name: &Name, value: &Value) -> bool {
        let limit = if self.big.contains_key(name) { self.big_bytes / 2 } else { self.big_bytes };
        !matches!(value, Value::String(_) | Value::Json(_)) && value.bytes() > limit
    }

    /// Brings the record of a key up to date, as of journal record `noted`. Stops when the batch has `limit` bytes; what
    /// is left to do is given back.
    pub fn checkpoint(
        &mut self,
        name: &Name,
        entry: Option<&Entry>,
        change: What,
        noted: u64,
        limit: usize,
        batch: &mut CheckpointBatch,
    ) -> Option<What> {
        let head = record::head_key(name.db, &name.key);
        match entry {
            None => {
                self.forget(name);
                batch.delete(head);
                None
            }
            Some(entry) if !self.is_big(name, &entry.value) => {
                self.put_whole(name, record::whole(noted, entry), batch);
                None
            }
            Some(entry) => {
                let change = self.checkpoint_parts(name, &entry.value, change, limit, batch);
                if change.is_none()
                    && let Some(big) = self.big.get_mut(name)
                {
                    batch.put(head, record::in_parts(noted, entry, big.parts));
                    self.garbage.extend(big.former.take());
                }
                change
            }
        }
    }

    /// [`Checkpointer::checkpoint`] with the whole record, of a value that is not kept in parts.
    pub fn put_whole(&mut self, name: &Name, record: Vec<u8>, batch: &mut CheckpointBatch) {
        self.forget(name);
        batch.put(record::head_key(name.db, &name.key), record);
    }

    /// The parts of a key, if it has any, are of no use any more.
    fn forget(&mut self, name: &Name) {
        if let Some(big) = self.big.remove(name) {
            self.garbage.push_back(big.parts.version);
            self.garbage.extend(big.former);
        }
    }

    /// Begins a new version of a key's parts; returns the one that its head on disk names, if it does.
    fn renew(&mut self, name: &Name) -> Option<u64> {
        let big = self.big.remove(name)?;
        if big.building.is_some() {
            self.garbage.push_back(big.parts.version);
            return big.former;
        }
        Some(big.parts.version)
    }

    fn checkpoint_parts(
        &mut self,
        name: &Name,
        value: &Value,
        mut change: What,
        limit: usize,
        batch: &mut CheckpointBatch,
    ) -> Option<What> {
        let is_list = matches!(value, Value::List(_));
        let known = match &change {
            What::Whole => false,
            What::Parts(_) => !is_list,
            What::Window(_) => is_list,
        };
        if !known || self.big.get(name).is_none_or(|big| big.is_list != is_list) {
            let former = self.renew(name);
            self.newest_version += 1;
            let parts = Parts { version: self.newest_version, count: 0, first: 0 };
            let (building, what) = match value {
                Value::List(list) => (
                    Cursor::Window,
                    What::Window(Box::new(Window { end: list.len() as i64, ..Window::default() })),
                ),
                Value::ZSet(_) => (Cursor::Behind(None), What::Parts(Box::default())),
                Value::Stream(_) => (Cursor::After(None), What::Parts(Box::default())),
                _ => (Cursor::Below(usize::MAX), What::Parts(Box::default())),
            };
            change = what;
            let big = Big { parts, is_list, has_times: false, former, building: Some(building) };
            self.big.insert(name.clone(), big);
        }
        let big = self.big.get_mut(name).expect("it was there or has just been put there");
        if !big.build(value, &mut change, limit, batch) {
            return Some(change);
        }
        match change {
            What::Parts(changed) => big.write_changed(value, &changed, batch),
            What::Window(window) => big.write_window(value, &window, batch),
            What::Whole => unreachable!("a whole change was made one of parts above"),
        }
        None
    }
}

impl Big {
    /// Writes more elements of a new version; whether all are written.
    fn build(&mut self, value: &Value, change: &mut What, limit: usize, batch: &mut CheckpointBatch) -> bool {
        let version = self.parts.version;
        let Some(cursor) = &mut self.building else { return true };
        let done = match (cursor, value) {
            (Cursor::Below(at), Value::Hash(hash)) => below(at, hash.len(), limit, batch, |at, batch| {
                if let Some((field, value)) = hash.at(at) {
                    batch.put(part_key(version, field), value.to_vec());
                    put_time(version, hash, field, &mut self.has_times, batch);
                }
            }),
            (Cursor::Below(at), Value::Set(set)) => {
                // What is kept in order moves upwards, too.
                let limit = if set.is_ordered() { usize::MAX } else { limit };
                below(at, set.len(), limit, batch, |at, batch| {
                    set.at(at)
                        .into_iter()
                        .for_each(|member| batch.put(part_key(version, &member), Vec::new()));
                })
            }
            (Cursor::Behind(last), Value::ZSet(zset)) => {
                let mut rank = last.as_ref().map_or(0, |(score, member)| rank_behind(zset, *score, member));
                while batch.bytes < limit
                    && let Some((member, score)) = zset.select(rank)
                {
                    batch.put(part_key(version, member), score.to_le_bytes().to_vec());
                    *last = Some((score, member.into()));
                    rank += 1;
                }
                rank >= zset.len()
            }
            (Cursor::After(last), Value::Stream(stream)) => loop {
                let behind = last.as_ref().map(|last| Part::decoded(last));
                let behind = behind.transpose().expect("it was encoded in the round before");
                let Some(part) = stream.part_after(behind) else { break true };
                if batch.bytes >= limit {
                    break false;
                }
                let name = part.encoded();
                batch.put(part_key(version, &name), stream.part(part).unwrap_or_default());
                *last = Some(name);
            },
            (Cursor::Window, Value::List(list)) => {
                if let What::Window(window) = change {
                    while batch.bytes < limit && window.high < window.end {
                        put_element(version, list, window, window.high, batch);
                        window.high += 1;
                    }
                    // Elements that left the list meanwhile are on disk, and must go when all is written.
                    let end = window.high.max(self.parts.first + self.parts.count.cast_signed());
                    self.parts.count = (end - self.parts.first).cast_unsigned();
                    window.high == window.end
                } else {
                    true
                }
            }
            _ => true,
        };
        if done {
            self.building = None;
        }
        done
    }

    fn write_changed(
        &mut self,
        value: &Value,
        changed: &HashSet<Box<[u8]>, RandomState>,
        batch: &mut CheckpointBatch,
    ) {
        let version = self.parts.version;
        for part in changed {
            let held = match value {
                Value::Hash(hash) => hash.get(part).map(<[u8]>::to_vec),
                Value::Set(set) => set.contains(part).then(Vec::new),
                Value::ZSet(zset) => zset.score(part).map(|score| score.to_le_bytes().to_vec()),
                Value::Stream(stream) => Part::decoded(part).ok().and_then(|part| stream.part(part)),
                Value::String(_) | Value::List(_) | Value::Json(_) => None,
            };
            match held {
                Some(held) => batch.put(part_key(version, part), held),
                None => batch.delete(part_key(version, part)),
            }
            if let Value::Hash(hash) = value {
                put_time(version, hash, part, &mut self.has_times, batch);
            }
        }
        self.parts.count = match value {
            Value::Hash(hash) => hash.len() as u64,
            Value::Set(set) => set.len() as u64,
            Value::ZSet(zset) => zset.len() as u64,
            Value::Stream(stream) => stream.part_count() as u64,
            Value::String(_) | Value::List(_) | Value::Json(_) => 0,
        };
        if let Value::Hash(hash) = value {
            self.parts.first = hash.expiring() as i64;
            self.has_times = self.parts.first > 0;
        }
    }

    fn write_window(&mut self, value: &Value, window: &Window, batch: &mut CheckpointBatch) {
        let Value::List(list) = value else { return };
        let Parts { version, count, first } = self.parts;
        let missing = (window.first..window.low).chain(window.high..window.end);
        for index in missing.chain(window.set.range(window.low..window.high).copied()) {
            put_element(version, list, window, index, batch);
        }
        let on_disk = first..first + count.cast_signed();
        for index in on_disk.filter(|index| !(window.first..window.end).contains(index)) {
            batch.delete(part_key(version, &index_part(index)));
        }
        self.parts.first = window.first;
        self.parts.count = (window.end - window.first).cast_unsigned();
    }
}

/// Puts elements at positions from `at` downwards; whether it came to the end. Elements that are there all the time
/// can only move downwards, so none is missed.
fn below(
    at: &mut usize,
    len: usize,
    limit: usize,
    batch: &mut CheckpointBatch,
    mut put: impl FnMut(usize, &mut CheckpointBatch),
) -> bool {
    *at = (*at).min(len);
    while *at > 0 && batch.bytes < limit {
        *at -= 1;
        put(*at, batch);
    }
    *at == 0
}

/// Puts when `field` expires, or removes what the disk may have of that.
fn put_time(version: u64, hash: &Hash, field: &[u8], has_times: &mut bool, batch: &mut CheckpointBatch) {
    match hash.expiry(field) {
        Some(at) => {
            let mut time = Vec::new();
            put_number(at.get(), &mut time);
            batch.put(time_key(version, field), time);
            *has_times = true;
        }
        None if *has_times => batch.delete(time_key(version, field)),
        None => {}
    }
}

/// The rank of the first member behind this score and member.
fn rank_behind(zset: &ZSet, score: f64, member: &[u8]) -> usize {
    let (mut low, mut high) = (0, zset.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let is_behind = zset
            .select(middle)
            .is_none_or(|(held, held_score)| held_score > score || (held_score == score && *held > *member));
        if is_behind { high = middle } else { low = middle + 1 }
    }
    low
}

fn put_element(version: u64, list: &List, window: &Window, index: i64, batch: &mut CheckpointBatch) {
    let at = usize::try_from(index - window.first).unwrap_or(usize::MAX);
    if let Some(element) = list.get(at) {
        batch.put(part_key(version, &index_part(index)), element.to_vec());
    }
}
