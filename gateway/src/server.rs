//! What all parts of the gateway share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use script::{AnyHost, Budget, Runtime};
use store::Node;

use crate::config::Config;
use crate::observe::Counters;
use crate::registry::Registry;
use crate::scripts::Scripts;
use crate::session::ClientInfo;

/// The gateway's shared state.
pub struct Server {
    /// Settings.
    pub config: Arc<Config>,
    /// The data.
    pub node: Arc<Node>,
    /// All commands.
    pub registry: Registry,
    /// Runs scripts. The hosts are those of `coordinate`, which is above this module: hence their type is hidden.
    pub runtime: Arc<Runtime<AnyHost>>,
    /// Known scripts.
    pub scripts: Scripts,
    /// Where runs go on that outlast their first slice of fuel, so that no connection's thread is held.
    pub compute: tokio::runtime::Handle,
    /// Counters for INFO.
    pub counters: Counters,
    /// Connected clients by number.
    pub clients: Mutex<HashMap<u64, Arc<ClientInfo>>>,
    /// Where RESP is served.
    pub resp_addr: SocketAddr,
    /// When the process began to serve.
    pub started: Instant,
    /// Distinguishes this process from others: INFO's `run_id`.
    pub run_id: String,
    next_client: AtomicU64,
}

/// What [`Server::new`] is made from.
pub struct Parts {
    /// Settings.
    pub config: Arc<Config>,
    /// The data.
    pub node: Arc<Node>,
    /// All commands.
    pub registry: Registry,
    /// Runs scripts.
    pub runtime: Runtime<AnyHost>,
    /// The runtime for long scripts.
    pub compute: tokio::runtime::Handle,
    /// Where RESP is served.
    pub resp_addr: SocketAddr,
}

impl Server {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Arc<Server> {
        let Parts { config, node, registry, runtime, compute, resp_addr } = parts;
        let id = crate::scripts::sha_of(
            format!("{:?}{}", crate::observe::unix_time(), std::process::id()).as_bytes(),
        );
        Arc::new(Server {
            scripts: Scripts::new(),
            config,
            node,
            registry,
            runtime: Arc::new(runtime),
            compute,
            counters: Counters::default(),
            clients: Mutex::default(),
            resp_addr,
            started: Instant::now(),
            run_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            next_client: AtomicU64::new(1),
        })
    }

    /// A number for a new connection.
    pub fn next_client(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// What a script may use now.
    pub fn budget(&self) -> Budget {
        let config = &self.config;
        Budget {
            fuel: config.script_fuel.get(),
            time: Duration::from_millis(config.script_timeout_ms.get()),
            memory_bytes: config.script_memory.get_usize(),
            reply_bytes: config.script_reply_max.get_usize(),
        }
    }
}
