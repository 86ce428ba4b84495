//! A store node as a process of its own.

use std::sync::Arc;

use store::Store;
use store::client::PeerCredentials;
use store::server::{Claim, Service, process};
use tokio::runtime::Builder;
use tracing::{info, warn};

use super::errors::StartError;
use super::peers::{Beginning, begin, configure};
use super::replicas;
use super::telemetry::{self, OfNode};
use super::{DRAIN, listen};
use crate::app::report;
use crate::config::{Address, Config, SettingError};
use crate::export::metrics;
use crate::net;
use crate::net::http::Readiness;
use crate::process::persistence::Storage;
use crate::process::service_manager;
use crate::telemetry::counters::{give_back_memory, unix_ms};
use crate::telemetry::spans::Spans;

/// Serves gateways until SIGTERM or SIGINT. With `accept_loss` it does so although data is lost.
pub fn serve(config: Config, accept_loss: bool) -> Result<(), StartError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(config.threads.get_usize())
        .thread_name("store")
        .enable_all()
        .build()
        .map_err(|error| StartError::System("start threads", error))?;
    let result = runtime.block_on(run(&Arc::new(config), accept_loss));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

async fn run(config: &Arc<Config>, accept_loss: bool) -> Result<(), StartError> {
    let beginning = begin(config)?;
    report::of_store(config, beginning.bound);
    match config.data_dir.get().filter(|dir| process::is_founded(dir)) {
        Some(dir) => replicas::serve(config, dir, beginning).await,
        None => run_node(config, accept_loss, beginning).await,
    }
}

/// A node is ready until it shuts down, unless it may be a process with replicas that has lost its data.
fn readiness(claim: Claim, is_open: bool) -> Readiness {
    let why = match claim {
        _ if !is_open => return Readiness::ShuttingDown,
        Claim::None => return Readiness::Ready,
        Claim::MayCome => {
            "this store node has just started without data: it may be a process of a cluster that knows it"
        }
        Claim::Made => {
            "this store node has no data, and a cluster takes it for one of its processes: it is about to join again"
        }
    };
    Readiness::NotYet(why.to_owned())
}

/// Serves one node, which has no replicas. If an operator makes the process, which must have no data, one of a cluster with
/// replicas, it goes on as such a process.
async fn run_node(config: &Arc<Config>, accept_loss: bool, beginning: Beginning) -> Result<(), StartError> {
    let Beginning { mut signals, certificates, credentials, listener, bound } = beginning;
    let storage = Storage::open(config, PeerCredentials::default(), accept_loss)?;
    let Store::Local(node) = storage.store() else {
        return Err(SettingError::new("stores", "cannot be set on a store node").into());
    };
    config.apply_settings_of_data(&node);
    let spans = Spans::new(config.clone());
    let collector = telemetry::open(config, &format!("{:016x}", store::random()), &spans);
    let warning = |text: &str| warn!("{text}");
    let service = Service::new(
        node.clone(),
        credentials.clone(),
        unix_ms,
        configure(config, &node),
        spans.sink(),
        warning,
    );
    let service = service.await.map_err(StartError::Store)?;
    if config.replicated.get() {
        service.wait_for_founding();
    }
    give_back_memory();
    let background = tokio::spawn({
        let (node, config) = (node.clone(), config.clone());
        async move {
            let background = store::background::run(&node, || config.pace(), unix_ms);
            tokio::join!(background, crate::app::background::log_disk_failures(&node))
        }
    });
    let following = tokio::spawn({
        let certificates = certificates.clone();
        async move { certificates.follow().await }
    });
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let serving = service.clone().serve(listener, async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    });
    let mut serving = tokio::spawn(serving);
    let started = std::time::Instant::now();
    let of_node =
        OfNode { config: config.clone(), node: node.clone(), service: service.clone(), spans, started };
    let of_node = Arc::new(of_node);
    let (set_ready, ready) = tokio::sync::watch::channel(true);
    let (mut addresses, mut probes) = (format!("grpc={bound}"), None);
    if let Some(address) = config.http.get() {
        let (listener, bound) = listen("http", &address, config)?;
        addresses.push_str(&format!(" http={bound}"));
        let (of_node, certificates) = (of_node.clone(), certificates.clone());
        let text = move |ready| metrics::render(&of_node.gather(ready));
        let (followed, service) = (ready.clone(), service.clone());
        let readiness = move || readiness(service.claim(), *followed.borrow());
        probes = Some(tokio::spawn(net::http::serve_health(
            config.clone(),
            listener,
            readiness,
            move |stream, _| certificates.wire_of_probe(stream),
            text,
        )));
    }
    let exporting = tokio::spawn(of_node.run(collector, ready));
    service_manager::ready(&format!("moonshard store ready {addresses}"));

    let founded = loop {
        tokio::select! {
            _ = signals.any() => break None,
            (founding, answer) = service.founding_request() => {
                let Some(dir) = config.data_dir.get() else { continue };
                let founded = process::found(&dir, &founding).map_err(|error| error.to_string());
                let is_founded = founded.is_ok();
                // Who asked may have gone; the record is there all the same.
                let _ = answer.send(founded);
                if is_founded {
                    break Some(dir);
                }
            }
            ended = &mut serving => {
                let error = match ended {
                    Ok(Err(error)) => SettingError::new("grpc", error),
                    _ => SettingError::new("grpc", "the gRPC server stopped unexpectedly"),
                };
                return Err(error.into());
            }
        }
    };
    if founded.is_none() {
        service_manager::stopping();
    }
    info!("shutting down: gateways are notified, open transactions are rolled back");
    let _ = set_ready.send(false);
    let _ = stop.send(true);
    if tokio::time::timeout(DRAIN, serving).await.is_err() {
        info!("shutting down: open connections were closed after the grace period");
    }
    background.abort();
    following.abort();
    // It ends when it has sent what was left.
    let _ = exporting.await;
    storage.close(false)?;
    let Some(dir) = founded else { return Ok(()) };
    if let Some(probes) = probes {
        probes.abort();
        // Its port is free then.
        let _ = probes.await;
    }
    let address = config.grpc.get().ok_or(SettingError::new("grpc", "no address is set"))?;
    let (listener, bound) = listen("grpc", &Address { port: bound.port(), ..address }, config)?;
    replicas::serve(config, dir, Beginning { signals, certificates, credentials, listener, bound }).await
}
