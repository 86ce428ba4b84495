//! How a cluster goes on with the processes that are left when groups have lost their majorities for good.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::{Members, Position};
use tokio::time::{Instant, sleep};

use super::PeerCredentials;
use super::directory::Directory;
use super::members;
use super::survey::Survey;
use super::topology_error::{NodeError, TopologyError};
use crate::random::random;
use crate::replication::{GroupId, GroupInfo, Groups, ProcessInfo, Recovery, RecoveryError, Surviving};

/// How long a process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take until replicas have noticed that their leader is lost, and have applied their logs,
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// and the pause between two looks.
const AGAIN: Duration = Duration::from_millis(200);

/// What is left of a cluster, and what it can go on as.
pub struct RecoveryPlan {
    survey: Survey,
    plan: Vec<Recovery>,
    /// The cluster that it goes on as.
    pub groups: Groups,
}

/// A group of a cluster that is to be recovered.
pub struct RecoveredGroup<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many replicas have a vote.
    pub voters: usize,
    /// How many of these answer.
    pub answering: usize,
    /// The replica that it goes on with; none if it has a majority.
    pub goes_on_with: Option<SoleReplica<'a>>,
}

/// The replica that a group goes on with.
pub struct SoleReplica<'a> {
    /// The address of its process.
    pub address: &'a str,
    /// The last entry of its log; none if it is the group `meta`, and has no replica there.
    pub last: Option<Position>,
    /// How long it has known no leader.
    pub without_leader: Duration,
}

/// Looks at what is left of the cluster that these processes are of. An error: nothing has to be given up, or nothing can be
/// recovered.
pub async fn plan_recovery(
    addresses: &[String],
    credentials: &PeerCredentials,
) -> Result<RecoveryPlan, TopologyError> {
    let (directory, since) = (Directory::default(), Instant::now());
    loop {
        let survey = Survey::take(addresses, &directory, credentials, ANSWER).await?;
        let error = match plan(&survey) {
            Ok(plan) => {
                let processes: BTreeSet<u64> = survey.answering().map(|process| process.id).collect();
                let refused = |error| TopologyError::NotRecovered(format!("nothing was done: {error}"));
                let groups = survey.groups().recovered(random().max(1), &processes, &plan);
                let groups = groups.map_err(refused)?;
                return Ok(RecoveryPlan { survey, plan, groups });
            }
            Err(error) => error,
        };
        if !error.may_pass || since.elapsed() > SETTLE_TIMEOUT {
            return Err(TopologyError::NotRecovered(error.why));
        }
        sleep(AGAIN).await;
    }
}

/// Why there is no plan.
struct NoPlan {
    why: String,
    may_pass: bool,
}

impl From<RecoveryError> for NoPlan {
    fn from(error: RecoveryError) -> NoPlan {
        NoPlan { why: error.to_string(), may_pass: matches!(error, RecoveryError::Behind { .. }) }
    }
}

fn plan(survey: &Survey) -> Result<Vec<Recovery>, NoPlan> {
    let of = |group: &GroupInfo| {
        let reports = survey.answering().filter_map(|process| survey.replica(group, process.id));
        let surviving = reports.map(|(process, report)| Surviving {
            process,
            last: Position { index: report.last_index, term: report.last_term },
            is_applied: report.applied >= report.committed,
            members: Members {
                voters: report.voters.clone(),
                outgoing: report.outgoing.clone(),
                learners: report.learners.clone(),
            },
        });
        (group.id, surviving.collect())
    };
    let left: BTreeMap<GroupId, Vec<Surviving>> = survey.groups().all().map(of).collect();
    let plan = survey.groups().recovery(&left)?;
    // A replica that hears a leader is one of a majority, though others of it do not answer here.
    for recovery in plan.iter().filter(|recovery| recovery.from.is_some()) {
        let Some(group) = survey.groups().numbered(recovery.group) else { continue };
        let hears = |process: &&ProcessInfo| {
            let replica = survey.replica(group, process.id);
            replica.is_some_and(|(_, replica)| replica.without_leader_ms.is_none())
        };
        if let Some(process) = survey.answering().find(hears) {
            let why = format!(
                "nothing was done: {} knows a leader of the group {}, which has a majority then, although only {} of {} replicas \
                 answer here",
                process.address,
                group.name,
                recovery.answering.len(),
                recovery.voters.len()
            );
            return Err(NoPlan { why, may_pass: true });
        }
    }
    Ok(plan)
}

impl RecoveryPlan {
    /// The number of the cluster as it is.
    pub fn cluster(&self) -> u64 {
        self.survey.groups().cluster
    }

    /// The processes that are given up, each with the reason why it does not answer.
    pub fn lost(&self) -> Vec<(&ProcessInfo, NodeError)> {
        let all = self.survey.groups().processes.iter();
        all.filter_map(|process| Some((process, self.survey.answer(process).err()?))).collect()
    }

    /// What becomes of each group.
    pub fn recovered(&self) -> Vec<RecoveredGroup<'_>> {
        let all = self.survey.groups().all();
        let with = |(group, recovery): (&'_ GroupInfo, &Recovery)| {
            let process = recovery.from?;
            let report = self.survey.replica(group, process).map(|(_, report)| report);
            let last = report.map(|report| Position { index: report.last_index, term: report.last_term });
            Some(SoleReplica {
                address: self.survey.address(process),
                last: last.filter(|last| last.index > 0),
                without_leader: Duration::from_millis(
                    report.and_then(|report| report.without_leader_ms).unwrap_or_default(),
                ),
            })
        };
        // There is one for each group, in the same order.
        let all = all.zip(&self.plan).map(|(group, recovery)| RecoveredGroup {
            name: &group.name,
            voters: recovery.voters.len(),
            answering: recovery.answering.len(),
            goes_on_with: with((group, recovery)),
        });
        all.collect()
    }

    /// Recovers the cluster. When the first process has the new list of groups on disk there is no way back: the other processes hear of
    /// the list from that one, too.
    pub async fn carry_out(&self, credentials: &PeerCredentials) -> Result<(), TopologyError> {
        let mut told = 0;
        for ProcessInfo { id, address, .. } in &self.groups.processes {
            match members::found(address, *id, &self.groups, false, credentials).await {
                Err(error) if told == 0 => return Err(TopologyError::Node(address.clone(), error.into())),
                _ => told += 1,
            }
        }
        Ok(())
    }
}
