//! Calls by command: how many, how they ended, how long they took.
//!
//! Threads count in lanes of their own as far as there are enough: no thread takes another's cache lines away, and an addition
//! need not be atomic. CONFIG RESETSTAT changes only what INFO shows: metrics are sums that never
//! fall.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::distribution::{Adds, Distribution, Timed};

/// More lanes than this cost memory and do not help.
const MAX_STRIPES: usize = 16;

/// Why a call was not run at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is wrong, or not possible now.
    Rejected,
    /// Its user may not.
    Denied,
}

/// What is counted of one command in one lane.
#[derive(Default)]
struct CallCounters {
    /// Times of calls that were measured, made by the first.
    timed: OnceLock<Timed>,
    nanos: AtomicU64,
    /// Calls that were not measured: those of scripts and transactions.
    untimed: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    denied: AtomicU64,
}

/// What is known of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallReport {
    /// Times of the calls that were measured.
    pub spread: Distribution,
    /// All calls that were run.
    pub calls: u64,
    /// Of these, those with an error as reply.
    pub failed: u64,
    /// Calls that were refused.
    pub rejected: u64,
    /// Calls that were refused since the user may not.
    pub denied: u64,
}

impl CallReport {
    fn join(&mut self, slot: &CallCounters) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if let Some(timed) = slot.timed.get() {
            self.spread.join(timed);
            self.spread.nanos += load(&slot.nanos);
        }
        self.calls += load(&slot.untimed);
        self.failed += load(&slot.failed);
        self.rejected += load(&slot.rejected);
        self.denied += load(&slot.denied);
    }

    fn since(self, before: &CallReport) -> CallReport {
        CallReport {
            spread: self.spread.since(&before.spread),
            calls: self.calls.saturating_sub(before.calls),
            failed: self.failed.saturating_sub(before.failed),
            rejected: self.rejected.saturating_sub(before.rejected),
            denied: self.denied.saturating_sub(before.denied),
        }
    }

    /// Whether no client has tried to call it.
    pub fn is_empty(&self) -> bool {
        self.calls + self.rejected + self.denied == 0
    }
}

/// The counts of all commands, which are named by number.
pub struct Calls {
    /// Those of a lane stand together. The last lane is for all threads that have none of their own.
    slots: Box<[CallCounters]>,
    commands: usize,
    /// How many lanes belong to one thread.
    own: usize,
    /// What [`Calls::reset`] found.
    forgotten: Mutex<Vec<CallReport>>,
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The calling thread's number.
#[inline]
fn thread() -> usize {
    #[cold]
    fn first() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        THREAD.set(number);
        number
    }
    match THREAD.get() {
        usize::MAX => first(),
        number => number,
    }
}

impl Calls {
    /// For so many commands, and threads that call them.
    pub fn new(commands: usize, threads: usize) -> Calls {
        let own = threads.min(MAX_STRIPES);
        let slots = (0..(own + 1) * commands).map(|_| CallCounters::default()).collect();
        Calls { slots, commands, own, forgotten: Mutex::default() }
    }

    /// Where the calling thread counts a command, and how.
    #[inline]
    fn slot(&self, command: u16) -> (&CallCounters, Adds) {
        let thread = thread();
        let (stripe, adds) = if thread < self.own { (thread, Adds::Alone) } else { (self.own, Adds::Among) };
        // No more than there are slots.
        (&self.slots[stripe.wrapping_mul(self.commands).wrapping_add(usize::from(command))], adds)
    }

    /// Counts a call and how long it took.
    #[inline]
    pub fn add(&self, command: u16, took: Duration, failed: bool) {
        let (slot, adds) = self.slot(command);
        let nanos = took.as_secs().wrapping_mul(1_000_000_000).wrapping_add(took.subsec_nanos().into());
        slot.timed.get_or_init(Timed::default).add(nanos, adds);
        adds.to(&slot.nanos, nanos);
        if failed {
            adds.to(&slot.failed, 1);
        }
    }

    /// Counts a call whose duration was not measured.
    #[inline]
    pub fn add_untimed(&self, command: u16, failed: bool) {
        let (slot, adds) = self.slot(command);
        adds.to(&slot.untimed, 1);
        if failed {
            adds.to(&slot.failed, 1);
        }
    }

    /// Counts a call that was refused.
    pub fn refuse(&self, command: u16, why: Refusal) {
        let (slot, adds) = self.slot(command);
        let counter = match why {
            Refusal::Rejected => &slot.rejected,
            Refusal::Denied => &slot.denied,
        };
        adds.to(counter, 1);
    }

    /// What is known of each command, by number.
    pub fn all(&self) -> Vec<CallReport> {
        let mut reports = vec![CallReport::default(); self.commands];
        for stripe in self.slots.chunks(self.commands.max(1)) {
            stripe.iter().zip(&mut reports).for_each(|(slot, report)| report.join(slot));
        }
        reports.iter_mut().for_each(|report| report.calls += report.spread.count());
        reports
    }

    /// The same since the last [`Calls::reset`].
    pub fn since_reset(&self) -> Vec<CallReport> {
        let forgotten = self.forgotten.lock();
        let mut reports = self.all();
        for (report, before) in reports.iter_mut().zip(&*forgotten) {
            *report = std::mem::take(report).since(before);
        }
        reports
    }

    /// Begins anew, for INFO.
    pub fn reset(&self) {
        let mut forgotten = self.forgotten.lock();
        *forgotten = self.all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_into_one_sum_and_a_reset_is_taken_off() {
        let calls = Calls::new(3, 2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    calls.add(1, Duration::from_micros(3), false);
                    calls.add(1, Duration::from_secs(7), true);
                    calls.add_untimed(1, false);
                    calls.refuse(2, Refusal::Denied);
                });
            }
        });
        let all = calls.all();
        assert!(all[0].is_empty());
        assert_eq!((all[1].calls, all[1].failed, all[1].spread.count()), (12, 4, 8));
        assert_eq!(all[1].spread.nanos, 4 * 7_000_003_000);
        assert_eq!((all[2].denied, all[2].rejected), (4, 0));
        calls.reset();
        assert!(calls.since_reset().iter().all(CallReport::is_empty));
        calls.refuse(0, Refusal::Rejected);
        assert_eq!(calls.since_reset()[0].rejected, 1);
        assert_eq!(calls.all()[1].calls, 12);
    }
}
