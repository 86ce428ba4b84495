//! What a process tells an OpenTelemetry collector, if there is one.

use std::sync::Arc;
use std::time::Instant;

use store::Node;
use store::server::Service;
use tokio::sync::watch;
use tracing::warn;

use crate::config::Config;
use crate::export::metrics::{self, Gathered};
use crate::export::otel::{Collector, send_last, send_metrics, send_spans};
use crate::server::Server;
use crate::telemetry::spans::Spans;

/// The collector, unless there is none or the configuration is wrong, which the log tells then.
fn open(config: &Config, instance: &str) -> Option<Collector> {
    Collector::open(config, instance).unwrap_or_else(|error| {
        warn!("telemetry is not exported: {error}");
        None
    })
}

/// Tells of a server until `going` turns to false, and then what is left.
pub async fn of_server(server: Arc<Server>, mut going: watch::Receiver<bool>) {
    let (Some(collector), Some(outlet)) = (open(&server.config, &server.run_id), server.spans.outlet())
    else {
        return;
    };
    let gather = || metrics::of_server(&server, true);
    tokio::select! {
        () = send_spans(&collector, &server.spans, &outlet) => {}
        () = send_metrics(&collector, &server.config, &server.spans.exports_failed[1], gather) => {}
        _ = going.wait_for(|going| !going) => {}
    }
    send_last(&collector, &outlet, &metrics::of_server(&server, false)).await;
}

/// What a store node tells of itself.
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
    pub async fn run(self: Arc<Self>, mut ready: watch::Receiver<bool>) {
        let instance = format!("{:016x}", store::random());
        let (Some(collector), Some(outlet)) = (open(&self.config, &instance), self.spans.outlet()) else {
            return;
        };
        tokio::select! {
            () = send_spans(&collector, &self.spans, &outlet) => {}
            () = send_metrics(&collector, &self.config, &self.spans.exports_failed[1], || self.gather(true)) => {}
            _ = ready.wait_for(|ready| !ready) => {}
        }
        send_last(&collector, &outlet, &self.gather(false)).await;
    }
}
