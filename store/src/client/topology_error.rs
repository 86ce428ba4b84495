//! Why the topology is not shown or changed.

use std::fmt;

use super::clock::ClocksDiffer;
use super::link_error::{LinkError, MapError};
use crate::replication::GroupsError;
use crate::topology::{InvalidMap, SlotMap};

/// Why a cluster does not do what an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// One of its nodes does not: its address, and why.
    Node(String, NodeError),
    /// None of its nodes can be reached: their addresses, and why.
    Unreachable(Vec<(String, LinkError)>),
    /// These nodes have no slot map yet.
    NoCluster,
    /// The processes do not have groups of replicas.
    NoGroups,
    /// They have.
    HasGroups,
    /// The group that changes the list of groups has no leader.
    NoLeader,
    /// The cluster is not recovered, for this reason.
    NotRecovered(String),
    /// A majority of the replicas of this group has lost its data.
    MajorityLost(String),
    /// No node has this address: that, and the addresses that there are.
    UnknownNode(String, String),
    /// The slot map is none, or would be none.
    Map(MapError),
    /// The processes cannot be such a cluster.
    Groups(GroupsError),
}

/// Why a node does not do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// It cannot be reached, or was lost.
    Lost(LinkError),
    /// It refuses it, for this reason.
    Refused(String),
    /// It answers something else.
    UnexpectedAnswer,
    /// Its slot map does not fit to those of the others.
    Map(MapError),
    /// Its clock does not agree with that of another one.
    Clock(ClocksDiffer),
    /// The slot map does not say where it is.
    NotInMap,
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
            TopologyError::Node(address, why) => write!(f, "{address}: {why}"),
            TopologyError::Unreachable(nodes) => {
                let nodes: Vec<String> =
                    nodes.iter().map(|(address, why)| format!("{address}: {why}")).collect();
                f.write_str(&nodes.join("; "))
            }
            TopologyError::NoCluster => {
                f.write_str("these nodes do not belong to a cluster yet: start a gateway first")
            }
            TopologyError::NoGroups => f.write_str(
                "these processes do not belong to a cluster of replicated groups; `moonshard topology found` makes one",
            ),
            TopologyError::HasGroups => {
                f.write_str("these processes belong to a cluster of replicated groups already")
            }
            TopologyError::NoLeader => f.write_str(
                "the group meta, which changes the cluster, has no leader at present: a majority of its replicas must run",
            ),
            TopologyError::NotRecovered(why) => f.write_str(why),
            TopologyError::MajorityLost(group) => write!(
                f,
                "the group {group} has data, and a majority of the processes with its replicas have lost theirs; start them with \
                 the right data-dir, or see `moonshard topology recover`"
            ),
            TopologyError::UnknownNode(address, nodes) => {
                write!(f, "{address} is not a node of this cluster; its nodes are {nodes}")
            }
            TopologyError::Map(error) => error.fmt(f),
            TopologyError::Groups(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Lost(why) => why.fmt(f),
            NodeError::Refused(why) => f.write_str(why),
            NodeError::UnexpectedAnswer => f.write_str("unexpected type of answer"),
            NodeError::Map(error) => error.fmt(f),
            NodeError::Clock(error) => error.fmt(f),
            NodeError::NotInMap => f.write_str("it is not in the slot map"),
        }
    }
}

impl std::error::Error for TopologyError {}

impl std::error::Error for NodeError {}

impl From<GroupsError> for TopologyError {
    fn from(error: GroupsError) -> TopologyError {
        TopologyError::Groups(error)
    }
}

impl From<MapError> for TopologyError {
    fn from(error: MapError) -> TopologyError {
        TopologyError::Map(error)
    }
}

impl From<InvalidMap> for TopologyError {
    fn from(error: InvalidMap) -> TopologyError {
        TopologyError::Map(error.into())
    }
}
