//! What a replica does that does not lead: it applies what its group has committed.

use std::sync::Arc;

use store_engine::Effects;
use store_engine::codec::Malformed;
use store_engine::effect::{CATALOG, Effect};
use store_engine::{Value, effect};

use super::entry::Entry;
use crate::node::Node;
use crate::shard::partitions_of;

impl Node {
    /// Applies the records of an entry that this node does not have yet. The one before the first
    /// must be there. An error: a record is damaged.
    pub(super) fn apply_committed(&self, entry: &Entry<'_>) -> Result<(), Malformed> {
        let Some(journal) = self.journal() else { return Err(Malformed) };
        if let Some(group) = journal.group() {
            group.report(|progress| progress.committed = progress.committed.max(entry.last()));
        }
        for record in entry.records() {
            let (number, record) = record?;
            if number > journal.newest() {
                self.apply_record(record)?;
            }
        }
        Ok(())
    }

    fn apply_record(&self, record: &[u8]) -> Result<(), Malformed> {
        // The catalog first, as a leader does it.
        let mut catalog = self.catalog.lock();
        let mut shards = Vec::new();
        for effect in Effects::read(record) {
            let (db, key, effect) = effect?;
            match effect {
                _ if db == CATALOG => {}
                Effect::Flush | Effect::Swap(_) => shards.extend(0..self.shards()),
                Effect::Rename(_, to) => shards.extend([self.shard_of(key), self.shard_of(to)]),
                _ => shards.push(self.shard_of(key)),
            }
        }
        shards.sort_unstable();
        shards.dedup();
        let mut guards = self.lock_shards(&shards);
        for effect in Effects::read(record) {
            let (db, key, effect) = effect?;
            match effect {
                Effect::Remove if db == CATALOG => drop(catalog.remove(key)),
                Effect::Put(put) if db == CATALOG => drop(catalog.insert(key.into(), text_of(put)?)),
                effect => effect.apply(db, key, &mut partitions_of(&mut guards, self.shards()))?,
            }
        }
        if let Some(journal) = self.journal() {
            journal.append_committed(record);
        }
        Ok(())
    }
}

/// The content of a record of the catalog.
fn text_of(put: effect::Put<'_>) -> Result<Arc<[u8]>, Malformed> {
    match put.entry()?.value {
        Value::String(text) => Ok(text.as_bytes().into()),
        _ => Err(Malformed),
    }
}
