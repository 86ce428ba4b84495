//! The web console, which is built from `web-console/` and part of the binary. A debug build reads it from disk, so that
//! it can be built anew without the server.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{Embed, EmbeddedFile};

use super::problem::Problem;

#[derive(Embed)]
#[folder = "../web-console/dist/site"]
#[allow_missing = true]
struct Site;

/// Said instead of the console by a server that was built without it.
const NOT_BUILT: &str = include_str!("not-built.html");

/// What the page may do: run and show what comes from this server, and nothing else. WebAssembly is for stepping.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types stepper";

/// Names below this one contain a digest of what they name.
const HASHED: &str = "assets/";

/// Answers whatever is not a path of the API.
pub async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = match uri.path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    if method != Method::GET && method != Method::HEAD {
        return absent();
    }
    match Site::get(path) {
        Some(file) => show(path, file, &headers),
        None if path == "index.html" && Site::iter().next().is_none() => not_built(),
        None => absent(),
    }
}

fn absent() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "NOTFOUND", "not found").into_response()
}

fn not_built() -> Response {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    (StatusCode::OK, guarded([(header::CONTENT_TYPE, html)]), NOT_BUILT).into_response()
}

fn show(path: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let tag: String = file.metadata.sha256_hash()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let lists = |name: &HeaderName, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|one| one.split(';').next().is_some_and(|one| one.trim() == wanted))
    };
    let lasting = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut told = guarded([
        (header::CACHE_CONTROL, HeaderValue::from_static(lasting)),
        (header::VARY, HeaderValue::from_static("Accept-Encoding")),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type(path))),
    ]);
    told.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if lists(&header::IF_NONE_MATCH, &tag) {
        return (StatusCode::NOT_MODIFIED, told).into_response();
    }
    let small = lists(&header::ACCEPT_ENCODING, "gzip").then(|| Site::get(&format!("{path}.gz"))).flatten();
    let file = match small {
        Some(small) => {
            told.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            small
        }
        None => file,
    };
    (told, body(file.data)).into_response()
}

/// What is part of the binary is lent, however many read it.
fn body(data: Cow<'static, [u8]>) -> Bytes {
    match data {
        Cow::Borrowed(data) => Bytes::from_static(data),
        Cow::Owned(data) => data.into(),
    }
}

fn guarded<const N: usize>(more: [(HeaderName, HeaderValue); N]) -> HeaderMap {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    fixed.into_iter().chain(more).collect()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_binary_is_not_copied() {
        let page = NOT_BUILT.as_bytes();
        assert!(std::ptr::eq(&*body(Cow::Borrowed(page)), page));
        assert_eq!(body(Cow::Owned(b"read".to_vec())), "read");
    }
}
