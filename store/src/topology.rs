//! Which node owns which slots.

use std::fmt;

use proto::store::v1 as wire;
use store_engine::slot::{self, slot};

/// How many slots there are.
pub const SLOTS: usize = slot::SLOTS as usize;

/// Number of a node in its [`SlotMap`].
pub type NodeId = usize;

/// Who owns what. Two maps of one epoch are equal, or belong to different clusters.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotMap {
    epoch: u64,
    nodes: Vec<String>,
    /// Of each slot the number of its node, which is below `nodes.len()`.
    owners: Box<[u16]>,
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
    /// The first map of a cluster: these nodes, each `HOST:PORT`, own equal shares in their order.
    pub fn even(nodes: &[String]) -> Result<SlotMap, InvalidMap> {
        check_nodes(nodes)?;
        let owner = |slot: usize| (slot * nodes.len() / SLOTS) as u16;
        Ok(SlotMap { epoch: 1, nodes: nodes.to_vec(), owners: (0..SLOTS).map(owner).collect() })
    }

    /// Grows with every change.
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

    /// The map after `slots` have gone to `node`, which must be one of its nodes.
    pub fn moved(&self, slots: &[u16], node: NodeId) -> SlotMap {
        let mut next = SlotMap { epoch: self.epoch + 1, ..self.clone() };
        for slot in slots {
            next.owners[usize::from(*slot)] = node as u16;
        }
        next
    }

    /// As a message.
    pub fn to_wire(&self) -> wire::Map {
        let mut runs: Vec<wire::Run> = Vec::new();
        for owner in self.owners.iter().map(|owner| u32::from(*owner)) {
            match runs.last_mut() {
                Some(run) if run.node == owner => run.slots += 1,
                _ => runs.push(wire::Run { slots: 1, node: owner }),
            }
        }
        wire::Map { epoch: self.epoch, nodes: self.nodes.clone(), runs }
    }

    /// From a message.
    pub fn from_wire(map: &wire::Map) -> Result<SlotMap, InvalidMap> {
        check_nodes(&map.nodes)?;
        let mut owners = Vec::with_capacity(SLOTS);
        for run in &map.runs {
            let slots = usize::try_from(run.slots).unwrap_or(usize::MAX);
            let owner = u16::try_from(run.node).ok().filter(|node| usize::from(*node) < map.nodes.len());
            match owner {
                Some(owner) if slots <= SLOTS - owners.len() => owners.resize(owners.len() + slots, owner),
                _ => return Err(InvalidMap("a run of slots is too long, or of an unknown node".into())),
            }
        }
        if owners.len() != SLOTS {
            return Err(InvalidMap(format!("{} slots instead of {SLOTS}", owners.len())));
        }
        Ok(SlotMap { epoch: map.epoch, nodes: map.nodes.clone(), owners: owners.into() })
    }
}

fn check_nodes(nodes: &[String]) -> Result<(), InvalidMap> {
    if nodes.is_empty() || nodes.len() > MOST_NODES {
        return Err(InvalidMap(format!("{} nodes; there may be 1 to {MOST_NODES}", nodes.len())));
    }
    let mut sorted: Vec<&String> = nodes.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InvalidMap(format!("the node {} is there twice", pair[0]))),
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
        let map = SlotMap::even(&names(2)).expect("good names").moved(&[0, 5], 1);
        assert_eq!((map.epoch(), map.owner(0), map.owner(1), map.owner(5)), (2, 1, 0, 1));
        assert_eq!(map.runs_of(0), [(1, 4), (6, 8191)]);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let good = SlotMap::even(&names(2)).expect("good names").to_wire();
        let bad = |change: fn(&mut wire::Map)| {
            let mut map = good.clone();
            change(&mut map);
            SlotMap::from_wire(&map).err().expect("it is refused").0
        };
        assert_eq!(bad(|map| map.nodes.clear()), "0 nodes; there may be 1 to 1000");
        assert_eq!(bad(|map| map.nodes[1] = map.nodes[0].clone()), "the node node0:50051 is there twice");
        assert_eq!(bad(|map| map.runs.truncate(1)), "8192 slots instead of 16384");
        let run = "a run of slots is too long, or of an unknown node";
        assert_eq!(bad(|map| map.runs[1].node = 2), run);
        assert_eq!(bad(|map| map.runs[0].slots = u32::MAX), run);
    }
}
