//! What goes on beside requests: the node's own work on the data, and news from nodes elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use store::client::LinkError;
use store::{Cluster, Node, Store, background};
use tracing::{info, warn};

use crate::commands::reload::reload;
use crate::config::Config;
use crate::server::Server;
use crate::telemetry::counters::{Counters, unix_ms};
use crate::telemetry::rates::{Looks, SAMPLE_INTERVAL};

/// Runs for as long as the server.
pub async fn run(server: Arc<Server>) {
    tokio::join!(
        server.process.certificates.follow(),
        sample_rates(&server),
        bound_clients(&server),
        of_data(&server)
    );
}

/// Looks now and then how fast things go, and how much memory the data takes.
async fn sample_rates(server: &Server) {
    let mut looks = Looks::default();
    loop {
        let Counters { commands, bytes_in, bytes_out, .. } = &server.telemetry.counters;
        let sums = [commands, bytes_in, bytes_out].map(|sum| sum.load(Ordering::Relaxed));
        server.telemetry.rate_sampler.look(&mut looks, Instant::now(), sums);
        server.telemetry.rate_sampler.peak(server.store.usage().bytes as u64);
        tokio::time::sleep(SAMPLE_INTERVAL).await;
    }
}

/// After clients were looked at one by one, they are not for so long: whatever they do, that takes little of the time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Disconnects clients that hold too much together: when some have reported it, and now and then, since what many hold
/// of which each is little is not reported.
async fn bound_clients(server: &Server) {
    loop {
        let _ = tokio::time::timeout(SAMPLE_INTERVAL, server.sessions.memory.exceeded()).await;
        server.evict_clients();
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

async fn of_data(server: &Server) {
    match &server.store {
        Store::Local(node) => {
            tokio::join!(background::run(node, || pace(server, node), unix_ms), log_disk_failures(node));
        }
        Store::Distributed(cluster) => {
            tokio::join!(follow_catalog(server, cluster), log_links(cluster));
        }
    }
}

/// Logs when the data directory cannot be written, and when it can be again.
pub async fn log_disk_failures(node: &Node) {
    let Some(journal) = node.journal() else { return };
    let mut is_failing = false;
    loop {
        let failure = journal.failure_change(is_failing).await;
        is_failing = failure.is_some();
        match failure {
            Some(failure) => {
                info!("the data directory cannot be written, changes are refused: {}", failure.detail)
            }
            None => info!("the data directory can be written again"),
        }
    }
}

/// As in Redis nothing expires while clients are paused, or while another server says what expires. That the time of a pause
/// is over is noticed here.
fn pace(server: &Server, node: &Node) -> background::ExpiryPace {
    let is_held = server.sessions.holds_expired();
    node.hold_expired(is_held);
    let pace = server.config.pace();
    if is_held { background::ExpiryPace { budget: Duration::ZERO, ..pace } } else { pace }
}

impl Config {
    /// How much time goes into the removal of expired keys.
    pub fn pace(&self) -> background::ExpiryPace {
        let tick = Duration::from_millis(1000 / self.hz.get().max(1));
        let percent = 23 + 2 * self.active_expire_effort.get();
        background::ExpiryPace { tick, budget: tick * u32::try_from(percent).unwrap_or(100) / 100 }
    }
}

/// How often it is tried to read the catalog, while that fails.
const AGAIN: Duration = Duration::from_millis(100);
/// How often the catalog is read without a notification of a change: a link that was broken misses those.
const ANYWAY: Duration = Duration::from_secs(10);

/// Learns of the scripts and libraries that other gateways load.
async fn follow_catalog(server: &Server, cluster: &Cluster) {
    let mut changes = cluster.catalog_changes();
    loop {
        let wait = match reload(server).await {
            Ok(()) => ANYWAY,
            Err(_) => AGAIN,
        };
        let _ = tokio::time::timeout(wait, changes.changed()).await;
    }
}

/// How often it is looked whether store nodes are reached.
const LOOK: Duration = Duration::from_millis(250);

/// Writes to the log which store nodes cannot be used, and why, whenever that changes. Each outage is one warning.
async fn log_links(cluster: &Cluster) {
    let mut logged = Vec::new();
    loop {
        let links = cluster.links();
        logged.resize(links.len(), (Ok(()), false));
        for (link, (logged, is_warned)) in links.iter().zip(&mut logged) {
            let state = link.is_up();
            if state == *logged {
                continue;
            }
            match &state {
                Ok(()) => {
                    info!("store node {} is reachable", link.address());
                    *is_warned = false;
                }
                // One that has just been opened is no outage yet.
                Err(why) if *is_warned || *why == LinkError::NotConnected => {
                    info!("store node {} cannot be used: {why}", link.address());
                }
                Err(why) => {
                    warn!("store node {} cannot be used: {why}", link.address());
                    *is_warned = true;
                }
            }
            *logged = state;
        }
        tokio::time::sleep(LOOK).await;
    }
}
