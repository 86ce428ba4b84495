//! Which processes a cluster has, and which of them have replicas of which group.

use std::collections::BTreeSet;
use std::fmt;

pub use proto::store::v1::ProcessState;

use super::group_id::GroupId;
use crate::topology::{InvalidMap, MOST_NODES, SlotMap};

/// The name of the group that changes the list.
pub const META: &str = "meta";

/// The processes of a cluster, and its groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// Identifies the cluster.
    pub cluster: u64,
    /// Each change of the list adds one; the first is 1.
    pub version: u64,
    /// How many replicas each group is to have.
    pub replicas: usize,
    /// The processes.
    pub processes: Vec<ProcessInfo>,
    /// The greatest number that a process has had.
    pub newest_process: u64,
    /// The groups that have slots.
    pub groups: Vec<GroupInfo>,
    /// The group that changes this list.
    pub meta: GroupInfo,
    /// Numbers that the cluster had before it was recovered from the loss of majorities.
    pub former_clusters: Vec<u64>,
}

/// A process of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    /// Never used again for another process.
    pub id: u64,
    /// `HOST:PORT`.
    pub address: String,
    /// Whether it comes or goes.
    pub state: ProcessState,
    /// Of a process that joins: the one whose replicas it takes over.
    pub replaces: Option<u64>,
    /// Where its machine is: replicas of a group are in different zones. Empty: that is not known.
    pub zone: String,
}

/// A group of replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// Its number.
    pub id: GroupId,
    /// As slot maps name it.
    pub name: String,
    /// Numbers of the processes that are to have a replica of it. The first one is to lead.
    pub replicas: Vec<u64>,
    /// Numbers of processes that may still have one.
    pub former: Vec<u64>,
    /// If the group had no majority when the cluster was recovered: the process whose replica it goes on with alone.
    pub recovered_from: Option<u64>,
}

impl GroupInfo {
    /// Whether this process has a replica of the group, or may still have one.
    pub fn is_on(&self, process: u64) -> bool {
        self.replicas.contains(&process) || self.former.contains(&process)
    }
}

/// Why processes cannot be a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupsError {
    /// So many replicas protect from no more failures than one replica fewer.
    Replicas(usize),
    /// There are fewer processes than replicas.
    Processes {
        /// How many there are.
        processes: usize,
        /// How many replicas each group is to have.
        replicas: usize,
    },
    /// A message or a record that is none.
    Invalid(&'static str),
    /// The list of processes is none.
    Map(InvalidMap),
    /// A process belongs to the cluster as it was before it was recovered.
    Recovered {
        /// The number that the cluster had.
        was: u64,
        /// The number that it has now.
        is: u64,
    },
    /// The cluster does not have the process, or not any more.
    Removed {
        /// Its number.
        process: u64,
        /// The cluster.
        cluster: u64,
    },
}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupsError::Replicas(count) => write!(
                f,
                "{count} replicas protect from no more failures than {}; use 1, 3 or 5",
                count.saturating_sub(1)
            ),
            GroupsError::Processes { processes, replicas } => write!(
                f,
                "{replicas} replicas need {replicas} processes on machines of their own, there are {processes}; add \
                 processes, or use fewer replicas"
            ),
            GroupsError::Invalid(what) => write!(f, "invalid list of groups: {what}"),
            GroupsError::Map(error) => error.fmt(f),
            GroupsError::Recovered { was, is } => write!(
                f,
                "it belongs to the cluster {was:016x}, which was recovered as {is:016x}; with an empty data-dir it can join"
            ),
            GroupsError::Removed { process, cluster } => write!(
                f,
                "the cluster {cluster:016x} has no process {process}, or not any more; with an empty data-dir this process \
                 can join again"
            ),
        }
    }
}

impl std::error::Error for GroupsError {}

impl From<InvalidMap> for GroupsError {
    fn from(error: InvalidMap) -> GroupsError {
        GroupsError::Map(error)
    }
}

impl Groups {
    /// A new cluster of processes at these addresses: one group for each of them, each with so many `replicas`.
    pub fn found(cluster: u64, addresses: &[String], replicas: usize) -> Result<Groups, GroupsError> {
        if !matches!(replicas, 1 | 3 | 5) {
            return Err(GroupsError::Replicas(replicas));
        }
        // Checks the addresses.
        SlotMap::even(addresses)?;
        let count = addresses.len();
        if count < replicas {
            return Err(GroupsError::Processes { processes: count, replicas });
        }
        let process = |(id, address): (u64, &String)| ProcessInfo {
            id,
            address: address.clone(),
            state: ProcessState::Active,
            replaces: None,
            zone: String::new(),
        };
        let group = |id, name: String, first: usize| GroupInfo {
            id,
            name,
            replicas: (0..replicas).map(|at| ((first + at) % count) as u64 + 1).collect(),
            former: Vec::new(),
            recovered_from: None,
        };
        Ok(Groups {
            cluster,
            version: 1,
            replicas,
            processes: (1..).zip(addresses).map(process).collect(),
            newest_process: count as u64,
            groups: (0..count).map(|at| group(GroupId(at as u32), format!("g{at}"), at)).collect(),
            meta: group(GroupId::META, META.to_owned(), 0),
            former_clusters: Vec::new(),
        })
    }

    /// The cluster that nodes at these addresses become: each has the only replica of a group that has its name.
    pub fn adopt(cluster: u64, addresses: &[String]) -> Result<Groups, GroupsError> {
        let mut groups = Groups::found(cluster, addresses, 1)?;
        for (group, address) in groups.groups.iter_mut().zip(addresses) {
            group.name.clone_from(address);
        }
        Ok(groups)
    }

    /// The group that a process was as a node, if it was one, until the list changes for the first time.
    pub fn adopted_by(&self, process: u64) -> Option<&GroupInfo> {
        let address = self.address(process).filter(|_| self.version == 1)?;
        self.groups.iter().find(|group| group.name == address && group.replicas == [process])
    }

    /// Whether this list takes the place of another one: it is newer, or of the cluster that the other one's was recovered as.
    pub fn replaces(&self, other: &Groups) -> bool {
        match self.cluster == other.cluster {
            true => self.version > other.version,
            false => self.former_clusters.contains(&other.cluster),
        }
    }

    /// The slot map of a new cluster: each group has an equal share.
    pub fn slot_map(&self) -> Result<SlotMap, InvalidMap> {
        let names: Vec<String> = self.groups.iter().map(|group| group.name.clone()).collect();
        SlotMap::even(&names)
    }

    /// The process of this number.
    pub fn process(&self, id: u64) -> Option<&ProcessInfo> {
        self.processes.iter().find(|process| process.id == id)
    }

    /// The address of a process.
    pub fn address(&self, process: u64) -> Option<&str> {
        self.process(process).map(|process| &*process.address)
    }

    /// All groups, with that which changes this list.
    pub fn all(&self) -> impl Iterator<Item = &GroupInfo> {
        self.groups.iter().chain([&self.meta])
    }

    /// The group of this name.
    pub fn named(&self, name: &str) -> Option<&GroupInfo> {
        self.all().find(|group| group.name == name)
    }

    /// The group of this number.
    pub fn numbered(&self, id: GroupId) -> Option<&GroupInfo> {
        self.all().find(|group| group.id == id)
    }

    pub(super) fn check(self) -> Result<Groups, GroupsError> {
        let invalid = |what| Err(GroupsError::Invalid(what));
        let ids: BTreeSet<u64> = self.processes.iter().map(|process| process.id).collect();
        if self.cluster == 0 || self.version == 0 || ids.contains(&0) || ids.len() != self.processes.len() {
            return invalid("numbers are missing, or used twice");
        }
        if ids.last().is_none_or(|last| *last > self.newest_process) {
            return invalid("a process has no number of its own");
        }
        if self.groups.is_empty() || self.groups.len() > MOST_NODES {
            return invalid("too few or too many groups");
        }
        // The address of a process that has lost its data is that of the one that takes its place.
        let there = self.processes.iter().filter(|process| process.state != ProcessState::Lost);
        let addresses: Vec<String> = there.map(|process| process.address.clone()).collect();
        SlotMap::even(&addresses)?;
        self.slot_map()?;
        let numbers: BTreeSet<GroupId> = self.groups.iter().map(|group| group.id).collect();
        if numbers.len() != self.groups.len() || numbers.contains(&GroupId::META) {
            return invalid("a number is used twice");
        }
        if self.meta.id != GroupId::META || self.meta.name != META {
            return invalid("there is no group that changes it");
        }
        for group in self.all() {
            let replicas: BTreeSet<&u64> = group.replicas.iter().collect();
            if replicas.is_empty() || replicas.len() != group.replicas.len() {
                return invalid("a group has no replicas, or one twice");
            }
            if !replicas.into_iter().chain(&group.former).all(|replica| ids.contains(replica)) {
                return invalid("a replica is on an unknown process");
            }
        }
        Ok(self)
    }
}

/// What a process remembers of the cluster that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founding {
    /// The cluster.
    pub groups: Groups,
    /// Which of the processes it is.
    pub process: u64,
    /// The cluster was recovered, and the logs of the replicas here are those that they had before.
    pub is_recovering: bool,
}

impl Founding {
    /// A process of this cluster; an error if it has no such process.
    pub fn new(groups: Groups, process: u64) -> Result<Founding, GroupsError> {
        match groups.address(process) {
            Some(_) => Ok(Founding { groups, process, is_recovering: false }),
            None => Err(GroupsError::Removed { process, cluster: groups.cluster }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::store::v1 as wire;

    use super::*;

    fn addresses(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("store{at}:50051")).collect()
    }

    #[test]
    fn each_process_begins_with_a_group_that_others_have_too() {
        let groups = Groups::found(7, &addresses(4), 3).expect("enough processes");
        let replicas: Vec<_> = groups.groups.iter().map(|group| group.replicas.clone()).collect();
        assert_eq!(replicas, [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]]);
        assert_eq!(groups.slot_map().expect("names").nodes(), ["g0", "g1", "g2", "g3"]);
        assert_eq!(Groups::from_wire(&groups.to_wire()), Ok(groups.clone()));
        let founding = Founding::new(groups, 2).expect("it is one of them");
        assert_eq!(Founding::from_record(&founding.to_record()), Ok(founding));
    }

    #[test]
    fn what_protects_from_nothing_is_refused() {
        let error = |count: usize, replicas| {
            Groups::found(7, &addresses(count), replicas).map_err(|error| error.to_string())
        };
        assert_eq!(
            error(4, 2),
            Err("2 replicas protect from no more failures than 1; use 1, 3 or 5".to_owned())
        );
        assert_eq!(
            error(2, 3),
            Err("3 replicas need 3 processes on machines of their own, there are 2; add processes, or use fewer \
                 replicas"
                .to_owned())
        );
        assert!(error(3, 1).is_ok() && error(5, 5).is_ok());
        let twice = vec!["a:1".to_owned(), "a:1".to_owned(), "b:1".to_owned()];
        assert!(
            Groups::found(7, &twice, 3)
                .is_err_and(|error| error.to_string() == "the node a:1 is listed twice")
        );
    }

    #[test]
    fn what_is_no_list_of_groups_is_refused() {
        let good = Groups::found(7, &addresses(3), 3).expect("enough processes").to_wire();
        let bad = |change: fn(&mut wire::Groups)| {
            let mut groups = good.clone();
            change(&mut groups);
            Groups::from_wire(&groups).is_err()
        };
        assert!(bad(|groups| groups.cluster = 0) && bad(|groups| groups.processes[0].id = 0));
        assert!(bad(|groups| groups.version = 0) && bad(|groups| groups.newest_process = 2));
        assert!(bad(|groups| groups.meta = None) && bad(|groups| groups.processes[0].state = 7));
        assert!(bad(|groups| groups.processes[0].id = 2) && bad(|groups| groups.groups.clear()));
        assert!(
            bad(|groups| groups.groups[0].id = 1)
                && bad(|groups| groups.groups[0].name.clone_from(&"g1".to_owned()))
        );
        assert!(
            bad(|groups| groups.groups[0].replicas = vec![9])
                && bad(|groups| groups.groups[0].replicas = vec![1, 1])
        );
        assert!(bad(|groups| groups.groups[0].replicas.clear()));
    }
}
