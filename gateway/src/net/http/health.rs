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

use super::super::acceptor::HEAD_BYTES;
use super::guard;
use crate::config::Config;

/// Connections at the same time: health checks and scrapers are few.
const MOST_CONNECTIONS: usize = 256;

/// How long one may be idle, or take to send the head of a request: a client that held all of them would keep probes out.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a process takes requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It does not yet, for this reason.
    NotYet(String),
    /// It does not any more.
    ShuttingDown,
}

impl Readiness {
    /// Of a process that is ready until it shuts down.
    pub fn until_shutdown(is_ready: bool) -> Readiness {
        if is_ready { Readiness::Ready } else { Readiness::ShuttingDown }
    }
}

/// The media type of metrics.
pub const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Serves `/healthz`, `/readyz` and `/metrics` for as long as it is polled. `enter` says how a connection is sealed, or
/// that it is none; `readiness` says whether the process is ready, and `metrics` is given that.
pub async fn serve_health(
    config: Arc<Config>,
    listener: TcpListener,
    readiness: impl Fn() -> Readiness + Send + Sync + 'static,
    enter: impl Fn(TcpStream, SocketAddr) -> io::Result<Wire> + Send + Sync + 'static,
    metrics: impl Fn(bool) -> String + Send + Sync + 'static,
) {
    let (readiness, metrics) = (Arc::new(readiness), Arc::new(metrics));
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of file descriptors, most likely: connections that end will free some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (Ok(local), Ok(wire)) = (stream.local_addr(), enter(stream, peer)) else { continue };
        let (config, readiness, metrics) = (config.clone(), readiness.clone(), metrics.clone());
        tokio::spawn(async move {
            live(&config, local.ip(), wire, &*readiness, &*metrics).await;
            drop(permit);
        });
    }
}

async fn live(
    config: &Config,
    local: IpAddr,
    wire: Wire,
    readiness: &(impl Fn() -> Readiness + Sync),
    metrics: &(impl Fn(bool) -> String + Sync),
) {
    let answered = |request: Request<Incoming>| {
        let response = answer(config, local, &request, &readiness(), metrics);
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
    readiness: &Readiness,
    metrics: impl Fn(bool) -> String,
) -> Response<Body> {
    if let Err(problem) = guard::check(config, local, request) {
        return (StatusCode::FORBIDDEN, problem.detail).into_response();
    }
    let unavailable = |text: String| (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => "ok\n".into_response(),
        (&Method::GET, "/readyz") => match readiness {
            Readiness::Ready => "ready\n".into_response(),
            Readiness::NotYet(why) => unavailable(format!("not ready: {why}\n")),
            Readiness::ShuttingDown => unavailable("not ready\n".to_owned()),
        },
        (&Method::GET, "/metrics") => {
            let metrics = metrics(*readiness == Readiness::Ready);
            ([(header::CONTENT_TYPE, METRICS_TYPE)], metrics).into_response()
        }
        _ if *readiness == Readiness::ShuttingDown => unavailable("shutting down\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "a store node serves only /healthz, /readyz and /metrics\n")
            .into_response(),
    }
}
