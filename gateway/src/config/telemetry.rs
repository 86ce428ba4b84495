//! Parameters about what the server tells of itself.

use super::kind::{Form, Kind};
use super::table::{Fallback, Parameter};

/// What SLOWLOG notes.
pub const SLOWLOG_SLOWER_THAN: Parameter = Parameter {
    name: "slowlog-log-slower-than",
    kind: Kind::OrNever(|c| &c.slowlog_log_slower_than),
    default: Fallback::Text("10000"),
    live: true,
    doc: "Microseconds after which a call is noted in SLOWLOG; -1 is never.",
};

/// How much of it.
pub const SLOWLOG_MAX_LEN: Parameter = Parameter {
    name: "slowlog-max-len",
    kind: Kind::Integer(0..=1_000_000, |c| &c.slowlog_max_len),
    default: Fallback::Text("128"),
    live: true,
    doc: "Calls that SLOWLOG remembers.",
};

/// What LATENCY notes.
pub const LATENCY_MONITOR: Parameter = Parameter {
    name: "latency-monitor-threshold",
    kind: Kind::Integer(0..=i64::MAX, |c| &c.latency_monitor_threshold),
    default: Fallback::Text("0"),
    live: true,
    doc: "Milliseconds after which a call is noted in LATENCY; 0 is never.",
};

/// Whether times of calls are kept.
pub const LATENCY_TRACKING: Parameter = Parameter {
    name: "latency-tracking",
    kind: Kind::Word("no|yes", |c| &c.latency_tracking),
    default: Fallback::Text("yes"),
    live: true,
    doc: "Whether it is measured how long calls take, for INFO latencystats, LATENCY HISTOGRAM and metrics.",
};

/// What of these INFO tells.
pub const PERCENTILES: Parameter = Parameter {
    name: "latency-tracking-info-percentiles",
    kind: Kind::Text(Form::Percentiles, |c| &c.latency_tracking_info_percentiles),
    default: Fallback::Text("50 99 99.9"),
    live: true,
    doc: "Percentiles that INFO latencystats tells.",
};

/// How log lines look.
pub const LOG_FORMAT: Parameter = Parameter {
    name: "log-format",
    kind: Kind::Word("pretty|json", |c| &c.log_format),
    default: Fallback::Text("pretty"),
    live: true,
    doc: "How log lines on standard error look: for people, or as an object of JSON each.",
};

/// Which log lines there are.
pub const LOG_LEVEL: Parameter = Parameter {
    name: "log-level",
    kind: Kind::Word("debug|info|warning", |c| &c.log_level),
    default: Fallback::Text("info"),
    live: true,
    doc: "Log lines below this level are not written. Lines of redis.log have the level that the script says.",
};

/// Where traces and metrics go.
pub const OTEL_ENDPOINT: Parameter = Parameter {
    name: "otel-endpoint",
    kind: Kind::Text(Form::Url, |c| &c.otel_endpoint),
    default: Fallback::Text("none"),
    live: false,
    doc: "OpenTelemetry collector that gets traces and metrics by OTLP over gRPC. OTEL_EXPORTER_OTLP_ENDPOINT says it too.",
};

/// How they are known there.
pub const OTEL_CA_CERT_FILE: Parameter = Parameter {
    name: "otel-ca-cert-file",
    kind: Kind::File(|c| &c.otel_ca_cert_file),
    default: Fallback::Text("none"),
    live: false,
    doc: "Roots that the certificate of a collector at https:// must lead to, as PEM; none are those of tls-ca-cert-file. \
          OTEL_EXPORTER_OTLP_CERTIFICATE says it too.",
};

/// Under which name.
pub const OTEL_SERVICE_NAME: Parameter = Parameter {
    name: "otel-service-name",
    kind: Kind::Text(Form::Word, |c| &c.otel_service_name),
    default: Fallback::Text("moonshard"),
    live: false,
    doc: "What the server is called there. OTEL_SERVICE_NAME says it too.",
};

/// How many requests are traced.
pub const OTEL_SAMPLE_RATIO: Parameter = Parameter {
    name: "otel-sample-ratio",
    kind: Kind::Ratio(|c| &c.otel_sample_ratio),
    default: Fallback::Text("0"),
    live: true,
    doc: "Share of requests that are traced, from 0 to 1. One that comes with a trace context is traced if that says so. OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say it too.",
};

/// How often metrics are sent.
pub const OTEL_METRICS_INTERVAL: Parameter = Parameter {
    name: "otel-metrics-interval-ms",
    kind: Kind::Integer(0..=86_400_000, |c| &c.otel_metrics_interval_ms),
    default: Fallback::Text("60000"),
    live: true,
    doc: "Milliseconds between metrics that are sent to the collector; 0 sends none. OTEL_METRIC_EXPORT_INTERVAL says it too.",
};
