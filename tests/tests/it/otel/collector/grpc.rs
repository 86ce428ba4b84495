//! The collector's services of gRPC.

use std::collections::BTreeMap;

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
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{Inbox, Refusal};

/// Serves for as long as it is polled.
pub async fn serve(inbox: Inbox, listener: TcpListener) {
    let traces = TraceServiceServer::new(inbox.clone()).accept_compressed(Gzip);
    let metrics = MetricsServiceServer::new(inbox).accept_compressed(Gzip);
    let server = tonic::transport::Server::builder().add_service(traces).add_service(metrics);
    server.serve_with_incoming(TcpIncoming::from(listener)).await.expect("it serves");
}

fn headers(metadata: &MetadataMap) -> BTreeMap<String, String> {
    let text = |pair: KeyAndValueRef<'_>| match pair {
        KeyAndValueRef::Ascii(name, value) => Some((name.to_string(), value.to_str().ok()?.to_owned())),
        KeyAndValueRef::Binary(..) => None,
    };
    metadata.iter().filter_map(text).collect()
}

fn refused(Refusal { code, again_after }: Refusal) -> Status {
    Status::with_error_details(i32::from(code).into(), "not now", ErrorDetails::with_retry_info(again_after))
}

#[tonic::async_trait]
impl TraceService for Inbox {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = headers(request.metadata());
        self.take_traces("traces", headers, request.into_inner()).map_err(refused)?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Inbox {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = headers(request.metadata());
        self.take_metrics("metrics", headers, request.into_inner()).map_err(refused)?;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
