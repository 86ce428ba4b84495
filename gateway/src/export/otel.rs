//! Traces and metrics on their way to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! No request waits for the collector. What it does not take is counted and dropped, and one line of the log says that it
//! cannot be reached, and once that it can. Spans go through the batch processor and the exporter of the SDK. The messages
//! of metrics are made here: the SDK's histograms cannot be filled from counters that are there already.

mod collector_log;
mod messages;
mod traces;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tls::{Clients, Files, Tls, TlsError};
use tokio::time::{sleep, timeout};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use self::collector_log::CollectorLog;
use self::traces::Traces;
use crate::config::{Config, SettingError};
use crate::export::metrics::Gathered;
use crate::process::dial::Remote;
use crate::telemetry::counters::unix_time;
use crate::telemetry::spans::{Sink, Spans};

/// How long the collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take when the process is about to end.
const LAST: Duration = Duration::from_secs(2);

/// The way to the collector.
pub struct Collector {
    channel: Channel,
    traces: Arc<Traces>,
    resource: Resource,
    headers: Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>,
    /// Unix time at which counting began.
    since: Duration,
}

impl Collector {
    /// The one that the configuration names, if it does; `spans` go there from now on. `instance` distinguishes this process from
    /// others. Needs a runtime.
    pub fn open(config: &Config, instance: &str, spans: &Spans) -> Result<Option<Collector>, SettingError> {
        let url = config.otel_endpoint.get();
        if url == "none" {
            return Ok(None);
        }
        let wrong =
            |error: &dyn fmt::Display| SettingError::new("otel-endpoint", format_args!("{url}: {error}"));
        let (scheme, address) = url.split_once("://").ok_or_else(|| wrong(&"it has no scheme"))?;
        let address = address.trim_end_matches('/').to_owned();
        let tls =
            if scheme == "https" { Some(Arc::new(tls(config).map_err(|why| wrong(&why))?)) } else { None };
        // Whatever is spoken beneath: the way there is known here.
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| wrong(&error))?;
        let origin = url.parse().map_err(|error| wrong(&error))?;
        let endpoint = endpoint.origin(origin).timeout(TIMEOUT).connect_timeout(TIMEOUT);
        let channel = Remote { address, name: None, tls }.channel(endpoint);
        let mut attributes = pairs("OTEL_RESOURCE_ATTRIBUTES");
        for (name, value) in [
            ("service.name", config.otel_service_name.get()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", instance.to_owned()),
        ] {
            attributes.retain(|(known, _)| known != name);
            attributes.push((name.to_owned(), value));
        }
        let header = |(name, value): (String, String)| {
            let known = MetadataKey::from_str(&name).ok().zip(MetadataValue::try_from(value).ok());
            known.ok_or_else(|| {
                SettingError::new("OTEL_EXPORTER_OTLP_HEADERS", format_args!("{name} is not a valid header"))
            })
        };
        let headers =
            pairs("OTEL_EXPORTER_OTLP_HEADERS").into_iter().map(header).collect::<Result<_, _>>()?;
        let exported = Traces::new(channel.clone(), TIMEOUT, &attributes, spans.counts.clone());
        let traces = Arc::new(exported.map_err(|error| wrong(&error))?);
        let takes = traces.clone();
        spans.go_to(Sink::new(move |span| takes.end(span)));
        let resource = messages::resource(attributes);
        Ok(Some(Collector { channel, traces, resource, headers, since: unix_time() }))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }

    async fn send_metrics(&self, gathered: &Gathered) -> Result<(), Status> {
        let request = self.request(messages::metrics(&self.resource, gathered, self.since, unix_time()));
        MetricsServiceClient::new(self.channel.clone()).export(request).await.map(drop)
    }
}

/// How the collector is known: by roots of its own, or by those for everybody. If it asks, it is shown the certificate that
/// all others are shown.
fn tls(config: &Config) -> Result<Tls, CollectorTlsError> {
    let roots = config.otel_ca_cert_file.get().or_else(|| config.tls_ca_cert_file.get());
    if roots.is_none() {
        return Err(CollectorTlsError::NoAuthorities);
    }
    let own = config.tls_cert_file.get().zip(config.tls_key_file.get());
    Tls::load(Files { own, roots, clients: Clients::Anyone }).map_err(CollectorTlsError::Files)
}

/// Why the collector cannot be spoken to over TLS.
enum CollectorTlsError {
    /// Nothing says who may have signed its certificate.
    NoAuthorities,
    /// The files cannot be used.
    Files(TlsError),
}

impl fmt::Display for CollectorTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectorTlsError::NoAuthorities => {
                f.write_str("otel-ca-cert-file or tls-ca-cert-file is required to verify its certificate")
            }
            CollectorTlsError::Files(error) => error.fmt(f),
        }
    }
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

/// Sends what is left when the process is about to end, if the collector is quick.
pub async fn send_last(collector: &Collector, gathered: &Gathered) {
    let traces = collector.traces.clone();
    let last = async {
        let _ = collector.send_metrics(gathered).await;
        // It waits for the thread that exports.
        let _ = tokio::task::spawn_blocking(move || traces.end_all(LAST)).await;
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
    let collector_log = CollectorLog::new("metrics");
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
        collector_log.note(failures, sent.err().map(|status| reason(&status)));
    }
}
