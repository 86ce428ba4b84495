//! Keys that scripts use and did not declare are counted, and the first is logged.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use store::LockRequest;
use tracing::info;

use crate::telemetry::Telemetry;
use crate::telemetry::counters::{Counters, unix_time};
use crate::telemetry::script_stats::Stats;

/// Counts keys that a program has used and not declared, and logs the first.
pub(super) fn note_undeclared<'k>(
    telemetry: &Telemetry,
    program: impl Display,
    stats: &Stats,
    mut used: impl Iterator<Item = &'k LockRequest>,
) {
    let Some(LockRequest { key: first, .. }) = used.next() else { return };
    let count = 1 + used.count() as u64;
    Counters::add(&telemetry.counters.undeclared_keys, count);
    let is_new = stats.add_undeclared(count);
    // Clients that make up new texts all the time must not fill the log.
    let second = unix_time().as_secs();
    if is_new && telemetry.counters.undeclared_logged.swap(second, Ordering::Relaxed) != second {
        let key = String::from_utf8_lossy(&first[..first.len().min(128)]);
        info!(
            "{program} uses the key {key}, which is not among its KEYS; declared keys are locked once before \
             the script runs, undeclared keys can cause it to run again"
        );
    }
}
