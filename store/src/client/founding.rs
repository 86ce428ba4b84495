//! Makes processes without data a cluster of replicated groups.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::store::v1 as wire;
use tokio::time::{Instant, sleep};

use super::directory::Directory;
use super::topology_error::{NodeError, TopologyError};
use super::{PeerCredentials, members};
use crate::random::random;
use crate::replication::{GroupInfo, Groups, ProcessInfo};

/// How long processes that cannot be reached are waited for,
pub(super) const REACH_TIMEOUT: Duration = Duration::from_secs(5);
/// and the pause between two attempts.
pub(super) const AGAIN: Duration = Duration::from_millis(100);
/// The log of a new group begins behind this entry, which no replica has.
const BEFORE_FIRST: u64 = 1;

/// The processes of a cluster, and whether it was there before.
pub struct Founded {
    /// The cluster.
    pub groups: Groups,
    /// It had been founded by an earlier command.
    pub was_there: bool,
}

/// Makes the processes at these addresses, which must have no data, a cluster whose groups have so many replicas each. Repeated
/// it completes what was interrupted; a cluster that is complete, or can complete itself, stays as it is.
pub async fn found(
    addresses: &[String],
    replicas: usize,
    credentials: &PeerCredentials,
) -> Result<Founded, TopologyError> {
    let new = Groups::found(random().max(1), addresses, replicas)?;
    let (directory, mut said, mut unreachable) = (Directory::default(), BTreeMap::new(), None);
    let since = Instant::now();
    for address in addresses {
        let mut inspected = members::inspect_if_member(address, credentials).await;
        // One that starts, or that was just told of the cluster, answers soon.
        while matches!(inspected, Err(NodeError::Lost(_))) && since.elapsed() < REACH_TIMEOUT {
            sleep(AGAIN).await;
            inspected = members::inspect_if_member(address, credentials).await;
        }
        match inspected {
            Ok(None) => {}
            Ok(Some(inspection)) => {
                directory.learn(inspection.groups.as_ref().unwrap_or(&wire::Groups::default()))?;
                said.insert(inspection.process, inspection);
            }
            Err(error) => _ = unreachable.get_or_insert((address, error)),
        }
    }
    let known = directory.groups();
    if let Some(known) = &known {
        let is_known = |address: &&String| known.processes.iter().any(|process| process.address == **address);
        if let Some(unknown) = addresses.iter().find(|address| !is_known(address)) {
            return Err(TopologyError::no_process(known, unknown));
        }
    }
    let was_there = known.is_some();
    if let Some(groups) = known.clone().filter(|known| known.version > 1) {
        return Ok(Founded { groups, was_there });
    }
    if let Some((address, error)) = unreachable {
        return Err(TopologyError::Node(address.clone(), error));
    }
    let groups = known.unwrap_or(new);
    for ProcessInfo { id, address, .. } in unfounded(&groups, &said)? {
        let founded = members::found(address, *id, &groups, false, credentials).await;
        founded.map_err(|error| TopologyError::Node(address.clone(), error.into()))?;
    }
    Ok(Founded { groups, was_there })
}

/// The processes of a cluster whose list never changed that are to be told of it, by what all processes have said that know of
/// it. A process that has lost its data looks like one that was never told, but must not come back under its number: it would have
/// forgotten what it voted for. So there are none if every group can have a leader without them, since these let the others join
/// under new numbers.
fn unfounded<'a>(
    groups: &'a Groups,
    said: &BTreeMap<u64, wire::Inspection>,
) -> Result<Vec<&'a ProcessInfo>, TopologyError> {
    let is_told = |id: &u64| said.contains_key(id);
    let has_majority = |group: &&GroupInfo| {
        group.replicas.iter().filter(|id| is_told(id)).count() * 2 > group.replicas.len()
    };
    let was_in_use = |group: &&GroupInfo| {
        let reports = said.values().flat_map(|inspection| &inspection.replicas);
        reports.filter(|report| report.group == group.id.0).any(|report| report.committed > BEFORE_FIRST)
    };
    let waiting: Vec<&GroupInfo> = groups.all().filter(|group| !has_majority(group)).collect();
    if let Some(lost) = waiting.iter().find(|group| was_in_use(group)) {
        return Err(TopologyError::MajorityLost(lost.name.clone()));
    }
    let untold = groups.processes.iter().filter(|process| !waiting.is_empty() && !is_told(&process.id));
    Ok(untold.collect())
}

impl TopologyError {
    fn no_process(groups: &Groups, address: &str) -> TopologyError {
        let all: Vec<&str> = groups.processes.iter().map(|process| &*process.address).collect();
        let why = format!(
            "another process belongs to the cluster {:016x} already, whose processes are {}; `moonshard topology join` adds \
             one",
            groups.cluster,
            all.join(", ")
        );
        TopologyError::Node(address.to_owned(), NodeError::Refused(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster of so many processes with three replicas, and what these of them say, whose groups have committed this.
    fn told(processes: usize, told: &[u64], committed: u64) -> (Groups, BTreeMap<u64, wire::Inspection>) {
        let addresses: Vec<String> = (1..=processes).map(|at| format!("store{at}:1")).collect();
        let groups = Groups::found(7, &addresses, 3).expect("enough processes");
        let inspection = |id: u64| {
            let of = groups.all().filter(|group| group.is_on(id));
            let report = |group: &GroupInfo| wire::ReplicaReport {
                group: group.id.0,
                committed,
                ..wire::ReplicaReport::default()
            };
            wire::Inspection { replicas: of.map(report).collect(), process: id, groups: None }
        };
        let said = told.iter().map(|id| (*id, inspection(*id))).collect();
        (groups, said)
    }

    fn asked(processes: usize, those: &[u64], committed: u64) -> Result<Vec<u64>, TopologyError> {
        let (groups, said) = told(processes, those, committed);
        unfounded(&groups, &said).map(|all| all.into_iter().map(|process| process.id).collect())
    }

    #[test]
    fn an_interrupted_command_is_completed() {
        assert_eq!(asked(3, &[], 0), Ok(vec![1, 2, 3]));
        assert_eq!(asked(3, &[1], BEFORE_FIRST), Ok(vec![2, 3]));
        // Some groups have a majority, and are in use; g2, which is on 3, 4 and 5, is not.
        let (groups, mut said) = told(5, &[1, 2, 3], 9);
        for report in said.values_mut().flat_map(|inspection| &mut inspection.replicas) {
            if matches!(report.group, 2 | 3) {
                report.committed = BEFORE_FIRST;
            }
        }
        let all = unfounded(&groups, &said).expect("none is lost");
        assert_eq!(all.iter().map(|process| process.id).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn a_process_that_may_have_lost_its_data_does_not_get_its_number_again() {
        assert_eq!(asked(3, &[1, 3], 9), Ok(Vec::new()), "the others let it join");
        assert_eq!(asked(3, &[1, 2], BEFORE_FIRST), Ok(Vec::new()));
        assert_eq!(asked(3, &[3], 9), Err(TopologyError::MajorityLost("g0".to_owned())));
        assert_eq!(asked(3, &[1, 2, 3], 9), Ok(Vec::new()));
    }
}
