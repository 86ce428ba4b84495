//! OTLP over gRPC. A message is compressed before it comes here, once and on the thread of the exporter.

use bytes::{Buf as _, Bytes};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use tonic::body::Body;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tower::ServiceExt as _;

use super::failure::Failure;
use super::way::{MOST_ANSWER, Signal, TIMEOUT, USER_AGENT, Way};
use crate::config::OtlpCompression;

/// Bytes before a message: whether it is compressed, and its length.
pub const PREFIX: usize = 5;

/// Writes what stands before the message.
pub fn fill_prefix(body: &mut [u8], compression: OtlpCompression) {
    let len = u32::try_from(body.len() - PREFIX).expect("an export has a few megabytes");
    body[0] = u8::from(compression == OtlpCompression::Gzip);
    body[1..PREFIX].copy_from_slice(&len.to_be_bytes());
}

/// Calls the collector.
pub struct GrpcClient {
    channel: Channel,
    headers: HeaderMap,
}

impl GrpcClient {
    /// Connects when it is used first, and whenever the connection is lost. Needs a runtime.
    pub fn new(way: Way) -> Result<GrpcClient, tonic::transport::Error> {
        let Way { url, remote, compression, mut headers, .. } = way;
        // Whatever is spoken beneath: `remote` knows the way.
        let endpoint = Endpoint::from_shared(format!("http://{}", url.address))?.user_agent(USER_AGENT)?;
        let origin = format!("{}://{}", if url.is_secure { "https" } else { "http" }, url.authority());
        let origin: Uri = origin.parse().expect("a URL begins with a URI");
        let endpoint = endpoint.origin(origin).connect_timeout(TIMEOUT);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if compression == OtlpCompression::Gzip {
            headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        }
        Ok(GrpcClient { channel: remote.channel(endpoint), headers })
    }

    /// Sends a message with its prefix.
    pub async fn send(&self, signal: Signal, message: Bytes) -> Result<(), Failure> {
        let mut request = Request::post(match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        })
        .body(Body::new(Full::new(message)))
        .expect("a path is a URI");
        request.headers_mut().clone_from(&self.headers);
        let answer = self.channel.clone().oneshot(request).await;
        let (head, body) = answer.map_err(|error| Failure::unreachable(&error))?.into_parts();
        if head.status != StatusCode::OK {
            // Of a proxy: those who speak gRPC have their status in the trailers.
            return Err(Failure::of_response(head.status, &head.headers));
        }
        match Status::from_header_map(&head.headers) {
            Some(status) if status.code() == Code::Ok => return Ok(()),
            Some(status) => return Err(Failure::of_status(&status)),
            None => {}
        }
        let mut messages = Streaming::new_response(Skip, body, head.status, None, Some(MOST_ANSWER));
        let trailers = messages.trailers().await;
        trailers.map(drop).map_err(|status| Failure::of_status(&status))
    }
}

/// Reads a message without looking at it.
struct Skip;

impl Decoder for Skip {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        message.advance(message.remaining());
        Ok(Some(()))
    }
}
