//! Log lines on standard error, for people or as JSON.
//!
//! Lines are escaped, so that nobody can forge one, and bounded: what clients and scripts cause may fill a burst and
//! then so many lines a second; the rest is counted, and told of when there is room again. Lines of the audit have room of
//! their own.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use script::LogLevel;
use serde_json::json;
use store::spans::Context;

use crate::config::Config;
use crate::telemetry::counters::unix_time;

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
static AUDIT_ROOM: Mutex<Room> = Mutex::new(Room { left: BURST, second: 0, untold: 0 });

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

/// A line.
struct Line<'a> {
    level: Level,
    source: Option<&'static str>,
    text: &'a str,
    /// What else an object of JSON has.
    fields: &'a [(&'static str, String)],
}

/// A line about the server itself.
pub fn notice(text: &str) {
    write(&ROOM, &Line { level: Level::Info, source: None, text, fields: &[] });
}

/// A line about something that may be wrong.
pub fn warning(text: &str) {
    write(&ROOM, &Line { level: Level::Warning, source: None, text, fields: &[] });
}

/// A line that a script wrote with `redis.log`. `span` is where it belongs if its run is traced: trace and span.
pub fn script(level: LogLevel, text: &[u8], span: Option<Context>) {
    let text = text[..text.len().min(LONGEST)].escape_ascii().to_string();
    let fields = span.map(|span| [("trace_id", span.trace_text()), ("span_id", span.span_text())]);
    let fields = fields.as_ref().map_or(&[][..], |fields| fields);
    write(&ROOM, &Line { level: Level::of_script(level), source: Some("script"), text: &text, fields });
}

/// A line about what somebody did or was refused. It is written whatever the level: it has a parameter of its own.
pub fn audit(event: &str, fields: &[(&'static str, String)]) {
    let line = Line { level: Level::Info, source: Some("audit"), text: event, fields };
    write_in(&AUDIT_ROOM, &line);
}

fn write(room: &Mutex<Room>, line: &Line<'_>) {
    if (line.level as u8) >= LEAST.load(Ordering::Relaxed) {
        write_in(room, line);
    }
}

fn write_in(room: &Mutex<Room>, line: &Line<'_>) {
    let now = unix_time();
    let Some(untold) = room.lock().take(now.as_secs()) else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if untold > 0 {
        let text = format!("{untold} log lines were dropped by the rate limit");
        put(now, &Line { level: Level::Warning, source: None, text: &text, fields: &[] });
    }
    put(now, line);
}

fn put(now: std::time::Duration, line: &Line<'_>) {
    let Line { level, source, text, fields } = *line;
    LINES[level as usize].fetch_add(1, Ordering::Relaxed);
    if JSON.load(Ordering::Relaxed) == 0 {
        eprintln!("{}", pretty(line));
        return;
    }
    let mut object = json!({ "time": time(now), "level": WORDS[level as usize], "message": text });
    if let Some(source) = source {
        object["source"] = source.into();
    }
    for (name, value) in fields {
        object[*name] = value.as_str().into();
    }
    eprintln!("{object}");
}

fn pretty(line: &Line<'_>) -> String {
    let Line { level, source, text, fields } = *line;
    let mark = if level > Level::Info { format!("{}: ", WORDS[level as usize]) } else { String::new() };
    let of = source.map(|source| format!("{source}: ")).unwrap_or_default();
    let mut pretty = format!("moonshard: {mark}{of}{}", text.replace(['\r', '\n'], " "));
    // People find the trace elsewhere.
    for (name, value) in fields.iter().filter(|_| source == Some("audit")) {
        let plain = !value.is_empty() && !value.contains([' ', '=', '"']);
        pretty += &if plain { format!(" {name}={value}") } else { format!(" {name}={value:?}") };
    }
    pretty
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
    fn values_of_fields_cannot_be_mistaken_for_others() {
        let fields = [("user", "a addr=b".to_owned()), ("addr", "c".to_owned()), ("object", String::new())];
        let line = Line { level: Level::Info, source: Some("audit"), text: "denied", fields: &fields };
        assert_eq!(pretty(&line), "moonshard: audit: denied user=\"a addr=b\" addr=c object=\"\"");
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
