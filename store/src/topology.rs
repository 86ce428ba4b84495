//! Which node owns which slots.

use std::cmp::Ordering;
use std::fmt;

use prost::Message as _;
use proto::store::v1 as wire;
use store_engine::slot::{self, slot};

/// How many slots there are.
pub const SLOTS: usize = slot::SLOTS as usize;

/// Number of a node in its [`SlotMap`].
pub type NodeId = usize;

/// Which node owns which slots. Each slot has a version that grows when it moves, and only its owner moves it: where two maps
/// differ in a slot, the greater version is right, in whatever order the maps arrive.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotMap {
    /// 0: a guess.
    epoch: u64,
    nodes: Vec<String>,
    /// Of each slot the number of its node, which is below `nodes.len()`,
    owners: Box<[u16]>,
    /// and its version: apart, since each command looks for an owner, which should not push much else out of caches.
    versions: Box<[u64]>,
    /// Of each node.
    identities: Vec<Identity>,
}

/// Which data directory belongs to a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Identity {
    /// Assigned when the directory is created, greater than those of older ones; 0: unknown, or without a directory.
    pub id: u64,
    /// Grows when an operator accepts another directory in its place.
    pub version: u32,
}

impl Identity {
    /// Which of two identities is right: unless an operator has accepted another one, that of the older directory.
    fn or(self, other: Identity) -> Identity {
        match self.version.cmp(&other.version) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal if self.id == 0 || (other.id != 0 && other.id < self.id) => other,
            Ordering::Equal => self,
        }
    }
}

/// Why a list of nodes or a map is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMap(pub String);

impl fmt::Display for InvalidMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Most nodes a map may have.
pub const MOST_NODES: usize = 1000;

impl SlotMap {
    /// The first map of a cluster: these nodes, each `HOST:PORT`, own equal shares in their order. It is a guess until
    /// [`SlotMap::founded`].
    pub fn even(nodes: &[String]) -> Result<SlotMap, InvalidMap> {
        check_nodes(nodes)?;
        let owners = (0..SLOTS).map(|slot| (slot * nodes.len() / SLOTS) as u16).collect();
        let identities = vec![Identity::default(); nodes.len()];
        Ok(SlotMap { epoch: 0, nodes: nodes.to_vec(), owners, versions: vec![0; SLOTS].into(), identities })
    }

    /// The same map for certain.
    pub fn founded(self) -> SlotMap {
        SlotMap { epoch: self.epoch.max(1), ..self }
    }

    /// Whether it is not confirmed.
    pub fn is_guess(&self) -> bool {
        self.epoch == 0
    }

    /// Grows with every change; 0 is a guess.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The nodes' addresses.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The node that owns `slot`, which must be below [`SLOTS`].
    pub fn owner(&self, slot: u16) -> NodeId {
        usize::from(self.owners[usize::from(slot)])
    }

    /// The node that owns `key`.
    pub fn owner_of(&self, key: &[u8]) -> NodeId {
        if self.nodes.len() == 1 { 0 } else { self.owner(slot(key)) }
    }

    /// The node that owns all of these keys, or slot 0 if there is none; nothing if they are several nodes'.
    pub fn owner_of_all<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Option<NodeId> {
        let mut nodes = keys.into_iter().map(|key| self.owner_of(key));
        let first = nodes.next().unwrap_or_else(|| self.owner(0));
        nodes.all(|node| node == first).then_some(first)
    }

    /// The slots of a node, in runs: first and last.
    pub fn runs_of(&self, node: NodeId) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..SLOTS).filter(|at| usize::from(self.owners[*at]) == node) {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == at => *last = at,
                _ => runs.push((at, at)),
            }
        }
        runs
    }

    /// How many slots a node has.
    pub fn count_of(&self, node: NodeId) -> usize {
        self.owners.iter().filter(|owner| usize::from(**owner) == node).count()
    }

    /// The nodes that have slots, ascending.
    pub fn owners(&self) -> Vec<NodeId> {
        let mut has = vec![false; self.nodes.len()];
        self.owners.iter().for_each(|owner| has[usize::from(*owner)] = true);
        (0..has.len()).filter(|node| has[*node]).collect()
    }

    /// The map after `slots` have gone to `node`, which must be one of its nodes.
    pub fn moved(&self, slots: &[u16], node: NodeId) -> SlotMap {
        let mut next = SlotMap { epoch: self.epoch + 1, ..self.clone() };
        for slot in slots {
            next.owners[usize::from(*slot)] = node as u16;
            next.versions[usize::from(*slot)] += 1;
        }
        next
    }

    /// The map with one more node, which has no slots yet.
    pub fn with_node(&self, address: &str) -> Result<SlotMap, InvalidMap> {
        let mut next = SlotMap { epoch: self.epoch + 1, ..self.clone() };
        next.nodes.push(address.to_owned());
        next.identities.push(Identity::default());
        check_nodes(&next.nodes)?;
        Ok(next)
    }

    /// The data directory of each node.
    pub fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// The map with the directory of this node, unless it has one already.
    pub fn identified(mut self, node: NodeId, id: u64) -> SlotMap {
        if let Some(identity) = self.identities.get_mut(node).filter(|identity| identity.id == 0) {
            identity.id = id;
        }
        self
    }

    /// The map after another directory has replaced that of a node.
    pub fn replaced(mut self, node: NodeId, id: u64) -> SlotMap {
        self.epoch += 1;
        if let Some(identity) = self.identities.get_mut(node) {
            *identity = Identity { id, version: identity.version.saturating_add(1) };
        }
        self
    }

    /// What both know; an error if they are maps of different clusters. Neither may be a guess.
    pub fn merged(&self, other: &SlotMap) -> Result<SlotMap, InvalidMap> {
        let foreign = || InvalidMap(format!("it belongs to another cluster: {}", self.nodes.join(",")));
        if !self.is_akin(other) {
            return Err(foreign());
        }
        let longer = if self.nodes.len() < other.nodes.len() { other } else { self };
        let mut merged =
            SlotMap { epoch: self.epoch.max(other.epoch), nodes: longer.nodes.clone(), ..self.clone() };
        // Most maps that arrive say what is known.
        if self.versions != other.versions || self.owners != other.owners {
            for slot in 0..SLOTS {
                let (mine, theirs) = (self.versions[slot], other.versions[slot]);
                if theirs == mine && other.owners[slot] != self.owners[slot] {
                    return Err(foreign());
                }
                if theirs > mine {
                    merged.take_slot(slot, other);
                }
            }
        }
        let identity = |map: &SlotMap, node: NodeId| map.identities.get(node).copied().unwrap_or_default();
        merged.identities =
            (0..longer.nodes.len()).map(|node| identity(self, node).or(identity(other, node))).collect();
        Ok(merged)
    }

    /// What node `me`, whose map this is, takes over from another map: everything but new slots of its own, which only come
    /// with their keys.
    pub fn learnt(&self, other: &SlotMap, me: NodeId) -> Result<SlotMap, InvalidMap> {
        let mut merged = self.merged(other)?;
        for slot in 0..SLOTS {
            if usize::from(merged.owners[slot]) == me && usize::from(self.owners[slot]) != me {
                merged.take_slot(slot, self);
            }
        }
        Ok(merged)
    }

    fn take_slot(&mut self, slot: usize, other: &SlotMap) {
        (self.owners[slot], self.versions[slot]) = (other.owners[slot], other.versions[slot]);
    }

    /// Whether the nodes of one are the first ones of the other.
    pub fn is_akin(&self, other: &SlotMap) -> bool {
        self.nodes.iter().zip(&other.nodes).all(|(mine, theirs)| mine == theirs)
    }

    /// Equal for maps that say the same, whatever their epochs are.
    pub fn digest(&self) -> u64 {
        let content = wire::SlotMap { epoch: self.epoch.min(1), ..self.to_wire() }.encode_to_vec();
        // FNV-1a: a collision only delays what the next change repeats, and gains no attacker anything.
        content
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// As a message.
    pub fn to_wire(&self) -> wire::SlotMap {
        let mut runs: Vec<wire::Run> = Vec::new();
        for (&owner, &version) in self.owners.iter().zip(&self.versions) {
            match runs.last_mut() {
                Some(run) if run.node == u32::from(owner) && run.version == version => run.slots += 1,
                _ => runs.push(wire::Run { slots: 1, node: owner.into(), version }),
            }
        }
        let identity = |Identity { id, version }: &Identity| wire::Identity { id: *id, version: *version };
        let identities = self.identities.iter().map(identity).collect();
        wire::SlotMap { epoch: self.epoch, nodes: self.nodes.clone(), runs, identities }
    }

    /// From a message.
    pub fn from_wire(map: &wire::SlotMap) -> Result<SlotMap, InvalidMap> {
        check_nodes(&map.nodes)?;
        let (mut owners, mut versions) = (Vec::with_capacity(SLOTS), Vec::with_capacity(SLOTS));
        for run in &map.runs {
            let slots = usize::try_from(run.slots).unwrap_or(usize::MAX);
            let owner = u16::try_from(run.node).ok().filter(|node| usize::from(*node) < map.nodes.len());
            match owner {
                Some(owner) if slots <= SLOTS - owners.len() => {
                    owners.resize(owners.len() + slots, owner);
                    versions.resize(versions.len() + slots, run.version);
                }
                _ => return Err(InvalidMap("invalid run of slots".into())),
            }
        }
        if owners.len() != SLOTS {
            return Err(InvalidMap(format!("{} slots instead of {SLOTS}", owners.len())));
        }
        let identity = |identity: &wire::Identity| Identity { id: identity.id, version: identity.version };
        let mut identities: Vec<Identity> = map.identities.iter().map(identity).collect();
        identities.resize(map.nodes.len(), Identity::default());
        let (owners, versions) = (owners.into(), versions.into());
        Ok(SlotMap { epoch: map.epoch, nodes: map.nodes.clone(), owners, versions, identities })
    }
}

fn check_nodes(nodes: &[String]) -> Result<(), InvalidMap> {
    if nodes.is_empty() || nodes.len() > MOST_NODES {
        return Err(InvalidMap(format!("{} nodes; expected 1 to {MOST_NODES}", nodes.len())));
    }
    let mut sorted: Vec<&String> = nodes.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InvalidMap(format!("the node {} is listed twice", pair[0]))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("node{at}:50051")).collect()
    }

    #[test]
    fn shares_are_even_and_travel() {
        for count in [1, 2, 3, 7] {
            let map = SlotMap::even(&names(count)).expect("good names");
            let sizes: Vec<usize> = (0..count)
                .map(|node| map.runs_of(node).iter().map(|(first, last)| last - first + 1).sum())
                .collect();
            assert_eq!(sizes.iter().sum::<usize>(), SLOTS);
            assert!(
                sizes.iter().max().zip(sizes.iter().min()).is_some_and(|(most, least)| most - least <= 1)
            );
            assert!(SlotMap::from_wire(&map.to_wire()).is_ok_and(|read| read == map));
        }
    }

    #[test]
    fn slots_move() {
        let map = SlotMap::even(&names(2)).expect("good names").founded().moved(&[0, 5], 1);
        assert_eq!((map.epoch(), map.owner(0), map.owner(1), map.owner(5)), (2, 1, 0, 1));
        assert_eq!((map.runs_of(0), map.count_of(0)), (vec![(1, 4), (6, 8191)], 8190));
    }

    #[test]
    fn maps_of_one_cluster_become_one_in_any_order() {
        let map = SlotMap::even(&names(2)).expect("good names").founded();
        let longer = map.with_node("node2:50051").expect("a good name");
        // Two nodes give slots away at the same time; one of these comes back.
        let (one, other) = (longer.moved(&[0], 2), map.moved(&[9000], 0));
        let back = one.merged(&other).expect("of one cluster").moved(&[0], 0);
        let all = [&map, &longer, &one, &other, &back];
        assert_eq!(one.epoch(), other.moved(&[9001], 0).epoch(), "and yet each has what the other one lacks");
        let digests: std::collections::BTreeSet<u64> = all.iter().map(|map| map.digest()).collect();
        assert_eq!(digests.len(), all.len());
        for first in all {
            for second in all {
                let merge = |a: &SlotMap, b: &SlotMap| a.merged(b).unwrap_or_else(|error| panic!("{error}"));
                assert!(merge(first, second) == merge(second, first));
                assert!(merge(&merge(first, &back), second) == back);
                assert_eq!(merge(first, second).digest(), merge(second, first).digest());
            }
        }
        assert_eq!((back.owner(0), back.owner(9000), back.owners()), (0, 0, vec![0, 1]));
        let reversed: Vec<String> = names(2).into_iter().rev().collect();
        let foreign = SlotMap::even(&reversed).expect("good names");
        assert!(map.merged(&foreign).is_err() && !map.is_akin(&foreign));
        assert!(
            longer.learnt(&one, 2).is_ok_and(|learnt| learnt.owner(0) == 0),
            "what comes with it is not there"
        );
        assert!(longer.learnt(&one, 1).is_ok_and(|learnt| learnt.owner(0) == 2));
        assert!(map.merged(&SlotMap::even(&names(3)).expect("good names")).is_err(), "founded with others");
    }

    #[test]
    fn the_older_folder_of_a_node_is_right_until_somebody_says_otherwise() {
        let map = SlotMap::even(&names(2)).expect("good names").founded();
        let (old, new) = (map.clone().identified(1, 7), map.clone().identified(1, 9));
        let merged = |a: &SlotMap, b: &SlotMap| a.merged(b).expect("of one cluster").identities()[1].id;
        assert_eq!([merged(&map, &old), merged(&old, &new), merged(&new, &old)], [7, 7, 7]);
        assert_eq!(old.clone().identified(1, 5).identities()[1].id, 7, "it is known already");
        let replaced = old.clone().replaced(1, 9);
        assert_eq!([merged(&replaced, &old), merged(&old, &replaced)], [9, 9]);
        assert!(replaced.epoch() > old.epoch());
        assert!(SlotMap::from_wire(&replaced.to_wire()).is_ok_and(|read| read == replaced));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let good = SlotMap::even(&names(2)).expect("good names").to_wire();
        let bad = |change: fn(&mut wire::SlotMap)| {
            let mut map = good.clone();
            change(&mut map);
            SlotMap::from_wire(&map).err().expect("it is refused").0
        };
        assert_eq!(bad(|map| map.nodes.clear()), "0 nodes; expected 1 to 1000");
        assert_eq!(bad(|map| map.nodes[1] = map.nodes[0].clone()), "the node node0:50051 is listed twice");
        assert_eq!(bad(|map| map.runs.truncate(1)), "8192 slots instead of 16384");
        let run = "invalid run of slots";
        assert_eq!(bad(|map| map.runs[1].node = 2), run);
        assert_eq!(bad(|map| map.runs[0].slots = u32::MAX), run);
    }
}
