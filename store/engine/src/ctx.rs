//! What a command function is given, and how it reaches the data.

use std::num::NonZeroU64;

use crate::Value;
use crate::edit::{Editor, Log};
use crate::effect::{Effect, Effects};
use crate::error::{self, CommandError};
use crate::keyspace::{Entry, Keyspace, Partition};
use crate::reply::Reply;
use crate::slot;
use crate::undo::{Undo, UndoLog};
use crate::value::Kind;

/// The partitions a call has locked.
pub enum Partitions<'a> {
    /// All keys of the call live here.
    One(&'a mut Partition),
    /// Several of `total` partitions, with their numbers, ascending.
    Some {
        /// The locked ones.
        held: Vec<(usize, &'a mut Partition)>,
        /// How many partitions the node has.
        total: usize,
    },
}

/// Which of `total` partitions a key belongs to.
pub fn partition_of(key: &[u8], total: usize) -> usize {
    usize::from(slot::slot(key)) % total
}

impl Partitions<'_> {
    /// The keyspace of database `db` that `key` belongs to. Its partition must be held: callers lock what
    /// [`crate::keys::keys_of`] names.
    pub fn keyspace(&mut self, db: usize, key: &[u8]) -> &mut Keyspace {
        match self {
            Partitions::One(partition) => &mut partition.databases[db],
            Partitions::Some { held, total } => {
                let wanted = partition_of(key, *total);
                let at = held.binary_search_by_key(&wanted, |(number, _)| *number);
                &mut held[at.expect("the partition of every key of the call is locked")].1.databases[db]
            }
        }
    }

    /// The entry under `key`, without removing it if it has expired: for commands that look at several keys at
    /// once. As with [`Partitions::keyspace`], the key's partition must be held.
    pub fn peek(&self, db: usize, key: &[u8], now_ms: u64) -> Option<&Entry> {
        let partition = match self {
            Partitions::One(partition) => &**partition,
            Partitions::Some { held, total } => {
                let wanted = partition_of(key, *total);
                let at = held.binary_search_by_key(&wanted, |(number, _)| *number);
                &*held[at.expect("the partition of every key of the call is locked")].1
            }
        };
        partition.databases[db].peek(key, now_ms)
    }

    /// Number of partitions held.
    pub fn len(&self) -> usize {
        match self {
            Partitions::One(_) => 1,
            Partitions::Some { held, .. } => held.len(),
        }
    }

    /// Number of partitions there are.
    pub fn total(&self) -> usize {
        match self {
            Partitions::One(_) => 1,
            Partitions::Some { total, .. } => *total,
        }
    }

    /// The partition of this number, which must be held.
    pub fn numbered(&mut self, number: usize) -> &mut Partition {
        match self {
            Partitions::One(partition) => partition,
            Partitions::Some { held, .. } => {
                let at = held.binary_search_by_key(&number, |(held, _)| *held);
                held[at.expect("the caller locked it")].1
            }
        }
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exchanges two databases in every held partition.
    pub(crate) fn swap_databases(&mut self, first: usize, second: usize) {
        for at in 0..self.len() {
            if let Ok([one, other]) = self.nth(at).databases.get_disjoint_mut([first, second]) {
                one.swap(other);
            }
        }
    }

    /// The `at`th held partition, for commands that walk over everything.
    pub fn nth(&mut self, at: usize) -> &mut Partition {
        match self {
            Partitions::One(partition) => partition,
            Partitions::Some { held, .. } => held[at].1,
        }
    }
}

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
    /// Where the reply goes.
    pub out: &'a mut Reply,
}

impl<'a> Ctx<'a> {
    /// A random number (SplitMix64). The same seed gives the same numbers, so that a script can be repeated.
    pub fn random(&mut self) -> u64 {
        *self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number below `bound`, which must not be 0.
    pub fn random_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.random()) * bound as u128) >> 64) as usize
    }

    /// The keyspace of the selected database that `key` belongs to.
    pub fn keyspace(&mut self, key: &[u8]) -> &mut Keyspace {
        self.partitions.keyspace(self.db, key)
    }

    /// The entry under `key`, of any type.
    pub fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let now_ms = self.now_ms;
        let space = self.keyspace(key);
        let at = space.find(key, now_ms)?;
        Some(space.at(at))
    }

    /// Whether `key` exists.
    pub fn exists(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// The value under `key` as a `T`; WRONGTYPE if it is something else.
    pub fn read<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        match self.entry(key) {
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
        let Ctx { partitions, db, now_ms, out, .. } = self;
        let space = partitions.keyspace(*db, key);
        match space.find(key, *now_ms) {
            None => write(None, out),
            Some(at) => write(Some(T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?), out),
        }
        Ok(())
    }

    /// An editor of the `T` under `key`, if the key exists.
    pub fn edit<'s>(&'s mut self, key: &'s [u8]) -> Edit<'s, 'a> {
        Edit { ctx: self, key }
    }

    /// Puts a value under `key`, whatever was there.
    pub fn put(&mut self, key: &[u8], value: Value, expiry: Expiry) {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self;
        let space = partitions.keyspace(*db, key);
        let held = space.find(key, *now_ms);
        let expire_at_ms = match expiry {
            Expiry::Clear => None,
            Expiry::At(at) => Some(at),
            Expiry::Keep => held.and_then(|at| space.at(at).expire_at_ms),
        };
        let entry = Entry { value, expire_at_ms };
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
        if let Some(log) = undo {
            log.push(*db, key, Undo::Entry(old));
        }
    }

    /// Puts a string under `key`.
    pub fn put_string(&mut self, key: &[u8], bytes: &[u8], expiry: Expiry) {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self;
        let space = partitions.keyspace(*db, key);
        let held = space.find(key, *now_ms);
        let expire_at_ms = match expiry {
            Expiry::Clear => None,
            Expiry::At(at) => Some(at),
            Expiry::Keep => held.and_then(|at| space.at(at).expire_at_ms),
        };
        if let Some(effects) = effects {
            effects.put_string(*db, key, bytes, expire_at_ms);
        }
        let old = match held {
            // The old value is needed by nobody.
            Some(at) if undo.as_ref().is_none_or(|log| log.covers(*db, key)) => {
                space.overwrite_at(at, bytes, expire_at_ms);
                return;
            }
            Some(at) => Some(space.replace_at(at, Entry { value: Value::string(bytes), expire_at_ms })),
            None => {
                space.insert_new(key, Entry { value: Value::string(bytes), expire_at_ms });
                None
            }
        };
        if let Some(log) = undo {
            log.push(*db, key, Undo::Entry(old));
        }
    }

    /// Moves the entry under `from` to the key `to` of database `to_db`, with its expiry and whatever was there
    /// before; whether there was one. Both must not be the same.
    pub fn rename(&mut self, from: &[u8], to_db: usize, to: &[u8]) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self;
        debug_assert!((from, *db) != (to, to_db));
        let space = partitions.keyspace(*db, from);
        let Some(from_at) = space.find(from, *now_ms) else { return false };
        let (_, entry) = space.remove_at(from_at);
        let target = partitions.keyspace(to_db, to);
        let old = match target.find(to, *now_ms) {
            Some(at) => Some(target.replace_at(at, entry)),
            None => {
                target.insert_new(to, entry);
                None
            }
        };
        if let Some(effects) = effects {
            effects.push(*db, from, Effect::Rename(to_db, to));
        }
        if let Some(log) = undo {
            log.push(to_db, to, Undo::Entry(old));
            log.push_moved(*db, from, from_at);
        }
        true
    }

    /// Removes `key`; whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self;
        let space = partitions.keyspace(*db, key);
        let Some(at) = space.find(key, *now_ms) else { return false };
        let (_, entry) = space.remove_at(at);
        let mut log = Log { db: *db, key, undo: undo.as_deref_mut(), effects: effects.as_deref_mut() };
        log.undo(Undo::Removed(at, entry));
        log.effect(Effect::Remove);
        true
    }

    /// Puts a copy of an entry under `key` with its expiry.
    pub fn place(&mut self, key: &[u8], entry: Entry) {
        let expiry = entry.expire_at_ms.map_or(Expiry::Clear, Expiry::At);
        self.put(key, entry.value, expiry);
    }

    /// Sets or clears the expiry of an existing key; whether the key exists.
    pub fn set_expiry(&mut self, key: &[u8], expire_at_ms: Option<NonZeroU64>) -> bool {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self;
        let space = partitions.keyspace(*db, key);
        let Some(at) = space.find(key, *now_ms) else { return false };
        let old = space.set_expiry(at, expire_at_ms);
        let mut log = Log { db: *db, key, undo: undo.as_deref_mut(), effects: effects.as_deref_mut() };
        log.undo(Undo::Expiry(old));
        log.effect(Effect::Expiry(expire_at_ms));
        true
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

/// An editor about to be made: names the key, leaves open whether a missing value is created.
pub struct Edit<'s, 'a> {
    ctx: &'s mut Ctx<'a>,
    key: &'s [u8],
}

impl<'s> Edit<'s, '_> {
    /// Like [`Edit::existing`], with the reply beside the editor: elements that go can be written before they do.
    pub fn existing_and_reply<T: Kind>(self) -> Result<Option<(Editor<'s, T>, &'s mut Reply)>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, out, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let Some(at) = space.find(self.key, *now_ms) else { return Ok(None) };
        T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?;
        let log = Log { db: *db, key: self.key, undo: undo.as_deref_mut(), effects: effects.as_deref_mut() };
        Ok(Some((Editor::new(space, at, log), out)))
    }

    /// The editor, if the key exists; WRONGTYPE if it holds another type.
    pub fn existing<T: Kind>(self) -> Result<Option<Editor<'s, T>>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let Some(at) = space.find(self.key, *now_ms) else { return Ok(None) };
        T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?;
        let log = Log { db: *db, key: self.key, undo: undo.as_deref_mut(), effects: effects.as_deref_mut() };
        Ok(Some(Editor::new(space, at, log)))
    }

    /// The editor, of an empty value if the key did not exist. The caller must then add something: an empty
    /// collection vanishes again when the editor is dropped.
    pub fn or_create<T: Kind>(self) -> Result<Editor<'s, T>, CommandError> {
        let Ctx { partitions, db, now_ms, undo, effects, .. } = self.ctx;
        let space = partitions.keyspace(*db, self.key);
        let mut log =
            Log { db: *db, key: self.key, undo: undo.as_deref_mut(), effects: effects.as_deref_mut() };
        let at = match space.find(self.key, *now_ms) {
            Some(at) => {
                T::of(&space.at(at).value).ok_or(error::WRONG_TYPE)?;
                at
            }
            None => {
                let entry = Entry::new(T::empty());
                if let Some(effects) = &mut log.effects {
                    effects.put(*db, self.key, &entry);
                }
                space.insert(self.key, entry);
                log.undo(Undo::Entry(None));
                space.len() - 1
            }
        };
        Ok(Editor::new(space, at, log))
    }
}
