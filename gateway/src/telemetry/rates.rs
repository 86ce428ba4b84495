//! How fast things go at the moment and how far memory has gone, for INFO: looked at now and then beside requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the counters are read.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// So many looks a rate is the mean of: 1.6 s, as in Redis.
const LOOKS: usize = 8;

/// Calls, bytes that came, and bytes that went.
pub type Sums = [u64; 3];

/// What was seen last.
#[derive(Default)]
pub struct RateSampler {
    rates: [AtomicU64; 3],
    peak: AtomicU64,
}

/// The looks that rates are made of, the oldest first.
#[derive(Default)]
pub struct Looks(VecDeque<(Instant, Sums)>);

impl RateSampler {
    /// Notes what the sums are now.
    pub fn look(&self, looks: &mut Looks, now: Instant, sums: Sums) {
        let Looks(looks) = looks;
        if looks.len() > LOOKS {
            looks.pop_front();
        }
        looks.push_back((now, sums));
        let Some((since, before)) = looks.front() else { return };
        let millis = (now.saturating_duration_since(*since).as_millis() as u64).max(1);
        for ((rate, sum), before) in self.rates.iter().zip(sums).zip(before) {
            rate.store(sum.saturating_sub(*before).saturating_mul(1000) / millis, Ordering::Relaxed);
        }
    }

    /// How much of each there was in a second.
    pub fn rates(&self) -> Sums {
        self.rates.each_ref().map(|rate| rate.load(Ordering::Relaxed))
    }

    /// The most memory that there has been, with these bytes now.
    pub fn peak(&self, bytes: u64) -> u64 {
        self.peak.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }
}

/// Bytes as Redis shows them to people.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{size:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_looks() {
        let (rate_sampler, mut looks, start) = (RateSampler::default(), Looks::default(), Instant::now());
        for number in 0..50 {
            rate_sampler.look(
                &mut looks,
                start + SAMPLE_INTERVAL * number,
                [u64::from(number), 0, 1000 * u64::from(number)],
            );
        }
        assert_eq!(rate_sampler.rates(), [5, 0, 5000]);
        for number in 50..60 {
            rate_sampler.look(&mut looks, start + SAMPLE_INTERVAL * number, [49, 0, 49_000]);
        }
        assert_eq!(rate_sampler.rates(), [0; 3]);
        assert_eq!([5, 3, 7].map(|bytes| rate_sampler.peak(bytes)), [5, 5, 7]);
    }

    #[test]
    fn sizes_are_shown_as_by_redis() {
        for (bytes, shown) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1 << 20, "1.00M"), (1_610_612_736, "1.50G")]
        {
            assert_eq!(human(bytes), shown);
        }
    }
}
