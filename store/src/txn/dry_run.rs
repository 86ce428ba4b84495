//! What a transaction would have changed, found by rolling it back.

use std::borrow::Cow;
use std::collections::HashSet;

use store_engine::keyspace::{Entry, Key};
use store_engine::value::json::{Layout, Printer};
use store_engine::value::stream::Id;
use store_engine::{UndoLog, Value, Work, number};

use super::LocalTransaction;

/// Elements of a value that are shown.
const MOST_ELEMENTS: usize = 10;
/// Bytes of an element that are shown.
const MOST_BYTES: usize = 256;

/// A key that was changed, or a database.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its database.
    pub db: usize,
    /// Its bytes. `None`: the database was emptied or exchanged, and its length is its number of keys.
    pub key: Option<Key>,
    /// What was there before.
    pub before: Option<Preview>,
    /// What was there afterwards.
    pub after: Option<Preview>,
}

/// A value in short.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// As TYPE names it.
    pub type_name: Cow<'static, str>,
    /// Bytes of a string, elements of a collection, elements or members of a document's root.
    pub length: usize,
    /// When it expires, in Unix milliseconds.
    pub expire_at_ms: Option<u64>,
    /// Whether it has the mark of STICK.
    pub sticky: bool,
    /// Its first elements, as its type's command to read all of it would list them, each cut to some bytes.
    pub elements: Vec<Vec<u8>>,
}

impl Preview {
    pub(crate) fn of(entry: &Entry, now_ms: u64) -> Preview {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(MOST_BYTES)].to_vec();
        let pairs = |first: &[u8], second: &[u8]| [cut(first), cut(second)];
        let (length, elements): (usize, Vec<Vec<u8>>) = match &entry.value {
            Value::String(text) => (text.len(), vec![cut(&text.as_bytes())]),
            Value::List(list) => (list.len(), list.iter_from(0).take(MOST_ELEMENTS).map(cut).collect()),
            Value::Hash(hash) => {
                let fields = hash.live(now_ms).iter().take(MOST_ELEMENTS);
                (hash.live(now_ms).len(), fields.flat_map(|(field, value)| pairs(field, value)).collect())
            }
            Value::Set(set) => {
                (set.len(), set.iter().take(MOST_ELEMENTS).map(|member| cut(&member)).collect())
            }
            Value::ZSet(zset) => {
                let scored = |(member, score): (&[u8], f64)| {
                    let mut text = Vec::new();
                    number::push_f64(&mut text, score);
                    pairs(member, &text)
                };
                (zset.len(), zset.iter_from(0).take(MOST_ELEMENTS).flat_map(scored).collect())
            }
            Value::Stream(stream) => {
                let entries = stream.range(Id::MIN, Id::MAX).take(MOST_ELEMENTS);
                let texts = entries.flat_map(|entry| {
                    let fields =
                        entry.pairs().flat_map(|(name, value)| [cut(&name.text()), cut(&value.text())]);
                    [entry.id.spelled().to_vec()].into_iter().chain(fields)
                });
                (stream.len(), texts.collect())
            }
            Value::Json(json) => {
                let (mut text, work) = (Vec::new(), Work::unlimited());
                Printer::new(&mut text, Layout::default(), MOST_BYTES, &work).node(json.root());
                (json.root().len(), vec![cut(&text)])
            }
        };
        let type_name = entry.value.type_name().into();
        let expire_at_ms = entry.expire_at_ms.map(u64::from);
        Preview { type_name, length, expire_at_ms, sticky: entry.sticky, elements }
    }

    fn of_database(keys: usize) -> Preview {
        let type_name = "database".into();
        Preview { type_name, length: keys, expire_at_ms: None, sticky: false, elements: Vec::new() }
    }
}

/// What was taken back.
#[derive(Default)]
pub(crate) struct DryRunChanges {
    /// Keys in the order of their first change.
    pub keys: Vec<Change>,
    /// How many more there were.
    pub omitted: usize,
    /// Keys of each database before and afterwards, if databases were emptied or exchanged.
    pub databases: Vec<(usize, usize)>,
}

impl DryRunChanges {
    /// With what was rolled back elsewhere, of which no more than `most` keys are listed.
    pub fn add(&mut self, other: DryRunChanges, most: usize) {
        self.keys.extend(other.keys);
        let more = self.keys.len().saturating_sub(most);
        self.keys.truncate(most);
        self.omitted += other.omitted + more;
        self.databases.resize(self.databases.len().max(other.databases.len()), (0, 0));
        for (sum, (before, after)) in self.databases.iter_mut().zip(other.databases) {
            *sum = (sum.0 + before, sum.1 + after);
        }
    }

    /// All that was changed, and how many keys more. Whole databases come last.
    pub fn all_changes(self) -> (Vec<Change>, usize) {
        let mut changes = self.keys;
        let changed = self.databases.into_iter().enumerate().filter(|(_, (before, after))| before != after);
        changes.extend(changed.map(|(db, (before, after))| Change {
            db,
            key: None,
            before: Some(Preview::of_database(before)),
            after: Some(Preview::of_database(after)),
        }));
        (changes, self.omitted)
    }
}

/// The keys that a log is about, in the order of their first change, and how many more than `most` there are.
pub(crate) fn changed_keys(undo: &UndoLog, most: usize) -> (Vec<(usize, Key)>, usize) {
    let mut seen = HashSet::new();
    let keys = undo.keys().filter(|(db, key)| seen.insert((*db, *key)));
    let mut keys: Vec<(usize, Key)> = keys.map(|(db, key)| (db, key.into())).collect();
    let omitted = keys.len().saturating_sub(most);
    keys.truncate(most);
    (keys, omitted)
}

/// Changes of these keys: what is under them now, and what was under them before is to come.
pub(crate) fn changes_of(
    keys: Vec<(usize, Key)>,
    preview: impl Fn(usize, &[u8]) -> Option<Preview>,
) -> Vec<Change> {
    let change = |(db, key): (usize, Key)| {
        let after = preview(db, &key);
        Change { db, key: Some(key), before: None, after }
    };
    keys.into_iter().map(change).collect()
}

/// Adds what was there before, now that it is there again.
pub(crate) fn add_before(changes: &mut [Change], preview: impl Fn(usize, &[u8]) -> Option<Preview>) {
    for change in changes {
        change.before = change.key.as_deref().and_then(|key| preview(change.db, key));
    }
}

impl LocalTransaction {
    /// Rolls the present part back, and returns up to `most` of the keys it had changed, in the order of their first
    /// change, and how many more there were. Whole databases come last.
    pub fn undo_part_with_changes(&mut self, most: usize) -> (Vec<Change>, usize) {
        self.dry_run_changes(most).all_changes()
    }

    /// The same, in parts.
    pub(crate) fn dry_run_changes(&mut self, most: usize) -> DryRunChanges {
        let (keys, omitted) = changed_keys(&self.undo, most);
        let everywhere = self.undo.is_everywhere();
        let counts =
            |txn: &LocalTransaction| if everywhere { txn.node.usage().keys.to_vec() } else { Vec::new() };
        let mut keys = changes_of(keys, |db, key| self.preview(db, key));
        let after = counts(self);
        self.undo_part();
        add_before(&mut keys, |db, key| self.preview(db, key));
        DryRunChanges { keys, omitted, databases: counts(self).into_iter().zip(after).collect() }
    }

    /// What is under a key that this transaction has locked.
    fn preview(&self, db: usize, key: &[u8]) -> Option<Preview> {
        let shard = self.node.shard(self.node.shard_of(key)).lock();
        shard.partition.databases[db].peek(key, self.now_ms).map(|entry| Preview::of(entry, self.now_ms))
    }
}
