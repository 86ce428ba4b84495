//! Requests that are refused.

use std::fmt::Display;

use proto::store::v1 as wire;
use wire::refusal::Code;

/// A refusal without a map.
pub(crate) fn refusal(code: Code, reason: &(impl Display + ?Sized)) -> wire::Refusal {
    wire::Refusal { code: code.into(), reason: reason.to_string(), map: None }
}
