//! The replicas of a process, and how they become those that the list of groups wants.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use prost::Message as _;
use proto::store::v1 as wire;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::link::ReplicaLinks;
use super::meta::Meta;
use super::view::ClusterView;
use super::{LOG, ProcessSettings, copy, replica, replicas_dir};
use crate::client::Directory;
use crate::client::directory::GROUPS;
use crate::node::Node;
use crate::replication::{Driver, DriverError, Founding, GroupId, GroupInfo, Groups, ReplicaHandle};
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
    pub tasks: Mutex<JoinSet<()>>,
    pub stop: watch::Sender<bool>,
    /// The process ends: nothing is received any more.
    pub over: watch::Sender<bool>,
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
    ended: watch::Receiver<()>,
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

    /// Refuses a process that does not have the token, or is of another cluster.
    pub fn check(&self, token: &str, cluster: u64) -> Result<(), Status> {
        if !self.has_token(token) {
            return Err(Status::permission_denied("wrong cluster token"));
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
            let (status, members) = (replica.handle.status(), replica.handle.log.members());
            wire::ReplicaReport {
                group: replica.id.0,
                leads: status.role.leads,
                term: status.role.term,
                committed: status.committed,
                applied: status.applied,
                needs_copy: replica.handle.state().borrow().awaits_copy,
                voters: members.voters,
                learners: members.learners,
            }
        };
        wire::Inspection {
            groups: Some(self.groups_and_leaders()),
            process: self.view.me,
            replicas: self.replicas.read().values().map(report).collect(),
        }
    }

    /// Takes part in a group that begins with these `voters`; or joins it if there are none.
    pub fn begin(self: &Arc<Self>, group: &GroupInfo, voters: &[u64]) -> Result<(), DriverError> {
        let handle = self.driver.add(group.id, self.view.me, voters)?;
        let (ends, ended) = watch::channel(());
        let replica = Arc::new(Replica {
            id: group.id,
            name: group.name.clone(),
            handle,
            node: RwLock::default(),
            leading: RwLock::default(),
            stop: watch::Sender::new(*self.stop.borrow()),
            ended,
        });
        self.replicas.write().insert(group.id, replica.clone());
        let state = self.clone();
        self.tasks.lock().spawn(async move {
            replica::take_part(state, replica).await;
            drop(ends);
        });
        Ok(())
    }

    /// Follows the list of groups as it changes, until the process ends.
    pub fn follow_changes(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (mut offers, mut stop) = (self.view.offers(), self.stop.subscribe());
        async move {
            loop {
                let groups = offers.borrow_and_update().clone();
                if groups.version > self.view.groups().version {
                    self.adopt(groups).await;
                }
                tokio::select! {
                    // Their senders live as long as this.
                    _ = offers.changed() => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
        }
    }

    /// Makes a newer list of groups the one of this process.
    async fn adopt(self: &Arc<Self>, groups: Arc<Groups>) {
        let me = self.view.me;
        let record = Founding { groups: (*groups).clone(), process: me }.to_record();
        if !self.driver.save(record).await {
            return;
        }
        let was_one = self.view.groups().process(me).is_some();
        self.view.take(groups.clone());
        // It is of the same cluster.
        let _ = self.directory.learn(&groups.to_wire());
        self.links.open(&groups);
        if was_one && groups.process(me).is_none() {
            (self.settings.warn)(
                "this process does not belong to its cluster any more, and can be stopped: with an empty data-dir it can join \
                 again",
            );
        }
        let is_mine = |id| groups.numbered(id).is_some_and(|group| group.is_on(me));
        let gone: Vec<Arc<Replica>> =
            self.replicas.read().values().filter(|replica| !is_mine(replica.id)).cloned().collect();
        for replica in gone {
            self.delete(&replica).await;
        }
        for group in groups.all().filter(|group| group.replicas.contains(&me)) {
            if self.replicas.read().contains_key(&group.id) {
                continue;
            }
            let (state, of) = (self.clone(), group.clone());
            let begun = spawn_blocking(move || state.begin(&of, &[])).await;
            if let Ok(Err(error)) = begun {
                (self.settings.warn)(&format!("the group {} gets no replica here: {error}", group.name));
            }
        }
    }

    /// Ends a replica that the group does not have any more, and deletes its data.
    async fn delete(&self, replica: &Replica) {
        replica.stop.send_replace(true);
        let _ = replica.ended.clone().changed().await;
        self.replicas.write().remove(&replica.id);
        if !self.driver.forget(replica.id).await {
            return;
        }
        let dir = replicas_dir(&self.settings.dir).join(&replica.name);
        let deleted = spawn_blocking(move || copy::delete(&dir)).await;
        if let Ok(Err(error)) = deleted {
            (self.settings.warn)(&format!("the data of the group {} is left: {error}", replica.name));
        }
    }

    /// Deletes the data of replicas that a process did not come to delete.
    pub fn delete_former_replicas(&self) {
        let groups = self.view.groups();
        let is_mine = |name: &str| groups.named(name).is_some_and(|group| group.is_on(self.view.me));
        // The directory of the logs is there.
        for entry in fs::read_dir(replicas_dir(&self.settings.dir)).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if name != LOG
                && !is_mine(name)
                && let Err(error) = fs::remove_dir_all(&path)
            {
                (self.settings.warn)(&format!("the data of the group {name} is left: {error}"));
            }
        }
    }

    /// Hands over what this process leads, and ends all replicas.
    pub async fn end(&self) {
        self.stop.send_replace(true);
        self.replicas.read().values().for_each(|replica| _ = replica.stop.send_replace(true));
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}
