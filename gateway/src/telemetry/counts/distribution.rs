//! Distributions of times, in bounded memory.

use std::sync::atomic::{AtomicU64, Ordering};

use store::latency::{Buckets, bucket_of};

/// Steps between two powers of two: values are known within 3 %.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Longer times count as this long, as in Redis: a second.
const MOST_NANOS: u64 = 1_000_000_000;
/// Numbers of steps up to that.
const SLOTS: usize = step_of(MOST_NANOS) + 1;

/// The step that a time falls into.
const fn step_of(nanos: u64) -> usize {
    // On the way of every call: no branch, and nothing that could overflow.
    let shift = (nanos | (2 * STEPS as u64 - 1)).ilog2().wrapping_sub(STEP_BITS);
    ((shift << STEP_BITS) as usize).wrapping_add((nanos >> shift) as usize)
}

/// The longest time of a step.
fn end_of(step: usize) -> u64 {
    if step < 2 * STEPS {
        return step as u64;
    }
    let shift = (step / STEPS - 1) as u32;
    let top = (STEPS + step % STEPS) as u64;
    ((top + 1) << shift) - 1
}

/// How a thread adds to a counter.
#[derive(Clone, Copy)]
pub enum Adds {
    /// It is the only one that does: nothing can come in between, and an atomic addition costs more.
    Alone,
    /// Others do as well.
    Among,
}

impl Adds {
    /// Adds to a counter; orders nothing.
    #[inline]
    pub fn to(self, counter: &AtomicU64, count: u64) {
        match self {
            Adds::Alone => {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
            }
            Adds::Among => {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// Times of one command on some threads.
pub struct Timed {
    slots: Box<[AtomicU64; SLOTS]>,
}

impl Default for Timed {
    fn default() -> Timed {
        Timed { slots: Box::new([const { AtomicU64::new(0) }; SLOTS]) }
    }
}

impl Timed {
    /// Notes a time.
    #[inline]
    pub fn add(&self, nanos: u64, adds: Adds) {
        adds.to(&self.slots[step_of(nanos.min(MOST_NANOS))], 1);
    }
}

/// A distribution that does not change any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How many times fell into each step; none of them if there is no time.
    slots: Vec<u64>,
    /// Their sum.
    pub nanos: u64,
}

impl Distribution {
    /// Adds what threads have noted.
    pub fn join(&mut self, timed: &Timed) {
        self.slots.resize(SLOTS, 0);
        for (sum, slot) in self.slots.iter_mut().zip(timed.slots.iter()) {
            *sum += slot.load(Ordering::Relaxed);
        }
    }

    /// Takes off what was there before.
    pub fn since(mut self, before: &Distribution) -> Distribution {
        for (sum, before) in self.slots.iter_mut().zip(&before.slots) {
            *sum = sum.saturating_sub(*before);
        }
        self.nanos = self.nanos.saturating_sub(before.nanos);
        self
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.slots.iter().sum()
    }

    /// The time in nanoseconds that `percent` of all do not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent.min(100.0) / 100.0 * self.count() as f64) + 0.5) as u64;
        let mut seen = 0;
        for (step, count) in self.slots.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return end_of(step);
            }
        }
        0
    }

    /// How many times are shorter than 1024 nanoseconds, than twice that, and so on until they are all: the longest
    /// time of each, and the sum up to it. Those that add nothing are left out.
    pub fn doubling(&self) -> Vec<(u64, u64)> {
        let (mut found, mut sum, mut reported, mut bound) = (Vec::new(), 0, 0, 1024);
        for (step, count) in self.slots.iter().enumerate() {
            while end_of(step) >= bound {
                if sum > reported {
                    found.push((bound - 1, sum));
                    reported = sum;
                }
                bound *= 2;
            }
            sum += count;
        }
        if sum > reported {
            found.push((bound - 1, sum));
        }
        found
    }

    /// The same in the buckets of metrics, whose bounds no step crosses.
    pub fn buckets(&self) -> Buckets {
        let mut buckets = Buckets::default();
        for (step, count) in self.slots.iter().enumerate() {
            buckets[bucket_of(end_of(step))] += count;
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_step_that_ends_close_behind_it() {
        let mut last = 0;
        for nanos in (0..5000).chain((13..30).map(|bit| (1 << bit) + 7)).chain([MOST_NANOS]) {
            let end = end_of(step_of(nanos));
            assert!(end >= nanos && end - nanos <= nanos / STEPS as u64, "{nanos} ends at {end}");
            if nanos < 5000 {
                assert!(end >= last, "{nanos}");
                last = end;
            }
        }
    }

    #[test]
    fn percentiles_and_sums() {
        let timed = Timed::default();
        (1..=100u64).for_each(|at| timed.add(at * 1000, Adds::Alone));
        timed.add(u64::MAX, Adds::Among);
        let mut spread = Distribution::default();
        spread.join(&timed);
        assert_eq!(spread.count(), 101);
        let near = |value: u64, wanted: u64| value >= wanted && value <= wanted + wanted / 16;
        assert!(near(spread.percentile(50.0), 50_000), "{}", spread.percentile(50.0));
        assert!(near(spread.percentile(100.0), MOST_NANOS));
        let doubling = spread.doubling();
        assert_eq!(doubling[..3], [(1023, 1), (2047, 2), (4095, 4)]);
        assert_eq!(doubling.last().map(|(_, sum)| *sum), Some(101));
        assert_eq!(spread.buckets()[..4], [1, 1, 2, 4]);
        let none = spread.clone().since(&spread);
        assert!(none.count() == 0 && none.doubling().is_empty() && none.percentile(50.0) == 0);
    }
}
