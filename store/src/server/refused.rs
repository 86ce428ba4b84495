//! Calls that were refused as their slots are another node's: those sent behind them must not overtake them, also if
//! their slots have come meanwhile.

use std::collections::HashMap;

/// So many sequences are known one by one: the sequence of a client that is gone is never used again.
const MAX_SEQUENCES: usize = 1000;

/// The last such call of each lane.
#[derive(Default)]
pub(super) struct Refused {
    /// The number of its request.
    sequences: HashMap<u64, u64>,
    /// The last one of those that are no longer known.
    rest: u64,
}

impl Refused {
    /// The call of a lane with this number was refused.
    pub fn add(&mut self, sequence: u64, id: u64) {
        if self.sequences.len() >= MAX_SEQUENCES {
            self.rest = self.sequences.drain().fold(self.rest, |last, (_, id)| last.max(id));
        }
        self.sequences.insert(sequence, id);
    }

    /// Whether one would be overtaken by a call of a lane that was sent while all since request `since` were on their
    /// way; 0: none was.
    pub fn would_be_overtaken(&self, sequence: u64, since: u64) -> bool {
        since > 0 && (self.rest >= since || self.sequences.get(&sequence).is_some_and(|id| *id >= since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_behind_one_would_overtake_it() {
        let mut refused = Refused::default();
        assert!(!refused.would_be_overtaken(1, 4));
        refused.add(1, 5);
        assert!(refused.would_be_overtaken(1, 4) && refused.would_be_overtaken(1, 5));
        assert!(!refused.would_be_overtaken(1, 6), "it was answered before that one was sent");
        assert!(!refused.would_be_overtaken(2, 4));
        assert!(!refused.would_be_overtaken(1, 0), "it is sent again");
    }

    #[test]
    fn of_many_lanes_none_is_forgotten() {
        let mut refused = Refused::default();
        (0..3000).for_each(|sequence| refused.add(sequence, sequence + 1));
        assert!(refused.sequences.len() <= MAX_SEQUENCES);
        assert!((0..3000).all(|sequence| refused.would_be_overtaken(sequence, sequence + 1)));
        assert!(!refused.would_be_overtaken(7, 3001));
    }
}
