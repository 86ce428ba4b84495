//! Why a task about slots is not done.

use std::fmt;

use store::client::{MoveError, Unfinished};
use store::topology::SlotMap;

use crate::config::SettingError;

/// Why a task is not done: one line.
#[derive(Debug)]
pub(super) enum TopologyError {
    /// The certificates or the token of the cluster cannot be used.
    Setting(SettingError),
    /// The cluster refuses it or is not reached, for this reason.
    Refused(String),
    /// A new node is not reached: its address, and the reason.
    Unreachable(String, String),
    /// No node has this address: that, and the addresses that there are.
    UnknownNode(String, String),
    /// Nobody would have the slots of a node.
    NoOtherOwner,
    /// A batch of slots was not moved.
    NotMoved(MoveError),
    /// A node without slots is not to be stopped yet.
    StillNeeded(StillNeeded),
    /// No node waits for the decision of this transaction.
    NotInDoubt(u64),
    /// A decision has not reached these nodes, each with the reason.
    Missed(Vec<(String, String)>),
}

/// What needs a node that has no slots left.
#[derive(Debug)]
pub(super) enum StillNeeded {
    /// Gateways or participants.
    By(Unfinished),
    /// It does not say, for this reason.
    Unknown(String),
}

impl TopologyError {
    /// No node of this map has this address.
    pub fn unknown_node(map: &SlotMap, address: &str) -> TopologyError {
        TopologyError::UnknownNode(address.to_owned(), map.nodes().join(","))
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::Setting(error) => error.fmt(f),
            TopologyError::Refused(why) => f.write_str(why),
            TopologyError::Unreachable(address, why) => write!(f, "{address}: {why}"),
            TopologyError::UnknownNode(address, nodes) => {
                write!(f, "{address} is not a node of this cluster; its nodes are {nodes}")
            }
            TopologyError::NoOtherOwner => {
                f.write_str("no other node owns slots: move some slots to another node first")
            }
            TopologyError::NotMoved(MoveError { why, .. }) => {
                write!(f, "{why}; slots that were moved stay moved, run the command again to move the rest")
            }
            TopologyError::StillNeeded(needed) => {
                write!(f, "the node has no slots left, but {needed}; run the command again")
            }
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

/// The store's client has its reasons as texts.
impl From<String> for TopologyError {
    fn from(why: String) -> TopologyError {
        TopologyError::Refused(why)
    }
}
