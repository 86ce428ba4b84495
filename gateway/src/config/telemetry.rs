//! Parameters of the log, metrics and traces.

use tracing_subscriber::filter::LevelFilter;

use super::choice::{Choice, LogFormat, OtlpCompression, OtlpProtocol};
use super::kind::{Form, ParameterKind};
use super::parameter::{Fallback, Parameter};

/// What SLOWLOG notes.
pub const SLOWLOG_SLOWER_THAN: Parameter = Parameter {
    name: "slowlog-log-slower-than",
    kind: ParameterKind::OrNever(|c| &c.slowlog_log_slower_than),
    default: Fallback::Text("10000"),
    live: true,
    doc: "Microseconds after which a call is recorded in SLOWLOG; -1 means never.",
};

/// How much of it.
pub const SLOWLOG_MAX_LEN: Parameter = Parameter {
    name: "slowlog-max-len",
    kind: ParameterKind::Integer(0..=1_000_000, |c| &c.slowlog_max_len),
    default: Fallback::Text("128"),
    live: true,
    doc: "Maximum number of entries in SLOWLOG.",
};

/// What LATENCY notes.
pub const LATENCY_MONITOR: Parameter = Parameter {
    name: "latency-monitor-threshold",
    kind: ParameterKind::Integer(0..=i64::MAX, |c| &c.latency_monitor_threshold),
    default: Fallback::Text("0"),
    live: true,
    doc: "Milliseconds after which a call is recorded in LATENCY; 0 means never.",
};

/// Whether times of calls are kept.
pub const LATENCY_TRACKING: Parameter = Parameter {
    name: "latency-tracking",
    kind: ParameterKind::Word(bool::WORDS, |c| &c.latency_tracking.place),
    default: Fallback::Text("yes"),
    live: true,
    doc: "Whether the duration of calls is measured, for INFO latencystats, LATENCY HISTOGRAM and metrics.",
};

/// Those that INFO shows.
pub const PERCENTILES: Parameter = Parameter {
    name: "latency-tracking-info-percentiles",
    kind: ParameterKind::Text(Form::Percentiles, |c| &c.latency_tracking_info_percentiles),
    default: Fallback::Text("50 99 99.9"),
    live: true,
    doc: "Percentiles that INFO latencystats reports.",
};

/// How log lines look.
pub const LOG_FORMAT: Parameter = Parameter {
    name: "log-format",
    kind: ParameterKind::Word(LogFormat::WORDS, |c| &c.log_format.place),
    default: Fallback::Text("pretty"),
    live: true,
    doc: "Format of the log lines on standard error: pretty for people, or json for one JSON object per \
          line.",
};

/// Which log lines there are.
pub const LOG_LEVEL: Parameter = Parameter {
    name: "log-level",
    kind: ParameterKind::Word(LevelFilter::WORDS, |c| &c.log_level.place),
    default: Fallback::Text("info"),
    live: true,
    doc: "Minimum level of log lines. Lines of redis.log have the level that the script gives.",
};

/// Where traces and metrics go.
pub const OTEL_ENDPOINT: Parameter = Parameter {
    name: "otel-endpoint",
    kind: ParameterKind::Text(Form::Url, |c| &c.otel_endpoint),
    default: Fallback::Text("none"),
    live: false,
    doc: "OpenTelemetry collector that receives traces and metrics by OTLP. A path is for http/protobuf only: it comes \
          before /v1/traces and /v1/metrics. Also set by OTEL_EXPORTER_OTLP_ENDPOINT.",
};

/// How they get there.
pub const OTEL_PROTOCOL: Parameter = Parameter {
    name: "otel-protocol",
    kind: ParameterKind::Word(OtlpProtocol::WORDS, |c| &c.otel_protocol.place),
    default: Fallback::Text("grpc"),
    live: false,
    doc: "Protocol of OTLP that the collector is sent: gRPC, or Protocol Buffers over HTTP/1.1. Also set by \
          OTEL_EXPORTER_OTLP_PROTOCOL.",
};

/// Whether they are compressed.
pub const OTEL_COMPRESSION: Parameter = Parameter {
    name: "otel-compression",
    kind: ParameterKind::Word(OtlpCompression::WORDS, |c| &c.otel_compression.place),
    default: Fallback::Text("none"),
    live: false,
    doc: "Compression of what the collector is sent. Also set by OTEL_EXPORTER_OTLP_COMPRESSION.",
};

/// How they are known there.
pub const OTEL_CA_CERT_FILE: Parameter = Parameter {
    name: "otel-ca-cert-file",
    kind: ParameterKind::File(|c| &c.otel_ca_cert_file),
    default: Fallback::Text("none"),
    live: false,
    doc: "Certificate authorities for the certificate of a collector at https://, in PEM format. With none, \
          those of tls-ca-cert-file are used, or else those of the system. Also set by \
          OTEL_EXPORTER_OTLP_CERTIFICATE.",
};

/// Under which name.
pub const OTEL_SERVICE_NAME: Parameter = Parameter {
    name: "otel-service-name",
    kind: ParameterKind::Text(Form::Word, |c| &c.otel_service_name),
    default: Fallback::Text("moonshard"),
    live: false,
    doc: "Service name in traces and metrics. Also set by OTEL_SERVICE_NAME.",
};

/// How many requests are traced.
pub const OTEL_SAMPLE_RATIO: Parameter = Parameter {
    name: "otel-sample-ratio",
    kind: ParameterKind::Ratio(|c| &c.otel_sample_ratio),
    default: Fallback::Text("0"),
    live: true,
    doc: "Fraction of requests that are traced, from 0 to 1. A request with a trace context is traced if \
          that context is sampled. Also set by OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.",
};

/// How often metrics are sent.
pub const OTEL_METRICS_INTERVAL: Parameter = Parameter {
    name: "otel-metrics-interval-ms",
    kind: ParameterKind::Integer(0..=86_400_000, |c| &c.otel_metrics_interval_ms),
    default: Fallback::Text("60000"),
    live: true,
    doc: "Milliseconds between exports of metrics to the collector; 0 disables them. Also set by \
          OTEL_METRIC_EXPORT_INTERVAL.",
};
