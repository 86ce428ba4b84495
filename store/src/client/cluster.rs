//! All nodes of a cluster: which node owns which slots, and the links to them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::RwLock;
use proto::store::v1 as wire;
use store_engine::codec::put_bytes;
use store_engine::hyperloglog::SparseLimit;
use store_engine::keyspace::{Changed, Counts};
use store_engine::notifications::{Notification, class};
use store_engine::{CommandError, DATABASES, Protocol, Reply};
use tokio::sync::watch;
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::clock::{ClockOffset, ClocksDiffer, MAX_CLOCK_DIFFERENCE};
use super::credentials::PeerCredentials;
use super::directory::Directory;
use super::link::{Link, LinkHandshake, Pending};
use super::link_error::{LinkError, MapError};
use super::lost::Lost;
use super::survey::{RecentSurvey, Survey};
use crate::call::Call;
use crate::invalidations::{InvalidationListener, Origin};
use crate::memory::Usage;
use crate::notify::Audience;
use crate::random::random;
use crate::topology::{InvalidMap, NodeId, SlotMap};

/// How long a message that is published waits for a gateway that stands still. One that lives has answered long before,
/// also where the machine is busy.
const HURRY_MS: u32 = 500;

/// A cluster as one of its gateways sees it.
pub struct Cluster {
    /// Who this is.
    peer: u64,
    credentials: PeerCredentials,
    view: RwLock<View>,
    transactions: AtomicU64,
    /// From how many bytes on a HyperLogLog is dense that is changed here.
    sparse_limit: AtomicUsize,
    /// Counts the changes of the catalog by others.
    catalog: watch::Sender<u64>,
    query_handler: OnceLock<QueryHandler>,
    audience: OnceLock<Audience>,
    /// Bits of notify-keyspace-events.
    notify: AtomicU32,
    invalidations_enabled: AtomicBool,
    listener: OnceLock<InvalidationListener>,
    /// Who leads, if nodes are groups of replicas.
    directory: Arc<Directory>,
    survey: RecentSurvey,
}

/// Answers the questions of other gateways, at once.
pub type QueryHandler = Box<dyn Fn(&Bytes) -> Bytes + Send + Sync>;

struct View {
    map: Arc<SlotMap>,
    /// Of the map: computed once, as each heartbeat and each step of SCAN compares it.
    digest: u64,
    /// By number of the node.
    links: Vec<Arc<Link>>,
    /// Those of nodes that have slots.
    owners: Vec<Arc<Link>>,
}

impl Cluster {
    /// Connects to these nodes, each `HOST:PORT`, and stays connected. If the nodes have no slot map yet, they own equal
    /// shares of the slots. Needs a runtime. Nodes for which no gateway has configured keyspace events send those of the
    /// classes in `notify`.
    pub fn open(
        nodes: &[String],
        credentials: PeerCredentials,
        notify: u32,
    ) -> Result<Arc<Cluster>, InvalidMap> {
        Ok(Cluster::with(SlotMap::even(nodes)?, Arc::default(), credentials, notify))
    }

    /// The same for a cluster whose map is known, with what is known of its groups.
    pub fn of(map: SlotMap, directory: Arc<Directory>, credentials: PeerCredentials) -> Arc<Cluster> {
        Cluster::with(map, directory, credentials, 0)
    }

    fn with(
        map: SlotMap,
        directory: Arc<Directory>,
        credentials: PeerCredentials,
        notify: u32,
    ) -> Arc<Cluster> {
        let cluster = Arc::new(Cluster {
            peer: random(),
            credentials,
            view: RwLock::new(View {
                digest: 0,
                map: Arc::new(map.clone()),
                links: Vec::new(),
                owners: Vec::new(),
            }),
            transactions: AtomicU64::new(0),
            sparse_limit: AtomicUsize::new(SparseLimit::default().0),
            catalog: watch::Sender::new(0),
            query_handler: OnceLock::new(),
            audience: OnceLock::new(),
            notify: AtomicU32::new(notify),
            invalidations_enabled: AtomicBool::new(false),
            listener: OnceLock::new(),
            directory,
            survey: RecentSurvey::default(),
        });
        cluster.view(&mut cluster.view.write(), map);
        cluster
    }

    /// From how many bytes on a HyperLogLog is dense that is changed here, with others that are on several nodes.
    pub fn sparse_limit(&self) -> SparseLimit {
        SparseLimit(self.sparse_limit.load(Ordering::Relaxed))
    }

    /// Says that.
    pub fn set_sparse_limit(&self, limit: SparseLimit) {
        self.sparse_limit.store(limit.0, Ordering::Relaxed);
    }

    /// Makes this the view of the cluster, with links to nodes that there are none to.
    fn view(self: &Arc<Self>, view: &mut View, map: SlotMap) {
        // A guess may have named others.
        view.links.truncate(map.nodes().len());
        for (number, node) in map.nodes().iter().enumerate().skip(view.links.len()) {
            let handshake = NodeHandshake { cluster: Arc::downgrade(self), node: number };
            view.links.push(Arc::new(Link::to(
                node.clone(),
                Some(self.directory.clone()),
                self.credentials.tls.clone(),
                Arc::new(handshake),
            )));
        }
        view.owners = map.owners().into_iter().map(|node| view.links[node].clone()).collect();
        (view.digest, view.map) = (map.digest(), Arc::new(map));
    }

    /// Merges this map into its own. The nodes are sent new identities: a node with another directory is refused then.
    pub fn learn(self: &Arc<Self>, map: &wire::SlotMap) -> Result<(), MapError> {
        self.learn_map(SlotMap::from_wire(map)?)
    }

    fn learn_map(self: &Arc<Self>, map: SlotMap) -> Result<(), MapError> {
        let has_news = {
            let mut view = self.view.write();
            let map = match view.map.is_guess() {
                true if view.map.is_akin(&map) => map,
                true => return Err(MapError::OtherNodes),
                false => view.map.merged(&map)?,
            };
            let has_news = map.identities() != view.map.identities();
            if map != *view.map {
                self.view(&mut view, map);
            }
            has_news
        };
        if has_news {
            (0..self.links().len()).for_each(|node| self.send_map(node));
        }
        Ok(())
    }

    /// A process that the configuration names has groups of replicas: these are the nodes.
    fn redirected(self: &Arc<Self>, groups: &wire::Groups) {
        let Ok(map) = self.directory.learn(groups).map_err(drop).and_then(|all| all.slot_map().map_err(drop))
        else {
            return;
        };
        let mut view = self.view.write();
        if view.map.is_guess() && view.map.nodes() != map.nodes() {
            view.links.clear();
            self.view(&mut view, map);
        }
    }

    /// Sends a node the map as it is known here.
    fn send_map(&self, node: NodeId) {
        let (map, link) = {
            let view = self.view.read();
            (view.map.clone(), view.links.get(node).cloned())
        };
        if let Some(link) = link {
            let topology = wire::SetTopology { map: Some(map.to_wire()) };
            link.send_oneway(Ask::SetTopology(Box::new(topology)));
        }
    }

    /// Whether its nodes are groups of replicas: one whose leader is lost has another one soon.
    pub(super) fn has_groups(&self) -> bool {
        self.directory.is_known()
    }

    /// What the processes say of the groups of replicas: at most a second old, so that it may be asked for by many. None if nodes
    /// are not groups.
    pub async fn survey(&self) -> Option<Arc<Survey>> {
        self.survey.get(&self.directory, &self.credentials).await
    }

    /// The slot map, as far as it is known.
    pub fn map(&self) -> Arc<SlotMap> {
        self.view.read().map.clone()
    }

    /// The digest of the slot map.
    pub(super) fn map_digest(&self) -> u64 {
        self.view.read().digest
    }

    /// The way to a node.
    pub fn link(&self, node: NodeId) -> Arc<Link> {
        self.view.read().links[node].clone()
    }

    /// The ways to all nodes, by number.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.view.read().links.clone()
    }

    /// The ways to those nodes that have slots.
    pub fn owners(&self) -> Vec<Arc<Link>> {
        self.view.read().owners.clone()
    }

    /// The node that owns `key`.
    pub fn node_of(&self, key: &[u8]) -> NodeId {
        self.view.read().map.owner_of(key)
    }

    /// The node that owns all of these keys, or slot 0 if there is none; nothing if they are several nodes'.
    pub fn node_of_all<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Option<NodeId> {
        self.view.read().map.owner_of_all(keys)
    }

    /// A number for a transaction.
    pub(super) fn next_transaction(&self) -> u64 {
        let count = self.transactions.fetch_add(1, Ordering::Relaxed);
        // Chance that two processes meet: they would have to agree in 24 bits and live at the same time.
        (self.peer << 40) | (count & ((1 << 40) - 1))
    }

    /// Sends a command to a node, as a transaction of its own. Commands of one `sequence` to one node are run in order;
    /// `since` is the number of the first one of them that has no answer yet, 0 if there is none: if a command has to be sent
    /// again, so do all that were sent before its answer. A command that waits for a lock when its answer is given up is not run.
    pub fn send(
        &self,
        node: NodeId,
        call: &Call<'_>,
        protocol: Protocol,
        sequence: u64,
        since: u64,
    ) -> Pending {
        let link = self.link(node);
        let execute = wire::Execute { call: Some(wire_call(call, protocol)), sequence, since };
        link.ask(Ask::Execute(execute)).or_nothing(&link)
    }

    /// The result of a command that was sent: its reply, or the error for the client; `None` if it has to be sent again, to
    /// another node.
    pub async fn received(
        self: &Arc<Self>,
        pending: Pending,
        writes: bool,
    ) -> Option<Result<Bytes, CommandError>> {
        match pending.answer().await {
            Ok(Answer::Reply(reply)) => Some(Ok(reply)),
            Ok(Answer::Refusal(refusal)) => self.refused(refusal).map(Err),
            Ok(_) => Some(Err(unexpected())),
            // The next leader of the group is asked; while there is none, what is asked waits.
            Err(lost) if lost.maybe_done && !writes && self.has_groups() => None,
            Err(lost) => Some(Err(lost_error(&lost, writes))),
        }
    }

    /// The error for a refusal; none if something was learnt and another attempt is worth it.
    pub(super) fn refused(self: &Arc<Self>, refusal: wire::Refusal) -> Option<CommandError> {
        let code = refusal.code();
        match (code, &refusal.map) {
            (Code::Moved, Some(map)) if self.learn(map).is_ok() => None,
            (Code::OutOfOrder, _) => None,
            (Code::Unavailable, _) if refusal.reason.starts_with("MISCONF ") => {
                Some(CommandError::owned(refusal.reason))
            }
            _ => Some(CommandError::owned(format!("TRYAGAIN nothing was done: {}", refusal.reason))),
        }
    }

    /// Whether the clocks of these nodes are close enough for one transaction, as far as they are known; else why not.
    pub(super) fn check_clocks(&self, nodes: impl Iterator<Item = NodeId>) -> Result<(), ClocksDiffer> {
        let view = self.view.read();
        let known: Vec<(&Arc<Link>, ClockOffset)> = nodes
            .filter_map(|node| view.links.get(node).and_then(|link| Some((link, link.clock()?))))
            .collect();
        let Some((first, first_clock)) = known.iter().min_by_key(|(_, clock)| clock.ahead_ms) else {
            return Ok(());
        };
        let differs = |(_, clock): &&(&Arc<Link>, ClockOffset)| {
            u128::from(clock.difference_ms(*first_clock)) > MAX_CLOCK_DIFFERENCE.as_millis()
        };
        let Some((other, clock)) = known.iter().find(differs) else { return Ok(()) };
        Err(ClocksDiffer {
            first: first.address().to_owned(),
            other: other.address().to_owned(),
            difference_ms: clock.ahead_ms.abs_diff(first_clock.ahead_ms),
        })
    }

    /// How many keys there are and what they take, by the last status of the nodes.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        let count = |counts: &[u64], db: usize| counts.get(db).map_or(0, |count| *count as usize);
        for status in self.owners().iter().map(|link| link.status()) {
            sum.bytes += status.bytes as usize;
            for db in 0..DATABASES {
                sum.keys[db] += count(&status.keys, db);
                sum.expiring[db] += count(&status.expiring, db);
                sum.sticky[db].keys += count(&status.sticky, db);
                sum.sticky[db].bytes += count(&status.sticky_bytes, db);
            }
        }
        sum
    }

    /// What has happened to keys, by the last status of the nodes.
    pub fn counts(&self) -> Counts {
        let mut sum = self.counts_since_reset();
        for link in self.owners() {
            let wire::Counts { hits, misses, expired, expired_fields, evicted } =
                link.status().before_reset.unwrap_or_default();
            sum += Counts { hits, misses, expired, expired_fields, evicted };
        }
        sum
    }

    /// The same since the last CONFIG RESETSTAT.
    pub fn counts_since_reset(&self) -> Counts {
        let mut sum = Counts::default();
        for wire::Status { hits, misses, expired, expired_fields, evicted, .. } in
            self.owners().iter().map(|link| link.status())
        {
            sum += Counts { hits, misses, expired, expired_fields, evicted };
        }
        sum
    }

    /// Whether memory is full on one of the nodes, by their last status.
    pub fn is_full(&self) -> bool {
        self.view.read().owners.iter().any(|link| link.is_full())
    }

    /// Answers the questions of other gateways from now on; until then the answer is empty.
    pub fn respond(&self, query_handler: QueryHandler) {
        // The first one stays.
        let _ = self.query_handler.set(query_handler);
    }

    /// Asks all other gateways of the cluster, by way of the first node that is reached. Those that do not answer in
    /// time are not waited for.
    pub async fn gather(&self, question: Bytes) -> Result<Vec<Bytes>, CommandError> {
        self.gather_by(0, true, 0, question).await
    }

    /// The same for something that must not be done twice: if it may have been asked, it is not asked again. By way of
    /// the node of `key` if that can be reached: what is asked about a key one after the other arrives in this order.
    /// Those that stand still are waited for only shortly.
    pub async fn gather_once(&self, key: &[u8], question: Bytes) -> Result<Vec<Bytes>, CommandError> {
        self.gather_by(self.node_of(key), false, HURRY_MS, question).await
    }

    async fn gather_by(
        &self,
        first: NodeId,
        again: bool,
        timeout_ms: u32,
        question: Bytes,
    ) -> Result<Vec<Bytes>, CommandError> {
        let mut error = None;
        let mut links = self.links();
        let first = first % links.len().max(1);
        links.rotate_left(first);
        for link in links {
            let gather = wire::Collect { query: question.clone(), timeout_ms };
            match link.ask(Ask::Collect(gather)).answer().await {
                Ok(Answer::Collected(gathered)) => return Ok(gathered.answers),
                Ok(_) => error = Some(unexpected()),
                Err(lost) if lost.maybe_done && !again => return Err(lost_error(&lost, true)),
                Err(lost) => error = Some(lost_error(&lost, true)),
            }
        }
        Err(error.unwrap_or_else(unexpected))
    }

    fn answer(&self, node: NodeId, request: &wire::Query) {
        let answer = self.query_handler.get().map(|respond| respond(&request.query)).unwrap_or_default();
        // The node may have left the view that a guess was.
        if let Some(link) = self.links().get(node) {
            link.send_oneway(Ask::Report(wire::Report { collect: request.collect, answer }));
        }
    }

    /// Sets the receiver of keyspace events of the nodes. It is called without events when the classes have changed.
    pub fn set_audience(&self, audience: Audience) {
        // The first one stays.
        let audience = self.audience.get_or_init(|| audience);
        audience(self.notify.load(Ordering::Relaxed), Vec::new());
    }

    /// The configured classes of keyspace events.
    pub(super) fn notify(&self) -> u32 {
        let classes = self.notify.load(Ordering::Relaxed);
        // Without a kind of channel nothing is published.
        if classes & (class::KEYSPACE | class::KEYEVENT) == 0 { 0 } else { classes }
    }

    fn happened(&self, happened: wire::KeyEvents) {
        if happened.events.is_empty() {
            self.notify.store(happened.classes, Ordering::Relaxed);
        }
        let Some(audience) = self.audience.get() else { return };
        let event = |wire::KeyEvent { class, name, db, key }| Notification {
            class,
            name: name.into(),
            db: db as usize,
            key: key.to_vec().into(),
        };
        audience(happened.classes, happened.events.into_iter().map(event).collect());
    }

    /// Whether any client keeps copies of values.
    pub(super) fn invalidations_enabled(&self) -> bool {
        self.invalidations_enabled.load(Ordering::Relaxed)
    }

    /// Sets whether a client keeps copies of values: then this gateway is notified when a key changes that a later request
    /// has read.
    pub fn enable_invalidations(&self, kept: bool) {
        if self.invalidations_enabled.swap(kept, Ordering::Relaxed) != kept {
            for link in self.links() {
                link.send_oneway(Ask::SetInvalidations(wire::SetInvalidations { enabled: kept }));
            }
        }
    }

    /// Sets the listener; the first one stays.
    pub fn set_invalidation_listener(&self, listener: InvalidationListener) {
        let _ = self.listener.set(listener);
    }

    fn changed(&self, changed: wire::Invalidation) {
        if let Some(listener) = self.listener.get() {
            let keys = changed.keys.iter().map(|key| key.to_vec().into()).collect();
            listener(Origin::client(changed.client), Changed { keys, everything: changed.everything });
        }
    }

    /// Notified when another gateway has changed the catalog.
    pub fn catalog_changes(&self) -> watch::Receiver<u64> {
        self.catalog.subscribe()
    }
}

/// A call as a message.
pub(super) fn wire_call(call: &Call<'_>, protocol: Protocol) -> wire::Call {
    let items = call.args.items();
    let mut args = Vec::with_capacity(items.iter().map(|arg| arg.len() + 5).sum());
    items.iter().for_each(|arg| put_bytes(arg, &mut args));
    let (db, resp3) = (call.db as u32, protocol == Protocol::Resp3);
    wire::Call { args: args.into(), db, resp3, may_fail: false, no_touch: call.no_touch }
}

/// Most bytes of a reply that is to be added to `out`.
pub(super) fn room_in(out: &Reply) -> u64 {
    out.limit().saturating_sub(out.buf.len()) as u64
}

/// What is answered when a node could not be reached, or was lost.
pub(super) fn lost_error(lost: &Lost, writes: bool) -> CommandError {
    CommandError::owned(match (lost.maybe_done, writes) {
        (false, _) => {
            format!("CLUSTERDOWN nothing was done, the node of the key cannot be reached: {}", lost.reason)
        }
        (true, false) => {
            format!("TRYAGAIN the connection to the node was lost before it answered: {}", lost.reason)
        }
        (true, true) => {
            format!(
                "UNKNOWN whether this was done, the connection to the node was lost before it answered: \
                     {}",
                lost.reason
            )
        }
    })
}

pub(super) fn unexpected() -> CommandError {
    CommandError::new("ERR internal error: unexpected type of answer from a node")
}

struct NodeHandshake {
    cluster: Weak<Cluster>,
    node: NodeId,
}

impl LinkHandshake for NodeHandshake {
    fn hello(&self) -> Ask {
        let cluster = self.cluster.upgrade();
        let (map, peer, token) = cluster
            .map(|cluster| {
                (cluster.map().to_wire(), cluster.peer, cluster.credentials.token.clone().unwrap_or_default())
            })
            .unwrap_or_default();
        let notify = self.cluster.upgrade().map_or(0, |cluster| cluster.notify.load(Ordering::Relaxed));
        let (node, invalidations_enabled) = (self.node as u32, self.invalidations_enabled());
        let map = Some(map);
        Ask::Handshake(Box::new(wire::Handshake {
            peer,
            map,
            node,
            token,
            gateway: true,
            notify,
            invalidations: invalidations_enabled,
            parts: true,
        }))
    }

    fn welcome(&self, answer: Answer) -> Result<(), LinkError> {
        match answer {
            Answer::HandshakeReply(welcome) if welcome.map.is_some() => {
                let Some(cluster) = self.cluster.upgrade() else { return Ok(()) };
                if let Some(classes) = welcome.notify {
                    cluster.happened(wire::KeyEvents { classes, events: Vec::new() });
                }
                let map = welcome.map.unwrap_or_default();
                cluster.learn(&map)?;
                let identity = map.identities.get(self.node).map_or(0, |identity| identity.id);
                match cluster.map().identities().get(self.node) {
                    // At the next handshake the node finds that out itself, and says what to do.
                    Some(known) if known.id != identity => Err(LinkError::OtherData),
                    _ => Ok(()),
                }
            }
            Answer::Refusal(refusal) => Err(LinkError::Refused(refusal.reason)),
            _ => Err(LinkError::NoHandshake),
        }
    }

    fn redirected(&self, groups: &wire::Groups) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.redirected(groups);
        }
    }

    fn heard(&self, answer: Answer) {
        match (self.cluster.upgrade(), answer) {
            (Some(cluster), Answer::Status(status)) => {
                // A node of another cluster was found out when it was greeted.
                if let Some(Ok(map)) = status.map.map(|map| SlotMap::from_wire(&map))
                    && cluster.learn_map(map.clone()).is_ok()
                    && cluster.map_digest() != map.digest()
                {
                    // The node lacks what other nodes have said of theirs.
                    cluster.send_map(self.node);
                }
            }
            (Some(cluster), Answer::KeyEvents(happened)) => cluster.happened(happened),
            (Some(cluster), Answer::Invalidation(changed)) => cluster.changed(changed),
            (Some(cluster), Answer::Query(request)) => cluster.answer(self.node, &request),
            (Some(cluster), _) => cluster.catalog.send_modify(|changes| *changes += 1),
            (None, _) => {}
        }
    }

    fn invalidations_enabled(&self) -> bool {
        self.cluster.upgrade().is_some_and(|cluster| cluster.invalidations_enabled())
    }

    fn lost(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.changed(wire::Invalidation { everything: true, ..wire::Invalidation::default() });
        }
    }

    fn map_digest(&self) -> u64 {
        self.cluster.upgrade().map_or(0, |cluster| cluster.map_digest())
    }
}
