//! How the nodes of a cluster without replicas become one of replicated groups.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep;

use super::credentials::PeerCredentials;
use super::directory::Directory;
use super::founding::{AGAIN, REACH_TIMEOUT};
use super::members;
use super::moves::look_at;
use super::topology_error::{NodeError, TopologyError};
use crate::random::random;
use crate::replication::{Groups, ProcessInfo};

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
    for ProcessInfo { id, address, .. } in groups.processes.iter().rev() {
        let adopted = members::found(address, *id, &groups, true, credentials).await;
        adopted.map_err(|error| TopologyError::Node(address.clone(), NodeError::from(error)))?;
    }
    // Each starts again as a process of the cluster: the next command would not reach it before that.
    let since = Instant::now();
    for ProcessInfo { address, .. } in &groups.processes {
        while !matches!(members::inspect_if_member(address, credentials).await, Ok(Some(_)))
            && since.elapsed() < REACH_TIMEOUT
        {
            sleep(AGAIN).await;
        }
    }
    Ok(groups)
}
