//! gRPC: the API `moonshard.gateway.v1`, health, and reflection.
//!
//! A call is a session of its own, as a request of HTTP is; calls of one connection run beside each other. Connections
//! live on the I/O threads, as those of Redis clients do. A call is a future that is dropped when its client cancels it
//! or is gone, which ends its script and takes back what it did.
//!
//! Health needs no authentication, which costs little: an unauthenticated connection ends soon, and after few
//! calls.

mod call;
mod caller;
mod convert;
mod pipeline;
mod service;
mod span;
mod state;
mod status;
mod subscribe;
mod watch;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyStream, Full, StreamBody};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use proto::gateway::v1::DESCRIPTION;
use proto::gateway::v1::gateway_server::{GatewayServer, SERVICE_NAME};
use store::Store;
use tls::Wire;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::SERVICE_NAME as HEALTH;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder;

use self::call::Begun;
use self::caller::Caller;
use self::span::SpanAttributes;
use self::state::GrpcState;
use super::acceptor::{self, ConnectionGuard, Ready};
use super::http::guard;
use super::traced;
use crate::server::Server;
use crate::telemetry::counters;

/// How often a connection that says nothing is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(60);

/// How long calls of an unauthenticated connection that is to end may still take: a probe takes milliseconds.
const FAREWELL: Duration = Duration::from_secs(1);

/// Most bytes of a message to health, which needs no authentication, or reflection: a name.
const QUESTION_BYTES: usize = 4096;

/// Calls that a connection may have at the same time; its client holds back more. Each may bring a large message, so
/// many of them are better spread over connections, which are counted.
const MOST_CALLS: u32 = 200;

/// What health is asked about: the server, and its only service.
const SERVICES: [&str; 2] = ["", SERVICE_NAME];

/// How often it is looked whether store nodes are reached.
const LOOK: Duration = Duration::from_millis(250);

/// Serves until `ready` turns to false. Connections finish what they are doing, which the caller waits for.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    mut ready: Ready,
) -> Result<(), tonic_reflection::server::Error> {
    let (mut reporter, health) = tonic_health::server::health_reporter();
    let health = health.max_decoding_message_size(QUESTION_BYTES);
    let described = || Builder::configure().register_encoded_file_descriptor_set(DESCRIPTION);
    let others = Routes::new(health)
        .add_service(described().build_v1()?.max_decoding_message_size(QUESTION_BYTES))
        // Many tools know only this one.
        .add_service(described().build_v1alpha()?.max_decoding_message_size(QUESTION_BYTES));
    let state = Arc::new(GrpcState { server: server.clone(), ready: ready.clone(), others });
    let live = move |wire, entry| live(state.clone(), wire, entry);
    let reported = report_health(&reporter, &server.store);
    // One too many is cut off.
    let kept =
        acceptor::keep(server.clone(), counters::Listener::Grpc, listener, ready.clone(), b"", goodbye, live);
    tokio::select! {
        biased;
        () = reported => {}
        listener = kept => drop(listener),
    }
    let _ = ready.wait_for(|ready| !ready).await;
    for name in SERVICES {
        reporter.set_service_status(name, ServingStatus::NotServing).await;
        // Ends the streams of those who watch.
        reporter.clear_service_status(name).await;
    }
    Ok(())
}

/// Reports for as long as it is polled whether calls can be answered: not while no store node is reachable, as `/readyz` says.
async fn report_health(reporter: &HealthReporter, store: &Store) {
    let mut reported = None;
    loop {
        let is_reachable = store.is_reachable();
        if reported != Some(is_reachable) {
            let status = if is_reachable { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in SERVICES {
                reporter.set_service_status(name, status).await;
            }
            reported = Some(is_reachable);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The frames that end a connection of HTTP/2 with a reason: SETTINGS, then GOAWAY of no stream, for lack of security.
fn goodbye(text: &str) -> Vec<u8> {
    const INADEQUATE_SECURITY: u32 = 0xc;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = (8 + text.len()) as u32;
    let mut frames = settings.to_vec();
    frames.extend_from_slice(&length.to_be_bytes()[1..]);
    frames.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    frames.extend_from_slice(&0u32.to_be_bytes());
    frames.extend_from_slice(&INADEQUATE_SECURITY.to_be_bytes());
    frames.extend_from_slice(text.as_bytes());
    frames
}

/// Answers calls until the connection ends, or is ended by CLIENT KILL or the process.
async fn live(state: Arc<GrpcState>, wire: Wire, entry: Arc<ConnectionGuard>) {
    if !acceptor::agrees(&wire, &entry, state.ready.clone()).await {
        return;
    }
    let client = entry.client().clone();
    let time_limit = acceptor::time_limit(&state.server.config);
    let caller = Arc::new(Caller::new(entry));
    let service = service_fn(|request| answer(state.clone(), caller.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(time_limit).max_buf_size(acceptor::HEAD_BYTES);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MOST_CALLS).keep_alive_interval(SILENCE);
    let mut killed = pin!(client.wake.notified());
    let mut ready = state.ready.clone();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), service));
    let is_unauthenticated = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = &mut killed => return,
        () = caller.stays_unknown(time_limit) => true,
        _ = ready.wait_for(|ready| !ready) => false,
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = killed => {}
        () = caller.stays_unknown(FAREWELL), if is_unauthenticated => {}
    }
}

/// Answers one call: checks what it is and who asks, then asks the service.
async fn answer(
    state: Arc<GrpcState>,
    caller: Arc<Caller>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.version() != Version::HTTP_2 || !is_grpc(request.headers()) {
        return Ok(not_grpc());
    }
    let headers = request.headers();
    if (headers.contains_key(ORIGIN) || headers.contains_key(guard::FETCH_SITE))
        // A web page, by way of a proxy that translates.
        && let Err(problem) = guard::check(&state.server.config, caller.entry.local, &request)
    {
        return Ok(status::forbidden(&problem.detail).into_http());
    }
    let service = request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/'));
    let service = service.map(|(service, _)| service);
    match state.meet(&caller.entry, headers) {
        Ok((mut work, bounds)) => {
            caller.recognize();
            if service == Some(SERVICE_NAME) {
                let traced = traced::begin(&mut work, headers, || SpanAttributes::of(request.uri()));
                request.extensions_mut().insert(Begun::new(work, bounds));
                let most = state.server.config.grpc_message_max.get_usize();
                let mut service = GatewayServer::from_arc(state).max_decoding_message_size(most);
                let answer = service.call(request).await?;
                return Ok(match traced {
                    Some(traced) => traced.around(answer).map(Body::new),
                    None => answer,
                });
            }
        }
        Err(refused) => {
            let may_ask = caller.admit_unauthenticated();
            if service != Some(HEALTH) {
                return Ok(refused.into_http());
            }
            if !may_ask {
                return Ok(status::too_many().into_http());
            }
        }
    }
    let mut ready = state.ready.clone();
    let stopped = async move { ready.wait_for(|ready| !ready).await.map(drop) };
    let until_stopped =
        |body: Incoming| Body::new(StreamBody::new(BodyStream::new(body).take_until(Box::pin(stopped))));
    state.others.clone().call(request.map(until_stopped)).await
}

/// Whether the body is of messages as gRPC has them, in the only encoding known here.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/grpc") || kind.eq_ignore_ascii_case("application/grpc+proto")
}

/// For clients that want something else here.
fn not_grpc() -> Response<Body> {
    const TEXT: &str = "this port speaks gRPC: HTTP/2 with Content-Type: application/grpc\n";
    let mut response = Response::new(Body::new(Full::new(Bytes::from_static(TEXT.as_bytes()))));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
