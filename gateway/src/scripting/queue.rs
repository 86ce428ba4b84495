//! Calls whose result nobody reads: collected, and sent together.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use store::Call;
use store_engine::keys::Keys;
use store_engine::{Args, Command};

use crate::admission::Admitted;

/// The calls of one script, in their order.
#[derive(Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    /// Where in `bytes` each argument ends.
    ends: Vec<usize>,
    calls: Vec<BatchedCall>,
    /// Hashes of the keys of those calls that have several. One key taken for another costs a wait, no more.
    shared: HashSet<u64, RandomState>,
}

struct BatchedCall {
    spec: &'static Command,
    keys: Keys,
    db: usize,
    protected: bool,
    /// Number of the first argument.
    first: usize,
}

impl Queue {
    /// Adds a call. `protected`: its error is nobody's business.
    pub fn push(&mut self, admitted: Admitted<'_>, db: usize, protected: bool) {
        let first = self.ends.len();
        for arg in admitted.args.items() {
            self.bytes.extend_from_slice(arg);
            self.ends.push(self.bytes.len());
        }
        if let keys @ [_, _, ..] = &admitted.keys[..] {
            for &(at, _) in keys {
                let hash = self.shared.hasher().hash_one((db, admitted.args[at]));
                self.shared.insert(hash);
            }
        }
        self.calls.push(BatchedCall { spec: admitted.spec, keys: admitted.keys, db, protected, first });
    }

    /// Whether a call would overtake another that has one of its keys, and several: that one waits here for what its
    /// other keys need. What a call with one key waits for, all others wait for that have it.
    pub fn is_ahead_of(&self, admitted: &Admitted<'_>, db: usize) -> bool {
        let is_shared = |at| self.shared.contains(&self.shared.hasher().hash_one((db, admitted.args[at])));
        !self.shared.is_empty() && admitted.keys.iter().any(|&(at, _)| is_shared(at))
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Bytes of their arguments.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all calls; the room they took stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.calls.clear();
        self.shared.clear();
    }

    /// The arguments of call number `at`.
    pub fn args(&self, at: usize) -> SmallVec<[&[u8]; 8]> {
        let first = self.calls[at].first;
        let end = self.calls.get(at + 1).map_or(self.ends.len(), |next| next.first);
        let mut start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut args = SmallVec::with_capacity(end - first);
        for &end in &self.ends[first..end] {
            args.push(&self.bytes[start..end]);
            start = end;
        }
        args
    }

    /// Call number `at`, whose arguments are `args`.
    pub fn call<'a>(&'a self, at: usize, args: &'a [&'a [u8]], now_ms: u64) -> Call<'a> {
        let BatchedCall { spec, keys, db, .. } = &self.calls[at];
        Call { command: spec, args: Args::new(args), keys, db: *db, now_ms }
    }

    /// Whether an error of call number `at` matters to the script.
    pub fn error_counts(&self, at: usize) -> bool {
        !self.calls[at].protected
    }

    /// The order in which to send them: by shard, and in their own order on each; or as they came if one of them
    /// has several keys.
    pub fn by_shard(&self, shard_of: impl Fn(&[u8]) -> usize) -> SmallVec<[(usize, usize); 16]> {
        let alone = self.calls.iter().all(|call| call.keys.len() == 1);
        let shard = |at: usize| if alone { shard_of(self.args(at)[self.calls[at].keys[0].0]) } else { 0 };
        let mut order: SmallVec<_> = (0..self.calls.len()).map(|at| (shard(at), at)).collect();
        order.sort_unstable();
        order
    }
}
