//! What all parts of the gateway share.

pub mod gateways;
pub mod memory;
mod observer;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use script::{AnyHost, Budget, Runtime};
use store::Store;
use store_engine::spec::flags;
use store_engine::{Args, CommandError, Reply};
use tokio::sync::watch;
use tracing::info;

use crate::acl::limits::{Limit, UserLimits};
use crate::acl::{Acl, Commands};
use crate::config::Config;
use crate::process::certificates::Certificates;
use crate::process::descriptors;
use crate::process::io::IoThreads;
use crate::registry;
use crate::scripts::cache::Scripts;
use crate::scripts::functions::Functions;
use crate::scripts::options::{Flags, OnError, Options, UndeclaredKeys};
use crate::scripts::running::Runs;
use crate::session::monitors::Monitors;
use crate::session::pause::Pause;
use crate::session::pubsub::PubSub;
use crate::session::tracking::Tracking;
use crate::session::{ClientInfo, ClientMemory, DataAccess, Session};
use crate::telemetry::audit::Audit;
use crate::telemetry::counters::Counters;
use crate::telemetry::counts::{Calls, Errors};
use crate::telemetry::latency::Latency;
use crate::telemetry::rates::RateSampler;
use crate::telemetry::script_events::Events;
use crate::telemetry::script_stats::Totals;
use crate::telemetry::slow_log::SlowLog;
use crate::telemetry::spans::Spans;

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
    /// Which connections are TLS.
    pub certificates: Certificates,
    /// The data.
    pub store: Store,
    /// All commands.
    pub registry: Registry,
    /// Runs scripts. The hosts are those of `scripting`, which is above this module: hence their type is hidden.
    pub runtime: Arc<Runtime<AnyHost>>,
    /// Who may do what.
    pub acl: Acl,
    /// Tells of what administrators do, and of what is refused.
    pub audit: Audit,
    /// Known scripts.
    pub scripts: Scripts,
    /// Loaded libraries.
    pub functions: Functions,
    /// Held while scripts or libraries are changed together with their records.
    pub loading: tokio::sync::Mutex<()>,
    /// Scripts and functions that run or wait.
    pub runs: Runs,
    /// Where runs report their beginnings and ends.
    pub events: Arc<Events>,
    /// Who listens to channels.
    pub pubsub: PubSub,
    /// Which clients keep copies of which keys.
    pub tracking: Tracking,
    /// Who watches what is asked.
    pub monitors: Monitors,
    /// Whether clients have to wait.
    pub pause: Pause,
    /// What took long.
    pub slow_log: SlowLog,
    /// When it took long.
    pub latency: Latency,
    /// Where runs go on that outlast their first slice of fuel, so that no connection's thread is held.
    pub compute: tokio::runtime::Handle,
    /// The threads that connections live on.
    pub io: Arc<IoThreads>,
    /// Counters for INFO.
    pub counters: Counters,
    /// How fast they grow.
    pub rate_sampler: RateSampler,
    /// What is counted of each command, by its number in the registry.
    pub calls: Calls,
    /// Error replies by code word.
    pub errors: Errors,
    /// Requests that are traced.
    pub spans: Spans,
    /// What all runs of scripts did together.
    pub totals: Totals,
    /// What clients make the server hold.
    pub client_memory: Arc<ClientMemory>,
    /// Connected clients by number.
    pub clients: Mutex<HashMap<u64, Arc<ClientInfo>>>,
    /// Where RESP is served.
    pub resp_addr: SocketAddr,
    /// When the process began to serve.
    pub started: Instant,
    /// The same in seconds since 1970.
    pub started_at: u64,
    /// Whether SHUTDOWN was called.
    pub stop: watch::Sender<Stop>,
    /// Distinguishes this process from others: INFO's `run_id`.
    pub run_id: String,
    next_client: AtomicU64,
    room_for_connections: usize,
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

/// What SHUTDOWN asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing.
    Never,
    /// The end of the process, with everything kept.
    Saving,
    /// The end, and nothing more is to be written.
    Abandoning,
}

/// What [`Server::new`] is made from.
pub struct Parts {
    /// Settings.
    pub config: Arc<Config>,
    /// Which connections are TLS.
    pub certificates: Certificates,
    /// The data.
    pub store: Store,
    /// All commands.
    pub registry: Registry,
    /// Runs scripts.
    pub runtime: Runtime<AnyHost>,
    /// The runtime for long scripts.
    pub compute: tokio::runtime::Handle,
    /// The threads that connections live on.
    pub io: Arc<IoThreads>,
    /// Where RESP is served.
    pub resp_addr: SocketAddr,
}

impl Server {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Arc<Server> {
        let Parts { config, certificates, store, registry, runtime, compute, io, resp_addr } = parts;
        let id = crate::scripts::cache::sha_of(
            format!("{:?}{}", crate::telemetry::counters::unix_time(), std::process::id()).as_bytes(),
        );
        let is_admin = |number| registry.spec_of(number).has(flags::ADMIN);
        let commands = (0..registry.count()).map(|number| (registry.name_of(number), is_admin(number)));
        Arc::new(Server {
            acl: Acl::new(Commands::new(registry.families()), config.clone()),
            audit: Audit::new(config.clone(), commands),
            scripts: Scripts::new(config.clone()),
            functions: Functions::default(),
            loading: tokio::sync::Mutex::default(),
            runs: Runs::default(),
            events: Arc::default(),
            pubsub: PubSub::new(config.clone()),
            tracking: Tracking::new(config.clone()),
            monitors: Monitors::default(),
            pause: Pause::default(),
            slow_log: SlowLog::default(),
            latency: Latency::default(),
            runtime: Arc::new(runtime),
            compute,
            io,
            // Those of connections, and as many that compute.
            calls: Calls::new(registry.count(), 2 * config.threads.get_usize()),
            errors: Errors::default(),
            totals: Totals::default(),
            spans: Spans::new(config.clone()),
            rate_sampler: RateSampler::default(),
            counters: Counters::default(),
            client_memory: ClientMemory::new(config.clone()),
            clients: Mutex::default(),
            config,
            certificates,
            store,
            registry,
            resp_addr,
            started: Instant::now(),
            started_at: crate::telemetry::counters::unix_time().as_secs(),
            stop: watch::Sender::new(Stop::Never),
            run_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            next_client: AtomicU64::new(1),
            room_for_connections: descriptors::room_for_connections(),
        })
    }

    /// How many connections are let in: `maxclients`, or as many as the system has room for.
    pub fn most_connections(&self) -> usize {
        self.config.maxclients.get_usize().min(self.room_for_connections)
    }

    /// Counts a connection that has come. `false`: there are too many, and it is not counted.
    pub fn lets_in(&self) -> bool {
        Counters::add(&self.counters.connections_total, 1);
        let open = self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let has_room = open < self.most_connections();
        if !has_room {
            self.counters.connections.fetch_sub(1, Ordering::Relaxed);
            Counters::add(&self.counters.connections_refused, 1);
        }
        has_room
    }

    /// Whether connections from this address are refused, since every client could do everything.
    pub fn is_protected_from(&self, peer: IpAddr) -> bool {
        let is_open = self.acl.default_account().user().takes_any_password();
        self.config.protected_mode.get() == 1 && is_open && !peer.to_canonical().is_loopback()
    }

    /// How many clients wait for something to come to a key, or for the end of a pause.
    pub fn blocked_clients(&self) -> usize {
        let is_blocked = |client: &&Arc<ClientInfo>| client.is_blocked();
        let counted = || self.clients.lock().values().filter(is_blocked).count();
        let for_keys = self.store.blocked().unwrap_or_else(counted);
        for_keys + self.pause.waiting()
    }

    /// Bytes that the clients make the server hold together.
    pub fn client_bytes(&self) -> usize {
        self.clients.lock().values().map(|client| client.total_bytes()).sum()
    }

    /// Disconnects the clients that hold most, for as long as all together hold as much as `maxmemory-clients` or more.
    /// Those with CLIENT NO-EVICT stay, and so do those that hold nothing which could be freed. Where these hold too much
    /// already, clients that hold little stay, too: Redis disconnects them, but that does not help.
    pub fn evict_clients(&self) {
        let Some(limit) = self.client_memory.limit() else { return };
        let clients = self.clients.lock();
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
            Counters::add(&self.counters.clients_evicted, 1);
            sum = sum.saturating_sub(bytes);
        }
    }

    /// A client's line of CLIENT LIST.
    pub fn line_of(&self, client: &ClientInfo) -> String {
        let command = client.command().map(|number| self.registry.name_of(number));
        client.line(command.as_deref().unwrap_or("NULL"))
    }

    /// The mode that clients see.
    pub fn mode(&self) -> &'static str {
        if self.config.cluster_enabled.get() == 0 { "standalone" } else { "cluster" }
    }

    /// A number for a new connection.
    pub fn next_client(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// What a script may use that says nothing about it.
    pub fn budget(&self) -> Budget {
        let config = &self.config;
        Budget {
            fuel: config.script_fuel.get(),
            time: Duration::from_millis(config.script_timeout_ms.get()),
            memory_bytes: config.script_memory.get_usize(),
            reply_bytes: config.script_reply_max.get_usize(),
            slice_fuel: config.script_fuel_slice.get(),
        }
    }

    /// What a script with these options may use whose user has these limits. Wishes beyond what these or the configuration allow
    /// are refused.
    pub fn budget_for(&self, options: &Options, limits: &UserLimits) -> Result<Budget, CommandError> {
        let (config, usual) = (&self.config, self.budget());
        let granted =
            |requested: Option<u64>, usual: u64, name: &str, most: u64, setting: &str, limit: Limit| {
                let own = limits.get(limit).unwrap_or(u64::MAX);
                let (most, setting) = if own < most { (own, limit.rule()) } else { (most, setting) };
                match requested {
                    Some(requested) if requested > most => {
                        if requested > own {
                            self.acl.note_limit(limit);
                        }
                        Err(CommandError::owned(format!(
                            "ERR The script requests {name}={requested}, but {setting} allows at most {most}"
                        )))
                    }
                    requested => Ok(requested.unwrap_or(usual.min(own))),
                }
            };
        let most = config.script_fuel_max.get();
        let fuel = granted(options.fuel, usual.fuel, "fuel", most, "script-fuel-max", Limit::FuelPerSecond)?;
        let (most, setting) = (config.script_timeout_max_ms.get(), "script-timeout-max-ms");
        let millis = usual.time.as_millis() as u64;
        let millis = granted(options.timeout_ms, millis, "timeout", most, setting, Limit::ScriptTimeoutMs)?;
        let (most, setting) = (config.script_memory_max.get(), "script-memory-max");
        let bytes = usual.memory_bytes as u64;
        let bytes = granted(options.memory_bytes, bytes, "memory", most, setting, Limit::ScriptMemory)?;
        Ok(Budget {
            fuel,
            time: Duration::from_millis(millis),
            memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            ..usual
        })
    }

    /// How a script is run whose header and flags say `options`: with the configuration's word where they are
    /// silent.
    pub fn complete(&self, options: Options) -> Options {
        let config = &self.config;
        let flags = Flags(options.flags.0 | config.default_script_flags.get());
        let on_error = if config.script_on_error.get() == 0 { OnError::Keep } else { OnError::RollBack };
        let widens = config.undeclared_keys.get() == 0 || flags.has(Flags::ALLOW_UNDECLARED_KEYS);
        let usual = if widens { UndeclaredKeys::Widen } else { UndeclaredKeys::Reject };
        Options {
            flags,
            on_error: options.on_error.or(Some(on_error)),
            undeclared_keys: options.undeclared().or(Some(usual)),
            ..options
        }
    }
}
