//! Reading the snapshot of a keyspace, see [`crate::snapshot`].

use std::sync::Arc;

use super::Keyspace;
use crate::discard::discard;
use crate::snapshot::{SnapshotBuffer, SnapshotPart, Unread};

/// Entries that are looked at in one slice.
const SLICE_ENTRIES: usize = 2048;

impl Keyspace {
    /// All entries that are here now belong to a snapshot, as those of database `db`.
    pub fn begin_snapshot(&mut self, db: usize, buffer: &Arc<SnapshotBuffer>) {
        let below = self.len();
        self.unread = (below > 0).then(|| Box::new(Unread::new(db, below, buffer)));
    }

    /// Reads a slice of the snapshot, which ends with the entry that makes it `most_bytes` long. `None`: nothing here is
    /// left to be read.
    pub fn read_snapshot(&mut self, most_bytes: usize) -> Option<SnapshotPart> {
        let unread = self.unread.as_mut()?;
        let mut part = SnapshotPart::new(unread.db);
        for _ in 0..SLICE_ENTRIES {
            if unread.below == 0 || part.bytes.len() >= most_bytes {
                break;
            }
            unread.below -= 1;
            if let Some((key, entry)) = self.entries.at(unread.below) {
                unread.read(key, entry, &mut part);
            }
        }
        self.finish_snapshot();
        Some(part)
    }

    /// Gives up what is not read of a snapshot.
    pub fn end_snapshot(&mut self) {
        if let Some(unread) = self.unread.take() {
            let bytes = unread.bytes();
            discard(unread, bytes);
        }
    }

    /// The entry at `at` is about to change or to go: a snapshot gets it as it is.
    #[inline]
    pub(super) fn before_change(&mut self, at: usize) {
        if self.unread.is_some() {
            self.write_early(at);
        }
    }

    #[cold]
    fn write_early(&mut self, at: usize) {
        let Some(unread) = &mut self.unread else { return };
        if at < unread.below
            && let Some((key, entry)) = self.entries.at(at)
            && !unread.write_early(key, entry)
        {
            self.end_snapshot();
        }
    }

    /// [`Keyspace::before_change`] if fields of the hash at `at` have expired.
    #[inline]
    pub(super) fn before_fields_expire(&mut self, at: usize, now_ms: u64) {
        if self.unread.is_some()
            && let Some((_, entry)) = self.entries.at(at)
            && entry.next_expiry().is_some_and(|next| next.get() <= now_ms)
        {
            self.write_early(at);
        }
    }

    /// `key` was removed from `at`, where the last entry is now.
    #[inline]
    pub(super) fn after_removal(&mut self, at: usize, key: &[u8]) {
        if self.unread.is_some() {
            self.forget_removed(at, key);
        }
    }

    #[cold]
    fn forget_removed(&mut self, at: usize, key: &[u8]) {
        let Some(unread) = &mut self.unread else { return };
        unread.forget(key);
        let last = self.entries.len();
        let was_read = last >= unread.below;
        unread.below = unread.below.min(last);
        if was_read {
            self.after_move(at);
        }
        self.finish_snapshot();
    }

    /// An entry has come to `at` that is not to be read.
    #[inline]
    pub(super) fn after_move(&mut self, at: usize) {
        if let Some(unread) = &mut self.unread
            && at < unread.below
            && let Some((key, _)) = self.entries.at(at)
            && !unread.skip(key)
        {
            self.end_snapshot();
        }
    }

    fn finish_snapshot(&mut self) {
        if self.unread.as_ref().is_some_and(|unread| unread.below == 0) {
            self.unread = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::keyspace::Entry;
    use crate::rdb::file::{RdbItem, RdbReader, RdbWriter};
    use crate::rdb::{Dialect, Version};
    use crate::snapshot::SnapshotFailure;
    use crate::{Stamp, Value};

    type Strings = BTreeMap<(usize, Vec<u8>), Value>;

    fn entry(text: u8) -> Entry {
        Entry::new(Value::string(&[text; 20]), Stamp::default())
    }

    fn put(space: &mut Keyspace, key: u8, text: u8) {
        space.insert(&[key], entry(text));
    }

    fn strings(spaces: &[Keyspace]) -> Strings {
        let of = |(db, space): (usize, &Keyspace)| {
            let pairs = (0..space.len()).filter_map(|at| space.pair_at(at));
            pairs.map(|(key, entry)| ((db, key.to_vec()), entry.value.clone())).collect::<Vec<_>>()
        };
        spaces.iter().enumerate().flat_map(of).collect()
    }

    fn read(parts: &[SnapshotPart]) -> Strings {
        let mut file = RdbWriter::new(Vec::new(), Version::default()).expect("memory takes everything");
        for part in parts {
            file.part(part).expect("memory takes everything");
        }
        let bytes = file.finish().expect("memory takes everything");
        let mut found = Strings::new();
        for item in RdbReader::new(&*bytes).expect("a file") {
            let RdbItem::Key { db, key, entry, .. } = item.expect("a key") else { panic!("no key") };
            assert_eq!(found.insert((db, key), entry.value), None, "a key is there twice");
        }
        found
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u8),
        Edit(u8),
        Remove(u8),
        RemoveAndRestore(u8, u8),
        Detach(u8),
        Swap,
        Read,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..30u8, any::<u8>()).prop_map(|(key, text)| Step::Put(key, text)),
            (0..30u8).prop_map(Step::Edit),
            (0..30u8).prop_map(Step::Remove),
            (0..30u8, 0..30u8).prop_map(|(key, other)| Step::RemoveAndRestore(key, other)),
            (0..30u8).prop_map(Step::Detach),
            Just(Step::Swap),
            Just(Step::Read),
        ]
    }

    proptest! {
        /// However keys come, go and change, a snapshot has each as it was when it began, once.
        #[test]
        fn a_snapshot_has_what_was_there_when_it_began(
            first in prop::collection::vec((0..30u8, any::<u8>()), 0..40),
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let mut spaces = [Keyspace::default(), Keyspace::default()];
            for (key, text) in first {
                put(&mut spaces[usize::from(key % 2)], key, text);
            }
            let wanted = strings(&spaces);
            let buffer = SnapshotBuffer::new(0, usize::MAX, Dialect::Redis);
            for (db, space) in spaces.iter_mut().enumerate() {
                space.begin_snapshot(db, &buffer);
            }
            let mut parts = Vec::new();
            for step in steps {
                let space = &mut spaces[0];
                match step {
                    Step::Put(key, text) => put(space, key, text),
                    Step::Edit(key) => if let Some(at) = space.find(&[key], 0) {
                        *space.value_mut(at) = Value::string(b"edited in its place");
                    },
                    Step::Remove(key) => drop(space.remove(&[key])),
                    Step::RemoveAndRestore(key, other) => if let Some(at) = space.find(&[key], 0) {
                        let (key, entry) = space.remove_at(at);
                        put(space, other, 7);
                        space.restore(at, &key, entry);
                    },
                    Step::Detach(key) => if let Some((_, vacancy)) = space.detach(&[key], 0) {
                        space.attach(&[key], Some(vacancy), Some(entry(9)));
                    },
                    Step::Swap => {
                        let [one, other] = &mut spaces;
                        one.swap(other);
                    }
                    Step::Read => parts.extend(space.read_snapshot(1)),
                }
            }
            while !buffer.is_complete() {
                spaces.iter_mut().for_each(|space| parts.extend(space.read_snapshot(50)));
            }
            parts.extend(buffer.take());
            prop_assert_eq!(buffer.failure(), None);
            prop_assert_eq!(read(&parts), wanted);
            let keys: u64 = parts.iter().map(|part| part.keys).sum();
            prop_assert_eq!(keys, read(&parts).len() as u64);
            prop_assert_eq!(buffer.bytes(), 0);
        }
    }

    #[test]
    fn a_snapshot_that_would_take_too_much_is_given_up() {
        let mut space = Keyspace::default();
        (0..100).for_each(|key| put(&mut space, key, 1));
        let buffer = SnapshotBuffer::new(0, 1000, Dialect::Redis);
        space.begin_snapshot(0, &buffer);
        (0..100).for_each(|key| put(&mut space, key, 2));
        assert_eq!(buffer.failure(), Some(SnapshotFailure::TooManyChanges));
        assert_eq!(space.read_snapshot(1), None);
    }

    #[test]
    fn keys_that_are_flushed_end_a_snapshot_unless_that_is_undone() {
        let mut space = Keyspace::default();
        put(&mut space, 1, 1);
        let buffer = SnapshotBuffer::new(0, 1000, Dialect::Redis);
        space.begin_snapshot(0, &buffer);
        let mut held = Keyspace::default();
        space.swap(&mut held);
        assert_eq!((space.read_snapshot(1), buffer.is_complete()), (None, false));
        space.swap(&mut held);
        assert_eq!(space.read_snapshot(1).map(|part| part.keys), Some(1));
        assert!(buffer.is_complete());
        space.begin_snapshot(0, &buffer);
        space.swap(&mut held);
        assert_eq!(buffer.failure(), None);
        drop(held);
        assert_eq!(buffer.failure(), Some(SnapshotFailure::Flushed));
    }

    #[test]
    fn keys_that_had_expired_are_left_out() {
        let mut space = Keyspace::default();
        for (key, at_ms) in [(1, 5), (2, 50)] {
            space.insert(&[key], Entry { expire_at_ms: std::num::NonZeroU64::new(at_ms), ..entry(1) });
        }
        let buffer = SnapshotBuffer::new(10, 1000, Dialect::Redis);
        space.begin_snapshot(0, &buffer);
        // The second one expires before it is read.
        assert_eq!(space.find(&[2], 60), None);
        assert_eq!(space.read_snapshot(1000).map(|part| part.keys), Some(0));
        assert_eq!(buffer.take().iter().map(|part| part.keys).sum::<u64>(), 1);
    }
}
