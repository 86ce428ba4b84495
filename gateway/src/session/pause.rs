//! CLIENT PAUSE: commands of clients wait until it is over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A pause, if there is one.
#[derive(Default)]
pub struct Pause {
    on: AtomicBool,
    state: Mutex<Option<(Instant, bool)>>,
    changed: Notify,
    /// How many commands wait.
    waiting: AtomicUsize,
}

/// A command that waits, for as long as this lives.
struct PausedCall<'a>(&'a Pause);

impl Drop for PausedCall<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pause {
    /// Commands wait for so long, or only those that may write, unless another pause is said or its end.
    pub fn begin(&self, time: Duration, only_writes: bool) {
        let until = Instant::now().checked_add(time);
        // Further away than clocks go.
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(u32::MAX.into()));
        self.set(Some((until, only_writes)));
    }

    /// Nobody waits any more.
    pub fn end(&self) {
        self.set(None);
    }

    fn set(&self, state: Option<(Instant, bool)>) {
        let mut held = self.state.lock();
        *held = state;
        self.on.store(state.is_some(), Ordering::Relaxed);
        drop(held);
        self.changed.notify_waiters();
    }

    /// Whether there may be one.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether a command has to wait.
    pub fn holds(&self, writes: bool) -> bool {
        self.until(writes).is_some()
    }

    /// Until when.
    fn until(&self, writes: bool) -> Option<Instant> {
        let mut state = self.state.lock();
        if state.is_some_and(|(until, _)| until <= Instant::now()) {
            *state = None;
            self.on.store(false, Ordering::Relaxed);
        }
        state.filter(|(_, only_writes)| writes || !only_writes).map(|(until, _)| until)
    }

    /// How many commands wait. Redis counts their clients as blocked.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits until a command may go on.
    pub async fn over(&self, writes: bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _held = PausedCall(self);
        loop {
            let changed = self.changed.notified();
            match self.until(writes) {
                Some(until) => drop(timeout_at(until, changed).await),
                None => return,
            }
        }
    }
}
