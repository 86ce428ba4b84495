//! What is known of a client beyond its own connection.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use store::Blocked;

use super::maintenance::Maintenance;
use super::memory::{ClientMemory, ConnectionMemory};
use super::push_queue::PushQueue;
use crate::acl::Account;
use crate::telemetry::counters::unix_ms;

/// Bytes that the state of a session takes, at most.
pub const SESSION_BYTES: usize = 640;

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
    /// Its push messages.
    pub pushes: PushQueue,
    /// CLIENT MAINT_NOTIFICATIONS
    pub maintenance: Maintenance,
    /// The user that it is.
    pub account: Mutex<Arc<Account>>,
    /// CLIENT NO-TOUCH; beside the details, for each call asks.
    no_touch: AtomicBool,
    /// The number of its newest command, and one more; 0: none.
    command: AtomicUsize,
    /// What it takes.
    pub held: ConnectionMemory,
    /// What changes rarely.
    pub details: Mutex<ClientDetails>,
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
        let pushes = PushQueue::default();
        Arc::new(ClientInfo {
            id,
            addr,
            laddr,
            since_ms: now,
            active_ms: AtomicU64::new(now),
            killed: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            blocked: Mutex::default(),
            maintenance: Maintenance::default(),
            account: Mutex::new(account),
            no_touch: AtomicBool::new(false),
            command: AtomicUsize::new(0),
            held: ConnectionMemory::new(memory, pushes.bytes()),
            pushes,
            details: Mutex::new(ClientDetails { resp: 2, ..ClientDetails::default() }),
        })
    }

    /// Whether its calls are no use of their keys: CLIENT NO-TOUCH.
    pub fn no_touch(&self) -> bool {
        self.no_touch.load(Ordering::Relaxed)
    }

    /// Says so.
    pub fn set_no_touch(&self, no_touch: bool) {
        self.no_touch.store(no_touch, Ordering::Relaxed);
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
        let (unread, unread_bytes) = self.pushes.unread();
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
            (self.no_touch(), 'T'),
        ]
        .into_iter()
        .filter_map(|(is, flag)| is.then_some(flag))
        .collect();
        // Redis shows that since 7.2.
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
        size_of::<ClientInfo>() + SESSION_BYTES + self.held.bytes()
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
