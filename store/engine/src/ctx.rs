//! What a command function is given, and how it reaches the data.

use std::num::NonZeroU64;

use crate::edit::{Editor, Log};
use crate::effect::{Effect, Effects, EntryMeta};
use crate::entry::Entry;
use crate::error::{self, CommandError};
use crate::key_actions::{KeyAction, KeyActions};
use crate::keyspace::Keyspace;
use crate::partition::Partitions;
pub use crate::partition::partition_of;
use crate::reply::Reply;
use crate::undo::{Undo, UndoLog};
use crate::value::Kind;
use crate::{Value, Work, random};

/// What happens to a key's expiry when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None any more.
    Clear,
    /// As before.
    Keep,
    /// At this Unix time in milliseconds.
    At(NonZeroU64),
}

impl Expiry {
    /// The expiry behind `old`.
    fn after(self, old: Option<NonZeroU64>) -> Option<NonZeroU64> {
        match self {
            Expiry::Clear => None,
            Expiry::Keep => old,
            Expiry::At(at) => Some(at),
        }
    }
}

/// An entry for `value` in place of the one at `held`, if there is one.
fn successor(space: &Keyspace, held: Option<usize>, value: Value, expiry: Expiry, now_ms: u64) -> Entry {
    let (old, stamp, sticky) = match held.map(|at| space.at(at)) {
        Some(old) => (old.expire_at_ms, old.stamp, old.sticky),
        None => (None, space.first_stamp(now_ms), false),
    };
    Entry { value, expire_at_ms: expiry.after(old), stamp, sticky }
}

fn note_put(
    key_actions: &mut Option<&mut KeyActions>,
    db: usize,
    key: &[u8],
    held: Option<usize>,
    expiry: Expiry,
) {
    if let Some(key_actions) = key_actions {
        if held.is_none() {
            key_actions.push(db, key, KeyAction::New);
        }
        key_actions.push(db, key, KeyAction::Put(matches!(expiry, Expiry::At(_))));
    }
}

fn note_read(key_actions: &mut Option<&mut KeyActions>, db: usize, key: &[u8], found: Option<usize>) {
    if let (Some(key_actions), None) = (key_actions, found) {
        key_actions.push(db, key, KeyAction::Miss);
    }
}

/// Everything a command may know and touch.
pub struct Ctx<'a> {
    /// The locked part of the data.
    pub partitions: Partitions<'a>,
    /// The selected database, below [`crate::DATABASES`].
    pub db: usize,
    /// Unix time in milliseconds. Frozen for a whole script or transaction.
    pub now_ms: u64,
    /// State of the random source; see [`Ctx::random`].
    pub seed: &'a mut u64,
    /// Where changes are recorded, if they may have to be taken back.
    pub undo: Option<&'a mut UndoLog>,
    /// Where changes are recorded, if they are to be repeated after a restart.
    pub effects: Option<&'a mut Effects>,
    /// Where it is noted what is done to keys, if somebody wants to hear of it.
    pub key_actions: Option<&'a mut KeyActions>,
    /// Counts what the call does, and says when it is to end.
    pub work: &'a Work,
    /// Where the reply goes.
    pub out: &'a mut Reply,
}

impl<'a> Ctx<'a> {
    /// A random number. The same seed gives the same numbers, so that a script can be repeated.
    pub fn random(&mut self) -> u64 {
        random::next(self.seed)
    }

    /// A random number below `bound`, which must not be 0.
    pub fn random_below(&mut self, bound: usize) -> usize {
        random::below(self.seed, bound)
    }

    /// The keyspace of the selected database that `key` belongs to.
    pub fn keyspace(&mut self, key: &[u8]) -> &mut Keyspace {
        self.partitions.keyspace(self.db, key)
    }

    /// The entry under `key`, of any type, for commands about the key itself: that is no use of its value.
    pub fn peek_entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let Ctx { partitions, db, now_ms, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let found = space.find(key, *now_ms);
        space.count_read(found.is_some());
        note_read(key_actions, *db, key, found);
        found.map(|at| space.at(at))
    }

    /// The entry under `key`, of any type, whose value is read.
    pub fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let Ctx { partitions, db, now_ms, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let found = space.find_used(key, *now_ms);
        space.count_read(found.is_some());
        note_read(key_actions, *db, key, found);
        found.map(|at| space.at(at))
    }

    /// Notes that the values under `keys` are read, for those who then [`Partitions::peek`] at all at once.
    pub fn note_reads(&mut self, keys: &[&[u8]]) {
        for key in keys {
            self.entry(key);
        }
    }

    /// The entry under `key`, of any type, which is about to be changed.
    pub fn target(&mut self, key: &[u8]) -> Option<&Entry> {
        let now_ms = self.now_ms;
        let space = self.keyspace(key);
        space.find_used(key, now_ms).map(|at| space.at(at))
    }

    /// Whether `key`, which is about to be written, exists.
    pub fn exists(&mut self, key: &[u8]) -> bool {
        self.target(key).is_some()
    }

    /// The value under `key` as a `T`; WRONGTYPE if it is something else.
    pub fn read<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => T::of(&entry.value).map(Some).ok_or(error::WRONG_TYPE),
        }
    }

    /// The same for a look before [`Ctx::reply_from`], which then is what counts as the read.
    pub fn peek<T: Kind>(&self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        match self.partitions.peek(self.db, key, self.now_ms) {
            None => Ok(None),
            Some(entry) => T::of(&entry.value).map(Some).ok_or(error::WRONG_TYPE),
        }
    }

    /// Reads a `T` and writes to the reply at once: what most read commands do.
    pub fn reply_from<T: Kind>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(Option<&T>, &mut Reply),
    ) -> Result<(), CommandError> {
        self.reply_from_any(key, |value, out| {
            let value = value.map(|value| T::of(value).ok_or(error::WRONG_TYPE)).transpose()?;
            write(value, out);
            Ok(())
        })
    }

    /// Reads a value of any type and writes to the reply at once. Returns what `write` returns.
    pub fn reply_from_any<R>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(Option<&Value>, &mut Reply) -> R,
    ) -> R {
        let Ctx { partitions, db, now_ms, key_actions, out, .. } = self;
        let space = partitions.keyspace(*db, key);
        let found = space.find_used(key, *now_ms);
        space.count_read(found.is_some());
        note_read(key_actions, *db, key, found);
        write(found.map(|at| &space.at(at).value), out)
    }

    /// An editor of the `T` under `key`, if the key exists.
    pub fn edit<'s>(&'s mut self, key: &'s [u8]) -> Edit<'s, 'a> {
        Edit { ctx: self, key }
    }

    /// Puts a value under `key`, whatever was there. The mark of a sticky key stays.
    pub fn put(&mut self, key: &[u8], value: Value, expiry: Expiry) {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let held = space.find_used(key, *now_ms);
        note_put(key_actions, *db, key, held, expiry);
        let entry = successor(space, held, value, expiry, *now_ms);
        if let Some(effects) = effects {
            effects.put(*db, key, &entry);
        }
        let old = match held {
            Some(at) => Some(space.replace_at(at, entry)),
            None => {
                space.insert_new(key, entry);
                None
            }
        };
        match undo {
            Some(log) => log.push(*db, key, Undo::Entry(old)),
            None => old.into_iter().for_each(Entry::discard),
        }
    }

    /// [`Ctx::put`] of a string.
    pub fn put_string(&mut self, key: &[u8], bytes: &[u8], expiry: Expiry) {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let held = space.find_used(key, *now_ms);
        note_put(key_actions, *db, key, held, expiry);
        if let Some(effects) = effects {
            let held = held.map(|at| space.at(at));
            let expire_at_ms = expiry.after(held.and_then(|entry| entry.expire_at_ms));
            let sticky = held.is_some_and(|entry| entry.sticky);
            effects.put_string(*db, key, bytes, EntryMeta { expire_at_ms, sticky, stamp: None });
        }
        if let Some(at) = held
            && undo.as_ref().is_none_or(|log| log.covers(*db, key))
        {
            // The old value is needed by nobody.
            space.overwrite_at(at, bytes, expiry.after(space.at(at).expire_at_ms));
            return;
        }
        let entry = successor(space, held, Value::string(bytes), expiry, *now_ms);
        let old = match held {
            Some(at) => Some(space.replace_at(at, entry)),
            None => {
                space.insert_new(key, entry);
                None
            }
        };
        match undo {
            Some(log) => log.push(*db, key, Undo::Entry(old)),
            None => old.into_iter().for_each(Entry::discard),
        }
    }

    /// Moves the entry under `from` to the key `to` of database `to_db`, with its expiry and mark, whatever
    /// was there before; whether there was one. Both must not be the same.
    pub fn rename(&mut self, from: &[u8], to_db: usize, to: &[u8]) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        debug_assert!((from, *db) != (to, to_db));
        let space = partitions.keyspace(*db, from);
        let Some(from_at) = space.find_used(from, *now_ms) else { return false };
        let (_, entry) = space.remove_at(from_at);
        let target = partitions.keyspace(to_db, to);
        let old = match target.find(to, *now_ms) {
            Some(at) => Some(target.replace_at(at, entry)),
            None => {
                target.insert_new(to, entry);
                None
            }
        };
        if let Some(key_actions) = key_actions {
            // Also in place of another, which Redis removes first.
            key_actions.push(to_db, to, KeyAction::New);
            key_actions.push(*db, from, KeyAction::Leave);
            key_actions.push(to_db, to, KeyAction::Arrive);
        }
        if let Some(effects) = effects {
            effects.push(*db, from, Effect::Rename(to_db, to));
        }
        match undo {
            Some(log) => {
                log.push(to_db, to, Undo::Entry(old));
                log.push_moved(*db, from, from_at);
            }
            None => old.into_iter().for_each(Entry::discard),
        }
        true
    }

    /// Removes `key`; whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let Some(at) = space.find(key, *now_ms) else { return false };
        let (_, entry) = space.remove_at(at);
        let mut log = Log {
            db: *db,
            key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        log.effect(Effect::Remove);
        match log.undo {
            Some(log) => log.push(*db, key, Undo::Removed(at, entry)),
            None => entry.discard(),
        }
        true
    }

    /// Puts a copy of an entry under `key` with its expiry and mark.
    pub fn put_entry(&mut self, key: &[u8], entry: Entry) {
        let expiry = entry.expire_at_ms.map_or(Expiry::Clear, Expiry::At);
        self.put(key, entry.value, expiry);
        self.set_sticky(key, entry.sticky);
    }

    /// Sets or clears the expiry of an existing key; whether the key exists.
    pub fn set_expiry(&mut self, key: &[u8], expire_at_ms: Option<NonZeroU64>) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let Some(at) = space.find(key, *now_ms) else { return false };
        let old = space.set_expiry(at, expire_at_ms);
        let mut log = Log {
            db: *db,
            key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        log.undo(Undo::Expiry(old));
        log.effect(Effect::Expiry(expire_at_ms));
        if expire_at_ms.is_some() || old.is_some() {
            log.touch(KeyAction::Expiry(expire_at_ms.is_some()));
        }
        true
    }

    /// Sets or takes the mark of STICK; whether the key exists and was not so before.
    pub fn set_sticky(&mut self, key: &[u8], sticky: bool) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self;
        let space = partitions.keyspace(*db, key);
        let Some(at) = space.find(key, *now_ms) else { return false };
        if space.at(at).sticky == sticky {
            return false;
        }
        let old = space.set_sticky(at, sticky);
        let mut log = Log {
            db: *db,
            key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        log.undo(Undo::Sticky(old));
        log.effect(Effect::Sticky(sticky));
        true
    }

    /// Makes an existing key as recently or as often used as it was elsewhere; as far as that is remembered here.
    pub fn set_access_stats(&mut self, key: &[u8], idle_seconds: Option<u64>, frequency: Option<u8>) {
        let now_ms = self.now_ms;
        let space = self.keyspace(key);
        let stamp = space.aging().stamp_of_access(idle_seconds, frequency, now_ms);
        if let (Some(stamp), Some(at)) = (stamp, space.find(key, now_ms)) {
            space.set_stamp(at, stamp);
        }
    }

    /// Exchanges two databases in every held partition, which must be all.
    pub fn swap_databases(&mut self, first: usize, second: usize) {
        self.partitions.swap_databases(first, second);
        if let Some(effects) = &mut self.effects {
            effects.push(first, b"", Effect::Swap(second));
        }
        if let Some(log) = &mut self.undo {
            log.push_swapped(first, second);
        }
    }

    /// Empties one database in every held partition, which must be all; returns how many keys there were.
    pub fn flush(&mut self, db: usize) -> usize {
        let mut removed = 0;
        if let Some(effects) = &mut self.effects {
            effects.push(db, b"", Effect::Flush);
        }
        for at in 0..self.partitions.len() {
            let mut held = Keyspace::default();
            self.partitions.nth(at).databases[db].swap(&mut held);
            removed += held.len();
            if let Some(log) = &mut self.undo
                && !held.is_empty()
            {
                log.push_flushed(at, db, held);
            }
        }
        removed
    }
}

impl Ctx<'_> {
    /// Does `work`. If there is an undo log, the watches that this breaks are kept there.
    #[inline(always)] // A context would be moved.
    pub fn watched<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        if self.undo.is_none() || !self.partitions.is_watched() {
            return work(self);
        }
        self.partitions.hold_watches();
        let open = Open(self);
        work(open.0)
    }
}

/// It is open whether changes stay until this is dropped, by a panic too.
struct Open<'c, 'a>(&'c mut Ctx<'a>);

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        let Ctx { partitions, undo: Some(undo), .. } = &mut *self.0 else { return };
        partitions.take_broken(undo.broken());
    }
}

/// An editor about to be made: names the key, leaves open whether a missing value is created.
pub struct Edit<'s, 'a> {
    ctx: &'s mut Ctx<'a>,
    key: &'s [u8],
}

impl<'s> Edit<'s, '_> {
    /// Like [`Edit::existing`], with the reply beside the editor: elements that go can be written before they do.
    pub fn existing_and_reply<T: Kind>(self) -> Result<Option<(Editor<'s, T>, &'s mut Reply)>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, out, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let Some(at) = space.find_used(self.key, *now_ms) else { return Ok(None) };
        let bytes = T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?.heap_bytes();
        let log = Log {
            db: *db,
            key: self.key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        Ok(Some((Editor::new(space, at, bytes, log), out)))
    }

    /// The editor, if the key exists; WRONGTYPE if it holds another type.
    #[inline(always)] // An editor is large: moving it took 1 % of the time of a script of short calls.
    pub fn existing<T: Kind>(self) -> Result<Option<Editor<'s, T>>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let Some(at) = space.find_used(self.key, *now_ms) else { return Ok(None) };
        let bytes = T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?.heap_bytes();
        let log = Log {
            db: *db,
            key: self.key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        Ok(Some(Editor::new(space, at, bytes, log)))
    }

    /// The editor, of an empty value if the key did not exist. The caller must then add something: an empty
    /// collection vanishes again when the editor is dropped.
    #[inline(always)] // As above.
    pub fn or_create<T: Kind>(self) -> Result<Editor<'s, T>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, key_actions, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let mut log = Log {
            db: *db,
            key: self.key,
            undo: undo.as_deref_mut(),
            effects: effects.as_deref_mut(),
            key_actions: key_actions.as_deref_mut(),
        };
        let at = match space.find_used(self.key, *now_ms) {
            Some(at) => at,
            None => {
                let entry = Entry::new(T::empty(), space.first_stamp(*now_ms));
                if let Some(effects) = &mut log.effects {
                    effects.put(*db, self.key, &entry);
                }
                log.touch(KeyAction::New);
                log.undo(Undo::Entry(None));
                space.insert_new(self.key, entry);
                space.len() - 1
            }
        };
        let bytes = T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?.heap_bytes();
        Ok(Editor::new(space, at, bytes, log))
    }
}
