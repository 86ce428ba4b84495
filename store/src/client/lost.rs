//! Requests that no answer comes to.

use std::fmt;

use super::link_error::LinkError;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whether the request may have arrived and been carried out.
    pub maybe_done: bool,
    /// What has become of the link.
    pub reason: LinkError,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Lost {}
