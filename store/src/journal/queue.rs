//! What was committed and not taken by the writer yet.
//!
//! All of it goes to the disk in one batch, so a string that is replaced again before the writer comes needs only its
//! newest record: that is written over the one before. Of a few keys that change often, the disk then sees each once a
//! round, not each change.

use std::hash::BuildHasher;
use std::ops::Deref;

use bytes::Bytes;
use foldhash::fast::RandomState;
use store_engine::Effects;
use store_engine::codec::{Input, put_bytes};
use store_engine::effect::{CATALOG, Effect};

/// Sets of places, each of which fits into a line of the processor's cache.
const SETS: usize = 1 << 12;
const WAYS: usize = 8;

/// Records of so many bytes are moved instead of copied: a copy takes more than a millisecond, during which all commits
/// would wait.
pub const LARGE_RECORD_BYTES: usize = 1 << 20;

/// Records, oldest first.
#[derive(Default)]
pub struct Queue {
    /// Small ones, each behind its length.
    bytes: Vec<u8>,
    large: Vec<Large>,
    large_bytes: usize,
    /// [`LARGE_RECORD_BYTES`], unless a test has another number.
    large_from: usize,
    newest: u64,
    /// Where the newest records about keys stand that may be written over; empty until there is one.
    slots: Vec<[RecordSlot; WAYS]>,
    /// Changes when all places are forgotten.
    generation: u16,
    hasher: RandomState,
}

/// A large record.
struct Large {
    /// How many bytes of small records are older.
    behind: usize,
    record: Bytes,
}

/// Where a record stands.
#[derive(Clone, Copy, Default)]
struct RecordSlot {
    /// The [`Queue::generation`] it was made in, else it is forgotten.
    generation: u16,
    /// More of the key's hash, so that bytes of other keys are seldom looked at.
    tag: u16,
    /// Where its length stands.
    from: u32,
}

/// What the writer takes from the queue.
pub struct Drained {
    /// Small records, each behind its length.
    pub bytes: Vec<u8>,
    large: Vec<Large>,
    /// Number of the newest record, or of the one before if there is none.
    pub newest: u64,
}

/// A record in memory.
#[derive(Clone, Copy)]
pub enum Record<'a> {
    /// Among others.
    Small(&'a [u8]),
    /// By itself: it can be shared.
    Large(&'a Bytes),
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Record::Small(bytes) => bytes,
            Record::Large(bytes) => bytes,
        }
    }
}

impl Drained {
    /// All records, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let (mut input, mut large) = (Input(&self.bytes), self.large.iter().peekable());
        std::iter::from_fn(move || {
            let at = self.bytes.len() - input.0.len();
            match large.next_if(|large| large.behind == at) {
                Some(large) => Some(Record::Large(&large.record)),
                None => input.bytes().ok().map(Record::Small),
            }
        })
    }
}

impl Queue {
    /// Empty, behind the record with this number.
    pub fn new(newest: u64) -> Queue {
        Queue { newest, generation: 1, large_from: LARGE_RECORD_BYTES, ..Queue::default() }
    }

    /// Number of the newest record.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Size of all records.
    pub fn bytes(&self) -> usize {
        self.small_bytes() + self.large_bytes
    }

    /// Size of the small records.
    pub fn small_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Size of the large records.
    pub fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// Takes all records; `into` is memory for small ones to come.
    pub fn drain(&mut self, into: Vec<u8>) -> Drained {
        self.forget_all();
        self.large_bytes = 0;
        let bytes = std::mem::replace(&mut self.bytes, into);
        Drained { bytes, large: std::mem::take(&mut self.large), newest: self.newest }
    }

    /// Adds a record, or writes it over one that it makes superfluous. The effects are empty then.
    pub fn append(&mut self, effects: &mut Effects) {
        if effects.as_bytes().len() < self.large_from {
            self.append_small(effects.as_bytes());
            return effects.clear();
        }
        let record = Bytes::from(std::mem::take(effects).into_bytes());
        self.forget(Effects::read(&record).flatten());
        self.push_large(record);
    }

    /// Adds a record that is counted elsewhere, too: it is not written over another one.
    pub fn append_as_it_is(&mut self, record: &[u8]) {
        if record.len() < self.large_from {
            return self.push(record);
        }
        self.push_large(Bytes::copy_from_slice(record));
    }

    fn append_small(&mut self, record: &[u8]) {
        let mut read = Effects::read(record).flatten();
        let (Some(first), rest) = (read.next(), read.next()) else { return };
        let (db, key, effect) = first;
        let replaces = matches!(effect, Effect::Put(_) | Effect::Text(_) | Effect::Number(_));
        // The checkpoint of the catalog has the number of the newest record in it.
        if rest.is_some() || !replaces || db == CATALOG {
            let all = [first].into_iter().chain(rest).chain(read);
            self.forget(all);
            self.push(record);
            return;
        }
        // Of the same length with the same beginning up to the key's end: the same kind of effect on the same key.
        let head = key.as_ptr() as usize - record.as_ptr() as usize + key.len();
        let (set, tag) = self.slot_of(db, key);
        let (bytes, generation) = (&mut self.bytes, self.generation);
        let is_same = |slot: &RecordSlot| {
            let mut at = Input(bytes.get(slot.from as usize..)?);
            let old = at.bytes().ok()?;
            let start = bytes.len() - at.0.len() - old.len();
            (old.len() == record.len() && old[..head] == record[..head]).then_some(start)
        };
        let known = |slot: &&mut RecordSlot| (slot.generation, slot.tag) == (generation, tag);
        let slot = self.slots.get_mut(set).and_then(|ways| ways.iter_mut().find(known));
        if let Some(start) = slot.as_deref().and_then(is_same) {
            return bytes[start..start + record.len()].copy_from_slice(record);
        }
        let from = u32::try_from(bytes.len()).ok();
        self.push(record);
        if self.slots.is_empty() {
            self.slots.resize(SETS, Default::default());
        }
        let ways = &mut self.slots[set];
        let old = ways.iter().position(|slot| (slot.generation, slot.tag) == (generation, tag));
        let free = || ways.iter().position(|slot| slot.generation != generation);
        let way = old.or_else(free).unwrap_or(usize::from(tag) % WAYS);
        ways[way] = from.map_or(RecordSlot::default(), |from| RecordSlot { generation, tag, from });
    }

    fn push(&mut self, record: &[u8]) {
        put_bytes(record, &mut self.bytes);
        self.newest += 1;
    }

    fn push_large(&mut self, record: Bytes) {
        self.large_bytes += record.len();
        self.large.push(Large { behind: self.bytes.len(), record });
        self.newest += 1;
    }

    /// What stands about these keys is no longer the newest.
    fn forget<'a>(&mut self, effects: impl Iterator<Item = (usize, &'a [u8], Effect<'a>)>) {
        if self.slots.is_empty() {
            return;
        }
        let mut last: Option<(usize, &[u8])> = None;
        for (db, key, effect) in effects {
            match effect {
                Effect::Flush | Effect::Swap(_) => return self.forget_all(),
                Effect::Rename(to_db, to) => self.forget_key(to_db, to),
                _ => {}
            }
            if last != Some((db, key)) {
                self.forget_key(db, key);
                last = Some((db, key));
            }
        }
    }

    fn forget_key(&mut self, db: usize, key: &[u8]) {
        let (set, tag) = self.slot_of(db, key);
        for slot in &mut self.slots[set] {
            if slot.tag == tag {
                *slot = RecordSlot::default();
            }
        }
    }

    fn forget_all(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.slots.fill(Default::default());
            1
        });
    }

    fn slot_of(&self, db: usize, key: &[u8]) -> (usize, u16) {
        let hash = self.hasher.hash_one((db, key));
        (hash as usize % SETS, (hash >> 48) as u16)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    type Texts = HashMap<(usize, Vec<u8>), Vec<u8>>;

    fn apply(record: &[u8], texts: &mut Texts) {
        for (db, key, effect) in Effects::read(record).flatten() {
            let name = (db, key.to_vec());
            match effect {
                Effect::Text(text) => _ = texts.insert(name, text.to_vec()),
                Effect::Append(more) => texts.entry(name).or_default().extend_from_slice(more),
                Effect::Remove => _ = texts.remove(&name),
                Effect::Rename(to_db, to) => {
                    if let Some(text) = texts.remove(&name) {
                        texts.insert((to_db, to.to_vec()), text);
                    }
                }
                Effect::Flush => texts.retain(|(at, _), _| *at != db),
                effect => panic!("{effect:?} is not generated"),
            }
        }
    }

    fn effect() -> impl Strategy<Value = (u8, usize, u8, [u8; 2])> {
        (prop_oneof![6 => Just(0u8), 4 => 1u8..6], 0..2usize, 0..3u8, any::<[u8; 2]>())
    }

    proptest! {
        #[test]
        fn what_is_drained_makes_what_was_appended(
            turns in prop::collection::vec(prop::collection::vec(prop::collection::vec(effect(), 1..3), 1..40), 1..4),
            large_from in 5..30usize,
        ) {
            let (mut queue, mut wanted, mut found) = (Queue::new(0), Texts::new(), Texts::new());
            queue.large_from = large_from;
            for generation in turns {
                let before = queue.newest();
                for record in generation {
                    let mut effects = Effects::default();
                    for (kind, db, key, bytes) in record {
                        let (key, other) = ([b'k', key], [b'k', bytes[0] % 3]);
                        effects.push(db, &key, match kind {
                            0 => Effect::Text(&bytes),
                            1 => Effect::Text(&bytes[..1]),
                            2 => Effect::Append(&bytes),
                            3 => Effect::Remove,
                            4 if other != key => Effect::Rename(db, &other),
                            4 => Effect::Remove,
                            _ => Effect::Flush,
                        });
                    }
                    apply(effects.as_bytes(), &mut wanted);
                    queue.append(&mut effects);
                }
                let drained = queue.drain(Vec::new());
                drained.records().for_each(|record| apply(&record, &mut found));
                prop_assert_eq!(drained.records().count() as u64, drained.newest - before);
                prop_assert_eq!(&wanted, &found);
            }
        }
    }

    #[test]
    fn a_key_that_is_set_often_has_one_record() {
        let mut queue = Queue::new(7);
        for number in 0..100u8 {
            for key in [b"a", b"b"] {
                let mut effects = Effects::default();
                effects.push(0, key, Effect::Text(&[number]));
                queue.append(&mut effects);
            }
        }
        assert_eq!(queue.newest(), 9);
        let again = queue.drain(Vec::new());
        let mut effects = Effects::default();
        effects.push(0, b"a", Effect::Text(b"!"));
        queue.append(&mut effects);
        assert_eq!((again.newest, queue.newest(), queue.bytes() * 2), (9, 10, again.bytes.len()));
    }
}
