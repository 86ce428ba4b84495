//! Editors: the only way a command changes a collection in place.
//!
//! An editor records how to undo each step, and when it is dropped it settles what the change means for the
//! key: the byte account, the watchers, and the rule that an empty collection does not exist.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::keyspace::Keyspace;
use crate::undo::{Size, Undo, UndoLog};
use crate::value::{Hash, Kind, List, Set, Str, ZSet};

/// A value of type `T`, found under a key, being changed. Reads go through to the value itself.
pub struct Editor<'a, T: Kind> {
    space: &'a mut Keyspace,
    at: usize,
    log: Option<(&'a mut UndoLog, usize, &'a [u8])>,
    bytes_before: usize,
    changed: bool,
    kind: PhantomData<T>,
}

impl<'a, T: Kind> Editor<'a, T> {
    /// Edits the entry at `at`, whose value must be a `T`.
    pub(crate) fn new(
        space: &'a mut Keyspace,
        at: usize,
        log: Option<(&'a mut UndoLog, usize, &'a [u8])>,
    ) -> Self {
        let bytes_before = space.at(at).value.bytes();
        Editor { space, at, log, bytes_before, changed: false, kind: PhantomData }
    }

    /// The value, about to be changed; `undo` is built only if somebody keeps a log.
    fn change(&mut self, undo: impl FnOnce(&T) -> Undo) -> &mut T {
        self.changed = true;
        let value = self.space.value_mut(self.at);
        let value = T::of_mut(value).expect("the editor was made for a value of this type");
        if let Some((log, db, key)) = &mut self.log
            && !log.covers(*db, key)
        {
            log.push(*db, key, undo(value));
        }
        value
    }
}

impl<T: Kind> Editor<'_, T> {
    /// Changes the value by `apply`, which says what it replaced, or `None` if it changed nothing; `undo` makes
    /// the record of that, if somebody keeps a log. Saves looking for the old value twice.
    fn exchange<R>(&mut self, apply: impl FnOnce(&mut T) -> Option<R>, undo: impl FnOnce(R) -> Undo) -> bool {
        let value = self.space.value_mut(self.at);
        let value = T::of_mut(value).expect("the editor was made for a value of this type");
        let Some(replaced) = apply(value) else { return false };
        self.changed = true;
        if let Some((log, db, key)) = &mut self.log
            && !log.covers(*db, key)
        {
            log.push(*db, key, undo(replaced));
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
        let value = &self.space.at(self.at).value;
        let (after, empty) = (value.bytes(), value.is_empty_collection());
        self.space.resized(self.bytes_before, after);
        if empty {
            // An undo of single elements needs a key to put them in.
            let (key, entry) = self.space.remove_at(self.at);
            if let Some((log, db, _)) = &mut self.log {
                log.push(*db, &key, Undo::Removed(self.at, entry));
            }
        } else if self.changed {
            self.space.touch_at(self.at);
        }
    }
}

fn size_of_raw(raw: &Vec<u8>) -> Size {
    Size { len: raw.len(), capacity: raw.capacity() }
}

impl Editor<'_, Str> {
    /// Appends; returns the new length.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let undo = |text: &Str| match text {
            Str::Raw(raw) => Undo::Truncate(size_of_raw(raw)),
            Str::Int(_) => Undo::Text(text.clone()),
        };
        let raw = self.change(undo).raw_mut();
        raw.extend_from_slice(bytes);
        raw.len()
    }

    /// Writes `bytes` at `offset`, filling a gap with zeros; returns the new length.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> usize {
        let text = self.change(|text| {
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
        self.replace(Str::Int(value));
    }

    /// Makes it another string; the expiry stays.
    pub fn replace(&mut self, new: Str) {
        self.exchange(|text| Some(std::mem::replace(text, new)), Undo::Text);
    }
}

impl Editor<'_, List> {
    /// Adds an element at the front or back.
    pub fn push(&mut self, front: bool, element: &[u8]) {
        self.change(|_| Undo::ListUnpush(front, 1)).push(front, element);
    }

    /// Takes the element at the front or back.
    pub fn pop(&mut self, front: bool) -> Option<Box<[u8]>> {
        let last = self.len().checked_sub(1)?;
        self.change(|list| {
            let element = list.get(if front { 0 } else { last }).unwrap_or_default();
            Undo::ListRepush(front, element.into())
        })
        .pop(front)
    }

    /// Counts as a change for those who watch the key, even if nothing will be changed.
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// Takes `count` elements away at the front or back. At least one must stay; who wants all of them gone
    /// deletes the key. The elements move into the undo log, without a copy.
    pub fn trim(&mut self, front: bool, count: usize) {
        debug_assert!(count < self.len(), "an emptied list could not be restored in place");
        if count > 0 {
            self.take_out(|list| match count {
                1 => Undo::ListRepush(front, list.pop(front).unwrap_or_default()),
                _ => Undo::ListUntrim(front, list.trim(front, count)),
            });
        }
    }

    /// Removes the elements at `positions`, which ascend. At least one element must stay, as in [`Self::trim`].
    pub fn remove_all(&mut self, positions: &[usize]) {
        debug_assert!(positions.len() < self.len(), "an emptied list could not be restored in place");
        match *positions {
            [] => {}
            [at] => self.remove(at),
            _ => self.take_out(|list| Undo::ListUnpick(list.remove_all(positions))),
        }
    }

    /// Performs a change whose outcome is its own undo.
    fn take_out(&mut self, take: impl FnOnce(&mut List) -> Undo) {
        self.changed = true;
        let value = List::of_mut(self.space.value_mut(self.at));
        let undo = take(value.expect("the editor was made for a value of this type"));
        if let Some((log, db, key)) = &mut self.log {
            log.push(*db, key, undo);
        }
    }

    /// Replaces the element at `at`, which must exist.
    pub fn set(&mut self, at: usize, element: &[u8]) {
        self.change(|list| Undo::ListSet(at, list.get(at).unwrap_or_default().into())).set(at, element);
    }

    /// Inserts before position `at`.
    pub fn insert(&mut self, at: usize, element: &[u8]) {
        self.change(|_| Undo::ListInserted(at)).insert(at, element);
    }

    /// Removes the element at `at`, which must exist.
    pub fn remove(&mut self, at: usize) {
        self.change(|list| Undo::ListRemoved(at, list.get(at).unwrap_or_default().into())).remove(at);
    }
}

impl Editor<'_, Hash> {
    /// Sets `field`; whether it was new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.change(|hash| Undo::HashField(field.into(), hash.get(field).map(Into::into)))
            .insert(field, value)
            .is_none()
    }

    /// Removes `field`; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        if !self.contains(field) {
            return false;
        }
        self.change(|hash| {
            let (at, value) = hash.find(field).unwrap_or_default();
            Undo::HashRemoved(at, field.into(), value.into())
        })
        .remove(field)
        .is_some()
    }
}

impl Editor<'_, Set> {
    /// Adds `member`; whether it was new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        !self.contains(member) && self.change(|_| Undo::SetAdded(member.into())).insert(member)
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(at) = self.find(member) else { return false };
        self.remove_at(at);
        true
    }

    /// Removes the member at a position below [`Set::len`].
    pub fn remove_at(&mut self, at: usize) {
        self.change(|set| Undo::SetRemoved(at, set.at(at).unwrap_or_default().into())).remove_at(at);
    }
}

impl Editor<'_, ZSet> {
    /// Shows `decide` the score of `member`, if it has one, and gives it what that returns, if anything.
    pub fn update(&mut self, member: &[u8], decide: impl FnOnce(Option<f64>) -> Option<f64>) {
        self.exchange(|zset| zset.update(member, decide), |old| Undo::ZSetMember(member.into(), old));
    }

    /// Removes `member`; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.exchange(|zset| zset.take(member), |(member, score)| Undo::ZSetMember(member, Some(score)))
    }

    /// Removes the member at a rank; whether there was one.
    pub fn remove_at(&mut self, rank: usize) -> bool {
        self.exchange(|zset| zset.take_at(rank), |(member, score)| Undo::ZSetMember(member, Some(score)))
    }
}
