//! The web console, which is built from `web-console/` and part of the binary.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::Embed;

use super::embedded::{self, Delivery};
use super::problem::Problem;

#[derive(Embed)]
#[folder = "../web-console/dist/site"]
#[allow_missing = true]
struct Site;

/// The page of a server that was built without the console.
const NOT_BUILT: &str = include_str!("not-built.html");

/// What the page may do: run and show what comes from this server, and nothing else. WebAssembly is for the check of what is typed.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lua";

/// Names of files in this directory contain a digest of their content.
const HASHED: &str = "assets/";

/// Answers requests for paths outside of the API.
pub async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = match uri.path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    if method != Method::GET && method != Method::HEAD {
        return absent();
    }
    let policy = HeaderValue::from_static(POLICY);
    let delivery = Delivery { policy, immutable: path.starts_with(HASHED), request: &headers };
    match Site::get(path) {
        Some(file) => embedded::respond(Site::get, path, file, delivery),
        None if path == "index.html" && Site::iter().next().is_none() => not_built(),
        None => absent(),
    }
}

fn absent() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "NOTFOUND", "not found").into_response()
}

fn not_built() -> Response {
    let mut headers = embedded::protective(HeaderValue::from_static(POLICY));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    (StatusCode::OK, headers, NOT_BUILT).into_response()
}
