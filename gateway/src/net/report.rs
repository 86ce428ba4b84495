//! How the steps of a run are reported, whatever the listener.

use resp::{ReplyLimits, Value};
use script::LogLevel;

use crate::telemetry::script_trace::{CallStep, MOST_TEXT};

/// The reply to a call: a short one whole, of others the kind and the length.
pub enum Answer {
    /// Also an error.
    Whole(Value),
    /// Too long to be shown.
    Long {
        /// Its type.
        kind: &'static str,
        /// Of a string its bytes, of others how many elements.
        length: Option<u64>,
        /// As RESP.
        bytes: usize,
    },
    /// The call was collected: its reply is not read.
    Collected,
}

impl Answer {
    /// That of a call.
    pub fn of(call: &CallStep) -> Answer {
        let bytes = &call.reply;
        match bytes.split_first() {
            None => return Answer::Collected,
            // It may be cut.
            Some((b'-', text)) => return Answer::Whole(Value::Error(text.trim_ascii_end().to_vec())),
            Some(_) => {}
        }
        let whole = call.reply_bytes <= MOST_TEXT;
        match Value::parse(bytes, ReplyLimits::default()) {
            Ok(value) if whole => Answer::Whole(value),
            _ => {
                let kind = match bytes[0] {
                    b'*' => "array",
                    b'%' => "map",
                    b'~' => "set",
                    _ => "string",
                };
                let digits = bytes[1..].split(|byte| *byte == b'\r').next().unwrap_or_default();
                let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                Answer::Long { kind, length, bytes: call.reply_bytes }
            }
        }
    }
}

/// A level of `redis.log` in one word.
pub fn level_word(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug",
        LogLevel::Verbose => "verbose",
        LogLevel::Notice => "notice",
        LogLevel::Warning => "warning",
    }
}
