//! A process with replicas of groups: it serves the groups that it leads, and sends peers to the leaders of the others.

mod copy;
mod link;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prost::Message as _;
use proto::store::v1 as wire;
use proto::store::v1::store_server::Store;
use proto::store::v1::{ReplicaMessages, Requests};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};

pub(super) use self::copy::CopyParts;
use self::copy::Source;
use self::link::ReplicaLinks;
use super::peer::Known;
use super::{Answers, Configure, Service, Setting, serve_peers};
use crate::client::directory::{GROUP, GROUPS};
use crate::client::{Directory, PeerCredentials};
use crate::journal::{DiskError, Open, in_dir};
use crate::node::Node;
use crate::replication::{
    Copied, Driver, DriverError, Fetched, Founding, Group, GroupInfo, GroupSettings, GroupsError, Leadership,
    LogDisk, ReplicaHandle, ReplicaStatus,
};
use crate::spans::Sink;
use crate::topology::{InvalidMap, SlotMap};

/// How long peers have to finish what they have begun before a leadership is handed over.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the others have to take it.
const HAND_OVER: Duration = Duration::from_secs(2);
/// The pause before a leader tries again to serve its group.
const AGAIN: Duration = Duration::from_secs(1);

/// What the program adds to a node while the node leads its group.
pub trait Companion: Send + Sync + 'static {
    /// Applies the configuration to the node; returns what changes it.
    fn configure(&self, node: &Arc<Node>) -> Configure;
    /// How many bytes per second a copy of a group's data may take on its way to another process.
    fn copy_rate(&self) -> u64;
    /// What is done in the background as long as the node leads.
    fn background(&self, node: Arc<Node>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What a process with replicas is given.
pub struct ProcessSettings {
    /// Its data directory.
    pub dir: PathBuf,
    /// How many shards a node has.
    pub shards: usize,
    /// What peers have to know and to have.
    pub credentials: PeerCredentials,
    /// Returns the Unix time in milliseconds.
    pub clock: fn() -> u64,
    /// Where spans of traced requests go.
    pub sink: Option<Sink>,
    /// Logs what an operator has to know.
    pub warn: fn(&str),
    /// What the program adds.
    pub companion: Box<dyn Companion>,
}

/// Why a process does not take part in its cluster.
#[derive(Debug)]
pub enum ProcessError {
    /// The disk of the logs.
    Disk(DiskError),
    /// What says which cluster it belongs to.
    Groups(GroupsError),
    /// The slot map.
    Map(InvalidMap),
    /// The replicated logs.
    Driver(DriverError),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::Disk(error) => error.fmt(f),
            ProcessError::Groups(error) => write!(f, "the record of the cluster is damaged: {error}"),
            ProcessError::Map(error) => error.fmt(f),
            ProcessError::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProcessError {}

/// The directory of the replicated logs below a data directory.
fn log_dir(dir: &std::path::Path) -> PathBuf {
    dir.join("replicas").join("log")
}

/// Whether the process with this data directory belongs to a cluster of replicated groups.
pub fn is_founded(dir: &std::path::Path) -> bool {
    log_dir(dir).exists()
}

/// The process with this data directory belongs to a cluster from now on.
pub fn found(dir: &std::path::Path, founding: &Founding) -> Result<(), ProcessError> {
    let open = in_dir(log_dir(dir));
    let mut disk = LogDisk::open(open().map_err(ProcessError::Disk)?).map_err(ProcessError::Disk)?;
    disk.found(founding.to_record()).map_err(ProcessError::Disk)
}

/// A process with replicas.
#[derive(Clone)]
pub struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    settings: ProcessSettings,
    founding: Founding,
    map: SlotMap,
    driver: Arc<Driver>,
    directory: Arc<Directory>,
    replicas: HashMap<String, Replica>,
    stop: watch::Sender<bool>,
    /// The process ends: nothing is received any more.
    over: watch::Sender<bool>,
}

/// A replica in this process.
struct Replica {
    info: GroupInfo,
    handle: ReplicaHandle,
    /// The service, while it leads.
    leading: RwLock<Option<Service>>,
}

/// Replicas at work.
pub struct Running(JoinSet<()>);

impl Process {
    /// Reads what the data directory holds and takes part in its groups. Needs a runtime.
    pub fn start(settings: ProcessSettings) -> Result<(Process, Running), ProcessError> {
        let disk = in_dir(log_dir(&settings.dir))().map_err(ProcessError::Disk)?;
        let disk = LogDisk::open(disk).map_err(ProcessError::Disk)?;
        let record = disk.founding().unwrap_or_default();
        let founding = Founding::from_record(record).map_err(ProcessError::Groups)?;
        let map = founding.groups.slot_map().map_err(ProcessError::Map)?;
        let links = Arc::new(ReplicaLinks::open(&founding, &settings.credentials));
        let driver = Driver::start(disk, links.clone(), settings.warn).map_err(ProcessError::Driver)?;
        let driver = Arc::new(driver);
        links.report_to(&driver);
        let mut replicas = HashMap::new();
        for info in founding.groups.groups.iter().filter(|group| group.replicas.contains(&founding.process)) {
            let handle =
                driver.add(info.id, founding.process, &info.replicas).map_err(ProcessError::Driver)?;
            let replica = Replica { info: info.clone(), handle, leading: RwLock::default() };
            replicas.insert(info.name.clone(), replica);
        }
        let directory = Arc::new(Directory::of(founding.groups.clone()));
        let shared = Arc::new(Shared {
            settings,
            directory,
            founding,
            map,
            driver,
            replicas,
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
        });
        let mut running = JoinSet::new();
        for name in shared.replicas.keys().cloned().collect::<Vec<_>>() {
            running.spawn(take_part(shared.clone(), name));
        }
        Ok((Process { shared }, Running(running)))
    }

    /// The groups of the cluster, and which process this one is.
    pub fn founding(&self) -> &Founding {
        &self.shared.founding
    }

    /// The nodes of the groups that this process leads at present, with their names.
    pub fn leading(&self) -> Vec<(String, Service)> {
        let replicas = self.shared.replicas.iter();
        replicas.filter_map(|(name, replica)| Some((name.clone(), replica.leading.read().clone()?))).collect()
    }

    /// The replicas in this process: names of their groups, and how they are.
    pub fn replicas(&self) -> Vec<(String, ReplicaStatus)> {
        let replicas = self.shared.replicas.iter();
        let mut all: Vec<_> =
            replicas.map(|(name, replica)| (name.clone(), replica.handle.status())).collect();
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// Answers gateways and other processes until `stop` is done; then hands over what it leads and ends. `running` is what
    /// [`Process::start`] returned.
    pub async fn serve(
        self,
        listener: TcpListener,
        mut running: Running,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let shared = self.shared.clone();
        let tls = shared.settings.credentials.tls.clone();
        // The replicas still need their streams while they hand over.
        let ended = async {
            stop.await;
            let _ = shared.stop.send(true);
            while running.0.join_next().await.is_some() {}
        };
        let over = self.shared.clone();
        let end = move || _ = over.over.send_replace(true);
        serve_peers(self, listener, tls, ended, end).await
    }
}

impl Shared {
    fn has_token(&self, token: &str) -> bool {
        let known = self.settings.credentials.token.as_ref();
        known.is_none_or(|known| known.as_bytes().ct_eq(token.as_bytes()).into())
    }

    /// Refuses a process that does not have the token, or is of another cluster.
    fn check(&self, token: &str, cluster: u64) -> Result<(), Status> {
        if !self.has_token(token) {
            return Err(Status::permission_denied("wrong cluster token"));
        }
        if cluster != self.founding.groups.cluster {
            return Err(Status::failed_precondition("this process belongs to another cluster"));
        }
        Ok(())
    }

    /// The error that says where the groups are.
    fn elsewhere(&self, why: String) -> Status {
        let leader = |replica: &Replica| {
            let process = replica.handle.state().borrow().role.leader?;
            Some(wire::Leader { group: replica.info.id.0, process })
        };
        let leaders = self.replicas.values().filter_map(leader).collect();
        let groups = wire::Groups { leaders, ..self.founding.groups.to_wire() };
        let mut metadata = MetadataMap::new();
        metadata.insert_bin(GROUPS, MetadataValue::from_bytes(&groups.encode_to_vec()));
        Status::with_metadata(Code::Unavailable, why, metadata)
    }
}

#[tonic::async_trait]
impl Store for Process {
    type LinkStream = Answers;

    async fn link(&self, request: Request<Streaming<Requests>>) -> Result<Response<Answers>, Status> {
        let Some(name) = request.metadata().get(GROUP).and_then(|name| name.to_str().ok()) else {
            return Err(self.shared.elsewhere("this process has several groups: name one".to_owned()));
        };
        let replica = self.shared.replicas.get(name);
        match replica.and_then(|replica| replica.leading.read().clone()) {
            Some(service) => service.link(request).await,
            None => Err(self.shared.elsewhere(format!("this process does not lead the group {name}"))),
        }
    }

    async fn replicate(
        &self,
        request: Request<Streaming<ReplicaMessages>>,
    ) -> Result<Response<wire::Done>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let mut frames = request.into_inner();
        let Some(first) = frames.message().await? else { return Ok(Response::new(wire::Done {})) };
        self.shared.check(&first.token, first.cluster)?;
        known.set();
        let groups: BTreeMap<u32, ReplicaHandle> = self
            .shared
            .replicas
            .values()
            .map(|replica| (replica.info.id.0, replica.handle.clone()))
            .collect();
        let me = self.shared.founding.process;
        let mut over = self.shared.over.subscribe();
        loop {
            let frame = tokio::select! {
                frame = frames.message() => frame?,
                _ = over.wait_for(|over| *over) => None,
            };
            let Some(frame) = frame else { break };
            for wire::ReplicaMessage { group, to, message } in frame.messages {
                if let Some(handle) = groups.get(&group).filter(|_| to == me) {
                    self.shared.driver.receive(handle.group, message);
                }
            }
        }
        Ok(Response::new(wire::Done {}))
    }

    type CopyStream = CopyParts;

    async fn copy(&self, request: Request<wire::CopyRequest>) -> Result<Response<CopyParts>, Status> {
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let request = request.into_inner();
        self.shared.check(&request.token, request.cluster)?;
        known.set();
        let replica = self.shared.replicas.values().find(|replica| replica.info.id.0 == request.group);
        let leading = replica.and_then(|replica| Some((replica, replica.leading.read().clone()?)));
        let Some((replica, service)) = leading else {
            let why = format!("this process does not lead group {}", request.group);
            return Err(self.shared.elsewhere(why));
        };
        let rate = self.shared.settings.companion.copy_rate();
        Ok(Response::new(copy::send(service.node(), replica.handle.clone(), rate)))
    }

    async fn found(&self, request: Request<wire::FoundCluster>) -> Result<Response<wire::Done>, Status> {
        let request = request.into_inner();
        if !self.shared.has_token(&request.token) {
            return Err(Status::permission_denied("wrong cluster token"));
        }
        let mine = &self.shared.founding;
        let is_mine = request.process == mine.process
            && request.groups.is_some_and(|groups| groups == mine.groups.to_wire());
        match is_mine {
            true => Ok(Response::new(wire::Done {})),
            false => Err(Status::failed_precondition(format!(
                "this process belongs to the cluster {:016x} already",
                mine.groups.cluster
            ))),
        }
    }
}

/// Takes part in a group to the end of the process.
async fn take_part(shared: Arc<Shared>, name: String) {
    let Some(replica) = shared.replicas.get(&name) else { return };
    let dir = shared.settings.dir.join("replicas").join(&name);
    if let Err(error) = copy::recover(&dir) {
        replica.handle.remove();
        return (shared.settings.warn)(&format!(
            "the replica of group {name} in this process has ended: {error}"
        ));
    }
    let fetch = Arc::new({
        let (shared, name, dir) = (shared.clone(), name.clone(), dir.clone());
        move || -> Fetched { Box::pin(fetch(shared.clone(), name.clone(), dir.clone())) }
    });
    let open = Arc::new(move || -> Open { in_dir(dir.clone()) });
    let settings = GroupSettings { open, fetch, shards: shared.settings.shards, warn: shared.settings.warn };
    let group = Group::new(settings, replica.handle.clone(), shared.stop.subscribe());
    let serve = |node, leadership| lead(&shared, replica, node, leadership);
    if let Err(error) = group.run(serve).await {
        replica.handle.remove();
        (shared.settings.warn)(&format!("the replica of group {name} in this process has ended: {error}"));
    }
}

/// Gets a copy of the data of a group from its leader.
async fn fetch(shared: Arc<Shared>, name: String, dir: PathBuf) -> Result<Copied, String> {
    let Some(replica) = shared.replicas.get(&name) else { return Err("there is no such group".to_owned()) };
    let leader = replica.handle.state().borrow().role.leader;
    let leader = leader.filter(|leader| *leader != shared.founding.process);
    let address = leader.and_then(|leader| shared.founding.groups.address(leader));
    let Some(address) = address else { return Err("the group has no leader at present".to_owned()) };
    let credentials = shared.settings.credentials.clone();
    let request = wire::CopyRequest {
        token: credentials.token.clone().unwrap_or_default(),
        cluster: shared.founding.groups.cluster,
        group: replica.info.id.0,
    };
    let source = Source { address: address.to_owned(), credentials, request };
    let copied = copy::receive(source, dir).await?;
    (shared.settings.warn)(&format!(
        "this process lacked data of the group {name}: it was copied from {address}"
    ));
    Ok(copied)
}

/// Serves a group for as long as this process leads it.
async fn lead(shared: &Shared, replica: &Replica, node: Arc<Node>, mut leadership: Leadership) {
    let settings = &shared.settings;
    let warn = |why: &dyn fmt::Display| {
        (settings.warn)(&format!("the group {} cannot be served: {why}", replica.info.name));
    };
    let setting = Setting {
        credentials: settings.credentials.clone(),
        clock: settings.clock,
        configure: settings.companion.configure(&node),
        sink: settings.sink.clone(),
        warn: settings.warn,
        directory: Some(shared.directory.clone()),
    };
    let service = match Service::with(node.clone(), setting).await {
        Ok(service) => service,
        Err(_) if node.is_deposed() => return,
        Err(error) => {
            warn(&error);
            return sleep(AGAIN).await;
        }
    };
    let me = shared.map.nodes().iter().position(|node| *node == replica.info.name).unwrap_or_default();
    if let Err(error) = service.take_place(shared.map.clone(), me) {
        warn(&error);
        return sleep(AGAIN).await;
    }
    *replica.leading.write() = Some(service.clone());
    let is_leading = tokio::select! {
        is_leading = leadership.lost() => is_leading,
        () = settings.companion.background(node) => true,
    };
    // From now on peers are sent elsewhere.
    *replica.leading.write() = None;
    if is_leading {
        service.end(false);
        let until = Instant::now() + DRAIN;
        while service.streams() > 0 && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        let others: Vec<u64> =
            replica.info.replicas.iter().copied().filter(|id| *id != shared.founding.process).collect();
        leadership.hand_over(&others, HAND_OVER).await;
    }
    service.end(true);
}
