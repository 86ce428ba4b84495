//! Log lines on standard error.

use script::LogLevel;

/// A line about the server itself.
pub fn notice(text: &str) {
    eprintln!("moonshard: {text}");
}

/// A line that a script wrote with `redis.log`; shown from NOTICE on, as Redis' default log level does.
/// Control characters are escaped, so that a script cannot forge lines.
pub fn script(level: LogLevel, text: &[u8]) {
    if matches!(level, LogLevel::Notice | LogLevel::Warning) {
        eprintln!("moonshard: script: {}", text.escape_ascii());
    }
}
