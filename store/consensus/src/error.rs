//! What a replica refuses.

use std::fmt;

/// Why a replica does not do what it was asked.
#[derive(Debug)]
pub enum ConsensusError {
    /// It is not the leader, or is about to hand over the leadership. Nothing was done.
    NotLeader,
    /// Another change of the members is not complete yet. Nothing was done.
    ChangePending,
    /// A record of the log on disk cannot be read, or does not follow the one before.
    Damaged(String),
    /// A message of another replica cannot be read, or is not for this replica.
    InvalidMessage(String),
    /// Another replica counts on entries that this replica once had: its disk was exchanged or has lost them. It must be replaced by
    /// a replica with another number.
    LogLost {
        /// The last entry that this replica has.
        last: u64,
        /// The entry that it is known to have had.
        acknowledged: u64,
    },
    /// The Raft implementation reports this.
    Raft(raft::Error),
}

impl fmt::Display for ConsensusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsensusError::NotLeader => f.write_str("this replica is not the leader of its group"),
            ConsensusError::ChangePending => f.write_str("another change of the members is not complete yet"),
            ConsensusError::Damaged(what) => write!(f, "the replicated log is damaged: {what}"),
            ConsensusError::InvalidMessage(what) => write!(f, "invalid message of another replica: {what}"),
            ConsensusError::LogLost { last, acknowledged } => write!(
                f,
                "this replica has lost a part of its log: it acknowledged entry {acknowledged}, but ends with entry {last}"
            ),
            ConsensusError::Raft(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConsensusError {}

impl From<raft::Error> for ConsensusError {
    fn from(error: raft::Error) -> ConsensusError {
        match error {
            raft::Error::ProposalDropped => ConsensusError::NotLeader,
            error => ConsensusError::Raft(error),
        }
    }
}
