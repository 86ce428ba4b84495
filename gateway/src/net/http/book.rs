//! The documentation at `/docs/`, which is built from `docs/` and part of the binary.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rust_embed::{Embed, EmbeddedFile};
use sha2::{Digest, Sha256};

use super::embedded::{self, Delivery};
use super::problem::Problem;

/// Where the book is served.
pub const ROOT: &str = "/docs/";

#[derive(Embed)]
#[folder = "../docs/dist/book"]
#[allow_missing = true]
struct Book;

/// Redirects `/docs`, below which relative links would lead to the API.
pub async fn redirect() -> Redirect {
    Redirect::permanent(ROOT)
}

/// Serves the first page.
pub async fn first(headers: HeaderMap) -> Response {
    page(Path("index.html".to_owned()), headers).await
}

/// Serves a page, or a file that pages use.
pub async fn page(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(file) = Book::get(&path) else {
        return absent(&headers);
    };
    // Pages keep their names; names of the other files contain a digest of their content.
    let is_page = path.ends_with(".html");
    let delivery = Delivery { policy: policy(&file, is_page), immutable: !is_page, request: &headers };
    embedded::respond(Book::get, &path, file, delivery)
}

fn absent(headers: &HeaderMap) -> Response {
    match Book::get("404.html") {
        Some(file) => {
            let delivery = Delivery { policy: policy(&file, true), immutable: false, request: headers };
            let mut response = embedded::respond(Book::get, "404.html", file, delivery);
            if response.status() == StatusCode::OK {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            response.headers_mut().remove(header::ETAG);
            response
        }
        None => Problem::new(
            StatusCode::NOT_FOUND,
            "NOTFOUND",
            "this server was built without its documentation; `make docs build` builds both",
        )
        .into_response(),
    }
}

/// What a page may do: use what this server delivers. Scripts inside of a page are allowed by the digest of their text,
/// since mdBook writes a few of them into each page.
fn policy(file: &EmbeddedFile, is_page: bool) -> HeaderValue {
    let digests: String = match is_page {
        true => inline_scripts(&String::from_utf8_lossy(&file.data))
            .map(|script| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(script))))
            .collect(),
        false => String::new(),
    };
    let policy = format!(
        "default-src 'none'; script-src 'self'{digests}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
        font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// The texts between `<script>` and `</script>`.
fn inline_scripts(page: &str) -> impl Iterator<Item = &str> {
    page.split("<script>").skip(1).filter_map(|rest| Some(rest.split_once("</script>")?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_inside_of_a_page_are_found() {
        let page = "<script>a</script><script src=\"b.js\"></script><p><script>\nc\n</script>";
        assert_eq!(inline_scripts(page).collect::<Vec<_>>(), ["a", "\nc\n"]);
    }
}
