//! A blocking HTTP client: one connection, one request at a time.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http1::SendRequest;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::TIMEOUT;

/// A connection.
pub struct Http {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        let text = self.body.escape_ascii();
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Http {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Http {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stream = TcpStream::connect(address).expect("the server accepts connections");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_nonblocking(true).expect("a socket option");
        let sender = runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
            tokio::spawn(connection);
            sender
        });
        Http { runtime, sender }
    }

    /// Sends a request with these headers and gives its answer.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("Host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
        let Http { runtime, sender } = self;
        let answer = async {
            sender.ready().await.expect("the connection is open");
            let answer = sender.send_request(request).await.expect("an answer");
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            let body = answer.into_body().collect().await.expect("a whole body").to_bytes().to_vec();
            Answer { status, headers, body }
        };
        runtime.block_on(async { timeout(TIMEOUT, answer).await }).expect("an answer in time")
    }

    /// GET.
    pub fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    /// POST with a body of JSON.
    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }
}

/// Sends one request by HTTP/2, on a connection of its own. What comes behind the answer is among its headers.
pub fn http2(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    ask(address, path, headers, Full::new(Bytes::copy_from_slice(body)))
}

/// The same of a request whose body never comes.
pub fn http2_without_end(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(address, path, headers, Never)
}

/// A body that never comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

fn ask<B>(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: B) -> Answer
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut request = Request::builder().method("POST").uri(format!("http://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body).expect("a request");
    let answer = async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.expect("an answer");
        let (status, mut headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.into_body().collect().await.expect("a whole body");
        headers.extend(body.trailers().cloned().unwrap_or_default());
        Answer { status, headers, body: body.to_bytes().to_vec() }
    };
    runtime.block_on(async { timeout(TIMEOUT, answer).await }).expect("an answer in time")
}
