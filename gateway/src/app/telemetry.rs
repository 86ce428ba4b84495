//! What a process sends to an OpenTelemetry collector, if there is one.

use std::sync::Arc;
use std::time::Instant;

use store::Node;
use store::server::Service;
use tokio::sync::watch;
use tracing::warn;

use crate::config::Config;
use crate::export::metrics::{self, Gathered};
use crate::export::otel::{Collector, send_last, send_metrics};
use crate::server::Server;
use crate::telemetry::spans::Spans;

/// The collector, unless there is none or the configuration is wrong, which is logged; `spans` go there from now
/// on. `instance` is the name of this process.
pub fn open(config: &Config, instance: &str, spans: &Spans) -> Option<Collector> {
    Collector::open(config, instance, spans).unwrap_or_else(|error| {
        warn!("telemetry is not exported: {error}");
        None
    })
}

/// Tells of a server until `going` turns to false, and then what is left.
pub async fn of_server(server: Arc<Server>, collector: Option<Collector>, mut going: watch::Receiver<bool>) {
    let Some(collector) = collector else { return };
    let gather = || metrics::of_server(&server, true);
    tokio::select! {
        () = send_metrics(&collector, &server.config, &server.telemetry.spans.counts.exports_failed[1], gather) => {}
        _ = going.wait_for(|going| !going) => {}
    }
    send_last(&collector, &metrics::of_server(&server, false)).await;
}

/// What a store node reports.
pub struct OfNode {
    /// Its parameters.
    pub config: Arc<Config>,
    /// Its data.
    pub node: Arc<Node>,
    /// Who serves it.
    pub service: Service,
    /// What it does for requests that are traced.
    pub spans: Spans,
    /// When it began to serve.
    pub started: Instant,
}

impl OfNode {
    /// Its metrics.
    pub fn gather(&self, ready: bool) -> Gathered {
        let OfNode { config, node, service, spans, started } = self;
        metrics::of_node(node, service, spans, *started, ready, config.maxmemory.get())
    }

    /// Tells of it until it is not ready any more, and then what is left.
    pub async fn run(self: Arc<Self>, collector: Option<Collector>, mut ready: watch::Receiver<bool>) {
        let Some(collector) = collector else { return };
        tokio::select! {
            () = send_metrics(&collector, &self.config, &self.spans.counts.exports_failed[1], || self.gather(true)) => {}
            _ = ready.wait_for(|ready| !ready) => {}
        }
        send_last(&collector, &self.gather(false)).await;
    }
}
