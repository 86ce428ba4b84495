//! What is stored under a key.

use std::num::NonZeroU64;

use crate::discard::discard;
use crate::{Stamp, Value};

/// What a key holds, and everything Redis remembers beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value; collections are never empty.
    pub value: Value,
    /// Unix time in milliseconds at which the key ceases to exist.
    pub expire_at_ms: Option<NonZeroU64>,
    /// How recently or how often it was used.
    pub stamp: Stamp,
    /// Whether it stays when memory is short: STICK.
    pub sticky: bool,
}

impl Entry {
    /// An entry without expiry and mark.
    pub fn new(value: Value, stamp: Stamp) -> Self {
        Entry { value, expire_at_ms: None, stamp, sticky: false }
    }

    /// Whether the key no longer exists at `now_ms`.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expire_at_ms.is_some_and(|at| at.get() <= now_ms)
    }

    /// The entry as it is at `now_ms`, without fields whose time is over. `None`: nothing of it is left.
    pub fn living(mut self, now_ms: u64) -> Option<Entry> {
        if self.is_expired(now_ms) {
            return None;
        }
        if let Value::Hash(hash) = &mut self.value {
            while hash.take_due(now_ms).is_some() {}
        }
        (!self.value.is_empty_collection()).then_some(self)
    }

    /// A time before which neither the key expires nor a field of it, if one of them does.
    pub fn next_expiry(&self) -> Option<NonZeroU64> {
        let field = match &self.value {
            Value::Hash(hash) => hash.first_expiry(),
            _ => None,
        };
        [self.expire_at_ms, field].into_iter().flatten().min()
    }

    /// Frees the entry; a large one on the thread that frees values.
    #[inline]
    pub(crate) fn discard(self) {
        let bytes = self.value.bytes();
        discard(self, bytes);
    }
}
