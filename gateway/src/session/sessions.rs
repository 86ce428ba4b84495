//! The sessions of all clients together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::client::ClientInfo;
use super::following::{Following, Mode};
use super::maintenance::{self, NOTICE};
use super::memory::ClientMemory;
use super::monitors::Monitors;
use super::pause::Pause;
use super::pubsub::PubSub;
use super::tracking::Tracking;
use crate::acl::Account;
use crate::config::Config;
use crate::config::cell::OutputLimit;
use crate::telemetry::counters::unix_ms;

/// All clients, and what they share.
pub struct Sessions {
    /// Connected clients by number.
    pub clients: Mutex<HashMap<u64, Arc<ClientInfo>>>,
    /// What clients make the server hold.
    pub memory: Arc<ClientMemory>,
    /// Who listens to channels.
    pub pubsub: PubSub,
    /// Who keeps copies of what.
    pub tracking: Tracking,
    /// Who watches what is asked.
    pub monitors: Monitors,
    /// Whether clients have to wait.
    pub pause: Pause,
    /// Whether another server says what the data is.
    pub following: Following,
    next_client: AtomicU64,
}

impl Sessions {
    /// No client is connected.
    pub fn new(config: &Arc<Config>) -> Sessions {
        Sessions {
            clients: Mutex::default(),
            memory: ClientMemory::new(config.clone()),
            pubsub: PubSub::new(config.clone()),
            tracking: Tracking::new(config.clone()),
            monitors: Monitors::default(),
            pause: Pause::default(),
            following: Following::default(),
            next_client: AtomicU64::new(1),
        }
    }

    /// A client with a number of its own that comes from `addr` and has arrived at `laddr`. It is not listed yet.
    pub fn new_client(&self, addr: String, laddr: String, account: Arc<Account>) -> Arc<ClientInfo> {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        ClientInfo::new(id, addr, laddr, account, self.memory.clone())
    }

    /// Whether keys that have expired stay, although clients do not find them.
    pub fn holds_expired(&self) -> bool {
        self.following.mode() != Mode::Primary || (self.pause.is_on() && self.pause.holds(true))
    }

    /// The connected client of this number.
    pub fn client(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.clients.lock().get(&id).cloned()
    }

    /// Notifies all clients that want it, over RESP3, that the server stops. Before their connections see that it does.
    pub fn announce_stop(&self, limit: &OutputLimit) {
        let message = maintenance::moving(unix_ms(), NOTICE);
        for client in self.clients.lock().values() {
            if client.maintenance.is_wanted() && client.pushes.is_resp3() {
                client.maintenance.begin();
                client.pushes.push(&message, limit);
                client.pushes.expect();
            }
        }
    }

    /// Bytes that the clients make the server hold together.
    pub fn client_bytes(&self) -> usize {
        self.clients.lock().values().map(|client| client.total_bytes()).sum()
    }
}
