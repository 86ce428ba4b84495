//! Changes of which processes a cluster has, and of their replicas.

use std::fmt;
use std::time::Duration;

use proto::store::v1 as wire;
use proto::store::v1::store_client::StoreClient;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::directory::Directory;
use super::link_error::LinkError;
use super::topology_error::{NodeError, TopologyError};
use super::{PeerCredentials, way};
use crate::replication::{Groups, META};

/// How long the leader of the group that makes the changes is looked for.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process may take to become one of a cluster.
const FOUND_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

/// Why a process does not become one of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundError {
    /// It cannot be reached.
    Lost(LinkError),
    /// It was lost before it answered: it may be one now.
    Unknown(LinkError),
    /// It refuses, for this reason.
    Refused(String),
}

impl fmt::Display for FoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundError::Lost(error) | FoundError::Unknown(error) => error.fmt(f),
            FoundError::Refused(why) => f.write_str(why),
        }
    }
}

impl From<FoundError> for NodeError {
    fn from(error: FoundError) -> NodeError {
        match error {
            FoundError::Lost(error) | FoundError::Unknown(error) => NodeError::Lost(error),
            FoundError::Refused(why) => NodeError::Refused(why),
        }
    }
}

/// Makes the process at this address process `id` of a cluster. It must have no data, or be the node that it `adopts` as a group.
/// Repeated it does nothing.
pub(crate) async fn found(
    address: &str,
    id: u64,
    groups: &Groups,
    adopts: bool,
    credentials: &PeerCredentials,
) -> Result<(), FoundError> {
    let channel = way::connect(address, credentials.tls.as_ref()).await.map_err(FoundError::Lost)?;
    let request = wire::FoundCluster {
        token: credentials.token.clone().unwrap_or_default(),
        groups: Some(groups.to_wire()),
        process: id,
        adopts,
    };
    let mut client = StoreClient::new(channel);
    let Ok(answer) = timeout(FOUND_TIMEOUT, client.found(request)).await else {
        return Err(FoundError::Unknown(LinkError::NoAnswer));
    };
    match answer {
        Ok(_) => Ok(()),
        Err(status) if is_answer(&status) => Err(FoundError::Refused(status.message().to_owned())),
        Err(status) => Err(FoundError::Unknown(LinkError::Connect(status.message().to_owned()))),
    }
}

/// Whether a process refuses; else the connection was lost, or is to a process that has no data.
fn is_answer(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::FailedPrecondition | Code::Aborted | Code::PermissionDenied | Code::InvalidArgument
    )
}

/// What the process at this address knows of its cluster.
pub async fn inspect(address: &str, credentials: &PeerCredentials) -> Result<wire::Inspection, NodeError> {
    let channel = way::connect(address, credentials.tls.as_ref()).await.map_err(NodeError::Lost)?;
    let answer = inspect_by(channel, credentials).await;
    answer.map_err(|status| NodeError::Refused(status.message().to_owned()))
}

/// What the process at this address knows of its cluster; none if it belongs to no cluster of replicated groups.
pub(super) async fn inspect_if_member(
    address: &str,
    credentials: &PeerCredentials,
) -> Result<Option<wire::Inspection>, NodeError> {
    let channel = way::connect(address, credentials.tls.as_ref()).await.map_err(NodeError::Lost)?;
    match inspect_by(channel, credentials).await {
        Ok(inspection) => Ok(Some(inspection)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) if is_answer(&status) => Err(NodeError::Refused(status.message().to_owned())),
        Err(status) => Err(NodeError::Lost(LinkError::Connect(status.message().to_owned()))),
    }
}

/// What the process at the other end of a connection knows of its cluster.
pub(crate) async fn inspect_by(
    channel: Channel,
    credentials: &PeerCredentials,
) -> Result<wire::Inspection, Status> {
    let token = credentials.token.clone().unwrap_or_default();
    let answer = StoreClient::new(channel).inspect(wire::InspectRequest { token }).await;
    answer.map(tonic::Response::into_inner)
}

/// Changes the list of groups of the cluster that the directory knows; returns the new list.
pub async fn change(
    directory: &Directory,
    credentials: &PeerCredentials,
    change: wire::change_request::Change,
) -> Result<Groups, TopologyError> {
    let Some(cluster) = directory.groups().map(|groups| groups.cluster) else {
        return Err(TopologyError::NoGroups);
    };
    let request = wire::ChangeRequest {
        token: credentials.token.clone().unwrap_or_default(),
        cluster,
        change: Some(change),
    };
    let since = Instant::now();
    let mut failures = Vec::new();
    for attempt in 0.. {
        let Some(address) = directory.address(META, attempt) else { break };
        let failed = |why| TopologyError::Node(address.clone(), why);
        match way::connect(&address, credentials.tls.as_ref()).await {
            Err(error) => failures.push((address, error)),
            Ok(channel) => match StoreClient::new(channel).change(request.clone()).await {
                Ok(groups) => return Ok(directory.learn(&groups.into_inner())?),
                Err(status) if is_answer(&status) => {
                    return Err(failed(NodeError::Refused(status.message().to_owned())));
                }
                Err(status) => match way::groups_of(&status) {
                    Some(groups) => drop(directory.learn(&groups)?),
                    None => failures.push((address, LinkError::Connect(status.message().to_owned()))),
                },
            },
        }
        if since.elapsed() > LEADER_TIMEOUT {
            break;
        }
        sleep(AGAIN).await;
    }
    match failures.is_empty() {
        true => Err(TopologyError::NoLeader),
        false => Err(TopologyError::Unreachable(failures)),
    }
}
