//! WATCH: keys of which a client is to know whether they have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store_engine::CommandError;

use super::Store;
use crate::client::WatchId;

/// How it is known whether a watched key has changed.
pub enum Watch {
    /// Raised when the key changed.
    Local(Arc<AtomicBool>),
    /// Nodes in other processes know; a transaction asks them.
    Remote(WatchId),
}

impl Watch {
    /// Whether the key has changed, as far as that is known in this process.
    pub fn is_broken(&self) -> bool {
        self.flag().is_some_and(|changed| changed.load(Ordering::Relaxed))
    }

    /// Raised when the key changes, if that is known in this process.
    pub fn flag(&self) -> Option<&Arc<AtomicBool>> {
        match self {
            Watch::Local(changed) => Some(changed),
            Watch::Remote(_) => None,
        }
    }

    /// By which a transaction asks other nodes.
    pub fn remote(&self) -> Option<WatchId> {
        match self {
            Watch::Local(_) => None,
            Watch::Remote(watch) => Some(*watch),
        }
    }
}

impl Store {
    /// Watches a key. `now_ms`: Unix time in milliseconds.
    pub async fn watch(&self, db: usize, key: &[u8], now_ms: u64) -> Result<Watch, CommandError> {
        match self {
            Store::Local(node) => {
                let changed = Arc::new(AtomicBool::new(false));
                node.watch(db, key, now_ms, &changed);
                Ok(Watch::Local(changed))
            }
            Store::Distributed(cluster) => Ok(Watch::Remote(cluster.watch(db, key).await?)),
        }
    }

    /// Ends a watch.
    pub fn unwatch(&self, db: usize, key: &[u8], watch: Watch) {
        match (watch, self) {
            (Watch::Local(changed), Store::Local(node)) if !changed.load(Ordering::Relaxed) => {
                node.unwatch(db, key, &changed);
            }
            (Watch::Remote(watch), Store::Distributed(cluster)) => cluster.unwatch(watch),
            _ => {}
        }
    }

    /// Removes a key that has expired, which breaks its watches; nodes in other processes see that by themselves. Whether
    /// the key had expired.
    pub fn refresh(&self, db: usize, key: &[u8], now_ms: u64) -> bool {
        self.node().is_some_and(|node| node.refresh(db, key, now_ms))
    }
}
