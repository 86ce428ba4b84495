//! How a cluster goes on when so many processes are lost for good that groups have no majority any more: as a cluster with
//! another number, in which such a group has the newest replica that is left, and no other one.
//!
//! The lost processes may form majorities among themselves when they come back. They cannot be hindered, but nothing that they say
//! counts: messages of the former cluster are refused, and who says so tells them of the cluster that does not have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use consensus::{Log, Members, Position};

use super::driver::DriverError;
use super::group_id::GroupId;
use super::groups::{GroupInfo, Groups, ProcessInfo, ProcessState};
use super::log_disk::LogDisk;
use super::placement::ChangeError;

/// A replica whose process answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surviving {
    /// The process.
    pub process: u64,
    /// The last entry of its log; the default if it has had none.
    pub last: Position,
    /// Whether its data has all that it knows to be committed.
    pub is_applied: bool,
    /// The members of its group, as far as it knows.
    pub members: Members,
}

/// What becomes of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The group.
    pub group: GroupId,
    /// The replicas with a vote.
    pub voters: Vec<u64>,
    /// Those of them whose processes answer.
    pub answering: Vec<u64>,
    /// Of a group that has no majority: the process whose replica it goes on with. Of `meta` any process can be it, since all
    /// know the list of groups.
    pub from: Option<u64>,
}

/// Why a cluster is not recovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecoveryError {
    /// It need not be: each group has a majority.
    NotNeeded(Vec<Recovery>),
    /// No replica of this group is left, or only some without data.
    NothingLeft(String),
    /// The replica of this group in this process has not applied its log yet.
    Behind {
        /// The group.
        group: String,
        /// The process.
        process: u64,
    },
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::NotNeeded(groups) => {
                let counts =
                    |group: &Recovery| format!("{} of {}", group.answering.len(), group.voters.len());
                let counts: BTreeSet<String> = groups.iter().map(counts).collect();
                let counts: Vec<String> = counts.into_iter().collect();
                write!(
                    f,
                    "nothing was done: a majority of the replicas of each group answers ({}), so that no data has to be given up",
                    counts.join(", ")
                )
            }
            RecoveryError::NothingLeft(group) => write!(
                f,
                "nothing was done: no process that answers has data of the group {group}; start one that has, or restore a backup \
                 in a new cluster"
            ),
            RecoveryError::Behind { group, process } => write!(
                f,
                "nothing was done: the replica of the group {group} in process {process} has not applied its log yet; try again \
                 soon"
            ),
        }
    }
}

impl std::error::Error for RecoveryError {}

impl Groups {
    /// What becomes of each group if only these replicas are left, in processes that answer.
    pub fn recovery(&self, left: &BTreeMap<GroupId, Vec<Surviving>>) -> Result<Vec<Recovery>, RecoveryError> {
        let none = Vec::new();
        let groups = self.all().map(|group| {
            let replicas = left.get(&group.id).unwrap_or(&none).iter();
            let replicas: Vec<&Surviving> = replicas.filter(|replica| replica.last.index > 0).collect();
            let newest = replicas.iter().max_by_key(|replica| (replica.last.term, replica.last.index));
            let Some(newest) = newest else {
                let any = left.values().flatten().map(|replica| replica.process).min();
                return match any.filter(|_| group.id == GroupId::META) {
                    None => Err(RecoveryError::NothingLeft(group.name.clone())),
                    from => Ok(Recovery {
                        group: group.id,
                        voters: group.replicas.clone(),
                        answering: Vec::new(),
                        from,
                    }),
                };
            };
            let is_there = |id: u64| replicas.iter().any(|replica| replica.process == id);
            let voters = newest.members.voters.clone();
            let answering: Vec<u64> = voters.iter().copied().filter(|id| is_there(*id)).collect();
            let is_lost = !newest.members.have_majority(is_there);
            if is_lost && !newest.is_applied {
                return Err(RecoveryError::Behind { group: group.name.clone(), process: newest.process });
            }
            Ok(Recovery { group: group.id, voters, answering, from: is_lost.then_some(newest.process) })
        });
        let groups = groups.collect::<Result<Vec<Recovery>, RecoveryError>>()?;
        match groups.iter().any(|group| group.from.is_some()) {
            true => Ok(groups),
            false => Err(RecoveryError::NotNeeded(groups)),
        }
    }

    /// The cluster that this one goes on as, with this number: of these processes, and what `plan` says of its groups.
    pub fn recovered(
        &self,
        cluster: u64,
        processes: &BTreeSet<u64>,
        plan: &[Recovery],
    ) -> Result<Groups, ChangeError> {
        let mut groups = self.clone();
        groups.former_clusters.push(self.cluster);
        (groups.cluster, groups.version) = (cluster, self.version + 1);
        groups.processes.retain(|process| processes.contains(&process.id));
        for process in &mut groups.processes {
            let ProcessInfo { state, replaces, .. } = process;
            (*state, *replaces) = (ProcessState::Active, None);
        }
        let most = groups.processes.len().min(self.replicas);
        groups.replicas = [5, 3].into_iter().find(|count| *count <= most).unwrap_or(1);
        for group in groups.groups.iter_mut().chain([&mut groups.meta]) {
            let Some(recovery) = plan.iter().find(|recovery| recovery.group == group.id) else { continue };
            let GroupInfo { replicas, former, recovered_from, .. } = group;
            *recovered_from = recovery.from;
            if let Some(from) = recovery.from {
                (*replicas, *former) = (vec![from], Vec::new());
                continue;
            }
            let is_there = |id: &u64| processes.contains(id);
            replicas.retain(is_there);
            former.retain(is_there);
            if !replicas.iter().any(|id| recovery.answering.contains(id)) {
                // Those that were to have it have none yet.
                replicas.clone_from(&recovery.answering);
            }
            former.retain(|id| !replicas.contains(id));
        }
        groups.place()?;
        Ok(groups.check()?)
    }
}

/// Makes process `me` the only member of a group, by its log on this disk. Durable when this returns.
pub fn recover_log(disk: &mut LogDisk, group: GroupId, me: u64) -> Result<(), DriverError> {
    let changes = Log::recover(disk.take(group), me).map_err(DriverError::Consensus)?;
    disk.add(group, changes);
    disk.write(true).map_err(DriverError::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(processes: usize, replicas: usize) -> Groups {
        let addresses: Vec<String> = (1..=processes).map(|at| format!("store{at}:1")).collect();
        Groups::found(7, &addresses, replicas).expect("enough processes")
    }

    fn surviving(process: u64, term: u64, index: u64, voters: &[u64]) -> Surviving {
        Surviving {
            process,
            last: Position { index, term },
            is_applied: true,
            members: Members::of_voters(voters),
        }
    }

    /// What is left of a cluster when these processes answer, each with the same log.
    fn left(groups: &Groups, processes: &[u64]) -> BTreeMap<GroupId, Vec<Surviving>> {
        let replica = |group: &GroupInfo, id: u64| surviving(id, 3, 10, &group.replicas);
        let of = |group: &GroupInfo| {
            let on = processes.iter().filter(|id| group.is_on(**id));
            (group.id, on.map(|id| replica(group, *id)).collect())
        };
        groups.all().map(of).collect()
    }

    fn after(groups: &Groups, processes: &[u64]) -> Groups {
        let plan = groups.recovery(&left(groups, processes)).expect("groups have no majority");
        groups.recovered(9, &processes.iter().copied().collect(), &plan).expect("it is a list")
    }

    #[test]
    fn one_process_of_three_goes_on_alone() {
        let groups = cluster(3, 3);
        let recovered = after(&groups, &[2]);
        assert!(recovered.all().all(|group| group.replicas == [2] && group.former.is_empty()));
        assert!(recovered.all().all(|group| group.recovered_from == Some(2)));
        assert_eq!((recovered.cluster, &*recovered.former_clusters, recovered.replicas), (9, &[7][..], 1));
        assert_eq!((recovered.processes.len(), recovered.newest_process), (1, 3));
        assert!(recovered.replaces(&groups) && !groups.replaces(&recovered));
        // Whatever the lost ones change.
        let changed = Groups { version: 50, ..groups.clone() };
        assert!(recovered.replaces(&changed) && !changed.replaces(&recovered));
        // Another recovery of the same cluster is another cluster.
        let other = Groups { cluster: 10, ..recovered.clone() };
        assert!(!other.replaces(&recovered) && !recovered.replaces(&other));
        assert_eq!(Groups::from_wire(&recovered.to_wire()), Ok(recovered.clone()));
        assert_eq!(Groups::from_record(&recovered.to_record()), Ok(recovered));
    }

    #[test]
    fn groups_with_a_majority_stay_and_others_get_replicas_where_there_are_processes() {
        // Processes 1 and 2 of five are lost: g0, g4 and meta with them.
        let groups = cluster(5, 3);
        let recovered = after(&groups, &[3, 4, 5]);
        let from: Vec<Option<u64>> = recovered.all().map(|group| group.recovered_from).collect();
        assert_eq!(from, [Some(3), None, None, None, Some(5), Some(3)]);
        assert_eq!(recovered.replicas, 3);
        for group in recovered.all() {
            let on: BTreeSet<u64> = group.replicas.iter().copied().collect();
            assert_eq!(on, BTreeSet::from([3, 4, 5]), "{group:?}");
        }
    }

    #[test]
    fn the_newest_log_goes_on() {
        let groups = cluster(5, 5);
        let mut left = left(&groups, &[2, 4]);
        let of = |left: &mut BTreeMap<GroupId, Vec<Surviving>>, group, replicas: [(u64, u64); 2]| {
            for (replica, (term, index)) in
                left.get_mut(&group).expect("it is there").iter_mut().zip(replicas)
            {
                replica.last = Position { index, term };
            }
        };
        of(&mut left, GroupId(0), [(3, 90), (4, 20)]);
        of(&mut left, GroupId(1), [(4, 21), (4, 20)]);
        // It has a vote, and nothing else.
        of(&mut left, GroupId(2), [(0, 0), (1, 1)]);
        let plan = groups.recovery(&left).expect("groups have no majority");
        let from: Vec<Option<u64>> = plan[..3].iter().map(|group| group.from).collect();
        assert_eq!(from, [Some(4), Some(2), Some(4)]);
        assert_eq!(plan[2].answering, [4]);
        of(&mut left, GroupId(2), [(0, 0), (0, 0)]);
        assert_eq!(groups.recovery(&left), Err(RecoveryError::NothingLeft("g2".to_owned())));
        of(&mut left, GroupId(2), [(1, 1), (1, 1)]);
        // All processes know what the group is for.
        left.remove(&GroupId::META);
        assert!(
            groups.recovery(&left).is_ok_and(|plan| plan.last().is_some_and(|meta| meta.from == Some(2)))
        );
        left.values_mut().flatten().for_each(|replica| replica.is_applied = false);
        let error = groups.recovery(&left).expect_err("it is too early").to_string();
        assert!(
            error.ends_with("of the group g0 in process 4 has not applied its log yet; try again soon"),
            "{error}"
        );
    }

    #[test]
    fn a_cluster_with_majorities_is_left_alone() {
        let groups = cluster(3, 3);
        let error = groups.recovery(&left(&groups, &[1, 3])).expect_err("it is refused").to_string();
        assert!(
            error.starts_with("nothing was done: a majority of the replicas of each group answers (2 of 3)"),
            "{error}"
        );
    }
}
