//! Times to live.

use std::num::NonZeroU64;

use crate::error::{CommandError, invalid_expire};
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::{Args, Ctx};

const READS: Command = Command { flags: flags::FAST, ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..READS };
const SETS: Command = Command { arity: Arity::AtLeast(3), ..WRITES };

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "expire",
        summary: "Sets the expiration time of a key in seconds.",
        syntax: "key seconds:int condition(NX | XX | GT | LT)@7.0.0?",
        run: |ctx, args| expire(ctx, args, "expire", 1000, false),
        ..SETS
    },
    Command {
        name: "expireat",
        since: "1.2.0",
        summary: "Sets the expiration time of a key to a Unix timestamp.",
        syntax: "key unix-time-seconds:time condition(NX | XX | GT | LT)@7.0.0?",
        run: |ctx, args| expire(ctx, args, "expireat", 1000, true),
        ..SETS
    },
    Command {
        name: "expiretime",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix timestamp.",
        run: |ctx, args| remaining(ctx, args, 1000, true),
        ..READS
    },
    Command {
        name: "persist",
        since: "2.2.0",
        summary: "Removes the expiration time of a key.",
        run: persist,
        ..WRITES
    },
    Command {
        name: "pexpire",
        since: "2.6.0",
        summary: "Sets the expiration time of a key in milliseconds.",
        syntax: "key milliseconds:int condition(NX | XX | GT | LT)@7.0.0?",
        run: |ctx, args| expire(ctx, args, "pexpire", 1, false),
        ..SETS
    },
    Command {
        name: "pexpireat",
        since: "2.6.0",
        summary: "Sets the expiration time of a key to a Unix milliseconds timestamp.",
        syntax: "key unix-time-milliseconds:time condition(NX | XX | GT | LT)@7.0.0?",
        run: |ctx, args| expire(ctx, args, "pexpireat", 1, true),
        ..SETS
    },
    Command {
        name: "pexpiretime",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix milliseconds timestamp.",
        run: |ctx, args| remaining(ctx, args, 1, true),
        ..READS
    },
    Command {
        name: "pttl",
        since: "2.6.0",
        summary: "Returns the expiration time in milliseconds of a key.",
        run: |ctx, args| remaining(ctx, args, 1, false),
        ..READS
    },
    Command {
        name: "ttl",
        summary: "Returns the expiration time in seconds of a key.",
        run: |ctx, args| remaining(ctx, args, 1000, false),
        ..READS
    },
];

/// When the new expiry is taken.
#[derive(Default)]
pub struct Condition {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Condition {
    /// From the items behind the third.
    pub fn parse(args: Args<'_>) -> Result<Condition, CommandError> {
        let mut condition = Condition::default();
        let mut cursor = args.cursor(3);
        while let Some(word) = cursor.peek() {
            let flag = match () {
                () if cursor.flag("NX") => &mut condition.if_none,
                () if cursor.flag("XX") => &mut condition.if_any,
                () if cursor.flag("GT") => &mut condition.if_later,
                () if cursor.flag("LT") => &mut condition.if_sooner,
                () => {
                    let word = String::from_utf8_lossy(word);
                    return Err(CommandError::owned(format!("ERR Unsupported option {word}")));
                }
            };
            *flag = true;
        }
        if condition.if_none && (condition.if_any || condition.if_later || condition.if_sooner) {
            return Err(CommandError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if condition.if_later && condition.if_sooner {
            return Err(CommandError::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    /// Whether an expiry at `new_ms` may take the place of `old`. None lasts for ever.
    pub fn allows(&self, old: Option<NonZeroU64>, new_ms: i64) -> bool {
        let old = old.map(|old| old.get() as i64);
        !(self.if_none && old.is_some()
            || self.if_any && old.is_none()
            || self.if_later && old.is_none_or(|old| new_ms <= old)
            || self.if_sooner && old.is_some_and(|old| new_ms >= old))
    }
}

fn expire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    unit_ms: i64,
    absolute: bool,
) -> Result<(), CommandError> {
    let condition = Condition::parse(args)?;
    let amount = args.integer(2)?;
    let base = if absolute { 0 } else { ctx.now_ms as i64 };
    let at = amount.checked_mul(unit_ms).and_then(|amount| amount.checked_add(base));
    let at = at.ok_or_else(|| invalid_expire(name))?;
    let Some(old) = ctx.target(args[1]).map(|entry| entry.expire_at_ms) else {
        ctx.out.integer(0);
        return Ok(());
    };
    let allowed = condition.allows(old, at);
    if allowed {
        match u64::try_from(at).ok().filter(|at| *at > ctx.now_ms).and_then(NonZeroU64::new) {
            Some(at) => ctx.set_expiry(args[1], Some(at)),
            // A time that is over removes the key.
            None => ctx.delete(args[1]),
        };
    }
    ctx.out.integer(i64::from(allowed));
    Ok(())
}

fn persist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let had = ctx.target(args[1]).is_some_and(|entry| entry.expire_at_ms.is_some());
    if had {
        ctx.set_expiry(args[1], None);
    }
    ctx.out.integer(i64::from(had));
    Ok(())
}

/// TTL and EXPIRETIME: -2 for a missing key, -1 for one that stays.
fn remaining(ctx: &mut Ctx<'_>, args: Args<'_>, unit_ms: u64, absolute: bool) -> Result<(), CommandError> {
    let base = if absolute { 0 } else { ctx.now_ms };
    let value = match ctx.peek_entry(args[1]).map(|entry| entry.expire_at_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let left = at.get() - base;
            // Redis rounds to the nearest second.
            (if unit_ms == 1 { left } else { (left + 500) / unit_ms }) as i64
        }
    };
    ctx.out.integer(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn held_keys_are_gone_and_stay() {
        let mut bench = Bench::new();
        let hold = |bench: &mut Bench, held| {
            bench.partition.databases.iter_mut().for_each(|space| space.hold_expired(held));
        };
        for key in ["read", "written", "list"] {
            bench.run(&format!("SET {key} v PX 1000"));
        }
        let bytes = bench.partition.bytes();
        bench.now_ms += 2000;
        hold(&mut bench, true);
        for line in ["GET read", "GET written"] {
            bench.expect(line, "$-1");
        }
        bench.expect("EXISTS read written list", ":0");
        bench.expect("DBSIZE", ":3");
        assert_eq!(bench.partition.bytes(), bytes);
        // Who writes nevertheless finds nothing there, and leaves nothing of it.
        bench.expect("SET written new", "+OK");
        bench.expect("RPUSH list a", ":1");
        bench.expect("TTL list", ":-1");
        bench.expect("DBSIZE", ":3");
        hold(&mut bench, false);
        bench.expect("GET read", "$-1");
        bench.expect("DBSIZE", ":2");
        bench.expect("GET written", "$3 new");
        bench.run("DEL written list");
        assert_eq!(bench.partition.bytes(), 0);
    }

    #[test]
    fn conditions() {
        let mut bench = Bench::new();
        bench.run("SET k v");
        bench.expect("EXPIRE k 100 XX", ":0");
        bench.expect("EXPIRE k 100 GT", ":0");
        bench.expect("EXPIRE k 100 LT", ":1");
        bench.expect("EXPIRE k 200 NX", ":0");
        bench.expect("EXPIRE k 200 GT", ":1");
        bench.expect("TTL k", ":200");
        bench.expect(
            "EXPIRE k 1 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        );
        bench.expect("EXPIRE k 1 GT LT", "-ERR GT and LT options at the same time are not compatible");
        bench.expect("EXPIRE k 1 bad", "-ERR Unsupported option bad");
        bench.expect("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command");
        bench.expect("PERSIST k", ":1");
        bench.expect("TTL k", ":-1");
        bench.expect("TTL none", ":-2");
    }

    #[test]
    fn a_time_that_is_over_removes_the_key() {
        let mut bench = Bench::new();
        bench.run("SET k v");
        bench.expect("EXPIRE k -1", ":1");
        bench.expect("EXISTS k", ":0");
    }
}
