//! A process with replicas: what it has, and what it says of itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use prost::Message as _;
use proto::store::v1 as wire;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::link::ReplicaLinks;
use super::meta::Meta;
use super::settings::ProcessSettings;
use super::view::ClusterView;
use crate::client::Directory;
use crate::client::directory::GROUPS;
use crate::node::Node;
use crate::replication::{Driver, GroupId, ReplicaHandle};
use crate::server::Service;

/// A process with replicas.
pub(super) struct State {
    pub settings: ProcessSettings,
    pub view: Arc<ClusterView>,
    pub links: Arc<ReplicaLinks>,
    pub driver: Arc<Driver>,
    pub directory: Arc<Directory>,
    pub replicas: RwLock<BTreeMap<GroupId, Arc<Replica>>>,
    /// While this process leads the group that changes the list of groups.
    pub meta: RwLock<Option<Arc<Meta>>>,
    /// What the leaders of groups have said that replicas in this process follow.
    pub committed: Mutex<BTreeMap<GroupId, Committed>>,
    pub tasks: Mutex<JoinSet<()>>,
    pub stop: watch::Sender<bool>,
    /// The process is to start again, as one of the cluster that its own was recovered as.
    pub recovered: watch::Sender<bool>,
    /// The process ends: nothing is received any more.
    pub over: watch::Sender<bool>,
}

/// What the leader of a group has said: up to which entry all were committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Committed {
    newest: u64,
    /// When it was asked before; the first time the same.
    before: u64,
}

impl Committed {
    /// The leader has answered once more.
    pub fn after(known: Option<Committed>, newest: u64) -> Committed {
        Committed { newest, before: known.map_or(newest, |known| known.newest) }
    }

    /// How many entries a replica lacks that has applied all up to this one; 0 if it has caught up.
    pub fn lag(self, applied: u64) -> u64 {
        if applied >= self.before { 0 } else { self.newest.max(self.before) - applied }
    }
}

/// A replica in this process.
pub(super) struct Replica {
    pub id: GroupId,
    pub name: String,
    pub handle: ReplicaHandle,
    /// The node, while it is in memory.
    pub node: RwLock<Weak<Node>>,
    /// The service, while it leads.
    pub leading: RwLock<Option<Service>>,
    /// Set when it is to hand over what it leads, and to end.
    pub stop: watch::Sender<bool>,
    /// Its sender is gone when the replica has ended.
    pub ended: watch::Receiver<()>,
}

impl Replica {
    /// The node, if it is in memory.
    pub fn in_memory(&self) -> Option<Arc<Node>> {
        self.node.read().upgrade()
    }
}

impl State {
    pub fn has_token(&self, token: &str) -> bool {
        let known = self.settings.credentials.token.as_ref();
        known.is_none_or(|known| known.as_bytes().ct_eq(token.as_bytes()).into())
    }

    /// Refuses a process that does not have the token, or is of another cluster. One that belongs to this cluster as it was before it
    /// was recovered hears of that.
    pub fn check(&self, token: &str, cluster: u64) -> Result<(), Status> {
        if !self.has_token(token) {
            return Err(Status::permission_denied("wrong cluster token"));
        }
        let groups = self.view.groups();
        if groups.former_clusters.contains(&cluster) {
            let is = groups.cluster;
            return Err(self.elsewhere(format!("the cluster {cluster:016x} was recovered as {is:016x}")));
        }
        if cluster != self.view.cluster {
            return Err(Status::failed_precondition("this process belongs to another cluster"));
        }
        Ok(())
    }

    /// The replica of the group of this name.
    pub fn named(&self, name: &str) -> Option<Arc<Replica>> {
        self.replicas.read().values().find(|replica| replica.name == name).cloned()
    }

    /// The list of groups, with their leaders as far as they are known here.
    pub fn groups_and_leaders(&self) -> wire::Groups {
        let leader = |replica: &Arc<Replica>| {
            let process = replica.handle.state().borrow().role.leader?;
            Some(wire::Leader { group: replica.id.0, process })
        };
        let leaders = self.replicas.read().values().filter_map(leader).collect();
        wire::Groups { leaders, ..self.view.groups().to_wire() }
    }

    /// The error that says where the groups are.
    pub fn elsewhere(&self, why: String) -> Status {
        let mut metadata = MetadataMap::new();
        let groups = self.groups_and_leaders().encode_to_vec();
        metadata.insert_bin(GROUPS, MetadataValue::from_bytes(&groups));
        Status::with_metadata(Code::Unavailable, why, metadata)
    }

    /// What this process knows of its cluster.
    pub fn inspect(&self) -> wire::Inspection {
        let report = |replica: &Arc<Replica>| {
            let (status, log) = (replica.handle.status(), &replica.handle.log);
            let (members, last) = (log.members(), log.last());
            wire::ReplicaReport {
                group: replica.id.0,
                leads: status.role.leads,
                term: status.role.term,
                committed: status.committed,
                applied: status.applied,
                needs_copy: replica.handle.state().borrow().awaits_copy,
                voters: members.voters,
                learners: members.learners,
                outgoing: members.outgoing,
                last_index: last.index,
                last_term: last.term,
                without_leader_ms: status.without_leader_ms,
            }
        };
        wire::Inspection {
            groups: Some(self.groups_and_leaders()),
            process: self.view.me,
            replicas: self.replicas.read().values().map(report).collect(),
        }
    }
}
