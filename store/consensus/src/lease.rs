//! Until when a leader may answer reads without asking: as long as no other replica can have become the leader.
//!
//! With each heartbeat the leader asks a question. When a majority has answered one that was asked at `t`, none of them
//! votes for another replica before `t` plus the shortest election timeout, measured by its own clock. The lease is shorter,
//! because clocks run at different speeds.

use std::collections::VecDeque;

use crate::timing::{ELECTION_TICKS, TICK_MS};

/// How long a lease is, in milliseconds: 0.8 of the shortest election timeout.
pub const LEASE_MS: u64 = TICK_MS * ELECTION_TICKS as u64 * 8 / 10;

/// Questions of a leader, and until when it may answer reads.
pub(crate) struct Lease {
    /// [`LEASE_MS`], unless a test has another time.
    pub length_ms: u64,
    last: u64,
    /// Questions without an answer, and when they were asked.
    asked: VecDeque<(u64, u64)>,
    until_ms: u64,
    /// The newest question that a majority has answered.
    answered: u64,
}

/// More questions are not awaited: the oldest are of no use any more.
const MOST_ASKED: usize = 32;

impl Default for Lease {
    fn default() -> Lease {
        Lease { length_ms: LEASE_MS, last: 0, asked: VecDeque::new(), until_ms: 0, answered: 0 }
    }
}

impl Lease {
    /// A new question, asked at `now_ms`.
    pub fn ask(&mut self, now_ms: u64) -> u64 {
        self.last += 1;
        self.asked.push_back((self.last, now_ms));
        if self.asked.len() > MOST_ASKED {
            self.asked.pop_front();
        }
        self.last
    }

    /// A majority has answered this question.
    pub fn confirmed(&mut self, question: u64) {
        while let Some((number, asked_ms)) = self.asked.pop_front_if(|(number, _)| *number <= question) {
            if number == question {
                self.until_ms = self.until_ms.max(asked_ms + self.length_ms);
                self.answered = number;
            }
        }
    }

    /// The lease ends: questions that were asked before do not renew it.
    pub fn end(&mut self) {
        self.asked.clear();
        self.until_ms = 0;
    }

    /// The newest question that a majority has answered; 0 if none was.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Until when it lasts, by the clock that [`Lease::ask`] was given.
    pub fn until_ms(&self) -> u64 {
        self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_from_the_question_that_was_answered() {
        let mut lease = Lease::default();
        let (first, second, third) = (lease.ask(1000), lease.ask(1200), lease.ask(1400));
        assert_eq!(lease.until_ms(), 0);
        lease.confirmed(second);
        assert_eq!(lease.until_ms(), 1200 + LEASE_MS);
        lease.confirmed(first);
        assert_eq!(lease.answered(), second);
        assert_eq!(lease.until_ms(), 1200 + LEASE_MS, "an older question does not shorten it");
        lease.end();
        lease.confirmed(third);
        assert_eq!(lease.answered(), second);
        assert_eq!(lease.until_ms(), 0, "what was asked before the end does not renew it");
    }
}
