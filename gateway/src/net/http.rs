//! HTTP: the API, the web console, the documentation, and health.
//!
//! A request is one or more commands on a session of its own, which takes the path of every other: dispatch, admission,
//! store. Handlers say which commands those are and show the replies as JSON; see [`json`] for how. Connections live
//! on the I/O threads, as those of Redis clients do.

mod book;
mod commands;
mod compression;
mod console;
mod docs;
mod embedded;
mod eval;
mod events;
mod extract;
mod frames;
pub(super) mod guard;
mod health;
pub mod json;
mod keys;
mod problem;
mod report;
mod scripts;
mod span;
mod state;
mod topology;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tls::Wire;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http::request_id::{PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;

use self::extract::Requester;
use self::guard::{Numbered, Page, REQUEST_ID};
use self::problem::Problem;
use self::span::SpanSlot;
use self::state::HttpState;
use super::acceptor::{self, ConnectionGuard, Ready};
use crate::export::metrics;
use crate::server::Server;
use crate::telemetry::counters;
pub use health::{Readiness, serve_health};

type App = TowerToHyperService<Router>;

/// A method on a path. All are in [`routes`], and `openapi.json` describes each.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "what a test compares with openapi.json"))]
    method: Method,
    path: &'static str,
    handler: MethodRouter<Arc<HttpState>>,
}

fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<HttpState>>) -> Route {
    Route { method: Method::GET, path, handler: axum::routing::get(handler) }
}

fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<HttpState>>) -> Route {
    Route { method: Method::POST, path, handler: axum::routing::post(handler) }
}

fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<HttpState>>) -> Route {
    Route { method: Method::PUT, path, handler: axum::routing::put(handler) }
}

fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Arc<HttpState>>) -> Route {
    Route { method: Method::DELETE, path, handler: axum::routing::delete(handler) }
}

fn routes() -> Vec<Route> {
    vec![
        get("/healthz", docs::alive),
        get("/readyz", docs::ready),
        get("/metrics", docs::metrics),
        post("/v1/command", commands::command),
        post("/v1/pipeline", commands::pipeline),
        post("/v1/eval", eval::eval),
        post("/v1/evalsha/{sha}", eval::evalsha),
        get("/v1/scripts", scripts::list),
        post("/v1/scripts", scripts::load),
        post("/v1/check", scripts::check),
        delete("/v1/scripts", scripts::flush),
        get("/v1/scripts/{sha}", scripts::show),
        get("/v1/scripts/{sha}/stats", scripts::stats),
        post("/v1/scripts/{sha}/kill", scripts::kill),
        get("/v1/keys", keys::list),
        get("/v1/key/{key}", keys::show),
        put("/v1/key/{key}", keys::put),
        delete("/v1/key/{key}", keys::delete),
        get("/v1/events", events::listen),
        get("/v1/topology", topology::topology),
        get("/v1/docs", docs::commands),
        get("/v1/openapi.json", docs::openapi),
    ]
}

fn router(state: &Arc<HttpState>) -> Router {
    let mut router = Router::new();
    for Route { path, handler, .. } in routes() {
        router = router.route(path, handler);
    }
    let book = router.route("/docs", axum::routing::get(book::redirect));
    let book = book.route(book::ROOT, axum::routing::get(book::first));
    let router = book.route("/docs/{*path}", axum::routing::get(book::page));
    let refused = || async {
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", "this method is not allowed for this path")
    };
    router.fallback(console::serve).method_not_allowed_fallback(refused).with_state(state.clone())
}

/// Serves until `ready` turns to false; from then on, for as long as it is polled, it only reports that. Connections finish
/// what they are doing, which the caller waits for.
pub async fn serve(server: Arc<Server>, listener: TcpListener, ready: Ready) {
    let requests = AtomicU64::new(server.process.started_at);
    let paths = routes().into_iter().map(|route| route.path).collect();
    let state = Arc::new(HttpState {
        server: server.clone(),
        ready: ready.clone(),
        requests,
        cors: guard::cors(),
        paths,
    });
    let app = TowerToHyperService::new(router(&state));
    let full = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let live = move |wire, entry| live(state.clone(), app.clone(), wire, entry);
    let refused = |text: &str| {
        let length = text.len();
        format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{text}"
        )
        .into_bytes()
    };
    let listener = acceptor::keep(
        server.clone(),
        counters::Listener::Http,
        listener,
        ready.clone(),
        full,
        refused,
        live,
    )
    .await;
    let config = server.config.clone();
    let report = server.clone();
    let enter = move |stream, peer: SocketAddr| match server.is_protected_from(peer.ip()) {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => server.process.certificates.wire(stream, counters::Listener::Http),
    };
    let metrics = move |ready| metrics::render(&metrics::of_server(&report, ready));
    let readiness = move || Readiness::until_shutdown(*ready.borrow());
    serve_health(config, listener, readiness, enter, metrics).await;
}

/// Answers requests until the connection ends, or is ended by CLIENT KILL or the process. If the client hangs up in the
/// middle of a request, the request is dropped: that ends its script and takes back what it did.
async fn live(state: Arc<HttpState>, app: App, wire: Wire, entry: Arc<ConnectionGuard>) {
    if !acceptor::agrees(&wire, &entry, state.ready.clone()).await {
        return;
    }
    let (client, local) = (entry.client(), entry.local);
    let (asking, answering) = (client.clone(), state.clone());
    let answers = tower::service_fn(move |request| {
        let span = answering.server.telemetry.spans.are_on().then(SpanSlot::default);
        let requester = Requester { client: asking.clone(), local, span };
        answer(answering.clone(), app.clone(), requester, request)
    });
    let named = ServiceBuilder::new()
        .map_request(|mut request: Request<Incoming>| {
            if request.headers().get(REQUEST_ID).is_some_and(|id| !guard::is_request_id(id)) {
                request.headers_mut().remove(REQUEST_ID);
            }
            request
        })
        .layer(SetRequestIdLayer::new(REQUEST_ID, Numbered(state.clone())))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .service(answers);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // It bounds how long a connection may be idle too.
            .header_read_timeout(acceptor::time_limit(&state.server.config))
            .max_buf_size(acceptor::HEAD_BYTES)
            .serve_connection(TokioIo::new(wire), TowerToHyperService::new(named))
    );
    let mut ready = state.ready.clone();
    let mut killed = pin!(client.wake.notified());
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = &mut killed => return,
        _ = ready.wait_for(|ready| !ready) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection => {}
        () = killed => {}
    }
}

/// The handler's answer. A request with a large body, or with one of unknown length, is answered by a compute thread: to
/// parse it would hold up the other connections of this thread.
async fn called(state: &HttpState, app: App, request: Request<Incoming>) -> Result<Response, Infallible> {
    if request.body().size_hint().upper().is_some_and(|bytes| bytes < LARGE_BYTES) {
        return app.call(request).await;
    }
    // It ends the task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn_on(async move { app.call(request).await }, &state.server.scripting.compute);
    match task.join_next().await {
        Some(Ok(answered)) => answered,
        Some(Err(_)) | None => {
            let detail = "internal error: the task that answered this request failed";
            Ok(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ERR", detail).into_response())
        }
    }
}

/// Bytes of a body from which on a request is answered by a compute thread.
const LARGE_BYTES: u64 = 256 << 10;

/// An answer with its problem in words, if it has one.
fn rendered(mut response: Response, id: Option<&RequestId>, challenge: HeaderValue) -> Response {
    // Handlers say why they fail, the timeout does not.
    let has_timed_out = response.status() == StatusCode::GATEWAY_TIMEOUT;
    let problem = response.extensions_mut().remove::<Problem>();
    let Some(problem) = problem.or_else(|| has_timed_out.then(timed_out)) else {
        return response;
    };
    let id = id.and_then(|id| id.header_value().to_str().ok()).unwrap_or_default();
    problem.render(id, challenge, response.headers_mut().remove(header::ALLOW))
}

fn timed_out() -> Problem {
    Problem::new(
        StatusCode::GATEWAY_TIMEOUT,
        "TIMEOUT",
        "no reply within http-timeout-ms; uncommitted writes were rolled back",
    )
}

/// Answers one request: checks who asks, then asks the handler.
async fn answer(
    state: Arc<HttpState>,
    app: App,
    requester: Requester,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let id = request.extensions().get::<RequestId>().cloned();
    let span = requester.span.clone();
    let checked = guard::check(&state.server.config, requester.local, &request);
    let is_preflight = guard::is_preflight(&request);
    let challenge = guard::challenge(request.headers());
    let accepts_gzip = compression::is_accepted(request.headers());
    request.extensions_mut().insert(requester);
    let time_limit = Duration::from_millis(state.server.config.http_timeout_ms.get());
    let answered = ServiceBuilder::new()
        .map_response(|response| rendered(response, id.as_ref(), challenge.clone()))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, time_limit))
        .service_fn(|request| called(&state, app.clone(), request));
    let mut response = match checked {
        Ok(Page::Own) if !is_preflight => answered.oneshot(request).await?,
        Ok(_) => state.cors.layer(answered).oneshot(request).await?,
        Err(problem) => rendered(problem.into_response(), id.as_ref(), challenge.clone()),
    };
    if is_preflight && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    // A value that a browser is led to is never run as something else than it says.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let response = compression::compress(response, accepts_gzip).await;
    let traced = span.and_then(|span| span.lock().take());
    Ok(match traced {
        Some(traced) => traced.around(response).map(Body::new),
        None => response,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_the_reverse() {
        let described: serde_json::Value = serde_json::from_str(docs::OPENAPI).expect("JSON");
        // Where the document was read from, whatever the port is.
        assert_eq!(described["servers"], serde_json::json!([{"url": "/"}]));
        let paths = described["paths"].as_object().expect("paths");
        let methods = |item: &serde_json::Value| -> Vec<String> {
            let item = item.as_object().expect("methods");
            item.keys().filter(|key| *key != "parameters").map(|key| key.to_uppercase()).collect()
        };
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| methods(item).into_iter().map(|method| (path.clone(), method)))
            .collect();
        let served: BTreeSet<(String, String)> =
            routes().into_iter().map(|route| (route.path.to_owned(), route.method.to_string())).collect();
        assert_eq!(described, served);
    }
}
