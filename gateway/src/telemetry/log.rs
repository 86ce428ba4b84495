//! Log lines on standard error, for people or as JSON: events of `tracing`.
//!
//! Lines are escaped, so that no client can forge one, and bounded: what clients and scripts cause may fill a burst and
//! then so many lines a second; the rest is counted, and reported when there is room again. Lines of the audit have room of
//! their own.

mod lines;
mod rate_limit;
mod targets;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use script::LogLevel;
use store::spans::SpanContext;
use tracing::field::display;
use tracing::{Level, event};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::{Registry, fmt};

use self::lines::Lines;
use self::rate_limit::RateLimit;
use self::targets::SCRIPT;
use crate::config::{Config, LogFormat};

pub use self::lines::count as lines;
pub use self::rate_limit::dropped;
pub use self::targets::AUDIT;

/// Bytes of a line.
const LONGEST: usize = 4096;

/// How the level is changed.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// Writes lines from now on: as text, from the level `info` on.
pub fn start() {
    let (filter, handle) = reload::Layer::new(targets::from(LevelFilter::INFO));
    let lines = fmt::layer().event_format(Lines).with_writer(std::io::stderr).log_internal_errors(false);
    let subscriber = Registry::default().with(filter).with(lines).with(RateLimit::default());
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Writes lines as the configuration says, from now on.
pub fn follow(config: &Config) {
    lines::IS_JSON.store(config.log_format.get() == LogFormat::Json, Ordering::Relaxed);
    if let Some(filter) = FILTER.get() {
        // It fails when nothing is logged any more.
        let _ = filter.reload(targets::from(config.log_level.get()));
    }
}

/// A line that a script wrote with `redis.log`. `span` is where it belongs if its run is traced: trace and span.
pub fn script(level: LogLevel, text: &[u8], span: Option<SpanContext>) {
    let text = text[..text.len().min(LONGEST)].escape_ascii();
    let trace_id = span.as_ref().map(|span| display(span.trace_id()));
    let span_id = span.as_ref().map(|span| display(span.span_id()));
    macro_rules! line {
        ($level:expr) => {
            event!(target: SCRIPT, $level, trace_id, span_id, "{text}")
        };
    }
    match level {
        LogLevel::Debug | LogLevel::Verbose => line!(Level::DEBUG),
        LogLevel::Notice => line!(Level::INFO),
        LogLevel::Warning => line!(Level::WARN),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::{debug, info, warn};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Where lines are kept.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Kept;

        fn make_writer(&'a self) -> Kept {
            self.clone()
        }
    }

    fn written(act: impl FnOnce()) -> String {
        let kept = Kept::default();
        let lines = fmt::layer().event_format(Lines).with_writer(kept.clone());
        let filter = targets::from(LevelFilter::INFO);
        let subscriber = Registry::default().with(filter).with(lines).with(RateLimit::default());
        tracing::subscriber::with_default(subscriber, act);
        let text = String::from_utf8(kept.0.lock().clone()).expect("text");
        text.lines().map(without_time).collect()
    }

    fn without_time(line: &str) -> String {
        let (time, rest) = line.split_once(' ').expect("a time before the line");
        assert!(time.len() > 19 && time.ends_with('Z'), "{line}");
        format!("{rest}\n")
    }

    #[test]
    fn lines_cannot_be_mistaken_for_others() {
        let text = written(|| {
            info!(target: AUDIT, user = "a addr=b", addr = "c", object = "", "denied");
            info!("one\n2026-01-01T00:00:00Z info: two");
            debug!("nobody looks for a fault");
            warn!("wrong");
            info!(target: "h2", "a library");
            script(LogLevel::Notice, b"\x1b[1m\xff", None);
        });
        assert_eq!(
            text,
            "info: audit: denied user=\"a addr=b\" addr=c object=\"\"\n\
             info: one 2026-01-01T00:00:00Z info: two\n\
             warning: wrong\n\
             info: script: \\x1b[1m\\xff\n"
        );
    }

    #[test]
    fn a_flood_is_cut() {
        let text = written(|| {
            (0..10_000).for_each(|number| info!("{number}"));
            info!(target: AUDIT, "admin");
        });
        let lines: Vec<&str> = text.lines().collect();
        // A second may have passed in between.
        assert!((501..1500).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines.last(), Some(&"info: audit: admin"));
    }
}
