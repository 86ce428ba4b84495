//! Which node of the cluster this is, and which slots are its own.

use std::fmt;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use proto::store::v1 as wire;
use store_engine::Effects;
use store_engine::slot::slot;
use wire::refusal::Code;

use super::records::{self, IDENTITY, MEMBERSHIP, RECOVERED, RecordError, StartError};
use super::refusal::refusal;
use crate::catalog::CatalogChanges;
use crate::node::Node;
use crate::random::random;
use crate::topology::{InvalidMap, NodeId, SlotMap};

/// Why a node is not what a peer takes it for, or does not take a map.
#[derive(Debug)]
pub(crate) enum MembershipError {
    /// The peer does not have the token of the cluster.
    WrongToken,
    /// The map is none.
    Map(InvalidMap),
    /// The map does not have this node.
    NoSuchNode(NodeId),
    /// It is known by another name.
    AnotherNode { known: String, name: String },
    /// It has another place in the map.
    AnotherPlace,
    /// It has no place yet.
    NoCluster,
    /// The map is not of its cluster, whose nodes are these.
    AnotherCluster(String),
    /// The data of the node of this name is in another directory.
    OtherData(String),
    /// It waits to become a process of a cluster of replicated groups.
    NotFounded,
    /// So many other nodes have to confirm that the node of this name has lost nothing, and so many have.
    Unconfirmed { needed: usize, confirmed: usize, name: String },
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::WrongToken => f.write_str("wrong cluster token"),
            MembershipError::Map(error) => error.fmt(f),
            MembershipError::NoSuchNode(node) => write!(f, "the slot map has no node {node}"),
            MembershipError::AnotherNode { known, name } => write!(f, "this node is {known}, not {name}"),
            MembershipError::AnotherPlace => f.write_str("this is another node of the cluster"),
            MembershipError::NoCluster => f.write_str("this node does not belong to a cluster yet"),
            MembershipError::AnotherCluster(nodes) => {
                write!(f, "this node belongs to another cluster: {nodes}")
            }
            MembershipError::OtherData(name) => write!(
                f,
                "this node does not have the data of {name}: its data-dir is empty or belongs to another node. \
                 Start it with the right data-dir, or accept the loss with: moonshard topology accept {name}"
            ),
            MembershipError::NotFounded => f.write_str(
                "this store node waits for moonshard topology found or join to make it one of a cluster of replicated groups",
            ),
            MembershipError::Unconfirmed { needed, confirmed, name } => write!(
                f,
                "this node has no data, and waits until {needed} of the other nodes have confirmed that it never had any \
                 ({confirmed} have). Start them; or, if its data is lost, accept the loss with: moonshard topology \
                 accept {name}"
            ),
        }
    }
}

impl std::error::Error for MembershipError {}

/// The node's place, once a peer has sent it.
///
/// A caller that uses a slot of the node holds what [`Membership::owns`] returns meanwhile, or checks again when the keys
/// are locked: slots leave only while the gate of their shard is closed.
pub(crate) struct Membership {
    state: RwLock<MembershipState>,
    /// Number of the directory; 0 without one.
    identity: u64,
    /// The directory was made at this start.
    is_new: bool,
}

struct MembershipState {
    taken: Option<Taken>,
    /// The catalog is on its way to another node.
    catalog_leaves: bool,
}

#[derive(Clone)]
pub(crate) struct Taken {
    pub map: Arc<SlotMap>,
    /// The map as a message: made once, as every call that locks a whole node is answered with it.
    message: Arc<wire::SlotMap>,
    /// Of the map: computed once, as each heartbeat compares it.
    pub digest: u64,
    pub me: NodeId,
}

impl Taken {
    fn new(map: SlotMap, me: NodeId) -> Taken {
        Taken { digest: map.digest(), message: Arc::new(map.to_wire()), map: Arc::new(map), me }
    }

    /// The map as a message.
    pub fn to_wire(&self) -> wire::SlotMap {
        wire::SlotMap::clone(&self.message)
    }

    fn record(&self) -> Vec<u8> {
        records::membership(&self.map, self.me)
    }
}

/// As long as this is held the node keeps its slots.
pub(crate) struct Owned<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, MembershipState>);

impl Membership {
    /// The place that the data was written in. A new directory gets its number, which is on disk before any peer sees it.
    pub async fn of(node: &Node, now_ms: u64) -> Result<Membership, StartError> {
        let find = |name: &[u8]| node.records(name).into_iter().find(|(rest, _)| rest.is_empty());
        let taken = match find(MEMBERSHIP) {
            None => None,
            Some((_, bytes)) => {
                let (map, me) = records::read_membership(&bytes).map_err(StartError::Membership)?;
                Some(Taken::new(map, me))
            }
        };
        let found = find(IDENTITY);
        let is_new = found.is_none();
        let identity = match (node.journal(), found) {
            (None, _) => 0,
            (Some(_), Some((_, bytes))) => {
                let wrong = |error| StartError::Membership(RecordError::Length(error));
                u64::from_le_bytes(<[u8; 8]>::try_from(&*bytes).map_err(wrong)?)
            }
            (Some(journal), None) => {
                let identity = new_identity(now_ms);
                node.put_record(IDENTITY, &identity.to_le_bytes());
                journal.flush().await.map_err(StartError::Disk)?;
                identity
            }
        };
        Ok(Membership {
            state: RwLock::new(MembershipState { taken, catalog_leaves: false }),
            identity,
            is_new,
        })
    }

    /// Number of the data directory; 0 without one.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether the data directory was made at this start.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The node's place, if it knows it.
    pub fn taken(&self) -> Option<Taken> {
        self.state.read().taken.clone()
    }

    /// What the map calls this node.
    pub fn name(&self) -> Option<String> {
        let taken = self.taken()?;
        taken.map.nodes().get(taken.me).cloned()
    }

    /// A peer takes this node for node `me` of `map`. Becomes that node if it has no place yet; an error if it is another node,
    /// or if the node is known to have its data in another directory.
    pub fn take(&self, node: &Node, map: SlotMap, me: NodeId) -> Result<Taken, MembershipError> {
        let Some(name) = map.nodes().get(me) else {
            return Err(MembershipError::NoSuchNode(me));
        };
        let mut state = self.state.write();
        let known = state.taken.as_ref().and_then(|taken| taken.map.nodes().get(taken.me));
        if let Some(known) = known.filter(|known| *known != name) {
            return Err(MembershipError::AnotherNode { known: known.clone(), name: name.clone() });
        }
        let taken = match &state.taken {
            None => Taken::new(map.founded(), me),
            Some(mine) => mine.with(map)?,
        };
        let taken = state.set(node, taken.identified(self.identity));
        taken.is_right(self.identity).map(|()| taken)
    }

    /// An operator says that this is node `me` of `map`, with whatever data it has.
    pub fn accept(&self, node: &Node, map: SlotMap, me: NodeId) -> Result<Taken, MembershipError> {
        if me >= map.nodes().len() {
            return Err(MembershipError::NoSuchNode(me));
        }
        let mut state = self.state.write();
        let mine = match &state.taken {
            Some(mine) if mine.me != me => return Err(MembershipError::AnotherPlace),
            Some(mine) => mine.with(map)?,
            None => Taken::new(map.founded(), me),
        };
        let map = SlotMap::clone(&mine.map).replaced(me, self.identity);
        Ok(state.set(node, Taken::new(map, me)))
    }

    /// The node has its data under another number than the others know: they are to accept that.
    pub fn accept_renewed(&self, node: &Node) -> Result<(), MembershipError> {
        match self.taken() {
            Some(taken) if taken.is_right(self.identity).is_err() => {
                self.accept(node, SlotMap::clone(&taken.map), taken.me).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Takes what is newer in this map; an error if it is another cluster's.
    pub fn learn(&self, node: &Node, map: SlotMap) -> Result<(), MembershipError> {
        let mut state = self.state.write();
        let Some(mine) = &state.taken else {
            return Err(MembershipError::NoCluster);
        };
        let taken = mine.with(map)?;
        state.set(node, taken);
        Ok(())
    }

    /// Slots come or go: `map` is kept in one record of the journal with `effects`, which are about all that was in
    /// them. Until that is done no request finds out which node has them.
    pub fn change(&self, node: &Node, txn: (&mut Effects, &mut CatalogChanges), map: &SlotMap) {
        let (effects, records) = txn;
        let mut state = self.state.write();
        let Some(mine) = &state.taken else { return };
        // That they are of one cluster was known before anything was prepared.
        let Ok(merged) = mine.map.merged(map) else { return };
        let taken = Taken::new(merged, mine.me);
        records.put(MEMBERSHIP, &taken.record());
        node.record_with(effects, std::mem::take(records));
        *state = MembershipState { taken: Some(taken), catalog_leaves: false };
    }

    /// Whether all of `keys` are this node's; else the refusal that says whose they are.
    pub fn owns<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<Owned<'_>, wire::Refusal> {
        let state = self.state.read();
        let Some(taken) = &state.taken else { return Err(homeless()) };
        taken.is_right(self.identity).map_err(|reason| refusal(Code::Denied, &reason))?;
        let mut keys = keys.into_iter();
        match keys.find(|key| taken.map.owner_of(key) != taken.me) {
            Some(key) => Err(taken.moved(slot(key))),
            None => Ok(Owned(state)),
        }
    }

    /// Whether the catalog is here, which is where slot 0 is; else the refusal that says where.
    pub fn owns_catalog(&self) -> Result<Owned<'_>, wire::Refusal> {
        let state = self.state.read();
        match &state.taken {
            None => Err(homeless()),
            Some(taken) if taken.is_right(self.identity).is_err() => {
                Err(refusal(Code::Denied, "this node does not have the data that belongs to it"))
            }
            Some(taken) if taken.map.owner(0) != taken.me || state.catalog_leaves => Err(taken.moved(0)),
            Some(_) => Ok(Owned(state)),
        }
    }

    /// From now on the catalog does not change, until slot 0 has moved or this is said to be over.
    pub fn catalog_leaves(&self, leaves: bool) {
        self.state.write().catalog_leaves = leaves;
    }

    /// The refusal for calls that waited for a slot that has left.
    pub fn moved(&self) -> wire::Refusal {
        self.taken().map_or_else(homeless, |taken| taken.moved_away("the slot has moved"))
    }
}

impl Taken {
    /// This with the number of the directory, if no other one is known.
    fn identified(self, identity: u64) -> Taken {
        let map = SlotMap::clone(&self.map).identified(self.me, identity);
        Taken::new(map, self.me)
    }

    /// Whether the directory with this number belongs to the node; else an error that says what to do.
    fn is_right(&self, identity: u64) -> Result<(), MembershipError> {
        let known = self.map.identities().get(self.me).map_or(0, |known| known.id);
        if known == 0 || known == identity {
            return Ok(());
        }
        Err(MembershipError::OtherData(self.map.nodes()[self.me].clone()))
    }

    /// This with what another map has.
    fn with(&self, map: SlotMap) -> Result<Taken, MembershipError> {
        let foreign = || MembershipError::AnotherCluster(self.map.nodes().join(","));
        if map.is_guess() {
            let may_be = self.map.is_akin(&map) && map.nodes().len() <= self.map.nodes().len();
            return may_be.then(|| self.clone()).ok_or_else(foreign);
        }
        let map = self.map.learnt(&map, self.me).map_err(|_| foreign())?;
        Ok(Taken::new(map, self.me))
    }

    fn moved(&self, slot: u16) -> wire::Refusal {
        self.moved_away(&format!("slot {slot} does not belong to this node"))
    }

    fn moved_away(&self, reason: &str) -> wire::Refusal {
        wire::Refusal { map: Some(Box::new(self.to_wire())), ..refusal(Code::Moved, reason) }
    }
}

impl MembershipState {
    fn set(&mut self, node: &Node, taken: Taken) -> Taken {
        if self.taken.as_ref().is_none_or(|mine| mine.map != taken.map) {
            node.put_record(MEMBERSHIP, &taken.record());
            self.taken = Some(taken.clone());
        }
        taken
    }
}

/// Later ones are greater, and no two of the same moment are equal but by chance.
fn new_identity(now_ms: u64) -> u64 {
    (now_ms << 20) | (random() >> 44)
}

/// Gives the data of a node another number, once for each cluster that was recovered with it: it may lack decisions of
/// transactions, and who asks for one must not take that for a decision.
pub(super) fn renew_identity(node: &Node, cluster: u64, now_ms: u64) {
    let is_done = node.records(RECOVERED).iter().any(|(_, of)| **of == cluster.to_le_bytes());
    if !is_done {
        node.put_record(IDENTITY, &new_identity(now_ms).to_le_bytes());
        node.put_record(RECOVERED, &cluster.to_le_bytes());
    }
}

fn homeless() -> wire::Refusal {
    refusal(Code::Denied, &MembershipError::NoCluster)
}
