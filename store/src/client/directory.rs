//! Which process leads which group of replicas, as far as it is known.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use proto::store::v1 as wire;

use crate::replication::{Groups, GroupsError};

/// Metadata of a stream: the group that the peer wants to speak to.
pub(crate) const GROUP: &str = "moonshard-group";
/// Metadata of a stream that is refused: the groups, and who leads them.
pub(crate) const GROUPS: &str = "moonshard-groups-bin";

/// The processes of a cluster with replicas; empty for one without.
#[derive(Default)]
pub struct Directory {
    known: RwLock<Option<Known>>,
}

struct Known {
    groups: Groups,
    /// Addresses of the leaders by name of the group.
    leaders: BTreeMap<String, String>,
}

impl Directory {
    /// Of a process that knows its cluster.
    pub fn of(groups: Groups) -> Directory {
        Directory { known: RwLock::new(Some(Known { groups, leaders: BTreeMap::new() })) }
    }

    /// A process says this of its cluster. Another cluster than the one that is known is not believed, unless that one was
    /// recovered as it.
    pub fn learn(&self, said: &wire::Groups) -> Result<Groups, GroupsError> {
        let groups = Groups::from_wire(said)?;
        let mut known = self.known.write();
        let known = known.get_or_insert_with(|| Known { groups: groups.clone(), leaders: BTreeMap::new() });
        if groups.replaces(&known.groups) {
            if groups.cluster != known.groups.cluster {
                known.leaders.clear();
            }
            known.groups = groups.clone();
        } else if known.groups.former_clusters.contains(&groups.cluster) {
            return Err(GroupsError::Recovered { was: groups.cluster, is: known.groups.cluster });
        } else if known.groups.cluster != groups.cluster {
            return Err(GroupsError::Invalid("it is another cluster"));
        }
        for leader in &said.leaders {
            let group = groups.groups.iter().find(|group| group.id.0 == leader.group);
            if let Some((group, address)) = group.zip(groups.address(leader.process)) {
                known.leaders.insert(group.name.clone(), address.to_owned());
            }
        }
        Ok(groups)
    }

    /// Where to look for the leader of the group of this name: first where it was last seen, then at each replica in turn, then
    /// at other processes, which may know where its replicas are now. None if there is no such group.
    pub fn address(&self, name: &str, attempt: usize) -> Option<String> {
        let known = self.known.read();
        let known = known.as_ref()?;
        let group = known.groups.named(name)?;
        if let Some(leader) = known.leaders.get(name).filter(|_| attempt.is_multiple_of(2)) {
            return Some(leader.clone());
        }
        let others = known.groups.processes.iter().map(|process| process.id);
        let others = others.filter(|id| !group.replicas.contains(id));
        let all: Vec<u64> = group.replicas.iter().copied().chain(others).collect();
        let process = all.get(attempt % all.len().max(1))?;
        known.groups.address(*process).map(str::to_owned)
    }

    /// Whether there is a group of this name.
    pub fn has(&self, name: &str) -> bool {
        self.known.read().as_ref().is_some_and(|known| known.groups.named(name).is_some())
    }

    /// A leader was not found where it was said to be.
    pub fn forget_leader(&self, name: &str) {
        if let Some(known) = &mut *self.known.write() {
            known.leaders.remove(name);
        }
    }

    /// Whether there are groups.
    pub fn is_known(&self) -> bool {
        self.known.read().is_some()
    }

    /// The groups, if they are known.
    pub fn groups(&self) -> Option<Groups> {
        self.known.read().as_ref().map(|known| known.groups.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_asked_first_then_all_in_turn() {
        let addresses: Vec<String> = (0..3).map(|at| format!("store{at}:1")).collect();
        let groups = Groups::found(7, &addresses, 3).expect("enough processes");
        let directory = Directory::default();
        assert_eq!(directory.address("g1", 0), None);
        let said = wire::Groups { leaders: vec![wire::Leader { group: 1, process: 1 }], ..groups.to_wire() };
        assert_eq!(directory.learn(&said), Ok(groups.clone()));
        let asked: Vec<_> = (0..4).filter_map(|attempt| directory.address("g1", attempt)).collect();
        assert_eq!(asked, ["store0:1", "store2:1", "store0:1", "store1:1"]);
        directory.forget_leader("g1");
        let asked: Vec<_> = (0..3).filter_map(|attempt| directory.address("g1", attempt)).collect();
        assert_eq!(asked, ["store1:1", "store2:1", "store0:1"]);
        let other = Groups { cluster: 8, ..groups.clone() };
        assert!(directory.learn(&other.to_wire()).is_err());
        let recovered = Groups { cluster: 9, former_clusters: vec![7], ..groups.clone() };
        assert_eq!(directory.learn(&recovered.to_wire()), Ok(recovered));
        let newer = Groups { version: 5, ..groups };
        assert_eq!(directory.learn(&newer.to_wire()), Err(GroupsError::Recovered { was: 7, is: 9 }));
    }
}
