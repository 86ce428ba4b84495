//! Whether a node leads, asked of the other replicas once for all answers that wait for that.

use std::collections::VecDeque;

/// Questions of a node, and those to the other replicas that stand for them.
#[derive(Default)]
pub(super) struct Questions {
    /// Up to which question of the node one to the others stands, and its number there.
    asked: VecDeque<(u64, u64)>,
    /// The last question of the node that was passed on.
    last: u64,
    confirmed: u64,
}

impl Questions {
    /// Whether questions of the node up to this one have to be passed on.
    pub fn are_new(&self, newest: u64) -> bool {
        newest > self.last
    }

    /// Questions of the node up to this one were passed on as this one.
    pub fn passed_on(&mut self, newest: u64, number: u64) {
        self.last = newest;
        self.asked.push_back((newest, number));
    }

    /// A majority has answered up to this question; up to which question of the node that is.
    pub fn answered(&mut self, number: u64) -> u64 {
        while let Some((newest, _)) = self.asked.pop_front_if(|(_, asked)| *asked <= number) {
            self.confirmed = newest;
        }
        self.confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_stands_for_all_before() {
        let mut questions = Questions::default();
        assert!(!questions.are_new(0) && questions.are_new(3));
        questions.passed_on(3, 10);
        assert!(!questions.are_new(3) && questions.are_new(4));
        questions.passed_on(4, 12);
        assert_eq!((questions.answered(9), questions.answered(11), questions.answered(12)), (0, 3, 4));
    }
}
