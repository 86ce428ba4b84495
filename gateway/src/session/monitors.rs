//! Connections that said MONITOR, which see every call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use store_engine::Args;

use super::client::ClientInfo;
use super::pubsub::PubSub;
use crate::telemetry::arguments::{is_secret, quote};
use crate::telemetry::counters::unix_time;

/// Connections that said MONITOR.
#[derive(Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
}

impl Monitors {
    /// Whether there are any.
    pub fn listen(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// One more.
    pub fn enter(&self, client: &Arc<ClientInfo>) {
        let mut clients = self.clients.lock();
        clients.insert(client.id, client.clone());
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// One less.
    pub fn leave(&self, client: &ClientInfo) {
        let mut clients = self.clients.lock();
        clients.remove(&client.id);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Shows a call of `who` to all, as Redis does. Passwords are not shown.
    pub fn show(&self, pubsub: &PubSub, db: usize, who: &str, args: Args<'_>) {
        let now = unix_time();
        let mut line = format!("+{}.{:06} [{db} {who}]", now.as_secs(), now.subsec_micros());
        for (at, arg) in args.items().iter().enumerate() {
            line.push(' ');
            quote(if is_secret(args, at) { b"(redacted)" } else { arg }, &mut line);
        }
        line.push_str("\r\n");
        let line = Bytes::from(line);
        for client in self.clients.lock().values() {
            pubsub.deliver(client, &line);
        }
    }
}
