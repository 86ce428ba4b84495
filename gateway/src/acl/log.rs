//! What was refused, for ACL LOG.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user may not run the command.
    Command,
    /// It may not do that with a key.
    Key,
    /// It may not subscribe to a channel, or publish there.
    Channel,
    /// It is not known, is off, or the password is wrong.
    Auth,
}

impl Reason {
    /// As ACL LOG calls it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// Where something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// To a client.
    Toplevel,
    /// In a transaction.
    Multi,
    /// To a script.
    Lua,
}

impl Context {
    /// As ACL LOG calls it.
    pub fn word(self) -> &'static str {
        match self {
            Context::Toplevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// Something that was refused, once or more often.
#[derive(Clone, Debug)]
pub struct AclLogEntry {
    /// How often.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// Where.
    pub context: Context,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// To whom.
    pub user: Vec<u8>,
    /// Unix time in milliseconds of the last time.
    pub at_ms: u64,
    /// The client of the last time, as CLIENT INFO shows it.
    pub client: String,
}

impl AclLogEntry {
    /// Whether both are shown as one.
    fn is_like(&self, other: &AclLogEntry) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.at_ms.abs_diff(other.at_ms) <= TOGETHER_MS
            && self.object == other.object
            && self.user == other.user
    }
}

/// Refusals of the same are counted as one that are not further apart, as in Redis.
const TOGETHER_MS: u64 = 60_000;
/// Among so many of the newest the same is looked for, as in Redis.
const LOOKED_AT: usize = 10;

/// The newest refusals, and how many there were of each reason.
#[derive(Default)]
pub struct Log {
    newest: Mutex<VecDeque<AclLogEntry>>,
    counts: [AtomicU64; 4],
}

impl Log {
    /// Adds one, and forgets the oldest beyond `most`.
    pub fn add(&self, refusal: AclLogEntry, most: usize) {
        self.counts[refusal.reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut newest = self.newest.lock();
        let same = newest.iter().take(LOOKED_AT).position(|known| known.is_like(&refusal));
        let known = same.and_then(|at| newest.remove(at));
        let count = known.map_or(0, |known| known.count) + 1;
        newest.push_front(AclLogEntry { count, ..refusal });
        newest.truncate(most);
    }

    /// The newest ones.
    pub fn newest(&self, count: usize) -> Vec<AclLogEntry> {
        self.newest.lock().iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.newest.lock().clear();
    }

    /// How many there were of this reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: &str, at_ms: u64) -> AclLogEntry {
        AclLogEntry {
            count: 1,
            reason: Reason::Key,
            context: Context::Lua,
            object: object.into(),
            user: b"u".to_vec(),
            at_ms,
            client: String::new(),
        }
    }

    #[test]
    fn the_same_is_counted_and_comes_first() {
        let log = Log::default();
        for (object, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("a", 200_000)] {
            log.add(refusal(object, at_ms), 128);
        }
        let seen: Vec<_> = log.newest(9).into_iter().map(|one| (one.object, one.count)).collect();
        assert_eq!(seen, [(b"a".to_vec(), 1), (b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        assert_eq!((log.count(Reason::Key), log.count(Reason::Auth)), (4, 0));
        log.add(refusal("c", 0), 1);
        assert_eq!(log.newest(9).len(), 1);
        log.add(refusal("c", 0), 0);
        assert!(log.newest(9).is_empty());
    }
}
