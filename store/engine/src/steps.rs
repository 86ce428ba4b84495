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

/// Counts the steps of a call, and limits the memory that it may take.
#[derive(Debug)]
pub struct Work {
    steps: Cell<u64>,
    next_check: Cell<u64>,
    is_cancelled: Cell<bool>,
    cancel: Option<CancelFlag>,
    memory_limit: usize,
    is_over_memory: Cell<bool>,
}

impl Work {
    /// The work of a call that always comes to its end.
    pub fn unlimited() -> Work {
        Work {
            steps: Cell::new(0),
            next_check: Cell::new(u64::MAX),
            is_cancelled: Cell::new(false),
            cancel: None,
            memory_limit: usize::MAX,
            is_over_memory: Cell::new(false),
        }
    }

    /// The work of a call that ends early when `cancel` is raised.
    pub fn until(cancel: CancelFlag) -> Work {
        Work { next_check: Cell::new(STEPS_PER_CHECK), cancel: Some(cancel), ..Work::unlimited() }
    }

    /// The same work of a call that may make no value of more than `bytes` of memory.
    pub fn with_memory_limit(self, bytes: usize) -> Work {
        Work { memory_limit: bytes, ..self }
    }

    /// Bytes of memory that a value may take which the call makes.
    pub fn memory_limit(&self) -> usize {
        self.memory_limit
    }

    /// Whether the call was about to make a value of more than [`Work::memory_limit`]: what there is of the value is of no
    /// use.
    pub fn is_over_memory(&self) -> bool {
        self.is_over_memory.get()
    }

    /// Says whether a value that the call makes may take `bytes` of memory.
    #[inline]
    pub fn has_memory(&self, bytes: usize) -> bool {
        let has_memory = bytes <= self.memory_limit;
        if !has_memory {
            self.is_over_memory.set(true);
        }
        has_memory
    }

    /// Counts an element of `len` bytes, with which the value that the call makes takes `held` bytes of memory, and says
    /// whether to go on.
    #[inline]
    pub fn add_element(&self, len: usize, held: usize) -> bool {
        self.has_memory(held) && self.step(1 + (len / BYTES_PER_STEP) as u64)
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
    fn a_value_that_is_too_large_ends_the_work() {
        let work = Work::unlimited().with_memory_limit(1000);
        assert!(work.add_element(300, 1000) && !work.is_over_memory());
        assert_eq!(work.steps(), 2);
        assert!(!work.add_element(1, 1001) && work.is_over_memory() && !work.is_cancelled());
        assert!(Work::unlimited().add_element(1, usize::MAX));
    }

    #[test]
    fn work_without_a_flag_never_ends() {
        let work = Work::unlimited();
        assert!(work.step(u64::MAX) && work.step(1) && !work.is_cancelled());
    }
}
