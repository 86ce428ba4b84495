//! How a node greets another.

use proto::store::v1 as wire;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::membership::Membership;
use crate::client::LinkError;
use crate::client::link::LinkHandshake;

/// The request it sends, and what it does with the reply.
pub(crate) struct PeerHandshake {
    hello: wire::Handshake,
}

impl PeerHandshake {
    /// For the node at this address.
    pub fn new(membership: &Membership, token: Option<&str>, address: &str) -> PeerHandshake {
        let map = membership.taken().map(|taken| taken.map);
        let node = map.iter().flat_map(|map| map.nodes()).position(|node| node == address);
        let hello = wire::Handshake {
            peer: 0,
            map: map.map(|map| map.to_wire()),
            node: node.unwrap_or_default() as u32,
            token: token.unwrap_or_default().to_owned(),
            gateway: false,
            invalidations: false,
            notify: 0,
            parts: false,
        };
        PeerHandshake { hello }
    }
}

impl LinkHandshake for PeerHandshake {
    fn hello(&self) -> Ask {
        Ask::Handshake(Box::new(self.hello.clone()))
    }

    fn welcome(&self, answer: Answer) -> Result<(), LinkError> {
        match answer {
            Answer::HandshakeReply(_) => Ok(()),
            Answer::Refusal(refusal) => Err(LinkError::Refused(refusal.reason)),
            _ => Err(LinkError::NoHandshake),
        }
    }

    fn map_digest(&self) -> u64 {
        0
    }
}
