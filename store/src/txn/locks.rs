//! What a transaction has locked.

use smallvec::SmallVec;
use store_engine::bytes_eq::bytes_eq;

use super::Conflict;
use crate::call::Call;
use crate::lock::{LockRequest, LockTable, Mode, TxnId};
use crate::node::Node;
use crate::shard::Guards;

/// A key that is locked, or awaited.
pub(super) struct Held {
    pub shard: usize,
    pub request: LockRequest,
}

impl Held {
    /// The order in which all transactions lock.
    pub fn order(&self) -> (usize, usize, &[u8], bool) {
        (self.shard, self.request.db, &self.request.key, self.request.mode == Mode::Shared)
    }
}

/// What a transaction has locked, or waits for.
pub(super) struct Locks {
    pub id: TxnId,
    /// Shards whose gate was taken (or is awaited), ascending unless an undeclared key came in later.
    pub gates: SmallVec<[usize; 4]>,
    /// Keys taken or awaited.
    pub keys: SmallVec<[Held; 2]>,
    pub whole: bool,
    /// Which of the keys was looked for last: probably the next one is the same.
    pub last: usize,
}

impl Locks {
    /// The key among those held, if there are only a few: then looking at all is faster than hashing one.
    pub fn among_few(&mut self, db: usize, key: &[u8]) -> Option<&Held> {
        let few = if self.keys.len() <= 8 && !self.whole { &self.keys[..] } else { &[] };
        let is_it = |held: &Held| bytes_eq(&held.request.key, key) && held.request.db == db;
        if !few.get(self.last).is_some_and(is_it) {
            self.last = few.iter().position(is_it)?;
        }
        few.get(self.last)
    }

    /// Makes sure that this transaction holds `key` at least as `need`; a free one is taken as `mode`. How it is held
    /// then.
    pub fn secure(
        &mut self,
        shard: usize,
        table: &mut LockTable,
        db: usize,
        key: &[u8],
        need: Mode,
        mode: Mode,
    ) -> Result<Mode, Conflict> {
        if self.whole {
            return Ok(Mode::Exclusive);
        }
        match table.mode_of(self.id, db, key) {
            Some(held) if held.covers(need) => return Ok(held),
            Some(_) => return Err(Conflict::Key(LockRequest { db, key: key.into(), mode: need })),
            None => {}
        }
        let request = LockRequest { db, key: key.into(), mode };
        let passed = self.gates.contains(&shard);
        if !table.try_take_key(self.id, db, key, mode, passed) {
            return Err(Conflict::Key(request));
        }
        if !passed {
            self.gates.push(shard);
        }
        self.keys.push(Held { shard, request });
        Ok(mode)
    }

    /// [`Locks::secure`] for all keys of a call, whose shards are locked. Whether others may hold some of them as well.
    pub fn secure_all(
        &mut self,
        node: &Node,
        guards: &mut Guards<'_>,
        call: &Call<'_>,
        mode: Mode,
    ) -> Result<bool, Conflict> {
        let mut shared = false;
        for (key, need) in call.keys() {
            let number = node.shard_of(key);
            let at = guards.binary_search_by_key(&number, |(held, _)| *held);
            let at = at.expect("the shard of every key is locked");
            let held = self.secure(number, &mut guards[at].1.locks, call.db, key, need, mode)?;
            shared |= held == Mode::Shared;
        }
        Ok(shared)
    }
}
