//! Errors by their code word.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Code words that are told apart. Scripts make up words of their own: what comes later counts as [`OTHER`].
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
    pub fn told(&self) -> Vec<(Box<str>, u64)> {
        self.counts.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// How many there were.
    pub fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.counts.lock().clear();
        self.all.store(0, Ordering::Relaxed);
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
        let told = errors.told();
        assert_eq!(told.len(), MOST_CODES + 1);
        let of = |code: &str| told.iter().find(|(known, _)| &**known == code).map(|(_, count)| *count);
        assert_eq!((of("ERR"), of("WRONGTYPE"), of("MADE0")), (Some(2), Some(1), Some(1)));
        assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), 10_004);
        assert_eq!(errors.all(), 10_004);
        errors.reset();
        assert!(errors.told().is_empty());
    }
}
