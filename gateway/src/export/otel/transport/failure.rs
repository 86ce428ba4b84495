//! Why the collector has not taken a message, and whether to send that again, as the specification of OTLP says.

use std::error::Error;
use std::time::{Duration, SystemTime};

use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, StatusCode};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Why a message was not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// For the log.
    pub why: String,
    /// After how long, at least, the collector may take it; never if there is none.
    pub again_after: Option<Duration>,
}

impl Failure {
    /// There is no connection, or it was lost.
    pub fn unreachable(error: &dyn Error) -> Failure {
        // The outer errors may only say that there is one.
        let mut deepest = error;
        while let Some(source) = deepest.source() {
            deepest = source;
        }
        Failure { why: deepest.to_string(), again_after: Some(Duration::ZERO) }
    }

    /// There was no answer in time.
    pub fn timeout() -> Failure {
        Failure { why: "it does not answer in time".to_owned(), again_after: Some(Duration::ZERO) }
    }

    /// The answer to a request has this status, which is no success, and these headers.
    pub fn of_response(status: StatusCode, headers: &HeaderMap) -> Failure {
        let again_after = match status.as_u16() {
            429 | 502 | 503 | 504 => Some(retry_after(headers).unwrap_or_default()),
            _ => None,
        };
        Failure { why: format!("it answers {status}"), again_after }
    }

    /// A call has failed with this status.
    pub fn of_status(status: &Status) -> Failure {
        // One that the collector sends has no source.
        if let Some(source) = status.source() {
            return Failure::unreachable(source);
        }
        let wanted = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let again_after = match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => Some(wanted.unwrap_or_default()),
            // Without that, there may never be room.
            Code::ResourceExhausted => wanted,
            _ => None,
        };
        Failure { why: format!("it answers {:?}: {}", status.code(), status.message()), again_after }
    }
}

/// What `Retry-After` says: a number of seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    fn after(status: u16, retry_after: &str) -> Option<Duration> {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().expect("a header"));
        Failure::of_response(status, &headers).again_after
    }

    #[test]
    fn some_statuses_of_http_are_temporary() {
        let temporary = (300..600).filter(|status| after(*status, "7") == Some(Duration::from_secs(7)));
        assert_eq!(temporary.collect::<Vec<_>>(), [429, 502, 503, 504]);
        let permanent = (300..600).filter(|status| after(*status, "7").is_none());
        assert_eq!(permanent.count(), 296);
        for nonsense in ["", "-1", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(after(503, nonsense), Some(Duration::ZERO), "{nonsense}");
        }
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        let wait = after(503, &date).expect("temporary").as_secs_f64();
        assert!((90.0..=100.0).contains(&wait), "{wait}");
    }

    #[test]
    fn some_codes_of_grpc_are_temporary() {
        let wait = Duration::from_secs(7);
        let details = ErrorDetails::with_retry_info(Some(wait));
        let of = |status: Status| Failure::of_status(&status).again_after;
        let temporary = |code: i32| {
            let code = Code::from(code);
            let bare = of(Status::new(code, "no"));
            assert!(bare.is_none_or(|wait| wait.is_zero()), "{code:?}");
            (bare.is_some(), of(Status::with_error_details(code, "no", details.clone())) == Some(wait))
        };
        let codes = |wanted| (1..=16).filter(|code| temporary(*code) == wanted).collect::<Vec<_>>();
        assert_eq!(codes((true, true)), [1, 4, 10, 11, 14, 15]);
        assert_eq!(codes((false, true)), [8], "only if it says when there is room");
        assert_eq!(codes((true, false)), [0; 0]);
    }
}
