//! How many bytes all shards hold, for those who may not lock them all to ask.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The account of a node. It is kept only while there is a limit: then every change of a shard's size is added
/// before the shard is unlocked.
#[derive(Default)]
pub(crate) struct Account {
    kept: AtomicBool,
    bytes: AtomicUsize,
}

impl Account {
    /// Bytes of all shards; 0 while no account is kept.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it is kept. Changes only while all shards are locked.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Begins with this sum, or ends.
    pub fn keep(&self, bytes: Option<usize>) {
        self.bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        self.kept.store(bytes.is_some(), Ordering::Relaxed);
    }

    /// A shard of `before` bytes has `after` now.
    pub fn changed(&self, before: usize, after: usize) {
        if before != after {
            self.bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}
