//! Calls whose results are not read: collected, and sent together.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use store::{BufferedCall, CallBuffer};

use crate::admission::Admitted;

/// The calls of one script, in their order.
#[derive(Default)]
pub(super) struct Queue {
    calls: CallBuffer,
    /// Of each call, whether the script ignores its error.
    protected: Vec<bool>,
    /// Hashes of the keys of those calls that have several. One key taken for another costs a wait, no more.
    shared: HashSet<u64, RandomState>,
}

impl Queue {
    /// Adds a call. `protected`: the script ignores its error.
    pub fn push(&mut self, admitted: &Admitted<'_>, db: usize, protected: bool) {
        if let keys @ [_, _, ..] = admitted.keys() {
            for &(at, _) in keys {
                let hash = self.shared.hasher().hash_one((db, admitted.args()[at]));
                self.shared.insert(hash);
            }
        }
        self.calls.push(&admitted.at(db, 0));
        self.protected.push(protected);
    }

    /// Whether a call would overtake another that has one of its keys, and several: that one waits here for what its
    /// other keys need. What a call with one key waits for, all others wait for that have it.
    pub fn is_ahead_of(&self, admitted: &Admitted<'_>, db: usize) -> bool {
        let is_shared = |at| self.shared.contains(&self.shared.hasher().hash_one((db, admitted.args()[at])));
        !self.shared.is_empty() && admitted.keys().iter().any(|&(at, _)| is_shared(at))
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
        self.calls.bytes()
    }

    /// Removes all calls; the memory stays.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.protected.clear();
        self.shared.clear();
    }

    /// Call number `at`.
    pub fn get(&self, at: usize) -> BufferedCall<'_> {
        self.calls.get(at)
    }

    /// All calls.
    pub fn calls(&self) -> impl Iterator<Item = BufferedCall<'_>> {
        self.calls.iter()
    }

    /// Whether an error of call number `at` matters to the script.
    pub fn error_counts(&self, at: usize) -> bool {
        !self.protected[at]
    }

    /// The order in which to send the calls: by shard, and in their own order on each; or as they came if one of them
    /// has several keys.
    pub fn by_shard(&self, shard_of: impl Fn(&[u8]) -> usize) -> SmallVec<[(usize, usize); 16]> {
        let alone = self.calls().all(|call| call.keys().len() == 1);
        let shard = |call: BufferedCall<'_>| call.first_key().map_or(0, &shard_of);
        let shards = self.calls().map(|call| if alone { shard(call) } else { 0 });
        let mut order: SmallVec<_> = shards.enumerate().map(|(at, shard)| (shard, at)).collect();
        order.sort_unstable();
        order
    }
}
