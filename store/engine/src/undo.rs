//! How to take back what a transaction did.
//!
//! Every change that an editor of [`crate::edit`] or [`crate::Ctx`] makes while a log is present leaves one
//! record here: the smallest fact that restores what was before. Records are applied newest first. There are
//! no savepoints, so once a record restores a whole key, later changes of that key need none.

use std::num::NonZeroU64;

use crate::Value;
use crate::bytes_eq::bytes_eq;
use crate::chunked_stack::Pieces;
use crate::dense::Key;
use crate::discard::discard;
use crate::entry::Entry;
use crate::keyspace::Keyspace;
use crate::partition::Partitions;
use crate::steps::BYTES_PER_STEP;
use crate::value::json::Edit;
use crate::value::stream::{Group, Id, Meta, Part};
use crate::value::{List, Str, Stream, Taken};
use crate::watch::BrokenWatch;

/// One step back.
#[derive(Debug)]
pub enum Undo {
    /// Put this entry (or nothing) in the key's place.
    Entry(Option<Entry>),
    /// Put this entry back to this position.
    Removed(usize, Entry),
    /// Take the entry back to this position from the key with this number in the log, to which it was moved and
    /// whose own record is older.
    Moved(usize, u32),
    /// The string was this one; its expiry stays as it is.
    Text(Str),
    /// Restore the expiry.
    Expiry(Option<NonZeroU64>),
    /// Restore the mark of STICK.
    Sticky(bool),
    /// Give the string this length again, after an append.
    Truncate(StringSize),
    /// Write these bytes at this offset again, then cut to this length.
    Overwrite(usize, Box<[u8]>, StringSize),
    /// Remove that many elements at the front (`true`) or back.
    ListUnpush(bool, usize),
    /// Put this element back at the front (`true`) or back.
    ListRepush(bool, Taken),
    /// Put these elements, in the order of the list, back at the front (`true`) or back.
    ListUntrim(bool, Vec<Box<[u8]>>),
    /// These elements stood at these positions, ascending.
    ListUnpick(Vec<(usize, Box<[u8]>)>),
    /// The element at this position was another.
    ListSet(usize, Box<[u8]>),
    /// An element was inserted at this position.
    ListInserted(usize),
    /// This element stood at this position.
    ListRemoved(usize, Box<[u8]>),
    /// The field had this value, or was not there.
    HashField(Box<[u8]>, Option<Box<[u8]>>),
    /// This field with this value was removed from this position.
    HashRemoved(usize, Box<[u8]>, Box<[u8]>),
    /// The field, which is there, expired then, or not at all.
    HashExpiry(Box<[u8]>, Option<NonZeroU64>),
    /// The member was not there.
    SetAdded(Box<[u8]>),
    /// The member was removed from this position.
    SetRemoved(usize, Box<[u8]>),
    /// The member had this score, or was not there.
    ZSetMember(Box<[u8]>, Option<f64>),
    /// Something of a stream.
    Stream(Box<StreamUndo>),
    /// Change the document back by this.
    Json(Box<Edit>),
}

/// One step back in a stream.
#[derive(Debug)]
pub enum StreamUndo {
    /// The node of this ID did not exist, or ended there, and this was known of the stream.
    Added(Id, Option<(usize, usize)>, Meta),
    /// In the node of the first ID this entry was not marked as deleted.
    Deleted(Id, Id),
    /// The part of this name had these bytes, or was not there.
    Part(Vec<u8>, Option<Vec<u8>>),
    /// There was this group.
    Group(Box<[u8]>, Group),
}

/// Length and capacity of a string: the byte account counts what is allocated.
#[derive(Clone, Copy, Debug)]
pub struct StringSize {
    /// Bytes in use.
    pub len: usize,
    /// Bytes allocated.
    pub capacity: usize,
}

fn restore_size(raw: &mut Vec<u8>, size: StringSize) {
    raw.truncate(size.len);
    raw.shrink_to(size.capacity);
}

/// The key of this number, which is in the log with the first record that names it.
fn key_at(keys: &Pieces<(usize, Key)>, number: u32) -> &(usize, Key) {
    keys.get(number as usize).expect("the key of every record is in the log")
}

#[derive(Debug)]
enum Record {
    /// What happened to the key of this number.
    Key(u32, Undo),
    /// All that this database of this partition held was removed.
    Flushed(usize, usize, Box<Keyspace>),
    /// These databases were exchanged in all partitions.
    Swapped(usize, usize),
}

/// The records of one transaction, oldest first.
#[derive(Default, Debug)]
pub struct UndoLog {
    keys: Pieces<(usize, Key)>,
    records: Pieces<Record>,
    everywhere: bool,
    /// Whether the newest record restores its whole key.
    whole: bool,
    bytes: usize,
    /// Changes beyond the first that records have taken in.
    merged: usize,
    broken: Vec<BrokenWatch>,
}

impl UndoLog {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.broken.is_empty()
    }

    /// Watches that are broken if the changes stay.
    pub(crate) fn broken(&mut self) -> &mut Vec<BrokenWatch> {
        &mut self.broken
    }

    /// The changes stay: those who watch a key are told.
    pub fn notify_watchers(&mut self) {
        self.broken.drain(..).for_each(BrokenWatch::raise_flags);
    }

    /// Takes the keys that were changed, in the order of their first change; for whoever keeps the changes, and then has
    /// only to drop the rest.
    pub fn take_keys(&mut self) -> Pieces<(usize, Key)> {
        std::mem::take(&mut self.keys)
    }

    /// About how many steps it takes to roll it back.
    pub fn steps(&self) -> usize {
        self.records.len() + self.merged + self.bytes / BYTES_PER_STEP
    }

    /// Bytes held by the records, roughly: what a transaction's undo may cost is bounded by its caller.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the newest record restores all of `key` already.
    pub(crate) fn covers(&self, db: usize, key: &[u8]) -> bool {
        self.whole && self.keys.last().is_some_and(|(held_db, held)| *held_db == db && bytes_eq(held, key))
    }

    /// Adds a record of a database that was emptied in one partition.
    pub(crate) fn push_flushed(&mut self, partition: usize, db: usize, held: Keyspace) {
        self.bytes += held.bytes();
        self.push_everywhere(Record::Flushed(partition, db, Box::new(held)));
    }

    /// Adds a record of two databases that were exchanged in all partitions.
    pub(crate) fn push_swapped(&mut self, first: usize, second: usize) {
        self.push_everywhere(Record::Swapped(first, second));
    }

    fn push_everywhere(&mut self, record: Record) {
        self.everywhere = true;
        self.whole = false;
        self.bytes += size_of::<Record>();
        self.records.push(record);
    }

    /// Adds a record of an entry that was moved from `key`, where it stood at `at`, to the key of the newest
    /// record.
    pub(crate) fn push_moved(&mut self, db: usize, key: &[u8], at: usize) {
        let to = self.keys.len().saturating_sub(1) as u32;
        self.push(db, key, Undo::Moved(at, to));
    }

    /// The entry that was removed last from `key` stood at `at`, and not where the record says: a detached entry does not
    /// know its position.
    pub fn relocate(&mut self, db: usize, key: &[u8], at: usize) {
        let keys = &self.keys;
        let removed = self.records.iter_mut().rev().find_map(|record| match record {
            Record::Key(number, Undo::Removed(at, _)) => {
                let (held_db, held) = key_at(keys, *number);
                (*held_db == db && **held == *key).then_some(at)
            }
            _ => None,
        });
        if let Some(held) = removed {
            *held = at;
        }
    }

    /// Adds a record for `key`.
    pub(crate) fn push(&mut self, db: usize, key: &[u8], undo: Undo) {
        let again = self.keys.last().is_some_and(|(held_db, held)| *held_db == db && bytes_eq(held, key));
        if !again {
            self.keys.push((db, key.into()));
            self.bytes += key.len() + size_of::<(usize, Key)>();
        }
        if again && self.whole {
            if let Undo::Removed(at, _) = undo {
                self.set_last_position(at);
            }
            return;
        }
        let counter_again = again
            && matches!(undo, Undo::Text(_))
            && matches!(self.records.last(), Some(Record::Key(_, Undo::Text(_))));
        if counter_again {
            return;
        }
        if again
            && let Undo::ListUnpush(front, more) = undo
            && let Some(Record::Key(_, Undo::ListUnpush(held, count))) = self.records.last_mut()
            && *held == front
        {
            *count += more;
            self.merged += more;
            return;
        }
        self.whole = matches!(undo, Undo::Entry(_) | Undo::Removed(..));
        self.bytes += size_of::<Record>() + undo.payload();
        self.records.push(Record::Key(self.keys.len() as u32 - 1, undo));
    }

    /// An entry that was replaced before has now lost its place too: it has to come back to that.
    fn set_last_position(&mut self, at: usize) {
        if let Some(Record::Key(_, undo)) = self.records.last_mut()
            && let Undo::Entry(old) = undo
            && let Some(entry) = old.take()
        {
            *undo = Undo::Removed(at, entry);
        }
    }

    /// Takes everything back, newest first. The partitions must hold [`UndoLog::touched`], and be all there are if
    /// [`UndoLog::is_everywhere`].
    pub fn roll_back(&mut self, partitions: &mut Partitions<'_>) {
        while self.roll_back_some(partitions, usize::MAX) {}
    }

    /// [`UndoLog::roll_back`] of so many records; whether there are more. The partitions may be unlocked in between.
    pub fn roll_back_some(&mut self, partitions: &mut Partitions<'_>, most: usize) -> bool {
        let is_watched = partitions.is_watched();
        if is_watched {
            partitions.hold_watches();
        }
        for _ in 0..most {
            match self.records.pop() {
                None => break,
                Some(Record::Key(key, Undo::Moved(at, to))) => {
                    let (to_db, to) = key_at(&self.keys, to);
                    let entry = partitions.keyspace(*to_db, to).hollow(to);
                    let (db, key) = key_at(&self.keys, key);
                    partitions.keyspace(*db, key).restore(at, key, entry);
                }
                Some(Record::Key(key, Undo::ListUnpush(front, count))) if count > most => {
                    self.records.push(Record::Key(key, Undo::ListUnpush(front, count - most)));
                    let (db, key) = key_at(&self.keys, key);
                    Undo::ListUnpush(front, most).apply(partitions.keyspace(*db, key), key);
                    break;
                }
                Some(Record::Key(key, undo)) => {
                    let (db, key) = key_at(&self.keys, key);
                    undo.apply(partitions.keyspace(*db, key), key);
                }
                Some(Record::Flushed(at, db, mut held)) => {
                    partitions.nth(at).databases[db].swap(&mut held);
                    let bytes = held.bytes();
                    discard(held, bytes);
                }
                Some(Record::Swapped(first, second)) => partitions.swap_databases(first, second),
            }
        }
        if is_watched {
            partitions.take_broken(&mut self.broken);
        }
        if !self.records.is_empty() {
            return true;
        }
        std::mem::take(self).broken.into_iter().for_each(|broken| partitions.restore_watches(broken));
        false
    }

    /// Adds the records of `newer`, which began when this log ended.
    pub fn append(&mut self, newer: UndoLog) {
        let base = self.keys.len() as u32;
        self.keys.extend(newer.keys);
        self.records.extend(newer.records.into_iter().map(|record| match record {
            Record::Key(key, Undo::Moved(at, to)) => Record::Key(key + base, Undo::Moved(at, to + base)),
            Record::Key(key, undo) => Record::Key(key + base, undo),
            other => other,
        }));
        self.everywhere |= newer.everywhere;
        self.bytes += newer.bytes;
        self.merged += newer.merged;
        self.broken.extend(newer.broken);
        // What was whole in either log need not be so in both.
        self.whole = false;
    }

    /// Whether something was done to all partitions and not only to [`UndoLog::keys`].
    pub fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// The keys that a roll-back has to reach.
    pub fn touched(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|(_, key)| &**key).chain(self.broken.iter().map(|broken| &*broken.key))
    }

    /// The keys that were changed, with their database.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.keys.iter().map(|(db, key)| (*db, &**key))
    }
}

impl Undo {
    fn payload(&self) -> usize {
        match self {
            Undo::Entry(entry) => entry.as_ref().map_or(0, |entry| entry.value.bytes()),
            Undo::Removed(_, entry) => entry.value.bytes(),
            Undo::Text(text) => text.bytes(),
            Undo::Overwrite(_, bytes, _)
            | Undo::ListSet(_, bytes)
            | Undo::ListRemoved(_, bytes)
            | Undo::SetAdded(bytes)
            | Undo::SetRemoved(_, bytes)
            | Undo::HashExpiry(bytes, _)
            | Undo::ZSetMember(bytes, _) => bytes.len(),
            Undo::ListRepush(_, element) => element.len(),
            Undo::HashRemoved(_, field, value) => field.len() + value.len(),
            Undo::ListUntrim(_, elements) => {
                elements.iter().map(|element| size_of::<Box<[u8]>>() + element.len()).sum()
            }
            Undo::ListUnpick(elements) => {
                elements.iter().map(|(_, element)| size_of::<(usize, Box<[u8]>)>() + element.len()).sum()
            }
            Undo::Stream(undo) => size_of::<StreamUndo>() + undo.payload(),
            Undo::Json(edit) => size_of::<Edit>() + edit.heap(),
            Undo::HashField(field, value) => field.len() + value.as_ref().map_or(0, |value| value.len()),
            Undo::Moved(..)
            | Undo::Expiry(_)
            | Undo::Sticky(_)
            | Undo::Truncate(_)
            | Undo::ListUnpush(..)
            | Undo::ListInserted(_) => 0,
        }
    }

    fn apply(self, space: &mut Keyspace, key: &[u8]) {
        let undo = match self {
            Undo::Entry(Some(entry)) => {
                space.insert(key, entry).into_iter().for_each(Entry::discard);
                return;
            }
            Undo::Entry(None) => {
                space.remove(key).into_iter().for_each(Entry::discard);
                return;
            }
            Undo::Removed(at, entry) => {
                space.restore(at, key, entry);
                return;
            }
            other => other,
        };
        // The key is there: the change this takes back left it in place, and later ones are already undone.
        // Time 0: an undo must reach entries that have expired meanwhile.
        let at = space.find(key, 0).expect("a changed key is there when its change is taken back");
        if let Undo::Expiry(old) = undo {
            space.set_expiry(at, old);
            return;
        }
        if let Undo::Sticky(old) = undo {
            space.set_sticky(at, old);
            return;
        }
        let value = space.value_mut(at);
        let before = value.bytes();
        undo.apply_to(value);
        let after = value.bytes();
        space.resized(at, before, after);
        space.note_expiry(at);
        space.touch_at(at);
    }

    fn apply_to(self, value: &mut Value) {
        match (self, value) {
            (Undo::Text(old), Value::String(text)) => *text = old,
            (Undo::Truncate(len), Value::String(text)) => restore_size(text.raw_mut(), len),
            (Undo::Overwrite(at, bytes, len), Value::String(text)) => {
                let raw = text.raw_mut();
                raw[at..at + bytes.len()].copy_from_slice(&bytes);
                restore_size(raw, len);
            }
            (undo, Value::List(list)) => undo.apply_to_list(list),
            (Undo::HashField(field, Some(old)), Value::Hash(hash)) => _ = hash.insert(&field, &old),
            (Undo::HashField(field, None), Value::Hash(hash)) => _ = hash.remove(&field),
            (Undo::HashRemoved(at, field, value), Value::Hash(hash)) => hash.restore(at, field, value),
            (Undo::HashExpiry(field, at), Value::Hash(hash)) => hash.set_expiry(&field, at),
            (Undo::SetAdded(member), Value::Set(set)) => drop(set.remove(&member)),
            (Undo::SetRemoved(at, member), Value::Set(set)) => set.restore(at, member),
            (Undo::ZSetMember(member, Some(score)), Value::ZSet(zset)) => drop(zset.insert(&member, score)),
            (Undo::ZSetMember(member, None), Value::ZSet(zset)) => drop(zset.remove(&member)),
            (Undo::Stream(undo), Value::Stream(stream)) => undo.apply_to(stream),
            (Undo::Json(edit), Value::Json(json)) => drop(json.apply(*edit)),
            (undo, value) => {
                unreachable!("{undo:?} was recorded for another type than {}", value.type_name())
            }
        }
    }

    fn apply_to_list(self, list: &mut List) {
        match self {
            Undo::ListUnpush(front, count) => (0..count).for_each(|_| drop(list.pop(front))),
            Undo::ListRepush(front, element) => list.push(front, &element),
            Undo::ListUntrim(front, elements) => list.untrim(front, elements),
            Undo::ListUnpick(elements) => list.unpick(elements),
            Undo::ListSet(at, old) => drop(list.set(at, &old)),
            Undo::ListInserted(at) => drop(list.remove(at)),
            Undo::ListRemoved(at, element) => list.insert(at, &element),
            undo => unreachable!("{undo:?} was recorded for another type than list"),
        }
    }
}

impl StreamUndo {
    fn payload(&self) -> usize {
        match self {
            StreamUndo::Added(..) | StreamUndo::Deleted(..) => 0,
            StreamUndo::Part(part, bytes) => part.len() + bytes.as_ref().map_or(0, Vec::len),
            StreamUndo::Group(name, group) => name.len() + group.bytes(),
        }
    }

    fn apply_to(self, stream: &mut Stream) {
        match self {
            StreamUndo::Added(own, extent, meta) => {
                match extent {
                    Some(extent) => drop(stream.change_node(own, |node| node.cut_back(extent))),
                    None => drop(stream.take_node(own)),
                }
                stream.set_meta(meta);
            }
            StreamUndo::Deleted(own, id) => drop(stream.change_node(own, |node| node.unmark(own, id))),
            StreamUndo::Part(part, bytes) => {
                let part = Part::decoded(&part).expect("it was encoded when this was recorded");
                match bytes {
                    Some(bytes) => {
                        stream.put_part(part, &bytes).expect("it was there when this was recorded");
                    }
                    None => stream.remove_part(part),
                }
            }
            StreamUndo::Group(name, group) => stream.put_group(&name, group),
        }
    }
}
