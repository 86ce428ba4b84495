//! DIGEST, and what changes strings on conditions beside SET.

use super::options::{Comparison, PutOptions, digest};
use super::{STRING, WRITES};
use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::value::Str;
use crate::{Args, Ctx, Value, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "delex",
        since: "8.4.0",
        arity: Arity::AtLeast(2),
        flags: flags::FAST,
        summary: "Removes a key if its string compares as wanted.",
        complexity: "O(1) for IFEQ/IFNE, O(N) for IFDEQ/IFDNE where N is the length of the string value.",
        syntax: "key condition(IFEQ=ifeq-value | IFNE=ifne-value | IFDEQ=ifdeq-digest | IFDNE=ifdne-digest)?",
        cost: Cost::Values(1),
        run: delete_if,
        ..WRITES
    },
    Command {
        name: "delifeq",
        since: "9.0.0",
        arity: Arity::Exactly(3),
        flags: flags::FAST,
        summary: "Removes a key if its string is the given one.",
        syntax: "key value",
        cost: Cost::Values(1),
        run: |ctx, args| delete_where(ctx, args[1], Comparison::new(b"IFEQ", args[2])),
        ..WRITES
    },
    Command {
        name: "digest",
        since: "8.4.0",
        summary: "Returns the XXH3 digest of a string as hexadecimal digits.",
        complexity: "O(N) where N is the length of the string value.",
        cost: Cost::Values(1),
        run: |ctx, args| {
            let work = ctx.work;
            ctx.reply_from::<Str>(args[1], |text, out| match text {
                None => out.null(),
                Some(text) => {
                    work.step_bytes(text.len());
                    out.bulk(digest(text).as_bytes());
                }
            })
        },
        ..STRING
    },
    Command {
        name: "msetex",
        since: "8.4.0",
        arity: Arity::AtLeast(4),
        keys: &[KeyPart::Counted { count_at: 1, first: 2, step: 2, access: Access::Write }],
        flags: flags::DENY_OOM | flags::MOVABLE_KEYS,
        summary: "Sets the string values of one or more keys, with one expiration time for all, if all or none exist.",
        complexity: "O(N) where N is the number of keys to set.",
        syntax: "numkeys:int data(key value)... condition(NX | XX)? expiration(EX=seconds:int | \
            PX=milliseconds:int | EXAT=unix-time-seconds:time | PXAT=unix-time-milliseconds:time | KEEPTTL)?",
        cost: Cost::Constant,
        run: set_all,
        ..WRITES
    },
];

/// DELEX, as in Redis 8.4: without a condition it removes a key of any type.
fn delete_if(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let comparison = match *args.rest(2) {
        [] => None,
        [word, operand] => match (Comparison::new(word, operand), ctx.target(args[1])) {
            // Nothing else is looked at then.
            (_, None) => None,
            (_, Some(entry)) if !matches!(entry.value, Value::String(_)) => {
                return Err(CommandError::new(
                    "ERR Key should be of string type if conditions are specified",
                ));
            }
            (None, Some(_)) => {
                return Err(CommandError::new("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"));
            }
            (comparison, Some(_)) => comparison,
        },
        _ => return Err(error::wrong_arity("delex")),
    };
    delete_where(ctx, args[1], comparison)
}

/// Removes a key of which this holds, if there is a condition.
fn delete_where(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    comparison: Option<Comparison<'_>>,
) -> Result<(), CommandError> {
    let deleted = ctx.exists(key)
        && comparison.map_or(Ok(true), |comparison| comparison.holds_of(ctx, key))?
        && ctx.delete(key);
    ctx.out.integer(i64::from(deleted));
    Ok(())
}

/// MSETEX, as in Redis 8.4.
fn set_all(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = number::parse_i64(args[1]).and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(CommandError::new("ERR invalid numkeys value"))?;
    let mut cursor = args.cursor(2);
    let pairs =
        cursor.take(2 * count).map_err(|_| CommandError::new("ERR wrong number of key-value pairs"))?;
    let mut options = PutOptions::default();
    while !cursor.is_done() {
        options.take(&mut cursor)?;
    }
    let expiry = options.expiry(ctx, "msetex")?;
    let pairs = pairs.chunks_exact(2);
    let refused =
        options.presence.is_some_and(|present| pairs.clone().any(|pair| ctx.exists(pair[0]) != present));
    if !refused {
        pairs.for_each(|pair| ctx.put_string(pair[0], pair[1], expiry));
    }
    ctx.out.integer(i64::from(!refused));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn digests_are_those_of_redis() {
        let mut bench = Bench::new();
        bench.run("RPUSH list a");
        for (value, wanted) in [
            ("hello", "9555e8555c62dcfd"),
            ("\"\"", "2d06800538d394c2"),
            ("123", "404a763b3f4c8c9a"),
            ("v8", "0cc76dbb41381419"),
        ] {
            bench.run(&format!("SET k {value}"));
            bench.expect("DIGEST k", &format!("$16 {wanted}"));
        }
        bench.expect("DIGEST none", "$-1");
        bench.expect("DIGEST list", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    }

    #[test]
    fn keys_are_deleted_on_a_condition() {
        let mut bench = Bench::new();
        for (line, wanted) in [
            ("DELEX k", ":1"),
            ("DELEX none", ":0"),
            ("DELEX list", ":1"),
            ("DELEX k IFEQ hello", ":1"),
            ("DELEX k ifeq x", ":0"),
            ("DELEX k IFNE x", ":1"),
            ("DELEX k IFNE hello", ":0"),
            ("DELEX none IFNE x", ":0"),
            ("DELEX none FOO x", ":0"),
            ("DELEX k IFDEQ 9555E8555C62DCFD", ":1"),
            ("DELEX k IFDNE 9555e8555c62dcfd", ":0"),
            ("DELEX k IFDNE zzzzzzzzzzzzzzzz", ":1"),
            ("DELEX k IFDEQ 123", "-ERR must be exactly 16 hexadecimal characters"),
            ("DELEX k FOO x", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
            ("DELEX list FOO x", "-ERR Key should be of string type if conditions are specified"),
            ("DELEX k IFEQ", "-ERR wrong number of arguments for 'delex' command"),
            ("DELEX k IFEQ a b", "-ERR wrong number of arguments for 'delex' command"),
            ("DELIFEQ k hello", ":1"),
            ("DELIFEQ k x", ":0"),
            ("DELIFEQ none x", ":0"),
            ("DELIFEQ list x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ] {
            bench.run("SET k hello");
            bench.run("DEL list");
            bench.run("RPUSH list a");
            bench.expect(line, wanted);
            let is_kept = bench.run("EXISTS k list");
            assert_eq!(is_kept, if wanted == ":1" { ":1" } else { ":2" }, "{line}");
        }
    }

    #[test]
    fn several_are_set_together() {
        let mut bench = Bench::new();
        bench.expect("MSETEX 2 a 1 b 2", ":1");
        bench.expect("MSETEX 2 b 3 c 4 NX", ":0");
        bench.expect("MSETEX 2 b 3 c 4 XX EX 10", ":0");
        bench.expect("MSETEX 2 a 3 b 4 EX 10 xx", ":1");
        bench.expect("MGET a b c", "*3 $1 3 $1 4 $-1");
        bench.expect("MSETEX 1 a 5 KEEPTTL", ":1");
        bench.expect("MSETEX 1 b 5", ":1");
        bench.expect("TTL a", ":10");
        bench.expect("TTL b", ":-1");
        for (line, wanted) in [
            ("MSETEX 0 a 1", "-ERR invalid numkeys value"),
            ("MSETEX a 1 EX 10", "-ERR invalid numkeys value"),
            ("MSETEX 2147483648 a 1 EX 10", "-ERR invalid numkeys value"),
            ("MSETEX 2147483647 a 1 EX 10", "-ERR wrong number of key-value pairs"),
            ("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs"),
            ("MSETEX 1 a 1 b", "-ERR syntax error"),
            ("MSETEX 1 a 1 NX XX", "-ERR syntax error"),
            ("MSETEX 1 a 1 KEEPTTL EX 1", "-ERR syntax error"),
            ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command"),
        ] {
            bench.expect(line, wanted);
        }
    }
}
