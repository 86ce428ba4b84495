//! Why a transaction ends before its commit.

use crate::lock::LockRequest;

/// Why a transaction cannot go on and has to be rolled back. If a call needs more than is locked, waiting for that could
/// end in a deadlock: the transaction is begun again with more locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It needs this key, which another transaction holds.
    Key(LockRequest),
    /// It needs everything.
    Everything,
    /// It has reached a limit, and would again.
    Limit(LimitReached),
}

/// A limit that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// `maxmemory`.
    Data,
    /// [`TxnLimits::undo_bytes`].
    Undo,
}
