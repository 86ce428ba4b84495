//! How recently or how often a key was used: the 24 bits that Redis keeps beside each value, with its arithmetic.

/// What is remembered of accesses; the choice of `maxmemory-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aging {
    /// When the newest was: a clock of seconds.
    #[default]
    Recency,
    /// How many there were: a counter that grows ever more slowly, and when it was last looked at.
    Frequency {
        /// `lfu-log-factor`: the higher, the more accesses it takes to the highest count.
        log_factor: u32,
        /// `lfu-decay-time`: minutes after which an unused counter falls by one; 0 is never.
        decay_minutes: u32,
    },
}

/// The newest access in seconds, or minutes and counter. What it means is said by the [`Aging`] in force; after a
/// change of that it means little until the key is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

const CLOCK_BITS: u32 = 24;
const CLOCK: u32 = (1 << CLOCK_BITS) - 1;
/// What a new key has, so that it is not the first to go.
const FIRST_COUNT: u8 = 5;

fn seconds(now_ms: u64) -> u32 {
    (now_ms / 1000) as u32 & CLOCK
}

fn minutes(now_ms: u64) -> u16 {
    (now_ms / 60_000) as u16
}

impl Stamp {
    /// As a number, to be stored.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// From [`Stamp::bits`].
    pub fn from_bits(bits: u32) -> Stamp {
        Stamp(bits)
    }

    fn counted(now_ms: u64, count: u8) -> Stamp {
        Stamp(u32::from(minutes(now_ms)) << 8 | u32::from(count))
    }

    fn count(self, decay_minutes: u32, now_ms: u64) -> u8 {
        let [count, ..] = self.0.to_le_bytes();
        let elapsed = minutes(now_ms).wrapping_sub((self.0 >> 8) as u16);
        let periods = u32::from(elapsed).checked_div(decay_minutes).unwrap_or(0);
        count.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }
}

impl Aging {
    /// The stamp of a new key.
    pub fn first(self, now_ms: u64) -> Stamp {
        match self {
            Aging::Recency => Stamp(seconds(now_ms)),
            Aging::Frequency { .. } => Stamp::counted(now_ms, FIRST_COUNT),
        }
    }

    /// The stamp of a key that comes from elsewhere with what was remembered of it there, if that is what is
    /// remembered here.
    pub fn stamp_of_access(
        self,
        idle_seconds: Option<u64>,
        frequency: Option<u8>,
        now_ms: u64,
    ) -> Option<Stamp> {
        match self {
            Aging::Recency => {
                let used_ms = now_ms.saturating_sub(idle_seconds?.saturating_mul(1000));
                Some(Stamp(seconds(used_ms)))
            }
            Aging::Frequency { .. } => Some(Stamp::counted(now_ms, frequency?)),
        }
    }

    /// Notes an access. `dice` is the state of a random source.
    pub fn note(self, stamp: &mut Stamp, now_ms: u64, dice: &mut u64) {
        let new = match self {
            Aging::Recency => Stamp(seconds(now_ms)),
            Aging::Frequency { log_factor, decay_minutes } => {
                let count = stamp.count(decay_minutes, now_ms);
                Stamp::counted(now_ms, grown(count, log_factor, dice))
            }
        };
        // Most often nothing is new, and memory that is not written stays shared among CPUs.
        if new != *stamp {
            *stamp = new;
        }
    }

    /// Seconds since the newest access; `None` where that is not remembered.
    pub fn idle_seconds(self, stamp: Stamp, now_ms: u64) -> Option<u32> {
        (self == Aging::Recency).then(|| seconds(now_ms).wrapping_sub(stamp.0) & CLOCK)
    }

    /// The counter of accesses as it is by now; `None` where that is not remembered.
    pub fn frequency(self, stamp: Stamp, now_ms: u64) -> Option<u8> {
        match self {
            Aging::Recency => None,
            Aging::Frequency { decay_minutes, .. } => Some(stamp.count(decay_minutes, now_ms)),
        }
    }
}

/// The counter after one more access: the higher it is, the less likely it grows.
fn grown(count: u8, log_factor: u32, dice: &mut u64) -> u8 {
    // Xorshift64*: needs nothing but a state that is not 0.
    let mut x = (*dice).max(1);
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *dice = x;
    let roll = x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
    let above = u64::from(count.saturating_sub(FIRST_COUNT));
    // One in `above * log_factor + 1`.
    let grows = roll.saturating_mul(above * u64::from(log_factor) + 1) < 1 << 32;
    count.saturating_add(u8::from(grows))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LFU: Aging = Aging::Frequency { log_factor: 10, decay_minutes: 1 };

    #[test]
    fn idle_time_counts_from_the_newest_access_and_survives_the_turn_of_the_clock() {
        let turn_ms = u64::from(CLOCK) * 1000;
        for start_ms in [5_000, turn_ms - 3_000] {
            let mut stamp = Aging::Recency.first(start_ms);
            assert_eq!(Aging::Recency.idle_seconds(stamp, start_ms + 10_999), Some(10));
            Aging::Recency.note(&mut stamp, start_ms + 8_000, &mut 1);
            assert_eq!(Aging::Recency.idle_seconds(stamp, start_ms + 10_999), Some(2));
            assert_eq!(Aging::Recency.frequency(stamp, start_ms), None);
        }
    }

    /// The table in redis.conf: with factor 10, a hundred accesses make 10, a thousand 18, a hundred thousand 142.
    #[test]
    fn the_counter_grows_as_in_redis() {
        let (mut stamp, mut dice, mut done) = (LFU.first(0), 1, 0);
        for (accesses, wanted) in
            [(100, 7..=13), (1_000, 14..=22), (100_000, 130..=155), (10_000_000, 255..=255)]
        {
            while done < accesses {
                LFU.note(&mut stamp, 0, &mut dice);
                done += 1;
            }
            let count = LFU.frequency(stamp, 0).unwrap_or_default();
            assert!(wanted.contains(&count), "{count} after {accesses} accesses");
        }
    }

    #[test]
    fn the_counter_falls_with_time() {
        let (mut stamp, mut dice) = (LFU.first(0), 1);
        for _ in 0..1_000 {
            LFU.note(&mut stamp, 0, &mut dice);
        }
        let count = LFU.frequency(stamp, 59_999).unwrap_or_default();
        assert_eq!(LFU.frequency(stamp, 3 * 60_000), Some(count - 3));
        assert_eq!(LFU.frequency(stamp, 1_000 * 60_000), Some(0));
        let keeps = Aging::Frequency { log_factor: 10, decay_minutes: 0 };
        assert_eq!(keeps.frequency(stamp, 1_000 * 60_000), Some(count));
        assert_eq!(LFU.idle_seconds(stamp, 0), None);
    }
}
