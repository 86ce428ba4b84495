//! Regular expressions in filters.

use regex_lite::{Regex, RegexBuilder};

use crate::steps::Work;

/// A match takes a step of the automaton for each byte of the string and each state, of which there are about as many as this
/// in the largest pattern: a match of the longest string ends within some tenths of a second.
const MOST_STATES: usize = 1000;
/// Bytes of a string that may be matched.
const LONGEST_STRING: usize = 64 << 10;
/// Bytes that a state of a pattern takes, about.
const STATE_BYTES: usize = 32;
/// Steps of the automaton that count as one step of the work.
const PER_STEP: usize = 16;

/// A regular expression. One that is wrong, or too large, matches nothing, as in RedisJSON.
#[derive(Debug)]
pub struct Pattern(Option<Regex>);

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        let spelled = |pattern: &Pattern| pattern.0.as_ref().map(|regex| regex.as_str().to_owned());
        spelled(self) == spelled(other)
    }
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(spelled: &str) -> Pattern {
        if spelled.len() > MOST_STATES {
            return Pattern(None);
        }
        Pattern(RegexBuilder::new(spelled).size_limit(MOST_STATES * STATE_BYTES).build().ok())
    }

    /// Whether some of `text` matches. A longer text than may be matched does not.
    pub fn matches(&self, text: &str, work: &Work) -> bool {
        let Some(regex) = &self.0 else { return false };
        let transitions = text.len().saturating_mul(regex.as_str().len());
        text.len() <= LONGEST_STRING && work.step((transitions / PER_STEP) as u64) && regex.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_and_huge_patterns_match_nothing() {
        let work = Work::unlimited();
        let matches = |pattern: &str, text: &str| Pattern::new(pattern).matches(text, &work);
        assert!(matches("b+$", "abb") && !matches("^b", "abb") && matches("(?i)B", "abb"));
        assert!(!matches("(", "(") && !matches(&"a".repeat(MOST_STATES + 1), &"a".repeat(2000)));
        assert!(!matches("((a{50}){50}){50}", &"a".repeat(2000)));
        let long = "a".repeat(LONGEST_STRING);
        assert!(matches("a", &long) && !matches("a", &format!("{long}a")));
    }
}
