//! Who may ask.
//!
//! A server on a loopback address can be reached by every web page its user visits. So requests are refused that come
//! from another page's origin, or that call the server by a name it does not know, which is how a page whose name
//! leads here would do it. Bodies must say that they are JSON, which browsers ask permission for first.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_http::request_id::{MakeRequestId, RequestId};

use super::problem::Problem;
use super::state::HttpState;
use crate::config::Config;

/// Names a request in its answer and in error bodies.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Says which database a request is about.
pub const DB: HeaderName = HeaderName::from_static("x-moonshard-db");

/// Says how far a web page is from what it asks.
pub const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Says what a web page makes of the answer.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Set by the console, because browsers send no `Sec-Fetch-Mode` to other hosts over HTTP without TLS.
const REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// The value of `WWW-Authenticate` in the 401 response to a request with these headers.
///
/// `Basic` makes a browser open its own prompt, also for the request of a script. The console has a sign-in dialog, so
/// scripts of pages get only `Bearer`, which no browser has a prompt for. An address that a user opens still gets it.
pub fn challenge(headers: &HeaderMap) -> HeaderValue {
    let of_script = headers.get(FETCH_MODE).is_some_and(|mode| mode != "navigate")
        || headers.get(REQUESTED_WITH).is_some_and(|with| with == "XMLHttpRequest");
    HeaderValue::from_static(match of_script {
        true => "Bearer realm=\"moonshard\"",
        false => "Basic realm=\"moonshard\", Bearer realm=\"moonshard\"",
    })
}

/// Longest name that a client may give a request.
const LONGEST_ID: usize = 128;

/// Whether a client may name its request so.
pub(super) fn is_request_id(id: &HeaderValue) -> bool {
    id.to_str().is_ok_and(|id| !id.is_empty() && id.len() <= LONGEST_ID)
}

/// Names requests that have no name.
#[derive(Clone)]
pub(super) struct Numbered(pub Arc<HttpState>);

impl MakeRequestId for Numbered {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        let Numbered(state) = self;
        let number = state.requests.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number:x}", state.server.process.run_id.get(..8).unwrap_or_default());
        HeaderValue::try_from(id).ok().map(RequestId::new)
    }
}

/// The headers for a page of another origin that [`check`] lets in.
pub fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::mirror_request())
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([
            header::CONTENT_TYPE,
            header::ACCEPT,
            header::AUTHORIZATION,
            REQUEST_ID,
            DB,
            HeaderName::from_static("traceparent"),
        ])
        .expose_headers([REQUEST_ID])
        .max_age(Duration::from_secs(600))
        .vary([header::ORIGIN])
}

/// Which page a request that is let in comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// None, or one of this server.
    Own,
    /// One of another origin, whose browser has to see that it is let in.
    Foreign,
}

/// Whether a browser asks what it may ask.
pub fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Refuses what a foreign web page could have sent. `local` is the address that the connection came to.
pub fn check<B>(config: &Config, local: IpAddr, request: &Request<B>) -> Result<Page, Problem> {
    let headers = request.headers();
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return Ok(Page::Own);
    }
    let forbidden = |detail: String| Err(Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail));
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = authority.or(text(&header::HOST)).unwrap_or_default();
    if !knows_host(config, local, host) {
        return forbidden(format!("unknown host {host}; add it to the parameter http-hosts to allow it"));
    }
    let Some(origin) = text(&header::ORIGIN) else {
        return match text(&FETCH_SITE) {
            Some("cross-site" | "same-site") if request.uri().path().starts_with("/v1/") => {
                forbidden("cross-site requests are not allowed".into())
            }
            _ => Ok(Page::Own),
        };
    };
    let own = origin.split_once("://").is_some_and(|(_, its_host)| its_host.eq_ignore_ascii_case(host));
    if own {
        return Ok(Page::Own);
    }
    if !config.http_origins.allow(origin) {
        return forbidden(format!(
            "requests from the origin {origin} are not allowed; add it to the parameter http-origins to allow them"
        ));
    }
    Ok(Page::Foreign)
}

/// Whether a Host header means this server, and not whatever name leads to it.
fn knows_host(config: &Config, local: IpAddr, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.is_loopback() || address == local || config.http_hosts.allow(name);
    }
    let is_own = || config.http.get().is_some_and(|own| own.host.eq_ignore_ascii_case(name));
    name.eq_ignore_ascii_case("localhost") || is_own() || config.http_hosts.allow(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(hosts: &[&str], origins: &[&str], headers: &[(&str, &str)]) -> Result<bool, String> {
        let config = Config::defaults();
        config.http_hosts.set(hosts.iter().map(|host| (*host).to_owned()).collect());
        config.http_origins.set(origins.iter().map(|origin| (*origin).to_owned()).collect());
        let mut request = Request::builder().uri("/v1/keys");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let local = IpAddr::from([10, 1, 2, 3]);
        check(&config, local, &request).map(|page| page == Page::Foreign).map_err(|problem| problem.detail)
    }

    #[test]
    fn only_known_names_are_answered_to() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "10.1.2.3:1"] {
            assert_eq!(outcome(&[], &[], &[("host", host)]), Ok(false), "{host}");
        }
        for host in ["evil.example:8080", "10.1.2.4", "localhost.evil.example", "", "[::2]:80"] {
            assert!(outcome(&[], &[], &[("host", host)]).is_err(), "{host}");
        }
        assert!(outcome(&[], &[], &[]).is_err(), "every browser names the host");
        assert_eq!(outcome(&["shard.example"], &[], &[("host", "Shard.example:80")]), Ok(false));
        assert_eq!(outcome(&["*"], &[], &[("host", "any.example")]), Ok(false));
    }

    #[test]
    fn other_pages_are_refused_unless_they_are_named() {
        let from = |origins: &[&str], origin: &str| {
            outcome(&[], origins, &[("host", "localhost:8080"), ("origin", origin)])
        };
        assert_eq!(from(&[], "http://localhost:8080"), Ok(false), "its own page");
        for origin in ["http://localhost:3000", "https://evil.example", "null", "http://localhost.evil:8080"]
        {
            assert!(from(&[], origin).is_err(), "{origin}");
        }
        assert_eq!(from(&["https://a.example"], "https://a.example"), Ok(true));
        assert!(from(&["https://a.example"], "http://a.example").is_err());
        assert_eq!(from(&["*"], "https://b.example"), Ok(true));
        let image = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        assert!(outcome(&[], &[], &image).is_err(), "an image of another page");
    }
}
