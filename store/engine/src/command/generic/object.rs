//! OBJECT: how a value is kept.

use crate::error::CommandError;
use crate::spec::{Arity, Command, KeyPart};
use crate::value::Str;
use crate::{Aging, Args, Ctx, Stamp, Value, reply};

const PARTS: &[KeyPart] = &[KeyPart::one(2, crate::Access::Read)];
const SUB: Command = Command {
    since: "2.2.3",
    arity: Arity::Exactly(3),
    keys: PARTS,
    flags: 0,
    syntax: "key",
    ..Command::BASE
};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[Command {
    name: "object",
    since: "2.2.3",
    arity: Arity::AtLeast(2),
    keys: KeyPart::NONE,
    summary: "A container for object introspection commands.",
    complexity: "Depends on subcommand.",
    syntax: "",
    subcommands: SUBCOMMANDS,
    help: HELP,
    ..Command::BASE
}];

static SUBCOMMANDS: &[Command] = &[
    Command {
        name: "encoding",
        summary: "Returns the internal encoding of an object.",
        run: encoding,
        ..SUB
    },
    Command {
        name: "freq",
        since: "4.0.0",
        summary: "Returns the logarithmic access frequency counter of an object.",
        run: freq,
        ..SUB
    },
    Command {
        name: "help",
        since: "6.2.0",
        arity: Arity::Exactly(2),
        keys: KeyPart::NONE,
        routing: crate::Routing::Anywhere,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        run: help,
        ..SUB
    },
    Command {
        name: "idletime",
        summary: "Returns the time since the last access to an object.",
        run: idletime,
        ..SUB
    },
    Command {
        name: "refcount",
        summary: "Returns the reference count of a value of a key.",
        run: reference_count,
        ..SUB
    },
    Command {
        name: "sticky",
        since: "7.0.0",
        summary: "Determines whether a key is sticky.",
        run: sticky,
        ..SUB
    },
];

fn encoding(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let name = ctx.peek_entry(args[2]).map(|entry| entry.value.encoding());
    ctx.out.optional(name.map(str::as_bytes));
    Ok(())
}

fn reference_count(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    match ctx.peek_entry(args[2]).map(|entry| &entry.value) {
        None => ctx.out.null(),
        // Redis shares one object among all keys with the same small number, and says so like this.
        Some(Value::String(Str::Int(0..10_000))) => ctx.out.integer(i64::from(i32::MAX)),
        Some(_) => ctx.out.integer(1),
    }
    Ok(())
}

fn sticky(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let marked = ctx.peek_entry(args[2]).map(|entry| entry.sticky);
    reply(ctx, marked.map(i64::from))
}

/// Replies with what is remembered of accesses to a key, or refuses with `not_remembered`.
fn reply_remembered(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    read_stat: fn(Aging, Stamp, u64) -> Option<i64>,
    not_remembered: CommandError,
) -> Result<(), CommandError> {
    let Some(stamp) = ctx.peek_entry(args[2]).map(|entry| entry.stamp) else { return reply(ctx, None) };
    let aging = ctx.keyspace(args[2]).aging();
    let value = read_stat(aging, stamp, ctx.now_ms).ok_or(not_remembered)?;
    reply(ctx, Some(value))
}

fn idletime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let not_remembered = CommandError::new(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. \
         Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    let read_stat = |aging: Aging, stamp, now_ms| aging.idle_seconds(stamp, now_ms).map(i64::from);
    reply_remembered(ctx, args, read_stat, not_remembered)
}

fn freq(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let not_remembered = CommandError::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
         Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    let read_stat = |aging: Aging, stamp, now_ms| aging.frequency(stamp, now_ms).map(i64::from);
    reply_remembered(ctx, args, read_stat, not_remembered)
}

fn reply(ctx: &mut Ctx<'_>, value: Option<i64>) -> Result<(), CommandError> {
    match value {
        Some(value) => ctx.out.integer(value),
        None => ctx.out.null(),
    }
    Ok(())
}

/// What OBJECT HELP tells.
const HELP: &str = "\
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.
STICKY <key>
    Return 1 if the <key> stays when memory is short, otherwise 0.";

fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    reply::help(ctx.out, "OBJECT", HELP);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn encodings_follow_redis_thresholds() {
        let mut bench = Bench::new();
        bench.run("SET n 12");
        bench.run("SET s text");
        bench.run("SADD ints 1 2");
        bench.run("SADD words a");
        bench.run("RPUSH l a");
        for (key, wanted) in
            [("n", "$3 int"), ("s", "$6 embstr"), ("ints", "$6 intset"), ("l", "$9 quicklist")]
        {
            bench.expect(&format!("OBJECT ENCODING {key}"), wanted);
        }
    }
}
