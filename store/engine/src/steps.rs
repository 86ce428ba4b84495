//! The steps of a call: counted while it works, so that it can be ended when nobody wants it any more.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::CommandError;

/// Bytes of a string that count as much as an element of a collection.
pub const BYTES_PER_STEP: usize = 256;

/// From this estimate on a call is long. Measured: between 0.2 ms (bytes that are copied) and 2 ms (unions of sets).
pub const LONG_CALL_STEPS: u64 = 10_000;

/// Steps between two looks at the flag that cancels the work.
const STEPS_PER_CHECK: u64 = 4096;

/// What a call whose work was cancelled answers, if anybody still reads it.
pub const CANCELLED: CommandError = CommandError::new("ERR the command was cancelled; nothing was changed");

/// Raised by whoever wants a call to end.
pub type CancelFlag = Arc<AtomicBool>;

/// Counts the steps of a call.
#[derive(Default, Debug)]
pub struct Work {
    steps: Cell<u64>,
    next_check: Cell<u64>,
    is_cancelled: Cell<bool>,
    cancel: Option<CancelFlag>,
}

impl Work {
    /// The work of a call that always comes to its end.
    pub fn unlimited() -> Work {
        Work { next_check: Cell::new(u64::MAX), ..Work::default() }
    }

    /// The work of a call that ends early when `cancel` is raised.
    pub fn until(cancel: CancelFlag) -> Work {
        Work { next_check: Cell::new(STEPS_PER_CHECK), cancel: Some(cancel), ..Work::default() }
    }

    /// Steps done so far.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Whether the call was told to end: what it has done is to be rolled back.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    /// Counts `steps`, and says whether to go on.
    #[inline]
    pub fn step(&self, steps: u64) -> bool {
        let done = self.steps.get().saturating_add(steps);
        self.steps.set(done);
        done < self.next_check.get() || self.check(done)
    }

    /// Counts what handling so many bytes costs, and says whether to go on.
    pub fn step_bytes(&self, bytes: usize) -> bool {
        self.step((bytes / BYTES_PER_STEP) as u64)
    }

    #[cold]
    fn check(&self, done: u64) -> bool {
        let Some(cancel) = &self.cancel else { return true };
        self.next_check.set(done.saturating_add(STEPS_PER_CHECK));
        if cancel.load(Ordering::Relaxed) {
            self.is_cancelled.set(true);
            // Every later question is answered at once.
            self.next_check.set(0);
        }
        !self.is_cancelled.get()
    }

    /// `items`, a step each; they end early when the work is cancelled.
    #[inline]
    pub fn over<I: IntoIterator>(&self, items: I) -> Steps<'_, I::IntoIter> {
        Steps { work: self, items: items.into_iter() }
    }
}

/// [`Work::over`].
pub struct Steps<'w, I> {
    work: &'w Work,
    items: I,
}

impl<I: Iterator> Iterator for Steps<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.work.step(1) { self.items.next() } else { None }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.items.size_hint().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_and_end_when_cancelled() {
        let cancel = CancelFlag::default();
        let work = Work::until(cancel.clone());
        assert_eq!(work.over(0..10_000).count(), 10_000);
        assert!(!work.is_cancelled());
        cancel.store(true, Ordering::Relaxed);
        let more = work.over(0..1_000_000).count();
        assert!(more < STEPS_PER_CHECK as usize, "{more} steps after the end");
        assert!(work.is_cancelled() && work.over(0..10).next().is_none());
    }

    #[test]
    fn work_without_a_flag_never_ends() {
        let work = Work::unlimited();
        assert!(work.step(u64::MAX) && work.step(1) && !work.is_cancelled());
    }
}
