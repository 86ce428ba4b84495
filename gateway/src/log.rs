//! Log lines on standard error, for people or as JSON.
//!
//! Lines are escaped, so that nobody can forge one, and bounded: what clients and scripts cause may fill a burst and
//! then so many lines a second; the rest is counted, and told of when there is room again.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use script::LogLevel;
use serde_json::json;

use crate::config::Config;
use crate::observe::unix_time;

/// Lines that may come at once,
const BURST: u64 = 500;
/// and how many more each second.
const PER_SECOND: u64 = 100;
/// Bytes of a line.
const LONGEST: usize = 4096;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// For whoever looks for a fault.
    Debug,
    /// For whoever wants to know what the server does.
    Info,
    /// Something may be wrong.
    Warning,
}

const WORDS: [&str; 3] = ["debug", "info", "warning"];

impl Level {
    /// Of a line of `redis.log`.
    fn of_script(level: LogLevel) -> Level {
        match level {
            LogLevel::Debug | LogLevel::Verbose => Level::Debug,
            LogLevel::Notice => Level::Info,
            LogLevel::Warning => Level::Warning,
        }
    }
}

/// The process has one standard error; how it is written to is said by [`follow`].
static JSON: AtomicU8 = AtomicU8::new(0);
static LEAST: AtomicU8 = AtomicU8::new(Level::Info as u8);
static LINES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static DROPPED: AtomicU64 = AtomicU64::new(0);
static ROOM: Mutex<Room> = Mutex::new(Room { left: BURST, second: 0, untold: 0 });

/// How many lines may still be written.
struct Room {
    left: u64,
    /// Unix time at which there were so many.
    second: u64,
    /// Lines dropped since it was last told how many.
    untold: u64,
}

impl Room {
    /// Whether a line may be written in this second, and how many were dropped before it that nobody was told of.
    fn take(&mut self, second: u64) -> Option<u64> {
        let passed = second.saturating_sub(self.second);
        self.left = passed.saturating_mul(PER_SECOND).saturating_add(self.left).min(BURST);
        self.second = self.second.max(second);
        if self.left == 0 {
            self.untold += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// Writes lines as the configuration says, from now on.
pub fn follow(config: &Config) {
    JSON.store(config.log_format.get() as u8, Ordering::Relaxed);
    LEAST.store(config.log_level.get() as u8, Ordering::Relaxed);
}

/// Levels with how many lines were written.
pub fn lines() -> [(&'static str, u64); 3] {
    std::array::from_fn(|at| (WORDS[at], LINES[at].load(Ordering::Relaxed)))
}

/// Lines that were not written since there were too many.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A line about the server itself.
pub fn notice(text: &str) {
    write(Level::Info, None, text, None);
}

/// A line about something that may be wrong.
pub fn warning(text: &str) {
    write(Level::Warning, None, text, None);
}

/// A line that a script wrote with `redis.log`. `span` is where it belongs if its run is traced: trace and span.
pub fn script(level: LogLevel, text: &[u8], span: Option<(String, String)>) {
    let text = &text[..text.len().min(LONGEST)];
    write(Level::of_script(level), Some("script"), &text.escape_ascii().to_string(), span);
}

fn write(level: Level, source: Option<&str>, text: &str, span: Option<(String, String)>) {
    if (level as u8) < LEAST.load(Ordering::Relaxed) {
        return;
    }
    let now = unix_time();
    let Some(untold) = ROOM.lock().take(now.as_secs()) else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if untold > 0 {
        put(
            Level::Warning,
            now,
            None,
            &format!("{untold} lines were not written: there were too many"),
            None,
        );
    }
    put(level, now, source, text, span);
}

fn put(
    level: Level,
    now: std::time::Duration,
    source: Option<&str>,
    text: &str,
    span: Option<(String, String)>,
) {
    LINES[level as usize].fetch_add(1, Ordering::Relaxed);
    if JSON.load(Ordering::Relaxed) == 0 {
        let source = source.map(|source| format!("{source}: ")).unwrap_or_default();
        let mark = if level > Level::Info { format!("{}: ", WORDS[level as usize]) } else { String::new() };
        eprintln!("moonshard: {mark}{source}{}", text.replace(['\r', '\n'], " "));
        return;
    }
    let mut line = json!({ "time": time(now), "level": WORDS[level as usize], "message": text });
    for (name, value) in [
        ("source", source.map(str::to_owned)),
        ("trace_id", span.as_ref().map(|(trace, _)| trace.clone())),
        ("span_id", span.map(|(_, span)| span)),
    ] {
        if let Some(value) = value {
            line[name] = value.into();
        }
    }
    eprintln!("{line}");
}

/// A Unix time as RFC 3339 writes it.
fn time(now: std::time::Duration) -> String {
    let (days, second) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    // Days since the first of March of the year 0, in the calendar of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, year) = (if month < 10 { month + 3 } else { month - 9 }, era * 400 + year);
    let year = year + u64::from(month <= 2);
    let (hour, minute, millis) = (second / 3600, second / 60 % 60, now.subsec_millis());
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{:02}.{millis:03}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_flood_is_cut_and_told_of() {
        let mut room = Room { left: BURST, second: 0, untold: 0 };
        let written = (0..10_000).filter(|_| room.take(1000).is_some()).count() as u64;
        assert_eq!(written, BURST);
        assert_eq!(room.take(1001), Some(10_000 - BURST));
        assert_eq!((1..1000).filter(|_| room.take(1001).is_some()).count() as u64, PER_SECOND - 1);
    }
}
