//! What a connection remembers between its requests.

mod client;
pub mod following;
pub mod maintenance;
mod memory;
pub mod monitors;
pub mod pause;
pub mod pubsub;
mod push_queue;
pub mod replica;
mod sessions;
pub mod tracking;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use store::{LockRequest, Mode, Watch, WatchId};
use store_engine::{CommandError, Protocol, Reply};

use crate::acl::{Account, Acl};
use crate::scripts::options::Options;
use crate::session::pubsub::Subscriptions;
use crate::session::replica::Replica;
use crate::session::tracking::Follows;
use crate::telemetry::script_trace::Trace;
use crate::telemetry::spans::{Open, Parent};

pub use client::ClientInfo;
pub use memory::{ConnectionMemory, prefix_bytes, subscription_bytes, watch_bytes};
pub use sessions::Sessions;

/// One call, owned: kept in a MULTI queue.
pub type OwnedCall = Vec<Box<[u8]>>;

/// A MULTI in progress.
pub struct Multi {
    /// What EXEC will run.
    pub queued: Vec<OwnedCall>,
    /// A command was refused while queueing: EXEC will refuse everything.
    pub broken: bool,
    /// Whose it is, as other clients see that.
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
        let bytes = call.iter().map(|item| item.len() + memory::ARGUMENT_BYTES).sum::<usize>()
            + memory::COMMAND_BYTES;
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

/// What a session asks of the scripts it runs, beside what they say themselves.
#[derive(Clone, Default)]
pub struct ScriptOverrides {
    /// These count before a script's own.
    pub options: Options,
    /// Where the steps of a script are recorded.
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
pub enum DataAccess {
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
    /// Milliseconds by which the clock of its commands is slow: keys that have expired since are there for it.
    pub behind_ms: u64,
    /// MULTI in progress.
    pub multi: Option<Multi>,
    /// SCRIPT DEBUG has asked for the debugger: the next script is refused.
    pub wants_debugger: bool,
    /// WATCHed keys.
    pub watched: HashMap<WatchedKey, Watch>,
    /// What the requests have touched whose replies are not sent yet.
    pub data_access: DataAccess,
    /// For its scripts.
    pub overrides: ScriptOverrides,
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
    /// What it has said as replicas do, if it has.
    pub replica: Option<Box<Replica>>,
    /// Whether it can receive push messages.
    pub hears: bool,
    /// EXEC carries out its commands.
    pub in_exec: bool,
    /// QUIT was said, or the protocol broken: close after the replies are out.
    pub closing: bool,
}

const _: () = assert!(size_of::<Session>() <= client::SESSION_BYTES);

impl Session {
    /// The state of a new connection, which is the user `default` before it says who it is.
    pub fn new(client: Arc<ClientInfo>, acl: &Acl) -> Session {
        let account = acl.default_account();
        *client.account.lock() = account.clone();
        let authenticated = acl.allows_unauthenticated();
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
            behind_ms: 0,
            multi: None,
            wants_debugger: false,
            watched: HashMap::new(),
            data_access: DataAccess::Nothing,
            overrides: ScriptOverrides::default(),
            parent: Parent::Unknown,
            clock: None,
            span: None,
            subscriptions: None,
            monitors: false,
            tracking: None,
            replies: Replies::All,
            replica: None,
            hears: false,
            in_exec: false,
            closing: false,
        }
    }

    /// What its commands see as the present time if it is this, Unix time in milliseconds.
    pub fn clock_of(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.behind_ms)
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
        self.client.pushes.set_resp3(protocol == Protocol::Resp3);
        self.client.details.lock().resp = if protocol == Protocol::Resp3 { 3 } else { 2 };
    }

    /// Whether something may have come for it that it has not asked for.
    pub fn listens(&self) -> bool {
        self.monitors || self.subscriptions.is_some() || self.client.pushes.is_expected()
    }

    /// Moves what has come for it to its replies.
    pub fn take_pushes(&self, out: &mut Reply) {
        if self.hears {
            self.client.pushes.take(&mut out.buf);
            self.client.held.report();
        }
    }

    /// Whether a watched key changed since WATCH, as far as that is known here.
    pub fn watch_broken(&self) -> bool {
        self.watched.values().any(Watch::is_broken)
    }

    /// The watches that nodes elsewhere have to be asked about.
    pub fn remote_watches(&self) -> Vec<WatchId> {
        self.watched.values().filter_map(Watch::remote).collect()
    }

    /// Locks under which no other client changes a watched key.
    pub fn watched_keys(&self) -> Vec<LockRequest> {
        let lock = |(db, key): &WatchedKey| LockRequest { db: *db, key: key.clone(), mode: Mode::Shared };
        self.watched.keys().map(lock).collect()
    }
}
