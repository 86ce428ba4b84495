//! How far the clocks of nodes are from each other.
//!
//! A transaction over several nodes has one time, the latest of theirs, so that it does not see a key alive on one node that its
//! own clock has expired on another. A clock that is ahead would expire keys of the other nodes early, locks among them.
//! Hence nodes whose clocks are too far apart take part in no transaction together.

use std::fmt;
use std::time::Duration;

/// Most that the clocks of nodes may differ that take part in one transaction: ten times what machines differ that keep
/// their time by NTP.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_millis(500);

/// The clock of a node, compared with the clock here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// By how many milliseconds it is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// By how many milliseconds that may be wrong: the message was on its way for so long.
    pub error_ms: u64,
}

impl ClockOffset {
    /// Of a node that answered that it is `node_ms` there to what was asked at `asked_ms`, both milliseconds since 1970,
    /// and answered after `took`.
    pub fn measured(asked_ms: u64, took: Duration, node_ms: u64) -> ClockOffset {
        let half_ms = took.as_millis() as u64 / 2;
        let ahead_ms = i128::from(node_ms) - i128::from(asked_ms) - i128::from(half_ms);
        // A node may send any number.
        let ahead_ms = i64::try_from(ahead_ms).unwrap_or(i64::MAX);
        // Either time was cut to a millisecond.
        ClockOffset { ahead_ms, error_ms: half_ms + 1 }
    }

    /// By how many milliseconds two clocks differ at least.
    pub fn difference_ms(self, other: ClockOffset) -> u64 {
        self.ahead_ms.abs_diff(other.ahead_ms).saturating_sub(self.error_ms + other.error_ms)
    }
}

/// The clocks of two nodes differ by more than [`MAX_CLOCK_DIFFERENCE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClocksDiffer {
    /// Address of one,
    pub first: String,
    /// and of the other.
    pub other: String,
    /// By how many milliseconds.
    pub difference_ms: u64,
}

impl fmt::Display for ClocksDiffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClocksDiffer { first, other, difference_ms } = self;
        write!(
            f,
            "the clocks of the nodes {first} and {other} differ by {difference_ms} ms, which is more than {} ms; \
             synchronize them",
            MAX_CLOCK_DIFFERENCE.as_millis()
        )
    }
}

impl std::error::Error for ClocksDiffer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_as_certain_as_its_message_was_fast() {
        let measured = |took, node_ms| ClockOffset::measured(10_000, Duration::from_millis(took), node_ms);
        assert_eq!(measured(0, 10_000), ClockOffset { ahead_ms: 0, error_ms: 1 });
        let (ahead, behind) = (measured(10, 11_005), measured(20, 9_010));
        assert_eq!((ahead.ahead_ms, behind.ahead_ms), (1000, -1000));
        assert_eq!((ahead.difference_ms(behind), behind.difference_ms(ahead)), (1983, 1983));
        assert_eq!(ahead.difference_ms(measured(4000, 10_000)), 993, "it may have been on its way for long");
        assert_eq!(measured(0, u64::MAX).ahead_ms, i64::MAX);
        assert_eq!(measured(0, 0).difference_ms(measured(0, u64::MAX)), (1 << 63) - 1 + 10_000 - 2);
    }
}
