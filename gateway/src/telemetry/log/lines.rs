//! What a line looks like.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::rate_limit;
use super::targets::{AUDIT, SCRIPT};

/// The process has one standard error; how it is written to is said by [`super::follow`].
pub static IS_JSON: AtomicBool = AtomicBool::new(false);

const WORDS: [&str; 3] = ["debug", "info", "warning"];
static WRITTEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Levels with how many lines were written.
pub fn count() -> [(&'static str, u64); 3] {
    std::array::from_fn(|at| (WORDS[at], WRITTEN[at].load(Ordering::Relaxed)))
}

/// The place of a level in [`WORDS`].
fn place(level: Level) -> usize {
    match level {
        Level::TRACE | Level::DEBUG => 0,
        Level::INFO => 1,
        Level::WARN | Level::ERROR => 2,
    }
}

/// Writes an event as a line.
pub struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let is_json = IS_JSON.load(Ordering::Relaxed);
        let dropped = rate_limit::take_untold();
        if dropped > 0 {
            let text = format!("{dropped} log lines were dropped by the rate limit");
            Line { level: Level::WARN, source: None, text, fields: Vec::new() }.put(is_json, &mut out)?;
        }
        let source = [AUDIT, SCRIPT].into_iter().find(|source| *source == event.metadata().target());
        let level = *event.metadata().level();
        let mut line = Line { level, source, text: String::new(), fields: Vec::new() };
        event.record(&mut line);
        line.put(is_json, &mut out)
    }
}

/// A line.
struct Line {
    level: Level,
    source: Option<&'static str>,
    text: String,
    /// What else an object of JSON has.
    fields: Vec<(&'static str, String)>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Line {
    fn put(self, is_json: bool, out: &mut Writer<'_>) -> fmt::Result {
        WRITTEN[place(self.level)].fetch_add(1, Ordering::Relaxed);
        match is_json {
            true => self.put_json(out),
            false => self.put_text(out),
        }
    }

    fn put_json(self, out: &mut Writer<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut object = Map::new();
        object.insert("time".to_owned(), time.into());
        object.insert("level".to_owned(), WORDS[place(self.level)].into());
        object.insert("message".to_owned(), self.text.into());
        object.extend(self.source.map(|source| ("source".to_owned(), source.into())));
        object.extend(self.fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
        writeln!(out, "{}", Value::Object(object))
    }

    fn put_text(self, out: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(out)?;
        write!(out, " {}: ", WORDS[place(self.level)])?;
        if let Some(source) = self.source {
            write!(out, "{source}: ")?;
        }
        out.write_str(&self.text.replace(['\r', '\n'], " "))?;
        // People find the trace elsewhere.
        for (name, value) in self.fields.iter().filter(|_| self.source == Some(AUDIT)) {
            let plain = !value.is_empty() && !value.contains([' ', '=', '"']);
            match plain {
                true => write!(out, " {name}={value}")?,
                false => write!(out, " {name}={value:?}")?,
            }
        }
        out.write_char('\n')
    }
}
