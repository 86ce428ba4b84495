//! Commands on a database as a whole, and those on no key at all.

use crate::command::scan::{self, Page, ScanOptions, Scanned};
use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::keyspace::Keyspace;
use crate::spec::{Access, Arity, Command, Group, KeyPart, Routing, flags};
use crate::{Args, Ctx, DATABASES, glob};

const WHOLE: Command = Command {
    keys: KeyPart::NONE,
    arity: Arity::Exactly(1),
    routing: Routing::Everywhere,
    syntax: "",
    ..Command::BASE
};
const FLUSHES: Command = Command {
    arity: Arity::AtLeast(1),
    group: Group::Server,
    access: Access::Write,
    flags: flags::DANGEROUS,
    cost: Cost::Keyspace(|_, total| total),
    complexity: "O(N) where N is the number of keys removed",
    syntax: "async(ASYNC@4.0.0 | SYNC@6.2.0)?",
    ..WHOLE
};
const NOWHERE: Command = Command { routing: Routing::Anywhere, flags: flags::FAST, ..WHOLE };

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "dbsize",
        group: Group::Server,
        flags: flags::FAST,
        summary: "Returns the number of keys in the database.",
        run: dbsize,
        ..WHOLE
    },
    Command {
        name: "echo",
        group: Group::Connection,
        arity: Arity::Exactly(2),
        summary: "Returns the given string.",
        syntax: "message",
        run: |ctx, args| {
            ctx.out.bulk(args[1]);
            Ok(())
        },
        ..NOWHERE
    },
    Command {
        name: "flushall",
        summary: "Removes all keys from all databases.",
        run: |ctx, args| {
            check_mode(args)?;
            for db in 0..DATABASES {
                ctx.flush(db);
            }
            ctx.out.ok();
            Ok(())
        },
        ..FLUSHES
    },
    Command {
        name: "flushdb",
        summary: "Removes all keys from the current database.",
        run: |ctx, args| {
            check_mode(args)?;
            ctx.flush(ctx.db);
            ctx.out.ok();
            Ok(())
        },
        ..FLUSHES
    },
    Command {
        name: "keys",
        arity: Arity::Exactly(2),
        flags: flags::DANGEROUS,
        summary: "Returns all key names that match a pattern.",
        complexity: "O(N) with N being the number of keys in the database",
        syntax: "pattern:pattern",
        cost: Cost::Keyspace(|_, total| total),
        run: keys,
        ..WHOLE
    },
    Command {
        name: "ping",
        group: Group::Connection,
        arity: Arity::AtLeast(1),
        summary: "Returns the server's liveliness response.",
        syntax: "message?",
        run: ping,
        ..NOWHERE
    },
    Command {
        name: "randomkey",
        flags: flags::RANDOM,
        summary: "Returns a random key name from the database.",
        run: randomkey,
        ..WHOLE
    },
    Command {
        name: "scan",
        since: "2.8.0",
        arity: Arity::AtLeast(2),
        summary: "Iterates over the key names in the database.",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the \
                     cursor to return back to 0.",
        syntax: "cursor:int MATCH=pattern:pattern? COUNT=count:int? TYPE=type@6.0.0?",
        cost: Cost::Keyspace(|args, total| {
            ScanOptions::parse(args.cursor(2), Scanned::Keys).map_or(0, |options| options.count.min(total))
        }),
        run: scan,
        routing: Routing::Paged,
        ..WHOLE
    },
    Command {
        name: "swapdb",
        since: "4.0.0",
        group: Group::Server,
        arity: Arity::Exactly(3),
        access: Access::Write,
        flags: flags::FAST | flags::DANGEROUS,
        summary: "Swaps two databases.",
        complexity: "O(N) where N is the number of shards",
        syntax: "index1:int index2:int",
        run: swapdb,
        ..WHOLE
    },
];

fn check_mode(args: Args<'_>) -> Result<(), CommandError> {
    let known = |mode: &[u8]| mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async");
    match args.rest(1) {
        [] => Ok(()),
        [mode] if known(mode) => Ok(()),
        _ => Err(error::SYNTAX),
    }
}

fn ping(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    match args.rest(1) {
        [] => ctx.out.status("PONG"),
        [message] => ctx.out.bulk(message),
        _ => return Err(error::wrong_arity("ping")),
    }
    Ok(())
}

/// The selected database's share of every partition.
fn for_each_keyspace(ctx: &mut Ctx<'_>, mut visit: impl FnMut(&Keyspace)) {
    for at in 0..ctx.partitions.len() {
        visit(&ctx.partitions.nth(at).databases[ctx.db]);
    }
}

fn dbsize(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    let mut count = 0;
    for_each_keyspace(ctx, |space| count += space.len());
    ctx.out.count(count);
    Ok(())
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let Ctx { partitions, db, now_ms, out, work, .. } = ctx;
    out.array_of(|out| {
        let mut count = 0;
        for at in 0..partitions.len() {
            let space = &partitions.nth(at).databases[*db];
            for (key, entry) in work.over(0..space.len()).filter_map(|at| space.pair_at(at)) {
                if !entry.is_expired(*now_ms) && (args[1] == b"*" || glob::matches(args[1], key)) {
                    out.bulk(key);
                    count += 1;
                }
                if out.is_over_limit() {
                    return count;
                }
            }
        }
        count
    });
    Ok(())
}

/// How often a random key that turns out to be expired is replaced by another; after that it is shown.
const RANDOM_TRIES: usize = 100;

fn randomkey(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    for tries in 1.. {
        let mut total = 0;
        for_each_keyspace(ctx, |space| total += space.len());
        if total == 0 {
            break;
        }
        let mut chosen = ctx.random_below(total);
        let now_ms = ctx.now_ms;
        for at in 0..ctx.partitions.len() {
            let space = &mut ctx.partitions.nth(at).databases[ctx.db];
            if chosen >= space.len() {
                chosen -= space.len();
                continue;
            }
            if let Some((key, entry)) = space.pair_at(chosen) {
                if !entry.is_expired(now_ms) || tries >= RANDOM_TRIES {
                    ctx.out.bulk(key);
                    return Ok(());
                }
                let key = key.clone();
                space.find(&key, now_ms);
            }
            break;
        }
    }
    ctx.out.null();
    Ok(())
}

/// SCAN walks the partitions one after the other, each from its end downwards.
fn scan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = scan::cursor(args[1])?;
    let options = ScanOptions::parse(args.cursor(2), Scanned::Keys)?;
    let Ctx { partitions, db, now_ms, out, work, .. } = ctx;
    let total = partitions.total() as u64;
    let Page { partition: mut number, mut left, .. } = Page::of(cursor, &options, total);
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let mut budget = options.count;
    loop {
        let space = &partitions.numbered(number).databases[*db];
        let end = left.min(space.len());
        let start = end.saturating_sub(budget);
        for (key, entry) in work.over((start..end).rev()).filter_map(|at| space.pair_at(at)) {
            let kind =
                options.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.value.type_name().as_bytes()));
            if kind && !entry.is_expired(*now_ms) && options.shows(key) {
                found.push(key.clone());
            }
        }
        budget -= end - start;
        if work.is_cancelled() {
            break;
        }
        left = start;
        if left == 0 {
            number += 1;
            if number as u64 == total {
                break;
            }
            left = usize::MAX;
        }
        left = left.min(partitions.numbered(number).databases[*db].len());
        if budget == 0 && left > 0 {
            break;
        }
    }
    let next = if number as u64 == total { 0 } else { left as u64 * total + number as u64 };
    scan::reply(out, next, |out| {
        out.bulks(work, &found);
        found.len()
    });
    Ok(())
}

fn swapdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let index = |at: usize, which: &'static str| {
        let number = args.integer(at).ok().and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| CommandError::owned(format!("ERR invalid {which} DB index")))
    };
    let known = |number: i32| {
        let number = usize::try_from(number).ok().filter(|number| *number < DATABASES);
        number.ok_or(CommandError::new("ERR DB index is out of range"))
    };
    let (first, second) = (index(1, "first")?, index(2, "second")?);
    let (first, second) = (known(first)?, known(second)?);
    ctx.swap_databases(first, second);
    ctx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::testing::Bench;

    #[test]
    fn a_scan_sees_every_key_that_stays() {
        let mut bench = Bench::new();
        for number in 0..500 {
            bench.run(&format!("SET key:{number} v"));
        }
        let mut seen = BTreeSet::new();
        let mut cursor = "0".to_owned();
        for round in 0.. {
            let reply = bench.run(&format!("SCAN {cursor} COUNT 7"));
            let words: Vec<&str> = reply.split(' ').collect();
            cursor = words[2].to_owned();
            seen.extend(
                words[4..].iter().filter(|word| word.starts_with("key:")).map(|word| word.to_string()),
            );
            if cursor == "0" {
                break;
            }
            // Keys that do not stay: removed and added all the time.
            bench.run(&format!("DEL key:{}", 499 - round));
            bench.run(&format!("SET new:{round} v"));
        }
        for number in 0..400 {
            assert!(seen.contains(&format!("key:{number}")), "key:{number} was missed");
        }
    }

    #[test]
    fn scan_filters() {
        let mut bench = Bench::new();
        bench.run("SET a 1");
        bench.run("RPUSH l 1");
        bench.expect("SCAN 0 TYPE list", "*2 $1 0 *1 $1 l");
        bench.expect("SCAN 0 MATCH a*", "*2 $1 0 *1 $1 a");
        bench.expect("SCAN x", "-ERR invalid cursor");
        bench.expect("SCAN 0 COUNT 0", "-ERR syntax error");
    }

    #[test]
    fn databases_change_places() {
        let mut bench = Bench::new();
        bench.run("SET a 1");
        bench.expect("SWAPDB 0 5", "+OK");
        bench.expect("DBSIZE", ":0");
        bench.expect("SWAPDB x 5", "-ERR invalid first DB index");
        bench.expect("SWAPDB 0 99", "-ERR DB index is out of range");
        bench.db = 5;
        bench.expect("GET a", "$1 1");
        bench.expect("RANDOMKEY", "$1 a");
    }
}
