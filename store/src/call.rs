//! A call: parsed, admitted by checks, and run on partitions.

use store_engine::keys::{KeyAt, Keys, keys_of};
use store_engine::notifications::{KeyActions, Notification};
use store_engine::work::{self, Size};
use store_engine::{Access, Args, Command, Ctx, Effects, Partition, Partitions, Reply, UndoLog, error};

use crate::lock::Mode;
use crate::notify::{OF_EXPIRY, expired};

/// A call whose command, number of arguments and keys fit each other: what the checks of a call look at.
#[derive(Clone)]
pub struct ParsedCall<'a> {
    command: &'static Command,
    args: Args<'a>,
    keys: Keys,
}

impl<'a> ParsedCall<'a> {
    /// A call of `command`, which of a container is the subcommand. `None`: the command does not take this number of
    /// arguments.
    #[inline(always)] // The result is large: moving it took 2 % of the time of a script of short calls.
    pub fn new(command: &'static Command, args: Args<'a>) -> Option<ParsedCall<'a>> {
        if !command.arity.allows(args.len()) {
            return None;
        }
        // Commands such as ZUNION and FCALL refuse a bad count of keys with errors of their own, before they touch a key.
        let keys = keys_of(command, args).unwrap_or_default();
        Some(ParsedCall { command, args, keys })
    }

    /// The call, if `check` accepts it: the way to something that can be run.
    #[inline(always)]
    pub fn admit<E>(
        self,
        check: impl FnOnce(&ParsedCall<'a>) -> Result<(), E>,
    ) -> Result<AdmittedCall<'a>, E> {
        check(&self)?;
        Ok(AdmittedCall(self))
    }

    /// The call as one that the server makes on its own account: there is no caller to check.
    pub fn of_server(self) -> AdmittedCall<'a> {
        AdmittedCall(self)
    }

    /// Its command; of a container the subcommand.
    pub fn command(&self) -> &'static Command {
        self.command
    }

    /// Name and arguments.
    pub fn args(&self) -> Args<'a> {
        self.args
    }

    /// The positions of the keys among the arguments, with what is done to each.
    pub fn keys(&self) -> &[KeyAt] {
        &self.keys
    }

    /// The keys' bytes with the locks that they need.
    pub fn key_locks(&self) -> impl Iterator<Item = (&'a [u8], Mode)> + '_ {
        locks_of(self.args, &self.keys)
    }
}

/// A call that passed its checks. Nothing else can be run.
pub struct AdmittedCall<'a>(ParsedCall<'a>);

impl<'a> AdmittedCall<'a> {
    /// What was checked.
    pub fn parsed(&self) -> &ParsedCall<'a> {
        &self.0
    }

    /// The call in database `db` at `now_ms`, Unix time in milliseconds.
    pub fn at(&self, db: usize, now_ms: u64) -> Call<'_> {
        let ParsedCall { command, args, keys } = &self.0;
        Call { command, args: *args, keys, db, now_ms, no_touch: false }
    }

    /// What is left of the call without its arguments, which are kept elsewhere.
    pub fn pass(&self) -> Pass {
        Pass { command: self.0.command, count: self.0.args.len() }
    }
}

/// Says of a call whose arguments are kept elsewhere that the call passed its checks.
#[derive(Clone, Copy)]
pub struct Pass {
    command: &'static Command,
    count: usize,
}

impl Pass {
    /// The command of the call.
    pub fn command(self) -> &'static Command {
        self.command
    }

    /// The call with its arguments. `None`: the arguments are those of another call.
    pub fn admit(self, args: Args<'_>) -> Option<AdmittedCall<'_>> {
        let call = (args.len() == self.count).then(|| ParsedCall::new(self.command, args))?;
        call.map(AdmittedCall)
    }
}

/// A call that was admitted, in a database and at a time: what a store runs.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its row.
    pub(crate) command: &'static Command,
    /// Name and arguments.
    pub(crate) args: Args<'a>,
    /// The keys among them, as `store_engine::keys::keys_of` finds them.
    pub(crate) keys: &'a [KeyAt],
    /// The selected database.
    pub(crate) db: usize,
    /// Unix time in milliseconds.
    pub(crate) now_ms: u64,
    /// It counts as no use of its keys.
    pub(crate) no_touch: bool,
}

impl<'a> Call<'a> {
    /// The same call, which counts as a use of its keys or, with `no_touch`, does not.
    pub fn without_touch(self, no_touch: bool) -> Call<'a> {
        Call { no_touch, ..self }
    }

    /// The keys' bytes with the locks that they need.
    pub fn keys(&self) -> impl Iterator<Item = (&'a [u8], Mode)> + '_ {
        locks_of(self.args, self.keys)
    }

    /// The same call with `items` as its arguments: as many, and the same keys. `None`: they are not that.
    pub fn with_items<'b>(&self, items: &'b [&'b [u8]]) -> Option<Call<'b>>
    where
        'a: 'b,
    {
        let keeps_keys = self.keys.iter().all(|(at, _)| items.get(*at) == Some(&self.args[*at]));
        let fits = items.len() == self.args.len() && keeps_keys;
        fits.then(|| Call { args: Args::new(items), ..*self })
    }
}

fn locks_of<'a>(args: Args<'a>, keys: &[KeyAt]) -> impl Iterator<Item = (&'a [u8], Mode)> {
    keys.iter().map(move |&(at, access)| (args[at], mode_of(access)))
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
    run_with(call, partitions, seed, undo, effects, None, out)
}

/// [`run`], which leaves what was done to keys in `key_actions`.
fn run_with(
    call: &Call<'_>,
    partitions: Partitions<'_>,
    seed: &mut u64,
    undo: Option<&mut UndoLog>,
    effects: Option<&mut Effects>,
    key_actions: Option<&mut KeyActions>,
    out: &mut Reply,
) -> bool {
    let work = out.work();
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
/// expired those are announced that the log has; others are announced by the owner of the original.
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
    let announced = classes & OF_EXPIRY != 0;
    partition.databases.iter_mut().for_each(|space| space.announce_expired(announced));
    let one = Partitions::One(partition);
    let done = run_with(call, one, seed, Some(&mut *undo), None, Some(&mut key_actions), out);
    for (db, space) in partition.databases.iter_mut().enumerate() {
        let all = space.take_announced().into_iter().flat_map(|announced| expired(db, announced, classes));
        events.extend(all.filter(|event| undo.keys().any(|changed| changed == (db, &*event.key))));
    }
    key_actions.take_events(call.command, call.args, classes, events);
    done
}

/// Arguments that are part of what any call costs. Each that is more is a step.
const FEW_ARGS: usize = 64;

/// Runs a call within what is locked for it.
#[inline(always)] // It stands where each call passes.
pub(crate) fn run_in(ctx: &mut Ctx<'_>, call: &Call<'_>) -> bool {
    // TOUCH is there for nothing else.
    let is_held = call.no_touch && call.command.name != "touch";
    if !is_held {
        return run_noted(ctx, call);
    }
    ctx.partitions.hold_stamps(call.db, true);
    let done = run_noted(ctx, call);
    ctx.partitions.hold_stamps(call.db, false);
    done
}

#[inline]
fn run_noted(ctx: &mut Ctx<'_>, call: &Call<'_>) -> bool {
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
