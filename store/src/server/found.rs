//! How a process becomes one of a cluster of replicated groups: without data, or as a node whose data becomes that of a group.

use std::sync::Arc;

use proto::store::v1 as wire;
use tonic::Status;

use super::host::Host;
use crate::replication::{Founding, Groups};

/// Notes that this process belongs to the cluster. The node is served no more then: the process goes on as a process with
/// replicas.
pub(super) async fn found(host: &Arc<Host>, request: wire::FoundCluster) -> Result<wire::Done, Status> {
    if !host.is_token(&request.token) {
        return Err(Status::permission_denied("wrong cluster token"));
    }
    let invalid = |error| Status::invalid_argument(format!("{error}"));
    let groups = Groups::from_wire(&request.groups.unwrap_or_default()).map_err(invalid)?;
    let founding = Founding::new(groups, request.process).map_err(invalid)?;
    if host.membership.identity() == 0 {
        return Err(Status::failed_precondition("this process has no data-dir; replicas need one"));
    }
    let may_be = match request.adopts {
        true => is_right_node(host, &founding),
        false => has_no_data(host),
    };
    may_be.map_err(Status::failed_precondition)?;
    let (answer, answered) = tokio::sync::oneshot::channel();
    let gone = |_| Status::unavailable("the process is shutting down");
    host.foundings.add((founding, answer));
    answered.await.map_err(gone)?.map_err(Status::unavailable)?;
    Ok(wire::Done {})
}

fn has_no_data(host: &Host) -> Result<(), String> {
    match host.membership.taken().is_some() || host.node.usage().keys.iter().any(|keys| *keys > 0) {
        true => Err(
            "this process has data, or belongs to a cluster; use one with an empty data-dir, or `moonshard topology adopt` \
             for all nodes of a cluster"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// Whether the node is the one that the group is named by, and knows a slot map of the same nodes.
fn is_right_node(host: &Host, Founding { groups, process, .. }: &Founding) -> Result<(), String> {
    let Some(name) = host.membership.name() else {
        return Err("this process belongs to no cluster; use `moonshard topology found`".to_owned());
    };
    if groups.adopted_by(*process).is_none_or(|group| group.name != name) {
        return Err(format!("this node is {name}, and was taken for another one"));
    }
    let taken = host.membership.taken();
    let owners =
        taken.iter().flat_map(|taken| taken.map.owners().into_iter().map(|node| &taken.map.nodes()[node]));
    match owners.into_iter().find(|owner| groups.named(owner).is_none()) {
        Some(owner) => Err(format!("{owner} owns slots, and is not among the nodes to be adopted")),
        None => Ok(()),
    }
}
