//! The Redis protocol as bytes: requests in, replies out.
//!
//! Architecture invariant: no sockets, no tasks, no clocks. Whoever owns a connection owns its buffers and
//! hands slices of them to this crate; that is why all of it can be fuzzed and measured without a server.
//!
//! - [`request`] cuts a client's bytes into arguments, in place.
//! - [`transcode`](mod@transcode) checks a reply that a guest wrote and puts it into the client's protocol.
//! - [`reader`] parses replies into trees, for faces that speak another language, and for tests.

mod inline;
pub mod reader;
pub mod request;
mod scan;
pub mod transcode;

pub use inline::split_words;
pub use reader::{Progress, Reader, Value};
pub use request::{Limits, Parser, ProtocolError, Request, Step};
pub use scan::{ReplyError, ReplyLimits};
pub use transcode::{is_error, transcode};
