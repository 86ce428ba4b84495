//! What all parts of the gateway share.

pub mod gateways;
pub mod memory;
mod observer;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Store;
use store_engine::spec::flags;
use store_engine::{Args, CommandError, Reply};
use tracing::info;

use crate::acl::{Acl, Commands};
use crate::config::Config;
use crate::process::Process;
use crate::registry;
use crate::scripts::Scripting;
use crate::session::{ClientInfo, DataAccess, Session, Sessions};
use crate::telemetry::Telemetry;
use crate::telemetry::counters::Counters;

pub use observer::{EndedCall, error_from};

/// All commands.
pub type Registry = registry::Registry<Handler>;
/// A command.
pub type Row = registry::Row<Handler>;
/// A command that the gateway performs.
pub type SessionCommand = registry::SessionCommand<Handler>;

/// What performs a session command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// A function that answers at once.
    Inline(InlineFn),
    /// A function that may have to wait.
    Async(AsyncHandler),
    /// The script or function that the first argument names.
    Script {
        /// What the first argument is.
        source: ScriptSource,
        /// Only what writes nothing may be run.
        read_only: bool,
    },
    /// Publishes a message on the channel that the first argument names.
    Publish {
        /// It is a shard channel.
        shard: bool,
    },
}

/// What performs a command at once. With an error the reply is that, whatever was written before.
pub type InlineFn = fn(&Server, &mut Session, Args<'_>, &mut Reply) -> Result<(), CommandError>;

/// What performs a command that may have to wait.
pub type AsyncFn = for<'a> fn(&'a Arc<Server>, &'a mut Session, Args<'a>, &'a mut Reply) -> Handling<'a>;

/// A command that is being performed.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<(), CommandError>> + Send + 'a>>;

/// What the first argument of a command that runs a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// The text of a script.
    Text,
    /// The digest of one.
    Digest,
    /// The name of a function.
    Function,
}

/// A command that may have to wait.
#[derive(Clone, Copy)]
pub struct AsyncHandler {
    /// What performs it.
    pub run: AsyncFn,
    /// What performs it for scripts, which may not wait while they hold locks.
    pub in_script: Option<InlineFn>,
    /// When EXEC performs it.
    pub in_exec: InExec,
    /// What it touches, at most,
    pub data_access: DataAccess,
    /// but for these subcommands, which touch no data.
    pub untouching: &'static [&'static str],
    /// Whether it waits for something that may never come.
    pub blocks: bool,
    /// Whether the command is cancelled when its client disconnects, whatever the configuration says of scripts.
    pub ends_with_client: bool,
}

/// When EXEC performs a queued command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InExec {
    /// In its turn.
    InOrder,
    /// Before anything is locked, as it would wait for what EXEC locks.
    Beforehand,
    /// Never.
    Refused,
}

impl AsyncHandler {
    /// A command that changes something, in EXEC in its turn, and never in scripts.
    pub const fn new(run: AsyncFn) -> AsyncHandler {
        AsyncHandler {
            run,
            in_script: None,
            in_exec: InExec::InOrder,
            data_access: DataAccess::Written,
            untouching: &[],
            blocks: false,
            ends_with_client: false,
        }
    }
}

impl Handler {
    /// What performs the command for scripts.
    pub fn in_script(self) -> Option<InlineFn> {
        match self {
            Handler::Inline(run) => Some(run),
            Handler::Async(handler) => handler.in_script,
            Handler::Script { .. } | Handler::Publish { .. } => None,
        }
    }

    /// What the command touches, or its subcommand of this name, at most.
    pub fn data_access(self, name: &str) -> DataAccess {
        match self {
            Handler::Async(handler) if handler.untouching.contains(&name) => DataAccess::Nothing,
            Handler::Inline(_) | Handler::Publish { .. } => DataAccess::Nothing,
            Handler::Async(handler) => handler.data_access,
            Handler::Script { read_only: true, .. } => DataAccess::Read,
            Handler::Script { read_only: false, .. } => DataAccess::Written,
        }
    }

    /// Whether it waits for something that may never come.
    pub fn blocks(self) -> bool {
        matches!(self, Handler::Async(AsyncHandler { blocks: true, .. }))
    }

    /// Whether the command may complete after its client has disconnected.
    pub fn outlives_client(self) -> bool {
        match self {
            Handler::Inline(_) | Handler::Publish { .. } => false,
            Handler::Async(handler) => !handler.ends_with_client,
            Handler::Script { .. } => true,
        }
    }
}

/// Runs a session function; an error takes the place of whatever it had written.
pub fn run_now(server: &Server, session: &mut Session, args: Args<'_>, run: InlineFn, out: &mut Reply) {
    let start = out.buf.len();
    if let Err(error) = run(server, session, args, out) {
        out.truncate(start);
        out.error(&error);
    }
}

/// The gateway's shared state.
pub struct Server {
    /// Settings.
    pub config: Arc<Config>,
    /// The data.
    pub store: Store,
    /// All commands.
    pub registry: Registry,
    /// Who may do what.
    pub acl: Acl,
    /// What runs scripts.
    pub scripting: Scripting,
    /// Who is connected.
    pub sessions: Sessions,
    /// What is recorded.
    pub telemetry: Telemetry,
    /// What it runs in.
    pub process: Process,
}

/// The error for a connection that is refused for its address: the words of Redis, with the ways that there are here.
pub const PROTECTED: &str = "DENIED Redis is running in protected mode because protected mode is enabled and no \
     password is set for the default user. In this mode connections are only accepted from the loopback interface. If \
     you want to connect from external computers to Redis you may adopt one of the following solutions: 1) Just \
     disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by \
     connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly accessible \
     from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively you can just \
     disable the protected mode by editing the configuration file, and setting protected-mode to 'no', and then \
     restarting the server. 3) If you started the server manually just for testing, restart it with the \
     '--protected-mode no' option. 4) Setup an authentication password for the default user, with requirepass-file or \
     MOONSHARD_REQUIREPASS. NOTE: You only need to do one of the above things in order for the server to start \
     accepting connections from the outside.";

/// A client that holds less than this holds little: a buffer for a small request, and one for its reply.
const LITTLE_BYTES: usize = 64 << 10;

impl Server {
    /// Puts the parts together.
    pub fn new(
        config: Arc<Config>,
        store: Store,
        registry: Registry,
        scripting: Scripting,
        process: Process,
    ) -> Arc<Server> {
        let is_admin = |number| registry.spec_of(number).has(flags::ADMIN);
        let commands = (0..registry.count()).map(|number| (registry.name_of(number), is_admin(number)));
        Arc::new(Server {
            acl: Acl::new(Commands::new(registry.families()), config.clone()),
            sessions: Sessions::new(&config),
            telemetry: Telemetry::new(&config, commands),
            config,
            store,
            registry,
            scripting,
            process,
        })
    }

    /// How many connections are let in: `maxclients`, or as many as the system has room for.
    pub fn most_connections(&self) -> usize {
        self.config.maxclients.get_usize().min(self.process.room_for_connections)
    }

    /// Counts a connection that has come. `false`: there are too many, and it is not counted.
    pub fn lets_in(&self) -> bool {
        Counters::add(&self.telemetry.counters.connections_total, 1);
        let open = self.telemetry.counters.connections.fetch_add(1, Ordering::Relaxed);
        let has_room = open < self.most_connections();
        if !has_room {
            self.telemetry.counters.connections.fetch_sub(1, Ordering::Relaxed);
            Counters::add(&self.telemetry.counters.connections_refused, 1);
        }
        has_room
    }

    /// Whether connections from this address are refused, since every client could do everything.
    pub fn is_protected_from(&self, peer: IpAddr) -> bool {
        let is_open = self.acl.default_account().user().takes_any_password();
        self.config.protected_mode.get() && is_open && !peer.to_canonical().is_loopback()
    }

    /// How many clients wait for something to come to a key, or for the end of a pause.
    pub fn blocked_clients(&self) -> usize {
        let is_blocked = |client: &&Arc<ClientInfo>| client.is_blocked();
        let counted = || self.sessions.clients.lock().values().filter(is_blocked).count();
        let for_keys = self.store.blocked().unwrap_or_else(counted);
        for_keys + self.sessions.pause.waiting()
    }

    /// Disconnects the clients that hold most, for as long as all together hold as much as `maxmemory-clients` or more.
    /// Those with CLIENT NO-EVICT stay, and so do those that hold nothing which could be freed. Where these hold too much
    /// already, clients that hold little stay, too: Redis disconnects them, but that does not help.
    pub fn evict_clients(&self) {
        let Some(limit) = self.sessions.memory.limit() else { return };
        let clients = self.sessions.clients.lock();
        // What was disconnected before is about to be freed.
        let staying = clients.values().filter(|client| !client.is_killed());
        let mut sum: usize = staying.clone().map(|client| client.total_bytes()).sum();
        if sum < limit {
            return;
        }
        let evictable = staying.filter(|client| client.held.bytes() > 0 && !client.details.lock().no_evict);
        let mut evictable: Vec<_> = evictable.map(|client| (client.total_bytes(), client.clone())).collect();
        drop(clients);
        let stays = sum.saturating_sub(evictable.iter().map(|(bytes, _)| bytes).sum());
        if stays >= limit {
            evictable.retain(|(_, client)| client.held.bytes() >= LITTLE_BYTES);
        }
        evictable.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, client) in evictable {
            if sum < limit {
                break;
            }
            info!("maxmemory-clients: disconnected {}", self.line_of(&client).trim_end());
            client.kill();
            Counters::add(&self.telemetry.counters.clients_evicted, 1);
            sum = sum.saturating_sub(bytes);
        }
    }

    /// A client's line of CLIENT LIST.
    pub fn line_of(&self, client: &ClientInfo) -> String {
        let command = client.command().map(|number| self.registry.name_of(number));
        client.line(command.as_deref().unwrap_or("NULL"))
    }
}
