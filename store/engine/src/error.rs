//! What a client reads when a command fails. Client wording lives here only; families add texts of their own
//! with [`CommandError::new`] where Redis has one that only they use.

use std::borrow::Cow;
use std::fmt;

/// The text of an error reply without the leading `-`: a code word, a blank, the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(Cow<'static, str>);

impl CommandError {
    /// An error whose text is known at compile time.
    pub const fn new(text: &'static str) -> Self {
        CommandError(Cow::Borrowed(text))
    }

    /// An error whose text names what was wrong.
    pub fn owned(text: String) -> Self {
        CommandError(Cow::Owned(text))
    }

    /// The whole text, code first.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The code word, such as `ERR` or `WRONGTYPE`.
    pub fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

/// `-ERR syntax error`
pub const SYNTAX: CommandError = CommandError::new("ERR syntax error");
/// The key holds another type.
pub const WRONG_TYPE: CommandError =
    CommandError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// Not a 64-bit integer.
pub const NOT_AN_INTEGER: CommandError = CommandError::new("ERR value is not an integer or out of range");
/// Not a float.
pub const NOT_A_FLOAT: CommandError = CommandError::new("ERR value is not a valid float");
/// LSET, RENAME and others on a key that is not there.
pub const NO_SUCH_KEY: CommandError = CommandError::new("ERR no such key");
/// LSET and others beyond the end.
pub const INDEX_OUT_OF_RANGE: CommandError = CommandError::new("ERR index out of range");
/// Counters that would leave 64 bits.
pub const OVERFLOW: CommandError = CommandError::new("ERR increment or decrement would overflow");
/// Counts that must not be negative.
pub const NOT_POSITIVE: CommandError = CommandError::new("ERR value is out of range, must be positive");
/// Values that would exceed `proto-max-bulk-len`.
pub const STRING_TOO_LONG: CommandError =
    CommandError::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
/// The command needs memory, and there is none.
pub const OUT_OF_MEMORY: CommandError =
    CommandError::new("OOM command not allowed when used memory > 'maxmemory'.");

/// The reply would be larger than its reader takes.
pub const REPLY_TOO_LARGE: CommandError = CommandError::new(
    "REPLYLIMIT the reply would exceed the limit on reply bytes (client-output-buffer-limit); nothing was \
     changed. Request less data per call",
);

/// `-ERR wrong number of arguments for 'get' command`
pub fn wrong_arity(name: &str) -> CommandError {
    CommandError::owned(format!("ERR wrong number of arguments for '{name}' command"))
}

/// `-ERR invalid expire time in 'set' command`
pub fn invalid_expire(name: &str) -> CommandError {
    CommandError::owned(format!("ERR invalid expire time in '{name}' command"))
}
