//! Traces and metrics on their way to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! Nobody waits for the collector. What it does not take is counted and forgotten, and the log tells once that it
//! cannot be reached, and once that it can. The messages are those of `opentelemetry-proto`: spans and counters of our
//! own cost less on the way of a request than those of the SDK, whose queue hides what it drops and whose histograms
//! cannot be filled from counters that are there already.

mod codec;
mod wire;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tls::{Clients, Files, Tls};
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tracing::{info, warn};

use crate::config::Config;
use crate::export::metrics::Gathered;
use crate::process::channel::Remote;
use crate::telemetry::counters::unix_time;
use crate::telemetry::spans::{Batch, Outlet, Spans};

/// The method that takes spans.
const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// How long a few spans wait for more.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take when the process is about to end.
const LAST: Duration = Duration::from_secs(2);

/// The way to the collector.
#[derive(Clone)]
pub struct Collector {
    channel: Channel,
    resource: Resource,
    headers: Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>,
    /// Unix time at which counting began.
    since: Duration,
}

impl Collector {
    /// The one that the configuration names, if it does. `instance` tells this process from others. Needs a runtime.
    pub fn open(config: &Config, instance: &str) -> Result<Option<Collector>, String> {
        let url = config.otel_endpoint.get();
        if url == "none" {
            return Ok(None);
        }
        let wrong = |error: &dyn std::fmt::Display| format!("otel-endpoint: {url}: {error}");
        let (scheme, address) = url.split_once("://").ok_or_else(|| wrong(&"it has no scheme"))?;
        let address = address.trim_end_matches('/').to_owned();
        let tls =
            if scheme == "https" { Some(Arc::new(tls(config).map_err(|why| wrong(&why))?)) } else { None };
        // Whatever is spoken beneath: the way there is known here.
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| wrong(&error))?;
        let origin = url.parse().map_err(|error| wrong(&error))?;
        let endpoint = endpoint.origin(origin).timeout(TIMEOUT).connect_timeout(TIMEOUT);
        let channel = Remote { address, name: None, tls }.channel(endpoint);
        let mut facts = pairs("OTEL_RESOURCE_ATTRIBUTES");
        for (name, value) in [
            ("service.name", config.otel_service_name.get()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", instance.to_owned()),
        ] {
            facts.retain(|(known, _)| known != name);
            facts.push((name.to_owned(), value));
        }
        let header = |(name, value): (String, String)| {
            let known = MetadataKey::from_str(&name).ok().zip(MetadataValue::try_from(value).ok());
            known.ok_or_else(|| format!("OTEL_EXPORTER_OTLP_HEADERS: {name} is not a valid header"))
        };
        let headers =
            pairs("OTEL_EXPORTER_OTLP_HEADERS").into_iter().map(header).collect::<Result<_, _>>()?;
        Ok(Some(Collector { channel, resource: wire::resource(facts), headers, since: unix_time() }))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }

    async fn send_spans(&self, batch: &Batch) -> Result<(), Status> {
        let mut collector = Grpc::new(self.channel.clone());
        collector.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let request = self.request(wire::traces(&self.resource, batch));
        let codec = codec::Written::<ExportTraceServiceResponse>::default();
        collector.unary(request, PathAndQuery::from_static(TRACES), codec).await.map(drop)
    }

    async fn send_metrics(&self, gathered: &Gathered) -> Result<(), Status> {
        let request = self.request(wire::metrics(&self.resource, gathered, self.since, unix_time()));
        MetricsServiceClient::new(self.channel.clone()).export(request).await.map(drop)
    }
}

/// How the collector is known: by roots of its own, or by those for everybody. If it asks, it is shown the certificate that
/// all others are shown.
fn tls(config: &Config) -> Result<Tls, String> {
    let roots = config.otel_ca_cert_file.get().or_else(|| config.tls_ca_cert_file.get());
    if roots.is_none() {
        return Err("otel-ca-cert-file or tls-ca-cert-file is required to verify its certificate".to_owned());
    }
    let own = config.tls_cert_file.get().zip(config.tls_key_file.get());
    Tls::load(Files { own, roots, clients: Clients::Anyone })
}

/// What a variable says in the form `name=value,name=value`.
fn pairs(variable: &str) -> Vec<(String, String)> {
    let text = std::env::var(variable).unwrap_or_default();
    let decoded =
        |part: &str| percent_encoding::percent_decode_str(part.trim()).decode_utf8_lossy().into_owned();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value))).collect()
}

/// What is behind a failure that may only say that there is one.
fn reason(status: &Status) -> String {
    let mut deepest: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(source) = deepest.and_then(std::error::Error::source) {
        deepest = Some(source);
    }
    deepest.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

/// Tells the log when the collector is lost and found.
struct Telling {
    signal: &'static str,
    lost: bool,
}

impl Telling {
    /// An export has ended so.
    fn note(&mut self, failures: &AtomicU64, sent: Result<(), Status>) -> bool {
        match sent {
            Ok(()) => {
                if std::mem::take(&mut self.lost) {
                    info!("the collector accepts {} again", self.signal);
                }
                true
            }
            Err(status) => {
                failures.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.lost, true) {
                    warn!("the collector does not accept {}: {}", self.signal, reason(&status));
                }
                false
            }
        }
    }
}

/// Sends spans for as long as it is polled.
pub async fn send_spans(collector: &Collector, spans: &Spans, outlet: &Outlet) {
    let mut telling = Telling { signal: "traces", lost: false };
    loop {
        let _ = timeout(PATIENCE, outlet.filled()).await;
        if let Some(batch) = outlet.take() {
            let took = telling.note(&spans.exports_failed[0], collector.send_spans(&batch).await);
            let counter = if took { &spans.sent } else { &spans.failed };
            counter.fetch_add(batch.spans, Ordering::Relaxed);
        }
    }
}

/// Sends what is left when the process is about to end, if the collector is quick.
pub async fn send_last(collector: &Collector, outlet: &Outlet, gathered: &Gathered) {
    let last = async {
        let _ = collector.send_metrics(gathered).await;
        while let Some(batch) = outlet.take() {
            if collector.send_spans(&batch).await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(LAST, last).await;
}

/// Sends metrics for as long as it is polled, as often as the configuration says.
pub async fn send_metrics(
    collector: &Collector,
    config: &Arc<Config>,
    failures: &AtomicU64,
    gather: impl Fn() -> Gathered,
) {
    /// How often it is looked whether the interval has changed.
    const LOOK: Duration = Duration::from_secs(1);
    let mut telling = Telling { signal: "metrics", lost: false };
    let mut last = Instant::now();
    loop {
        let interval = Duration::from_millis(config.otel_metrics_interval_ms.get());
        let left = interval.saturating_sub(last.elapsed());
        if interval.is_zero() || !left.is_zero() {
            sleep(if interval.is_zero() { LOOK } else { left.min(LOOK) }).await;
            continue;
        }
        last = Instant::now();
        let sent = collector.send_metrics(&gather()).await;
        telling.note(failures, sent);
    }
}
