//! What bounds the memory that a transaction makes its node hold.

use store_engine::{CommandError, error};

/// What a call meets that needs memory, while the data exceeds `maxmemory` and no key can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It is run: the check was made when the transaction began, as in Redis.
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

/// The refusal of a command that needs memory, in Redis' words.
pub const FULL: CommandError = error::OUT_OF_MEMORY;

/// Memory that a transaction holds: of what its undo log contains, values that were moved out of the data are no more than
/// there was before.
pub(super) fn held_bytes(undo_bytes: usize, data_bytes: isize) -> usize {
    undo_bytes.saturating_sub(data_bytes.min(0).unsigned_abs())
}

/// By how much `after` is more than `before`; sizes of memory fit.
pub(super) fn difference(before: usize, after: usize) -> isize {
    after.wrapping_sub(before) as isize
}
