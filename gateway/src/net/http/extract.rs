//! A request as handlers see it, and how they run commands for it.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use axum::extract::FromRequest;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use resp::Value;
use serde::de::DeserializeOwned;

use super::guard::DB;
use super::json::{self, Shape};
use super::problem::Problem;
use super::span::{SpanAttributes, SpanSlot};
use super::state::HttpState;
use crate::net::request::{Failure, Refused, Work};
use crate::net::traced;
use crate::server::Server;
use crate::session::ClientInfo;
use crate::telemetry::counters::unix_ms;

/// Who asks, and where: known of the connection before the request is read.
#[derive(Clone)]
pub struct Requester {
    /// The connection, as CLIENT LIST shows it.
    pub client: Arc<ClientInfo>,
    /// The address it came to.
    pub local: IpAddr,
    /// Where the request's span is put, if there may be one.
    pub span: Option<SpanSlot>,
}

/// A command with its arguments.
pub type Argv = Vec<Vec<u8>>;

/// A command whose words are text, followed by these arguments.
pub fn argv(words: &[&str], more: &[&[u8]]) -> Argv {
    let words = words.iter().map(|word| word.as_bytes());
    words.chain(more.iter().copied()).map(<[u8]>::to_vec).collect()
}

/// One request, read to its end.
pub struct Ask {
    /// What all requests share.
    pub state: Arc<HttpState>,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What its commands are run in.
    pub work: Work,
    path: String,
    query: Query,
    _held: HeldBody,
}

/// Counts a body among what its client makes the server hold, for as long as the request lasts.
struct HeldBody(Arc<ClientInfo>);

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.0.held.set_input(0, 0);
    }
}

/// Elements that a body may have: as many as a request of RESP. An empty one takes three bytes in the body and thirty times
/// as many in memory.
const MOST_ELEMENTS: usize = 1024 * 1024;

/// Names and values, decoded.
type Query = Vec<(String, Vec<u8>)>;

impl FromRequest<Arc<HttpState>> for Ask {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, state: &Arc<HttpState>) -> Result<Ask, Problem> {
        let (mut parts, body) = request.into_parts();
        let unsigned = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ERR", "nobody asks");
        let requester = parts.extensions.remove::<Requester>().ok_or_else(unsigned)?;
        if parts.method == Method::POST && !says(&parts.headers, &header::CONTENT_TYPE, "application/json") {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "REQUEST",
                "POST requires Content-Type: application/json",
            ));
        }
        // Of an unauthenticated client nothing more is read.
        let query = parse_query(parts.uri.query().unwrap_or_default());
        let work = work(state, requester.clone(), &parts, &query)?;
        let most = state.server.config.http_body_max.get_usize();
        let held = HeldBody(requester.client.clone());
        let body = body.map_frame(|frame| {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            held.0.held.add_input(bytes);
            frame
        });
        let body = Limited::new(body, most).collect().await.map_err(|error| {
            if !error.is::<LengthLimitError>() {
                return Problem::bad("the body could not be read completely");
            }
            let detail = format!("the body exceeds http-body-max, {most} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", detail)
        })?;
        requester.client.active_ms.store(unix_ms(), Ordering::Relaxed);
        Ok(Ask {
            state: state.clone(),
            work,
            headers: parts.headers,
            body: body.to_bytes(),
            path: parts.uri.path().to_owned(),
            query,
            _held: held,
        })
    }
}

/// A session for a request, in the database that it names, of the user that it says it is.
fn work(state: &HttpState, requester: Requester, parts: &Parts, query: &Query) -> Result<Work, Problem> {
    let headers = &parts.headers;
    let mut work = Work::new(&state.server, requester.client);
    // A connection's requests are sessions of their own: each needs other random numbers.
    work.session.seed ^= state.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if let Some(header) = headers.get(header::AUTHORIZATION) {
        work.authenticate(header.as_bytes())?;
    }
    work.require_authentication()?;
    if let Some(slot) = requester.span {
        *slot.lock() = traced::begin(&mut work, headers, || SpanAttributes::of(state, parts));
    }
    // The query counts, but the header has to be right too.
    for text in [headers.get(DB).map(|value| value.as_bytes()), last(query, "db")].into_iter().flatten() {
        work.select(std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()))?;
    }
    Ok(work)
}

fn last<'a>(query: &'a Query, name: &str) -> Option<&'a [u8]> {
    query.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &**value)
}

/// What stands in `a=1&b=2`.
fn parse_query(text: &str) -> Query {
    let decoded = |part: &str| percent_decode_str(&part.replace('+', " ")).collect::<Vec<u8>>();
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decoded(name)).into_owned(), decoded(value))
        })
        .collect()
}

/// Whether a header names this media type, whatever parameters follow it.
fn says(headers: &HeaderMap, name: &header::HeaderName, wanted: &str) -> bool {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',')
        .any(|one| one.split(';').next().is_some_and(|one| one.trim().eq_ignore_ascii_case(wanted)))
}

impl Ask {
    /// The server.
    pub fn server(&self) -> &Arc<Server> {
        &self.state.server
    }

    /// Whether the client asks for this media type by name.
    pub fn accepts(&self, media_type: &str) -> bool {
        says(&self.headers, &header::ACCEPT, media_type)
    }

    /// Whether the body is of this media type.
    pub fn sends(&self, media_type: &str) -> bool {
        says(&self.headers, &header::CONTENT_TYPE, media_type)
    }

    /// The body as JSON of this form; an empty one is `{}`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let text: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        if json::has_more_elements(text, MOST_ELEMENTS) {
            let detail = format!("the body has more than {MOST_ELEMENTS} elements");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", detail));
        }
        serde_json::from_slice(text).map_err(|error| Problem::bad(format!("invalid body: {error}")))
    }

    /// Part `at` of the path, decoded; the first is 1.
    pub fn segment(&self, at: usize) -> Vec<u8> {
        percent_decode_str(self.path.split('/').nth(at).unwrap_or_default()).collect()
    }

    /// A value of the query.
    pub fn query(&self, name: &str) -> Option<&[u8]> {
        last(&self.query, name)
    }

    /// A whole number of the query.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let Some(value) = self.query(name) else { return Ok(None) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.map(Some).ok_or_else(|| Problem::bad(format!("{name} is not a whole number")))
    }

    /// A yes or no of the query; no if it is not there.
    pub fn yes(&self, name: &str) -> Result<bool, Problem> {
        match self.query(name) {
            None | Some(b"false" | b"0") => Ok(false),
            Some(b"true" | b"1" | b"") => Ok(true),
            Some(_) => Err(Problem::bad(format!("{name} is not true or false"))),
        }
    }

    /// How replies are to be shown.
    pub fn shape(&self) -> Result<Shape, Problem> {
        Ok(if self.yes("lossless")? { Shape::Lossless } else { Shape::Plain })
    }

    /// Runs a command. Its reply as RESP, once its changes are kept as durability promises.
    pub async fn run(&mut self, argv: Argv) -> Result<Vec<u8>, Problem> {
        Ok(self.work.run(&slices(&argv)).await?)
    }

    /// Runs a command; an error reply is a problem.
    pub async fn value(&mut self, argv: Argv) -> Result<Value, Problem> {
        Ok(self.work.value(&slices(&argv)).await?)
    }

    /// Most bytes of an answer: what a client of RESP may leave unread.
    pub fn most_reply_bytes(&self) -> usize {
        match self.server().config.client_output_buffer_limit.normal.hard.get_usize() {
            0 => usize::MAX,
            most => most,
        }
    }

    /// Runs commands as one transaction: their replies and how many bytes these have, or which of them were refused.
    pub async fn transaction(&mut self, commands: Vec<Argv>) -> Result<(Vec<Value>, usize), Problem> {
        self.work.transaction(commands.iter().map(slices)).await.map_err(|Refused { why, commands }| {
            let shown = |(index, text): (usize, Vec<u8>)| serde_json::json!({ "index": index, "message": String::from_utf8_lossy(&text) });
            match commands.is_empty() {
                true => Problem::from(why),
                false => Problem::from(why).with("refused", commands.into_iter().map(shown).collect()),
            }
        })
    }

    /// The same of commands that the client has not named itself: the first that is refused says why.
    pub async fn all(&mut self, commands: Vec<Argv>) -> Result<Vec<Value>, Problem> {
        let replies = self.work.transaction(commands.iter().map(slices)).await.map(|(replies, _)| replies);
        replies.map_err(|Refused { why, commands }| {
            let first = commands.into_iter().next();
            Problem::from(first.map_or(why, |(_, text)| Failure::Reply(text)))
        })
    }
}

/// A command as those take it that run it.
#[allow(clippy::ptr_arg, reason = "it is given to iterators over them")]
fn slices(argv: &Argv) -> Vec<&[u8]> {
    argv.iter().map(Vec::as_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_hold_any_bytes() {
        let pair = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(
            parse_query("match=a+b%00%ff&&x&y=1=2"),
            [pair("match", b"a b\0\xff"), pair("x", b""), pair("y", b"1=2")]
        );
    }
}
