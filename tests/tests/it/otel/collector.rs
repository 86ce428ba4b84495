//! An OpenTelemetry collector that remembers what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// What it was told.
#[derive(Default)]
pub struct Collected {
    /// All spans.
    pub spans: Vec<Span>,
    /// Metrics by name and values of their labels, with the newest value; by name alone with 0.
    pub metrics: BTreeMap<String, f64>,
    /// What the process calls itself that told of a span, by that.
    pub services: BTreeMap<Vec<u8>, String>,
    /// Which processes told of metrics.
    pub instances: BTreeSet<String>,
}

#[derive(Clone, Default)]
struct Service(Arc<Mutex<Collected>>);

/// A running one. It ends when dropped.
pub struct Collector {
    service: Service,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Collector {
    /// On a free port.
    pub fn start() -> Collector {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let service = Service::default();
        let bind = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = runtime.block_on(bind).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(service.clone()))
            .add_service(MetricsServiceServer::new(service.clone()));
        runtime.spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        Collector { service, address, _runtime: runtime }
    }

    /// For `otel-endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at what it was told so far.
    pub fn look<T>(&self, look: impl FnOnce(&Collected) -> T) -> T {
        look(&self.service.0.lock().expect("no panic"))
    }
}

/// What an attribute says, as text; empty if it is not there.
pub fn attribute(span: &Span, name: &str) -> String {
    span.attributes.iter().find(|attribute| attribute.key == name).map(text).unwrap_or_default()
}

fn text(attribute: &KeyValue) -> String {
    match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut seen = self.0.lock().expect("no panic");
        for resource in request.into_inner().resource_spans {
            let facts = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
            let service =
                facts.iter().find(|attribute| attribute.key == "service.name").map(text).unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                seen.services.insert(span.span_id.clone(), service.clone());
                seen.spans.push(span);
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut seen = self.0.lock().expect("no panic");
        for resource in request.into_inner().resource_metrics {
            let facts = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
            let instance = facts.iter().find(|attribute| attribute.key == "service.instance.id").map(text);
            seen.instances.insert(instance.expect("every process has a name"));
            for metric in resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                seen.metrics.insert(metric.name.clone(), 0.0);
                let points: Vec<NumberDataPoint> = match metric.data {
                    Some(Data::Gauge(gauge)) => gauge.data_points,
                    Some(Data::Sum(sum)) => sum.data_points,
                    _ => Vec::new(),
                };
                for point in points {
                    let labels = point.attributes.iter().map(|attribute| format!(" {}", text(attribute)));
                    let name = format!("{}{}", metric.name, labels.collect::<String>());
                    if let Some(number_data_point::Value::AsDouble(value)) = point.value {
                        seen.metrics.insert(name, value);
                    }
                }
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
