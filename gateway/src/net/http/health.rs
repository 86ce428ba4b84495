//! What a store node has of HTTP, and a gateway that is about to end: whether it is well, and its metrics.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tls::Wire;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::super::acceptor::{HEAD_BYTES, Ready};
use super::guard;
use crate::config::Config;

/// Connections at the same time: health checks and scrapers are few.
const MOST_CONNECTIONS: usize = 256;

/// How long one may be idle, or take to send the head of a request: a client that held all of them would keep probes out.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The media type of metrics.
pub const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Serves `/healthz`, `/readyz` and `/metrics` for as long as it is polled. `enter` says how a connection is sealed, or
/// that it is none; `metrics` is told whether the process is ready.
pub async fn serve_health(
    config: Arc<Config>,
    listener: TcpListener,
    ready: Ready,
    enter: impl Fn(TcpStream, SocketAddr) -> io::Result<Wire> + Send + Sync + 'static,
    metrics: impl Fn(bool) -> String + Send + Sync + 'static,
) {
    let (metrics, room) = (Arc::new(metrics), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of file descriptors, most likely: connections that end will free some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (Ok(local), Ok(wire)) = (stream.local_addr(), enter(stream, peer)) else { continue };
        let (config, ready, metrics) = (config.clone(), ready.clone(), metrics.clone());
        tokio::spawn(async move {
            live(&config, local.ip(), wire, &ready, &*metrics).await;
            drop(permit);
        });
    }
}

async fn live(
    config: &Config,
    local: IpAddr,
    wire: Wire,
    ready: &Ready,
    metrics: &(impl Fn(bool) -> String + Sync),
) {
    let answered = |request: Request<Incoming>| {
        let response = answer(config, local, &request, *ready.borrow(), metrics);
        std::future::ready(Ok::<_, Infallible>(response))
    };
    // Its result is not needed: the client is gone, or has the error.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(wire), service_fn(answered))
        .await;
}

fn answer(
    config: &Config,
    local: IpAddr,
    request: &Request<Incoming>,
    ready: bool,
    metrics: impl Fn(bool) -> String,
) -> Response<Body> {
    if let Err(problem) = guard::check(config, local, request) {
        return (StatusCode::FORBIDDEN, problem.detail).into_response();
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => "ok\n".into_response(),
        (&Method::GET, "/readyz") if ready => "ready\n".into_response(),
        (&Method::GET, "/readyz") => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response(),
        (&Method::GET, "/metrics") => {
            ([(header::CONTENT_TYPE, METRICS_TYPE)], metrics(ready)).into_response()
        }
        _ if !ready => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response(),
        _ => (StatusCode::NOT_FOUND, "a store node serves only /healthz, /readyz and /metrics\n")
            .into_response(),
    }
}
