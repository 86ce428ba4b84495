//! All peers of a node, to notify or ask them.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::store::v1 as wire;
use store_engine::keyspace::Changed;
use store_engine::notifications::Notification;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use wire::Response;
use wire::response::Body as Answer;

use super::outbox::Outbox;
use crate::invalidations::Origin;
use crate::node::Node;

/// How long gateways are waited for that have been asked something.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// All sessions of a node.
#[derive(Default)]
pub(crate) struct Sessions {
    last: AtomicU64,
    peers: Mutex<HashMap<u64, PeerSession>>,
    gathers: AtomicU64,
    /// Held while the node is notified whether a peer keeps copies.
    switch: Mutex<()>,
    ending: AtomicBool,
    end: Notify,
    /// The node does not lead its group any more: what it would answer is not true.
    is_cut: AtomicBool,
}

struct PeerSession {
    outbox: Weak<Outbox>,
    is_gateway: bool,
    /// Of the map as it knows it.
    map_digest: u64,
    invalidations_enabled: bool,
    /// The questions that it owes an answer to, in their order: when they were asked, and where the answer goes.
    /// Dropped with the peer: then no task waits for it.
    queries: BTreeMap<u64, (Instant, oneshot::Sender<Bytes>)>,
}

impl Sessions {
    /// A number for a new session.
    pub fn enter(&self, outbox: &Arc<Outbox>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let queries = BTreeMap::new();
        let outbox = Arc::downgrade(outbox);
        let peer =
            PeerSession { outbox, is_gateway: false, map_digest: 0, invalidations_enabled: false, queries };
        self.peers.lock().insert(number, peer);
        number
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.peers.lock().len()
    }

    /// The peer of this session says that it is a gateway.
    pub fn is_gateway(&self, session: u64) {
        if let Some(peer) = self.peers.lock().get_mut(&session) {
            peer.is_gateway = true;
        }
    }

    /// The peer of this session knows the map with this digest.
    pub fn knows(&self, session: u64, map_digest: u64) {
        if let Some(peer) = self.peers.lock().get_mut(&session) {
            peer.map_digest = map_digest;
        }
    }

    /// How many gateways have not confirmed that they know the map with this digest. One that knows more is counted until
    /// this node has learnt that from it.
    pub fn behind(&self, map_digest: u64) -> usize {
        self.peers.lock().values().filter(|peer| peer.is_gateway && peer.map_digest != map_digest).count()
    }

    /// A session has ended.
    pub fn leave(&self, node: &Node, session: u64) {
        self.invalidations_enabled(node, session, false);
        self.peers.lock().remove(&session);
    }

    /// Whether clients of this peer keep copies. Whether that is news.
    pub fn invalidations_enabled(&self, node: &Node, session: u64, kept: bool) -> bool {
        let _turn = self.switch.lock();
        let any = {
            let mut peers = self.peers.lock();
            match peers.get_mut(&session) {
                Some(peer) if peer.invalidations_enabled != kept => peer.invalidations_enabled = kept,
                _ => return false,
            }
            peers.values().any(|peer| peer.invalidations_enabled)
        };
        node.enable_invalidations(any);
        true
    }

    /// Notifies peers that keep copies of what has changed. One that has not fetched what is there for it is notified that
    /// everything may have.
    pub fn send_invalidations(&self, origin: Origin, changed: &Changed) {
        for (session, peer) in self.peers.lock().iter().filter(|(_, peer)| peer.invalidations_enabled) {
            let Some(outbox) = peer.outbox.upgrade() else { continue };
            let everything = changed.everything || outbox.is_full();
            let keys = if everything { &[] } else { &changed.keys[..] };
            let changed = wire::Invalidation {
                keys: keys.iter().map(|key| key.to_vec().into()).collect(),
                everything,
                client: if origin.peer == *session { origin.client } else { 0 },
            };
            outbox.push([Response { id: 0, body: Some(Answer::Invalidation(changed)) }]);
        }
    }

    /// Done when all are to end.
    pub async fn ended(&self) {
        let mut end = pin!(self.end.notified());
        end.as_mut().enable();
        if !self.ending.load(Ordering::Relaxed) {
            end.await;
        }
    }

    /// Ends all without another word.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.end();
    }

    /// Done when all are cut off.
    pub async fn was_cut(&self) {
        let mut end = pin!(self.end.notified());
        end.as_mut().enable();
        if !self.is_cut() {
            end.await;
        }
    }

    /// Whether they were ended so.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Ends all.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.end.notify_waiters();
    }

    /// Notifies all peers but one that the catalog has changed.
    pub fn announce_catalog(&self, but: u64) {
        for (session, peer) in &*self.peers.lock() {
            if *session != but
                && let Some(outbox) = peer.outbox.upgrade()
            {
                outbox.push([Response { id: 0, body: Some(Answer::Done(wire::Done {})) }]);
            }
        }
    }

    /// Sends events to all gateways. A gateway whose outbox is full misses them.
    pub fn send_events(&self, classes: u32, events: Vec<Notification>) {
        let event = |Notification { class, name, db, key }: Notification| wire::KeyEvent {
            class,
            name: name.into_owned(),
            db: db as u32,
            key: key.into_vec().into(),
        };
        let happened = wire::KeyEvents { classes, events: events.into_iter().map(event).collect() };
        for peer in self.peers.lock().values().filter(|peer| peer.is_gateway) {
            if let Some(outbox) = peer.outbox.upgrade().filter(|outbox| !outbox.is_full()) {
                outbox.push([Response { id: 0, body: Some(Answer::KeyEvents(happened.clone())) }]);
            }
        }
    }

    /// Asks all gateways but one, at once. What is returned waits for their answers, for as long as `timeout`. One that
    /// has owed an answer for longer than that is notified, too, but not waited for: it delays no request a second time.
    pub fn gather(
        &self,
        but: u64,
        question: &Bytes,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Vec<Bytes>> + use<> {
        let gather = self.gathers.fetch_add(1, Ordering::Relaxed) + 1;
        let (now, timeout) =
            (Instant::now(), timeout.map_or(ANSWER_TIMEOUT, |timeout| timeout.min(ANSWER_TIMEOUT)));
        let mut waits = Vec::new();
        for (session, peer) in &mut *self.peers.lock() {
            if *session == but || !peer.is_gateway {
                continue;
            }
            // One that has not fetched what is there for it misses this.
            let Some(outbox) = peer.outbox.upgrade().filter(|outbox| !outbox.is_full()) else { continue };
            let owes_since = peer.queries.values().next().map_or(now, |(queries, _)| *queries);
            if now < owes_since + timeout {
                let (sender, answer) = oneshot::channel();
                peer.queries.insert(gather, (now, sender));
                waits.push((owes_since + timeout, answer));
            }
            let queries = wire::Query { collect: gather, query: question.clone() };
            outbox.push([Response { id: 0, body: Some(Answer::Query(queries)) }]);
        }
        async move {
            let mut answers = Vec::new();
            for (until, answer) in waits {
                // An error: it is gone, or too slow.
                if let Ok(Ok(answer)) = timeout_at(until, answer).await {
                    answers.push(answer);
                }
            }
            answers
        }
    }

    /// A gateway answers what it was asked.
    pub fn received(&self, session: u64, received: wire::Report) {
        let waits =
            self.peers.lock().get_mut(&session).and_then(|peer| peer.queries.remove(&received.collect));
        if let Some((_, waits)) = waits {
            // The task that asked may have given up.
            let _ = waits.send(received.answer);
        }
    }
}
