//! What all sessions of a node share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::store::v1 as wire;
use store_engine::CommandError;
use store_engine::notifications::show_classes;
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, oneshot};

use super::handshake::PeerHandshake;
use super::membership::Membership;
use super::newcomer::Newcomer;
use super::registry::Registry;
use super::sessions::Sessions;
use crate::client::link::Link;
use crate::client::{Directory, PeerCredentials};
use crate::node::Node;
use crate::replication::Founding;
use crate::spans::Sink;

/// The parameter that all gateways and nodes agree on.
pub const NOTIFY: &str = "notify-keyspace-events";

/// Changes parameters of a node, given as names and values; else why not.
pub type Configure = Box<dyn Fn(&[(String, String)]) -> Result<(), CommandError> + Send + Sync>;

/// What all sessions of a node share.
pub(crate) struct Host {
    pub node: Arc<Node>,
    pub membership: Membership,
    pub registry: Registry,
    pub sessions: Sessions,
    /// What a peer has to know and to have.
    pub credentials: PeerCredentials,
    /// Where spans of traced requests go, if they are collected.
    pub sink: Option<Sink>,
    /// The Unix time in milliseconds.
    pub clock: fn() -> u64,
    /// Another one each time the node starts.
    pub boot: u64,
    /// Requests that have come.
    pub requests: AtomicU64,
    pub configure: Configure,
    /// Writes to the log that something is wrong.
    pub warn: fn(&str),
    /// A gateway has said which events are to be reported, maybe none.
    pub said_notify: AtomicBool,
    /// The way to other nodes, by address.
    pub peers: Mutex<HashMap<String, Arc<Link>>>,
    /// Held while slots leave.
    pub moving: tokio::sync::Mutex<()>,
    /// What it waits for while it has no slot map.
    pub newcomer: Newcomer,
    /// Where the leaders of groups are, if nodes are groups.
    pub directory: Option<Arc<Directory>>,
    /// Where it goes that the process is to have replicas.
    pub foundings: Foundings,
}

/// The cluster that a process is to belong to, and where the answer goes: an error says why it does not.
pub type FoundingRequest = (Founding, oneshot::Sender<Result<(), String>>);

/// For so long a process without data may be one of a cluster that has lost its data: the others try to reach it many times meanwhile.
const CLAIM: Duration = Duration::from_secs(5);

/// Whether a process without data is one of a cluster of replicated groups, as others know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// No process takes it for one of a cluster.
    None,
    /// It has just started: others may not have reached it yet.
    MayCome,
    /// Another process has just taken it for one of a cluster.
    Made,
}

/// Requests that wait for the program.
#[derive(Default)]
pub(crate) struct Foundings {
    request: Mutex<Option<FoundingRequest>>,
    arrived: Notify,
    /// Since when the node is not to become one of a cluster without replicas.
    required: OnceLock<Instant>,
    /// When another process has taken this one for one of a cluster.
    claimed: Mutex<Option<Instant>>,
}

impl Foundings {
    /// Adds a request, in place of one that the program has not seen.
    pub fn add(&self, request: FoundingRequest) {
        *self.request.lock() = Some(request);
        self.arrived.notify_one();
    }

    /// From now on a gateway may not give the node a place.
    pub fn set_required(&self) {
        self.required.get_or_init(Instant::now);
    }

    /// Whether a gateway may not give the node a place.
    pub fn are_required(&self) -> bool {
        self.required.get().is_some()
    }

    /// Another process takes this one for one of a cluster.
    pub fn claim(&self) {
        *self.claimed.lock() = Some(Instant::now());
    }

    /// Whether others take this process for one of a cluster.
    pub fn claimed(&self) -> Claim {
        let is_new = |at: &Instant| at.elapsed() < CLAIM;
        match (self.claimed.lock().as_ref().is_some_and(is_new), self.required.get().is_some_and(is_new)) {
            (true, _) => Claim::Made,
            (false, true) => Claim::MayCome,
            (false, false) => Claim::None,
        }
    }

    /// The next request.
    pub async fn next(&self) -> FoundingRequest {
        loop {
            if let Some(request) = self.request.lock().take() {
                return request;
            }
            self.arrived.notified().await;
        }
    }
}

impl Host {
    /// A gateway says which events are to be reported; `if_first`: only if no other gateway has.
    pub fn say_notify(&self, classes: u32, if_first: bool) -> Result<(), CommandError> {
        if if_first && (classes == 0 || self.said_notify.load(Ordering::Relaxed)) {
            return Ok(());
        }
        if self.node.notified() != classes {
            (self.configure)(&[(NOTIFY.to_owned(), show_classes(classes))])?;
        }
        self.said_notify.store(true, Ordering::Relaxed);
        self.sessions.send_events(classes, Vec::new());
        Ok(())
    }

    /// Which events are to be reported, if a gateway has said so.
    pub fn notify(&self) -> Option<u32> {
        self.said_notify.load(Ordering::Relaxed).then(|| self.node.notified())
    }

    /// The way to another node, which stays open.
    pub fn peer(&self, address: &str) -> Arc<Link> {
        let mut peers = self.peers.lock();
        if let Some(link) = peers.get(address) {
            return link.clone();
        }
        let handshake = Arc::new(self.handshake(address));
        let (directory, tls) = (self.directory.clone(), self.credentials.tls.clone());
        let link = Link::to(address.to_owned(), directory, tls, handshake);
        peers.entry(address.to_owned()).or_insert(Arc::new(link)).clone()
    }

    /// One for all that wait for the same coordinator.
    pub fn way_to(&self, coordinator: String) -> Arc<Link> {
        let mut coordinators = self.registry.coordinators.lock();
        if let Some(link) = coordinators.get(&coordinator).and_then(Weak::upgrade) {
            return link;
        }
        coordinators.retain(|_, link| link.strong_count() > 0);
        let handshake = self.handshake(&coordinator);
        let (directory, tls) = (self.directory.clone(), self.credentials.tls.clone());
        let link = Arc::new(Link::to(coordinator.clone(), directory, tls, Arc::new(handshake)));
        coordinators.insert(coordinator, Arc::downgrade(&link));
        link
    }

    /// Whether the peer has the token of the cluster, if there is one.
    pub fn has_token(&self, hello: &wire::Handshake) -> bool {
        self.is_token(&hello.token)
    }

    /// Whether this is the token of the cluster, if there is one.
    pub fn is_token(&self, token: &str) -> bool {
        let known = self.credentials.token.as_ref();
        known.is_none_or(|known| known.as_bytes().ct_eq(token.as_bytes()).into())
    }

    /// How this node greets another.
    fn handshake(&self, address: &str) -> PeerHandshake {
        PeerHandshake::new(&self.membership, self.credentials.token.as_deref(), address)
    }
}
