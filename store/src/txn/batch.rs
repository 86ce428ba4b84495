//! Calls of a transaction that are done at once, under its locks.

use store_engine::notifications::Notification;
use store_engine::spec::flags;
use store_engine::work;
use store_engine::{Effects, Group, Partition, Partitions, Reply, Routing, UndoLog};

use super::limits::{difference, held_bytes};
use super::locks::Locks;
use super::{Conflict, FULL, LimitReached, LocalTransaction, OnFull, TxnLimits};
use crate::call::{self, Call, is_long_on};
use crate::lock::Mode;
use crate::node::Node;
use crate::shard::{Guards, ShardGuard};

impl LocalTransaction {
    /// Runs `call` under the transaction's locks. A key that is not locked yet is taken if it is free, in
    /// `mode`. Whether the reply is no error, or what has to be locked beforehand.
    pub fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Conflict> {
        self.batch().execute(call, mode, seed, out)
    }

    /// [`LocalTransaction::execute`] of a call that is not long; nothing has happened to one that is.
    pub fn execute_short(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        self.batch().execute_short(call, mode, seed, out)
    }

    /// For several calls in a row without a wait between them.
    pub fn batch(&mut self) -> Batch<'_> {
        let LocalTransaction {
            node, locks, undo, effects, events, now_ms, limits, data_bytes, before, ..
        } = self;
        let effects = node.journal.is_some().then_some(effects);
        let undo_before = before.as_ref().map_or(0, |before| before.undo.bytes());
        let limits = *limits;
        Batch { node, locks, undo, undo_before, effects, events, now_ms, limits, data_bytes, shard: None }
    }
}

/// Calls that run one right after the other: as long as they are for the same shard it stays locked.
pub struct Batch<'a> {
    node: &'a Node,
    locks: &'a mut Locks,
    undo: &'a mut UndoLog,
    /// Bytes of the undo log before the present part.
    undo_before: usize,
    effects: Option<&'a mut Effects>,
    events: &'a mut Vec<Notification>,
    now_ms: &'a mut u64,
    limits: TxnLimits,
    data_bytes: &'a mut isize,
    shard: Option<(usize, ShardGuard<'a>)>,
}

impl<'a> Batch<'a> {
    /// [`LocalTransaction::execute`].
    pub fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Conflict> {
        let ran = self.execute_if(call, mode, false, seed, out)?;
        Ok(ran.expect("every call is run unless only short ones are"))
    }

    /// [`LocalTransaction::execute_short`].
    pub fn execute_short(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        self.execute_if(call, mode, true, seed, out)
    }

    /// Runs a call; with `only_short` none that is long.
    fn execute_if(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        *self.now_ms = call.now_ms;
        if self.refuse_beyond_limit(call, out)? {
            return Ok(Some(false));
        }
        let done = self.execute_within_limits(call, mode, only_short, seed, out)?;
        self.check_undo()?;
        Ok(done)
    }

    fn execute_within_limits(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        let routing = call.command.routing.of(call.args);
        if let (Routing::ByKey, [(at, access)]) = (routing, call.keys) {
            let need = call::mode_of(*access);
            return self.execute_on_one(call, call.args[*at], need, mode, only_short, seed, out);
        }
        if only_short && work::is_long_by_itself(call.args, call.keys) {
            return Ok(None);
        }
        // The shards of other calls are locked in their order, which one that is locked already would disturb.
        self.shard = None;
        let Batch { node, locks, undo, effects, events, data_bytes, .. } = self;
        let effects = effects.as_deref_mut();
        match routing {
            Routing::Anywhere => {
                let none = Partitions::Some { held: Vec::new(), total: 1 };
                Ok(Some(call::run(call, none, seed, None, None, out)))
            }
            Routing::ByKey => {
                let mut guards = node.lock_shards_of(call);
                if only_short && node.is_long_in(&guards, call) {
                    return Ok(None);
                }
                let shared = locks.secure_all(node, &mut guards, call, mode)?;
                let before = bytes_in(call, &guards);
                let fine = node.run_locked(&mut guards, call, shared, seed, Some(undo), effects, events, out);
                **data_bytes += difference(before, bytes_in(call, &guards));
                Ok(Some(fine))
            }
            Routing::Everywhere | Routing::Paged | Routing::ByKeyUnless(_) if locks.whole => {
                let mut guards = node.lock_everything();
                if only_short && node.is_long_in(&guards, call) {
                    return Ok(None);
                }
                let before = bytes_in(call, &guards);
                let fine = node.run_locked(&mut guards, call, false, seed, Some(undo), effects, events, out);
                **data_bytes += difference(before, bytes_in(call, &guards));
                Ok(Some(fine))
            }
            Routing::Everywhere | Routing::Paged | Routing::ByKeyUnless(_) => Err(Conflict::Everything),
        }
    }

    /// Refuses a call that needs memory which is not there. Whether it has been answered.
    fn refuse_beyond_limit(&mut self, call: &Call<'_>, out: &mut Reply) -> Result<bool, Conflict> {
        let limits = self.limits;
        if limits.on_full == OnFull::Allow
            || !call.command.has(flags::DENY_OOM)
            || !self.node.limiter.is_set()
        {
            return Ok(false);
        }
        // The sizes of shards are known when these are let go, and evicting locks them.
        self.shard = None;
        if !self.node.exceeds_limit(limits.slack_bytes, call.now_ms) {
            return Ok(false);
        }
        if limits.on_full == OnFull::RollBack {
            return Err(Conflict::Limit(LimitReached::Data));
        }
        out.error(&FULL);
        Ok(true)
    }

    /// An error if rolling back would need more memory than the transaction may hold.
    pub(super) fn check_undo(&self) -> Result<(), Conflict> {
        let held = held_bytes(self.undo_before + self.undo.bytes(), *self.data_bytes);
        if held > self.limits.undo_bytes { Err(Conflict::Limit(LimitReached::Undo)) } else { Ok(()) }
    }

    #[allow(clippy::too_many_arguments, reason = "all belong to the one call")]
    fn execute_on_one(
        &mut self,
        call: &Call<'_>,
        key: &[u8],
        need: Mode,
        mode: Mode,
        only_short: bool,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        let Batch { node, locks, undo, effects, events, data_bytes, shard: locked, .. } = self;
        // A key that was named beforehand knows its shard.
        let known = locks.among_few(call.db, key);
        let number = known.map_or_else(|| node.shard_of(key), |held| held.shard);
        let secured = known.map(|held| held.request.mode).filter(|held| held.covers(need));
        let shard = match locked {
            Some((held, shard)) if *held == number => shard,
            _ => {
                // The one before is let go first: a task may hold one and wait for another only in their order.
                *locked = None;
                &mut locked.insert((number, node.shard(number).lock())).1
            }
        };
        if only_short && is_long_on(call, &shard.partition) {
            return Ok(None);
        }
        let held = match secured {
            Some(held) => held,
            None => locks.secure(number, &mut shard.locks, call.db, key, need, mode)?,
        };
        let before = bytes_for(call, &shard.partition);
        let (partitions, shared) = (Partitions::One(&mut shard.partition), held == Mode::Shared);
        let effects = effects.as_deref_mut();
        let fine = node.run_and_publish(call, partitions, shared, seed, Some(undo), effects, events, out);
        **data_bytes += difference(before, bytes_for(call, &shard.partition));
        Ok(Some(fine))
    }
}

/// Bytes of the part of `partition` that a call may change.
fn bytes_for(call: &Call<'_>, partition: &Partition) -> usize {
    // COPY and MOVE reach another database.
    match call.command.group == Group::Generic {
        true => partition.bytes(),
        false => partition.databases[call.db].bytes(),
    }
}

/// The same of several shards.
fn bytes_in(call: &Call<'_>, guards: &Guards<'_>) -> usize {
    let by_key = call.command.routing.of(call.args) == Routing::ByKey;
    let bytes = |partition| if by_key { bytes_for(call, partition) } else { partition.bytes() };
    guards.iter().map(|(_, shard)| bytes(&shard.partition)).sum()
}
