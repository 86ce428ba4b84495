//! Log lines about the collector.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::{info, warn};

/// Logs when the collector stops accepting exports, and when it accepts them again.
#[derive(Debug)]
pub struct CollectorLog {
    signal: &'static str,
    lost: AtomicBool,
}

impl CollectorLog {
    /// Nothing is lost yet of this signal.
    pub fn new(signal: &'static str) -> CollectorLog {
        CollectorLog { signal, lost: AtomicBool::new(false) }
    }

    /// An export has ended, maybe with a failure.
    pub fn note(&self, failures: &AtomicU64, failure: Option<String>) {
        let CollectorLog { signal, lost } = self;
        match failure {
            None => {
                if lost.swap(false, Ordering::Relaxed) {
                    info!("the collector accepts {signal} again");
                }
            }
            Some(why) => {
                failures.fetch_add(1, Ordering::Relaxed);
                if !lost.swap(true, Ordering::Relaxed) {
                    warn!("the collector does not accept {signal}: {why}");
                }
            }
        }
    }
}
