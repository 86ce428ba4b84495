//! Compresses answers for clients that read gzip.

use std::io::{self, Write};

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::spawn_blocking;

/// Shorter answers hardly become shorter.
const LEAST_BYTES: u64 = 1 << 10;
/// Longer ones are sent as they are: they would take their memory twice.
const MOST_BYTES: u64 = 64 << 20;
/// From so many bytes on another thread compresses: other connections of this one would wait for a millisecond.
const LARGE_BYTES: usize = 64 << 10;

/// Whether a request with these headers may be answered with gzip.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).any(|one| {
        let mut words = one.split(';').map(str::trim);
        let is_gzip = words.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = words.find_map(|word| word.strip_prefix("q=")?.parse::<f32>().ok());
        is_gzip && weight.unwrap_or(1.0) > 0.0
    })
}

/// The response with its body compressed, if that is text of a known length and the client accepts it.
pub async fn compress(response: Response, is_accepted: bool) -> Response {
    let (mut head, body) = response.into_parts();
    let known = body.size_hint().exact().filter(|bytes| (LEAST_BYTES..=MOST_BYTES).contains(bytes));
    if known.is_none() || !is_plain_text(&head.headers) {
        return Response::from_parts(head, body);
    }
    head.headers.append(header::VARY, HeaderValue::from_name(header::ACCEPT_ENCODING));
    if !is_accepted {
        return Response::from_parts(head, body);
    }
    // Of a known length, a body has its bytes already.
    let bytes = to_bytes(body, MOST_BYTES as usize).await.unwrap_or_default();
    let compressed = match bytes.len() {
        LARGE_BYTES.. => {
            let bytes = bytes.clone();
            spawn_blocking(move || gzip(&bytes)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
        _ => gzip(&bytes),
    };
    let body: Bytes = match compressed {
        Ok(compressed) => {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.remove(header::CONTENT_LENGTH);
            compressed.into()
        }
        Err(_) => bytes,
    };
    Response::from_parts(head, Body::from(body))
}

/// Whether the body is text that is not compressed yet.
fn is_plain_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = kind.starts_with("text/") || kind.starts_with("application/json") || kind.contains("+json");
    is_text && !headers.contains_key(header::CONTENT_ENCODING)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::response::IntoResponse;
    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (value, wanted) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("deflate, gzip ; q=1.0", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("xgzip", false),
            ("", false),
        ] {
            let headers = [(header::ACCEPT_ENCODING, HeaderValue::from_static(value))];
            assert_eq!(is_accepted(&HeaderMap::from_iter(headers)), wanted, "{value}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn texts_are_compressed_and_nothing_else() {
        let of_kind = |kind: &'static str| [(header::CONTENT_TYPE, kind)];
        let json = || of_kind("application/json");
        for length in [LEAST_BYTES as usize, LARGE_BYTES, 300_000] {
            let text = "abcdefgh".repeat(length / 8);
            let response = compress((json(), text.clone()).into_response(), true).await;
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            assert_eq!(response.headers()[header::VARY], "accept-encoding");
            let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("bytes");
            assert!(bytes.len() < length / 4);
            let mut decoded = String::new();
            GzDecoder::new(&*bytes).read_to_string(&mut decoded).expect("gzip");
            assert!(decoded == text);
        }
        let text = "x".repeat(5000);
        let short = (json(), "{}").into_response();
        for (response, accepted) in [
            ((of_kind("application/octet-stream"), text.clone()).into_response(), true),
            ((json(), [(header::CONTENT_ENCODING, "br")], text.clone()).into_response(), true),
            (short, true),
            ((json(), text.clone()).into_response(), false),
        ] {
            let before = response.headers().get(header::CONTENT_ENCODING).cloned();
            let response = compress(response, accepted).await;
            assert_eq!(response.headers().get(header::CONTENT_ENCODING), before.as_ref());
        }
    }
}
