//! Why a task about slots is not done.

use std::fmt;

use store::client::{MoveError, NodeError, TopologyError as ClusterError, Unfinished};

use crate::config::SettingError;

/// Why a task is not done: one line.
#[derive(Debug)]
pub(super) enum TopologyError {
    /// The certificates or the token of the cluster cannot be used.
    Setting(SettingError),
    /// The cluster refuses it, or is not reached.
    Cluster(ClusterError),
    /// No other node could take the slots of a node.
    NoOtherOwner,
    /// A batch of slots was not moved.
    NotMoved(MoveError),
    /// A node without slots is not to be stopped yet.
    StillNeeded(StillNeeded),
    /// Data may be lost, and the operator has not said that it may be.
    LossNotAccepted,
    /// No node waits for the decision of this transaction.
    NotInDoubt(u64),
    /// A decision has not reached these nodes, each with the reason.
    Missed(Vec<(String, NodeError)>),
}

/// What needs a node that has no slots left.
#[derive(Debug)]
pub(super) enum StillNeeded {
    /// Gateways or participants.
    By(Unfinished),
    /// It does not say, for this reason.
    Unknown(NodeError),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::Setting(error) => error.fmt(f),
            TopologyError::Cluster(error) => error.fmt(f),
            TopologyError::NoOtherOwner => {
                f.write_str("no other node owns slots: move some slots to another node first")
            }
            TopologyError::NotMoved(MoveError { why, .. }) => {
                write!(f, "{why}; slots that were moved stay moved, run the command again to move the rest")
            }
            TopologyError::StillNeeded(needed) => {
                write!(f, "the node has no slots left, but {needed}; run the command again")
            }
            TopologyError::LossNotAccepted => f.write_str(
                "nothing was done: --accept-loss does this. Make sure before that the processes to be given up do not run, and are \
                 not started again with their data",
            ),
            TopologyError::NotInDoubt(transaction) => {
                write!(f, "transaction {transaction:016x} is not in doubt on any reachable node")
            }
            TopologyError::Missed(missed) => {
                let missed: Vec<String> =
                    missed.iter().map(|(node, reason)| format!("{node} ({reason})")).collect();
                write!(f, "not reached: {}; run the command again when they are back", missed.join(", "))
            }
        }
    }
}

impl fmt::Display for StillNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StillNeeded::By(Unfinished { gateways_behind: 0, prepared, decided }) => write!(
                f,
                "{prepared} transactions that it has prepared are not decided, and {decided} of its decisions are not \
                 acknowledged by all participants; start the nodes that are down"
            ),
            StillNeeded::By(Unfinished { gateways_behind, .. }) => {
                write!(f, "{gateways_behind} gateways have not received the new slot map yet")
            }
            StillNeeded::Unknown(why) => write!(f, "cannot be asked whether it is still needed: {why}"),
        }
    }
}

impl From<SettingError> for TopologyError {
    fn from(error: SettingError) -> TopologyError {
        TopologyError::Setting(error)
    }
}

impl From<ClusterError> for TopologyError {
    fn from(error: ClusterError) -> TopologyError {
        TopologyError::Cluster(error)
    }
}
