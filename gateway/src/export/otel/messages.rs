//! Traces and metrics as messages of OTLP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use opentelemetry_sdk::trace::SpanData;
use store::latency::BOUNDS;

use crate::export::metrics::table::{self, MetricKind};
use crate::export::metrics::{Gathered, Labels, Point, Value};

fn word(name: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn scope() -> InstrumentationScope {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    InstrumentationScope { name: "moonshard".to_owned(), version, ..InstrumentationScope::default() }
}

/// What this process is.
pub fn resource(attributes: Vec<(String, String)>) -> Resource {
    let attributes = attributes.into_iter().map(|(name, value)| word(&name, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// Spans of this process.
pub fn traces(resource: &Resource, spans: Vec<SpanData>) -> ExportTraceServiceRequest {
    let spans = spans.into_iter().map(Span::from).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
    let resource = Some(resource.clone());
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }
}

/// Metrics of this process, which has counted since then.
pub fn metrics(
    resource: &Resource,
    gathered: &Gathered,
    since: Duration,
    now: Duration,
) -> ExportMetricsServiceRequest {
    let metrics = gathered.families().map(|(metric, points)| family(metric, points, since, now)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource.clone());
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn family(metric: &table::Metric, points: &[Point], since: Duration, now: Duration) -> Metric {
    let attributes = |values: &Labels| {
        let named = metric.labels.iter().zip(values);
        named.map(|(name, value)| word(name, value.clone().into_owned())).collect()
    };
    let number = |Point { labels, value }: &Point| {
        let Value::Number(number) = value else { return None };
        Some(NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: nanos(since),
            time_unix_nano: nanos(now),
            value: Some(number_data_point::Value::AsDouble(*number)),
            ..NumberDataPoint::default()
        })
    };
    let times = |Point { labels, value }: &Point| {
        let Value::Times(buckets, sum) = value else { return None };
        Some(HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: nanos(since),
            time_unix_nano: nanos(now),
            count: buckets.iter().sum(),
            sum: Some(*sum as f64 / 1e9),
            bucket_counts: buckets.to_vec(),
            explicit_bounds: BOUNDS.iter().map(|bound| *bound as f64 / 1e9).collect(),
            ..HistogramDataPoint::default()
        })
    };
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data = match metric.kind {
        MetricKind::Gauge => {
            metric::Data::Gauge(Gauge { data_points: points.iter().filter_map(number).collect() })
        }
        MetricKind::Counter => metric::Data::Sum(Sum {
            data_points: points.iter().filter_map(number).collect(),
            aggregation_temporality,
            is_monotonic: true,
        }),
        MetricKind::Histogram => metric::Data::Histogram(Histogram {
            data_points: points.iter().filter_map(times).collect(),
            aggregation_temporality,
        }),
    };
    Metric {
        name: metric.name.to_owned(),
        description: metric.help.to_owned(),
        unit: metric.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}
