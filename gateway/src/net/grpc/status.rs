//! Errors: a status with the code word of Redis' error or of ours in its details.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::codes;
use crate::net::request::{Failure, code_of};

/// Whose code words these are.
const DOMAIN: &str = "moonshard";

/// Longest text of a status: it travels as a header, of which clients allow 8 KB, twice and with escapes.
const LONGEST_TEXT: usize = 1000;

/// Longest code word: what google.rpc.ErrorInfo allows.
const LONGEST_CODE: usize = 63;

fn with(code: Code, word: &str, text: &str, details: HashMap<String, String>) -> Status {
    let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
    let word = &word[..word.floor_char_boundary(LONGEST_CODE)];
    Status::with_error_details(code, text, ErrorDetails::with_error_info(word, DOMAIN, details))
}

/// An error reply, with what is known of the run that ended so.
pub fn of_reply(text: &[u8], details: HashMap<String, String>) -> Status {
    let text = String::from_utf8_lossy(text);
    let word = code_of(&text);
    with(code(word), word, &text, details)
}

/// A request that does not say what it should.
pub fn of_request(text: &str) -> Status {
    with(Code::InvalidArgument, "REQUEST", text, HashMap::new())
}

/// A request that a web page must not send.
pub fn forbidden(text: &str) -> Status {
    with(Code::PermissionDenied, "FORBIDDEN", text, HashMap::new())
}

/// More calls on a connection than those may make who do not say who they are.
pub fn too_many() -> Status {
    let text = "unauthenticated connections are limited to fewer concurrent calls; send credentials";
    with(Code::ResourceExhausted, "NOAUTH", text, HashMap::new())
}

/// The deadline of the client has passed.
pub fn too_late() -> Status {
    let text = "the deadline has passed; uncommitted writes were rolled back";
    with(Code::DeadlineExceeded, "TIMEOUT", text, HashMap::new())
}

/// CLIENT KILL, or the end of the process while the call was waiting for others.
pub fn killed() -> Status {
    let text = "the call was cancelled by the server; uncommitted writes were rolled back";
    with(Code::Unavailable, "KILLED", text, HashMap::new())
}

/// The process ends while a stream is open.
pub fn ending() -> Status {
    with(Code::Unavailable, "SHUTDOWN", "the server is shutting down", HashMap::new())
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        match failure {
            Failure::Request(text) => of_request(&text),
            Failure::Reply(text) => of_reply(&text, HashMap::new()),
            Failure::Internal(text) => with(Code::Internal, "ERR", &text, HashMap::new()),
        }
    }
}

/// The status of an error code. Errors that scripts make up are unknown.
fn code(word: &str) -> Code {
    codes::of(word).map_or(Code::Unknown, |row| Code::from_i32(row.grpc as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_code_words_have_bounds() {
        let long = "LONG".repeat(100) + " " + &"é".repeat(1000);
        let status = of_reply(long.as_bytes(), HashMap::new());
        assert_eq!((status.code(), status.message().len()), (Code::Unknown, 999));
        let details = status.get_error_details();
        assert_eq!(details.error_info().map(|info| info.reason.len()), Some(LONGEST_CODE));
    }
}
