//! Transactions whose commands are run elsewhere: the values of locked keys go there, what became of them comes back.

use std::collections::VecDeque;
use std::sync::Arc;

use store_engine::codec;
use store_engine::effect::{CATALOG, Effect, Effects, EntryMeta};
use store_engine::{Ctx, Partitions, Protocol, Reply, Work};

use super::limits::difference;
use super::{Conflict, LimitReached, LocalTransaction, OnFull, TxnLimits};
use crate::catalog::CatalogChanges;
use crate::lock::{LockRequest, Mode};
use crate::node::Node;
use crate::shard::partitions_of;

/// What is under a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// This entry: marks and value, for [`store_engine::effect::Put`].
    Entry(Vec<u8>),
    /// Something larger than was wanted.
    TooLarge,
}

impl LocalTransaction {
    /// A transaction that has locked all of `requests`, if that is possible without waiting.
    pub fn try_begin(node: &Arc<Node>, requests: &[LockRequest]) -> Option<Box<LocalTransaction>> {
        let mut txn = LocalTransaction::new(node);
        txn.lock_free(requests).ok().map(|()| txn)
    }

    /// Locks more keys, all of which have to be free. What was locked before one that is not stays so.
    pub fn lock_free(&mut self, requests: &[LockRequest]) -> Result<(), Conflict> {
        for LockRequest { db, key, mode } in requests {
            let shard = self.node.shard_of(key);
            let mut state = self.node.shard(shard).lock();
            self.locks.secure(shard, &mut state.locks, *db, key, *mode, *mode)?;
        }
        Ok(())
    }

    /// Whether `key` is locked at least as `need`.
    pub fn holds(&self, db: usize, key: &[u8], need: Mode) -> bool {
        if self.locks.whole {
            return true;
        }
        let shard = self.node.shard(self.node.shard_of(key)).lock();
        shard.locks.mode_of(self.locks.id, db, key).is_some_and(|held| held.covers(need))
    }

    /// Its node.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Whether it has locked the whole node.
    pub(crate) fn holds_everything(&self) -> bool {
        self.locks.whole
    }

    /// What is under a locked key; an entry only if it takes no more than `most_bytes` of memory.
    pub fn value(&self, db: usize, key: &[u8], most_bytes: usize, now_ms: u64) -> Found {
        let mut shard = self.node.shard(self.node.shard_of(key)).lock();
        let space = &mut shard.partition.databases[db];
        // What has expired stays: it may be alive for another that has locked it to read.
        let found = if space.peek(key, now_ms).is_some() { space.find_used(key, now_ms) } else { None };
        let Some(at) = found else { return Found::Nothing };
        let entry = space.at(at);
        if entry.value.bytes() > most_bytes {
            return Found::TooLarge;
        }
        let mut bytes = Vec::with_capacity(entry.value.bytes() + 16);
        EntryMeta::of(entry).write(&mut bytes);
        codec::put_value(&entry.value, &mut bytes);
        Found::Entry(bytes)
    }

    /// Makes keys what they became elsewhere. Only effects that put and remove keys which are locked exclusively are
    /// taken; others are an error, with those before them done.
    pub fn apply(&mut self, changes: &[u8], now_ms: u64) -> Result<(), &'static str> {
        for change in Effects::read(changes) {
            let (db, key, effect) = change.map_err(|_| "malformed changes")?;
            if !self.holds(db, key, Mode::Exclusive) {
                return Err("a change of a key that is not locked");
            }
            let entry = match effect {
                Effect::Put(put) => Some(put.entry().map_err(|_| "a malformed entry")?),
                Effect::Remove => None,
                _ => return Err("a change of another kind than put and remove"),
            };
            let LocalTransaction { node, undo, effects, data_bytes, .. } = self;
            let mut shard = node.shard(node.shard_of(key)).lock();
            let before = shard.partition.databases[db].bytes();
            let effects = node.journal.is_some().then_some(effects);
            let mut ctx = Ctx {
                partitions: Partitions::One(&mut shard.partition),
                db,
                now_ms,
                seed: &mut 0,
                undo: Some(undo),
                effects,
                // Published by the gateway that knows the command, if at all.
                key_actions: None,
                work: &Work::unlimited(),
                out: &mut Reply::new(Protocol::Resp2),
            };
            ctx.watched(|ctx| match entry {
                Some(entry) => ctx.put_entry(key, entry),
                None => drop(ctx.delete(key)),
            });
            *data_bytes += difference(before, shard.partition.databases[db].bytes());
        }
        self.now_ms = now_ms;
        Ok(())
    }

    /// An error if the changes that it has applied need memory which is not there.
    pub(crate) fn check_data(&self, now_ms: u64) -> Result<(), Conflict> {
        let TxnLimits { on_full, slack_bytes, .. } = self.limits;
        let is_limited = on_full != OnFull::Allow && self.data_bytes > 0;
        match is_limited && self.node.exceeds_limit(slack_bytes, now_ms) {
            true => Err(Conflict::Limit(LimitReached::Data)),
            false => Ok(()),
        }
    }

    /// What was changed so far.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Changes of records that are made when it is committed, beside those that it has already.
    pub(crate) fn records_mut(&mut self) -> &mut CatalogChanges {
        &mut self.records
    }

    /// Effects and changes of records, to be recorded before it is committed.
    pub(crate) fn parts_mut(&mut self) -> (&mut Effects, &mut CatalogChanges) {
        (&mut self.effects, &mut self.records)
    }

    /// Does again what a transaction did whose locks this one has, and commits it with `effects`, which are these
    /// changes and what is to be kept with them.
    pub(crate) fn repeat(mut self, changes: &[u8], effects: Effects, now_ms: u64) {
        let mut changed = VecDeque::new();
        let mut guards = self.node.lock_everything();
        let mut partitions = partitions_of(&mut guards, self.node.shards());
        for change in Effects::read(changes) {
            // They were read when their keys were locked.
            let Ok((db, key, effect)) = change else { break };
            if db != CATALOG && effect.apply(db, key, &mut partitions).is_ok() {
                partitions.keyspace(db, key).touch(key);
                changed.push_back((db, key.into()));
            }
        }
        drop(partitions);
        drop(guards);
        self.effects = effects;
        self.node.record_with(&mut self.effects, std::mem::take(&mut self.records));
        self.serve(changed, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_that_has_expired_is_nothing_and_stays_for_those_who_have_locked_it_earlier() {
        let node = Node::new(1);
        let request = |mode| vec![LockRequest { db: 0, key: b"k".as_slice().into(), mode }];
        let mut writer = LocalTransaction::begin(&node, request(Mode::Exclusive)).await;
        let mut changes = Effects::default();
        let expire_at_ms = std::num::NonZeroU64::new(1000);
        changes.put_string(0, b"k", b"v", EntryMeta { expire_at_ms, ..EntryMeta::default() });
        writer.apply(changes.as_bytes(), 1).expect("sound changes");
        writer.commit();
        let earlier = LocalTransaction::begin(&node, request(Mode::Shared)).await;
        let later = LocalTransaction::begin(&node, request(Mode::Shared)).await;
        assert!(matches!(later.value(0, b"k", 100, 1000), Found::Nothing));
        assert!(matches!(earlier.value(0, b"k", 100, 999), Found::Entry(_)));
    }
}
