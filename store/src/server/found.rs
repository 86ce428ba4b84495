//! How a process without data becomes one of a cluster of replicated groups.

use std::sync::Arc;

use proto::store::v1 as wire;
use tonic::Status;

use super::host::Host;
use crate::replication::{Founding, Groups};

/// Notes that this process belongs to the cluster, if it has no data. The node is served no more then: the process goes on as
/// a process with replicas.
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
    if host.membership.taken().is_some() || host.node.usage().keys.iter().any(|keys| *keys > 0) {
        return Err(Status::failed_precondition(
            "this process has data, or belongs to a cluster; use one with an empty data-dir",
        ));
    }
    let (answer, answered) = tokio::sync::oneshot::channel();
    let gone = |_| Status::unavailable("the process is shutting down");
    host.foundings.add((founding, answer));
    answered.await.map_err(gone)?.map_err(Status::unavailable)?;
    Ok(wire::Done {})
}
