//! HTTP: the API, the web console, the documentation, and health.
//!
//! A request is one or more commands on a session of its own, which takes the road of every other: dispatch, gate,
//! store. Handlers say which commands those are and show the replies as JSON; see [`json`] for how. Connections live
//! on the I/O threads, as those of Redis clients do.

mod ask;
mod book;
mod commands;
mod console;
mod docs;
mod embedded;
mod eval;
mod events;
pub(super) mod guard;
mod health;
mod json;
mod keys;
mod problem;
mod scripts;
mod span;
mod state;
mod told;

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
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tls::Wire;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::ask::Asker;
use self::guard::{Cors, REQUEST_ID};
use self::problem::Problem;
use self::span::Slot;
use self::state::HttpState;
use super::acceptor::{self, Entry, Ready};
use crate::export::metrics;
use crate::server::Server;
use crate::telemetry::counters;
pub use health::serve_health;

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
        get("/v1/topology", docs::topology),
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

/// Serves until `ready` turns to false; from then on, for as long as it is polled, it only tells that. Connections finish
/// what they are doing, which the caller waits for.
pub async fn serve(server: Arc<Server>, listener: TcpListener, ready: Ready) {
    let requests = AtomicU64::new(server.started_at);
    let paths = routes().into_iter().map(|route| route.path).collect();
    let state = Arc::new(HttpState { server: server.clone(), ready: ready.clone(), requests, paths });
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
    let listener =
        acceptor::keep(server.clone(), counters::Face::Http, listener, ready.clone(), full, refused, live)
            .await;
    let config = server.config.clone();
    let told = server.clone();
    let enter = move |stream, peer: SocketAddr| match server.is_protected_from(peer.ip()) {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => server.certificates.wire(stream, counters::Face::Http),
    };
    let metrics = move |ready| metrics::render(&metrics::of_server(&told, ready));
    serve_health(config, listener, ready, enter, metrics).await;
}

/// Answers requests until the connection ends, or is ended by CLIENT KILL or the process. If the client hangs up in the
/// middle of a request, the request is dropped: that ends its script and takes back what it did.
async fn live(state: Arc<HttpState>, app: App, wire: Wire, entry: Arc<Entry>) {
    let (client, local) = (entry.client(), entry.local);
    let service = service_fn(|request| {
        let span = state.server.spans.are_on().then(Slot::default);
        let asker = Asker { client: client.clone(), local, span };
        answer(state.clone(), app.clone(), asker, request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // It bounds how long a connection may be idle too.
            .header_read_timeout(acceptor::patience(&state.server.config))
            .max_buf_size(acceptor::HEAD_BYTES)
            .serve_connection(TokioIo::new(wire), service)
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
    task.spawn_on(async move { app.call(request).await }, &state.server.compute);
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

/// Answers one request: checks who asks, then asks the handler.
async fn answer(
    state: Arc<HttpState>,
    app: App,
    asker: Asker,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let id = guard::request_id(&state, request.headers());
    let span = asker.span.clone();
    let checked = guard::check(&state.server.config, asker.local, &request);
    let (mut response, cors) = match checked {
        Ok(cors) if guard::is_preflight(&request) => (StatusCode::NO_CONTENT.into_response(), cors),
        Ok(cors) => {
            request.extensions_mut().insert(asker);
            let patience = Duration::from_millis(state.server.config.http_timeout_ms.get());
            let response = match timeout(patience, called(&state, app, request)).await {
                Ok(Ok(response)) => response,
                Err(_) => Problem::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    "TIMEOUT",
                    "no reply within http-timeout-ms; uncommitted writes were rolled back",
                )
                .into_response(),
            };
            (response, cors)
        }
        Err(problem) => (problem.into_response(), Cors::default()),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.render(&id, response.headers_mut().remove(header::ALLOW));
    }
    cors.apply(response.headers_mut());
    // A value that a browser is led to is never run as something else than it says.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
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
