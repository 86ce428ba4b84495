//! How a node without a slot map becomes a node of the cluster that a gateway names.
//!
//! Either the cluster is new, or the node has lost its data directory, which only the other nodes can tell. So it belongs to
//! the cluster once more than half of them have answered that they do not know it with another directory. Until then
//! gateways are refused: what the node would answer them may be wrong, and what it would acknowledge lost.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::store::v1 as wire;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::host::Host;
use super::membership::MembershipError;
use crate::client::link::{Link, LinkHandshake};
use crate::client::{LinkError, MapError};
use crate::topology::{NodeId, SlotMap};

/// How often the task checks whether the node was given a slot map in another way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a gateway waits for the answer to its handshake until it is refused. The other nodes of a new cluster answer
/// sooner.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether other nodes have to be asked before this node belongs to the cluster of this map. A node alone has no other to
/// ask, and a node without a data directory has lost nothing.
pub(super) fn is_needed(host: &Host, map: &SlotMap) -> bool {
    let may_have_lost = map.is_guess() && map.nodes().len() > 1 && host.membership.identity() != 0;
    may_have_lost && host.membership.taken().is_none() && !host.foundings.are_required()
}

/// Waits until it is known how to answer this handshake, for a while.
pub(super) async fn settled(host: &Arc<Host>, hello: &wire::Handshake) {
    // The addresses in a map are connected to only for a peer that may name them.
    let Some(Ok(map)) = hello.map.as_ref().filter(|_| host.has_token(hello)).map(SlotMap::from_wire) else {
        return;
    };
    let mut settled = pin!(host.newcomer.settled.notified());
    settled.as_mut().enable();
    if is_needed(host, &map) {
        confirm(host, map, hello.node as usize);
        // A gateway that is refused then tries again.
        let _ = timeout(SETTLE_TIMEOUT, settled).await;
    }
}

/// A gateway that knows no slot map takes this node, which has none either, for node `me` of `guess`. Asks the other nodes,
/// unless that has begun; returns the reason for which the gateway is refused meanwhile.
pub(super) fn confirm(host: &Arc<Host>, guess: SlotMap, me: NodeId) -> MembershipError {
    let (weak, map) = (Arc::downgrade(host), guess.clone());
    let ask = |confirmed| tokio::spawn(inquire(weak, map, me, confirmed)).abort_handle();
    let confirmed = host.newcomer.inquire(&guess, me, ask);
    let name = guess.nodes().get(me).cloned().unwrap_or_default();
    MembershipError::Unconfirmed { needed: majority(guess.nodes().len()), confirmed, name }
}

/// More than half of the other nodes.
fn majority(nodes: usize) -> usize {
    nodes.saturating_sub(1) / 2 + 1
}

/// Asks the other nodes until the place of this node is known.
async fn inquire(host: Weak<Host>, guess: SlotMap, me: NodeId, confirmed: Arc<AtomicUsize>) {
    let (answers, mut answered) = mpsc::unbounded_channel();
    let links: Vec<Link> = {
        let Some(host) = host.upgrade() else { return };
        let others = guess.nodes().iter().enumerate().filter(|(node, _)| *node != me);
        let open = |(node, address): (NodeId, &String)| {
            let token = host.credentials.token.clone().unwrap_or_default();
            let question = Arc::new(Question { node, token, answers: answers.clone() });
            Link::open(address.clone(), host.credentials.tls.clone(), question)
        };
        others.map(open).collect()
    };
    let needed = majority(guess.nodes().len());
    let (mut voters, mut place) = (BTreeSet::new(), guess);
    while voters.len() < needed {
        let answer = timeout(LOOK_AGAIN, answered.recv()).await;
        let Some(host) = host.upgrade() else { return };
        if host.membership.taken().is_some() {
            return;
        }
        let Ok(Some((node, known))) = answer else { continue };
        match known {
            None => _ = voters.insert(node),
            Some(map) if map.is_akin(&place) => {
                let known = map.identities().get(me).map_or(0, |identity| identity.id);
                if known != 0 && known != host.membership.identity() {
                    // From now on gateways are refused as by any node that has lost its data.
                    return settle(&host, map, me);
                }
                voters.insert(node);
                // Slots may have moved since the cluster was founded.
                if me < map.nodes().len() {
                    place = match place.is_guess() {
                        true => map,
                        false => place.merged(&map).unwrap_or(place),
                    };
                }
            }
            // A node of another cluster cannot know.
            Some(_) => {}
        }
        confirmed.store(voters.len(), Ordering::Relaxed);
    }
    drop(links);
    if let Some(host) = host.upgrade() {
        settle(&host, place, me);
    }
}

fn settle(host: &Host, map: SlotMap, me: NodeId) {
    // If it is refused the next handshake says why.
    let _ = host.membership.take(&host.node, map, me);
    host.newcomer.settled.notify_waiters();
}

/// Asks one node which slot map it has.
struct Question {
    node: NodeId,
    token: String,
    answers: mpsc::UnboundedSender<(NodeId, Option<SlotMap>)>,
}

impl LinkHandshake for Question {
    fn hello(&self) -> Ask {
        Ask::Handshake(Box::new(wire::Handshake { token: self.token.clone(), ..wire::Handshake::default() }))
    }

    fn welcome(&self, answer: Answer) -> Result<(), LinkError> {
        let map = match answer {
            Answer::HandshakeReply(reply) => reply.map,
            Answer::Refusal(refusal) => return Err(LinkError::Refused(refusal.reason)),
            _ => return Err(LinkError::NoHandshake),
        };
        let map = map.map(|map| SlotMap::from_wire(&map)).transpose().map_err(MapError::Invalid)?;
        // The receiver is gone once the answer is known.
        let _ = self.answers.send((self.node, map));
        Ok(())
    }

    fn map_digest(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::majority;

    #[test]
    fn more_than_half_of_the_others_are_needed() {
        assert_eq!([2, 3, 4, 5, 6, 7].map(majority), [1, 2, 2, 3, 3, 4]);
    }
}
