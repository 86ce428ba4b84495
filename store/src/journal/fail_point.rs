//! Places where a test lets the writer fail, or a transaction over several nodes end. Builds without debug assertions have none.
//!
//! `FAIL_POINTS` in the environment says what happens where: `applied@20=abort` ends the process when it comes there
//! the 20th time, `flushed=/some/file` is an error as long as there is such a file, `applied=until:/some/file` waits until
//! there is such a file, and `journal-bytes=1000` is a number
//! to have instead of the usual one. Commas stand between several. The crate `fail` would do the same, but with its
//! packages the server under test has another Wasmtime than the rest: each would be compiled.

use std::time::Duration;

use super::disk::DiskError;

/// Ends the process or fails, if this place is to.
pub fn reach(name: &str) -> Result<(), DiskError> {
    if cfg!(debug_assertions) { configured::reach(name) } else { Ok(()) }
}

/// The same where nothing can fail: the process may only end.
pub fn pass(name: &str) {
    // What would be an error has no meaning here.
    let _ = reach(name);
}

/// The number that a test wants to have instead of the usual one.
pub fn number(name: &str) -> Option<u64> {
    if cfg!(debug_assertions) { configured::number(name) } else { None }
}

/// The time that a test wants to have instead of the usual one: `NAME=MILLISECONDS`.
pub fn time(name: &str, usual: Duration) -> Duration {
    number(name).map_or(usual, Duration::from_millis)
}

mod configured {
    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::DiskError;

    /// What happens at a place.
    struct Point {
        name: String,
        /// How often it has to be reached before that; 0 is always.
        hits: u64,
        reached: AtomicU64,
        what: String,
    }

    static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| {
        let configured = std::env::var("FAIL_POINTS").unwrap_or_default();
        configured.split(',').filter_map(parse).collect()
    });

    fn parse(text: &str) -> Option<Point> {
        let (name, what) = text.split_once('=')?;
        let (name, hits) = name.split_once('@').unwrap_or((name, "0"));
        let (name, what) = (name.to_owned(), what.to_owned());
        Some(Point { name, hits: hits.parse().ok()?, reached: AtomicU64::new(0), what })
    }

    pub fn reach(name: &str) -> Result<(), DiskError> {
        for point in POINTS.iter().filter(|point| point.name == name) {
            let hits = point.reached.fetch_add(1, Ordering::Relaxed) + 1;
            if point.hits != 0 && point.hits != hits {
                continue;
            }
            if point.what == "abort" {
                std::process::abort();
            }
            if let Some(file) = point.what.strip_prefix("until:") {
                while !Path::new(file).exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                continue;
            }
            if Path::new(&point.what).exists() {
                return Err(DiskError::Refused(format!("a test makes it fail: {name}")));
            }
        }
        Ok(())
    }

    pub fn number(name: &str) -> Option<u64> {
        POINTS.iter().find(|point| point.name == name)?.what.parse().ok()
    }
}
