//! Hashes.

use super::{sample, scan};
use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::long_double::LongDouble;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::Hash;
use crate::{Args, Ctx, Protocol, number};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "hset",
        summary: "Sets the values of fields and returns the number of new fields. The key is created if it \
                  doesn't exist.",
        run: |ctx, args| {
            let added = set(ctx, args, "hset")?;
            ctx.out.count(added);
            Ok(())
        },
        ..SETS
    },
    Command {
        name: "hmset",
        summary: "Sets the values of fields. The key is created if it doesn't exist.",
        run: |ctx, args| {
            set(ctx, args, "hmset")?;
            ctx.out.ok();
            Ok(())
        },
        ..SETS
    },
    Command {
        name: "hsetnx",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Sets the value of a field only if the field doesn't exist.",
        syntax: "key field value",
        run: set_if_absent,
        ..WRITES
    },
    Command {
        name: "hget",
        summary: "Returns the value of a field.",
        run: |ctx, args| {
            ctx.reply_from::<Hash>(args[1], |hash, out| out.optional(hash.and_then(|hash| hash.get(args[2]))))
        },
        ..OF_FIELD
    },
    Command {
        name: "hmget",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Returns the values of several fields.",
        complexity: "O(N) where N is the number of fields requested.",
        syntax: "key field...",
        run: get_many,
        ..HASH
    },
    Command { name: "hgetall", summary: "Returns all fields with their values.", run: get_all, ..WHOLE },
    Command {
        name: "hdel",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Removes fields. The key is deleted with its last field.",
        complexity: "O(N) where N is the number of fields to be removed.",
        syntax: "key field...",
        run: remove,
        ..WRITES
    },
    Command {
        name: "hlen",
        flags: flags::FAST,
        summary: "Returns the number of fields.",
        run: |ctx, args| ctx.reply_from::<Hash>(args[1], |hash, out| out.count(hash.map_or(0, Hash::len))),
        ..HASH
    },
    Command {
        name: "hstrlen",
        since: "3.2.0",
        summary: "Returns the length of a field's value.",
        run: |ctx, args| {
            ctx.reply_from::<Hash>(args[1], |hash, out| {
                out.count(hash.and_then(|hash| hash.get(args[2])).map_or(0, <[u8]>::len));
            })
        },
        ..OF_FIELD
    },
    Command {
        name: "hexists",
        summary: "Determines whether a field exists.",
        run: |ctx, args| {
            ctx.reply_from::<Hash>(args[1], |hash, out| {
                out.count(usize::from(hash.is_some_and(|hash| hash.contains(args[2]))));
            })
        },
        ..OF_FIELD
    },
    Command {
        name: "hkeys",
        summary: "Returns the names of all fields.",
        run: |ctx, args| list(ctx, args, |(field, _)| field),
        ..WHOLE
    },
    Command {
        name: "hvals",
        summary: "Returns the values of all fields.",
        run: |ctx, args| list(ctx, args, |(_, value)| value),
        ..WHOLE
    },
    Command {
        name: "hincrby",
        summary: "Increments the integer value of a field. Uses 0 as initial value if the field doesn't exist.",
        run: increment,
        ..INCREMENTS
    },
    Command {
        name: "hincrbyfloat",
        since: "2.6.0",
        summary: "Increments the floating point value of a field. Uses 0 as initial value if the field doesn't \
                  exist.",
        syntax: "key field increment:double",
        run: increment_float,
        ..INCREMENTS
    },
    Command {
        name: "hrandfield",
        since: "6.2.0",
        arity: Arity::AtLeast(2),
        flags: flags::RANDOM,
        summary: "Returns random fields.",
        complexity: "O(N) where N is the number of fields returned.",
        syntax: "key options(count:int WITHVALUES?)?",
        cost: Cost::Arguments(sample::steps),
        run: random_field,
        ..HASH
    },
    Command {
        name: "hscan",
        since: "2.8.0",
        arity: Arity::AtLeast(3),
        flags: flags::RANDOM,
        summary: "Iterates over the fields and values of a hash.",
        complexity: "O(1) for every call, O(N) for all N fields.",
        syntax: "key cursor:int MATCH=pattern:pattern? COUNT=count:int? NOVALUES@7.4.0?",
        cost: Cost::Elements(scan::elements),
        run: scan_fields,
        ..HASH
    },
];

const HASH: Command = Command { group: Group::Hash, since: "2.0.0", ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..HASH };
const SETS: Command = Command {
    arity: Arity::AtLeast(4),
    flags: flags::DENY_OOM | flags::FAST,
    complexity: "O(N) where N is the number of fields set.",
    syntax: "key field_value(field value)...",
    ..WRITES
};
const INCREMENTS: Command = Command {
    arity: Arity::Exactly(4),
    flags: flags::DENY_OOM | flags::FAST,
    syntax: "key field increment:int",
    ..WRITES
};
const OF_FIELD: Command =
    Command { arity: Arity::Exactly(3), flags: flags::FAST, syntax: "key field", ..HASH };
const WHOLE: Command = Command { complexity: "O(N) where N is the number of fields.", ..HASH };

/// Sets the pairs of the call; how many fields were new.
fn set(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str) -> Result<usize, CommandError> {
    if args.len() % 2 == 1 {
        return Err(error::wrong_arity(name));
    }
    let work = ctx.work;
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    Ok(work.over(args.rest(2).chunks_exact(2)).filter(|pair| hash.insert(pair[0], pair[1])).count())
}

fn set_if_absent(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    let absent = !hash.contains(args[2]);
    if absent {
        hash.insert(args[2], args[3]);
    }
    drop(hash);
    ctx.out.count(usize::from(absent));
    Ok(())
}

fn get_many(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let fields = args.rest(2);
        out.array(fields.len());
        out.each(work, fields, |out, field| out.optional(hash.and_then(|hash| hash.get(field))));
    })
}

fn get_all(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        out.map(hash.map_or(0, Hash::len));
        out.each(work, hash.into_iter().flat_map(Hash::iter), |out, (field, value)| {
            out.bulk(field);
            out.bulk(value);
        });
    })
}

/// One half of a pair.
type Half = for<'h> fn((&'h [u8], &'h [u8])) -> &'h [u8];

/// HKEYS and HVALS.
fn list(ctx: &mut Ctx<'_>, args: Args<'_>, half: Half) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        out.array(hash.map_or(0, Hash::len));
        out.bulks(work, hash.into_iter().flat_map(Hash::iter).map(half));
    })
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let removed = match ctx.edit(args[1]).existing::<Hash>()? {
        None => 0,
        Some(mut hash) => work.over(args.rest(2)).filter(|field| hash.remove(field)).count(),
    };
    ctx.out.count(removed);
    Ok(())
}

fn increment(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let by = args.integer(3)?;
    let held = match ctx.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2])) {
        None => 0,
        Some(text) => number::parse_i64(text).ok_or(CommandError::new("ERR hash value is not an integer"))?,
    };
    let value = held.checked_add(by).ok_or(error::OVERFLOW)?;
    let text = itoa::Buffer::new().format(value).to_owned();
    ctx.edit(args[1]).or_create::<Hash>()?.insert(args[2], text.as_bytes());
    ctx.out.integer(value);
    Ok(())
}

fn increment_float(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    const NOT_A_FLOAT: CommandError = CommandError::new("ERR hash value is not a float");
    const NOT_FINITE: CommandError = CommandError::new("ERR increment would produce NaN or Infinity");
    let by = LongDouble::parse(args[3]).ok_or(error::NOT_A_FLOAT)?;
    if by.is_infinite() {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let held = match ctx.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2])) {
        None => LongDouble::ZERO,
        Some(text) => LongDouble::parse(text).ok_or(NOT_A_FLOAT)?,
    };
    let text = held.checked_add(by).ok_or(NOT_FINITE)?.to_human();
    ctx.edit(args[1]).or_create::<Hash>()?.insert(args[2], text.as_bytes());
    ctx.out.bulk(text.as_bytes());
    Ok(())
}

fn random_field(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 {
        let len = ctx.peek::<Hash>(args[1])?.map_or(0, Hash::len);
        let at = if len == 0 { 0 } else { ctx.random_below(len) };
        return ctx.reply_from::<Hash>(args[1], |hash, out| {
            out.optional(hash.and_then(|hash| hash.at(at)).map(|(field, _)| field));
        });
    }
    let count = args.negatable(2)?;
    let with_values = match args.rest(3) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withvalues") => true,
        _ => return Err(error::SYNTAX),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::new("ERR value is out of range"));
    }
    let len = ctx.peek::<Hash>(args[1])?.map_or(0, Hash::len);
    let picked = sample::positions(ctx, count, len)?;
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        // RESP3 nests the pairs, RESP2 has them flat.
        let nested = with_values && out.protocol == Protocol::Resp3;
        out.array(if with_values && !nested { picked.count_left() * 2 } else { picked.count_left() });
        out.each(work, picked.filter_map(|at| hash?.at(at)), |out, (field, value)| {
            if nested {
                out.array(2);
            }
            out.bulk(field);
            if with_values {
                out.bulk(value);
            }
        });
    })
}

fn scan_fields(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = scan::cursor(args[2])?;
    if ctx.read::<Hash>(args[1])?.is_none() {
        // As in Redis, nobody reads the options then.
        scan::reply(ctx.out, 0, |_| 0);
        return Ok(());
    }
    let options = scan::ScanOptions::parse(args.cursor(3), scan::Scanned::Fields)?;
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let Some(hash) = hash else { return };
        let window = options.window(cursor, hash.len());
        scan::reply(out, window.start as u64, |out| {
            let mut shown = 0;
            out.each(work, window.filter_map(|at| hash.at(at)), |out, (field, value)| {
                if options.shows(field) {
                    out.bulk(field);
                    shown += 1;
                    if !options.no_values {
                        out.bulk(value);
                        shown += 1;
                    }
                }
            });
            shown
        });
    })
}

#[cfg(test)]
mod tests;
