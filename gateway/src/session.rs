//! What a connection remembers between its requests.

mod held;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use store::{LockRequest, Mode, Waiter, WatchId};
use store_engine::{CommandError, Protocol, Reply};

use crate::acl::{Account, Acl};
use crate::observe::unix_ms;
use crate::options::Options;
use crate::pubsub::{Mailbox, Subscriptions};
use crate::spans::{Open, Parent};
use crate::trace::Trace;
use crate::tracking::Follows;

pub use held::{ClientMemory, Held, prefix_bytes, subscription_bytes, watch_bytes};

/// What everybody may know about a client: CLIENT LIST shows it.
pub struct ClientInfo {
    /// Number of the connection, never reused.
    pub id: u64,
    /// Where it comes from.
    pub addr: String,
    /// Where it arrived.
    pub laddr: String,
    /// Unix time in milliseconds of its arrival.
    pub since_ms: u64,
    /// Unix time in milliseconds of its newest request.
    pub active_ms: AtomicU64,
    /// Set by CLIENT KILL: the connection ends at its next step.
    pub killed: AtomicBool,
    /// Wakes the connection so that it sees `killed`.
    pub wake: tokio::sync::Notify,
    /// The call that it waits for.
    pub blocked: Mutex<Option<Blocked>>,
    /// What it is told unasked.
    pub mail: Mailbox,
    /// The user that it is.
    pub account: Mutex<Arc<Account>>,
    /// The number of its newest command, and one more; 0: none.
    command: AtomicUsize,
    /// What it takes.
    pub held: Held,
    /// What changes rarely.
    pub details: Mutex<ClientDetails>,
}

/// A call that waits for its keys.
#[derive(Clone)]
pub enum Blocked {
    /// On the node of this process.
    Here(Arc<Waiter>),
    /// On nodes elsewhere.
    There(Arc<WaitsElsewhere>),
}

impl Blocked {
    /// Whether nobody has answered yet.
    pub fn is_waiting(&self) -> bool {
        match self {
            Blocked::Here(waiter) => waiter.is_waiting(),
            Blocked::There(waits) => waits.end.lock().is_none(),
        }
    }

    /// Ends the waiting with this reply; `false` if somebody else has already ended it.
    pub fn answer(&self, reply: Vec<u8>) -> bool {
        match self {
            Blocked::Here(waiter) => waiter.answer(reply),
            Blocked::There(waits) => {
                let mut end = waits.end.lock();
                let first = end.is_none();
                if first {
                    *end = Some(reply);
                    waits.ended.notify_one();
                }
                first
            }
        }
    }
}

/// How the waiting of a call for nodes elsewhere is ended by others than these.
#[derive(Default)]
pub struct WaitsElsewhere {
    end: Mutex<Option<Vec<u8>>>,
    ended: tokio::sync::Notify,
}

impl WaitsElsewhere {
    /// The reply with which somebody ends it.
    pub async fn ended(&self) -> Vec<u8> {
        self.ended.notified().await;
        self.end.lock().clone().unwrap_or_default()
    }
}

/// The part of [`ClientInfo`] that commands change.
#[derive(Clone, Default)]
pub struct ClientDetails {
    /// CLIENT SETNAME
    pub name: String,
    /// CLIENT SETINFO LIB-NAME
    pub lib_name: String,
    /// CLIENT SETINFO LIB-VER
    pub lib_ver: String,
    /// Selected database.
    pub db: usize,
    /// Protocol version, 2 or 3.
    pub resp: u8,
    /// CLIENT NO-EVICT
    pub no_evict: bool,
    /// Channels, patterns and shard channels that it is subscribed to.
    pub subscriptions: [usize; 3],
    /// Whether it watches what is asked of the server.
    pub monitors: bool,
    /// It keeps copies of what it reads, and this connection hears when that changes; 0: itself.
    pub redirect: Option<u64>,
    /// It hears of keys that it has not read.
    pub broadcast: bool,
    /// That connection has gone.
    pub redirect_broken: bool,
    /// Raised when keys change that it watches here.
    pub watched: Vec<Arc<AtomicBool>>,
}

impl ClientDetails {
    /// Whether it is subscribed to anything.
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions != [0; 3]
    }
}

impl ClientInfo {
    /// A client that has just connected, as this user.
    pub fn new(
        id: u64,
        addr: String,
        laddr: String,
        account: Arc<Account>,
        memory: Arc<ClientMemory>,
    ) -> Arc<ClientInfo> {
        let now = unix_ms();
        let mail = Mailbox::default();
        Arc::new(ClientInfo {
            id,
            addr,
            laddr,
            since_ms: now,
            active_ms: AtomicU64::new(now),
            killed: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            blocked: Mutex::default(),
            account: Mutex::new(account),
            command: AtomicUsize::new(0),
            held: Held::new(memory, mail.bytes()),
            mail,
            details: Mutex::new(ClientDetails { resp: 2, ..ClientDetails::default() }),
        })
    }

    /// Says which command it has called, by its number.
    pub fn set_command(&self, number: u16) {
        self.command.store(usize::from(number) + 1, Ordering::Relaxed);
    }

    /// The number of its newest command.
    pub fn command(&self) -> Option<usize> {
        self.command.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A line of CLIENT LIST. `command` is its newest one. What is 0 there is never held: calls are read where they have
    /// arrived, and a connection has no buffer for replies but while it writes some.
    pub fn line(&self, command: &str) -> String {
        let now = unix_ms();
        let details = self.details.lock();
        let age = now.saturating_sub(self.since_ms) / 1000;
        let idle = now.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000;
        let [channels, patterns, shards] = details.subscriptions;
        let (input, room) = self.held.input();
        let (queued, queued_bytes) = self.held.queue();
        // As in Redis those of WATCH are among those of MULTI.
        let multi_bytes = queued_bytes + self.held.watched();
        let (unread, unread_bytes) = self.mail.unread();
        let output = self.held.output();
        let total = self.total_bytes();
        let has_changed = |watched: &Arc<AtomicBool>| watched.load(Ordering::Relaxed);
        let flags: String = [
            (details.monitors, 'O'),
            (details.is_subscribed(), 'P'),
            (queued >= 0, 'x'),
            (self.is_blocked(), 'b'),
            (details.watched.iter().any(has_changed), 'd'),
            (details.redirect.is_some(), 't'),
            (details.redirect_broken, 'R'),
            (details.broadcast, 'B'),
            (self.killed.load(Ordering::Relaxed), 'A'),
            (details.no_evict, 'e'),
        ]
        .into_iter()
        .filter_map(|(is, flag)| is.then_some(flag))
        .collect();
        // Redis tells of that since 7.2, and here who has said it.
        let library = match (&*details.lib_name, &*details.lib_ver) {
            ("", "") => String::new(),
            (name, version) => format!(" lib-name={name} lib-ver={version}"),
        };
        let mut text = String::new();
        writeln!(
            text,
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags={} db={} sub={channels} psub={patterns} \
             ssub={shards} multi={queued} qbuf={input} qbuf-free={} argv-mem=0 multi-mem={multi_bytes} rbs=0 rbp=0 obl={output} \
             oll={unread} omem={unread_bytes} tot-mem={total} events={} cmd={command} user={} redir={} resp={}{}",
            self.id,
            self.addr,
            self.laddr,
            self.held.socket(),
            details.name,
            if flags.is_empty() { "N" } else { &flags },
            details.db,
            room.saturating_sub(input),
            if unread + output > 0 { "rw" } else { "r" },
            String::from_utf8_lossy(self.account.lock().name()),
            details.redirect.map_or(-1, |id| id as i64),
            details.resp,
            library,
        )
        .expect("writing to a string cannot fail");
        text
    }

    /// All bytes that the server holds for it, as `tot-mem` shows them.
    pub fn total_bytes(&self) -> usize {
        size_of::<ClientInfo>() + size_of::<Session>() + self.held.bytes()
    }

    /// Whether it waits for a key.
    pub fn is_blocked(&self) -> bool {
        self.blocked.lock().as_ref().is_some_and(Blocked::is_waiting)
    }

    /// Whether the connection is about to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }
}

/// One call, owned: kept in a MULTI queue.
pub type OwnedCall = Vec<Box<[u8]>>;

/// A MULTI in progress.
pub struct Multi {
    /// What EXEC will run.
    pub queued: Vec<OwnedCall>,
    /// A command was refused while queueing: EXEC will refuse everything.
    pub broken: bool,
    /// Whose it is, as others are told.
    client: Arc<ClientInfo>,
}

impl Multi {
    /// One that this client begins.
    pub fn begin(client: Arc<ClientInfo>) -> Multi {
        client.held.begin_queue();
        Multi { queued: Vec::new(), broken: false, client }
    }

    /// Adds a call, unless EXEC will refuse it anyway. If it is too much to be held, all are dropped at once.
    pub fn push(&mut self, call: &[&[u8]]) -> Result<(), CommandError> {
        if self.broken {
            return Ok(());
        }
        let bytes =
            call.iter().map(|item| item.len() + held::ARGUMENT_BYTES).sum::<usize>() + held::COMMAND_BYTES;
        if let Err(error) = self.client.held.refuse_more(bytes) {
            self.broken = true;
            self.queued = Vec::new();
            self.client.held.drop_queue(false);
            return Err(error);
        }
        self.queued.push(call.iter().map(|item| (*item).into()).collect());
        self.client.held.add_queued(bytes);
        Ok(())
    }
}

impl Drop for Multi {
    fn drop(&mut self) {
        self.client.held.drop_queue(true);
    }
}

/// A watched key, and the database it is in.
pub type WatchedKey = (usize, Box<[u8]>);

/// How it is known whether a watched key has changed.
pub enum Watch {
    /// Raised when it changed.
    Here(Arc<AtomicBool>),
    /// Its node knows.
    There(WatchId),
}

/// What a session asks of the scripts it runs, beside what they say themselves.
#[derive(Clone, Default)]
pub struct Wishes {
    /// These count before a script's own.
    pub options: Options,
    /// Where to tell what a script did.
    pub trace: Option<Arc<Trace>>,
}

/// Which replies a client wants: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// Every one.
    All,
    /// None.
    None,
    /// Neither this nor the next one.
    SkipTwo,
    /// Not the next one.
    SkipOne,
}

impl Replies {
    /// Whether the reply that has come is wanted.
    pub fn take(&mut self) -> bool {
        let now = *self;
        *self = match now {
            Replies::SkipTwo => Replies::SkipOne,
            Replies::SkipOne => Replies::All,
            stays => stays,
        };
        now == Replies::All
    }
}

/// What requests have touched: their replies wait for the disk if that is data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// No data.
    #[default]
    Nothing,
    /// Data that was read, and may have been changed by others a moment before.
    Read,
    /// Data that was changed, or may have been.
    Written,
}

/// One connection's state.
pub struct Session {
    /// What others may know of it.
    pub client: Arc<ClientInfo>,
    /// The user that it is.
    pub account: Arc<Account>,
    /// It was let in: with a password, or as none was needed.
    pub authenticated: bool,
    /// Selected database.
    pub db: usize,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// State of the random source of its commands.
    pub seed: u64,
    /// MULTI in progress.
    pub multi: Option<Multi>,
    /// WATCHed keys.
    pub watched: HashMap<WatchedKey, Watch>,
    /// What the requests have touched whose replies are not sent yet.
    pub touched: Touched,
    /// For its scripts.
    pub wishes: Wishes,
    /// What its requests are parts of.
    pub parent: Parent,
    /// Where the clock stood when it was last read, if nothing was awaited since: the end of one request of a batch is
    /// the beginning of the next.
    pub clock: Option<Instant>,
    /// The request that is being answered, if it is traced.
    pub span: Option<Open>,
    /// What it is subscribed to, if that is anything.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Whether it watches what is asked of the server.
    pub monitors: bool,
    /// What it keeps copies of, if it does.
    pub tracking: Option<Box<Follows>>,
    /// Which replies it does not want: CLIENT REPLY.
    pub replies: Replies,
    /// Whether it can be told something unasked.
    pub hears: bool,
    /// EXEC carries out its commands.
    pub in_exec: bool,
    /// QUIT was said, or the protocol broken: close after the replies are out.
    pub closing: bool,
}

impl Session {
    /// The state of a new connection, which is the user `default` before it says who it is.
    pub fn new(client: Arc<ClientInfo>, acl: &Acl) -> Session {
        let account = acl.default_account();
        *client.account.lock() = account.clone();
        let authenticated = acl.lets_in_strangers();
        Session { authenticated, ..Session::within(client, account.clone(), 0, Protocol::Resp2) }
    }

    /// The state in which a script of this client makes its calls.
    pub fn within(client: Arc<ClientInfo>, account: Arc<Account>, db: usize, protocol: Protocol) -> Session {
        let seed = client.since_ms ^ client.id.rotate_left(32);
        Session {
            account,
            authenticated: true,
            client,
            db,
            protocol,
            seed,
            multi: None,
            watched: HashMap::new(),
            touched: Touched::Nothing,
            wishes: Wishes::default(),
            parent: Parent::Unknown,
            clock: None,
            span: None,
            subscriptions: None,
            monitors: false,
            tracking: None,
            replies: Replies::All,
            hears: false,
            in_exec: false,
            closing: false,
        }
    }

    /// Whether it has to say who it is before anything else.
    pub fn needs_password(&self, acl: &Acl) -> bool {
        !self.authenticated && !acl.is_open()
    }

    /// The user whose rules have to be asked, if there is something that they refuse.
    pub fn limited_account(&self) -> Option<Arc<Account>> {
        (!self.account.is_unlimited()).then(|| self.account.clone())
    }

    /// Is another user from now on.
    pub fn become_user(&mut self, account: Arc<Account>, authenticated: bool) {
        *self.client.account.lock() = account.clone();
        self.account = account;
        self.authenticated = authenticated;
    }

    /// Has another database selected from now on.
    pub fn select(&mut self, db: usize) {
        self.db = db;
        self.client.details.lock().db = db;
    }

    /// Speaks another protocol from now on.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client.mail.set_resp3(protocol == Protocol::Resp3);
        self.client.details.lock().resp = if protocol == Protocol::Resp3 { 3 } else { 2 };
    }

    /// Whether something may have come for it that it has not asked for.
    pub fn listens(&self) -> bool {
        self.monitors || self.subscriptions.is_some() || self.client.mail.is_expected()
    }

    /// Moves what has come for it to its replies.
    pub fn take_mail(&self, out: &mut Reply) {
        if self.hears {
            self.client.mail.take(&mut out.buf);
            self.client.held.report();
        }
    }

    /// Whether a watched key changed since WATCH, as far as that is known here.
    pub fn watch_broken(&self) -> bool {
        let has_changed = |watch: &Watch| match watch {
            Watch::Here(changed) => changed.load(Ordering::Relaxed),
            Watch::There(_) => false,
        };
        self.watched.values().any(has_changed)
    }

    /// The watches that nodes elsewhere have to be asked about.
    pub fn watches_elsewhere(&self) -> Vec<WatchId> {
        let elsewhere = |watch: &Watch| match watch {
            Watch::There(watch) => Some(*watch),
            Watch::Here(_) => None,
        };
        self.watched.values().filter_map(elsewhere).collect()
    }

    /// Locks under which nobody changes a watched key.
    pub fn watched_keys(&self) -> Vec<LockRequest> {
        let lock = |(db, key): &WatchedKey| LockRequest { db: *db, key: key.clone(), mode: Mode::Shared };
        self.watched.keys().map(lock).collect()
    }
}
