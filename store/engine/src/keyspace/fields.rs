//! Fields of hashes whose time is over.

use super::{Announced, Expired, Keyspace};
use crate::Value;
use crate::value::{Hash, Kind};

/// Places of a hash that [`Keyspace::refresh_fields`] looks at.
const MOST_REFRESHED: usize = 16;

impl Keyspace {
    /// Removes fields of the hash at `at` whose time is over, from one place where there are some, and with the last
    /// field the key. How many; `None`: there is no such place.
    pub(super) fn expire_fields(&mut self, at: usize, now_ms: u64) -> Option<usize> {
        self.before_fields_expire(at, now_ms);
        let (key, entry) = self.entries.at_mut(at)?;
        let Value::Hash(hash) = &mut entry.value else { return None };
        let before = hash.bytes();
        let taken = hash.take_due(now_ms)?;
        let (after, is_empty, count) = (hash.bytes(), hash.is_empty(), taken.len());
        if count == 0 {
            return Some(0);
        }
        let key = key.clone();
        self.count_expired_fields(count);
        if let Some(expired) = &mut self.state.expired {
            let records = taken.into_iter().map(|(field, expire_at_ms)| Expired {
                key: key.clone(),
                field: Some(field),
                expire_at_ms: expire_at_ms.get(),
            });
            records.for_each(|record| expired.push(record));
        }
        self.resized(at, before, after);
        self.state.record_change(&key);
        if is_empty {
            self.remove_at(at);
        }
        if let Some(announced) = &mut self.state.announced {
            // Those of several places are one event.
            announced.pop_if(|last| matches!(last, Announced::Fields(held, false) if *held == key));
            announced.push(Announced::Fields(key, is_empty));
        }
        Some(count)
    }

    /// Counts fields that were removed because their time was over.
    pub(crate) fn count_expired_fields(&mut self, count: usize) {
        self.state.counts.expired_fields += count as u64;
    }

    /// Removes fields of the hash under `key` whose time is over, a bounded number of them.
    pub fn refresh_fields(&mut self, key: &[u8], now_ms: u64) {
        if self.state.holds_expired {
            return;
        }
        for _ in 0..MOST_REFRESHED {
            match self.entries.find(key) {
                Some(at) if self.expire_fields(at, now_ms).is_some() => {}
                _ => return,
            }
        }
    }

    /// Whether the hash under `key` may have fields whose time is over; changes nothing.
    pub fn has_overdue_fields(&self, key: &[u8], now_ms: u64) -> bool {
        let hash = self.entries.get(key).and_then(|entry| Hash::of(&entry.value));
        hash.and_then(Hash::first_expiry).is_some_and(|at| at.get() <= now_ms)
    }
}
