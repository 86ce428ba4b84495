//! How the list of groups changes: which processes join and leave, and which of them get replicas.

use std::fmt;

use super::balance::{Able, lead_first};
use super::group_id::GroupId;
use super::groups::{GroupInfo, Groups, GroupsError, ProcessInfo, ProcessState};

/// A change of the list of groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A process without data is to join. It has no replicas until it has joined.
    Join {
        /// Its address.
        address: String,
        /// The address of the process whose replicas it takes over; none: it gets its share.
        replaces: Option<String>,
    },
    /// A process that was to join knows that it belongs to the cluster.
    Joined(u64),
    /// A process that was to join does not.
    Withdrawn(u64),
    /// Others take over the replicas of the process at this address; then it belongs to the cluster no more.
    Leave(String),
    /// A process has lost its data, and so what it has promised: it joins again with another number.
    Lost(u64),
    /// A process says in which zone its machine is.
    Zone {
        /// Its number.
        process: u64,
        /// Empty: in none that is known.
        zone: String,
    },
    /// Each group is to have so many replicas.
    Replicas(usize),
    /// Another process is to lead a group.
    Transfer {
        /// The group's name.
        group: String,
        /// The process' address.
        to: String,
    },
    /// The members of a group are these replicas, and no others.
    Settled {
        /// The group.
        group: GroupId,
        /// The processes.
        replicas: Vec<u64>,
    },
}

/// Why the list of groups is not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError {
    /// The process belongs to the cluster.
    Member(String),
    /// No process has this address: that, and the addresses that there are.
    UnknownProcess(String, String),
    /// No group has this name: that, and the names that there are.
    UnknownGroup(String, String),
    /// The group has no replica there: its name, the address, and the addresses of its replicas.
    NoReplica(String, String, String),
    /// The process is leaving.
    Leaving(String),
    /// This is no address.
    Address(String),
    /// The process has lost its data, and no other one has a replica of this group.
    OnlyReplica(u64, String),
    /// The result would be no list of groups.
    Groups(GroupsError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Member(address) => write!(f, "{address} belongs to the cluster already"),
            ChangeError::UnknownProcess(address, all) => {
                write!(f, "{address} is not a process of this cluster; its processes are {all}")
            }
            ChangeError::UnknownGroup(name, all) => {
                write!(f, "{name} is not a group of this cluster; its groups are {all}")
            }
            ChangeError::NoReplica(group, address, replicas) => {
                write!(f, "the group {group} has no replica on {address}; its replicas are on {replicas}")
            }
            ChangeError::Leaving(address) => write!(f, "{address} is leaving the cluster"),
            ChangeError::Address(address) => write!(f, "\"{address}\" is not an address, expected HOST:PORT"),
            ChangeError::OnlyReplica(process, group) => write!(
                f,
                "process {process} has lost its data, and the group {group} has no other replica; restore its data-dir from a \
                 backup, or found a new cluster"
            ),
            ChangeError::Groups(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<GroupsError> for ChangeError {
    fn from(error: GroupsError) -> ChangeError {
        ChangeError::Groups(error)
    }
}

impl Groups {
    /// The list after a change; the same list if that changes nothing.
    pub fn changed(&self, change: &Change) -> Result<Groups, ChangeError> {
        let mut groups = self.clone();
        match change {
            Change::Join { address, replaces } => groups.join(address, replaces.as_deref())?,
            Change::Joined(id) => groups.joined(*id)?,
            Change::Withdrawn(id) => groups.withdraw(*id),
            Change::Leave(address) => groups.leave(address)?,
            Change::Lost(id) => groups.lose(*id)?,
            Change::Zone { process, zone } => groups.set_zone(*process, zone),
            Change::Replicas(count) => {
                if !matches!(count, 1 | 3 | 5) {
                    return Err(GroupsError::Replicas(*count).into());
                }
                // Groups that have as many stay where they are, also while a process has lost its data.
                if groups.replicas != *count {
                    groups.replicas = *count;
                    groups.place()?;
                }
            }
            Change::Transfer { group, to } => groups.transfer(group, to)?,
            Change::Settled { group, replicas } => groups.settle(*group, replicas),
        }
        groups.drop_who_has_left();
        if groups != *self {
            groups.version += 1;
        }
        Ok(groups.check()?)
    }

    fn join(&mut self, address: &str, replaces: Option<&str>) -> Result<(), ChangeError> {
        let is_address = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
        if !address.rsplit_once(':').is_some_and(is_address) {
            return Err(ChangeError::Address(address.to_owned()));
        }
        if self.at(address).is_ok() {
            return Err(ChangeError::Member(address.to_owned()));
        }
        let replaces = replaces.map(|address| self.at(address)).transpose()?;
        if let Some(replaced) = self.processes.iter().find(|process| Some(process.id) == replaces)
            && replaced.state == ProcessState::Leaving
        {
            return Err(ChangeError::Leaving(replaced.address.clone()));
        }
        self.add(address.to_owned(), replaces);
        Ok(())
    }

    fn add(&mut self, address: String, replaces: Option<u64>) {
        self.newest_process += 1;
        let state = ProcessState::Joining;
        let (id, zone) = (self.newest_process, String::new());
        self.processes.push(ProcessInfo { id, address, state, replaces, zone });
    }

    fn joined(&mut self, id: u64) -> Result<(), ChangeError> {
        let Some(process) = self.processes.iter_mut().find(|process| process.id == id) else { return Ok(()) };
        if process.state != ProcessState::Joining {
            return Ok(());
        }
        process.state = ProcessState::Active;
        let Some(replaced) = process.replaces.take() else { return self.place() };
        for group in self.groups.iter_mut().chain([&mut self.meta]) {
            if let Some(replica) = group.replicas.iter_mut().find(|replica| **replica == replaced) {
                *replica = id;
                group.former.push(replaced);
            }
        }
        self.set_state(replaced, |state| match state {
            ProcessState::Lost => ProcessState::Lost,
            _ => ProcessState::Leaving,
        });
        Ok(())
    }

    fn withdraw(&mut self, id: u64) {
        let Some(process) = self.process(id).filter(|process| process.state == ProcessState::Joining) else {
            return;
        };
        if let Some(replaced) = process.replaces {
            // It may have its data again.
            self.set_state(replaced, |state| match state {
                ProcessState::Lost => ProcessState::Active,
                state => state,
            });
        }
        self.processes.retain(|process| process.id != id);
    }

    fn leave(&mut self, address: &str) -> Result<(), ChangeError> {
        let id = self.at(address)?;
        self.set_state(id, |_| ProcessState::Leaving);
        self.place()
    }

    fn lose(&mut self, id: u64) -> Result<(), ChangeError> {
        let Some(process) = self.process(id).cloned() else { return Ok(()) };
        let only = self.all().find(|group| group.replicas == [id]);
        match process.state {
            ProcessState::Active if let Some(group) = only => {
                return Err(ChangeError::OnlyReplica(id, group.name.clone()));
            }
            ProcessState::Active => {
                self.set_state(id, |_| ProcessState::Lost);
                self.add(process.address, Some(id));
            }
            ProcessState::Leaving => self.set_state(id, |_| ProcessState::Lost),
            ProcessState::Joining | ProcessState::Lost => {}
        }
        Ok(())
    }

    fn transfer(&mut self, name: &str, to: &str) -> Result<(), ChangeError> {
        let id = self.at(to)?;
        let addresses = |replicas: &[u64]| {
            let addresses: Vec<&str> = replicas.iter().filter_map(|id| self.address(*id)).collect();
            addresses.join(", ")
        };
        let Some(group) = self.named(name) else {
            let names: Vec<&str> = self.all().map(|group| &*group.name).collect();
            return Err(ChangeError::UnknownGroup(name.to_owned(), names.join(", ")));
        };
        if !group.replicas.contains(&id) {
            let on = addresses(&group.replicas);
            return Err(ChangeError::NoReplica(name.to_owned(), to.to_owned(), on));
        }
        let group = group.id;
        if let Some(group) = self.group_mut(group) {
            lead_first(group, id);
        }
        Ok(())
    }

    fn settle(&mut self, id: GroupId, replicas: &[u64]) {
        if let Some(group) = self.group_mut(id)
            && group.replicas.iter().all(|replica| replicas.contains(replica))
            && group.replicas.len() == replicas.len()
        {
            group.former.clear();
        }
    }

    /// Processes that leave, or have lost their data, belong to the cluster until no group has a replica there.
    fn drop_who_has_left(&mut self) {
        let mut processes = std::mem::take(&mut self.processes);
        let awaited = |id| processes.iter().any(|process| process.replaces == Some(id));
        let stays = |process: &ProcessInfo| match process.state {
            ProcessState::Active | ProcessState::Joining => true,
            ProcessState::Leaving | ProcessState::Lost => {
                awaited(process.id) || self.all().any(|group| group.is_on(process.id))
            }
        };
        let staying: Vec<u64> =
            processes.iter().filter(|process| stays(process)).map(|process| process.id).collect();
        processes.retain(|process| staying.contains(&process.id));
        self.processes = processes;
    }

    /// Gives each group its replicas: those that it has stay where they are, as far as the processes stay, no zone has two of a
    /// group that could be in different ones, and the load is even.
    pub(super) fn place(&mut self) -> Result<(), ChangeError> {
        let able = Able::of(&self.processes);
        let wanted = self.replicas;
        if able.count() < wanted {
            return Err(GroupsError::Processes { processes: able.count(), replicas: wanted }.into());
        }
        let before: Vec<Vec<u64>> = self.all().map(|group| group.replicas.clone()).collect();
        for group in self.groups.iter_mut().chain([&mut self.meta]) {
            group.replicas.retain(|replica| able.contains(*replica));
            group.replicas.truncate(wanted);
        }
        for groups in [&mut self.groups[..], std::slice::from_mut(&mut self.meta)] {
            able.fill(groups, wanted);
            able.separate(groups);
        }
        able.even_out(&mut self.groups);
        let is_moved = |(group, before): (&GroupInfo, &Vec<u64>)| {
            !group.replicas.iter().all(|replica| before.contains(replica))
        };
        // An operator's choice of leaders stays as long as no replica moves.
        if self.groups.iter().zip(&before).any(is_moved) {
            able.spread_leaders(&mut self.groups);
        }
        for (group, before) in self.groups.iter_mut().chain([&mut self.meta]).zip(before) {
            group.former.extend(before);
            group.former.sort_unstable();
            group.former.dedup();
            group.former.retain(|id| !group.replicas.contains(id));
        }
        Ok(())
    }

    fn set_zone(&mut self, id: u64, zone: &str) {
        let Some(process) =
            self.processes.iter_mut().find(|process| process.id == id && process.zone != zone)
        else {
            return;
        };
        zone.clone_into(&mut process.zone);
        // With too few processes the replicas stay where they are.
        let _ = self.place();
    }

    fn at(&self, address: &str) -> Result<u64, ChangeError> {
        let is_there =
            |process: &&ProcessInfo| process.address == address && process.state != ProcessState::Lost;
        let found = self.processes.iter().find(is_there);
        found.map(|process| process.id).ok_or_else(|| {
            let all: Vec<&str> = self.processes.iter().map(|process| &*process.address).collect();
            ChangeError::UnknownProcess(address.to_owned(), all.join(", "))
        })
    }

    fn group_mut(&mut self, id: GroupId) -> Option<&mut GroupInfo> {
        self.groups.iter_mut().chain([&mut self.meta]).find(|group| group.id == id)
    }

    fn set_state(&mut self, id: u64, state: impl FnOnce(ProcessState) -> ProcessState) {
        if let Some(process) = self.processes.iter_mut().find(|process| process.id == id) {
            process.state = state(process.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cluster(processes: usize, replicas: usize) -> Groups {
        let addresses: Vec<String> = (1..=processes).map(|at| format!("store{at}:1")).collect();
        Groups::found(7, &addresses, replicas).expect("enough processes")
    }

    fn after(groups: &Groups, change: Change) -> Groups {
        groups.changed(&change).expect("it may be changed")
    }

    /// All groups have the members that are wanted.
    fn settled(groups: &Groups) -> Groups {
        let all: Vec<_> = groups.all().map(|group| (group.id, group.replicas.clone())).collect();
        all.into_iter().fold(groups.clone(), |groups, (group, replicas)| {
            after(&groups, Change::Settled { group, replicas })
        })
    }

    fn join(address: &str, replaces: Option<&str>) -> Change {
        Change::Join { address: address.to_owned(), replaces: replaces.map(str::to_owned) }
    }

    fn replicas(groups: &Groups) -> Vec<Vec<u64>> {
        groups.all().map(|group| group.replicas.clone()).collect()
    }

    fn refusal(groups: &Groups, change: Change) -> String {
        groups.changed(&change).expect_err("it is refused").to_string()
    }

    /// How many replicas each process has, and how many groups it is to lead.
    fn loads(groups: &Groups) -> Vec<(usize, usize)> {
        let has = |id| groups.groups.iter().filter(|group| group.replicas.contains(&id)).count();
        let leads = |id| groups.groups.iter().filter(|group| group.replicas[0] == id).count();
        groups.processes.iter().map(|process| (has(process.id), leads(process.id))).collect()
    }

    #[test]
    fn a_process_that_joins_gets_its_share_when_it_has_joined() {
        let founded = cluster(3, 3);
        assert_eq!(replicas(&founded), [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]);
        let joining = after(&founded, join("store4:1", None));
        assert_eq!(replicas(&joining), replicas(&founded), "it does not know of the cluster yet");
        let joined = after(&joining, Change::Joined(4));
        let mut has: Vec<usize> = loads(&joined).iter().map(|(has, _)| *has).collect();
        has.sort_unstable();
        assert_eq!(has, [2, 2, 2, 3]);
        assert!(loads(&joined).iter().all(|(_, leads)| *leads <= 1));
        let former: usize = joined.groups.iter().map(|group| group.former.len()).sum();
        assert_eq!((former, joined.version), (2, founded.version + 2));
        let withdrawn = after(&joining, Change::Withdrawn(4));
        assert_eq!((withdrawn.processes, withdrawn.newest_process), (founded.processes.clone(), 4));
        let again = after(&settled(&joined), join("store5:1", None));
        assert_eq!(again.processes.last().map(|process| process.id), Some(5));
    }

    #[test]
    fn one_replica_becomes_three_and_one_again() {
        let mut groups = cluster(3, 1);
        assert_eq!(replicas(&groups), [[1], [2], [3], [1]]);
        groups = after(&groups, Change::Replicas(3));
        assert!(replicas(&groups).iter().all(|replicas| replicas.len() == 3));
        assert_eq!(loads(&groups), [(3, 1); 3]);
        let lost = after(&settled(&groups), Change::Lost(2));
        assert_eq!(lost.changed(&Change::Replicas(3)), Ok(lost.clone()), "there are as many already");
        groups = after(&settled(&groups), Change::Replicas(1));
        assert_eq!(replicas(&groups), [[1], [2], [3], [1]]);
        assert_eq!(groups.groups[0].former, [2, 3]);
        assert!(settled(&groups).all().all(|group| group.former.is_empty()));
    }

    #[test]
    fn a_process_stays_until_others_have_its_replicas() {
        let mut groups = settled(&after(&after(&cluster(3, 3), join("store4:1", None)), Change::Joined(4)));
        groups = after(&groups, Change::Leave("store2:1".to_owned()));
        assert!(replicas(&groups).iter().all(|replicas| !replicas.contains(&2) && replicas.len() == 3));
        assert!(groups.process(2).is_some_and(|process| process.state == ProcessState::Leaving));
        assert_eq!(refusal(&groups, join("store5:1", Some("store2:1"))), "store2:1 is leaving the cluster");
        // A report of members that are not those that are wanted changes nothing.
        let early = Change::Settled { group: GroupId(0), replicas: vec![1, 2, 3] };
        assert_eq!(groups.changed(&early), Ok(groups.clone()));
        groups = settled(&groups);
        assert_eq!(groups.process(2), None);
        let error = refusal(&groups, Change::Leave("store3:1".to_owned()));
        assert!(
            error.starts_with("3 replicas need 3 processes on machines of their own, there are 2"),
            "{error}"
        );
    }

    #[test]
    fn a_process_without_its_data_comes_back_with_another_number() {
        let groups = cluster(3, 3);
        let lost = after(&groups, Change::Lost(2));
        assert_eq!(lost.changed(&Change::Lost(2)), Ok(lost.clone()));
        assert_eq!(lost.address(4), Some("store2:1"));
        let back = after(&lost, Change::Joined(4));
        assert_eq!(replicas(&back), [[1, 4, 3], [4, 3, 1], [3, 1, 4], [1, 4, 3]]);
        assert!(back.all().all(|group| group.former == [2]));
        assert_eq!(settled(&back).process(2), None);
        // It has its data again.
        let found = after(&lost, Change::Withdrawn(4));
        assert_eq!(found.processes, groups.processes);
        let error = refusal(&cluster(3, 1), Change::Lost(2));
        assert!(
            error.contains("process 2 has lost its data, and the group g1 has no other replica"),
            "{error}"
        );
    }

    #[test]
    fn a_replacement_takes_over_exactly_what_the_other_had() {
        let groups = cluster(4, 3);
        let joining = after(&groups, join("store5:1", Some("store3:1")));
        assert!(joining.process(3).is_some_and(|process| process.state == ProcessState::Active));
        let replaced = settled(&after(&joining, Change::Joined(5)));
        let wanted = [vec![1, 2, 5], vec![2, 5, 4], vec![5, 4, 1], vec![4, 1, 2], vec![1, 2, 5]];
        assert_eq!((replicas(&replaced), replaced.process(3)), (wanted.to_vec(), None));
    }

    fn in_zones(groups: &Groups, zones: &[&str]) -> Groups {
        (1..).zip(zones).fold(groups.clone(), |groups, (process, zone)| {
            settled(&after(&groups, Change::Zone { process, zone: (*zone).to_owned() }))
        })
    }

    fn are_in_different_zones(groups: &Groups) -> bool {
        let zone = |id: &u64| groups.process(*id).map(|process| &process.zone);
        groups.all().all(|group| {
            let zones: BTreeSet<_> = group.replicas.iter().filter_map(zone).collect();
            zones.len() == group.replicas.len()
        })
    }

    #[test]
    fn the_replicas_of_a_group_are_in_different_zones() {
        let groups = in_zones(&cluster(6, 3), &["a", "a", "b", "b", "c", "c"]);
        assert!(are_in_different_zones(&groups), "{:?}", replicas(&groups));
        assert!(loads(&groups).iter().all(|(has, _)| *has == 3));
        // Another process takes over, in another zone: the replicas move.
        let joined = after(&after(&groups, join("store7:1", None)), Change::Joined(7));
        let joined = settled(&after(&joined, Change::Zone { process: 7, zone: "a".to_owned() }));
        assert!(are_in_different_zones(&joined), "{:?}", replicas(&joined));
        let left = settled(&after(&joined, Change::Leave("store3:1".to_owned())));
        assert!(are_in_different_zones(&left), "{:?}", replicas(&left));
        // Two zones cannot have three replicas apart: each has some.
        let two = in_zones(&cluster(4, 3), &["a", "a", "b", "b"]);
        let zones = |group: &GroupInfo| {
            let zone = |id: &u64| two.process(*id).map(|process| process.zone.clone());
            group.replicas.iter().filter_map(zone).collect::<BTreeSet<String>>().len()
        };
        assert!(two.all().all(|group| zones(group) == 2 && group.replicas.len() == 3));
        // A zone that is known already changes nothing.
        assert_eq!(after(&groups, Change::Zone { process: 1, zone: "a".to_owned() }), groups);
    }

    #[test]
    fn leaders_stay_while_no_replica_moves() {
        let groups = cluster(3, 3);
        let transfer = Change::Transfer { group: "g0".to_owned(), to: "store2:1".to_owned() };
        let groups = in_zones(&after(&groups, transfer), &["a", "b", "c"]);
        assert_eq!(groups.groups[0].replicas, [2, 1, 3]);
        assert_eq!(loads(&groups), [(3, 0), (3, 2), (3, 1)]);
    }

    #[test]
    fn the_first_replica_is_to_lead() {
        let groups = cluster(4, 3);
        let transfer =
            |group: &str, to: &str| Change::Transfer { group: group.to_owned(), to: to.to_owned() };
        assert_eq!(after(&groups, transfer("g1", "store4:1")).groups[1].replicas, [4, 2, 3]);
        assert_eq!(groups.changed(&transfer("g1", "store2:1")), Ok(groups.clone()));
        assert_eq!(
            refusal(&groups, transfer("g1", "store1:1")),
            "the group g1 has no replica on store1:1; its replicas are on store2:1, store3:1, store4:1"
        );
        assert_eq!(
            refusal(&groups, transfer("g7", "store1:1")),
            "g7 is not a group of this cluster; its groups are g0, g1, g2, g3, meta"
        );
        assert_eq!(
            refusal(&groups, transfer("g1", "store9:1")),
            "store9:1 is not a process of this cluster; its processes are store1:1, store2:1, store3:1, store4:1"
        );
    }

    #[test]
    fn what_protects_from_nothing_is_refused() {
        let groups = cluster(3, 3);
        assert!(
            refusal(&groups, Change::Replicas(2)).starts_with("2 replicas protect from no more failures")
        );
        assert!(refusal(&groups, Change::Replicas(5)).starts_with("5 replicas need 5 processes"));
        assert_eq!(refusal(&groups, join("store1:1", None)), "store1:1 belongs to the cluster already");
        for wrong in ["", "store4", ":1", "store4:http"] {
            assert_eq!(
                refusal(&groups, join(wrong, None)),
                format!("\"{wrong}\" is not an address, expected HOST:PORT")
            );
        }
    }
}
