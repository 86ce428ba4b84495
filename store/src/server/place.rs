//! Which node of the cluster this is, and which slots are its own.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use prost::Message;
use proto::store::v1 as wire;
use store_engine::Effects;
use store_engine::slot::slot;
use wire::refusal::Code;

use crate::node::Node;
use crate::topology::{NodeId, SlotMap};

/// Name of the record that keeps it.
const RECORD: &[u8] = b"cluster/place";

/// The node's place, once somebody has told it.
///
/// Whoever finds a slot to be the node's own and does something with it holds what [`Place::owns`] gives meanwhile, or
/// looks again once its keys are locked: slots leave only while the gate of their shard is closed.
pub(crate) struct Place {
    state: RwLock<State>,
}

struct State {
    taken: Option<Taken>,
    /// The catalog is on its way to another node.
    catalog_leaves: bool,
}

#[derive(Clone)]
pub(crate) struct Taken {
    pub map: Arc<SlotMap>,
    pub me: NodeId,
}

impl Taken {
    fn record(&self) -> Vec<u8> {
        let map = Some(self.map.to_wire());
        wire::Hello { map, node: self.me as u32, ..wire::Hello::default() }.encode_to_vec()
    }
}

/// As long as this is held the node keeps its slots.
pub(crate) struct Owned<'a>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'a, State>);

impl Place {
    /// The place that the data was written in.
    pub fn of(node: &Node) -> Result<Place, String> {
        let wrong = |why: String| format!("the record of the node's place in its cluster is damaged: {why}");
        let record = node.records(RECORD).into_iter().find(|(rest, _)| rest.is_empty());
        let taken = match record {
            None => None,
            Some((_, bytes)) => {
                let hello = wire::Hello::decode(&*bytes).map_err(|error| wrong(error.to_string()))?;
                let map =
                    SlotMap::from_wire(&hello.map.unwrap_or_default()).map_err(|error| wrong(error.0))?;
                Some(Taken { map: Arc::new(map), me: hello.node as NodeId })
            }
        };
        Ok(Place { state: RwLock::new(State { taken, catalog_leaves: false }) })
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

    /// Somebody says that this is node `me` of `map`. Takes the place if it has none; else why that is not so.
    pub fn take(&self, node: &Node, map: SlotMap, me: NodeId) -> Result<Taken, String> {
        let Some(name) = map.nodes().get(me) else {
            return Err(format!("there is no node {me} in the map"));
        };
        let mut state = self.state.write();
        let known = state.taken.as_ref().and_then(|taken| taken.map.nodes().get(taken.me));
        if let Some(known) = known.filter(|known| *known != name) {
            return Err(format!("this node is {known}, not {name}"));
        }
        let taken = match &state.taken {
            None => Taken { map: Arc::new(map.founded()), me },
            Some(mine) => mine.with(map)?,
        };
        Ok(state.set(node, taken))
    }

    /// Takes what is newer in this map; an error if it is another cluster's.
    pub fn learn(&self, node: &Node, map: SlotMap) -> Result<(), String> {
        let mut state = self.state.write();
        let Some(mine) = &state.taken else { return Err("this node has no place in a cluster yet".into()) };
        let taken = mine.with(map)?;
        state.set(node, taken);
        Ok(())
    }

    /// Slots come or go: `map` is kept in one record of the journal with `effects`, which are about all that was in
    /// them. Until that is done nobody finds out whose they are.
    pub fn change(&self, node: &Node, effects: &mut Effects, map: &SlotMap) {
        let mut state = self.state.write();
        let Some(mine) = &state.taken else { return };
        // That they are of one cluster was known before anything was prepared.
        let Ok(merged) = mine.map.merged(map) else { return };
        let taken = Taken { map: Arc::new(merged), me: mine.me };
        node.record_with(effects, RECORD, Some(&taken.record()));
        node.record(effects);
        *state = State { taken: Some(taken), catalog_leaves: false };
    }

    /// Whether all of `keys` are this node's; else the refusal that says whose they are.
    pub fn owns<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<Owned<'_>, wire::Refusal> {
        let state = self.state.read();
        let Some(taken) = &state.taken else { return Err(homeless()) };
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
            Some(taken) if taken.map.owner(0) != taken.me || state.catalog_leaves => Err(taken.moved(0)),
            Some(_) => Ok(Owned(state)),
        }
    }

    /// From now on the catalog does not change, until slot 0 has moved or this is said to be over.
    pub fn catalog_leaves(&self, leaves: bool) {
        self.state.write().catalog_leaves = leaves;
    }

    /// What is answered to those who waited for a slot that has left.
    pub fn moved(&self) -> wire::Refusal {
        self.taken().map_or_else(homeless, |taken| taken.moved_away("the slot has moved"))
    }
}

impl Taken {
    /// This with what another map tells.
    fn with(&self, map: SlotMap) -> Result<Taken, String> {
        let foreign = || format!("this node belongs to another cluster: {}", self.map.nodes().join(","));
        if map.is_guess() {
            let may_be = self.map.is_akin(&map) && map.nodes().len() <= self.map.nodes().len();
            return may_be.then(|| self.clone()).ok_or_else(foreign);
        }
        let map = self.map.learnt(&map, self.me).map_err(|_| foreign())?;
        Ok(Taken { map: Arc::new(map), me: self.me })
    }

    fn moved(&self, slot: u16) -> wire::Refusal {
        self.moved_away(&format!("slot {slot} is not this node's"))
    }

    fn moved_away(&self, reason: &str) -> wire::Refusal {
        wire::Refusal { map: Some(self.map.to_wire()), ..refusal(Code::Moved, reason) }
    }
}

impl State {
    fn set(&mut self, node: &Node, taken: Taken) -> Taken {
        if self.taken.as_ref().is_none_or(|mine| mine.map != taken.map) {
            node.put_record(RECORD, &taken.record());
            self.taken = Some(taken.clone());
        }
        taken
    }
}

fn homeless() -> wire::Refusal {
    refusal(Code::Denied, "this node has no place in a cluster yet")
}

/// A refusal without a map.
pub(crate) fn refusal(code: Code, reason: &str) -> wire::Refusal {
    wire::Refusal { code: code.into(), reason: reason.to_owned(), map: None }
}
