//! A call, and how it is run on partitions, whoever has them.

use store_engine::keys::KeyAt;
use store_engine::notifications::{KeyActions, Notification, class};
use store_engine::work::{self, Size};
use store_engine::{Access, Args, Command, Ctx, Effects, Partition, Partitions, Reply, UndoLog, error};

use crate::lock::Mode;
use crate::notify::expired;

/// A call that passed every check and may be run.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its row.
    pub command: &'static Command,
    /// Name and arguments.
    pub args: Args<'a>,
    /// The keys among them, as `store_engine::keys::keys_of` finds them.
    pub keys: &'a [KeyAt],
    /// The selected database.
    pub db: usize,
    /// Unix time in milliseconds.
    pub now_ms: u64,
}

impl<'a> Call<'a> {
    /// The keys' bytes with what is done to them.
    pub fn keys(&self) -> impl Iterator<Item = (&'a [u8], Mode)> + '_ {
        let args = self.args;
        self.keys.iter().map(move |&(at, access)| (args[at], mode_of(access)))
    }
}

/// The lock that an access needs.
pub fn mode_of(access: Access) -> Mode {
    match access {
        Access::Read => Mode::Shared,
        Access::Write => Mode::Exclusive,
    }
}

/// Whether a call on keys that are all in this partition is long.
#[inline]
pub(crate) fn is_long_on(call: &Call<'_>, partition: &Partition) -> bool {
    call.args.len() as u64 > work::LONG_CALL_STEPS
        || ((partition.databases[call.db].large_values() > 0
            || matches!(call.command.cost, work::Cost::Arguments(_)))
            && is_long(call, |_| partition, || 0))
}

/// Whether a call is long whose keys are in the partitions that `partition_of` gives, in a database of `keys_total` keys.
#[cold]
pub(crate) fn is_long<'p>(
    call: &Call<'_>,
    partition_of: impl Fn(&[u8]) -> &'p Partition,
    keys_total: impl FnOnce() -> usize,
) -> bool {
    let size_of = |key: &[u8]| {
        let entry = partition_of(key).databases[call.db].peek(key, call.now_ms)?;
        Some(Size::of(&entry.value))
    };
    work::estimate(call.command, call.args, call.keys, size_of, keys_total) > work::LONG_CALL_STEPS
}

/// Runs the command's function; an error takes the place of whatever it had written. Whether it succeeded.
pub(crate) fn run(
    call: &Call<'_>,
    partitions: Partitions<'_>,
    seed: &mut u64,
    undo: Option<&mut UndoLog>,
    effects: Option<&mut Effects>,
    out: &mut Reply,
) -> bool {
    let (key_actions, work) = (None, out.work());
    let mut ctx = Ctx {
        partitions,
        db: call.db,
        now_ms: call.now_ms,
        seed,
        undo,
        effects,
        key_actions,
        work: &work,
        out,
    };
    run_in(&mut ctx, call)
}

/// [`run`] on copies that belong to an undo log, leaving the events of these classes in `events`. Of keys that have
/// expired those are told that the log has; of others whoever has their truth tells.
pub(crate) fn run_noting(
    call: &Call<'_>,
    partition: &mut Partition,
    seed: &mut u64,
    undo: &mut UndoLog,
    classes: u32,
    events: &mut Vec<Notification>,
    out: &mut Reply,
) -> bool {
    let mut key_actions = KeyActions::default();
    let announced = classes & class::EXPIRED != 0;
    partition.databases.iter_mut().for_each(|space| space.announce_expired(announced));
    let done = {
        let (partitions, undo, key_actions) =
            (Partitions::One(partition), Some(&mut *undo), Some(&mut key_actions));
        let (effects, work) = (None, out.work());
        let mut ctx = Ctx {
            partitions,
            db: call.db,
            now_ms: call.now_ms,
            seed,
            undo,
            effects,
            key_actions,
            work: &work,
            out,
        };
        run_in(&mut ctx, call)
    };
    for (db, space) in partition.databases.iter_mut().enumerate() {
        let keys = space.take_announced().into_iter();
        let own = keys.filter(|key| undo.keys().any(|changed| changed == (db, &**key)));
        events.extend(own.map(|key| expired(db, key)));
    }
    key_actions.take_events(call.command, call.args, classes, events);
    done
}

/// Arguments that are part of what any call costs. Each that is more is a step.
const FEW_ARGS: usize = 64;

pub(crate) fn run_in(ctx: &mut Ctx<'_>, call: &Call<'_>) -> bool {
    let start = ctx.out.buf.len();
    let done = (call.command.run)(ctx, call.args);
    ctx.out.steps += ctx.work.steps() + call.args.len().saturating_sub(FEW_ARGS) as u64;
    let done = match done {
        _ if ctx.work.is_cancelled() => Err(work::CANCELLED),
        _ if ctx.out.is_over_limit() => Err(error::REPLY_TOO_LARGE),
        done => done,
    };
    match done {
        Ok(()) => true,
        Err(error) => {
            ctx.out.buf.truncate(start);
            ctx.out.error(&error);
            false
        }
    }
}
