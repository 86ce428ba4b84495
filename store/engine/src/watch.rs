//! WATCH: who wants to know whether a key changes.
//!
//! A change that may be taken back breaks a watch only when it stays: until then the watch lies in the undo log, and goes
//! back to its place with the change. Nobody can see the key meanwhile, as the transaction has locked it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dense::Key;

/// Raised when a key changes, expires or is removed.
pub type Flag = Arc<AtomicBool>;

fn raise(flags: &[Flag]) {
    flags.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
}

/// The watches of one database's share of a partition.
#[derive(Default, Debug)]
pub(crate) struct Watches {
    by_key: HashMap<Key, Vec<Flag>>,
    /// Those of keys that changed, while it is open whether that stays.
    held: Option<Vec<(Key, Vec<Flag>)>>,
}

impl Watches {
    /// Whether nobody watches anything.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Adds one.
    pub fn add(&mut self, key: &[u8], flag: Flag) {
        self.by_key.entry(key.into()).or_default().push(flag);
    }

    /// Forgets every watch by `flag` on `key`.
    pub fn remove(&mut self, key: &[u8], flag: &Flag) {
        if let Some(flags) = self.by_key.get_mut(key) {
            flags.retain(|held| !Arc::ptr_eq(held, flag));
            if flags.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// `key` has changed.
    pub fn touch(&mut self, key: &[u8]) {
        if let Some((key, flags)) = self.by_key.remove_entry(key) {
            match &mut self.held {
                Some(held) => held.push((key, flags)),
                None => raise(&flags),
            }
        }
    }

    /// All keys have changed that `changes` says this of.
    pub fn touch_all(&mut self, changes: impl Fn(&[u8]) -> bool) {
        let held = &mut self.held;
        for (key, flags) in self.by_key.extract_if(|key, _| changes(key)) {
            match held {
                Some(held) => held.push((key, flags)),
                None => raise(&flags),
            }
        }
    }

    /// From now on it is open whether changes stay.
    pub fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Takes the watches of keys that have changed since [`Watches::hold`]. Changes stay again.
    pub fn take_held(&mut self) -> Vec<(Key, Vec<Flag>)> {
        self.held.take().unwrap_or_default()
    }

    /// `key` has gone for good.
    pub fn lose(&mut self, key: &[u8]) {
        if let Some(flags) = self.by_key.remove(key) {
            raise(&flags);
        }
    }
}

/// The watches of a key that was changed by a transaction.
#[derive(Debug)]
pub(crate) struct BrokenWatch {
    /// Its database.
    pub db: usize,
    /// The key.
    pub key: Key,
    /// The watches.
    pub flags: Vec<Flag>,
}

impl BrokenWatch {
    /// The change stays.
    pub fn raise_flags(self) {
        raise(&self.flags);
    }
}
