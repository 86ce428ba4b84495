//! When something may expire, without looking at every key.
//!
//! Keys lie at dense positions. For each span of neighbouring positions this holds a time before which none of its
//! keys expires. The bound may be too early, as keys change; then looking at the span once puts it right.

use std::num::NonZeroU64;

/// Positions that share a bound: looking at all of them takes a microsecond, and a bound costs them little memory.
pub const SPAN: usize = 256;

/// The bound of a span without anything that expires.
const NEVER: u64 = u64::MAX;

/// Bounds of a keyspace, or of the fields of a hash.
#[derive(Clone, Debug)]
pub struct ExpiryIndex {
    bounds: Vec<u64>,
    /// Not later than any of them.
    first: u64,
}

impl Default for ExpiryIndex {
    fn default() -> ExpiryIndex {
        ExpiryIndex { bounds: Vec::new(), first: NEVER }
    }
}

impl ExpiryIndex {
    /// The entry now at `at` expires at this time.
    pub fn note(&mut self, at: usize, expire_at_ms: Option<NonZeroU64>) {
        let Some(expire_at_ms) = expire_at_ms.map(NonZeroU64::get) else { return };
        let span = at / SPAN;
        if span >= self.bounds.len() {
            self.bounds.resize(span + 1, NEVER);
        }
        self.bounds[span] = self.bounds[span].min(expire_at_ms);
        self.first = self.first.min(expire_at_ms);
    }

    /// A span in which something may have expired, the last one. Its bound is lifted: whoever looks at its entries
    /// has to note those that stay.
    pub fn take_due(&mut self, now_ms: u64) -> Option<usize> {
        if self.first > now_ms {
            return None;
        }
        let due = self.bounds.iter().rposition(|bound| *bound <= now_ms);
        match due {
            Some(span) => self.bounds[span] = NEVER,
            None => self.first = self.bounds.iter().copied().min().unwrap_or(NEVER),
        }
        due
    }

    /// A time before which nothing expires.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Whether nothing in the span of `at` expires.
    pub fn is_empty_at(&self, at: usize) -> bool {
        self.bounds.get(at / SPAN).is_none_or(|bound| *bound == NEVER)
    }

    /// There are only `len` positions any more.
    pub fn cut(&mut self, len: usize) {
        self.bounds.truncate(len.div_ceil(SPAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    /// Whatever moves keys to other places and changes their times: no expired one is missed.
    #[test]
    fn a_sweep_finds_all_that_has_expired() {
        let mut bench = Bench::new();
        for number in 0..20_000_u64 {
            let dice = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let key = dice % 3_000;
            bench.run(&match dice / 3_000 % 8 {
                0..=2 => format!("SET key:{key} v PX {}", 1 + dice % 9_000),
                3 => format!("SET key:{key} v"),
                4 => format!("PEXPIRE key:{key} {}", 1 + dice % 5_000),
                5 => format!("RENAME key:{key} key:{}", dice % 2_999),
                6 => format!("PERSIST key:{key}"),
                _ => format!("DEL key:{key}"),
            });
            bench.now_ms += number % 3;
            if number % 500 == 0 {
                let (space, mut removed) = (&mut bench.partition.databases[0], Vec::new());
                while space.sweep(bench.now_ms, |key| key.ends_with(b"7"), &mut removed) {}
                assert!(removed.iter().all(|(_, entry)| entry.is_expired(bench.now_ms)));
                let left = (0..space.len()).filter_map(|at| space.pair_at(at));
                let mut expired = left.filter(|(_, entry)| entry.is_expired(bench.now_ms));
                assert!(expired.all(|(key, _)| key.ends_with(b"7")));
                while space.sweep(bench.now_ms + 100, |_| false, &mut removed) {}
            }
        }
        assert!(bench.partition.databases[0].len() > 1_000, "spans were crossed");
    }

    #[test]
    fn spans_are_due_once_and_the_last_one_first() {
        let mut expiry_index = ExpiryIndex::default();
        for (at, time) in [(0, 50), (1, 40), (SPAN, 60), (5 * SPAN, 30)] {
            expiry_index.note(at, NonZeroU64::new(time));
        }
        expiry_index.note(2 * SPAN, None);
        assert!(
            expiry_index.is_empty_at(2 * SPAN)
                && expiry_index.is_empty_at(9 * SPAN)
                && !expiry_index.is_empty_at(7)
        );
        assert_eq!(expiry_index.take_due(29), None);
        assert_eq!(expiry_index.take_due(50), Some(5));
        assert_eq!(expiry_index.take_due(50), Some(0));
        assert_eq!(expiry_index.take_due(50), None);
        assert_eq!(expiry_index.take_due(60), Some(1));
        assert_eq!(expiry_index.take_due(u64::MAX - 1), None);
    }

    #[test]
    fn what_is_cut_off_is_never_due() {
        let mut expiry_index = ExpiryIndex::default();
        expiry_index.note(3 * SPAN, NonZeroU64::new(10));
        expiry_index.note(SPAN - 1, NonZeroU64::new(20));
        expiry_index.cut(SPAN);
        assert_eq!(expiry_index.take_due(100), Some(0));
        assert_eq!(expiry_index.take_due(100), None);
    }
}
