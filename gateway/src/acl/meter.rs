//! What a user has used of its limits: buckets that fill up again by the second, and a line for scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So much time a full bucket is worth: what may be used at once after a pause.
const BURST: u64 = 1_000_000_000;

/// A bucket that holds what a second gives. It is kept as the moment, in nanoseconds, at which it will be full again, so that a
/// rate can change at any time.
#[derive(Default)]
struct Bucket(AtomicU64);

impl Bucket {
    /// How long `count` of `rate` a second take, in nanoseconds.
    fn worth(count: u64, rate: u64) -> u64 {
        let nanos = u128::from(count) * u128::from(BURST) / u128::from(rate.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// How long it takes until there is room for `nanos` of use; 0 if there is.
    fn wait_for(&self, nanos: u64, now: u64) -> u64 {
        let full_at = self.0.load(Ordering::Relaxed).max(now);
        full_at.saturating_add(nanos).saturating_sub(now.saturating_add(BURST))
    }

    /// Takes so much out, be there enough or not.
    fn take(&self, nanos: u64, now: u64) {
        let taken = |full_at: u64| Some(full_at.max(now).saturating_add(nanos));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
    }

    /// Puts so much back.
    fn give(&self, nanos: u64) {
        let given = |full_at: u64| Some(full_at.saturating_sub(nanos));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, given);
    }

    /// Takes so much out if there is enough; otherwise how long it takes until there is.
    fn try_take(&self, nanos: u64, now: u64) -> Result<(), u64> {
        let taken = |full_at: u64| {
            let full_at = full_at.max(now).saturating_add(nanos);
            (full_at <= now.saturating_add(BURST)).then_some(full_at)
        };
        let done = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        done.map(drop).map_err(|_| self.wait_for(nanos, now))
    }
}

/// What a user has used.
pub struct Meter {
    began: Instant,
    commands: Bucket,
    fuel: Bucket,
    /// The line of scripts, with how many may run at the same time.
    line: Mutex<Option<(u64, Arc<Semaphore>)>>,
}

impl Meter {
    /// Nothing yet.
    pub fn new() -> Meter {
        Meter {
            began: Instant::now(),
            commands: Bucket::default(),
            fuel: Bucket::default(),
            line: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts a call. `Err` if there were too many: how long it takes until there is room for another.
    pub fn call(&self, per_second: u64) -> Result<(), Duration> {
        self.commands.try_take(Bucket::worth(1, per_second), self.now()).map_err(Duration::from_nanos)
    }

    /// A call that was counted is not made.
    pub fn take_back(&self, per_second: u64) {
        self.commands.give(Bucket::worth(1, per_second));
    }

    /// Counts fuel that was used.
    pub fn charge_fuel(&self, fuel: u64, per_second: u64) {
        self.fuel.take(Bucket::worth(fuel, per_second), self.now());
    }

    /// Whether there is fuel; otherwise how long it takes until there is some.
    pub fn has_fuel(&self) -> Result<(), Duration> {
        match self.fuel.wait_for(1, self.now()) {
            0 => Ok(()),
            nanos => Err(Duration::from_nanos(nanos)),
        }
    }

    /// Lets `most` scripts run at the same time from now on. Those that run go on, and those that wait ask again.
    pub fn set_line(&self, most: Option<u64>) {
        let mut line = self.line.lock();
        if line.as_ref().map(|(most, _)| *most) == most {
            return;
        }
        let permits = |most: u64| usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let new = most.map(|most| (most, Arc::new(Semaphore::new(permits(most)))));
        if let Some((_, old)) = std::mem::replace(&mut *line, new) {
            old.close();
        }
    }

    /// Waits in line for the right to run a script, which ends when what it gives is dropped. `waits` is called if it
    /// has to wait.
    pub async fn script_permit(&self, waits: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        let mut waits = Some(waits);
        loop {
            let line = self.line.lock().as_ref().map(|(_, line)| line.clone())?;
            if let Ok(script_permit) = line.clone().try_acquire_owned() {
                return Some(script_permit);
            }
            if let Some(waits) = waits.take() {
                waits();
            }
            // Closed when there is another line.
            if let Ok(script_permit) = line.acquire_owned().await {
                return Some(script_permit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = BURST;

    #[test]
    fn a_bucket_holds_a_second_and_fills_evenly() {
        let bucket = Bucket::default();
        let each = Bucket::worth(1, 10);
        let taken = |now: u64| (0..50).take_while(|_| bucket.try_take(each, now).is_ok()).count();
        assert_eq!(taken(5 * SECOND), 10);
        assert_eq!(bucket.try_take(each, 5 * SECOND), Err(each));
        assert_eq!(taken(5 * SECOND + each - 1), 0);
        assert_eq!(taken(5 * SECOND + 3 * each), 3);
        assert_eq!(taken(100 * SECOND), 10);
    }

    #[test]
    fn what_is_owed_is_paid_by_waiting() {
        let bucket = Bucket::default();
        bucket.take(Bucket::worth(250, 100), SECOND);
        assert_eq!(bucket.wait_for(1, SECOND), 3 * SECOND / 2 + 1);
        assert_eq!(bucket.wait_for(1, 5 * SECOND / 2), 1);
        assert_eq!(bucket.wait_for(1, 5 * SECOND / 2 + 1), 0);
    }

    #[test]
    fn no_number_is_too_large() {
        let bucket = Bucket::default();
        bucket.take(Bucket::worth(u64::MAX, 1), u64::MAX);
        assert!(bucket.try_take(u64::MAX, 0).is_err());
        assert_eq!(Bucket::worth(u64::MAX, u64::MAX), SECOND);
        assert_eq!(Bucket::worth(1, 0), SECOND);
    }

    #[tokio::test]
    async fn scripts_wait_in_line() {
        let meter = Meter::new();
        assert!(meter.script_permit(|| unreachable!("a user without a limit never waits")).await.is_none());
        meter.set_line(Some(1));
        let first = meter.script_permit(|| unreachable!("no other script runs")).await;
        let mut waited = false;
        let second = meter.script_permit(|| waited = true);
        let ends = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second, ends);
        assert!(waited && second.is_some());
        // A longer line is empty.
        let ends = async {
            tokio::task::yield_now().await;
            meter.set_line(Some(2));
        };
        let (third, ()) = tokio::join!(meter.script_permit(|| {}), ends);
        assert!(third.is_some());
        let ends = async {
            tokio::task::yield_now().await;
            meter.set_line(None);
        };
        let fourth = meter.script_permit(|| {}).await;
        let (fifth, ()) = tokio::join!(meter.script_permit(|| {}), ends);
        assert!(fourth.is_some() && fifth.is_none());
    }
}
