//! The work of a call: counted while it is done, estimated before it begins, and ended when nobody wants it any more.
//!
//! A *step* is about what one element of a collection costs, or [`BYTES_PER_STEP`] bytes of a string. Scripts pay for
//! steps with fuel. A call that is estimated at more than [`LONG_CALL_STEPS`] is not run where it would hold up others,
//! and can be cancelled: the loops of commands ask [`Work::step`] whether to go on.
//!
//! A command whose work was cancelled may return anything: its caller discards the reply and rolls its changes back.

use crate::Args;
pub use crate::cost::{Cost, Size};
use crate::keys::KeyAt;
use crate::spec::{Command, flags};
pub use crate::steps::{BYTES_PER_STEP, CANCELLED, CancelFlag, LONG_CALL_STEPS, Steps, Work};

/// Steps that naming a key costs: it is hashed, looked up and locked.
const STEPS_PER_KEY: u64 = 4;

/// Bytes of the reply for an argument, at most, where that is a number.
const REPLY_BYTES_PER_ARGUMENT: usize = 32;

/// How the work of `command` grows: never [`Cost::Inferred`].
fn cost_of(command: &Command) -> Cost {
    match command.cost {
        Cost::Inferred if command.has(flags::FAST) => Cost::Constant,
        Cost::Inferred => Cost::Values(1),
        cost => cost,
    }
}

/// Whether a call names so many keys, or has so many arguments, that it is long whatever the values are.
pub fn is_long_by_itself(args: Args<'_>, keys: &[KeyAt]) -> bool {
    keys.len() as u64 * STEPS_PER_KEY > LONG_CALL_STEPS
        || (args.len() > 1024 && args.len() as u64 > LONG_CALL_STEPS)
}

/// Whether a call is long only as its request is: it changes something, whatever the values are, and replies with less than
/// `most_bytes`.
pub fn is_long_request(command: &Command, args: Args<'_>, keys: &[KeyAt], most_bytes: usize) -> bool {
    command.is_write()
        && matches!(cost_of(command), Cost::Constant)
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
    let cost = cost_of(command);
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
