//! Requests that no answer comes to.

use std::fmt;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whether the request may have arrived and been carried out.
    pub maybe_done: bool,
    /// For people.
    pub reason: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
