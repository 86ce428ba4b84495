//! The subscribers of channels. Messages are encoded once for each protocol and shared by all subscribers; no publisher
//! who publishes waits for one who hears.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use store_engine::notifications::{Notification, class};
use store_engine::{Protocol, Reply, glob};

use super::client::ClientInfo;
use crate::config::Config;

/// What can be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// A channel.
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
    /// A shard channel: a name space of its own, without patterns.
    Shard,
}

impl SubscriptionKind {
    /// All kinds; the place of each is its number.
    pub const ALL: [SubscriptionKind; 3] =
        [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard];
}

/// What a connection is subscribed to, by [`SubscriptionKind`].
#[derive(Default)]
pub struct Subscriptions([BTreeSet<Box<[u8]>>; 3]);

impl Subscriptions {
    /// How many there are of each kind.
    pub fn counts(&self) -> [usize; 3] {
        self.0.each_ref().map(BTreeSet::len)
    }

    /// What replies say: channels and patterns are counted together, shard channels apart.
    pub fn count_beside(&self, kind: SubscriptionKind) -> usize {
        let [channels, patterns, shards] = self.counts();
        if kind == SubscriptionKind::Shard { shards } else { channels + patterns }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }

    /// The names of one kind.
    pub fn names(&self, kind: SubscriptionKind) -> impl Iterator<Item = &[u8]> {
        self.0[kind as usize].iter().map(|name| &**name)
    }
}

/// Something to be published later.
#[derive(Clone, Debug)]
pub struct Message {
    /// Whether the channel is a shard channel.
    pub shard: bool,
    /// Where.
    pub channel: Box<[u8]>,
    /// What.
    pub text: Box<[u8]>,
}

/// By number of the connection.
type Listeners = BTreeMap<u64, Arc<ClientInfo>>;

/// All subscriptions of this process' connections.
pub struct PubSub {
    config: Arc<Config>,
    names: AtomicUsize,
    tables: Mutex<[BTreeMap<Box<[u8]>, Listeners>; 3]>,
}

/// A message on its way to those who hear it.
struct Frame<'a> {
    /// Of the kind, by which the client knows it.
    word: &'static [u8],
    pattern: Option<&'a [u8]>,
    channel: &'a [u8],
    text: &'a [u8],
    encoded: [Option<Bytes>; 2],
}

impl Frame<'_> {
    fn encoded(&mut self, resp3: bool) -> &Bytes {
        let Frame { word, pattern, channel, text, encoded } = self;
        let encode = || {
            let mut out = Reply::new(if resp3 { Protocol::Resp3 } else { Protocol::Resp2 });
            out.buf.reserve(channel.len() + text.len() + 64);
            out.push(3 + usize::from(pattern.is_some()));
            out.bulk(word);
            pattern.iter().for_each(|pattern| out.bulk(pattern));
            out.bulk(channel);
            out.bulk(text);
            out.buf.into()
        };
        encoded[usize::from(resp3)].get_or_insert_with(encode)
    }
}

impl PubSub {
    /// Nobody listens yet.
    pub fn new(config: Arc<Config>) -> PubSub {
        PubSub { config, names: AtomicUsize::new(0), tables: Mutex::default() }
    }

    /// Subscribes a client, of whom these are the subscriptions so far; whether it was not yet.
    pub fn subscribe(
        &self,
        client: &Arc<ClientInfo>,
        own: &mut Subscriptions,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> bool {
        let is_new = own.0[kind as usize].insert(name.into());
        if is_new {
            let mut tables = self.tables.lock();
            let table = &mut tables[kind as usize];
            table.entry(name.into()).or_default().insert(client.id, client.clone());
            self.count(&tables);
            client.held.add_subscription(name);
        }
        is_new
    }

    /// The opposite; whether it was subscribed.
    pub fn unsubscribe(
        &self,
        client: &ClientInfo,
        own: &mut Subscriptions,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> bool {
        let was = own.0[kind as usize].remove(name);
        if was {
            let mut tables = self.tables.lock();
            if let Some(listeners) = tables[kind as usize].get_mut(name) {
                listeners.remove(&client.id);
                if listeners.is_empty() {
                    tables[kind as usize].remove(name);
                }
            }
            self.count(&tables);
            client.held.remove_subscription(name);
        }
        was
    }

    /// Ends all subscriptions of a client.
    pub fn leave(&self, client: &ClientInfo, own: &mut Subscriptions) {
        for kind in SubscriptionKind::ALL {
            for name in own.0[kind as usize].clone() {
                self.unsubscribe(client, own, kind, &name);
            }
        }
    }

    fn count(&self, tables: &[BTreeMap<Box<[u8]>, Listeners>; 3]) {
        self.names.store(tables.iter().map(BTreeMap::len).sum(), Ordering::Relaxed);
    }

    /// Gives a message to all who listen; how many they are, or how often they do.
    pub fn publish(&self, shard: bool, channel: &[u8], text: &[u8]) -> usize {
        if self.names.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // Held to the end, so that all hear the messages of a channel in the same order.
        let tables = self.tables.lock();
        let mut count = 0;
        let mut deliver = |mut frame: Frame<'_>, listeners: &Listeners| {
            count += listeners.len();
            for client in listeners.values() {
                let message = frame.encoded(client.pushes.is_resp3());
                self.deliver(client, message);
            }
        };
        let word: &[u8] = if shard { b"smessage" } else { b"message" };
        if let Some(listeners) = tables
            [if shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel } as usize]
            .get(channel)
        {
            deliver(Frame { word, pattern: None, channel, text, encoded: [None, None] }, listeners);
        }
        let patterns = tables[SubscriptionKind::Pattern as usize].iter().filter(|_| !shard);
        for (pattern, listeners) in patterns.filter(|(pattern, _)| glob::matches(pattern, channel)) {
            let pattern = Some(&**pattern);
            deliver(Frame { word: b"pmessage", pattern, channel, text, encoded: [None, None] }, listeners);
        }
        count
    }

    /// Tells of what has happened to keys, as far as these classes name kinds of channels for it.
    pub fn announce(&self, classes: u32, events: &[Notification]) {
        if self.names.load(Ordering::Relaxed) == 0 {
            return;
        }
        for Notification { name, db, key, .. } in events {
            if classes & class::KEYSPACE != 0 {
                let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
                self.publish(false, &channel, name.as_bytes());
            }
            if classes & class::KEYEVENT != 0 {
                self.publish(false, format!("__keyevent@{db}__:{name}").as_bytes(), key);
            }
        }
    }

    /// Gives one client something; one that leaves too much unread is cut off.
    pub fn deliver(&self, client: &ClientInfo, message: &Bytes) {
        if !client.pushes.push(message, &self.config.client_output_buffer_limit.pubsub) {
            client.kill();
        }
        client.held.report();
    }

    /// How many would get a message.
    pub fn receivers(&self, shard: bool, channel: &[u8]) -> usize {
        let tables = self.tables.lock();
        let direct = tables[if shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel } as usize]
            .get(channel);
        let patterns = tables[SubscriptionKind::Pattern as usize].iter().filter(|_| !shard);
        let matching = patterns.filter(|(pattern, _)| glob::matches(pattern, channel));
        direct.map_or(0, Listeners::len) + matching.map(|(_, listeners)| listeners.len()).sum::<usize>()
    }

    /// The names that have subscribers and match `pattern`.
    pub fn names(&self, kind: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let tables = self.tables.lock();
        let names = tables[kind as usize].keys();
        names.filter(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name))).cloned().collect()
    }

    /// How many names there are of each kind.
    pub fn sizes(&self) -> [usize; 3] {
        self.tables.lock().each_ref().map(BTreeMap::len)
    }

    /// The clients that are subscribed to something of which this is true.
    pub fn listening(
        &self,
        mut to: impl FnMut(&ClientInfo, SubscriptionKind, &[u8]) -> bool,
    ) -> Vec<Arc<ClientInfo>> {
        let tables = self.tables.lock();
        let mut found = BTreeMap::new();
        for (kind, table) in SubscriptionKind::ALL.into_iter().zip(&*tables) {
            for (name, listeners) in table {
                let meant = listeners.iter().filter(|(_, client)| to(client, kind, name));
                found.extend(meant.map(|(id, client)| (*id, client.clone())));
            }
        }
        found.into_values().collect()
    }

    /// How many clients are subscribed to this name.
    pub fn listeners(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        self.tables.lock()[kind as usize].get(name).map_or(0, Listeners::len)
    }
}
