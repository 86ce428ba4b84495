//! Spans and metrics as messages of OTLP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{span::SpanKind, status::StatusCode};
use prost::Message as _;
use store::times::BOUNDS;

use super::message::Message;
use crate::metrics::table::{self, Kind};
use crate::metrics::{Gathered, Labels, Point, Value};
use crate::spans::{Fact, Side, Span};

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
pub fn traces(resource: &Resource, spans: &[Span]) -> Message {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.bytes(1, &resource.encode_to_vec());
        of_resource.message(2, |of_scope| {
            of_scope.bytes(1, &scope().encode_to_vec());
            spans.iter().for_each(|span| of_scope.message(2, |message| write_span(message, span)));
        });
    });
    request
}

/// The fields of a `Span`, in their order.
fn write_span(message: &mut Message, span: &Span) {
    let kind = match span.side {
        Side::Internal => SpanKind::Internal,
        Side::Server => SpanKind::Server,
        Side::Client => SpanKind::Client,
    };
    message.bytes(1, &span.context.trace);
    message.bytes(2, &span.context.span);
    if let Some(parent) = &span.parent {
        message.bytes(4, parent);
    }
    message.bytes(5, span.name.as_bytes());
    message.number(6, kind as u64);
    message.fixed64(7, nanos(span.began));
    message.fixed64(8, nanos(span.began + span.took));
    for (name, fact) in &span.facts {
        message.message(9, |attribute| {
            attribute.bytes(1, name.as_bytes());
            attribute.message(2, |value| match fact {
                Fact::Word(text) => value.bytes(1, text.as_bytes()),
                Fact::Number(number) => value.number(3, *number as u64),
            });
        });
    }
    if let Some(error) = &span.error {
        message.message(15, |status| {
            status.bytes(2, error.as_bytes());
            status.number(3, StatusCode::Error as u64);
        });
    }
    message.fixed32(16, 1);
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
    use opentelemetry_proto::tonic::trace::v1::Status;

    use super::*;
    use crate::spans::Context;

    #[test]
    fn spans_are_read_as_they_were_written() {
        let root = Context::root();
        let first = Span::new(root, None, "GET", Side::Server, Instant::now());
        let lengths = [0, 1, 127, 128, 16_383, 16_384, 70_000];
        let others = lengths.map(|length| {
            let span = Span::within(&root, "x".repeat(length), Side::Client, Instant::now());
            let span = span.with("word", "x".repeat(length)).with("number", 0u64).with("large", u64::MAX);
            Span { error: Some("x".repeat(length)), ..span }
        });
        let spans = [&[first][..], &others].concat();
        let process = resource(vec![("service.name".to_owned(), "moonshard".to_owned())]);
        let request = ExportTraceServiceRequest::decode(&*traces(&process, &spans).0).expect("a message");
        let [of_process] = &request.resource_spans[..] else { panic!("one process and not {request:?}") };
        let [of_scope] = &of_process.scope_spans[..] else { panic!("one scope and not {of_process:?}") };
        assert_eq!((&of_process.resource, &of_scope.scope), (&Some(process), &Some(scope())));
        assert_eq!(of_scope.spans.len(), spans.len());
        for (span, read) in spans.iter().zip(&of_scope.spans) {
            assert_eq!((&*read.trace_id, &*read.span_id), (&root.trace[..], &span.context.span[..]));
            assert_eq!(read.parent_span_id, span.parent.map(Vec::from).unwrap_or_default());
            assert_eq!((&*read.name, read.flags), (&*span.name, 1));
            assert_eq!(read.start_time_unix_nano, span.began.as_nanos() as u64);
            assert_eq!(read.end_time_unix_nano, (span.began + span.took).as_nanos() as u64);
            let error = span.error.clone();
            assert_eq!(read.status, error.map(|message| Status { message, code: StatusCode::Error.into() }));
        }
        let kinds = of_scope.spans.iter().map(|span| span.kind());
        assert_eq!(kinds.take(2).collect::<Vec<_>>(), [SpanKind::Server, SpanKind::Client]);
        for (read, length) in of_scope.spans[1..].iter().zip(lengths) {
            let number = |number| Some(AnyValue { value: Some(any_value::Value::IntValue(number)) });
            let values: Vec<_> = read.attributes.iter().map(|fact| (&*fact.key, &fact.value)).collect();
            let text = word("word", "x".repeat(length)).value;
            assert_eq!(values, [("word", &text), ("number", &number(0)), ("large", &number(i64::MAX))]);
        }
    }
}
