//! Hashes.

pub mod expiry;

use super::{sample, scan};
use crate::cost::Cost;
use crate::edit::Editor;
use crate::error::{self, CommandError};
use crate::long_double::LongDouble;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::Hash;
use crate::value::hash::Live;
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
            let now_ms = ctx.now_ms;
            ctx.reply_from::<Hash>(args[1], |hash, out| {
                out.optional(hash.and_then(|hash| hash.live(now_ms).get(args[2])));
            })
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
        // As in Valkey those whose time is over count until they are removed.
        run: |ctx, args| ctx.reply_from::<Hash>(args[1], |hash, out| out.count(hash.map_or(0, Hash::len))),
        ..HASH
    },
    Command {
        name: "hstrlen",
        since: "3.2.0",
        summary: "Returns the length of a field's value.",
        run: |ctx, args| {
            let now_ms = ctx.now_ms;
            ctx.reply_from::<Hash>(args[1], |hash, out| {
                out.count(hash.and_then(|hash| hash.live(now_ms).get(args[2])).map_or(0, <[u8]>::len));
            })
        },
        ..OF_FIELD
    },
    Command {
        name: "hexists",
        summary: "Determines whether a field exists.",
        run: |ctx, args| {
            let now_ms = ctx.now_ms;
            ctx.reply_from::<Hash>(args[1], |hash, out| {
                out.count(usize::from(hash.is_some_and(|hash| hash.live(now_ms).contains(args[2]))));
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
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    let pairs = args.rest(2).chunks_exact(2);
    announce_overdue(&mut hash, pairs.clone().map(|pair| pair[0]), now_ms);
    Ok(work.over(pairs).filter(|pair| put(&mut hash, pair[0], pair[1], now_ms)).count())
}

/// Sets `field`, which does not expire then; whether it is new for clients.
fn put(hash: &mut Editor<'_, Hash>, field: &[u8], value: &[u8], now_ms: u64) -> bool {
    let is_overdue = hash.is_overdue(field, now_ms);
    if is_overdue {
        hash.count_expired();
    }
    hash.insert(field, value) || is_overdue
}

/// Says of a hash that is about to get these fields, if one of them is there although its time is over, that it has
/// expired.
fn announce_overdue<'f>(
    hash: &mut Editor<'_, Hash>,
    mut fields: impl Iterator<Item = &'f [u8]>,
    now_ms: u64,
) {
    if hash.is_expiring() && fields.any(|field| hash.is_overdue(field, now_ms)) {
        hash.announce("hexpired");
    }
}

fn set_if_absent(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.now_ms;
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    let absent = !hash.live(now_ms).contains(args[2]);
    if absent {
        announce_overdue(&mut hash, [args[2]].into_iter(), now_ms);
        put(&mut hash, args[2], args[3], now_ms);
    }
    drop(hash);
    ctx.out.count(usize::from(absent));
    Ok(())
}

fn get_many(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let (hash, fields) = (hash.map(|hash| hash.live(now_ms)), args.rest(2));
        out.array(fields.len());
        out.each(work, fields, |out, field| out.optional(hash.and_then(|hash| hash.get(field))));
    })
}

fn get_all(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let hash = hash.map(|hash| hash.live(now_ms));
        out.map(hash.map_or(0, |hash| hash.len()));
        out.each(work, hash.into_iter().flat_map(Live::iter), |out, (field, value)| {
            out.bulk(field);
            out.bulk(value);
        });
    })
}

/// One half of a pair.
type Half = for<'h> fn((&'h [u8], &'h [u8])) -> &'h [u8];

/// HKEYS and HVALS.
fn list(ctx: &mut Ctx<'_>, args: Args<'_>, half: Half) -> Result<(), CommandError> {
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let hash = hash.map(|hash| hash.live(now_ms));
        out.array(hash.map_or(0, |hash| hash.len()));
        out.bulks(work, hash.into_iter().flat_map(Live::iter).map(half));
    })
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let removed = match ctx.edit(args[1]).existing::<Hash>()? {
        None => 0,
        Some(mut hash) => {
            let goes = |field: &&&[u8]| !hash.is_overdue(field, now_ms) && hash.remove(field);
            work.over(args.rest(2)).filter(goes).count()
        }
    };
    ctx.out.count(removed);
    Ok(())
}

fn increment(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let by = args.integer(3)?;
    let now_ms = ctx.now_ms;
    let held = match ctx.read::<Hash>(args[1])?.and_then(|hash| hash.live(now_ms).get(args[2])) {
        None => 0,
        Some(text) => number::parse_i64(text).ok_or(CommandError::new("ERR hash value is not an integer"))?,
    };
    let value = held.checked_add(by).ok_or(error::OVERFLOW)?;
    let text = itoa::Buffer::new().format(value).to_owned();
    store_number(ctx, args, text.as_bytes())?;
    ctx.out.integer(value);
    Ok(())
}

/// Sets the field of the call. It expires when it would have without this.
fn store_number(ctx: &mut Ctx<'_>, args: Args<'_>, text: &[u8]) -> Result<(), CommandError> {
    let now_ms = ctx.now_ms;
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    if hash.is_overdue(args[2], now_ms) {
        hash.announce("hexpired");
        put(&mut hash, args[2], text, now_ms);
    } else {
        hash.update(args[2], text);
    }
    Ok(())
}

fn increment_float(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    const NOT_A_FLOAT: CommandError = CommandError::new("ERR hash value is not a float");
    const NOT_FINITE: CommandError = CommandError::new("ERR increment would produce NaN or Infinity");
    let by = LongDouble::parse(args[3]).ok_or(error::NOT_A_FLOAT)?;
    if by.is_infinite() {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let now_ms = ctx.now_ms;
    let held = match ctx.read::<Hash>(args[1])?.and_then(|hash| hash.live(now_ms).get(args[2])) {
        None => LongDouble::ZERO,
        Some(text) => LongDouble::parse(text).ok_or(NOT_A_FLOAT)?,
    };
    let text = held.checked_add(by).ok_or(NOT_FINITE)?.to_human();
    store_number(ctx, args, text.as_bytes())?;
    ctx.out.bulk(text.as_bytes());
    Ok(())
}

/// Positions that HRANDFIELD shows.
struct Picked {
    /// Where they are in `live`, if there is that, or else in the hash.
    positions: sample::Positions,
    /// All positions of fields whose time is not over.
    live: Option<Vec<usize>>,
}

/// Picks fields by chance, as [`sample::positions`], among those whose time is not over.
fn pick(ctx: &mut Ctx<'_>, key: &[u8], count: i64) -> Result<Picked, CommandError> {
    /// With few fields whose time is over, all of few are soon others: it saves looking at all fields.
    const ATTEMPTS: usize = 8;
    let now_ms = ctx.now_ms;
    let len = ctx.peek::<Hash>(key)?.map_or(0, Hash::len);
    for _ in 0..ATTEMPTS {
        let positions = sample::positions(ctx, count, len)?;
        let live = ctx.peek::<Hash>(key)?.map(|hash| hash.live(now_ms));
        let shows = |at| live.is_none_or(|live| live.at(at).is_some());
        if live.is_none_or(|live| live.is_all()) || positions.clone().all(shows) {
            return Ok(Picked { positions, live: None });
        }
    }
    let live: Vec<usize> = match ctx.peek::<Hash>(key)?.map(|hash| hash.live(now_ms)) {
        Some(hash) => (0..len).filter(|at| hash.at(*at).is_some()).collect(),
        None => Vec::new(),
    };
    Ok(Picked { positions: sample::positions(ctx, count, live.len())?, live: Some(live) })
}

impl Iterator for Picked {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.positions.next()?;
        self.live.as_ref().map_or(Some(at), |live| live.get(at).copied())
    }
}

fn random_field(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 {
        let at = pick(ctx, args[1], -1)?.next();
        return ctx.reply_from::<Hash>(args[1], |hash, out| {
            out.optional(hash.and_then(|hash| hash.at(at?)).map(|(field, _)| field));
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
    let picked = pick(ctx, args[1], count)?;
    let work = ctx.work;
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        // RESP3 nests the pairs, RESP2 has them flat.
        let nested = with_values && out.protocol == Protocol::Resp3;
        let count = picked.positions.count_left();
        out.array(if with_values && !nested { count * 2 } else { count });
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
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let Some(hash) = hash else { return };
        let live = hash.live(now_ms);
        let window = options.window(cursor, hash.len());
        scan::reply(out, window.start as u64, |out| {
            let mut shown = 0;
            out.each(work, window.filter_map(|at| live.at(at)), |out, (field, value)| {
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
