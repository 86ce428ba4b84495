//! The work of a call: counted while it is done, estimated before it begins, and ended when nobody wants it any more.
//!
//! A *step* is about what one element of a collection costs, or [`BYTES_PER_STEP`] bytes of a string. Scripts pay for
//! steps with fuel. A call that is estimated at more than [`LONG_CALL_STEPS`] is not run where it would hold up others,
//! and can be cancelled: the loops of commands ask [`Work::step`] whether to go on.
//!
//! A command whose work was cancelled may return anything: its caller discards the reply and rolls its changes back.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::keys::KeyAt;
use crate::spec::{Command, flags};
use crate::value::Value;
use crate::{Args, CommandError};

/// Bytes of a string that count as much as an element of a collection.
pub const BYTES_PER_STEP: usize = 256;

/// From this estimate on a call is long. Measured: between 0.2 ms (bytes that are copied) and 2 ms (unions of sets).
pub const LONG_CALL_STEPS: u64 = 10_000;

/// Steps between two looks at the flag that cancels the work.
const STEPS_PER_CHECK: u64 = 4096;

/// Steps that naming a key costs: it is hashed, looked up and locked.
const STEPS_PER_KEY: u64 = 4;

/// Bytes of the reply for an argument, at most, where that is a number.
const REPLY_BYTES_PER_ARGUMENT: usize = 32;

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

/// How the work of a command grows with the values under its keys. Commands that touch no more than a few elements,
/// such as HGET, keep [`Cost::Inferred`] and its meaning for [`flags::FAST`].
#[derive(Clone, Copy)]
pub enum Cost {
    /// [`Cost::Constant`] of commands that are [`flags::FAST`], [`Cost::Values`] of others.
    Inferred,
    /// Not at all, but for the bytes of one element.
    Constant,
    /// So many steps for each element, or [`BYTES_PER_STEP`] bytes, of all values under its keys.
    Values(u32),
    /// As many elements of the first key's value as this says of a value with that many elements; of a string, bytes.
    Elements(fn(Args<'_>, usize) -> usize),
    /// As many steps as this says of the size of the first key's value, which may be small or missing: the arguments say how
    /// much is done with it.
    Arguments(fn(Args<'_>, Size) -> u64),
    /// A step for so many pairs of bytes, one of each value under its keys.
    Product(usize),
    /// With the number of keys in the database, as this says of so many.
    Keyspace(fn(Args<'_>, usize) -> usize),
}

impl Cost {
    /// What this means for `command`.
    fn of(self, command: &Command) -> Cost {
        match self {
            Cost::Inferred if command.has(flags::FAST) => Cost::Constant,
            Cost::Inferred => Cost::Values(1),
            cost => cost,
        }
    }
}

/// The size of a value, as far as it says what commands on it cost.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Size {
    /// Elements of a collection; of a string, bytes.
    pub elements: usize,
    /// Bytes on the heap.
    pub bytes: usize,
    /// Whether it is a string.
    pub is_string: bool,
}

impl Size {
    /// The size of `value`.
    pub fn of(value: &Value) -> Size {
        let bytes = value.bytes();
        let elements = match value {
            Value::String(text) => text.len(),
            Value::List(list) => list.len(),
            Value::Hash(hash) => hash.len(),
            Value::Set(set) => set.len(),
            Value::ZSet(zset) => zset.len(),
            Value::Stream(stream) => stream.len(),
        };
        Size { elements, bytes, is_string: matches!(value, Value::String(_)) }
    }

    /// Steps that `elements` of its elements cost.
    pub fn steps(self, elements: usize) -> u64 {
        if self.is_string {
            return (elements / BYTES_PER_STEP) as u64;
        }
        let each = 1 + self.bytes / self.elements.max(1) / BYTES_PER_STEP;
        (elements as u64).saturating_mul(each as u64)
    }
}

/// Whether a call names so many keys, or brings so many bytes, that it is long whatever the values are.
pub fn is_long_by_itself(args: Args<'_>, keys: &[KeyAt]) -> bool {
    keys.len() as u64 * STEPS_PER_KEY > LONG_CALL_STEPS
        || (args.len() > 1024 && args.len() as u64 > LONG_CALL_STEPS)
}

/// Whether a call is long only as its request is: it changes something, whatever the values are, and replies with less than
/// `most_bytes`.
pub fn is_long_request(command: &Command, args: Args<'_>, keys: &[KeyAt], most_bytes: usize) -> bool {
    command.is_write()
        && matches!(command.cost.of(command), Cost::Constant)
        && is_long_by_itself(args, keys)
        && args.len().saturating_mul(REPLY_BYTES_PER_ARGUMENT) < most_bytes
}

/// About how many steps a call takes, at most. `size_of` gives the size of the value under a key; `keys_total` the number of
/// keys in the database, and is asked only if it matters.
pub fn estimate(
    command: &Command,
    args: Args<'_>,
    keys: &[KeyAt],
    mut size_of: impl FnMut(&[u8]) -> Option<Size>,
    keys_total: impl FnOnce() -> usize,
) -> u64 {
    let own = args.len() as u64 + keys.len() as u64 * STEPS_PER_KEY;
    let cost = command.cost.of(command);
    let mut sizes = keys.iter().filter_map(|&(at, _)| size_of(args[at]));
    let values: u64 = match cost {
        Cost::Inferred | Cost::Constant => sizes.map(|size| size.steps(usize::from(!size.is_string))).sum(),
        Cost::Values(each) => {
            sizes.map(|size| size.steps(size.elements)).sum::<u64>().saturating_mul(each.into())
        }
        Cost::Elements(of) => sizes.next().map_or(0, |size| size.steps(of(args, size.elements))),
        Cost::Arguments(of) => of(args, sizes.next().unwrap_or_default()),
        Cost::Product(pairs) => {
            sizes.map(|size| size.elements as u64).fold(1, u64::saturating_mul) / pairs as u64
        }
        Cost::Keyspace(of) => of(args, keys_total()) as u64,
    };
    own.saturating_add(values)
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

    #[test]
    fn large_elements_cost_more() {
        let size = Size { elements: 10, bytes: 10 * 1024 * BYTES_PER_STEP, is_string: false };
        assert_eq!(size.steps(3), 3 * 1025);
        let text = Size { elements: 1 << 20, bytes: 1 << 20, is_string: true };
        assert_eq!(text.steps(1 << 20), (1 << 20) / BYTES_PER_STEP as u64);
    }
}
