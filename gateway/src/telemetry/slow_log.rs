//! Calls that took long, as SLOWLOG shows them.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use store_engine::Args;

use super::arguments::shortened;
use super::counters::unix_time;

/// A call that took long.
#[derive(Clone)]
pub struct Slow {
    /// Its number.
    pub id: u64,
    /// Unix time in seconds of its end.
    pub at: u64,
    /// How long it took.
    pub micros: u64,
    /// What was called, shortened.
    pub args: Vec<Vec<u8>>,
    /// Where its client came from.
    pub addr: String,
    /// The client's name.
    pub name: String,
}

/// Calls that took long, the newest first.
#[derive(Default)]
pub struct SlowLog(Mutex<(u64, VecDeque<Slow>)>);

impl SlowLog {
    /// Adds a call of a `client` with this address and name, and forgets the oldest beyond `most`.
    pub fn add(&self, args: Args<'_>, client: (&str, &str), took: Duration, most: usize) {
        let ((addr, name), words) = (client, shortened(args));
        let (id, calls) = &mut *self.0.lock();
        calls.push_front(Slow {
            id: *id,
            at: unix_time().as_secs(),
            micros: took.as_micros() as u64,
            args: words,
            addr: addr.to_owned(),
            name: name.to_owned(),
        });
        *id += 1;
        calls.truncate(most);
    }

    /// The newest ones.
    pub fn newest(&self, count: usize) -> Vec<Slow> {
        self.0.lock().1.iter().take(count).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().1.len()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.lock().1.clear();
    }
}
