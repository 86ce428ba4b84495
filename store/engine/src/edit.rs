//! Editors: the only way a command changes a collection in place.
//!
//! An editor records how to undo and how to repeat each step, and when it is dropped it settles what the change means for the
//! key: the byte account, the watchers, and the rule that an empty collection does not exist.

mod json;
mod stream;

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::Deref;

use crate::Work;
use crate::effect::{Effect, Effects};
use crate::entry::Entry;
use crate::key_actions::{KeyAction, KeyActions};
use crate::keyspace::Keyspace;
use crate::undo::{StringSize, Undo, UndoLog};
use crate::value::{Hash, Kind, List, Set, Str, Taken, ZSet};

/// Where the changes of one key are recorded, as far as somebody wants to know them.
pub(crate) struct Log<'a> {
    pub db: usize,
    pub key: &'a [u8],
    pub undo: Option<&'a mut UndoLog>,
    pub effects: Option<&'a mut Effects>,
    pub key_actions: Option<&'a mut KeyActions>,
}

impl Log<'_> {
    /// Whether an undo of a part of the key is wanted.
    fn wants_undo(&self) -> bool {
        self.undo.as_ref().is_some_and(|log| !log.covers(self.db, self.key))
    }

    pub fn undo(&mut self, undo: Undo) {
        if let Some(log) = &mut self.undo {
            log.push(self.db, self.key, undo);
        }
    }

    fn put(&mut self, entry: &Entry) {
        if let Some(effects) = &mut self.effects {
            effects.put(self.db, self.key, entry);
        }
    }

    pub fn touch(&mut self, touch: KeyAction) {
        if let Some(key_actions) = &mut self.key_actions {
            key_actions.push(self.db, self.key, touch);
        }
    }

    pub fn effect(&mut self, effect: Effect<'_>) {
        if let Some(key_actions) = &mut self.key_actions {
            key_actions.effect(self.db, self.key, &effect);
        }
        if let Some(effects) = &mut self.effects {
            effects.push(self.db, self.key, effect);
        }
    }
}

/// A value of type `T`, found under a key, being changed. Reads go through to the value itself.
pub struct Editor<'a, T: Kind> {
    space: &'a mut Keyspace,
    at: usize,
    log: Log<'a>,
    bytes_before: usize,
    changed: bool,
    kind: PhantomData<T>,
}

impl<'a, T: Kind> Editor<'a, T> {
    /// Edits the entry at `at`, whose value must be a `T` of that many bytes.
    pub(crate) fn new(space: &'a mut Keyspace, at: usize, bytes_before: usize, log: Log<'a>) -> Self {
        Editor { space, at, log, bytes_before, changed: false, kind: PhantomData }
    }

    /// The value, about to be changed as `effect` says; `undo` is built only if somebody keeps a log.
    fn change(&mut self, effect: Effect<'_>, undo: impl FnOnce(&T) -> Undo) -> &mut T {
        self.changed = true;
        let value = self.space.value_mut(self.at);
        let value = T::of_mut(value).expect("the editor was made for a value of this type");
        if self.log.wants_undo() {
            self.log.undo(undo(value));
        }
        self.log.effect(effect);
        value
    }
}

impl<T: Kind> Editor<'_, T> {
    /// Counts as a change for those who watch the key, even if nothing will be changed.
    pub fn touch(&mut self) {
        self.changed = true;
        self.log.touch(KeyAction::Edit(""));
    }

    /// Changes the value by `apply`, which records the effect and says what it replaced, or `None` if it changed
    /// nothing; `undo` makes the record of that, if somebody keeps a log. Saves looking for the old value twice.
    fn exchange<R>(
        &mut self,
        apply: impl FnOnce(&mut T, &mut Log<'_>) -> Option<R>,
        undo: impl FnOnce(R) -> Undo,
    ) -> bool {
        let value = self.space.value_mut(self.at);
        let value = T::of_mut(value).expect("the editor was made for a value of this type");
        let Some(replaced) = apply(value, &mut self.log) else { return false };
        self.changed = true;
        if self.log.wants_undo() {
            self.log.undo(undo(replaced));
        }
        true
    }
}

impl<T: Kind> Deref for Editor<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        T::of(&self.space.at(self.at).value).expect("the editor was made for a value of this type")
    }
}

impl<T: Kind> Drop for Editor<'_, T> {
    fn drop(&mut self) {
        let (after, empty) = (self.heap_bytes(), self.is_vacant());
        self.space.resized(self.at, self.bytes_before, after);
        if empty {
            // An undo of single elements needs a key to put them in.
            let (_, entry) = self.space.remove_at(self.at);
            self.log.undo(Undo::Removed(self.at, entry));
            self.log.effect(Effect::Remove);
        } else if self.changed {
            self.space.touch_at(self.at);
        }
    }
}

fn size_of_raw(raw: &Vec<u8>) -> StringSize {
    StringSize { len: raw.len(), capacity: raw.capacity() }
}

impl Editor<'_, Str> {
    /// Makes room for `len` bytes, with zeros up to `filled`, as the next call will; where that takes long it ends when the work is
    /// cancelled, and says so.
    pub fn make_room(&mut self, filled: usize, len: usize, work: &Work) -> bool {
        if !self.is_slow_to_grow(filled, len) {
            return work.step_bytes(len.saturating_sub(self.len()));
        }
        let value = self.space.value_mut(self.at);
        let text = Str::of_mut(value).expect("the editor was made for a string");
        self.changed = true;
        if self.log.wants_undo() {
            self.log.undo(match text {
                Str::Raw(raw) => Undo::Truncate(size_of_raw(raw)),
                Str::Int(_) => Undo::Text(text.clone()),
            });
        }
        text.grow(filled, len, work)
    }

    /// Appends; returns the new length.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let undo = |text: &Str| match text {
            Str::Raw(raw) => Undo::Truncate(size_of_raw(raw)),
            Str::Int(_) => Undo::Text(text.clone()),
        };
        let raw = self.change(Effect::Append(bytes), undo).raw_mut();
        raw.extend_from_slice(bytes);
        raw.len()
    }

    /// Writes `bytes` at `offset`, filling a gap with zeros; returns the new length.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        let text = self.change(Effect::Write(offset, bytes), |text| {
            let Str::Raw(held) = text else { return Undo::Text(text.clone()) };
            let end = (offset + bytes.len()).min(held.len());
            let lost = if offset < end { held[offset..end].into() } else { Box::default() };
            Undo::Overwrite(offset.min(held.len()), lost, size_of_raw(held))
        });
        let raw = text.raw_mut();
        let end = offset + bytes.len();
        if raw.len() < end {
            raw.resize(end, 0);
        }
        raw[offset..end].copy_from_slice(bytes);
        raw.len()
    }

    /// Makes it this number.
    pub fn set_integer(&mut self, value: i64) {
        self.set(Str::Int(value), Effect::Number(value));
    }

    /// Makes it another string; the expiry stays.
    pub fn replace(&mut self, new: &[u8]) {
        self.set(Str::new(new), Effect::Text(new));
    }

    fn set(&mut self, new: Str, effect: Effect<'_>) {
        let set = |text: &mut Str, log: &mut Log<'_>| {
            log.effect(effect);
            Some(std::mem::replace(text, new))
        };
        self.exchange(set, Undo::Text);
    }
}

impl Editor<'_, List> {
    /// Adds an element at the front or back.
    pub fn push(&mut self, front: bool, element: &[u8]) {
        self.change(Effect::Push(front, element), |_| Undo::ListUnpush(front, 1)).push(front, element);
    }

    /// Takes the element at the front or back.
    pub fn pop(&mut self, front: bool) -> Option<Taken> {
        let last = self.len().checked_sub(1)?;
        self.change(Effect::Pop(front, 1), |list| {
            let element = list.get(if front { 0 } else { last }).unwrap_or_default();
            Undo::ListRepush(front, Taken::from_slice(element))
        })
        .pop(front)
    }

    /// Takes `count` elements away at the front or back. At least one must stay; who wants all of them gone
    /// deletes the key. Several elements move into the undo log, without a copy.
    pub fn trim(&mut self, front: bool, count: usize) {
        debug_assert!(count < self.len(), "an emptied list could not be restored in place");
        match count {
            0 => return,
            1 => {
                self.changed = true;
                let Editor { space, at, log, .. } = self;
                let list = List::of_mut(space.value_mut(*at));
                let list = list.expect("the editor was made for a value of this type");
                list.pop_with(front, |element| {
                    if log.wants_undo() {
                        log.undo(Undo::ListRepush(front, Taken::from_slice(element)));
                    }
                });
            }
            _ => self.take_out(|list| Undo::ListUntrim(front, list.trim(front, count))),
        }
        self.log.effect(Effect::Pop(front, count));
    }

    /// Removes the elements at `positions`, which ascend. At least one element must stay, as in [`Self::trim`].
    pub fn remove_all(&mut self, positions: &[usize]) {
        debug_assert!(positions.len() < self.len(), "an emptied list could not be restored in place");
        match *positions {
            [] => {}
            [at] => self.remove(at),
            _ => {
                self.take_out(|list| Undo::ListUnpick(list.remove_all(positions)));
                positions.iter().rev().for_each(|at| self.log.effect(Effect::ListRemove(*at)));
            }
        }
    }

    /// Performs a change whose outcome is its own undo.
    fn take_out(&mut self, take: impl FnOnce(&mut List) -> Undo) {
        self.changed = true;
        let value = List::of_mut(self.space.value_mut(self.at));
        let undo = take(value.expect("the editor was made for a value of this type"));
        self.log.undo(undo);
    }

    /// Replaces the element at `at`, which must exist.
    pub fn set(&mut self, at: usize, element: &[u8]) {
        let undo = |list: &List| Undo::ListSet(at, list.get(at).unwrap_or_default().into());
        self.change(Effect::ListSet(at, element), undo).set(at, element);
    }

    /// Inserts before position `at`.
    pub fn insert(&mut self, at: usize, element: &[u8]) {
        self.change(Effect::ListInsert(at, element), |_| Undo::ListInserted(at)).insert(at, element);
    }

    /// Removes the element at `at`, which must exist.
    pub fn remove(&mut self, at: usize) {
        let undo = |list: &List| Undo::ListRemoved(at, list.get(at).unwrap_or_default().into());
        self.change(Effect::ListRemove(at), undo).remove(at);
    }
}

impl Editor<'_, Hash> {
    /// Notes that this has happened to fields, for those who want to hear of it.
    pub fn announce(&mut self, event: &'static str) {
        self.log.touch(KeyAction::Fields(event));
    }

    /// Counts a field that has gone, or been set again, because its time was over.
    pub fn count_expired(&mut self) {
        self.space.count_expired_fields(1);
    }

    /// Keeps when `field` expires, which is about to be forgotten with its value: restored after that.
    fn keep_expiry(&mut self, field: &[u8]) {
        if self.log.wants_undo()
            && let Some(at) = self.expiry(field)
        {
            self.log.undo(Undo::HashExpiry(field.into(), Some(at)));
        }
    }

    /// Says when `field`, which must be there, expires.
    pub fn set_expiry(&mut self, field: &[u8], at: Option<NonZeroU64>) {
        let undo = |hash: &Hash| Undo::HashExpiry(field.into(), hash.expiry(field));
        self.change(Effect::HashExpiry(field, at), undo).set_expiry(field, at);
        self.space.note_expiry(self.at);
    }

    /// Sets `field`, which expires when it would have without this; whether it was new.
    pub fn update(&mut self, field: &[u8], value: &[u8]) -> bool {
        let expiry = self.expiry(field);
        let is_new = self.insert(field, value);
        if expiry.is_some() {
            self.set_expiry(field, expiry);
        }
        is_new
    }

    /// Sets `field`, which does not expire then; whether it was new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.keep_expiry(field);
        let undo = |hash: &Hash| Undo::HashField(field.into(), hash.get(field).map(Into::into));
        self.change(Effect::HashSet(field, value), undo).insert(field, value)
    }

    /// Removes `field`; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.keep_expiry(field);
        let Editor { space, at, log, .. } = self;
        let hash = Hash::of_mut(space.value_mut(*at)).expect("the editor was made for a value of this type");
        let removed = hash.remove_with(field, |position, value| {
            if log.wants_undo() {
                log.undo(Undo::HashRemoved(position, field.into(), value.into()));
            }
            log.effect(Effect::HashRemove(field));
        });
        self.changed |= removed;
        removed
    }
}

impl Editor<'_, Set> {
    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let undo = |_: &Set| Undo::SetAdded(member.into());
        !self.contains(member) && self.change(Effect::SetAdd(member), undo).insert(member)
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(at) = self.find(member) else { return false };
        self.remove_at(at);
        true
    }

    /// Removes the member at a position below [`Set::len`].
    pub fn remove_at(&mut self, at: usize) {
        if self.reorders(at) {
            // As a whole: members could not be brought back to their places one by one, nor be written in steps.
            if self.log.wants_undo() {
                self.log.undo(Undo::Entry(Some(self.space.at(self.at).clone())));
            }
            self.changed = true;
            if let Some(set) = Set::of_mut(self.space.value_mut(self.at)) {
                set.remove_at(at);
            }
            self.log.put(self.space.at(self.at));
            return;
        }
        let remove = |set: &mut Set, log: &mut Log<'_>| {
            let member = set.remove_at(at)?;
            log.effect(Effect::SetRemove(&member));
            Some(member)
        };
        self.exchange(remove, |member| Undo::SetRemoved(at, member));
    }
}

impl Editor<'_, ZSet> {
    /// Shows `decide` the score of `member`, if it has one, and gives it what that returns, if anything.
    pub fn update(&mut self, member: &[u8], decide: impl FnOnce(Option<f64>) -> Option<f64>) {
        let update = |zset: &mut ZSet, log: &mut Log<'_>| {
            zset.update(member, |old| {
                let score = decide(old)?;
                log.effect(Effect::ZSetAdd(member, score));
                Some(score)
            })
        };
        self.exchange(update, |old| Undo::ZSetMember(member.into(), old));
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.take(|zset| zset.take(member))
    }

    /// Removes the member at a rank; whether there was one.
    pub fn remove_at(&mut self, rank: usize) -> bool {
        self.take(|zset| zset.take_at(rank))
    }

    fn take(&mut self, take: impl FnOnce(&mut ZSet) -> Option<(Box<[u8]>, f64)>) -> bool {
        let take = |zset: &mut ZSet, log: &mut Log<'_>| {
            let taken = take(zset)?;
            log.effect(Effect::ZSetRemove(&taken.0));
            Some(taken)
        };
        self.exchange(take, |(member, score)| Undo::ZSetMember(member, Some(score)))
    }
}
