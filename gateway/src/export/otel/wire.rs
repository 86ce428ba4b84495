//! Spans and metrics as messages of OTLP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use store::spans::message::Message;
use store::times::BOUNDS;

use crate::export::metrics::table::{self, Kind};
use crate::export::metrics::{Gathered, Labels, Point, Value};
use crate::telemetry::spans::Batch;

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
pub fn resource(facts: Vec<(String, String)>) -> Resource {
    let attributes = facts.into_iter().map(|(name, value)| word(&name, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// Spans of this process: an `ExportTraceServiceRequest`.
pub fn traces(resource: &Resource, batch: &Batch) -> Message {
    let mut of_scope = Message::default();
    of_scope.bytes(1, &scope().encode_to_vec());
    let mut of_resource = Message::default();
    of_resource.bytes(1, &resource.encode_to_vec());
    of_resource.head(2, of_scope.byte_count() + batch.message.byte_count());
    of_resource.append(&of_scope);
    let mut request = Message::default();
    request.head(1, of_resource.byte_count() + batch.message.byte_count());
    request.append(&of_resource);
    request.append(&batch.message);
    request
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
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points: points.iter().filter_map(number).collect() }),
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: points.iter().filter_map(number).collect(),
            aggregation_temporality,
            is_monotonic: true,
        }),
        Kind::Histogram => metric::Data::Histogram(Histogram {
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;

    use super::*;
    use crate::telemetry::spans::{Context, Outlet, Side, Span};

    #[test]
    fn spans_are_read_with_their_process() {
        let process = resource(vec![("service.name".to_owned(), "moonshard".to_owned())]);
        for count in [1, 300] {
            let (outlet, now) = (Outlet::default(), Instant::now());
            (0..count)
                .for_each(|_| outlet.end(&Span::within(&Context::root(), "GET", Side::Server, now..now)));
            let request = traces(&process, &outlet.take().expect("there are spans"));
            let request = ExportTraceServiceRequest::decode(request.as_bytes()).expect("a message");
            let [of_process] = &request.resource_spans[..] else { panic!("one process and not {request:?}") };
            let [of_scope] = &of_process.scope_spans[..] else { panic!("one scope and not {of_process:?}") };
            assert_eq!((&of_process.resource, &of_scope.scope), (&Some(process.clone()), &Some(scope())));
            assert_eq!(of_scope.spans.len(), count);
            assert!(of_scope.spans.iter().all(|span| span.name == "GET"));
        }
    }
}
