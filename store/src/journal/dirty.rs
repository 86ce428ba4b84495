//! What the checkpoint does not know yet: which keys have changed since their record was written, and how far back
//! the journal must reach for that.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::hash_map::{EntryRef, HashMap};
use store_engine::effect::Effect;
use store_engine::value::stream::Part;

/// A key of a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The database.
    pub db: usize,
    /// The key.
    pub key: Arc<[u8]>,
}

/// The same without owning it, to look it up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameRef<'a> {
    /// The database.
    pub db: usize,
    /// The key.
    pub key: &'a [u8],
}

impl hashbrown::Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.db == name.db && *self.key == *name.key
    }
}

impl From<&NameRef<'_>> for Name {
    fn from(name: &NameRef<'_>) -> Name {
        Name { db: name.db, key: name.key.into() }
    }
}

/// What changed in a key.
/// Small, since there may be millions.
#[derive(Debug, PartialEq)]
pub enum What {
    /// Everything: it was made, replaced or removed.
    Whole,
    /// These fields or members, and what is remembered beside the value.
    #[allow(clippy::box_collection, reason = "most changes are whole, and then it costs nothing")]
    Parts(Box<HashSet<Box<[u8]>, RandomState>>),
    /// Elements of a list.
    Window(Box<Window>),
}

/// Which elements of a list are on disk. Its elements have indices that stay when others come and go at the ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Index of the first element.
    pub first: i64,
    /// Index behind the last.
    pub end: i64,
    /// From here ...
    pub low: i64,
    /// ... to before here the disk has the elements, except ...
    pub high: i64,
    /// ... these.
    pub set: BTreeSet<i64>,
}

impl Window {
    /// A list of that many elements, all of them on disk from index `first` on.
    pub fn clean(first: i64, count: u64) -> Window {
        let end = first + count.cast_signed();
        Window { first, end, low: first, high: end, set: BTreeSet::new() }
    }

    fn push(&mut self, front: bool) {
        if front { self.first -= 1 } else { self.end += 1 }
    }

    fn pop(&mut self, front: bool, count: usize) {
        let count = (count as i64).min(self.end - self.first);
        if front {
            self.first += count
        } else {
            self.end -= count
        }
        self.low = self.low.clamp(self.first, self.end);
        self.high = self.high.clamp(self.low, self.end);
    }
}

fn parts() -> What {
    What::Parts(Box::default())
}

/// All changed keys.
///
/// They are folded generation by generation, each in the order of the disk, where neighbours share a leaf that is
/// written once for all of them.
#[derive(Default)]
pub struct DirtySet {
    changes: HashMap<Name, What, RandomState>,
    /// Keys that took over what others had: the checkpoint must learn of them first, or at once.
    moved: HashMap<Name, Vec<Name>, RandomState>,
    /// What is being folded, the last first. May name keys whose change was folded meanwhile.
    old: Generation,
    /// Could not be folded when it was their turn.
    postponed: Vec<Name>,
    /// What has changed since.
    young: Generation,
}

#[derive(Default)]
struct Generation {
    names: Vec<Name>,
    /// The first record that the checkpoint lacks because of these.
    since: Option<u64>,
}

impl DirtySet {
    /// The first record that the checkpoint lacks, if there is one.
    pub fn since(&self) -> Option<u64> {
        self.old.since.into_iter().chain(self.young.since).min()
    }

    /// Notes what record `number` did to a key. `window` gives a list's indices on disk, if it has any there.
    pub fn note(
        &mut self,
        number: u64,
        name: NameRef<'_>,
        effect: Effect<'_>,
        window: impl FnOnce() -> Option<Window>,
    ) {
        match effect {
            Effect::Rename(db, key) => {
                let to = Name::from(&NameRef { db, key });
                self.mark_dirty(number, NameRef { db, key });
                self.mark_dirty(number, name);
                self.moved.entry(Name::from(&name)).or_default().push(to);
            }
            Effect::HashSet(part, _)
            | Effect::HashRemove(part)
            | Effect::HashExpiry(part, _)
            | Effect::HashExpired(part, _)
            | Effect::SetAdd(part)
            | Effect::SetRemove(part)
            | Effect::ZSetAdd(part, _)
            | Effect::ZSetRemove(part) => {
                self.change_part(number, name, part);
            }
            Effect::StreamAdd(node, ..) => {
                self.change_part(number, name, &Part::Node(node).encoded());
                self.change_part(number, name, &Part::Meta.encoded());
            }
            Effect::StreamDelete(node, _) => self.change_part(number, name, &Part::Node(node).encoded()),
            // With a group goes all that is pending in it.
            Effect::StreamRemove(part) if matches!(Part::decoded(part), Ok(Part::Group(_))) => {
                self.mark_dirty(number, name);
            }
            Effect::StreamPut(part, _) | Effect::StreamRemove(part) => self.change_part(number, name, part),
            Effect::Push(..) | Effect::Pop(..) | Effect::ListSet(..) => {
                let start = || window().map_or(What::Whole, |window| What::Window(Box::new(window)));
                if let What::Window(window) = self.change(number, name, start) {
                    match effect {
                        Effect::Push(front, _) => window.push(front),
                        Effect::Pop(front, count) => window.pop(front, count),
                        Effect::ListSet(at, _) => drop(window.set.insert(window.first + at as i64)),
                        _ => {}
                    }
                }
            }
            Effect::Expiry(_) | Effect::Sticky(_) => {
                self.change(number, name, || {
                    window().map_or_else(parts, |window| What::Window(Box::new(window)))
                });
            }
            _ => self.mark_dirty(number, name),
        }
    }

    fn change_part(&mut self, number: u64, name: NameRef<'_>, part: &[u8]) {
        if let What::Parts(changed) = self.change(number, name, parts)
            && !changed.contains(part)
        {
            changed.insert(part.into());
        }
    }

    /// Notes that record `number` emptied a whole database, or exchanged it with the one `there`: the changes known
    /// of its keys mean nothing any more.
    pub fn mark_all_dirty(&mut self, number: u64, db: usize, there: Option<usize>) {
        let names: Vec<Name> = self.changes.keys().filter(|name| name.db == db).cloned().collect();
        for Name { key, .. } in names {
            self.mark_exchanged_dirty(number, db, there, &key);
        }
    }

    /// The same for one key.
    pub fn mark_exchanged_dirty(&mut self, number: u64, db: usize, there: Option<usize>, key: &[u8]) {
        let here = NameRef { db, key };
        match there.map(|db| NameRef { db, key }) {
            None => self.mark_dirty(number, here),
            Some(there) => {
                for (from, to) in [(here, there), (there, here)] {
                    self.mark_dirty(number, from);
                    self.moved.entry(Name::from(&from)).or_default().push(Name::from(&to));
                }
            }
        }
    }

    /// Notes that the checkpoint may be wrong about everything in a key.
    pub fn mark_dirty(&mut self, number: u64, name: NameRef<'_>) {
        *self.change(number, name, || What::Whole) = What::Whole;
    }

    fn change(&mut self, number: u64, name: NameRef<'_>, what: impl FnOnce() -> What) -> &mut What {
        match self.changes.entry_ref(&name) {
            EntryRef::Occupied(entry) => entry.into_mut(),
            EntryRef::Vacant(entry) => {
                let entry = entry.insert_entry_with_key(Name::from(&name), what());
                self.young.names.push(entry.key().clone());
                let since = self.young.since.get_or_insert(number);
                *since = number.min(*since);
                entry.into_mut()
            }
        }
    }

    /// The next key of the generation that is being folded, if one of it is left that was not postponed.
    pub fn next(&mut self) -> Option<Name> {
        loop {
            let name = self.old.names.pop()?;
            if self.changes.contains_key(&name) {
                return Some(name);
            }
        }
    }

    /// The key with all that must reach the checkpoint with it: those that took over what it had, and so on.
    pub fn group(&self, name: Name) -> Vec<Name> {
        let mut group = vec![name];
        let mut at = 0;
        while let Some(name) = group.get(at) {
            let more = self.moved.get(name).map_or(&[][..], |names| names);
            let more: Vec<Name> = more.iter().filter(|name| !group.contains(name)).cloned().collect();
            group.extend(more);
            at += 1;
        }
        group
    }

    /// Takes a change out, to fold it.
    pub fn take(&mut self, name: &Name) -> Option<What> {
        self.moved.remove(name);
        self.changes.remove(name)
    }

    /// Puts a change back that could not be folded, or not wholly.
    pub fn put_back(&mut self, name: Name, change: What) {
        self.changes.insert(name.clone(), change);
        self.postponed.push(name);
    }

    /// Postpones a change until the next round.
    pub fn postpone(&mut self, name: Name) {
        self.postponed.push(name);
    }

    /// Gives what was postponed another chance. If nothing is left of a generation, its records are of no use any
    /// more, and if `more` is to be folded, the next one begins.
    pub fn begin_cycle(&mut self, more: bool) {
        if !self.postponed.is_empty() {
            // They may have been of either generation.
            self.old.since = self.since();
            self.old.names.append(&mut self.postponed);
        }
        while self.old.names.pop_if(|name| !self.changes.contains_key(&*name)).is_some() {}
        if !self.old.names.is_empty() {
            return;
        }
        self.old = if more { std::mem::take(&mut self.young) } else { Generation::default() };
        self.old.names.sort_unstable_by(|a, b| b.cmp(a));
    }
}
