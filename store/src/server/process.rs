//! A process with replicas of groups: it serves the groups that it leads, and sends peers to the leaders of the others.

mod adopt;
mod copy;
mod former_node;
mod link;
mod meta;
mod readiness;
mod recover;
mod replica;
mod settings;
mod state;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use proto::store::v1 as wire;
use proto::store::v1::store_server::Store;
use proto::store::v1::{ReplicaMessages, Requests};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status, Streaming};

pub(super) use self::copy::CopyParts;
use self::link::ReplicaLinks;
use self::meta::MetaError;
pub use self::readiness::NotReady;
use self::settings::log_dir;
pub use self::settings::{Companion, ProcessSettings};
use self::state::State;
use self::view::ClusterView;
use super::peer::Known;
use super::{Answers, Service, serve_peers};
use crate::client::Directory;
use crate::client::directory::GROUP;
use crate::journal::DiskError;
use crate::replication::{
    Change, Driver, DriverError, Founding, GroupId, Groups, GroupsError, LogDisk, ReplicaStatus,
};

/// Why a process does not take part in its cluster.
#[derive(Debug)]
pub enum ProcessError {
    /// The disk of the logs.
    Disk(DiskError),
    /// What says which cluster it belongs to.
    Groups(GroupsError),
    /// The replicated logs.
    Driver(DriverError),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::Disk(error) => error.fmt(f),
            ProcessError::Groups(removed @ GroupsError::Removed { .. }) => removed.fmt(f),
            ProcessError::Groups(error) => write!(f, "the record of the cluster is damaged: {error}"),
            ProcessError::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProcessError {}

/// Whether the process with this data directory belongs to a cluster of replicated groups.
pub fn is_founded(dir: &Path) -> bool {
    log_dir(dir).exists()
}

/// The process with this data directory belongs to a cluster from now on.
pub fn found(dir: &Path, founding: &Founding) -> Result<(), ProcessError> {
    let mut disk = LogDisk::open(&log_dir(dir)).map_err(ProcessError::Disk)?;
    disk.found(founding.to_record());
    disk.write(true).map_err(ProcessError::Disk)
}

/// A process with replicas.
#[derive(Clone)]
pub struct Process {
    state: Arc<State>,
}

impl Process {
    /// Reads what the data directory holds and takes part in its groups. Needs a runtime.
    pub fn start(settings: ProcessSettings) -> Result<Process, ProcessError> {
        let open = || LogDisk::open(&log_dir(&settings.dir)).map_err(ProcessError::Disk);
        let mut disk = open()?;
        let founding_of = |disk: &LogDisk| {
            Founding::from_record(disk.founding().unwrap_or_default()).map_err(ProcessError::Groups)
        };
        let mut founding = founding_of(&disk)?;
        if founding.is_recovering {
            recover::finish(&settings.dir, &mut disk, founding).map_err(ProcessError::Driver)?;
            drop(disk);
            disk = open()?;
            founding = founding_of(&disk)?;
        }
        let Founding { groups, process: me, .. } = founding.clone();
        former_node::take_over(&settings.dir, &groups, me).map_err(ProcessError::Disk)?;
        let is_mine = |id| groups.numbered(id).is_some_and(|group| group.is_on(me));
        for gone in disk.groups().into_iter().filter(|id| !is_mine(*id)) {
            disk.forget(gone).map_err(ProcessError::Disk)?;
        }
        let view = Arc::new(ClusterView::new(founding, settings.zone.clone()));
        let links = Arc::new(ReplicaLinks::new(view.clone(), settings.credentials.clone()));
        let driver = Driver::start(disk, links.clone(), settings.warn).map_err(ProcessError::Driver)?;
        let driver = Arc::new(driver);
        links.report_to(&driver);
        links.open(&groups);
        let state = Arc::new(State {
            directory: Arc::new(Directory::of(groups.clone())),
            settings,
            view,
            links,
            driver,
            replicas: RwLock::new(BTreeMap::new()),
            meta: RwLock::default(),
            committed: Mutex::default(),
            tasks: Mutex::new(JoinSet::new()),
            stop: watch::Sender::new(false),
            recovered: watch::Sender::new(false),
            over: watch::Sender::new(false),
        });
        state.delete_former_replicas();
        for group in groups.all().filter(|group| group.is_on(me)) {
            // Who founds a group knows its members, who joins it learns of them with its copy of the data.
            let voters: &[u64] = if groups.version == 1 { &group.replicas } else { &[] };
            state.begin(group, voters).map_err(ProcessError::Driver)?;
        }
        let (following, asking) = (state.clone().follow_changes(), state.clone().ask_leaders());
        state.tasks.lock().spawn(following);
        state.tasks.lock().spawn(asking);
        Ok(Process { state })
    }

    /// Which of the processes of its cluster it is.
    pub fn number(&self) -> u64 {
        self.state.view.me
    }

    /// The groups of the cluster.
    pub fn groups(&self) -> Arc<Groups> {
        self.state.view.groups()
    }

    /// The nodes of the groups that this process leads at present, with their names.
    pub fn leading(&self) -> Vec<(String, Service)> {
        let replicas = self.state.replicas.read();
        let leading = replicas.values();
        leading.filter_map(|replica| Some((replica.name.clone(), replica.leading.read().clone()?))).collect()
    }

    /// The replicas in this process: names of their groups, and how they are.
    pub fn replicas(&self) -> Vec<(String, ReplicaStatus)> {
        let replicas = self.state.replicas.read();
        replicas.values().map(|replica| (replica.name.clone(), replica.handle.status())).collect()
    }

    /// Whether all replicas in this process have caught up; else which one has not. A process that its cluster does not have any
    /// more has none.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.state.readiness()
    }

    /// Done when the process is to start again: its cluster was recovered as another one, to which it belongs.
    pub async fn recovered(&self) {
        // Its sender lives as long as this.
        let _ = self.state.recovered.subscribe().wait_for(|recovered| *recovered).await;
    }

    /// Closes the disk, so that the process can start again.
    pub fn close(self) {
        self.state.driver.stop();
    }

    /// Answers gateways and other processes until `stop` is done; then hands over what it leads and ends.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let state = self.state.clone();
        let tls = state.settings.credentials.tls.clone();
        // The replicas still need their streams while they hand over.
        let ended = async {
            stop.await;
            state.end().await;
        };
        let over = self.state.clone();
        let end = move || _ = over.over.send_replace(true);
        serve_peers(self, listener, tls, ended, end).await
    }
}

#[tonic::async_trait]
impl Store for Process {
    type LinkStream = Answers;

    async fn link(&self, request: Request<Streaming<Requests>>) -> Result<Response<Answers>, Status> {
        let Some(name) = request.metadata().get(GROUP).and_then(|name| name.to_str().ok()) else {
            return Err(self.state.elsewhere("this process has several groups: name one".to_owned()));
        };
        let replica = self.state.named(name);
        match replica.and_then(|replica| replica.leading.read().clone()) {
            Some(service) => service.link(request).await,
            None => Err(self.state.elsewhere(format!("this process does not lead the group {name}"))),
        }
    }

    async fn replicate(
        &self,
        request: Request<Streaming<ReplicaMessages>>,
    ) -> Result<Response<wire::Done>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let mut frames = request.into_inner();
        let Some(first) = frames.message().await? else { return Ok(Response::new(wire::Done {})) };
        if self.state.has_token(&first.token)
            && let Some(groups) = &first.groups
        {
            // It may be of the cluster that this one was recovered as.
            self.state.view.hear(groups);
        }
        self.state.check(&first.token, first.cluster)?;
        known.set();
        let mut lists = self.state.view.follow();
        let mine = lists.borrow_and_update().clone();
        let is_behind = first.groups.as_ref().is_some_and(|groups| groups.version <= mine.version);
        let from = first.from;
        let removed =
            || self.state.elsewhere(format!("process {from} does not belong to the cluster any more"));
        if is_behind && mine.process(from).is_none() {
            return Err(removed());
        }
        self.state.view.note_zone(from, first.zone.clone());
        let mut frame = Some(first);
        let mut over = self.state.over.subscribe();
        while let Some(ReplicaMessages { groups, messages, .. }) = frame {
            if let Some(groups) = groups {
                self.state.view.hear(&groups);
            }
            for wire::ReplicaMessage { group, to, message } in messages {
                if to == self.state.view.me {
                    self.state.driver.receive(GroupId(group), message);
                }
            }
            frame = tokio::select! {
                frame = frames.message() => frame?,
                _ = over.wait_for(|over| *over) => None,
                // It was removed meanwhile.
                _ = lists.wait_for(|groups| groups.process(from).is_none() && groups.replaces(&mine)) => {
                    return Err(removed());
                }
            };
        }
        Ok(Response::new(wire::Done {}))
    }

    type CopyStream = CopyParts;

    async fn copy(&self, request: Request<wire::CopyRequest>) -> Result<Response<CopyParts>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let request = request.into_inner();
        self.state.check(&request.token, request.cluster)?;
        known.set();
        let replica = self.state.replicas.read().get(&GroupId(request.group)).cloned();
        // A leader may wait for the very replica that lacks the data before it can serve the group.
        let leads = replica.filter(|replica| replica.handle.state().borrow().role.leads);
        let node = leads.and_then(|replica| Some((replica.in_memory()?, replica)));
        let Some((node, replica)) = node else {
            let why = format!("this process does not lead group {}", request.group);
            return Err(self.state.elsewhere(why));
        };
        let rate = self.state.settings.companion.copy_rate();
        Ok(Response::new(copy::send(&node, replica.handle.clone(), rate)))
    }

    async fn found(&self, request: Request<wire::FoundCluster>) -> Result<Response<wire::Done>, Status> {
        let request = request.into_inner();
        if !self.state.has_token(&request.token) {
            return Err(Status::permission_denied("wrong cluster token"));
        }
        let mine = &self.state.view;
        let known = mine.groups();
        let is_known = |process: &wire::Process| {
            known.address(process.id).is_none_or(|address| address == process.address)
        };
        let groups = request.groups.unwrap_or_default();
        if request.process == mine.me && groups.former_clusters.contains(&known.cluster) {
            self.state.recover(&groups).await?;
            return Ok(Response::new(wire::Done {}));
        }
        let is_mine = request.process == mine.me
            && groups.cluster == mine.cluster
            && groups.processes.iter().all(is_known);
        match is_mine {
            true => Ok(Response::new(wire::Done {})),
            false => Err(Status::failed_precondition(format!(
                "this process belongs to the cluster {:016x} already, as process {}",
                mine.cluster, mine.me
            ))),
        }
    }

    async fn change(&self, request: Request<wire::ChangeRequest>) -> Result<Response<wire::Groups>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let wire::ChangeRequest { token, cluster, change } = request.into_inner();
        self.state.check(&token, cluster)?;
        // A process that joins may be waited for longer than an unauthenticated connection is kept open.
        known.set();
        let Some(meta) = self.state.meta.read().clone() else {
            return Err(self.state.elsewhere("this process does not lead the group meta".to_owned()));
        };
        use wire::change_request::Change as Asked;
        let changed = match change {
            Some(Asked::Join(wire::Join { address, replaces })) => {
                meta.join(address, Some(replaces).filter(|address| !address.is_empty())).await
            }
            Some(Asked::Leave(address)) => meta.carry_out(&Change::Leave(address)).await,
            Some(Asked::Replicas(count)) => meta.carry_out(&Change::Replicas(count as usize)).await,
            Some(Asked::Transfer(wire::Transfer { group, to })) => {
                meta.carry_out(&Change::Transfer { group, to }).await
            }
            Some(Asked::Settled(wire::Settled { group, replicas })) => {
                meta.carry_out(&Change::Settled { group: GroupId(group), replicas }).await
            }
            None => return Err(Status::invalid_argument("this process does not know the change")),
        };
        match changed {
            Ok(groups) => Ok(Response::new(groups.to_wire())),
            Err(refused @ MetaError::Refused(_)) => Err(Status::failed_precondition(refused.to_string())),
            Err(error) => Err(Status::aborted(error.to_string())),
        }
    }

    async fn inspect(
        &self,
        request: Request<wire::InspectRequest>,
    ) -> Result<Response<wire::Inspection>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        if !self.state.has_token(&request.into_inner().token) {
            return Err(Status::permission_denied("wrong cluster token"));
        }
        known.set();
        Ok(Response::new(self.state.inspect()))
    }
}
