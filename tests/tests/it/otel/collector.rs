//! An OpenTelemetry collector that keeps the messages that it gets, by gRPC or by HTTP.

mod grpc;
mod http;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// What it was told.
#[derive(Default)]
pub struct Collected {
    /// All requests, also those that it refused.
    pub requests: Vec<Received>,
    /// All spans.
    pub spans: Vec<Span>,
    /// Metrics by name and values of their labels, with the newest value; by name alone with 0.
    pub metrics: BTreeMap<String, f64>,
    /// What the process calls itself that told of a span, by that.
    pub services: BTreeMap<Vec<u8>, String>,
    /// Which processes told of metrics.
    pub instances: BTreeSet<String>,
}

/// A request.
pub struct Received {
    /// Its path; of gRPC the name of the service.
    pub path: String,
    /// Its headers, or its metadata.
    pub headers: BTreeMap<String, String>,
    /// Names of its spans.
    pub names: Vec<String>,
    /// When it came.
    pub at: Instant,
}

/// What a request is answered instead of being taken.
struct Refusal {
    /// A status of HTTP, or a code of gRPC.
    code: u16,
    /// When it is to be sent again.
    again_after: Option<Duration>,
}

/// What both protocols hand over to.
#[derive(Clone, Default)]
struct Inbox {
    collected: Arc<Mutex<Collected>>,
    refusals: Arc<Mutex<VecDeque<Refusal>>>,
}

/// A running one. It ends when dropped.
pub struct Collector {
    inbox: Inbox,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Collector {
    /// One that speaks gRPC, on a free port.
    pub fn start() -> Collector {
        Collector::serve(|inbox, listener| tokio::spawn(grpc::serve(inbox, listener)))
    }

    /// One that speaks HTTP, on a free port.
    pub fn start_http() -> Collector {
        Collector::serve(|inbox, listener| tokio::spawn(http::serve(inbox, listener)))
    }

    fn serve<T>(serve: impl FnOnce(Inbox, TcpListener) -> T) -> Collector {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let inbox = Inbox::default();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let entered = runtime.enter();
        serve(inbox.clone(), listener);
        drop(entered);
        Collector { inbox, address, _runtime: runtime }
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
        look(&self.inbox.collected.lock().expect("no panic"))
    }

    /// Refuses one more request with this status of HTTP or code of gRPC.
    pub fn refuse(&self, code: u16, again_after: Option<Duration>) {
        self.inbox.refusals.lock().expect("no panic").push_back(Refusal { code, again_after });
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

impl Inbox {
    fn take_traces(
        &self,
        path: &str,
        headers: BTreeMap<String, String>,
        request: ExportTraceServiceRequest,
    ) -> Result<(), Refusal> {
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let names = scopes.flat_map(|scope| &scope.spans).map(|span| span.name.clone()).collect();
        self.receive(path, headers, names)?;
        let mut seen = self.collected.lock().expect("no panic");
        for resource in request.resource_spans {
            let facts = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
            let service =
                facts.iter().find(|attribute| attribute.key == "service.name").map(text).unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                seen.services.insert(span.span_id.clone(), service.clone());
                seen.spans.push(span);
            }
        }
        Ok(())
    }

    fn take_metrics(
        &self,
        path: &str,
        headers: BTreeMap<String, String>,
        request: ExportMetricsServiceRequest,
    ) -> Result<(), Refusal> {
        self.receive(path, headers, Vec::new())?;
        let mut seen = self.collected.lock().expect("no panic");
        for resource in request.resource_metrics {
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
        Ok(())
    }

    /// Notes a request, and refuses it if it is one of those.
    fn receive(
        &self,
        path: &str,
        headers: BTreeMap<String, String>,
        names: Vec<String>,
    ) -> Result<(), Refusal> {
        let received = Received { path: path.to_owned(), headers, names, at: Instant::now() };
        self.collected.lock().expect("no panic").requests.push(received);
        self.refusals.lock().expect("no panic").pop_front().map_or(Ok(()), Err)
    }
}
