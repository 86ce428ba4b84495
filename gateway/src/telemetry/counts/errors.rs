//! Errors by their code word.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Code words that are counted apart. Scripts make up words of their own: later ones count as [`OTHER`].
const MOST_CODES: usize = 128;
/// Longest code word.
const LONGEST_CODE: usize = 32;
/// What the rest is called.
const OTHER: &str = "OTHER";

/// How often each code word was replied.
#[derive(Default)]
pub struct Errors {
    counts: Mutex<BTreeMap<Box<str>, u64>>,
    all: AtomicU64,
    /// What [`Errors::reset`] found: of each code word, and of all.
    forgotten: Mutex<(BTreeMap<Box<str>, u64>, u64)>,
}

impl Errors {
    /// Counts an error reply, as it stands in RESP, with or without its minus.
    pub fn add(&self, reply: &[u8]) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let text = reply.strip_prefix(b"-").unwrap_or(reply);
        let end = text.iter().position(|byte| matches!(byte, b' ' | b'\r' | b'\n')).unwrap_or(text.len());
        let is_plain = |code: &[u8]| code.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let code = match std::str::from_utf8(&text[..end]) {
            Ok(code) if !code.is_empty() && end <= LONGEST_CODE && is_plain(code.as_bytes()) => code,
            _ => OTHER,
        };
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(code) {
            *count += 1;
        } else {
            let code = if counts.len() < MOST_CODES { code } else { OTHER };
            *counts.entry(code.into()).or_default() += 1;
        }
    }

    /// All code words with their counts.
    pub fn totals(&self) -> Vec<(Box<str>, u64)> {
        self.counts.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// The same since the last [`Errors::reset`], without those that there were none of.
    pub fn since_reset(&self) -> Vec<(Box<str>, u64)> {
        let forgotten = self.forgotten.lock();
        let before = |code: &str| forgotten.0.get(code).copied().unwrap_or(0);
        let since =
            self.totals().into_iter().map(|(code, count)| (count.saturating_sub(before(&code)), code));
        since.filter(|(count, _)| *count > 0).map(|(count, code)| (code, count)).collect()
    }

    /// How many there were since the last [`Errors::reset`].
    pub fn all_since_reset(&self) -> u64 {
        let forgotten = self.forgotten.lock();
        self.all.load(Ordering::Relaxed).saturating_sub(forgotten.1)
    }

    /// Begins anew, for INFO.
    pub fn reset(&self) {
        let mut forgotten = self.forgotten.lock();
        *forgotten = (self.counts.lock().clone(), self.all.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_and_bounded() {
        let errors = Errors::default();
        errors.add(b"-WRONGTYPE Operation against\r\n");
        errors.add(b"ERR no");
        errors.add(b"-ERR\r\n");
        for at in 0..10_000 {
            errors.add(format!("-MADE{at} up").as_bytes());
        }
        errors.add(b"-{\"forged\"} label\n");
        let totals = errors.totals();
        assert_eq!(totals.len(), MOST_CODES + 1);
        let of = |code: &str| totals.iter().find(|(known, _)| &**known == code).map(|(_, count)| *count);
        assert_eq!((of("ERR"), of("WRONGTYPE"), of("MADE0")), (Some(2), Some(1), Some(1)));
        assert_eq!(totals.iter().map(|(_, count)| count).sum::<u64>(), 10_004);
        assert_eq!(errors.all_since_reset(), 10_004);
        errors.reset();
        assert!(errors.since_reset().is_empty() && errors.all_since_reset() == 0);
        errors.add(b"ERR again");
        assert_eq!(errors.since_reset(), [("ERR".into(), 1)]);
        assert_eq!(
            errors.totals().len(),
            MOST_CODES + 1,
            "whoever scrapes metrics sees sums that never fall"
        );
    }
}
