//! Distributions of times, for metrics.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Bounds in nanoseconds: 1024 and powers of two of it, up to four seconds.
pub const BOUNDS: [u64; 23] = {
    let mut bounds = [1024; 23];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// The bucket of a time: the place of the first bound beyond it.
pub fn bucket_of(nanos: u64) -> usize {
    // One more bit, one more bound.
    ((nanos / BOUNDS[0] * 2 + 1).ilog2() as usize).min(BOUNDS.len())
}

/// How many times are within each of [`BOUNDS`], and how many beyond.
pub type Buckets = [u64; BOUNDS.len() + 1];

/// Times that threads note in the same place.
#[derive(Default)]
pub struct Times {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Times {
    /// Notes a time.
    pub fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Awaits `wait` and notes how long that took, if it was not over at once: then the clock is not read.
    pub async fn of<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context))).await {
            return done;
        }
        let began = Instant::now();
        let done = wait.await;
        self.add(began.elapsed());
        done
    }

    /// What was noted, and the sum of all in nanoseconds.
    pub fn totals(&self) -> (Buckets, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (std::array::from_fn(|at| load(&self.buckets[at])), load(&self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_the_first_bound_beyond_it() {
        let around = BOUNDS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for nanos in around.chain([0, 1, u64::MAX / 2, u64::MAX]) {
            let wanted = BOUNDS.iter().position(|bound| nanos < *bound).unwrap_or(BOUNDS.len());
            assert_eq!(bucket_of(nanos), wanted, "{nanos}");
        }
    }

    #[test]
    fn times_fall_into_the_bucket_whose_bound_is_beyond_them() {
        let times = Times::default();
        for nanos in [0, 1023, 1024, 2047, u64::MAX] {
            times.add(Duration::from_nanos(nanos));
        }
        let (buckets, _) = times.totals();
        assert_eq!((buckets[0], buckets[1], buckets[BOUNDS.len()]), (2, 2, 1));
        assert_eq!(buckets.iter().sum::<u64>(), 5);
    }
}
