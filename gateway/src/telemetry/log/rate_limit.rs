//! How many lines may be written.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::targets::AUDIT;
use crate::telemetry::counters::unix_time;

/// Lines that may come at once,
const BURST: u64 = 500;
/// and how many more each second.
const PER_SECOND: u64 = 100;

static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Lines dropped before the next one, which reports their number.
static UNTOLD: AtomicU64 = AtomicU64::new(0);

/// Lines that were not written since there were too many.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Lines dropped before the one that is written now.
pub fn take_untold() -> u64 {
    UNTOLD.swap(0, Ordering::Relaxed)
}

/// Lets so many lines through.
#[derive(Default)]
pub struct RateLimit {
    room: Mutex<Room>,
    audit_room: Mutex<Room>,
}

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let room = if event.metadata().target() == AUDIT { &self.audit_room } else { &self.room };
        match room.lock().take(unix_time().as_secs()) {
            Some(untold) => {
                UNTOLD.fetch_add(untold, Ordering::Relaxed);
                true
            }
            None => {
                DROPPED.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

/// How many lines may still be written.
struct Room {
    left: u64,
    /// Unix time at which there were so many.
    second: u64,
    /// Lines dropped since their number was last reported.
    untold: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { left: BURST, second: 0, untold: 0 }
    }
}

impl Room {
    /// Whether a line may be written in this second, and how many were dropped before it without a report.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_told_of() {
        let mut room = Room::default();
        let written = (0..10_000).filter(|_| room.take(1000).is_some()).count() as u64;
        assert_eq!(written, BURST);
        assert_eq!(room.take(1001), Some(10_000 - BURST));
        assert_eq!((1..1000).filter(|_| room.take(1001).is_some()).count() as u64, PER_SECOND - 1);
    }
}
