//! Keys and what they hold, with expiry and exact byte accounting.

mod detach;
mod fields;
mod snapshot;

use std::num::NonZeroU64;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Value;
use crate::dense::Dense;
pub use crate::dense::Key;
pub use crate::entry::Entry;
use crate::expiry_index::{ExpiryIndex, SPAN};
use crate::hyperloglog::SparseLimit;
use crate::recency::{Aging, Stamp};
use crate::size::allocated;
use crate::snapshot::Unread;
use crate::value::Str;
use crate::watch::Watches;
pub use detach::Vacancy;

/// Number of databases that SELECT can choose from.
pub const DATABASES: usize = 16;

/// Bytes an entry costs beside its key and value: its 64 in the table (key pointer and length, entry, hash), its place
/// in the index, at the average fill of one that doubles, and as much again for what that was before it doubled.
pub const ENTRY_OVERHEAD: usize = 80;

/// From so many bytes on a value is large: calls on it may be long, see [`crate::work`].
pub const LARGE_VALUE_BYTES: usize = 16 << 10;

/// A key that has expired, or a field of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The key.
    pub key: Key,
    /// The field of the hash, if only that has expired.
    pub field: Option<Box<[u8]>>,
    /// When its time was over, in Unix milliseconds: as the key had it, whichever clock has found that.
    pub expire_at_ms: u64,
}

/// What others hear of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The key has expired.
    Key(Key),
    /// Fields of this hash have; whether they were the last ones, so that it is gone.
    Fields(Key, bool),
}

/// Keys that have expired and are not recorded yet.
#[derive(Debug)]
struct ExpiredKeys {
    keys: Vec<Expired>,
    /// Of all databases of a node.
    count: Arc<AtomicUsize>,
}

impl ExpiredKeys {
    fn push(&mut self, expired: Expired) {
        self.keys.push(expired);
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// An expired key that may not be removed yet is looked at again after this many milliseconds.
const VETOED_MS: u64 = 50;

/// So many fields at least have to expire until others wait for the next sweep.
const MOST_FIELDS: usize = 1024;

/// One database's share of one partition.
///
/// The entries lie densely behind a hash index: a random key is one index away, an expiry sweep is
/// a walk over memory, and SCAN is exact. It walks them from the end downwards; removal moves the last
/// entry into the gap, so an entry not yet visited can only move to another place not yet visited. An undo puts
/// entries back to their places for the same reason.
#[derive(Default, Debug)]
pub struct Keyspace {
    entries: Dense<Entry>,
    bytes: usize,
    /// Values of at least [`LARGE_VALUE_BYTES`].
    large: usize,
    expiring: usize,
    sticky: Sticky,
    expiry_index: ExpiryIndex,
    /// What a snapshot has still to read.
    unread: Option<Box<Unread>>,
    state: DatabaseState,
}

/// Keys with the mark of STICK.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// How many.
    pub keys: usize,
    /// Bytes they take with their values and overhead.
    pub bytes: usize,
    /// How many of them expire.
    pub expiring: usize,
}

impl Sticky {
    /// What one key counts if it has the mark.
    fn usage(key_len: usize, entry: &Entry) -> Sticky {
        let bytes = ENTRY_OVERHEAD + allocated(key_len) + entry.value.bytes();
        Sticky { keys: 1, bytes, expiring: usize::from(entry.expire_at_ms.is_some()) }
    }
}

impl SubAssign for Sticky {
    fn sub_assign(&mut self, other: Sticky) {
        self.keys -= other.keys;
        self.bytes -= other.bytes;
        self.expiring -= other.expiring;
    }
}

impl AddAssign for Sticky {
    fn add_assign(&mut self, other: Sticky) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.expiring += other.expiring;
    }
}

/// What belongs to the number of a database and not to its contents: SWAPDB and FLUSHDB leave it where it is.
#[derive(Default, Debug)]
struct DatabaseState {
    watches: Watches,
    aging: Aging,
    sparse_limit: SparseLimit,
    /// Random source of [`Aging::note`].
    dice: u64,
    counts: Counts,
    /// Keys that have expired stay.
    holds_expired: bool,
    /// Accesses are not noted.
    holds_stamps: bool,
    /// Keys that have expired, if they are to be recorded.
    expired: Option<ExpiredKeys>,
    /// The same for somebody else.
    announced: Option<Vec<Announced>>,
    /// Keys that have changed, if somebody keeps copies of them.
    changed: Option<Changed>,
}

/// Keys that have changed.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Each of these.
    pub keys: Vec<Key>,
    /// And all others.
    pub everything: bool,
}

impl Changed {
    /// Whether nothing has.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.everything
    }

    /// Adds those of others.
    pub fn append(&mut self, mut other: Changed) {
        self.keys.append(&mut other.keys);
        self.everything |= other.everything;
    }
}

/// Events in a database since the start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Keys that a read found.
    pub hits: u64,
    /// Keys that a read did not find.
    pub misses: u64,
    /// Keys removed because their time was over.
    pub expired: u64,
    /// Fields of hashes removed because their time was over.
    pub expired_fields: u64,
    /// Keys removed because memory was short.
    pub evicted: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.expired += other.expired;
        self.expired_fields += other.expired_fields;
        self.evicted += other.evicted;
    }
}

impl Counts {
    /// What has happened since these were counted.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            expired: self.expired.saturating_sub(before.expired),
            expired_fields: self.expired_fields.saturating_sub(before.expired_fields),
            evicted: self.evicted.saturating_sub(before.evicted),
        }
    }
}

impl Keyspace {
    /// Number of keys, including expired ones that nobody has looked at yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of keys with an expiry.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Bytes of all keys and values with their overhead.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys with the mark of STICK.
    pub fn sticky(&self) -> Sticky {
        self.sticky
    }

    /// What is remembered of accesses.
    pub fn aging(&self) -> Aging {
        self.state.aging
    }

    /// Says what is remembered of accesses.
    pub fn set_aging(&mut self, aging: Aging) {
        self.state.aging = aging;
    }

    /// From how many bytes on a HyperLogLog is dense.
    pub fn sparse_limit(&self) -> SparseLimit {
        self.state.sparse_limit
    }

    /// Says from how many bytes on a HyperLogLog is dense.
    pub fn set_sparse_limit(&mut self, limit: SparseLimit) {
        self.state.sparse_limit = limit;
    }

    /// Events since the start.
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Position of `key`, removing it first if it has expired. No access: for a look at the key itself.
    pub fn find(&mut self, key: &[u8], now_ms: u64) -> Option<usize> {
        let at = self.entries.find(key)?;
        if self.entries[at].is_expired(now_ms) {
            self.expire_unless_held(at);
            return None;
        }
        Some(at)
    }

    /// [`Keyspace::find`] as an access: the value is about to be read or changed.
    pub fn find_used(&mut self, key: &[u8], now_ms: u64) -> Option<usize> {
        let at = self.entries.find_again(key)?;
        let entry = &mut self.entries[at];
        if entry.is_expired(now_ms) {
            self.expire_unless_held(at);
            return None;
        }
        if !self.state.holds_stamps {
            self.state.aging.note(&mut entry.stamp, now_ms, &mut self.state.dice);
        }
        Some(at)
    }

    /// Counts whether a read found its key.
    pub(crate) fn count_read(&mut self, found: bool) {
        let Counts { hits, misses, .. } = &mut self.state.counts;
        *(if found { hits } else { misses }) += 1;
    }

    /// The stamp of a new key.
    pub(crate) fn first_stamp(&self, now_ms: u64) -> Stamp {
        self.state.aging.first(now_ms)
    }

    /// From now on, keys that expire are kept for [`Keyspace::take_expired`]. Each adds one to `count`, before its shard is unlocked.
    pub fn keep_expired(&mut self, count: &Arc<AtomicUsize>) {
        self.state.expired = Some(ExpiredKeys { keys: Vec::new(), count: count.clone() });
    }

    /// The keys that have expired since this was last asked. The count is left as it is.
    pub fn take_expired(&mut self) -> Vec<Expired> {
        self.state.expired.as_mut().map(|expired| std::mem::take(&mut expired.keys)).unwrap_or_default()
    }

    /// Says whether keys that expire are kept for [`Keyspace::take_announced`].
    pub fn announce_expired(&mut self, announced: bool) {
        self.state.announced = announced.then(Vec::new);
    }

    /// What has expired since this was last asked.
    pub fn take_announced(&mut self) -> Vec<Announced> {
        self.state.announced.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Says whether keys that change are kept for [`Keyspace::take_changed`].
    pub fn keep_changed(&mut self, kept: bool) {
        self.state.changed = kept.then(Changed::default);
    }

    /// The keys that have changed, expired or gone since this was last asked.
    pub fn take_changed(&mut self) -> Changed {
        self.state.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Gives those entries a first stamp that have none, since they were read from somewhere that knows of none.
    pub fn stamp_all(&mut self, now_ms: u64) {
        let stamp = self.first_stamp(now_ms);
        let fresh = self.entries.values_mut().filter(|entry| entry.stamp == Stamp::default());
        fresh.for_each(|entry| entry.stamp = stamp);
    }

    /// Sets the stamp of the entry at `at`.
    pub(crate) fn set_stamp(&mut self, at: usize, stamp: Stamp) {
        self.entries[at].stamp = stamp;
    }

    /// Whether keys that have expired are gone for all who ask, and stay nevertheless until that is over.
    pub fn hold_expired(&mut self, held: bool) {
        self.state.holds_expired = held;
    }

    /// Whether no access is noted, so that keys are as recently and as often used as before.
    pub fn hold_stamps(&mut self, held: bool) {
        self.state.holds_stamps = held;
    }

    fn expire_unless_held(&mut self, at: usize) {
        if !self.state.holds_expired {
            self.expire(at).1.discard();
        }
    }

    /// Removes the key at `at` because its time is over.
    fn expire(&mut self, at: usize) -> (Key, Entry) {
        self.state.counts.expired += 1;
        if !self.state.watches.is_empty()
            && let Some((key, _)) = self.entries.at(at)
        {
            // Nobody takes that back; where the change that made it expire is taken back, that has the watches.
            self.state.watches.lose(key);
        }
        let (key, entry) = self.remove_at(at);
        if let (Some(expired), Some(expire_at_ms)) = (&mut self.state.expired, entry.expire_at_ms) {
            expired.push(Expired { key: key.clone(), field: None, expire_at_ms: expire_at_ms.get() });
        }
        if let Some(announced) = &mut self.state.announced {
            announced.push(Announced::Key(key.clone()));
        }
        (key, entry)
    }

    /// Removes the key at `at` because memory is short.
    pub fn evict(&mut self, at: usize) -> (Key, Entry) {
        self.state.counts.evicted += 1;
        self.remove_at(at)
    }

    /// Whether none of the keys around position `at` expires.
    pub(crate) fn expires_nowhere_at(&self, at: usize) -> bool {
        self.expiry_index.is_empty_at(at)
    }

    /// The entry under `key` unless it has expired; changes nothing.
    pub fn peek(&self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_expired(now_ms))
    }

    /// Whether `key` is there although its time is over; changes nothing.
    pub fn is_overdue(&self, key: &[u8], now_ms: u64) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_expired(now_ms))
    }

    /// The entry at a position that [`Keyspace::find`] gave.
    pub fn at(&self, at: usize) -> &Entry {
        &self.entries[at]
    }

    /// Bytes of the entry at `at` with its key and overhead.
    pub fn bytes_at(&self, at: usize) -> usize {
        self.pair_at(at).map_or(0, |(key, entry)| Sticky::usage(key.len(), entry).bytes)
    }

    /// Key and entry at a position below [`Keyspace::len`].
    pub fn pair_at(&self, at: usize) -> Option<(&Key, &Entry)> {
        self.entries.at(at)
    }

    /// The value at `at`, to be edited. Whoever changes its size reports that with [`Keyspace::resized`].
    pub(crate) fn value_mut(&mut self, at: usize) -> &mut Value {
        self.before_change(at);
        &mut self.entries[at].value
    }

    /// Accounts for the value at `at`, whose size changed from `before` to `after` bytes.
    pub(crate) fn resized(&mut self, at: usize, before: usize, after: usize) {
        if after == before {
            return;
        }
        self.bytes = self.bytes + after - before;
        self.large = self.large + is_large(after) - is_large(before);
        if self.entries[at].sticky {
            self.sticky.bytes = self.sticky.bytes + after - before;
        }
    }

    /// Takes an entry into every account.
    fn account(&mut self, key_len: usize, entry: &Entry) {
        let usage = Sticky::usage(key_len, entry);
        self.bytes += usage.bytes;
        self.large += is_large(entry.value.bytes());
        self.expiring += usage.expiring;
        if entry.sticky {
            self.sticky += usage;
        }
    }

    /// The opposite of [`Keyspace::account`].
    fn discount(&mut self, key_len: usize, entry: &Entry) {
        let usage = Sticky::usage(key_len, entry);
        self.bytes -= usage.bytes;
        self.large -= is_large(entry.value.bytes());
        self.expiring -= usage.expiring;
        if entry.sticky {
            self.sticky -= usage;
        }
    }

    /// Stores `entry`, giving back what it replaces.
    pub fn insert(&mut self, key: &[u8], entry: Entry) -> Option<Entry> {
        if let Some(at) = self.entries.find(key) {
            return Some(self.replace_at(at, entry));
        }
        self.insert_new(key, entry);
        None
    }

    /// Stores `entry` under a key that is not there; its position is the last.
    pub(crate) fn insert_new(&mut self, key: &[u8], entry: Entry) {
        if self.state.holds_expired
            && let Some(at) = self.entries.find(key)
        {
            self.expire(at);
        }
        self.touch(key);
        self.account(key.len(), &entry);
        self.expiry_index.note(self.entries.len(), entry.next_expiry());
        self.entries.push(key, entry);
    }

    /// Stores `entry` in place of the one at `at`, giving that back.
    pub(crate) fn replace_at(&mut self, at: usize, entry: Entry) -> Entry {
        self.before_change(at);
        self.touch_at(at);
        let key_len = self.entries.at(at).map_or(0, |(key, _)| key.len());
        self.account(key_len, &entry);
        self.expiry_index.note(at, entry.next_expiry());
        let old = std::mem::replace(&mut self.entries[at], entry);
        self.discount(key_len, &old);
        old
    }

    /// Removes the key at `at`.
    pub(crate) fn remove_at(&mut self, at: usize) -> (Key, Entry) {
        self.before_change(at);
        let (key, entry) = self.entries.swap_remove(at).expect("the caller found this position");
        self.after_removal(at, &key);
        self.touch(&key);
        self.discount(key.len(), &entry);
        self.expiry_index.cut(self.entries.len());
        // The last entry has come here.
        self.note_expiry(at);
        (key, entry)
    }

    /// Puts back what [`Keyspace::remove_at`] took from `at`, to that place if possible. An entry that has come
    /// under the key since then is dropped.
    pub(crate) fn restore(&mut self, at: usize, key: &[u8], entry: Entry) {
        if let Some(replaced) = self.remove(key) {
            replaced.discard();
        }
        self.insert_new(key, entry);
        let last = self.entries.len() - 1;
        let at = at.min(last);
        self.before_change(at);
        self.entries.swap(at, last);
        self.after_move(at);
        self.note_expiry(at);
        self.note_expiry(last);
    }

    /// Takes note of when the key at `at` expires, and its fields; there may be none.
    pub(crate) fn note_expiry(&mut self, at: usize) {
        self.expiry_index.note(at, self.entries.at(at).and_then(|(_, entry)| entry.next_expiry()));
    }

    /// Takes the entry of a key that must be there, leaving an empty string in its place for somebody to replace.
    pub(crate) fn hollow(&mut self, key: &[u8]) -> Entry {
        let at = self.entries.find(key).expect("a moved entry is where it was moved to");
        self.replace_at(at, Entry::new(Value::String(Str::Int(0)), Stamp::default()))
    }

    /// Stores a string in place of the entry at `at`. A buffer that fits is used again.
    pub(crate) fn overwrite_at(&mut self, at: usize, bytes: &[u8], expire_at_ms: Option<NonZeroU64>) {
        self.before_change(at);
        self.touch_at(at);
        if expire_at_ms != self.entries[at].expire_at_ms {
            self.set_expiry(at, expire_at_ms);
        }
        let value = &mut self.entries[at].value;
        let before = value.bytes();
        match (&mut *value, Str::integer_of(bytes)) {
            (Value::String(text), Some(integer)) => *text = Str::Int(integer),
            (Value::String(Str::Raw(raw)), None) if fits(bytes.len(), raw.capacity()) => {
                raw.clear();
                raw.extend_from_slice(bytes);
            }
            (value, _) => *value = Value::string(bytes),
        }
        let after = value.bytes();
        self.resized(at, before, after);
    }

    /// Removes `key`, expired or not.
    pub fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let at = self.entries.find(key)?;
        Some(self.remove_at(at).1)
    }

    /// Sets the expiry of the entry at `at`, giving back the former one.
    pub(crate) fn set_expiry(&mut self, at: usize, expire_at_ms: Option<NonZeroU64>) -> Option<NonZeroU64> {
        self.before_change(at);
        let (key, entry) = self.entries.at_mut(at).expect("the caller found this position");
        let old = std::mem::replace(&mut entry.expire_at_ms, expire_at_ms);
        self.state.record_change(key);
        let (more, less) = (usize::from(expire_at_ms.is_some()), usize::from(old.is_some()));
        self.expiring = self.expiring + more - less;
        if entry.sticky {
            self.sticky.expiring = self.sticky.expiring + more - less;
        }
        self.expiry_index.note(at, expire_at_ms);
        old
    }

    /// Sets or takes the mark of the entry at `at`, giving back whether it had it.
    pub(crate) fn set_sticky(&mut self, at: usize, sticky: bool) -> bool {
        self.before_change(at);
        let (key, entry) = self.entries.at_mut(at).expect("the caller found this position");
        let old = std::mem::replace(&mut entry.sticky, sticky);
        self.state.record_change(key);
        let usage = Sticky::usage(key.len(), entry);
        match (old, sticky) {
            (false, true) => self.sticky += usage,
            (true, false) => self.sticky -= usage,
            _ => {}
        }
        old
    }

    /// Exchanges the contents of two keyspaces. Watches stay with their database; those on keys that exist in
    /// either are told.
    pub(crate) fn swap(&mut self, other: &mut Keyspace) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.state, &mut other.state);
        for state in [&mut self.state, &mut other.state] {
            if let Some(changed) = &mut state.changed {
                changed.everything = true;
            }
            let exists = |key: &[u8]| self.entries.find(key).or_else(|| other.entries.find(key)).is_some();
            state.watches.touch_all(exists);
        }
    }

    /// Removes expired keys that `veto` lets go from one place where there may be some, giving them to `removed`, and
    /// some of the expired fields of hashes there. `false`: there is no such place.
    pub fn sweep(
        &mut self,
        now_ms: u64,
        veto: impl Fn(&[u8]) -> bool,
        removed: &mut Vec<(Key, Entry)>,
    ) -> bool {
        let Some(span) = self.expiry_index.take_due(now_ms) else { return false };
        let end = self.len().min((span + 1) * SPAN);
        let mut fields = 0;
        for at in (span * SPAN..end).rev() {
            let (key, entry) = self.entries.at(at).expect("what is removed comes after what is looked at");
            let Some(next) = entry.next_expiry() else { continue };
            if next.get() > now_ms || (fields >= MOST_FIELDS && !entry.is_expired(now_ms)) {
                self.expiry_index.note(at, Some(next));
            } else if veto(key) {
                self.expiry_index.note(at, NonZeroU64::new(now_ms + VETOED_MS));
            } else if entry.is_expired(now_ms) {
                removed.push(self.expire(at));
            } else {
                let len = self.len();
                fields += self.expire_fields(at, now_ms).unwrap_or_default();
                if self.len() == len {
                    self.note_expiry(at);
                }
            }
        }
        true
    }

    /// All keys with their entries.
    pub fn into_entries(self) -> impl Iterator<Item = (Key, Entry)> {
        self.entries.into_entries()
    }

    /// The watches of these keys.
    pub(crate) fn watches(&mut self) -> &mut Watches {
        &mut self.state.watches
    }

    /// Tells watchers that `key` changed.
    pub fn touch(&mut self, key: &[u8]) {
        self.state.record_change(key);
    }

    /// Tells watchers of all keys that `goes` says this of, whether these exist or not.
    pub fn touch_all(&mut self, goes: impl Fn(&[u8]) -> bool) {
        self.state.watches.touch_all(goes);
    }

    /// Like [`Keyspace::touch`], for the entry at `at`.
    pub(crate) fn touch_at(&mut self, at: usize) {
        if self.state.is_heard()
            && let Some((key, _)) = self.entries.at(at)
        {
            self.state.record_change(key);
        }
    }
}

impl DatabaseState {
    /// Whether anybody wants to know what changes.
    fn is_heard(&self) -> bool {
        !self.watches.is_empty() || self.changed.is_some()
    }

    /// Tells all who want to know that `key` has changed.
    fn record_change(&mut self, key: &[u8]) {
        if !self.watches.is_empty() {
            self.watches.touch(key);
        }
        if let Some(Changed { keys, .. }) = &mut self.changed
            && keys.last().is_none_or(|last| **last != *key)
        {
            keys.push(key.into());
        }
    }
}

/// 1 for the size of a large value, otherwise 0.
fn is_large(bytes: usize) -> usize {
    usize::from(bytes >= LARGE_VALUE_BYTES)
}

/// Whether a buffer of `capacity` bytes may hold a string of `len` without wasting much.
fn fits(len: usize, capacity: usize) -> bool {
    len <= capacity && capacity <= 2 * len + 32
}
