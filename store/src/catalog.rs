//! What a server keeps beside the data: loaded scripts, libraries, settings. Named records without a type, journalled
//! and checkpointed like keys, of a database that no client can select.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use store_engine::effect::{CATALOG, Effect, Effects, Marks};

use crate::node::Node;

/// Records by name.
pub(crate) type Catalog = Mutex<BTreeMap<Vec<u8>, Arc<[u8]>>>;

impl Node {
    /// Keeps a record under this name, in place of the one before; whether that changed anything.
    pub fn put_record(&self, name: &[u8], record: &[u8]) -> bool {
        let mut catalog = self.catalog.lock();
        if catalog.get(name).is_some_and(|held| **held == *record) {
            return false;
        }
        catalog.insert(name.into(), record.into());
        let mut effects = Effects::default();
        effects.put_string(CATALOG, name, record, Marks::default());
        self.record(&mut effects);
        true
    }

    /// Forgets the records whose names begin with `prefix`.
    pub fn remove_records(&self, prefix: &[u8]) {
        let mut catalog = self.catalog.lock();
        let mut effects = Effects::default();
        catalog.retain(|name, _| {
            let goes = name.starts_with(prefix);
            if goes {
                effects.push(CATALOG, name, Effect::Remove);
            }
            !goes
        });
        self.record(&mut effects);
    }

    /// The records whose names begin with `prefix`, in the order of their names, which are given without it.
    pub fn records(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Arc<[u8]>)> {
        let catalog = self.catalog.lock();
        let found = catalog.range(prefix.to_vec()..).take_while(|(name, _)| name.starts_with(prefix));
        found.map(|(name, record)| (name[prefix.len()..].to_vec(), record.clone())).collect()
    }
}
