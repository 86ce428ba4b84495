//! Why a node in another process cannot be asked.

use std::fmt;

use crate::topology::InvalidMap;

/// Why a link is down, or sends no request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkError {
    /// It has just been opened.
    #[default]
    NotConnected,
    /// What it leads to is no address: that, and what is wrong with it.
    InvalidAddress(Box<(String, String)>),
    /// There is no connection, for this reason.
    Connect(String),
    /// A connection takes too long.
    ConnectTimeout,
    /// The other side does not take the stream, for this reason.
    StreamRefused(String),
    /// The other side takes too long to take the stream.
    NoAnswer,
    /// The node refuses the handshake, for this reason.
    Refused(String),
    /// The first answer is none to a handshake.
    NoHandshake,
    /// The map of the node is not taken.
    Map(MapError),
    /// The node has another data directory than it should have.
    OtherData,
    /// The stream is broken, for this reason.
    StreamFailed(String),
    /// The node has ended the stream.
    ClosedByNode,
    /// Nothing is heard of the node.
    Silent,
    /// The node is about to end.
    ShuttingDown,
    /// The link is not needed any more.
    Closed,
    /// Too many requests wait.
    TooManyRequests,
    /// The process does not lead the group of replicas.
    NotLeader,
    /// The stream that the request belongs to is gone.
    OtherStream,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkError::NotConnected => "not connected yet",
            LinkError::InvalidAddress(wrong) => {
                let (address, why) = &**wrong;
                return write!(f, "{address} is not an address: {why}");
            }
            LinkError::Connect(why) => return write!(f, "cannot connect: {why}"),
            LinkError::ConnectTimeout => "connection timed out",
            LinkError::StreamRefused(why) => return write!(f, "refused: {why}"),
            LinkError::NoAnswer => "no answer within the timeout",
            LinkError::Refused(why) => why,
            LinkError::NoHandshake => "no handshake",
            LinkError::Map(error) => return error.fmt(f),
            LinkError::OtherData => "the node does not have the data that belongs to it",
            LinkError::StreamFailed(why) => return write!(f, "the stream failed: {why}"),
            LinkError::ClosedByNode => "the node closed the stream",
            LinkError::Silent => "the node does not respond",
            LinkError::ShuttingDown => "the node is shutting down",
            LinkError::Closed => "the connection is closed",
            LinkError::TooManyRequests => "too many requests are pending",
            LinkError::NotLeader => "its group of replicas has no leader at the moment",
            LinkError::OtherStream => "the connection was lost in the meantime",
        })
    }
}

impl std::error::Error for LinkError {}

impl From<MapError> for LinkError {
    fn from(error: MapError) -> LinkError {
        LinkError::Map(error)
    }
}

/// Why the slot map of a node is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// It is none, or another cluster's.
    Invalid(InvalidMap),
    /// It has not the nodes that the configuration names.
    OtherNodes,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Invalid(error) => error.fmt(f),
            MapError::OtherNodes => f.write_str("the node has a different list of nodes, or another order"),
        }
    }
}

impl std::error::Error for MapError {}

impl From<InvalidMap> for MapError {
    fn from(error: InvalidMap) -> MapError {
        MapError::Invalid(error)
    }
}
