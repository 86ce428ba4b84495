//! A process with replicas of the groups of a cluster.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use store::Node;
use store::server::Configure;
use store::server::process::{Companion, Process, ProcessSettings};
use tracing::{info, warn};

use super::errors::StartError;
use super::peers::{Beginning, configure};
use super::{DRAIN, listen};
use crate::config::{Address, Config, SettingError};
use crate::export::metrics;
use crate::net;
use crate::net::http::Readiness;
use crate::process::service_manager;
use crate::telemetry::counters::{give_back_memory, unix_ms};
use crate::telemetry::spans::Spans;

/// What this program adds to a node that leads.
struct OfProgram(Arc<Config>);

impl Companion for OfProgram {
    fn configure(&self, node: &Arc<Node>) -> Configure {
        self.0.apply_settings_of_data(node);
        configure(&self.0, node)
    }

    fn copy_rate(&self) -> u64 {
        self.0.replica_copy_rate.get()
    }

    fn background(&self, node: Arc<Node>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let config = self.0.clone();
        Box::pin(async move {
            let background = store::background::run(&node, || config.pace(), unix_ms);
            tokio::join!(background, crate::app::background::log_disk_failures(&node));
        })
    }
}

/// A process with replicas is ready when these have caught up, until it shuts down.
fn readiness(process: &Process, is_open: bool) -> Readiness {
    match process.readiness() {
        _ if !is_open => Readiness::ShuttingDown,
        Ok(()) => Readiness::Ready,
        Err(why) => Readiness::NotYet(why.to_string()),
    }
}

/// Takes part in the groups of the cluster until a signal comes. If the cluster is recovered as another one, it starts again as a
/// process of that one.
pub async fn serve(config: &Arc<Config>, dir: PathBuf, mut beginning: Beginning) -> Result<(), StartError> {
    while let Some(next) = take_part(config, dir.clone(), beginning).await? {
        beginning = next;
    }
    Ok(())
}

/// Takes part until a signal comes, or the process is to start again: what that begins with.
async fn take_part(
    config: &Arc<Config>,
    dir: PathBuf,
    beginning: Beginning,
) -> Result<Option<Beginning>, StartError> {
    let Beginning { mut signals, certificates, credentials, listener, bound } = beginning;
    let spans = Spans::new(config.clone());
    let settings = ProcessSettings {
        dir,
        shards: config.shards.get_usize(),
        zone: Some(config.zone.get()).filter(|zone| zone != "none").unwrap_or_default(),
        reads: config.reads.get(),
        credentials: credentials.clone(),
        clock: unix_ms,
        sink: spans.sink(),
        warn: |text| warn!("{text}"),
        companion: Box::new(OfProgram(config.clone())),
    };
    let process = Process::start(settings).map_err(StartError::Replicas)?;
    give_back_memory();
    info!("process {} of the cluster {:016x}", process.number(), process.groups().cluster);
    let following = tokio::spawn({
        let certificates = certificates.clone();
        async move { certificates.follow().await }
    });
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let mut serving = tokio::spawn(process.clone().serve(listener, async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    }));
    let (set_open, open) = tokio::sync::watch::channel(true);
    let (mut addresses, mut probes) = (format!("grpc={bound}"), None);
    if let Some(address) = config.http.get() {
        let (listener, bound) = listen("http", &address, config)?;
        addresses.push_str(&format!(" http={bound}"));
        let (started, config_of_metrics) = (Instant::now(), config.clone());
        let readiness = {
            let process = process.clone();
            move || readiness(&process, *open.borrow())
        };
        let process = process.clone();
        let text = move |ready| {
            let most = config_of_metrics.maxmemory.get();
            metrics::render(&metrics::of_replicas(&process, &spans, started, ready, most))
        };
        let certificates = certificates.clone();
        probes = Some(tokio::spawn(net::http::serve_health(
            config.clone(),
            listener,
            readiness,
            move |stream, _| certificates.wire_of_probe(stream),
            text,
        )));
    }
    service_manager::ready(&format!("moonshard store ready {addresses}"));
    let is_recovered = tokio::select! {
        _ = signals.any() => false,
        () = process.recovered() => true,
        ended = &mut serving => {
            let error = match ended {
                Ok(Err(error)) => SettingError::new("grpc", error),
                _ => SettingError::new("grpc", "the gRPC server stopped unexpectedly"),
            };
            return Err(error.into());
        }
    };
    if !is_recovered {
        service_manager::stopping();
    }
    info!(
        "{}: gateways are notified, the groups that this process leads get other leaders",
        if is_recovered { "the cluster was recovered, starting again" } else { "shutting down" }
    );
    let _ = set_open.send(false);
    let _ = stop.send(true);
    if tokio::time::timeout(2 * DRAIN, serving).await.is_err() {
        info!("shutting down: open connections were closed after the grace period");
    }
    following.abort();
    if !is_recovered {
        return Ok(None);
    }
    if let Some(probes) = probes {
        probes.abort();
        // Its port is free then.
        let _ = probes.await;
    }
    process.close();
    let address = config.grpc.get().ok_or(SettingError::new("grpc", "no address is set"))?;
    let (listener, bound) = listen("grpc", &Address { port: bound.port(), ..address }, config)?;
    Ok(Some(Beginning { signals, certificates, credentials, listener, bound }))
}
