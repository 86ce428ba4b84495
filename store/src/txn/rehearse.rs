//! What a transaction would have changed, told by one that is taken back.

use std::collections::HashSet;

use store_engine::keyspace::{Entry, Key};
use store_engine::value::stream::Id;
use store_engine::{Value, number};

use super::Transaction;

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
    pub type_name: &'static str,
    /// Bytes of a string, elements of a collection.
    pub length: usize,
    /// When it expires, in Unix milliseconds.
    pub expire_at_ms: Option<u64>,
    /// Whether it has the mark of STICK.
    pub sticky: bool,
    /// Its first elements, as its type's command to read all of it would list them, each cut to some bytes.
    pub elements: Vec<Vec<u8>>,
}

impl Preview {
    fn of(entry: &Entry) -> Preview {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(MOST_BYTES)].to_vec();
        let pairs = |first: &[u8], second: &[u8]| [cut(first), cut(second)];
        let (length, elements): (usize, Vec<Vec<u8>>) = match &entry.value {
            Value::String(text) => (text.len(), vec![cut(&text.as_bytes())]),
            Value::List(list) => (list.len(), list.iter_from(0).take(MOST_ELEMENTS).map(cut).collect()),
            Value::Hash(hash) => {
                let fields = hash.iter().take(MOST_ELEMENTS);
                (hash.len(), fields.flat_map(|(field, value)| pairs(field, value)).collect())
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
        };
        let type_name = entry.value.type_name();
        let expire_at_ms = entry.expire_at_ms.map(u64::from);
        Preview { type_name, length, expire_at_ms, sticky: entry.sticky, elements }
    }

    fn of_database(keys: usize) -> Preview {
        let type_name = "database";
        Preview { type_name, length: keys, expire_at_ms: None, sticky: false, elements: Vec::new() }
    }
}

impl Transaction {
    /// Takes the present part back, and tells of up to `most` of the keys it had changed, in the order of their first
    /// change, and how many more there were. Whole databases come last.
    pub fn undo_part_telling(&mut self, most: usize) -> (Vec<Change>, usize) {
        let mut seen = HashSet::new();
        let changed: Vec<(usize, Key)> = self
            .undo
            .keys()
            .filter(|(db, key)| seen.insert((*db, *key)))
            .map(|(db, key)| (db, key.into()))
            .collect();
        let everywhere = self.undo.is_everywhere();
        let counts = |txn: &Transaction| if everywhere { txn.node.usage().keys.to_vec() } else { Vec::new() };
        let omitted = changed.len().saturating_sub(most);
        let told = &changed[..changed.len() - omitted];

        let after: Vec<Option<Preview>> = told.iter().map(|(db, key)| self.preview(*db, key)).collect();
        let keys_after = counts(self);
        self.undo_part();
        let keys_before = counts(self);

        let tell = |((db, key), after): (&(usize, Key), Option<Preview>)| Change {
            db: *db,
            key: Some(key.clone()),
            before: self.preview(*db, key),
            after,
        };
        let mut changes: Vec<Change> = told.iter().zip(after).map(tell).collect();
        let databases = keys_before.into_iter().zip(keys_after).enumerate();
        changes.extend(databases.filter(|(_, (before, after))| before != after).map(
            |(db, (before, after))| Change {
                db,
                key: None,
                before: Some(Preview::of_database(before)),
                after: Some(Preview::of_database(after)),
            },
        ));
        (changes, omitted)
    }

    /// What is under a key that this transaction has locked.
    fn preview(&self, db: usize, key: &[u8]) -> Option<Preview> {
        let shard = self.node.shard(self.node.shard_of(key)).lock();
        shard.partition.databases[db].peek(key, self.now_ms).map(Preview::of)
    }
}
