//! Where the collector is, and which headers go with each message.

use std::time::Duration;

use hyper::HeaderMap;

use crate::config::{OtlpCompression, OtlpProtocol, Url};
use crate::process::dial::Remote;

/// How long an attempt to send a message may take, and one to connect.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Who sends the messages.
pub const USER_AGENT: &str = concat!("moonshard/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer that are read. It has only a few words about what was not taken.
pub const MOST_ANSWER: usize = 64 * 1024;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
}

/// How the collector is reached.
pub struct Way {
    /// Its URL.
    pub url: Url,
    /// How to connect to it.
    pub remote: Remote,
    /// What it is spoken to in.
    pub protocol: OtlpProtocol,
    /// How messages are compressed.
    pub compression: OtlpCompression,
    /// Headers of all requests, or metadata of all calls.
    pub headers: HeaderMap,
}
