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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    /// Scripts pay for what a call has touched, and it is noticed there that the call is to end.
    #[test]
    fn calls_count_the_bytes_and_elements_that_they_touch() {
        const BYTES: usize = 3 << 20;
        const ELEMENTS: usize = 1000;
        let (bytes, elements) = ((BYTES / BYTES_PER_STEP) as u64, ELEMENTS as u64);
        let mut bench = Bench::new();
        bench.run(&format!("SETRANGE zeros {} \x01", BYTES - 1));
        bench.run("SET text 1");
        for at in 0..ELEMENTS {
            bench.run(&format!("RPUSH list {at}"));
            bench.run(&format!("SADD set {at}"));
            bench.run(&format!("GEOADD places 1 1 {at}"));
            bench.run("XADD stream * field value");
        }
        bench.run("XGROUP CREATE stream group 0");
        bench.run("XREADGROUP GROUP group consumer STREAMS stream >");
        let text = "x".repeat(BYTES);
        for (call, least) in [
            ("BITCOUNT zeros", bytes),
            ("BITPOS zeros 1", bytes - 1),
            ("BITOP NOT to zeros", bytes),
            ("BITOP XOR to zeros zeros", 2 * bytes),
            ("BITOP XOR to zeros missing", 2 * bytes),
            ("SETBIT new 25165823 1", bytes),
            ("SETRANGE newer 3145727 x", bytes),
            ("BITFIELD newest SET u8 25165816 1", bytes),
            (&format!("APPEND text {text}"), bytes),
            ("COPY zeros copy", bytes),
            ("DIGEST zeros", bytes),
            ("COPY list copy REPLACE", elements),
            ("DUMP set", elements),
            ("LPOS list none", elements),
            ("LPOS list none RANK -1", elements),
            ("LREM list 0 none", elements),
            ("LREM list -1 none", elements),
            ("LINSERT list BEFORE none x", elements),
            ("SORT set BY none* LIMIT 0 1", elements),
            ("GEOSEARCH places FROMLONLAT 1 1 BYRADIUS 1 m COUNT 1 ASC", elements),
            // Entries, and those that the group and the consumer have not acknowledged.
            ("XINFO STREAM stream FULL COUNT 0", 3 * elements),
        ] {
            bench.run(call);
            let steps = bench.work.steps();
            let shown = &call[..call.len().min(60)];
            assert!((least..2 * least + 10).contains(&steps), "{shown}: {steps} steps, and not {least}");
        }
    }

    /// The allocator's own rounding is no room: what exceeds the buffer is copied to another one.
    #[test]
    fn a_string_without_room_is_long_to_extend() {
        const BYTES: usize = 5 << 20;
        let text = |capacity| {
            let mut bytes = Vec::with_capacity(capacity);
            bytes.resize(BYTES, b'x');
            Size::of(&crate::Value::String(crate::value::Str::Raw(bytes)))
        };
        let (full, roomy) = (text(BYTES), text(BYTES + 100));
        let all = (BYTES / BYTES_PER_STEP) as u64;
        for call in [
            "APPEND k x",
            &format!("SETRANGE k {BYTES} x"),
            &format!("SETBIT k {} 1", 8 * BYTES),
            &format!("BITFIELD k GET u8 0 SET u8 #{BYTES} 1"),
        ] {
            let items: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
            let args = Args::new(&items);
            let command = crate::command::lookup(&items[0].to_ascii_lowercase()).expect("a command");
            let keys = crate::keys::keys_of(command, args).expect("a key");
            let steps = |size| estimate(command, args, &keys, |_| Some(size), || 1);
            assert!(steps(full) >= all && steps(roomy) < 20, "{call}: {}, {}", steps(full), steps(roomy));
        }
    }

    #[test]
    fn large_strings_are_left_where_the_call_is_to_end() {
        let mut bench = Bench::new();
        bench.run("SETRANGE zeros 10000000 x");
        for call in ["BITCOUNT zeros", "BITPOS zeros 1", "BITOP NOT to zeros", "BITOP OR to zeros zeros"] {
            bench.cancel = Some(CancelFlag::new(true.into()));
            bench.run(call);
            let steps = bench.work.steps();
            assert!(bench.work.is_cancelled() && steps < 20_000, "{call}: {steps} steps");
        }
    }

    #[test]
    fn a_dump_ends_where_the_call_is_to_end_or_the_reply_is_full() {
        let mut bench = Bench::new();
        for from in (0..20_000).step_by(1000) {
            let members: Vec<String> = (from..from + 1000).map(|at| format!("member:{at}")).collect();
            bench.run(&format!("SADD set {}", members.join(" ")));
        }
        bench.reply_limit = 10_000;
        bench.run("DUMP set");
        assert!(bench.work.steps() < 2_000, "{} steps", bench.work.steps());
        bench.reply_limit = usize::MAX;
        bench.cancel = Some(CancelFlag::new(true.into()));
        bench.run("DUMP set");
        assert!(bench.work.is_cancelled() && bench.work.steps() < 10_000, "{} steps", bench.work.steps());
    }
}
