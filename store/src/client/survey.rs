//! What the processes of a cluster say of its groups of replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::credentials::PeerCredentials;
use super::directory::Directory;
use super::link_error::LinkError;
use super::members::inspect;
use super::topology_error::{NodeError, TopologyError};
use crate::replication::{GroupInfo, Groups, GroupsError, ProcessInfo};

/// How long a recent survey waits for a process, and how long it is shown to others that ask.
const SHORT: Duration = Duration::from_secs(1);

/// The processes and groups of a cluster, and what each process says of its replicas.
pub struct Survey {
    groups: Groups,
    /// By address of the process.
    said: BTreeMap<String, Result<wire::Inspection, NodeError>>,
}

/// What a replica is in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It leads.
    Leader,
    /// It has a vote.
    Follower,
    /// It has no vote yet.
    Learner,
    /// It has no data yet, or lacks more than the log of the leader has.
    WaitsForCopy,
    /// Its process does not answer, or does not have it yet.
    Missing,
}

/// A replica as the processes describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaView<'a> {
    /// The number of its process.
    pub process: u64,
    /// The address of its process.
    pub address: &'a str,
    /// What it is.
    pub role: Role,
    /// The term that it knows of.
    pub term: Option<u64>,
    /// How many committed entries of the log it has not applied; unknown without a leader.
    pub lag: Option<u64>,
    /// Whether its process answers.
    pub answers: bool,
    /// Whether the group is to go on without it.
    pub leaves: bool,
}

impl Survey {
    /// Asks all processes of the cluster that the directory knows, or that these processes belong to: all at the same time, each
    /// for so long.
    pub async fn take(
        named: &[String],
        directory: &Directory,
        credentials: &PeerCredentials,
        limit: Duration,
    ) -> Result<Survey, TopologyError> {
        let mut said = BTreeMap::new();
        let mut next: Vec<String> = named.to_vec();
        next.extend(addresses(directory.groups().as_ref()));
        loop {
            next.sort();
            next.dedup();
            next.retain(|address| !said.contains_key(address));
            // Each answer may name processes that were not known.
            if next.is_empty() {
                break;
            }
            let mut asking = JoinSet::new();
            for address in next.drain(..) {
                let credentials = credentials.clone();
                asking.spawn(async move {
                    let answer = timeout(limit, inspect(&address, &credentials)).await;
                    (address, answer.unwrap_or(Err(NodeError::Lost(LinkError::NoAnswer))))
                });
            }
            for (address, answer) in asking.join_all().await {
                let answer = match answer {
                    Err(error) => Err(error),
                    Ok(inspection) => {
                        match directory.learn(&inspection.groups.clone().unwrap_or_default()) {
                            Ok(_) => Ok(inspection),
                            Err(error @ GroupsError::Recovered { .. }) => {
                                Err(NodeError::Refused(error.to_string()))
                            }
                            // Who names a process expects it to be one of the cluster.
                            Err(error) if named.contains(&address) => {
                                return Err(TopologyError::Node(
                                    address,
                                    NodeError::Refused(error.to_string()),
                                ));
                            }
                            Err(error) => Err(NodeError::Refused(error.to_string())),
                        }
                    }
                };
                said.insert(address, answer);
            }
            next.extend(addresses(directory.groups().as_ref()));
        }
        let Some(groups) = directory.groups() else {
            let error = named.iter().find_map(|address| Some((address, said.get(address)?.as_ref().err()?)));
            return Err(match error {
                Some((address, error)) => TopologyError::Node(address.clone(), error.clone()),
                None => TopologyError::NoGroups,
            });
        };
        // Who has answered before one that knows that the cluster was recovered is of the former one.
        for answer in said.values_mut() {
            let was = answer.as_ref().ok().and_then(|said| said.groups.as_ref()).map(|said| said.cluster);
            if let Some(was) = was.filter(|was| *was != groups.cluster) {
                let recovered = GroupsError::Recovered { was, is: groups.cluster };
                *answer = Err(NodeError::Refused(recovered.to_string()));
            }
        }
        Ok(Survey { groups, said })
    }

    /// The newest list of processes and groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// What a process says; an error if it does not answer, or if another one has its address now.
    pub fn answer(&self, process: &ProcessInfo) -> Result<&wire::Inspection, NodeError> {
        match self.said.get(&process.address) {
            Some(Ok(inspection)) if inspection.process == process.id => Ok(inspection),
            Some(Ok(inspection)) => {
                Err(NodeError::Refused(format!("process {} has this address now", inspection.process)))
            }
            Some(Err(error)) => Err(error.clone()),
            None => Err(NodeError::Lost(LinkError::NotConnected)),
        }
    }

    /// The processes that answer.
    pub(super) fn answering(&self) -> impl Iterator<Item = &ProcessInfo> {
        self.groups.processes.iter().filter(|process| self.answer(process).is_ok())
    }

    /// The process that leads a group, and what it says of its replica.
    pub fn leader(&self, group: &GroupInfo) -> Option<(u64, &wire::ReplicaReport)> {
        let all = self.groups.processes.iter();
        let replicas = all.filter_map(|process| self.replica(group, process.id));
        // Who was cut off may not know of the next one.
        replicas.filter(|(_, replica)| replica.leads).max_by_key(|(_, replica)| replica.term)
    }

    /// The processes that are to have a replica of a group with a vote, and have none, as far as its leader knows.
    pub fn new_members(&self, group: &GroupInfo) -> Vec<u64> {
        let Some((_, leader)) = self.leader(group) else { return Vec::new() };
        group.replicas.iter().copied().filter(|id| !leader.voters.contains(id)).collect()
    }

    /// Whether the group is to have other members than it has.
    pub fn is_changing(&self, group: &GroupInfo) -> bool {
        !group.former.is_empty() || !self.new_members(group).is_empty()
    }

    /// The address of a process.
    pub fn address(&self, process: u64) -> &str {
        self.groups.address(process).unwrap_or("unknown")
    }

    /// The replicas of a group: those that it is to have, then those that it may still have.
    pub fn replicas(&self, group: &GroupInfo) -> Vec<ReplicaView<'_>> {
        let leader = self.leader(group);
        let all = group.replicas.iter().map(|id| (*id, false));
        let all = all.chain(group.former.iter().map(|id| (*id, true)));
        let view = |(process, leaves)| {
            let replica = self.replica(group, process).map(|(_, replica)| replica);
            let role = match (replica, leader) {
                (None, _) => Role::Missing,
                (Some(_), Some((leader, _))) if leader == process => Role::Leader,
                (Some(replica), _) if replica.needs_copy => Role::WaitsForCopy,
                (Some(_), Some((_, leader))) if !leader.voters.contains(&process) => Role::Learner,
                (Some(_), _) => Role::Follower,
            };
            let lag =
                leader.zip(replica).map(|((_, leader), own)| leader.committed.saturating_sub(own.applied));
            ReplicaView {
                process,
                address: self.address(process),
                role,
                term: replica.map(|replica| replica.term),
                lag,
                answers: self.answer_of(process).is_some(),
                leaves,
            }
        };
        all.map(view).collect()
    }

    fn answer_of(&self, process: u64) -> Option<&wire::Inspection> {
        self.answer(self.groups.process(process)?).ok()
    }

    /// What a process says of its replica of a group, with the number of the process.
    pub(super) fn replica(&self, group: &GroupInfo, process: u64) -> Option<(u64, &wire::ReplicaReport)> {
        let all = &self.answer_of(process)?.replicas;
        Some((process, all.iter().find(|replica| replica.group == group.id.0)?))
    }
}

fn addresses(groups: Option<&Groups>) -> Vec<String> {
    let processes = groups.map(|groups| &groups.processes[..]).unwrap_or_default();
    processes.iter().map(|process| process.address.clone()).collect()
}

/// The newest survey: requests that come within its age share it.
#[derive(Default)]
pub(super) struct RecentSurvey(Mutex<Option<(Instant, Arc<Survey>)>>);

impl RecentSurvey {
    /// One that is at most a second old; none if the directory knows no groups.
    pub async fn get(&self, directory: &Directory, credentials: &PeerCredentials) -> Option<Arc<Survey>> {
        self.get_within(SHORT, directory, credentials).await
    }

    async fn get_within(
        &self,
        age: Duration,
        directory: &Directory,
        credentials: &PeerCredentials,
    ) -> Option<Arc<Survey>> {
        if !directory.is_known() {
            return None;
        }
        // Requests that come while a survey is made wait for it.
        let mut recent = self.0.lock().await;
        if let Some((since, survey)) = &*recent
            && since.elapsed() < age
        {
            return Some(survey.clone());
        }
        let survey = Arc::new(Survey::take(&[], directory, credentials, SHORT).await.ok()?);
        *recent = Some((Instant::now(), survey.clone()));
        Some(survey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::ProcessState;

    fn groups() -> Groups {
        let addresses: Vec<String> = (1..=4).map(|at| format!("127.0.0.1:{at}")).collect();
        Groups::found(7, &addresses, 3).expect("enough processes")
    }

    fn report(leads: bool, term: u64, applied: u64, voters: &[u64]) -> wire::ReplicaReport {
        let committed = if leads { 100 } else { applied };
        wire::ReplicaReport { leads, term, committed, applied, voters: voters.to_vec(), ..Default::default() }
    }

    fn survey(groups: Groups, said: Vec<(u64, Result<wire::ReplicaReport, NodeError>)>) -> Survey {
        let said = said.into_iter().map(|(process, report)| {
            let answer = report.map(|report| wire::Inspection {
                process,
                replicas: vec![report],
                ..Default::default()
            });
            (groups.address(process).expect("it is one of them").to_owned(), answer)
        });
        Survey { said: said.collect(), groups }
    }

    #[test]
    fn replicas_are_what_their_leader_says() {
        let mut groups = groups();
        // The fourth takes over from the third.
        groups.groups[0].replicas = vec![1, 2, 4];
        groups.groups[0].former = vec![3];
        let lost = NodeError::Lost(LinkError::ConnectTimeout);
        let voters = [1, 2, 3];
        let survey = survey(
            groups,
            vec![
                // It was cut off, and does not know that the second leads.
                (1, Ok(report(true, 4, 90, &voters))),
                (2, Ok(report(true, 5, 100, &voters))),
                (3, Err(lost.clone())),
                (4, Ok(report(false, 5, 30, &voters))),
            ],
        );
        let group = &survey.groups().groups[0];
        assert_eq!(survey.leader(group).map(|(process, _)| process), Some(2));
        assert_eq!(survey.new_members(group), [4]);
        assert!(survey.is_changing(group));
        let shown: Vec<_> = survey
            .replicas(group)
            .into_iter()
            .map(|replica| (replica.process, replica.role, replica.lag, replica.answers, replica.leaves))
            .collect();
        assert_eq!(
            shown,
            [
                (1, Role::Follower, Some(10), true, false),
                (2, Role::Leader, Some(0), true, false),
                (4, Role::Learner, Some(70), true, false),
                (3, Role::Missing, None, false, true),
            ]
        );
        assert_eq!(survey.answer(&survey.groups().processes[2]), Err(lost));
        // Of the second group nothing is said.
        let group = &survey.groups().groups[1];
        assert!(survey.leader(group).is_none() && !survey.is_changing(group));
        assert!(survey.replicas(group).iter().all(|replica| replica.role == Role::Missing));
    }

    #[test]
    fn a_process_that_has_lost_its_data_answers_under_its_new_number_only() {
        let mut groups = groups();
        let address = groups.processes[0].address.clone();
        groups.processes[0].state = ProcessState::Lost;
        groups.processes.push(ProcessInfo {
            id: 5,
            address,
            state: ProcessState::Joining,
            replaces: Some(1),
            zone: String::new(),
        });
        groups.newest_process = 5;
        let survey = survey(groups, vec![(5, Ok(report(false, 5, 30, &[2, 3])))]);
        let all = &survey.groups().processes;
        assert!(survey.answer(&all[4]).is_ok());
        let error = survey.answer(&all[0]).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("process 5 has this address now"));
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_the_same_survey() {
        let (directory, credentials) = (Directory::of(groups()), PeerCredentials::default());
        let recent = RecentSurvey::default();
        let get = |age| recent.get_within(age, &directory, &credentials);
        let (first, second) = tokio::join!(get(Duration::MAX), get(Duration::MAX));
        let (first, second) = (first.expect("there are groups"), second.expect("there are groups"));
        assert!(Arc::ptr_eq(&first, &second));
        let third = get(Duration::ZERO).await.expect("there are groups");
        assert!(!Arc::ptr_eq(&first, &third));
        // Nothing listens there.
        assert!(third.groups().processes.iter().all(|process| third.answer(process).is_err()));
        let none = RecentSurvey::default();
        assert!(none.get(&Directory::default(), &credentials).await.is_none());
    }
}
