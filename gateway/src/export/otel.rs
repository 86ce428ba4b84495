//! Traces and metrics on their way to an OpenTelemetry collector, by OTLP.
//!
//! No request waits for the collector. What it does not take is counted and dropped, and one line of the log says that it
//! cannot be reached, and once that it can. Spans go through the batch processor of the SDK. The messages of metrics are made
//! here: the SDK's histograms cannot be filled from counters that are there already.

mod collector_log;
mod messages;
mod traces;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tls::{Clients, Files, Roots, Tls, TlsError};
use tokio::time::{sleep, timeout};

use self::collector_log::CollectorLog;
use self::traces::Traces;
use self::transport::{Signal, Transport, Way};
use crate::config::{Config, OtlpProtocol, SettingError, Url};
use crate::export::metrics::Gathered;
use crate::process::dial::Remote;
use crate::telemetry::counters::unix_time;
use crate::telemetry::spans::{Sink, Spans};

/// How long what the collector does not take is sent again. Metrics only until there are newer ones.
const RETRY: Duration = Duration::from_secs(30);
/// How long the collector may take when the process is about to end.
const LAST: Duration = Duration::from_secs(2);

/// The way to the collector.
pub struct Collector {
    transport: Arc<Transport>,
    traces: Arc<Traces>,
    resource: Resource,
    /// Unix time at which counting began.
    since: Duration,
}

impl Collector {
    /// The one that the configuration names, if it does; `spans` go there from now on. `instance` distinguishes this process from
    /// others. Needs a runtime.
    pub fn open(config: &Config, instance: &str, spans: &Spans) -> Result<Option<Collector>, SettingError> {
        let text = config.otel_endpoint.get();
        if text == "none" {
            return Ok(None);
        }
        let wrong =
            |error: &dyn fmt::Display| SettingError::new("otel-endpoint", format_args!("{text}: {error}"));
        let url = Url::parse(&text).ok_or_else(|| wrong(&"it is no URL"))?;
        let protocol = config.otel_protocol.get();
        if protocol == OtlpProtocol::Grpc && !url.path.is_empty() {
            return Err(wrong(&"a path requires otel-protocol http/protobuf"));
        }
        let tls = if url.is_secure { Some(Arc::new(tls(config).map_err(|why| wrong(&why))?)) } else { None };
        let remote = Remote { address: url.address.to_string(), name: None, tls };
        let compression = config.otel_compression.get();
        let transport = Transport::new(Way { url, remote, protocol, compression, headers: headers()? });
        let transport = Arc::new(transport.map_err(|error| wrong(&error))?);
        let mut attributes = pairs("OTEL_RESOURCE_ATTRIBUTES");
        for (name, value) in [
            ("service.name", config.otel_service_name.get()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", instance.to_owned()),
        ] {
            attributes.retain(|(known, _)| known != name);
            attributes.push((name.to_owned(), value));
        }
        let resource = messages::resource(attributes);
        let traces = Arc::new(Traces::new(transport.clone(), RETRY, resource.clone(), spans.counts.clone()));
        let takes = traces.clone();
        spans.go_to(Sink::new(move |span| takes.end(span)));
        Ok(Some(Collector { transport, traces, resource, since: unix_time() }))
    }

    async fn send_metrics(&self, gathered: &Gathered, limit: Duration) -> Result<(), String> {
        let message = messages::metrics(&self.resource, gathered, self.since, unix_time());
        self.transport.send(Signal::Metrics, self.transport.pack(&message), limit).await
    }
}

/// How the collector is known: by roots of its own, by those for everybody, or by those of the system. If it asks, it is shown
/// the certificate that all others are shown.
fn tls(config: &Config) -> Result<Tls, TlsError> {
    let roots = match config.otel_ca_cert_file.get().or_else(|| config.tls_ca_cert_file.get()) {
        Some(file) => Roots::File(file),
        None => Roots::of_system()?,
    };
    let own = config.tls_cert_file.get().zip(config.tls_key_file.get());
    Tls::load(Files { own, roots: Some(roots), clients: Clients::Anyone })
}

/// What each message has besides.
fn headers() -> Result<HeaderMap, SettingError> {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let header = |(name, value): (String, String)| {
        let known = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(value).ok());
        known.ok_or_else(|| SettingError::new(VARIABLE, format_args!("{name} is not a valid header")))
    };
    pairs(VARIABLE).into_iter().map(header).collect()
}

/// What a variable says in the form `name=value,name=value`.
fn pairs(variable: &str) -> Vec<(String, String)> {
    let text = std::env::var(variable).unwrap_or_default();
    let decoded =
        |part: &str| percent_encoding::percent_decode_str(part.trim()).decode_utf8_lossy().into_owned();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value))).collect()
}

/// Sends what is left when the process is about to end, if the collector is quick.
pub async fn send_last(collector: &Collector, gathered: &Gathered) {
    collector.transport.end();
    let traces = collector.traces.clone();
    let metrics = collector.send_metrics(gathered, Duration::ZERO);
    // It waits for the thread that exports.
    let traces = tokio::task::spawn_blocking(move || traces.end_all(LAST));
    let _ = timeout(LAST, async { tokio::join!(metrics, traces) }).await;
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
        let sent = collector.send_metrics(&gather(), interval.min(RETRY)).await;
        collector_log.note(failures, sent.err());
    }
}
