//! Client-side caching: which connections keep copies of what they have read, and how they hear that it has changed.
//!
//! A key is noted before it is read, and what a client hears is given to it behind the replies that are under way: so
//! it never keeps a value that changed after it received the invalidation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use store::Store;
use store_engine::keyspace::Changed;
use store_engine::spec::flags;
use store_engine::{Command, Protocol, Reply, Routing};

use super::client::ClientInfo;
use super::memory::prefix_bytes;
use super::pubsub::PubSub;
use crate::config::Config;

/// The channel on which a RESP2 connection hears of changes.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// What a connection has asked for with CLIENT TRACKING.
#[derive(Clone, Default)]
pub struct Follows {
    /// It hears of all keys with its prefixes, instead of those that it has read.
    pub broadcast: bool,
    /// It hears only of what it reads behind CLIENT CACHING YES.
    pub opt_in: bool,
    /// It does not hear of what it reads behind CLIENT CACHING NO.
    pub opt_out: bool,
    /// It does not hear of what it changes itself.
    pub no_loop: bool,
    /// CLIENT CACHING was said, for the next command or transaction.
    pub caching: bool,
    /// The newest command was CLIENT.
    pub was_client: bool,
    /// The connection that hears instead of it, with its number.
    pub redirect: Option<(u64, Weak<ClientInfo>)>,
    /// Of which keys it hears with `broadcast`: none is a prefix of another.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Follows {
    /// A command begins: what CLIENT CACHING said is for one command only, or for one transaction.
    pub fn next_command(&mut self, is_client: bool, in_multi: bool) {
        if !self.was_client && !in_multi {
            self.caching = false;
        }
        self.was_client = is_client;
    }

    /// Whether what it reads now is noted.
    pub fn notes(&self) -> bool {
        match self.caching {
            true => !self.broadcast && !self.opt_out,
            false => !self.broadcast && !self.opt_in,
        }
    }
}

/// A script whose reads are noted for its caller: as in Redis that notes its declared keys.
#[derive(Clone)]
pub struct Reader {
    /// The caller.
    pub client: u64,
    /// The keys that the script was given.
    pub keys: Arc<[Box<[u8]>]>,
}

impl Reader {
    /// The script is about to call this command.
    pub fn note(&self, tracking: &Tracking, pubsub: &PubSub, spec: &Command) {
        if reads(spec) {
            tracking.read(pubsub, self.client, self.keys.iter().map(|key| &**key));
        }
    }
}

/// Whether a command reads data, of which a client may keep a copy.
pub fn reads(spec: &Command) -> bool {
    let looks = !spec.keys.is_empty() || matches!(spec.routing, Routing::Everywhere | Routing::Paged);
    looks && (!spec.is_write() || spec.has(flags::KEEPS_RESULT))
}

struct Follower {
    client: Arc<ClientInfo>,
    follows: Follows,
    /// With `no_loop`: what it has read since its newest command began. That command may have changed it before, so its
    /// own change does not make it forgotten.
    fresh: BTreeSet<Box<[u8]>>,
}

#[derive(Default)]
struct Tables {
    followers: BTreeMap<u64, Follower>,
    /// Who has read a key. As in Redis the same key of all databases.
    readers: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    items: usize,
    /// What both take.
    bytes: usize,
    /// Who wants to hear of a prefix.
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// The key that was forgotten last because there were too many.
    hand: Box<[u8]>,
}

/// How much is followed.
pub struct Sizes {
    /// Connections.
    pub clients: usize,
    /// Keys that were read.
    pub keys: usize,
    /// How often, each time by another connection.
    pub items: usize,
    /// Bytes of memory that both take.
    pub bytes: usize,
    /// Prefixes.
    pub prefixes: usize,
}

/// All connections of this process that keep copies.
pub struct Tracking {
    config: Arc<Config>,
    on: AtomicBool,
    /// How many; held while the store is notified whether there are any.
    clients: Mutex<usize>,
    tables: Mutex<Tables>,
}

impl Tracking {
    /// Nobody keeps copies yet.
    pub fn new(config: Arc<Config>) -> Tracking {
        Tracking { config, on: AtomicBool::new(false), clients: Mutex::new(0), tables: Mutex::default() }
    }

    /// Whether any client keeps copies.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// From now on a client hears what it asks for.
    pub fn enter(&self, store: &Store, client: &Arc<ClientInfo>, follows: &Follows) {
        let mut clients = self.clients.lock();
        let is_new = !self.tables.lock().followers.contains_key(&client.id);
        if is_new {
            *clients += 1;
        }
        if *clients == 1 && is_new {
            self.on.store(true, Ordering::Relaxed);
            store.enable_invalidations(true);
        }
        let mut tables = self.tables.lock();
        for prefix in &follows.prefixes {
            tables.prefixes.entry(prefix.clone()).or_default().insert(client.id);
        }
        tables.followers.insert(
            client.id,
            Follower { client: client.clone(), follows: follows.clone(), fresh: BTreeSet::new() },
        );
        show(client, Some(follows));
        client.held.set_prefixes(prefix_bytes(follows.prefixes.iter().map(|prefix| &**prefix)));
        client.pushes.expect();
        if let Some(target) = follows.redirect.as_ref().and_then(|(_, target)| target.upgrade()) {
            target.pushes.expect();
        }
    }

    /// A client hears nothing any more. What it has read is forgotten when it changes.
    pub fn leave(&self, store: &Store, client: &ClientInfo) {
        let mut clients = self.clients.lock();
        {
            let mut tables = self.tables.lock();
            let Some(gone) = tables.followers.remove(&client.id) else { return };
            for prefix in &gone.follows.prefixes {
                if let Some(ids) = tables.prefixes.get_mut(prefix) {
                    ids.remove(&client.id);
                    if ids.is_empty() {
                        tables.prefixes.remove(prefix);
                    }
                }
            }
        }
        show(client, None);
        client.held.set_prefixes(0);
        *clients -= 1;
        if *clients == 0 {
            self.on.store(false, Ordering::Relaxed);
            store.enable_invalidations(false);
            *self.tables.lock() = Tables::default();
        }
    }

    /// A client that does not hear of its own changes begins another command.
    pub fn command_begins(&self, client: u64) {
        if let Some(follower) = self.tables.lock().followers.get_mut(&client) {
            follower.fresh.clear();
        }
    }

    /// A client is about to read these keys.
    pub fn read<'a>(&self, pubsub: &PubSub, client: u64, keys: impl IntoIterator<Item = &'a [u8]>) {
        let unlimited = |most: usize| if most == 0 { usize::MAX } else { most };
        let most = unlimited(self.config.tracking_table_max_keys.get_usize());
        let most_bytes = unlimited(self.config.tracking_table_max_bytes.get_usize());
        let mut tables = self.tables.lock();
        let Tables { followers, .. } = &mut *tables;
        let mut fresh = followers.get_mut(&client).filter(|follower| follower.follows.no_loop);
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        if let Some(follower) = &mut fresh {
            follower.fresh.extend(keys.iter().map(|key| Box::from(*key)));
        }
        for key in keys {
            tables.note(key, client);
            while tables.readers.len() > most || tables.bytes > most_bytes {
                // One after the other in their order; the client is notified as if the key had changed.
                let behind = (Bound::Excluded(&*tables.hand), Bound::Unbounded);
                let next = tables.readers.range::<[u8], _>(behind).next().or(tables.readers.iter().next());
                let Some(next) = next.map(|(key, _)| key.clone()) else { break };
                tables.forget(pubsub, 0, &next);
                tables.hand = next;
            }
        }
    }

    /// Tells those who keep copies what has changed. `author` is the client that has done it; 0 if it is none of here.
    pub fn changed(&self, pubsub: &PubSub, author: u64, changed: &Changed) {
        let mut tables = self.tables.lock();
        if changed.everything {
            tables.readers.clear();
            (tables.items, tables.bytes) = (0, 0);
            let mut all = Invalidation::of(None);
            tables.followers.values().for_each(|follower| follower.deliver(pubsub, &mut all));
            return;
        }
        for key in &changed.keys {
            tables.forget(pubsub, author, key);
        }
        if tables.prefixes.is_empty() {
            return;
        }
        let keys: BTreeSet<&[u8]> = changed.keys.iter().map(|key| &**key).collect();
        let mut meant: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for key in keys {
            for prefix in prefixes_of(&tables.prefixes, key) {
                meant.entry(prefix).or_default().push(key);
            }
        }
        for (prefix, keys) in meant {
            let mut own = Invalidation::of(Some(&keys));
            let followers = tables.prefixes[prefix].iter().filter_map(|id| tables.followers.get(id));
            for follower in followers.filter(|follower| follower.hears_of(author)) {
                follower.deliver(pubsub, &mut own);
            }
        }
    }

    /// How much is followed.
    pub fn sizes(&self) -> Sizes {
        let tables = self.tables.lock();
        Sizes {
            clients: tables.followers.len(),
            keys: tables.readers.len(),
            items: tables.items,
            bytes: tables.bytes,
            prefixes: tables.prefixes.len(),
        }
    }
}

/// What a key takes in the table, beside its name and those who have read it.
const KEY_BYTES: usize = 96;
/// What one of these takes.
const READER_BYTES: usize = 16;

impl Tables {
    /// A client reads a key.
    fn note(&mut self, key: &[u8], client: u64) {
        let is_new = match self.readers.get_mut(key) {
            Some(ids) => ids.insert(client),
            None => {
                self.bytes += key.len() + KEY_BYTES;
                self.readers.insert(key.into(), BTreeSet::from([client])).is_none()
            }
        };
        if is_new {
            self.items += 1;
            self.bytes += READER_BYTES;
        }
    }

    /// Forgets which clients have read a key, and notifies them.
    fn forget(&mut self, pubsub: &PubSub, author: u64, key: &[u8]) {
        let Some(ids) = self.readers.remove(key) else { return };
        self.items -= ids.len();
        self.bytes -= key.len() + KEY_BYTES + ids.len() * READER_BYTES;
        let own = self.followers.get(&author);
        if own.is_some_and(|own| own.follows.no_loop && ids.contains(&author) && own.fresh.contains(key)) {
            self.note(key, author);
        }
        let keys = [key];
        let mut changed = Invalidation::of(Some(&keys));
        let followers = ids.iter().filter_map(|id| self.followers.get(id));
        for follower in followers.filter(|follower| !follower.follows.broadcast && follower.hears_of(author))
        {
            follower.deliver(pubsub, &mut changed);
        }
    }
}

/// Those of the prefixes that a key begins with, the longest first. Others are looked at only where they lie between
/// these: a change does not take longer because clients follow much else.
fn prefixes_of<'a, T>(prefixes: &'a BTreeMap<Box<[u8]>, T>, key: &[u8]) -> Vec<&'a [u8]> {
    let mut found = Vec::new();
    let mut end = Bound::Included(key);
    while let Some((prefix, _)) = prefixes.range::<[u8], _>((Bound::Unbounded, end)).next_back() {
        let common = prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
        if common == prefix.len() {
            found.push(&**prefix);
            end = Bound::Excluded(&key[..common]);
        } else {
            // All that lies between has more in common with this one than with the key.
            end = Bound::Included(&key[..common]);
        }
    }
    found
}

impl Follower {
    fn hears_of(&self, author: u64) -> bool {
        !self.follows.no_loop || author != self.client.id
    }

    /// Gives the client an invalidation, or the connection that hears instead of it.
    fn deliver(&self, pubsub: &PubSub, invalidation: &mut Invalidation<'_>) {
        let own = if self.client.pushes.is_resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
        let redirected = self.follows.redirect.as_ref();
        let target = match redirected.map(|(id, target)| (id, target.upgrade())) {
            None => self.client.clone(),
            Some((_, Some(target))) => target,
            Some((id, None)) => {
                self.client.details.lock().redirect_broken = true;
                if own == Protocol::Resp3 {
                    let mut out = Reply::new(own);
                    out.push(2);
                    out.bulk(b"tracking-redir-broken");
                    out.integer(*id as i64);
                    pubsub.deliver(&self.client, &out.buf.into());
                }
                return;
            }
        };
        let form = match target.pushes.is_resp3() {
            true => Protocol::Resp3,
            false if redirected.is_some() && target.details.lock().is_subscribed() => Protocol::Resp2,
            // The client could not distinguish this from a reply.
            false => return,
        };
        pubsub.deliver(&target, invalidation.encoded(form, own));
    }
}

/// Which keys have changed, encoded once for all clients that hear of them in the same form.
struct Invalidation<'k> {
    /// The keys; all, if there are none.
    keys: Option<&'k [&'k [u8]]>,
    /// In RESP2 or RESP3, for a client of RESP2 or RESP3.
    encoded: [[Option<Bytes>; 2]; 2],
}

impl<'k> Invalidation<'k> {
    fn of(keys: Option<&'k [&'k [u8]]>) -> Invalidation<'k> {
        Invalidation { keys, encoded: Default::default() }
    }

    /// A push of RESP3 or a message of a channel in RESP2, for a client that follows in the protocol `own`.
    fn encoded(&mut self, form: Protocol, own: Protocol) -> &Bytes {
        let is_resp3 = |protocol| usize::from(protocol == Protocol::Resp3);
        self.encoded[is_resp3(form)][is_resp3(own)].get_or_insert_with(|| {
            let mut out = Reply::new(form);
            match form {
                Protocol::Resp3 => {
                    out.push(2);
                    out.bulk(b"invalidate");
                }
                Protocol::Resp2 => {
                    out.push(3);
                    out.bulk(b"message");
                    out.bulk(CHANNEL);
                }
            }
            match self.keys {
                Some(keys) => {
                    out.array(keys.len());
                    keys.iter().for_each(|key| out.bulk(key));
                }
                None => {
                    // As Redis does, in the protocol of the client that follows.
                    out.protocol = own;
                    out.null();
                }
            }
            out.buf.into()
        })
    }
}

/// Makes known what a client follows.
fn show(client: &ClientInfo, follows: Option<&Follows>) {
    let mut details = client.details.lock();
    details.redirect = follows.map(|follows| follows.redirect.as_ref().map_or(0, |(id, _)| *id));
    details.broadcast = follows.is_some_and(|follows| follows.broadcast);
    details.redirect_broken = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefixes_of_a_key_are_found() {
        let words = ["", "a", "ab", "abc", "abd", "b", "ba", "bab", "bb", "bba", "bbbb", "c"];
        let prefixes: BTreeMap<Box<[u8]>, ()> =
            words.iter().map(|word| (word.as_bytes().into(), ())).collect();
        for key in ["", "a", "abcd", "abe", "bbb", "bbbbb", "cc", "d", "0"] {
            let mut wanted: Vec<&str> = words.iter().copied().filter(|word| key.starts_with(word)).collect();
            wanted.reverse();
            let found = prefixes_of(&prefixes, key.as_bytes());
            assert_eq!(found, wanted.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), "{key}");
        }
        assert!(prefixes_of(&BTreeMap::<Box<[u8]>, ()>::new(), b"a").is_empty());
    }
}
