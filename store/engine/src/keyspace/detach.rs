//! Values that leave their keyspace for a while: a long call works on them on another thread, with the keys locked and no
//! shard held up.

use super::{Counts, Keyspace};
use crate::Value;
use crate::entry::Entry;
use crate::value::Str;

/// What a detached value has left behind.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    /// Bytes that the value takes in the account.
    bytes: usize,
}

impl Keyspace {
    /// Number of values of at least [`super::LARGE_VALUE_BYTES`].
    pub fn large_values(&self) -> usize {
        self.large
    }

    /// An empty keyspace with the same settings, for detached values.
    pub fn like(&self) -> Keyspace {
        let mut other = Keyspace::default();
        other.state.aging = self.state.aging;
        other.state.sparse_limit = self.state.sparse_limit;
        other.state.dice = self.state.dice;
        other.keep_changed(true);
        other
    }

    /// Takes the entry of `key` out, if there is one that has not expired. Its key, marks and bytes stay as they are; who
    /// has locked the key exclusively brings the entry back with [`Keyspace::attach`].
    pub fn detach(&mut self, key: &[u8], now_ms: u64) -> Option<(Entry, Vacancy)> {
        let at = self.find(key, now_ms)?;
        self.before_change(at);
        let entry = &mut self.entries[at];
        let vacancy = Vacancy { bytes: entry.value.bytes() };
        let value = std::mem::replace(&mut entry.value, Value::String(Str::Int(0)));
        Some((Entry { value, ..entry.clone() }, vacancy))
    }

    /// Brings back what was detached from `key`, or what has become of it. Returns the position of an entry that has gone.
    pub fn attach(&mut self, key: &[u8], vacancy: Option<Vacancy>, entry: Option<Entry>) -> Option<usize> {
        let held = vacancy.and_then(|vacancy| Some((vacancy, self.entries.find(key)?)));
        match (held, entry) {
            (Some((vacancy, at)), Some(entry)) => {
                let after = entry.value.bytes();
                self.entries[at].value = entry.value;
                self.entries[at].stamp = entry.stamp;
                self.resized(at, vacancy.bytes, after);
                self.note_expiry(at);
                if self.entries[at].expire_at_ms != entry.expire_at_ms {
                    self.set_expiry(at, entry.expire_at_ms);
                }
                if self.entries[at].sticky != entry.sticky {
                    self.set_sticky(at, entry.sticky);
                }
                None
            }
            (Some((vacancy, at)), None) => {
                self.resized(at, vacancy.bytes, self.entries[at].value.bytes());
                self.remove_at(at);
                Some(at)
            }
            (None, Some(entry)) => {
                self.insert(key, entry);
                None
            }
            (None, None) => None,
        }
    }

    /// Exchanges all entries with those of `other`, which was made by [`Keyspace::like`]; settings, watches and counts stay.
    pub fn exchange_entries(&mut self, other: &mut Keyspace) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.state, &mut other.state);
    }

    /// Takes over what calls on detached values have left in `other`: keys that they have changed, whose watchers learn of
    /// it here, and what they have counted.
    pub fn take_over(&mut self, other: &mut Keyspace) {
        let changed = other.take_changed();
        if changed.everything {
            self.state.watches.touch_all(|_| true);
            if let Some(own) = &mut self.state.changed {
                own.everything = true;
            }
        }
        changed.keys.iter().for_each(|key| self.touch(key));
        self.add_counts(other.take_counts());
    }

    /// What has happened here; counting begins again.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.state.counts)
    }

    /// Adds what has happened elsewhere.
    pub fn add_counts(&mut self, counts: Counts) {
        self.state.counts += counts;
    }
}
