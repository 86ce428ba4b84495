//! Which node of the cluster this is, and which slots are its own.

use std::sync::Arc;

use parking_lot::RwLock;
use prost::Message;
use proto::store::v1 as wire;
use store_engine::slot::slot;

use crate::node::Node;
use crate::topology::{NodeId, SlotMap};

/// Name of the record that keeps it.
const RECORD: &[u8] = b"cluster/place";

/// The node's place, once somebody has told it.
pub(crate) struct Place {
    taken: RwLock<Option<Taken>>,
}

#[derive(Clone)]
pub(crate) struct Taken {
    pub map: Arc<SlotMap>,
    pub me: NodeId,
}

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
        Ok(Place { taken: RwLock::new(taken) })
    }

    /// The node's place, if it knows it.
    pub fn taken(&self) -> Option<Taken> {
        self.taken.read().clone()
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
        let mut taken = self.taken.write();
        match &*taken {
            Some(mine) if mine.map.nodes().get(mine.me) != Some(name) => {
                let known = mine.map.nodes().get(mine.me).map_or("", String::as_str);
                return Err(format!("this node is {known}, not {name}"));
            }
            Some(mine) if mine.map.epoch() == map.epoch() && *mine.map != map => {
                return Err(format!("this node belongs to another cluster: {}", mine.map.nodes().join(",")));
            }
            // Those who gave slots to others told both; whoever has a newer map knows of changes among others.
            Some(mine) if mine.map.epoch() >= map.epoch() || mine.map.runs_of(mine.me) != map.runs_of(me) => {
                return Ok(mine.clone());
            }
            _ => {}
        }
        let record = wire::Hello { map: Some(map.to_wire()), node: me as u32, ..wire::Hello::default() };
        node.put_record(RECORD, &record.encode_to_vec());
        Ok(taken.insert(Taken { map: Arc::new(map), me }).clone())
    }

    /// Whether all of `keys` are this node's; else the refusal that says whose they are.
    pub fn owns<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<(), wire::Refusal> {
        let taken = self.taken.read();
        let Some(Taken { map, me }) = &*taken else {
            return Err(refusal(wire::refusal::Code::Denied, "this node has no place in a cluster yet"));
        };
        for key in keys {
            if map.owner_of(key) != *me {
                let reason = format!("slot {} is not this node's", slot(key));
                let map = Some(map.to_wire());
                return Err(wire::Refusal { map, ..refusal(wire::refusal::Code::Moved, &reason) });
            }
        }
        Ok(())
    }
}

/// A refusal without a map.
pub(crate) fn refusal(code: wire::refusal::Code, reason: &str) -> wire::Refusal {
    wire::Refusal { code: code.into(), reason: reason.to_owned(), map: None }
}
