//! What a process tells an OpenTelemetry collector, if there is one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use store::Node;
use tokio::sync::watch;

use crate::config::Config;
use crate::log;
use crate::metrics;
use crate::otel::{Collector, send_last, send_metrics, send_spans};
use crate::server::Server;

/// The collector, unless there is none or the configuration is wrong, which the log tells then.
fn open(config: &Config, instance: &str) -> Option<Collector> {
    Collector::open(config, instance).unwrap_or_else(|error| {
        log::warning(&format!("nothing is told to a collector: {error}"));
        None
    })
}

/// Tells of a server until `going` turns to false, and then what is left.
pub async fn of_server(server: Arc<Server>, mut going: watch::Receiver<bool>) {
    let (Some(collector), Some(mut queue)) = (open(&server.config, &server.run_id), server.spans.take())
    else {
        return;
    };
    let gather = || metrics::of_server(&server, true);
    tokio::select! {
        () = send_spans(&collector, &server.spans, &mut queue) => {}
        () = send_metrics(&collector, &server.config, &server.spans.exports_failed[1], gather) => {}
        _ = going.wait_for(|going| !going) => {}
    }
    send_last(&collector, &mut queue, &metrics::of_server(&server, false)).await;
}

/// Tells of a store node, which began to serve then, until it is not ready any more.
pub async fn of_node(
    config: Arc<Config>,
    node: Arc<Node>,
    started: Instant,
    mut ready: watch::Receiver<bool>,
) {
    let Some(collector) = open(&config, &format!("{:016x}", store::server::random())) else { return };
    let gather = |ready| metrics::of_node(&node, started, ready, config.maxmemory.get());
    let failures = AtomicU64::new(0);
    tokio::select! {
        () = send_metrics(&collector, &config, &failures, || gather(true)) => {}
        _ = ready.wait_for(|ready| !ready) => {}
    }
    let (_, mut none) = tokio::sync::mpsc::channel(1);
    send_last(&collector, &mut none, &gather(false)).await;
}
