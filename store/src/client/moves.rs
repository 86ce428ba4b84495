//! Changes of the owners of slots, and decisions of operators: what topology commands ask for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::store::v1 as wire;
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::clock::ClockOffset;
use super::cluster::Cluster;
use super::credentials::PeerCredentials;
use super::directory::Directory;
use super::link::{Link, LinkHandshake};
use super::link_error::LinkError;
use super::topology_error::{NodeError, TopologyError};
use crate::journal::fail_point;
use crate::topology::{NodeId, SlotMap};

/// Why a batch of slots was not moved.
#[derive(Clone, Debug)]
pub struct MoveError {
    /// The node that gives them, and the reason.
    pub why: TopologyError,
    /// Whether another attempt may succeed.
    pub may_pass: bool,
}

/// A batch of slots that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How many slots.
    pub slots: usize,
    /// The keys that were in them.
    pub keys: u64,
    /// What these took in memory.
    pub bytes: u64,
    /// How many slots are still to be moved.
    pub left: usize,
}

/// A node as `topology show` has it.
pub struct Member {
    /// `HOST:PORT`.
    pub node: String,
    /// Its slots, such as `0-5460,7000`.
    pub slots: String,
    /// How many.
    pub count: usize,
    /// How many keys it has.
    pub keys: u64,
    /// What they take in memory.
    pub bytes: u64,
    /// Of the map that it knows.
    pub epoch: u64,
    /// Records of its journal that are not on disk yet.
    pub lag: u64,
    /// Transactions that wait for the decision of another node.
    pub prepared: u64,
    /// Decisions that participants have not acknowledged.
    pub decided: u64,
    /// Of the transactions that wait, those whose coordinator cannot be reached.
    pub in_doubt: u64,
    /// Transactions that an operator has decided there, and their coordinator otherwise, since the node was started.
    pub contradicted: u64,
    /// How far its clock is from the clock here, if it was measured.
    pub clock: Option<ClockOffset>,
    /// Whether it can be reached; else why not.
    pub up: Result<(), LinkError>,
}

/// The map of the cluster that these nodes are of, as far as they can be asked, and what is known of its groups of replicas. None
/// of them takes a place for that.
pub async fn look(
    addresses: &[String],
    credentials: &PeerCredentials,
) -> Result<(SlotMap, Arc<Directory>), TopologyError> {
    let directory = Arc::<Directory>::default();
    let mut known = look_at(addresses, &directory, credentials).await;
    if let Some(groups) = directory.groups() {
        let names: Vec<String> = groups.groups.into_iter().map(|group| group.name).collect();
        known = look_at(&names, &directory, credentials).await;
    }
    Ok((known?, directory))
}

/// The map of these nodes, which are addresses or groups of the directory.
pub(super) async fn look_at(
    nodes: &[String],
    directory: &Arc<Directory>,
    credentials: &PeerCredentials,
) -> Result<SlotMap, TopologyError> {
    let looks: Vec<(Arc<Look>, Link)> = nodes
        .iter()
        .map(|node| {
            let look = Arc::new(Look {
                token: credentials.token.clone().unwrap_or_default(),
                map: Mutex::default(),
                directory: directory.clone(),
            });
            let tls = credentials.tls.clone();
            (look.clone(), Link::to(node.clone(), Some(directory.clone()), tls, look))
        })
        .collect();
    let mut known: Option<SlotMap> = None;
    let mut errors = Vec::new();
    for (look, link) in &looks {
        if let Err(reason) = link.connected().await {
            errors.push((link.address().to_owned(), reason));
        }
        if let Some(map) = look.map.lock().take() {
            let map = SlotMap::from_wire(&map)?;
            known = Some(match known {
                Some(known) => known.merged(&map).map_err(|error| {
                    TopologyError::Node(link.address().to_owned(), NodeError::Map(error.into()))
                })?,
                None => map,
            });
        }
    }
    known.ok_or(match errors.is_empty() {
        true => TopologyError::NoCluster,
        false => TopologyError::Unreachable(errors),
    })
}

/// A transaction that is prepared on a node.
pub struct PreparedTransaction {
    /// Its number.
    pub transaction: u64,
    /// The node.
    pub node: String,
    /// Its coordinator.
    pub coordinator: String,
    /// How long the coordinator has been unreachable in milliseconds, if the transaction is in doubt.
    pub in_doubt_ms: Option<u64>,
    /// Some of the keys that it holds.
    pub keys: Vec<Vec<u8>>,
    /// How many there are; none if it holds the whole node.
    pub count: Option<u64>,
    /// The other participants, `HOST:PORT`.
    pub siblings: Vec<String>,
}

/// How long gateways and participants may take until they need a node no more that has no slots left. Gateways receive a new
/// slot map with the next heartbeat; one that hangs is disconnected long before.
pub fn drain_timeout() -> Duration {
    fail_point::time("drain-ms", Duration::from_secs(30))
}

/// What still needs a node that has no slots left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Gateways that have not confirmed the slot map of the node.
    pub gateways_behind: u64,
    /// Transactions that the node has prepared and that are not decided.
    pub prepared: u64,
    /// Decisions of the node that a participant has not acknowledged.
    pub decided: u64,
}

/// Where a decision of an operator is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The nodes, `HOST:PORT`.
    pub nodes: Vec<String>,
    /// The participants that it has not reached, each with the reason.
    pub missed: Vec<(String, NodeError)>,
}

/// Lets a node be what the map says with whatever data it has, although that is not what it had. Those that can be
/// reached know it then.
pub async fn accept(
    cluster: &Arc<Cluster>,
    address: &str,
    credentials: &PeerCredentials,
) -> Result<(), TopologyError> {
    let map = cluster.map();
    let node = map.nodes().iter().position(|node| node == address);
    let node = node.ok_or_else(|| TopologyError::unknown_node(&map, address))?;
    let failed = |why| TopologyError::Node(address.to_owned(), why);
    let token = credentials.token.clone().unwrap_or_default();
    let look = Arc::new(Look { token, map: Mutex::default(), directory: Arc::default() });
    let link = Link::open(address.to_owned(), credentials.tls.clone(), look);
    link.connected().await.map_err(|reason| failed(NodeError::Lost(reason)))?;
    let accept = wire::Accept { map: Some(map.to_wire()), node: node as u32 };
    let map = match link.ask(Ask::Accept(Box::new(accept))).answer().await {
        Ok(Answer::Status(status)) if status.map.is_some() => status.map.unwrap_or_default(),
        Ok(Answer::Refusal(refusal)) => return Err(failed(NodeError::Refused(refusal.reason))),
        Ok(_) => return Err(failed(NodeError::UnexpectedAnswer)),
        Err(lost) => return Err(failed(NodeError::Lost(lost.reason))),
    };
    for link in cluster.links() {
        // A node that cannot be reached receives the map from the other nodes.
        let _ =
            link.ask(Ask::SetTopology(Box::new(wire::SetTopology { map: Some(map.clone()) }))).answer().await;
    }
    Ok(())
}

struct Look {
    token: String,
    map: Mutex<Option<wire::SlotMap>>,
    directory: Arc<Directory>,
}

impl LinkHandshake for Look {
    fn hello(&self) -> Ask {
        Ask::Handshake(Box::new(wire::Handshake { token: self.token.clone(), ..wire::Handshake::default() }))
    }

    fn welcome(&self, answer: Answer) -> Result<(), LinkError> {
        match answer {
            Answer::HandshakeReply(welcome) => {
                *self.map.lock() = welcome.map;
                Ok(())
            }
            Answer::Refusal(refusal) => Err(LinkError::Refused(refusal.reason)),
            _ => Err(LinkError::NoHandshake),
        }
    }

    fn redirected(&self, groups: &wire::Groups) {
        // Those of another cluster are not believed.
        let _ = self.directory.learn(groups);
    }

    fn map_digest(&self) -> u64 {
        0
    }
}

impl Cluster {
    /// All nodes with their last status, by number.
    pub fn members(&self) -> Vec<Member> {
        let map = self.map();
        let member = |(node, link): (NodeId, Arc<Link>)| {
            let status = link.status();
            let run = |(first, last): &(usize, usize)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            Member {
                node: link.address().to_owned(),
                slots: map.runs_of(node).iter().map(run).collect::<Vec<_>>().join(","),
                count: map.count_of(node),
                keys: status.keys.iter().sum(),
                bytes: status.bytes,
                epoch: status.epoch,
                lag: status.journal_newest.saturating_sub(status.journal_durable),
                prepared: status.prepared,
                decided: status.decided,
                in_doubt: status.in_doubt,
                contradicted: status.contradicted,
                clock: link.clock(),
                up: link.is_up(),
            }
        };
        self.links().into_iter().enumerate().map(member).collect()
    }

    /// The prepared transactions of the nodes that can be reached, or only those in doubt.
    pub async fn transactions(&self, in_doubt: bool) -> Vec<PreparedTransaction> {
        let mut all = Vec::new();
        for link in self.links() {
            let list = Ask::ListTransactions(wire::ListTransactions { in_doubt });
            let Ok(Answer::Transactions(listed)) = link.ask(list).answer().await else { continue };
            all.extend(listed.transactions.into_iter().map(|prepared| PreparedTransaction {
                transaction: prepared.txn,
                node: link.address().to_owned(),
                coordinator: prepared.coordinator,
                in_doubt_ms: prepared.in_doubt_ms,
                keys: prepared.locks.into_iter().map(|lock| lock.key.to_vec()).collect(),
                count: (!prepared.everything).then_some(prepared.keys),
                siblings: prepared.siblings,
            }));
        }
        all
    }

    /// Ends a transaction in doubt on all its participants that can be reached. An error: it was ended differently.
    ///
    /// The nodes are asked one after another, so that of two contradicting decisions the first node refuses one.
    pub async fn decide(&self, transaction: u64, commit: bool) -> Result<Decided, TopologyError> {
        let prepared = self.transactions(false).await.into_iter();
        let mut participants: BTreeSet<String> = prepared
            .filter(|prepared| prepared.transaction == transaction)
            .flat_map(|prepared| prepared.siblings.into_iter().chain([prepared.node]))
            .collect();
        let mut decided = Decided::default();
        for link in self.links() {
            let node = link.address().to_owned();
            let is_participant = participants.remove(&node);
            match link.ask(Ask::Decide(wire::Decide { txn: transaction, commit })).answer().await {
                Ok(Answer::Done(_)) => decided.nodes.push(node),
                Ok(Answer::Refusal(refusal)) => match refusal.code() {
                    Code::Contradiction => {
                        return Err(TopologyError::Node(node, NodeError::Refused(refusal.reason)));
                    }
                    Code::Unavailable => decided.missed.push((node, NodeError::Refused(refusal.reason))),
                    // It has none of it.
                    _ => {}
                },
                Err(lost) if is_participant => decided.missed.push((node, NodeError::Lost(lost.reason))),
                _ => {}
            }
        }
        decided.missed.extend(participants.into_iter().map(|node| (node, NodeError::NotInMap)));
        Ok(decided)
    }

    /// Adds a node without slots, `HOST:PORT`. All nodes with slots are sent it; one that knows another node in its place
    /// refuses it.
    pub async fn add_node(self: &Arc<Self>, address: &str) -> Result<NodeId, TopologyError> {
        let map = self.map();
        if let Some(node) = map.nodes().iter().position(|node| node == address) {
            return Ok(node);
        }
        let map = map.with_node(address)?.to_wire();
        // All clients that add nodes ask in this order, so that the first addition is followed by all.
        for link in self.owners() {
            let request = link
                .ask(Ask::SetTopology(Box::new(wire::SetTopology { map: Some(map.clone()) })))
                .answer()
                .await;
            let failed = |why| Err(TopologyError::Node(link.address().to_owned(), why));
            match request {
                Ok(Answer::Done(_)) => {}
                Ok(Answer::Refusal(refusal)) => return failed(NodeError::Refused(refusal.reason)),
                Ok(_) => return failed(NodeError::UnexpectedAnswer),
                Err(lost) => return failed(NodeError::Lost(lost.reason)),
            }
        }
        self.learn(&map)?;
        Ok(map.nodes.len() - 1)
    }

    /// What still needs a node; an error if it cannot be asked.
    pub async fn unfinished(&self, node: NodeId) -> Result<Unfinished, NodeError> {
        let heartbeat = wire::Heartbeat { map_digest: self.map_digest(), invalidations: false };
        match self.link(node).ask(Ask::Heartbeat(heartbeat)).answer().await {
            Ok(Answer::Status(status)) => Ok(Unfinished {
                gateways_behind: status.gateways_behind,
                prepared: status.prepared,
                decided: status.decided,
            }),
            Ok(_) => Err(NodeError::UnexpectedAnswer),
            Err(lost) => Err(NodeError::Lost(lost.reason)),
        }
    }

    /// Lets a node give some of these slots, as far as they are its own, to another one.
    pub async fn move_some(
        self: &Arc<Self>,
        from: NodeId,
        (first, last): (usize, usize),
        to: NodeId,
    ) -> Result<Moved, MoveError> {
        let map = self.map();
        let link = self.link(from);
        let error = |why, may_pass: bool| {
            let why = TopologyError::Node(link.address().to_owned(), why);
            MoveError { why, may_pass }
        };
        let failed = |why| error(why, true);
        // Keys with a time to live would expire early there, or late.
        self.check_clocks([from, to].into_iter()).map_err(|differ| failed(NodeError::Clock(differ)))?;
        // Its map may lack the receiver.
        let learn = Ask::SetTopology(Box::new(wire::SetTopology { map: Some(map.to_wire()) }));
        match link.ask(learn).answer().await {
            Ok(Answer::Refusal(refusal)) => return Err(failed(NodeError::Refused(refusal.reason))),
            Ok(_) => {}
            Err(lost) => return Err(failed(NodeError::Lost(lost.reason))),
        }
        let request = wire::MoveSlots { first: first as u32, last: last as u32, node: to as u32 };
        match link.ask(Ask::MoveSlots(request)).answer().await {
            Ok(Answer::SlotsMoved(wire::SlotsMoved { slots, keys, bytes, left, map })) => {
                map.map_or(Ok(()), |map| self.learn(&map)).map_err(|error| failed(NodeError::Map(error)))?;
                Ok(Moved { slots: slots as usize, keys, bytes, left: left as usize })
            }
            Ok(Answer::Refusal(refusal)) => {
                let may_pass = refusal.code() != Code::Invalid;
                Err(error(NodeError::Refused(refusal.reason), may_pass))
            }
            Ok(_) => Err(failed(NodeError::UnexpectedAnswer)),
            Err(lost) => Err(failed(NodeError::Lost(lost.reason))),
        }
    }
}
