//! Calls with arguments of their own, in one buffer: for those that are run later, or on another thread.

use smallvec::SmallVec;
use store_engine::keys::KeyAt;
use store_engine::{Args, Command};

use crate::call::Call;

/// Calls that were admitted, in their order.
#[derive(Default)]
pub struct CallBuffer {
    bytes: Vec<u8>,
    /// Where in `bytes` each argument ends.
    ends: Vec<usize>,
    calls: Vec<Entry>,
}

struct Entry {
    command: &'static Command,
    keys: SmallVec<[KeyAt; 2]>,
    db: usize,
    no_touch: bool,
    /// Number of the first argument.
    first: usize,
}

impl CallBuffer {
    /// Adds a call.
    pub fn push(&mut self, call: &Call<'_>) {
        let first = self.ends.len();
        let items = call.args.items();
        self.ends.reserve(items.len());
        self.bytes.reserve(items.iter().map(|item| item.len()).sum());
        for item in items {
            self.bytes.extend_from_slice(item);
            self.ends.push(self.bytes.len());
        }
        let Call { command, keys, db, no_touch, .. } = *call;
        self.calls.push(Entry { command, keys: SmallVec::from_slice(keys), db, no_touch, first });
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Bytes of the arguments of all calls.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all calls; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.calls.clear();
    }

    /// Call number `at`, which has to be less than [`CallBuffer::len`].
    pub fn get(&self, at: usize) -> BufferedCall<'_> {
        let entry = &self.calls[at];
        let end = self.calls.get(at + 1).map_or(self.ends.len(), |next| next.first);
        let mut start = entry.first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut items = SmallVec::with_capacity(end - entry.first);
        for &end in &self.ends[entry.first..end] {
            items.push(&self.bytes[start..end]);
            start = end;
        }
        BufferedCall { entry, items }
    }

    /// All calls.
    pub fn iter(&self) -> impl Iterator<Item = BufferedCall<'_>> {
        (0..self.len()).map(|at| self.get(at))
    }
}

/// A call of a [`CallBuffer`].
pub struct BufferedCall<'b> {
    entry: &'b Entry,
    items: SmallVec<[&'b [u8]; 8]>,
}

impl BufferedCall<'_> {
    /// The call at `now_ms`, Unix time in milliseconds.
    pub fn at(&self, now_ms: u64) -> Call<'_> {
        let Entry { command, keys, db, no_touch, .. } = self.entry;
        Call { command, args: Args::new(&self.items), keys, db: *db, now_ms, no_touch: *no_touch }
    }

    /// The positions of its keys among its arguments, with what is done to each.
    pub fn keys(&self) -> &[KeyAt] {
        &self.entry.keys
    }

    /// The bytes of its first key. `None`: it has none.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.entry.keys.first().map(|(at, _)| self.items[*at])
    }
}
