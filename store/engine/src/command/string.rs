//! Strings and counters.

pub mod bounded;
pub mod conditional;
pub mod options;

use crate::cost::{Cost, Size};
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::long_double::LongDouble;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::steps::BYTES_PER_STEP;
use crate::value::Str;
use crate::{Args, Ctx, Value, args, number};
use options::{Comparison, PutOptions, expiry, expiry_option};

/// Longest string, as Redis' default `proto-max-bulk-len`.
const MAX_BYTES: u64 = Str::MAX_BYTES as u64;

const STRING: Command = Command { group: Group::String, flags: flags::FAST, ..Command::BASE };
const WRITES: Command = Command {
    keys: KeyPart::FIRST_WRITE,
    access: Access::Write,
    flags: flags::DENY_OOM | flags::FAST,
    ..STRING
};
const PAIRS: &[KeyPart] = &[KeyPart::Range { first: 1, last: -1, step: 2, access: Access::Write }];
const EXPIRY_SYNTAX: &str = "key expiration(EX=seconds:int | PX=milliseconds:int | \
    EXAT=unix-time-seconds:time | PXAT=unix-time-milliseconds:time | PERSIST)?";

/// Steps of filling a string up to an offset, the third item of a call, of which `each` make a byte.
pub(super) fn steps_to(args: Args<'_>, size: Size, each: usize) -> u64 {
    let offset = args.get(2).and_then(number::parse_i64);
    let offset = offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0) / each;
    // What is there may have to move.
    let written = args.get(3).map_or(1, <[u8]>::len);
    if offset + written <= size.capacity { 1 } else { (offset / BYTES_PER_STEP) as u64 }
}

/// Steps of appending: all of a string moves when its buffer has no room for more.
fn steps_to_append(args: Args<'_>, size: Size) -> u64 {
    let added = args.get(2).map_or(0, <[u8]>::len);
    let moved = if size.is_string && size.elements + added > size.capacity { size.elements } else { 0 };
    ((moved + added) / BYTES_PER_STEP) as u64
}

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "append",
        since: "2.0.0",
        arity: Arity::Exactly(3),
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        syntax: "key value",
        cost: Cost::Arguments(steps_to_append),
        run: append,
        ..WRITES
    },
    Command {
        name: "decr",
        summary: "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        run: |ctx, args| increment(ctx, args[1], -1),
        ..WRITES
    },
    Command {
        name: "decrby",
        arity: Arity::Exactly(3),
        summary: "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.",
        syntax: "key decrement:int",
        run: decrby,
        ..WRITES
    },
    Command {
        name: "get",
        summary: "Returns the string value of a key.",
        run: get,
        cost: Cost::Values(1),
        ..STRING
    },
    Command {
        name: "getdel",
        since: "6.2.0",
        summary: "Returns the string value of a key after deleting the key.",
        flags: flags::FAST,
        cost: Cost::Values(1),
        run: getdel,
        ..WRITES
    },
    Command {
        name: "getex",
        since: "6.2.0",
        arity: Arity::AtLeast(2),
        summary: "Returns the string value of a key after setting its expiration time.",
        flags: flags::FAST,
        syntax: EXPIRY_SYNTAX,
        cost: Cost::Values(1),
        run: getex,
        ..WRITES
    },
    Command {
        name: "getrange",
        since: "2.4.0",
        arity: Arity::Exactly(4),
        flags: 0,
        summary: "Returns a substring of the string stored at a key.",
        complexity: "O(N) where N is the length of the returned string",
        syntax: "key start:int end:int",
        cost: Cost::Elements(args::range),
        run: getrange,
        ..STRING
    },
    Command {
        name: "getset",
        arity: Arity::Exactly(3),
        summary: "Returns the previous string value of a key after setting it to a new value.",
        syntax: "key value",
        cost: Cost::Values(1),
        run: getset,
        ..WRITES
    },
    Command {
        name: "incr",
        summary: "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        run: |ctx, args| increment(ctx, args[1], 1),
        ..WRITES
    },
    Command {
        name: "incrby",
        arity: Arity::Exactly(3),
        summary: "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        syntax: "key increment:int",
        run: |ctx, args| increment(ctx, args[1], args.integer(2)?),
        ..WRITES
    },
    Command {
        name: "incrbyfloat",
        since: "2.6.0",
        arity: Arity::Exactly(3),
        summary: "Increments the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        syntax: "key increment:double",
        run: incrbyfloat,
        ..WRITES
    },
    Command {
        name: "lcs",
        since: "7.0.0",
        arity: Arity::AtLeast(3),
        keys: &[KeyPart::Range { first: 1, last: 2, step: 1, access: Access::Read }],
        flags: 0,
        summary: "Finds the longest common substring.",
        complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
        syntax: "key1:key key2:key#0 LEN? IDX? MINMATCHLEN=len:int? WITHMATCHLEN?",
        cost: Cost::Product(super::lcs::CELLS_PER_STEP),
        run: super::lcs::run,
        ..STRING
    },
    Command {
        name: "mget",
        arity: Arity::AtLeast(2),
        keys: KeyPart::ALL_READ,
        summary: "Atomically returns the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to retrieve.",
        syntax: "key...",
        cost: Cost::Values(1),
        run: mget,
        ..STRING
    },
    Command {
        name: "mset",
        since: "1.0.1",
        arity: Arity::AtLeast(3),
        keys: PAIRS,
        flags: flags::DENY_OOM,
        summary: "Atomically creates or modifies the string values of one or more keys.",
        complexity: "O(N) where N is the number of keys to set.",
        cost: Cost::Constant,
        syntax: "key_value(key value)...",
        run: mset,
        ..WRITES
    },
    Command {
        name: "msetnx",
        since: "1.0.1",
        arity: Arity::AtLeast(3),
        keys: PAIRS,
        flags: flags::DENY_OOM,
        summary: "Atomically modifies the string values of one or more keys only when all keys don't exist.",
        complexity: "O(N) where N is the number of keys to set.",
        cost: Cost::Constant,
        syntax: "key_value(key value)...",
        run: msetnx,
        ..WRITES
    },
    Command {
        name: "psetex",
        since: "2.6.0",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM,
        summary: "Sets both string value and expiration time in milliseconds of a key.",
        syntax: "key milliseconds:int value",
        run: |ctx, args| setex(ctx, args, "psetex", 1),
        ..WRITES
    },
    Command {
        name: "set",
        arity: Arity::AtLeast(3),
        flags: flags::DENY_OOM,
        summary: "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        syntax: "key value condition(NX | XX | IFEQ=ifeq-value@8.4.0 | IFNE=ifne-value@8.4.0 | IFDEQ=ifdeq-digest@8.4.0 | IFDNE=ifdne-digest@8.4.0)@2.6.12? GET@6.2.0? expiration(EX=seconds:int@2.6.12 | PX=milliseconds:int@2.6.12 | EXAT=unix-time-seconds:time@6.2.0 | PXAT=unix-time-milliseconds:time@6.2.0 | KEEPTTL@6.0.0)? STICK?",
        run: set,
        ..WRITES
    },
    Command {
        name: "setex",
        since: "2.0.0",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM,
        summary: "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.",
        syntax: "key seconds:int value",
        run: |ctx, args| setex(ctx, args, "setex", 1000),
        ..WRITES
    },
    Command {
        name: "setnx",
        arity: Arity::Exactly(3),
        summary: "Sets the string value of a key only when the key doesn't exist.",
        syntax: "key value",
        run: setnx,
        ..WRITES
    },
    Command {
        name: "setrange",
        since: "2.2.0",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM,
        summary: "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.",
        complexity: "O(1), not counting the time taken to copy the new string in place",
        syntax: "key offset:int value",
        cost: Cost::Arguments(|args, size| steps_to(args, size, 1)),
        run: setrange,
        ..WRITES
    },
    Command {
        name: "strlen",
        since: "2.2.0",
        summary: "Returns the length of a string value.",
        run: strlen,
        ..STRING
    },
    Command {
        name: "substr",
        arity: Arity::Exactly(4),
        flags: 0,
        summary: "Returns a substring from a string value.",
        complexity: "O(N) where N is the length of the returned string",
        syntax: "key start:int end:int",
        cost: Cost::Elements(args::range),
        run: getrange,
        ..STRING
    },
];

/// Writes a string value, or null.
fn write(text: Option<&Str>, out: &mut crate::Reply) {
    match text {
        None => out.null(),
        Some(Str::Int(value)) => out.bulk_integer(*value),
        Some(Str::Raw(bytes)) => out.bulk(bytes),
    }
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply_from::<Str>(args[1], write)
}

fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    get(ctx, args)?;
    ctx.delete(args[1]);
    Ok(())
}

fn getset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    get(ctx, args)?;
    ctx.put_string(args[1], args[2], Expiry::Clear);
    Ok(())
}

fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply_from::<Str>(args[1], |text, out| out.count(text.map_or(0, Str::len)))
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.out.array(args.len() - 1);
    for key in ctx.work.over(args.rest(1)) {
        // A key of another type reads as missing.
        if ctx.reply_from::<Str>(key, write).is_err() {
            ctx.out.null();
        }
        if ctx.out.is_over_limit() {
            break;
        }
    }
    Ok(())
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        ctx.put_string(key, value, Expiry::Clear);
        ctx.out.ok();
        return Ok(());
    }
    let mut options = PutOptions::default();
    let (mut comparison, mut get_old, mut sticky) = (None, false, false);
    let mut cursor = args.cursor(3);
    while !cursor.is_done() {
        if cursor.flag("GET") {
            get_old = true;
        } else if cursor.flag("STICK") {
            sticky = true;
        } else if let Some(next) = Comparison::next(&mut cursor) {
            if comparison.replace(next).is_some() {
                return Err(error::SYNTAX);
            }
        } else {
            options.take(&mut cursor)?;
        }
    }
    if comparison.is_some() && options.presence.is_some() {
        return Err(error::SYNTAX);
    }
    let expiry = options.expiry(ctx, "set")?;
    if get_old {
        get(ctx, args)?;
    }
    let refused = match comparison {
        Some(comparison) => !comparison.holds_of(ctx, key)?,
        None => options.presence.is_some_and(|present| ctx.exists(key) != present),
    };
    if !refused {
        ctx.put_string(key, value, expiry);
        if sticky {
            ctx.set_sticky(key, true);
        }
    }
    match (get_old, refused) {
        (true, _) => {}
        (false, true) => ctx.out.null(),
        (false, false) => ctx.out.ok(),
    }
    Ok(())
}

fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let absent = !ctx.exists(args[1]);
    if absent {
        ctx.put_string(args[1], args[2], Expiry::Clear);
    }
    ctx.out.integer(i64::from(absent));
    Ok(())
}

fn setex(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> Result<(), CommandError> {
    let at = expiry(ctx, args.integer(2)?, unit_ms, false, name)?;
    ctx.put_string(args[1], args[3], Expiry::At(at));
    ctx.out.ok();
    Ok(())
}

fn getex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    let (mut persist, mut pending) = (false, None);
    while !cursor.is_done() {
        if pending.is_none() && cursor.flag("PERSIST") {
            persist = true;
        } else {
            let option = expiry_option(&mut cursor).ok_or(error::SYNTAX)?;
            if persist || !option.may_follow(&pending) {
                return Err(error::SYNTAX);
            }
            pending = Some(option);
        }
    }
    // The key is looked at first, then the number.
    let held = ctx.target(args[1]).map(|entry| entry.expire_at_ms);
    get(ctx, args)?;
    let Some(held) = held else { return Ok(()) };
    let at = pending.map(|pending| pending.resolve(ctx, "getex")).transpose()?;
    match at {
        Some(at) if at.get() <= ctx.now_ms => drop(ctx.delete(args[1])),
        Some(at) => drop(ctx.set_expiry(args[1], Some(at))),
        None if persist && held.is_some() => drop(ctx.set_expiry(args[1], None)),
        None => {}
    }
    Ok(())
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(error::wrong_arity("mset"));
    }
    put_pairs(ctx, args);
    ctx.out.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(error::wrong_arity("msetnx"));
    }
    let any = args.rest(1).chunks_exact(2).any(|pair| ctx.exists(pair[0]));
    if !any {
        put_pairs(ctx, args);
    }
    ctx.out.integer(i64::from(!any));
    Ok(())
}

fn put_pairs(ctx: &mut Ctx<'_>, args: Args<'_>) {
    for pair in args.rest(1).chunks_exact(2) {
        ctx.put_string(pair[0], pair[1], Expiry::Clear);
    }
}

fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let by = args.integer(2)?;
    let by = by.checked_neg().ok_or(CommandError::new("ERR decrement would overflow"))?;
    increment(ctx, args[1], by)
}

fn increment(ctx: &mut Ctx<'_>, key: &[u8], by: i64) -> Result<(), CommandError> {
    let value = if let Some(mut text) = ctx.edit(key).existing::<Str>()? {
        let held = text.as_integer().ok_or(error::NOT_AN_INTEGER)?;
        let value = held.checked_add(by).ok_or(error::OVERFLOW)?;
        text.set_integer(value);
        value
    } else {
        ctx.put(key, Value::String(Str::Int(by)), Expiry::Clear);
        by
    };
    ctx.out.integer(value);
    Ok(())
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    const NOT_FINITE: CommandError = CommandError::new("ERR increment would produce NaN or Infinity");
    let parse = |text: &[u8]| LongDouble::parse(text).ok_or(error::NOT_A_FLOAT);
    let by = || parse(args[2]);
    let sum = if let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? {
        let held = parse(&text.as_bytes())?;
        let sum = held.checked_add(by()?).ok_or(NOT_FINITE)?.to_human();
        text.replace(sum.as_bytes());
        sum
    } else {
        let sum = LongDouble::ZERO.checked_add(by()?).ok_or(NOT_FINITE)?.to_human();
        ctx.put(args[1], Value::String(Str::Raw(sum.as_bytes().to_vec())), Expiry::Clear);
        sum
    };
    ctx.out.bulk(sum.as_bytes());
    Ok(())
}

fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let len = if let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? {
        check_length(text.len() as u64 + args[2].len() as u64)?;
        let len = text.len();
        if !text.make_room(len, len + args[2].len(), work) {
            return Ok(());
        }
        text.append(args[2])
    } else {
        ctx.put_string(args[1], args[2], Expiry::Clear);
        args[2].len()
    };
    ctx.out.count(len);
    Ok(())
}

fn check_length(bytes: u64) -> Result<(), CommandError> {
    if bytes > MAX_BYTES { Err(error::STRING_TOO_LONG) } else { Ok(()) }
}

fn setrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let offset = args.integer(2)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::new("ERR offset is out of range"))?;
    let value = args[3];
    let held = ctx.read::<Str>(args[1])?.map(Str::len);
    if value.is_empty() {
        ctx.out.count(held.unwrap_or(0));
        return Ok(());
    }
    check_length(offset.saturating_add(value.len() as u64))?;
    let offset = offset as usize;
    let (work, end) = (ctx.work, offset + value.len());
    let len = if let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? {
        if !text.make_room(offset, end, work) || !work.step_bytes(value.len()) {
            return Ok(());
        }
        text.write_at(offset, value)
    } else {
        let Some(mut bytes) = Str::zeros(end, work) else { return Ok(()) };
        bytes[offset..].copy_from_slice(value);
        ctx.put(args[1], Value::String(Str::Raw(bytes)), Expiry::Clear);
        end
    };
    ctx.out.count(len);
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    ctx.reply_from::<Str>(args[1], |text, out| {
        let bytes = text.map(Str::as_bytes).unwrap_or_default();
        let len = bytes.len() as i64;
        if start < 0 && end < 0 && start > end {
            return out.bulk(b"");
        }
        let from_end = |at: i64| if at < 0 { len.saturating_add(at) } else { at };
        let (start, end) = (from_end(start).max(0), from_end(end).max(0).min(len - 1));
        if start > end || len == 0 { out.bulk(b"") } else { out.bulk(&bytes[start as usize..=end as usize]) }
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn set_and_its_options() {
        let mut bench = Bench::new();
        bench.expect("SET k v", "+OK");
        bench.expect("SET k w NX", "$-1");
        bench.expect("SET k w XX GET", "$1 v");
        bench.expect("SET k x EX 10", "+OK");
        bench.expect("SET k y KEEPTTL", "+OK");
        bench.expect("SET k y NX XX", "-ERR syntax error");
        bench.expect("SET k y EX 0", "-ERR invalid expire time in 'set' command");
        bench.expect("SET k y EX abc", "-ERR value is not an integer or out of range");
        bench.expect("SET k y EX 10 PX 10", "-ERR syntax error");
        bench.expect("GET k", "$1 y");
        bench.now_ms += 10_000;
        bench.expect("GET k", "$-1");
    }

    #[test]
    fn set_compares_with_what_is_there() {
        let mut bench = Bench::new();
        bench.run("LPUSH list x");
        for (line, wanted, after) in [
            ("SET k b IFEQ a", "+OK", "$1 b"),
            ("SET k b IFEQ x", "$-1", "$1 a"),
            ("SET none b IFEQ a", "$-1", "$1 a"),
            ("SET k b IFNE x", "+OK", "$1 b"),
            ("SET k b ifne a", "$-1", "$1 a"),
            ("SET none b IFNE a", "+OK", "$1 a"),
            ("SET k b IFEQ a GET", "$1 a", "$1 b"),
            ("SET k b GET IFEQ x", "$1 a", "$1 a"),
            ("SET none b IFNE x GET", "$-1", "$1 a"),
            ("SET k b IFDEQ E6C632B61E964E1F", "+OK", "$1 b"),
            ("SET k b IFDNE e6c632b61e964e1f", "$-1", "$1 a"),
            ("SET k b IFDEQ 0000000000000000", "$-1", "$1 a"),
            ("SET k b IFDNE 0000000000000000 EX 10", "+OK", "$1 b"),
            ("SET k b IFDEQ e6", "-ERR must be exactly 16 hexadecimal characters", "$1 a"),
            ("SET none b IFDNE e6", "+OK", "$1 a"),
            ("SET k b IFEQ a NX", "-ERR syntax error", "$1 a"),
            ("SET k b IFEQ a IFNE b", "-ERR syntax error", "$1 a"),
            ("SET k b IFEQ", "-ERR syntax error", "$1 a"),
            (
                "SET list b IFNE x",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
                "$1 a",
            ),
        ] {
            bench.run("DEL none");
            bench.run("SET k a");
            bench.expect(line, wanted);
            assert_eq!(bench.run("GET k"), after, "{line}");
        }
        bench.run("SET k 17");
        bench.expect("SET k a IFEQ 017", "$-1");
        bench.expect("SET k a IFEQ 17", "+OK");
    }

    #[test]
    fn counters() {
        let mut bench = Bench::new();
        bench.expect("INCR n", ":1");
        bench.expect("DECRBY n 5", ":-4");
        bench.expect("INCRBYFLOAT n 10.5", "$3 6.5");
        bench.expect("INCR n", "-ERR value is not an integer or out of range");
        bench.expect("SET n 9223372036854775807", "+OK");
        bench.expect("INCR n", "-ERR increment or decrement would overflow");
        bench.expect("DECRBY n -9223372036854775808", "-ERR decrement would overflow");
    }

    #[test]
    fn a_large_gap_holds_zeros_and_what_was_there_stays() {
        let mut bench = Bench::new();
        bench.run("SET k abc");
        bench.check_roll_back(&["SETRANGE k 3000000 x", "SETBIT k 80000000 1"]);
        for (end, text) in [(3_000_001, "x"), (5_000_001, "y"), (9_000_001, "z")] {
            bench.expect(&format!("SETRANGE k {} {text}", end - 1), &format!(":{end}"));
            bench.expect("GETRANGE k 0 3", "$4 abc\0");
            bench.expect(&format!("GETRANGE k {} -1", end - 2), &format!("$2 \0{text}"));
        }
        bench.expect("BITCOUNT k 3 2999999", ":0");
        bench.expect("BITCOUNT k 5000001 8999999", ":0");
    }

    #[test]
    fn ranges() {
        let mut bench = Bench::new();
        bench.expect("SETRANGE k 3 abc", ":6");
        bench.expect("GETRANGE k 3 -1", "$3 abc");
        bench.expect("GETRANGE k -2 -1", "$2 bc");
        bench.expect("GETRANGE k -1 -2", "$0");
        bench.expect("APPEND k d", ":7");
        bench.expect("STRLEN k", ":7");
        bench.expect("SETRANGE k -1 x", "-ERR offset is out of range");
        bench.expect(
            "SETRANGE k 536870912 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        );
    }

    #[test]
    fn every_change_can_be_taken_back() {
        let mut bench = Bench::new();
        bench.run("MSET a 1 b text c other");
        bench.run("EXPIRE c 100");
        bench.check_roll_back(&[
            "INCR a",
            "APPEND a x",
            "SETRANGE b 2 yy",
            "SETRANGE b 10 z",
            "APPEND b more",
            "SET c new",
            "GETDEL c",
            "SETNX d 1",
            "INCRBYFLOAT d 1.5",
            "GETEX b EX 5",
            "MSET a 5 e 6",
            "SET a 7 IFEQ 5",
            "MSETEX 2 a 8 f 9 EX 10",
            "DELEX a IFEQ 8",
            "DELIFEQ b other",
        ]);
    }
}
