//! What a call knows of itself, and what ends it before its time.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Status};

use super::state::GrpcState;
use super::status;
use crate::net::acceptor::{ConnectionGuard, Listed};
use crate::net::request::Work;
use crate::telemetry::counters::unix_ms;

/// What a call is begun with before anything of its messages is read, until its handler takes it.
#[derive(Clone)]
pub struct Begun(Arc<Mutex<Option<(Work, Bounds)>>>);

impl Begun {
    /// Of a call that is known.
    pub fn new(work: Work, bounds: Bounds) -> Begun {
        Begun(Arc::new(Mutex::new(Some((work, bounds)))))
    }
}

/// What `grpc-timeout` says, from now on.
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let wait = parse_timeout(text).ok_or_else(|| {
        status::of_request(&format!("grpc-timeout is {text:?}: it must be up to eight digits and a unit"))
    })?;
    // A deadline that does not fit is never reached.
    Ok(Instant::now().checked_add(wait))
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A call in the list of clients, for as long as it lasts, and when it ends at the latest.
pub struct Bounds {
    listed: Listed,
    deadline: Option<Instant>,
}

impl Bounds {
    /// Does this, unless the deadline passes or CLIENT KILL ends the call: then it is dropped.
    pub async fn hold<T>(&self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let passed = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = passed => Err(status::too_late()),
            () = self.listed.client.wake.notified() => Err(status::killed()),
        }
    }
}

impl GrpcState {
    /// A session for a call. This is where it says who it is.
    pub fn meet(&self, entry: &ConnectionGuard, headers: &HeaderMap) -> Result<(Work, Bounds), Status> {
        let deadline = deadline(headers)?;
        let connection = entry.client();
        connection.active_ms.store(unix_ms(), std::sync::atomic::Ordering::Relaxed);
        let listed = Listed::new(&self.server, connection.addr.clone(), connection.laddr.clone());
        let mut work = Work::new(&self.server, listed.client.clone());
        if let Some(header) = headers.get(AUTHORIZATION) {
            work.authenticate(header.as_bytes())?;
        }
        work.require_authentication()?;
        Ok((work, Bounds { listed, deadline }))
    }

    /// The session of a call that is to be answered.
    pub fn begin<T>(&self, request: &Request<T>) -> Result<(Work, Bounds), Status> {
        let begun = request.extensions().get::<Begun>().and_then(|begun| begun.0.lock().take());
        begun.ok_or_else(|| Status::internal("nobody asks"))
    }
}

/// Counts a message among what the client of a call makes the server hold, for as long as the call lasts or until the next
/// one.
pub fn count_message(work: &Work, message: &impl Message) {
    let bytes = message.encoded_len();
    work.session.client.held.set_input(bytes, bytes);
}

/// The arguments of a command.
pub fn slices(args: &[Bytes]) -> Vec<&[u8]> {
    args.iter().map(|arg| &**arg).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read() {
        let millis = |text| parse_timeout(text).map(|wait| wait.as_millis());
        for (text, wanted) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3000)),
            ("99999999m", Some(99_999_999)),
            ("5000u", Some(5)),
            ("6000000n", Some(6)),
            ("99999999H", Some(359_999_996_400_000)),
            ("", None),
            ("S", None),
            ("1", None),
            ("123456789S", None),
            ("-1S", None),
            ("1s", None),
            ("1é", None),
        ] {
            assert_eq!(millis(text), wanted, "{text}");
        }
    }
}
