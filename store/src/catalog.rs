//! What a server keeps beside the data: loaded scripts, libraries, settings. Named records without a type, journalled
//! and checkpointed like keys, of a database that no client can select.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store_engine::effect::{CATALOG, Effect, Effects, EntryMeta};

use crate::node::Node;

impl Node {
    /// Keeps a record under this name, in place of the one before; whether that changed anything.
    pub fn put_record(&self, name: &[u8], record: &[u8]) -> bool {
        let mut catalog = self.catalog.lock();
        if catalog.get(name).is_some_and(|held| **held == *record) {
            return false;
        }
        catalog.insert(name.into(), record.into());
        let mut effects = Effects::default();
        effects.put_string(CATALOG, name, record, EntryMeta::default());
        self.record(&mut effects);
        true
    }

    /// Keeps a record, or forgets it, together with the changes of a transaction: one is kept if the other is.
    pub(crate) fn record_with(&self, effects: &mut Effects, name: &[u8], record: Option<&[u8]>) {
        let mut catalog = self.catalog.lock();
        match record {
            Some(record) => {
                catalog.insert(name.into(), record.into());
                effects.put_string(CATALOG, name, record, EntryMeta::default());
            }
            None => {
                catalog.remove(name);
                effects.push(CATALOG, name, Effect::Remove);
            }
        }
    }

    /// Forgets a record.
    pub(crate) fn drop_record(&self, name: &[u8]) {
        let mut effects = Effects::default();
        self.record_with(&mut effects, name, None);
        self.record(&mut effects);
    }

    /// Keeps records and forgets others, as one change; names are given without `prefix`.
    pub fn change_records(&self, prefix: &[u8], records: &[(Vec<u8>, Vec<u8>)], gone: &[Vec<u8>]) {
        let mut effects = Effects::default();
        for name in gone {
            self.record_with(&mut effects, &[prefix, name].concat(), None);
        }
        for (name, record) in records {
            self.record_with(&mut effects, &[prefix, name].concat(), Some(record));
        }
        self.record(&mut effects);
    }

    /// Makes these the records whose names begin with `prefix`, without which they are given, and forgets others.
    pub fn set_records<'a>(&self, prefix: &[u8], records: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
        let mut catalog = self.catalog.lock();
        let mut effects = Effects::default();
        let mut goes: BTreeSet<Vec<u8>> = names(&catalog, prefix).map(|(name, _)| name.clone()).collect();
        for (name, record) in records {
            let name = [prefix, name].concat();
            goes.remove(&name);
            if catalog.get(&name).is_none_or(|held| **held != *record) {
                effects.put_string(CATALOG, &name, record, EntryMeta::default());
                catalog.insert(name, record.into());
            }
        }
        for name in goes {
            effects.push(CATALOG, &name, Effect::Remove);
            catalog.remove(&name);
        }
        self.record(&mut effects);
    }

    /// The records whose names begin with `prefix`, in the order of their names, which are given without it.
    pub fn records(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Arc<[u8]>)> {
        let catalog = self.catalog.lock();
        let found = names(&catalog, prefix);
        found.map(|(name, record)| (name[prefix.len()..].to_vec(), record.clone())).collect()
    }
}

fn names<'a>(
    catalog: &'a BTreeMap<Vec<u8>, Arc<[u8]>>,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a Vec<u8>, &'a Arc<[u8]>)> {
    catalog.range(prefix.to_vec()..).take_while(move |(name, _)| name.starts_with(prefix))
}
