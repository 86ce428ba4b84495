//! A node's face to gateways and to other nodes: it decodes requests, lets the [`Node`] do them, encodes answers.

mod admit;
mod aside;
mod endings;
mod events;
mod found;
mod founding;
mod handshake;
mod host;
mod in_doubt;
mod membership;
mod moving;
mod newcomer;
mod outbox;
mod peer;
mod pending;
pub mod process;
mod records;
mod refusal;
mod refused;
mod registry;
mod requests;
mod resolve;
mod session;
mod sessions;
mod snapshots;
mod status;
mod step;
mod watches;

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use proto::store::v1 as wire;
use proto::store::v1::store_server::{Store, StoreServer};
use proto::store::v1::{Requests, Responses};
use tls::Tls;
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::client::directory::GROUP;
use crate::client::way::WINDOW_BYTES;
use crate::client::{Directory, PeerCredentials};
use crate::node::Node;
use crate::parts::MESSAGE_BYTES;
use crate::random::random;
use crate::spans::Sink;
use crate::topology::{NodeId, SlotMap};
pub use crate::txn::FULL;
pub use host::{Claim, Configure, FoundingRequest};
use host::{Foundings, Host};
use membership::{Membership, MembershipError};
use newcomer::Newcomer;
use outbox::Outbox;
use peer::{Known, Peers};
use process::CopyParts;
pub use records::{RecordError, StartError};
use registry::Registry;
use session::Session;
use sessions::Sessions;

/// Streams of one connection: a peer has one, and may ask for health beside it.
const MOST_STREAMS: u32 = 16;

/// What a node that is served is given.
pub(crate) struct Setting {
    pub credentials: PeerCredentials,
    pub clock: fn() -> u64,
    pub configure: Configure,
    pub sink: Option<Sink>,
    pub warn: fn(&str),
    pub directory: Option<Arc<Directory>>,
}

/// A node that is served.
#[derive(Clone)]
pub struct Service {
    host: Arc<Host>,
}

impl Service {
    /// Serves `node` to peers that have `credentials`, over TLS if these have it. `clock` returns the Unix time in
    /// milliseconds, `configure` changes parameters. Spans of traced requests go to `sink`, `warn` logs what an operator has
    /// to know.
    ///
    /// Transactions that were prepared when the data was last written are finished as soon as it is known how: their
    /// keys are locked until then.
    pub async fn new(
        node: Arc<Node>,
        credentials: PeerCredentials,
        clock: fn() -> u64,
        configure: Configure,
        sink: Option<Sink>,
        warn: fn(&str),
    ) -> Result<Service, StartError> {
        Service::with(node, Setting { credentials, clock, configure, sink, warn, directory: None }).await
    }

    /// The same for a node that may be one of several replicas.
    pub(crate) async fn with(node: Arc<Node>, setting: Setting) -> Result<Service, StartError> {
        let Setting { credentials, clock, configure, sink, warn, directory } = setting;
        let membership = Membership::of(&node, clock()).await?;
        let (registry, sessions) = (Registry::default(), Sessions::default());
        let (peers, moving, boot) = (parking_lot::Mutex::default(), tokio::sync::Mutex::default(), random());
        let said_notify = AtomicBool::new(node.notified() != 0);
        let host = Host {
            node,
            membership,
            registry,
            sessions,
            credentials,
            sink,
            clock,
            boot,
            requests: AtomicU64::new(0),
            configure,
            warn,
            said_notify,
            peers,
            moving,
            newcomer: Newcomer::default(),
            directory,
            foundings: Foundings::default(),
        };
        let host = Arc::new(host);
        events::send_events_of(&host);
        let weak = Arc::downgrade(&host);
        host.node.set_invalidation_listener(Box::new(move |origin, changed| {
            if let Some(host) = weak.upgrade() {
                host.sessions.send_invalidations(origin, &changed);
            }
        }));
        resolve::recover(&host).await?;
        in_doubt::compare_again(&host);
        tokio::spawn(pending::follow_decisions(Arc::downgrade(&host)));
        tokio::spawn(endings::follow(Arc::downgrade(&host)));
        Ok(Service { host })
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.host.node
    }

    /// Epoch of the slot map; 0 without a map.
    pub fn epoch(&self) -> u64 {
        self.host.membership.taken().map_or(0, |taken| taken.map.epoch())
    }

    /// How many transactions were ended by an operator, and otherwise by their coordinator.
    pub fn contradicted(&self) -> u64 {
        self.host.registry.contradicted.load(Ordering::Relaxed)
    }

    /// How many peers are served.
    pub fn streams(&self) -> usize {
        self.host.sessions.count()
    }

    /// Requests that have come.
    pub fn requests(&self) -> u64 {
        self.host.requests.load(Ordering::Relaxed)
    }

    /// Answers gateways and nodes that connect to `listener` until `stop` is done; then ends their streams.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let host = self.host.clone();
        serve_peers(self, listener, host.credentials.tls.clone(), stop, move || host.sessions.end()).await
    }

    /// Without a place in a cluster it refuses gateways from now on: the process is to have replicas instead of this node.
    pub fn wait_for_founding(&self) {
        self.host.foundings.set_required();
    }

    /// Whether others take this process, which has no replicas, for one of a cluster.
    pub fn claim(&self) -> Claim {
        self.host.foundings.claimed()
    }

    /// Waits until an operator wants the process to have replicas instead of this node.
    pub async fn founding_request(&self) -> FoundingRequest {
        self.host.foundings.next().await
    }

    /// This node is node `me` of the cluster with this map, unless its data says so already.
    pub(crate) fn take_place(&self, map: SlotMap, me: NodeId) -> Result<(), MembershipError> {
        match self.host.membership.taken() {
            Some(_) => Ok(()),
            None => self.host.membership.take(&self.host.node, map, me).map(drop),
        }
    }

    /// The node has its data under another number than the others know: they are to accept that.
    pub(crate) fn accept_renewed(&self) -> Result<(), MembershipError> {
        self.host.membership.accept_renewed(&self.host.node)
    }

    /// Ends the streams of peers: at once, or as soon as they have what they asked for.
    pub(crate) fn end(&self, at_once: bool) {
        match at_once {
            true => self.host.sessions.cut(),
            false => self.host.sessions.end(),
        }
    }
}

/// Serves `store` to peers that connect to `listener` until `stop` is done, then calls `end`, and waits until all are
/// gone.
async fn serve_peers(
    store: impl Store,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    stop: impl Future<Output = ()> + Send,
    end: impl FnOnce() + Send,
) -> Result<(), tonic::transport::Error> {
    let peers = Peers::new(listener, tls);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let store = StoreServer::new(store)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let stop = async {
        stop.await;
        reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        end();
    };
    tonic::transport::Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MOST_STREAMS)
        .add_service(health)
        .add_service(store)
        .serve_with_incoming_shutdown(peers, stop)
        .await
}

/// What a process without replicas says to those who take it for one of a cluster.
const NO_REPLICAS: &str = "this process belongs to no cluster of replicated groups";

#[tonic::async_trait]
impl Store for Service {
    type LinkStream = Answers;

    async fn link(&self, request: Request<Streaming<Requests>>) -> Result<Response<Answers>, Status> {
        // A process that has lost its data must not be taken for an empty group.
        let group = request.metadata().get(GROUP).filter(|_| self.host.directory.is_none());
        if let Some(group) = group
            // A node that is about to become a group has its name.
            && self.host.membership.name().is_none_or(|name| group != name.as_str())
        {
            return Err(Status::not_found(NO_REPLICAS));
        }
        let outbox = Arc::<Outbox>::default();
        let known = request.extensions().get::<Known>().cloned().unwrap_or_default();
        let session = Session::new(self.host.clone(), outbox.clone(), known);
        tokio::spawn(session.run(request.into_inner()));
        Ok(Response::new(Answers(outbox)))
    }

    async fn replicate(
        &self,
        request: Request<Streaming<wire::ReplicaMessages>>,
    ) -> Result<Response<wire::Done>, Status> {
        let first = request.into_inner().message().await?.unwrap_or_default();
        Err(match self.host.is_token(&first.token) {
            true => {
                self.host.foundings.claim();
                Status::not_found(NO_REPLICAS)
            }
            false => Status::permission_denied("wrong cluster token"),
        })
    }

    type CopyStream = CopyParts;

    async fn copy(&self, _: Request<wire::CopyRequest>) -> Result<Response<CopyParts>, Status> {
        Err(Status::not_found(NO_REPLICAS))
    }

    async fn found(&self, request: Request<wire::FoundCluster>) -> Result<Response<wire::Done>, Status> {
        found::found(&self.host, request.into_inner()).await.map(Response::new)
    }

    async fn change(&self, _: Request<wire::ChangeRequest>) -> Result<Response<wire::Groups>, Status> {
        Err(Status::not_found(NO_REPLICAS))
    }

    async fn inspect(&self, _: Request<wire::InspectRequest>) -> Result<Response<wire::Inspection>, Status> {
        Err(Status::not_found(NO_REPLICAS))
    }
}

/// The answers of one session, as tonic wants them. Dropped when the peer is gone.
pub struct Answers(Arc<Outbox>);

impl Stream for Answers {
    type Item = Result<Responses, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context).map(|responses| responses.map(Ok))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.close();
    }
}
