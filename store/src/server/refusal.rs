//! Requests that are refused.

use proto::store::v1 as wire;
use wire::refusal::Code;

/// A refusal without a map.
pub(crate) fn refusal(code: Code, reason: &str) -> wire::Refusal {
    wire::Refusal { code: code.into(), reason: reason.to_owned(), map: None }
}
