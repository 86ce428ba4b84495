//! What bounds the memory that a transaction makes its node hold.

use store_engine::spec::flags;
use store_engine::{CommandError, Group, Partition, Reply, Routing};

use super::{Batch, Conflict};
use crate::node::{Call, Guards, Node};

/// What a call meets that needs memory, while the data exceeds `maxmemory` and no key can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It is run: whoever began the transaction has looked before, as Redis does.
    Allow,
    /// Its reply is an error; the transaction goes on.
    Refuse,
    /// The transaction ends and is rolled back.
    RollBack,
}

/// The limits of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnLimits {
    /// Bytes of memory that the transaction may hold in order to be rolled back: what its undo log contains, less what
    /// the data has become smaller by.
    pub undo_bytes: usize,
    /// What happens beyond `maxmemory`.
    pub on_full: OnFull,
    /// Bytes by which the data may exceed `maxmemory` before that happens.
    pub slack_bytes: usize,
}

impl Default for TxnLimits {
    /// None.
    fn default() -> TxnLimits {
        TxnLimits { undo_bytes: usize::MAX, on_full: OnFull::Allow, slack_bytes: 0 }
    }
}

/// A limit that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// `maxmemory`.
    Data,
    /// [`TxnLimits::undo_bytes`].
    Undo,
}

/// The refusal of a command that needs memory, in Redis' words.
pub const FULL: CommandError = CommandError::new("OOM command not allowed when used memory > 'maxmemory'.");

impl Batch<'_> {
    /// Refuses a call that needs memory which is not there. Whether it has been answered.
    pub(super) fn refuse_beyond_limit(&mut self, call: &Call<'_>, out: &mut Reply) -> Result<bool, Conflict> {
        let limits = self.limits;
        if limits.on_full == OnFull::Allow || !call.command.has(flags::DENY_OOM) || !self.node.has_limit() {
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
}

/// Memory that a transaction holds: of what its undo log contains, values that were moved out of the data are no more than
/// there was before.
pub(super) fn held_bytes(undo_bytes: usize, data_bytes: isize) -> usize {
    undo_bytes.saturating_sub(data_bytes.min(0).unsigned_abs())
}

/// By how much `after` is more than `before`; sizes of memory fit.
pub(super) fn difference(before: usize, after: usize) -> isize {
    after.wrapping_sub(before) as isize
}

/// Bytes of the part of `partition` that a call may change.
pub(super) fn bytes_for(call: &Call<'_>, partition: &Partition) -> usize {
    // COPY and MOVE reach another database.
    match call.command.group == Group::Generic {
        true => partition.bytes(),
        false => partition.databases[call.db].bytes(),
    }
}

/// The same of several shards.
pub(super) fn bytes_in(call: &Call<'_>, guards: &Guards<'_>) -> usize {
    let by_key = call.command.routing.of(call.args) == Routing::ByKey;
    let bytes = |partition| if by_key { bytes_for(call, partition) } else { partition.bytes() };
    guards.iter().map(|(_, shard)| bytes(&shard.partition)).sum()
}

impl Node {
    fn has_limit(&self) -> bool {
        self.limiter.is_set()
    }
}
