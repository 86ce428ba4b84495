//! Serves files that are part of the binary: the web console and the book.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::EmbeddedFile;

use super::compression;

/// Finds an embedded file by its path.
pub type Find = fn(&str) -> Option<EmbeddedFile>;

/// How a file is delivered.
pub struct Delivery<'a> {
    /// The content security policy.
    pub policy: HeaderValue,
    /// The file name contains a digest of the content, so that browsers may cache the file for good.
    pub immutable: bool,
    /// The headers of the request.
    pub request: &'a HeaderMap,
}

/// Answers with the file at `path`: 304 if the browser has it, compressed if the browser reads gzip and the build made a
/// compressed form.
pub fn respond(find: Find, path: &str, file: EmbeddedFile, delivery: Delivery<'_>) -> Response {
    let tag: String = file.metadata.sha256_hash()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let known = delivery.request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.unwrap_or_default().split(',').any(|one| one.trim() == tag);
    let caching = if delivery.immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut headers = protective(delivery.policy);
    headers.extend([
        (header::CACHE_CONTROL, HeaderValue::from_static(caching)),
        (header::VARY, HeaderValue::from_static("Accept-Encoding")),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type(path))),
    ]);
    headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let compressed =
        compression::is_accepted(delivery.request).then(|| find(&format!("{path}.gz"))).flatten();
    let file = match compressed {
        Some(compressed) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            compressed
        }
        None => file,
    };
    (headers, body(file.data)).into_response()
}

/// Headers of every page: what it may load, and that no other page learns where the reader came from.
pub fn protective(policy: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ])
}

/// Content that is part of the binary is borrowed, not copied for each reader.
fn body(data: Cow<'static, [u8]>) -> Bytes {
    match data {
        Cow::Borrowed(data) => Bytes::from_static(data),
        Cow::Owned(data) => data.into(),
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webp" => "image/webp",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_content_is_not_copied() {
        static PAGE: &[u8] = b"<!doctype html>";
        assert!(std::ptr::eq(&*body(Cow::Borrowed(PAGE)), PAGE));
        assert_eq!(body(Cow::Owned(b"read".to_vec())), "read");
    }
}
