//! What a server keeps beside the data: loaded scripts, libraries, settings. Named records without a type, journalled
//! and checkpointed like keys, of a database that no client can select.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store_engine::effect::{CATALOG, Effect, Effects, EntryMeta};

use crate::node::Node;

/// Changes of records that are made with the journal record of a transaction. Before that the catalog does not have them.
#[derive(Default)]
pub(crate) struct CatalogChanges(Vec<CatalogChange>);

/// The name of a record, and what it becomes; `None`: it is dropped.
type CatalogChange = (Vec<u8>, Option<Arc<[u8]>>);

impl CatalogChanges {
    /// Keeps a record, in place of the one before.
    pub fn put(&mut self, name: &[u8], record: &[u8]) {
        self.0.push((name.to_vec(), Some(record.into())));
    }

    /// Forgets a record.
    pub fn remove(&mut self, name: &[u8]) {
        self.0.push((name.to_vec(), None));
    }
}

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

    /// Records `effects` together with changes of records: one is on disk if the other is.
    pub(crate) fn record_with(&self, effects: &mut Effects, changes: CatalogChanges) {
        if changes.0.is_empty() {
            return self.record(effects);
        }
        // Held until the journal has them: what a checkpoint contains must not be missing there.
        let mut catalog = self.catalog.lock();
        for (name, record) in changes.0 {
            match record {
                Some(record) => {
                    effects.put_string(CATALOG, &name, &record, EntryMeta::default());
                    catalog.insert(name, record);
                }
                None => {
                    effects.push(CATALOG, &name, Effect::Remove);
                    catalog.remove(&name);
                }
            }
        }
        self.record(effects);
    }

    /// Forgets a record.
    pub(crate) fn drop_record(&self, name: &[u8]) {
        let mut changes = CatalogChanges::default();
        changes.remove(name);
        self.record_with(&mut Effects::default(), changes);
    }

    /// Keeps records and forgets others, as one change; names are given without `prefix`.
    pub fn change_records(&self, prefix: &[u8], records: &[(Vec<u8>, Vec<u8>)], gone: &[Vec<u8>]) {
        let mut changes = CatalogChanges::default();
        for name in gone {
            changes.remove(&[prefix, name].concat());
        }
        for (name, record) in records {
            changes.put(&[prefix, name].concat(), record);
        }
        self.record_with(&mut Effects::default(), changes);
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
