//! What is counted of calls, waits and errors. Counting never waits: each is an addition or two that orders nothing.

mod calls;
mod distribution;
mod errors;

pub use calls::{CallReport, Calls, Refusal};
pub use errors::Errors;
