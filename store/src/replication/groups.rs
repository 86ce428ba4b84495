//! Which processes a cluster has, and which of them have replicas of which group.

use std::collections::BTreeSet;
use std::fmt;

use prost::Message;
use proto::disk::v1 as disk;
use proto::store::v1 as wire;

use super::group_id::GroupId;
use crate::topology::{InvalidMap, MOST_NODES, SlotMap};

/// The processes of a cluster, and its groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// Identifies the cluster.
    pub cluster: u64,
    /// Each with its number and address, `HOST:PORT`.
    pub processes: Vec<(u64, String)>,
    /// The groups.
    pub groups: Vec<GroupInfo>,
}

/// A group of replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// Its number.
    pub id: GroupId,
    /// As slot maps name it.
    pub name: String,
    /// Numbers of the processes that have a replica of it.
    pub replicas: Vec<u64>,
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
        let processes = (1..).zip(addresses.iter().cloned()).collect();
        let group = |number: usize| GroupInfo {
            id: GroupId(number as u32),
            name: format!("g{number}"),
            replicas: (0..replicas).map(|at| ((number + at) % count) as u64 + 1).collect(),
        };
        Ok(Groups { cluster, processes, groups: (0..count).map(group).collect() })
    }

    /// The slot map of a new cluster: each group has an equal share.
    pub fn slot_map(&self) -> Result<SlotMap, InvalidMap> {
        let names: Vec<String> = self.groups.iter().map(|group| group.name.clone()).collect();
        SlotMap::even(&names)
    }

    /// The address of a process.
    pub fn address(&self, process: u64) -> Option<&str> {
        let found = self.processes.iter().find(|(id, _)| *id == process);
        found.map(|(_, address)| &**address)
    }

    /// The group of this name.
    pub fn named(&self, name: &str) -> Option<&GroupInfo> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn check(self) -> Result<Groups, GroupsError> {
        let invalid = |what| Err(GroupsError::Invalid(what));
        let ids: BTreeSet<u64> = self.processes.iter().map(|(id, _)| *id).collect();
        if self.cluster == 0 || ids.contains(&0) || ids.len() != self.processes.len() {
            return invalid("numbers are missing, or used twice");
        }
        if self.groups.is_empty() || self.groups.len() > MOST_NODES {
            return invalid("too few or too many groups");
        }
        let addresses: Vec<String> = self.processes.iter().map(|(_, address)| address.clone()).collect();
        SlotMap::even(&addresses)?;
        self.slot_map()?;
        let numbers: BTreeSet<GroupId> = self.groups.iter().map(|group| group.id).collect();
        if numbers.len() != self.groups.len() {
            return invalid("a number is used twice");
        }
        for group in &self.groups {
            let replicas: BTreeSet<&u64> = group.replicas.iter().collect();
            if replicas.is_empty() || replicas.len() != group.replicas.len() {
                return invalid("a group has no replicas, or one twice");
            }
            if !replicas.iter().all(|replica| ids.contains(replica)) {
                return invalid("a replica is on an unknown process");
            }
        }
        Ok(self)
    }

    /// As a message.
    pub fn to_wire(&self) -> wire::Groups {
        let process = |(id, address): &(u64, String)| wire::Process { id: *id, address: address.clone() };
        let group = |group: &GroupInfo| wire::Group {
            id: group.id.0,
            name: group.name.clone(),
            replicas: group.replicas.clone(),
        };
        wire::Groups {
            cluster: self.cluster,
            processes: self.processes.iter().map(process).collect(),
            groups: self.groups.iter().map(group).collect(),
            leaders: Vec::new(),
        }
    }

    /// From a message.
    pub fn from_wire(groups: &wire::Groups) -> Result<Groups, GroupsError> {
        let process = |process: &wire::Process| (process.id, process.address.clone());
        let group = |group: &wire::Group| GroupInfo {
            id: GroupId(group.id),
            name: group.name.clone(),
            replicas: group.replicas.clone(),
        };
        let (processes, all) =
            (groups.processes.iter().map(process).collect(), groups.groups.iter().map(group).collect());
        Groups { cluster: groups.cluster, processes, groups: all }.check()
    }
}

/// What a process remembers of the cluster that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founding {
    /// The cluster.
    pub groups: Groups,
    /// Which of the processes it is.
    pub process: u64,
}

impl Founding {
    /// A process of this cluster; an error if it has no such process.
    pub fn new(groups: Groups, process: u64) -> Result<Founding, GroupsError> {
        match groups.address(process) {
            Some(_) => Ok(Founding { groups, process }),
            None => Err(GroupsError::Invalid("the process is not one of them")),
        }
    }

    /// As it is on disk.
    pub fn to_record(&self) -> Vec<u8> {
        let wire::Groups { cluster, processes, groups, .. } = self.groups.to_wire();
        let process = |wire::Process { id, address }: wire::Process| disk::Process { id, address };
        let group = |wire::Group { id, name, replicas }: wire::Group| disk::Group { id, name, replicas };
        disk::Founding {
            cluster,
            process: self.process,
            processes: processes.into_iter().map(process).collect(),
            groups: groups.into_iter().map(group).collect(),
        }
        .encode_to_vec()
    }

    /// Reads what [`Founding::to_record`] wrote.
    pub fn from_record(record: &[u8]) -> Result<Founding, GroupsError> {
        let record = disk::Founding::decode(record).map_err(|_| GroupsError::Invalid("it cannot be read"))?;
        let disk::Founding { cluster, process, processes, groups } = record;
        let one = |disk::Process { id, address }: disk::Process| wire::Process { id, address };
        let group = |disk::Group { id, name, replicas }: disk::Group| wire::Group { id, name, replicas };
        let groups = wire::Groups {
            cluster,
            processes: processes.into_iter().map(one).collect(),
            groups: groups.into_iter().map(group).collect(),
            leaders: Vec::new(),
        };
        Founding::new(Groups::from_wire(&groups)?, process)
    }
}

#[cfg(test)]
mod tests {
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
