//! OTLP over HTTP/1.1.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tls::Protocol;

use super::failure::Failure;
use super::way::{self, MOST_ANSWER, Signal, Way};
use crate::config::OtlpCompression;
use crate::process::dial::Remote;

type Connection = SendRequest<Full<Bytes>>;

/// Sends requests to the collector.
pub struct HttpClient {
    remote: Remote,
    /// What comes before the paths of OTLP.
    prefix: String,
    headers: HeaderMap,
    /// A connection that no request uses.
    idle: Mutex<Option<Connection>>,
}

impl HttpClient {
    /// Connects when it is used first, and whenever the connection is lost.
    pub fn new(way: Way) -> HttpClient {
        let Way { url, remote, compression, mut headers, .. } = way;
        let host = HeaderValue::try_from(url.authority()).expect("a host has letters that a header may have");
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(way::USER_AGENT));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if compression == OtlpCompression::Gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        HttpClient { remote, prefix: url.path, headers, idle: Mutex::default() }
    }

    /// Sends a message. Needs a runtime.
    pub async fn send(&self, signal: Signal, message: Bytes) -> Result<(), Failure> {
        let path = match signal {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        };
        let request = Request::post(format!("{}{path}", self.prefix)).body(Full::new(message));
        let mut request = request.expect("the path of a URL is a URI");
        request.headers_mut().clone_from(&self.headers);
        let mut connection = self.connection().await?;
        let answer = connection.send_request(request).await;
        let (head, body) = answer.map_err(|error| Failure::unreachable(&error))?.into_parts();
        // The next request may use the connection when all of this answer has been read.
        if Limited::new(body, MOST_ANSWER).collect().await.is_ok() {
            *self.idle.lock() = Some(connection);
        }
        if head.status.is_success() { Ok(()) } else { Err(Failure::of_response(head.status, &head.headers)) }
    }

    async fn connection(&self) -> Result<Connection, Failure> {
        let idle = self.idle.lock().take();
        if let Some(mut idle) = idle
            && idle.ready().await.is_ok()
        {
            return Ok(idle);
        }
        let wire = self.remote.reconnect(Protocol::Http).await;
        let wire = wire.map_err(|error| Failure::unreachable(&error))?;
        let (connection, serves) =
            handshake(TokioIo::new(wire)).await.map_err(|error| Failure::unreachable(&error))?;
        tokio::spawn(serves);
        Ok(connection)
    }
}
