//! Transactions that take whole slots out of a shard.

use std::collections::BTreeMap;
use std::sync::Arc;

use store_engine::keyspace::Key;
use store_engine::slot::slot;
use store_engine::{Ctx, Effects, Partitions, Protocol, Reply, Work};

use super::LocalTransaction;
use crate::lock::Mode;
use crate::node::Node;
use crate::wait::Waiter;

/// Slots of one shard with all that is in them.
pub(crate) struct Cargo {
    shard: usize,
    /// Ascending.
    pub slots: Vec<u16>,
    /// By database.
    pub keys: Vec<(usize, Key)>,
    /// What they take in memory.
    pub bytes: usize,
    /// Effects that put them elsewhere.
    pub effects: Effects,
}

impl Cargo {
    fn has(&self, key: &[u8]) -> bool {
        self.slots.binary_search(&slot(key)).is_ok()
    }
}

impl LocalTransaction {
    /// Waits until all of one shard is locked.
    pub(crate) async fn begin_shard(node: &Arc<Node>, shard: usize) -> Box<LocalTransaction> {
        let mut txn = LocalTransaction::new(node);
        txn.locks.gates.push(shard);
        let grant = {
            let mut state = node.shard(shard).lock();
            let open = state.locks.take_gate(txn.locks.id, Mode::Exclusive);
            (!open).then(|| state.await_grant(txn.locks.id))
        };
        if let Some(grant) = grant {
            // The sender lives in the shard until the grant; a closed channel cannot happen before it.
            let _ = grant.await;
        }
        txn
    }

    /// The first of these slots of `shard`, which ascend and which this transaction has locked, that together take no
    /// more than `most_bytes`; at least one.
    pub(crate) fn load(&self, shard: usize, slots: &[u16], most_bytes: usize) -> Cargo {
        let state = self.node.shard(shard).lock();
        let mut found: BTreeMap<u16, (usize, Vec<(usize, usize)>)> = BTreeMap::new();
        for (db, space) in state.partition.databases.iter().enumerate() {
            for at in 0..space.len() {
                let Some((key, _)) = space.pair_at(at) else { break };
                let slot = slot(key);
                if slots.binary_search(&slot).is_ok() {
                    let (bytes, places) = found.entry(slot).or_default();
                    *bytes += space.bytes_at(at);
                    places.push((db, at));
                }
            }
        }
        let (slots_held, effects) = (Vec::with_capacity(slots.len()), Effects::default());
        let mut cargo = Cargo { shard, slots: slots_held, keys: Vec::new(), bytes: 0, effects };
        for slot in slots {
            let (bytes, places) = found.remove(slot).unwrap_or_default();
            if !cargo.slots.is_empty() && cargo.bytes + bytes > most_bytes {
                break;
            }
            cargo.slots.push(*slot);
            cargo.bytes += bytes;
            for (db, at) in places {
                let Some((key, entry)) = state.partition.databases[db].pair_at(at) else { break };
                cargo.effects.put(db, key, entry);
                cargo.keys.push((db, key.clone()));
            }
        }
        cargo
    }

    /// Removes all that is in these slots.
    pub(crate) fn unload(&mut self, cargo: &Cargo) {
        let LocalTransaction { node, undo, effects, .. } = self;
        let mut state = node.shard(cargo.shard).lock();
        for (db, key) in &cargo.keys {
            let mut ctx = Ctx {
                partitions: Partitions::One(&mut state.partition),
                db: *db,
                // What has expired goes too.
                now_ms: 0,
                seed: &mut 0,
                undo: Some(undo),
                effects: node.journal.is_some().then_some(&mut *effects),
                key_actions: None,
                work: &Work::unlimited(),
                out: &mut Reply::new(Protocol::Resp2),
            };
            ctx.watched(|ctx| ctx.delete(key));
        }
    }

    /// Notifies the watches and waiters in these slots, which belong to another node now.
    pub(crate) fn wake_slots_left(&self, cargo: &Cargo) {
        for space in &mut self.node.shard(cargo.shard).lock().partition.databases {
            space.touch_all(|key| cargo.has(key));
        }
        // A call may await one key and be about to change another: they stand in the queues of other shards too.
        for number in 0..self.node.shards() {
            let concerned = |waiter: &&Arc<_>| Waiter::concerns(waiter, |key| cargo.has(key));
            let waiters: Vec<_> =
                self.node.shard(number).lock().queues.all().filter(concerned).cloned().collect();
            for waiter in waiters {
                // An empty reply: try another node. The waiter may have been served at this moment.
                waiter.answer(Vec::new());
            }
        }
    }
}
