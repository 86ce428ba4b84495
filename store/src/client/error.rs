//! Why a transaction over nodes in other processes comes to nothing.

use proto::store::v1 as wire;
use store_engine::CommandError;
use wire::step_result::Outcome;

use crate::lock::{LockRequest, Mode};
use crate::txn::{Conflict, LimitReached};

/// Why a call could not be run.
#[derive(Clone, Debug)]
pub enum TransactionError {
    /// It needs more locks: the transaction has to be begun again with them.
    Conflict(Conflict),
    /// The transaction is lost, and nothing was done.
    Lost(CommandError),
    /// The same, because a group of replicas gets another leader: it can be begun again.
    LeaderLost(CommandError),
    /// A watched key has changed; nothing was done.
    WatchBroken,
    /// Its begin or its end has to be done apart from calls that were to go with it; nothing was done.
    NotBatched,
    /// A call that was to go with its begin or its end has failed, or memory is full; nothing was done.
    BatchFailed,
}

impl From<Conflict> for TransactionError {
    fn from(conflict: Conflict) -> TransactionError {
        TransactionError::Conflict(conflict)
    }
}

/// What a node lacked; `locks` is what it was asked for.
pub(super) fn conflict_of(stepped: &wire::StepResult, locks: &[LockRequest]) -> TransactionError {
    match stepped.outcome() {
        Outcome::LimitData => return Conflict::Limit(LimitReached::Data).into(),
        Outcome::LimitUndo => return Conflict::Limit(LimitReached::Undo).into(),
        _ => {}
    }
    let key = stepped.key.as_ref().map(|key| LockRequest {
        db: key.db as usize,
        key: (&*key.key).into(),
        mode: if key.shared { Mode::Shared } else { Mode::Exclusive },
    });
    match key.or_else(|| locks.first().cloned()) {
        Some(request) if stepped.outcome() != Outcome::ConflictAll => Conflict::Key(request).into(),
        _ => Conflict::Everything.into(),
    }
}
