//! Log lines on standard error.

use std::sync::atomic::{AtomicU64, Ordering};

use script::LogLevel;

/// Lines by level, as [`lines`] names them.
static LINES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Levels with how many lines were written.
pub fn lines() -> [(&'static str, u64); 4] {
    let words = ["debug", "info", "warning", "error"];
    std::array::from_fn(|at| (words[at], LINES[at].load(Ordering::Relaxed)))
}

/// Lines that were not written since there were too many.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A line about the server itself.
pub fn notice(text: &str) {
    LINES[1].fetch_add(1, Ordering::Relaxed);
    eprintln!("moonshard: {text}");
}

/// A line that a script wrote with `redis.log`; shown from NOTICE on, as Redis' default log level does.
/// Control characters are escaped, so that a script cannot forge lines.
pub fn script(level: LogLevel, text: &[u8]) {
    if matches!(level, LogLevel::Notice | LogLevel::Warning) {
        LINES[1].fetch_add(1, Ordering::Relaxed);
        eprintln!("moonshard: script: {}", text.escape_ascii());
    }
}
