//! How processes become a cluster of replicated groups: empty ones, or the nodes of a cluster without replicas.

use std::sync::Arc;

use super::credentials::PeerCredentials;
use super::directory::Directory;
use super::members;
use super::moves::look_at;
use super::topology_error::{NodeError, TopologyError};
use crate::random::random;
use crate::replication::{Groups, ProcessInfo};

/// Makes the processes at these addresses, which must have no data, a cluster whose groups have so many replicas each. If some of
/// them are one already, with the same addresses and replicas, the others are added to it.
pub async fn found(
    addresses: &[String],
    replicas: usize,
    credentials: &PeerCredentials,
) -> Result<Groups, TopologyError> {
    let mut groups = Groups::found(random().max(1), addresses, replicas)?;
    let directory = Arc::default();
    // Processes that are not founded yet have no map.
    let _ = look_at(addresses, &directory, credentials).await;
    if let Some(known) = directory.groups() {
        groups.cluster = known.cluster;
    }
    for process in &groups.processes {
        make_one(process, &groups, false, credentials).await?;
    }
    Ok(groups)
}

/// Makes the nodes that own slots, of the cluster that these nodes are of, a cluster of groups with one replica each: a node becomes the
/// group of its name, with its data. If some of them are groups already, so do the others.
pub async fn adopt(addresses: &[String], credentials: &PeerCredentials) -> Result<Groups, TopologyError> {
    let directory = Arc::<Directory>::default();
    let map = look_at(addresses, &directory, credentials).await;
    let groups = match directory.groups() {
        // Interrupted before.
        Some(known) if known.processes.iter().any(|process| known.adopted_by(process.id).is_some()) => known,
        Some(_) => return Err(TopologyError::HasGroups),
        None => {
            let map = map?;
            let owners: Vec<String> =
                map.owners().into_iter().map(|node| map.nodes()[node].clone()).collect();
            // All of them must be there before the first one changes.
            for owner in &owners {
                look_at(std::slice::from_ref(owner), &directory, credentials).await?;
            }
            Groups::adopt(random().max(1), &owners)?
        }
    };
    // The first one leads the group that looks for processes without data: by then all belong to the cluster.
    for process in groups.processes.iter().rev() {
        make_one(process, &groups, true, credentials).await?;
    }
    Ok(groups)
}

/// Makes a process of the list one of the cluster.
async fn make_one(
    process: &ProcessInfo,
    groups: &Groups,
    adopts: bool,
    credentials: &PeerCredentials,
) -> Result<(), TopologyError> {
    let ProcessInfo { id, address, .. } = process;
    let founded = members::found(address, *id, groups, adopts, credentials).await;
    founded.map_err(|error| TopologyError::Node(address.clone(), NodeError::from(error)))
}
