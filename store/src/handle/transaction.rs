//! A transaction, on the node of this process or over nodes in others.

use store_engine::work::{CANCELLED, LONG_CALL_STEPS};
use store_engine::{Protocol, Reply};

use crate::call::Call;
use crate::client::{DistributedTransaction, TransactionError};
use crate::lock::{LockRequest, Mode};
use crate::txn::{Batch, Change, Conflict, Executed, LocalTransaction, TxnLimits};

/// A transaction. Dropping it without [`Transaction::commit`] takes all its changes back.
pub enum Transaction {
    /// On the node of this process.
    Local(Box<LocalTransaction>),
    /// Over nodes in other processes.
    Distributed(Box<DistributedTransaction>),
    /// A long call has it, or had it when it was cancelled: nothing is left to be done with it.
    Away,
}

impl Transaction {
    /// Sets the limits of all further calls.
    pub fn set_limits(&mut self, limits: TxnLimits) {
        match self {
            Transaction::Local(txn) => txn.set_limits(limits),
            Transaction::Distributed(txn) => txn.set_limits(limits),
            Transaction::Away => {}
        }
    }

    /// Runs a call if that waits for nothing and is not long. Whether its reply is no error.
    pub fn execute_now(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        match self {
            Transaction::Local(txn) => txn.execute_short(call, mode, seed, out),
            Transaction::Distributed(txn) => txn.execute_local(call, seed, out),
            Transaction::Away => Ok(None),
        }
    }

    /// Whether a call would hold up the thread that runs it: [`LocalTransaction::is_long`]. Other nodes decide themselves.
    pub fn is_long(&self, call: &Call<'_>) -> bool {
        matches!(self, Transaction::Local(txn) if txn.is_long(call))
    }

    /// Runs a call, after all that are in its way.
    pub async fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        match self {
            Transaction::Local(txn) => {
                if let Some(fine) = txn.execute_short(call, mode, seed, out)? {
                    return Ok(fine);
                }
                Box::pin(self.execute_away(call, mode, seed, out)).await
            }
            Transaction::Distributed(txn) => Box::pin(txn.execute(call, mode, seed, out)).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::execute_any`], which takes the transaction with it.
    async fn execute_away(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        let Transaction::Local(txn) = std::mem::replace(self, Transaction::Away) else {
            return Err(cancelled());
        };
        match txn.execute_any(call, mode, seed, out).await {
            Executed::Done(txn, fine) => {
                *self = Transaction::Local(txn);
                Ok(fine)
            }
            Executed::Conflict(txn, conflict) => {
                *self = Transaction::Local(txn);
                Err(conflict.into())
            }
            Executed::Failed => Err(cancelled()),
        }
    }

    /// Runs calls whose replies are not read, after all that are in their way; those on the same node go there together.
    /// The numbers of those that failed.
    pub async fn execute_all(
        &mut self,
        calls: &[Call<'_>],
        mode: Mode,
        seed: &mut u64,
    ) -> Result<Vec<usize>, TransactionError> {
        match self {
            Transaction::Distributed(txn) => Box::pin(txn.execute_all(calls, mode, seed)).await,
            _ => {
                let mut failed = Vec::new();
                let mut unread = Reply::new(Protocol::Resp2);
                for (at, call) in calls.iter().enumerate() {
                    unread.buf.clear();
                    if !self.execute(call, mode, seed, &mut unread).await? {
                        failed.push(at);
                    }
                    if unread.steps > LONG_CALL_STEPS {
                        unread.steps = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Ok(failed)
            }
        }
    }

    /// For several calls in a row without a wait between them; only where the data is in this process.
    pub fn batch(&mut self) -> Option<Batch<'_>> {
        match self {
            Transaction::Local(txn) => Some(txn.batch()),
            Transaction::Distributed(_) | Transaction::Away => None,
        }
    }

    /// The keys that are locked one by one.
    pub fn requests(&self) -> impl Iterator<Item = &LockRequest> {
        let (here, spread) = match self {
            Transaction::Local(txn) => (Some(txn.requests()), None),
            Transaction::Distributed(txn) => (None, Some(txn.requests())),
            Transaction::Away => (None, None),
        };
        here.into_iter().flatten().chain(spread.into_iter().flatten())
    }

    /// The present time as the nodes see it, if they are elsewhere.
    pub fn now_ms(&self) -> Option<u64> {
        match self {
            Transaction::Local(_) | Transaction::Away => None,
            Transaction::Distributed(txn) => Some(txn.now_ms()).filter(|now_ms| *now_ms > 0),
        }
    }

    /// The time of all its calls: that of the nodes, or of this clock, which the nodes then use too.
    pub fn keep_time(&mut self, clock: impl FnOnce() -> u64) -> u64 {
        match self {
            Transaction::Local(_) | Transaction::Away => clock(),
            Transaction::Distributed(txn) => txn.keep_time(clock),
        }
    }

    /// Whether memory was full on a node elsewhere when it began.
    pub fn is_full(&self) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.is_full(),
        }
    }

    /// [`LocalTransaction::begin_part`].
    pub async fn begin_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.begin_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.begin_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::keep_part`].
    pub async fn keep_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.keep_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.keep_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::undo_part`].
    pub async fn undo_part(&mut self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.undo_part();
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.undo_part()).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// [`LocalTransaction::undo_part_with_changes`], of a part that has begun.
    pub async fn undo_part_with_changes(
        &mut self,
        most: usize,
    ) -> Result<(Vec<Change>, usize), TransactionError> {
        match self {
            Transaction::Local(txn) => Ok(txn.undo_part_with_changes(most)),
            Transaction::Distributed(txn) => Box::pin(txn.undo_part_with_changes(most)).await,
            Transaction::Away => Err(cancelled()),
        }
    }

    /// Whether it has not begun, and may do so with its first calls: [`Transaction::begin_with`].
    pub fn is_open(&self) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.is_open(),
        }
    }

    /// [`DistributedTransaction::begin_with`].
    pub async fn begin_with(
        &mut self,
        calls: &[(Call<'_>, bool)],
        mode: Mode,
        spares_memory: bool,
        seed: &mut u64,
        out: Option<&mut Reply>,
    ) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(_) | Transaction::Away => Err(TransactionError::NotBatched),
            Transaction::Distributed(txn) => {
                Box::pin(txn.begin_with(calls, mode, spares_memory, seed, out)).await
            }
        }
    }

    /// [`DistributedTransaction::leave_to_end`].
    pub fn leave_to_end(&mut self, calls: &[(Call<'_>, bool)], mode: Mode, spares_memory: bool) -> bool {
        match self {
            Transaction::Local(_) | Transaction::Away => false,
            Transaction::Distributed(txn) => txn.leave_to_end(calls, mode, spares_memory),
        }
    }

    /// Keeps all changes and lets the keys go. An error says whether nothing was done, or that is unknown; or that calls
    /// could not be done that were left to the end.
    pub async fn commit(self) -> Result<(), TransactionError> {
        match self {
            Transaction::Local(txn) => {
                txn.commit_any().await;
                Ok(())
            }
            Transaction::Distributed(txn) => Box::pin(txn.commit()).await,
            Transaction::Away => Err(cancelled()),
        }
    }
}

/// Of a transaction whose long call has failed, or was cancelled.
fn cancelled() -> TransactionError {
    TransactionError::Lost(CANCELLED)
}
