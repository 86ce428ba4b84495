//! Errors: `application/problem+json` (RFC 9457), with the code word of Redis' error or of ours.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::codes;
use crate::net::request::{Failure, code_of};

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// The first word of an error of Redis, or one of ours.
    pub code: String,
    /// The whole text.
    pub detail: String,
    /// What else is to be said.
    pub more: Map<String, Value>,
}

impl Problem {
    /// With these three.
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Problem {
        Problem { status, code: code.to_owned(), detail: detail.into(), more: Map::new() }
    }

    /// A request that does not say what it should.
    pub fn bad(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "REQUEST", detail)
    }

    /// An error reply.
    pub fn of_reply(text: &[u8]) -> Problem {
        let text = String::from_utf8_lossy(text).into_owned();
        let code = code_of(&text).to_owned();
        Problem { status: status_of(&code), code, detail: text, more: Map::new() }
    }

    /// Adds a member.
    pub fn with(mut self, name: &str, value: Value) -> Problem {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// The answer to the request of this name. `challenge` is how its client may authenticate, if that is the problem, and
    /// `allow` is what the path allows, if that is.
    pub fn render(self, request_id: &str, challenge: HeaderValue, allow: Option<HeaderValue>) -> Response {
        let body = Body {
            kind: format!("urn:moonshard:error:{}", self.code),
            title: self.status.canonical_reason(),
            status: self.status.as_u16(),
            detail: self.detail,
            code: self.code,
            request_id,
            more: self.more,
        };
        let body = serde_json::to_vec(&body).expect("JSON can hold it");
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        headers.extend(allow.map(|allow| (header::ALLOW, allow)));
        (self.status, headers, body).into_response()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Request(detail) => Problem::bad(detail),
            Failure::Reply(text) => Problem::of_reply(&text),
            Failure::Internal(detail) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ERR", detail),
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: Option<&'static str>,
    status: u16,
    detail: String,
    code: String,
    request_id: &'a str,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// The caller of the handler writes the body, as it knows the request's name.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The status of an error code. Errors that scripts make up are 422: the request was understood and done, and its result is
/// this error.
pub fn status_of(code: &str) -> StatusCode {
    let status = codes::of(code).map(|row| row.http).and_then(|status| StatusCode::from_u16(status).ok());
    status.unwrap_or(StatusCode::UNPROCESSABLE_ENTITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_make_up_has_a_status() {
        assert_eq!(status_of("FULL"), StatusCode::UNPROCESSABLE_ENTITY);
    }
}
