//! Sorted sets: taking members from an end, picking some at random, walking over all of them in steps.

use super::range::{remove_span, reply_len, reply_pair};
use crate::command::{sample, scan};
use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::ZSet;
use crate::{Args, Ctx, Protocol, Reply, args, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "zmpop",
        since: "7.0.0",
        arity: Arity::AtLeast(4),
        keys: &[KeyPart::Counted { count_at: 1, first: 2, step: 1, access: Access::Write }],
        flags: flags::MOVABLE_KEYS,
        summary: "Removes and returns members from an end of the first of several sorted sets that is not empty.",
        complexity: "O(K)+O(M*log(N)) with K the number of keys, N the size of the sorted set and M the number of \
                     members removed.",
        syntax: "numkeys:int key... where(MIN | MAX) COUNT=count:int?",
        cost: Cost::Elements(|args, len| {
            MultiPop::parse(args, 1).map_or(0, |pop| pop.count.min(len)).saturating_mul(3)
        }),
        run: |ctx, args| MultiPop::parse(args, 1)?.perform(ctx),
        ..WRITES
    },
    Command {
        name: "zpopmax",
        summary: "Removes and returns the members with the highest scores.",
        run: |ctx, args| pop(ctx, args, End::Max),
        ..WRITES
    },
    Command {
        name: "zpopmin",
        summary: "Removes and returns the members with the lowest scores.",
        run: |ctx, args| pop(ctx, args, End::Min),
        ..WRITES
    },
    Command {
        name: "zrandmember",
        since: "6.2.0",
        flags: flags::RANDOM,
        summary: "Returns random members.",
        complexity: "O(M*log(N)) with N the size of the sorted set and M the number of members returned.",
        syntax: "key options(count:int WITHSCORES?)?",
        cost: Cost::Arguments(sample::steps),
        run: zrandmember,
        ..READS
    },
    Command {
        name: "zscan",
        since: "2.8.0",
        arity: Arity::AtLeast(3),
        flags: flags::RANDOM,
        summary: "Iterates over the members and scores of a sorted set.",
        complexity: "O(1) for every call, O(N) for a walk over all N members.",
        syntax: "key cursor:int MATCH=pattern:pattern? COUNT=count:int?",
        cost: Cost::Elements(scan::elements),
        run: zscan,
        ..READS
    },
];

const READS: Command = Command { group: Group::SortedSet, arity: Arity::AtLeast(2), ..Command::BASE };
const WRITES: Command = Command {
    since: "5.0.0",
    keys: KeyPart::FIRST_WRITE,
    access: Access::Write,
    flags: flags::FAST,
    complexity: "O(M*log(N)) with N the size of the sorted set and M the number of members removed.",
    syntax: "key count:int?",
    cost: Cost::Elements(|args, len| args::count(args, len).saturating_mul(3)),
    ..READS
};

/// Up to this many members, ZSCAN shows all at once, as Redis does with its compact encoding.
const SCANNED_AT_ONCE: usize = 128;

/// Where to take members from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Min,
    Max,
}

/// A count that must be a number above 0, whatever else is wrong with it.
fn positive(text: &[u8], error: &'static str) -> Result<usize, CommandError> {
    let count = number::parse_i64(text).and_then(|count| usize::try_from(count).ok());
    count.filter(|count| *count > 0).ok_or(CommandError::new(error))
}

/// Removes up to `count` members from `end` of the sorted set under `key`, if it exists, after `announce` has
/// been told how many. They are shown as pairs if `nested`, else flat.
pub(crate) fn take(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    end: End,
    count: usize,
    nested: bool,
    announce: impl FnOnce(&mut Reply, usize),
) -> Result<(), CommandError> {
    let mut span = 0..0;
    let work = ctx.work;
    ctx.reply_from::<ZSet>(key, |zset, out| {
        let len = zset.map_or(0, ZSet::len);
        let count = count.min(len);
        announce(out, count);
        let write = |out: &mut Reply, (member, score): (&[u8], f64)| {
            if nested {
                out.array(2);
            }
            out.bulk(member);
            out.double(score);
        };
        match zset.filter(|_| count > 0) {
            None => {}
            Some(zset) if end == End::Min => {
                span = 0..count;
                out.each(work, zset.iter_from(0).take(count), write);
            }
            Some(zset) => {
                span = len - count..len;
                out.each(work, zset.rev_iter_from(len - 1).take(count), write);
            }
        }
    })?;
    if span.is_empty() { Ok(()) } else { remove_span(ctx, key, span) }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(error::SYNTAX);
    }
    let count = match args.get(2) {
        None => None,
        Some(text) => {
            let count = number::parse_i64(text).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(error::NOT_POSITIVE)?)
        }
    };
    let nested = count.is_some() && ctx.out.protocol == Protocol::Resp3;
    take(ctx, args[1], end, count.unwrap_or(1), nested, |out, count| {
        out.array(if nested { count } else { 2 * count });
    })
}

/// The arguments of ZMPOP and BZMPOP.
pub(crate) struct MultiPop<'a> {
    keys: &'a [&'a [u8]],
    end: End,
    count: usize,
}

impl<'a> MultiPop<'a> {
    /// Reads all from the number of keys on, which stands at `at`.
    pub fn parse(args: Args<'a>, at: usize) -> Result<Self, CommandError> {
        let mut cursor = args.cursor(at);
        let key_count = positive(cursor.bytes()?, "ERR numkeys should be greater than 0")?;
        let keys = cursor.take(key_count)?;
        let end = match cursor.bytes()? {
            word if word.eq_ignore_ascii_case(b"min") => End::Min,
            word if word.eq_ignore_ascii_case(b"max") => End::Max,
            _ => return Err(error::SYNTAX),
        };
        let mut count = None;
        while !cursor.is_done() {
            if count.is_some() || cursor.remaining() < 2 || !cursor.flag("count") {
                return Err(error::SYNTAX);
            }
            count = Some(positive(cursor.bytes()?, "ERR count should be greater than 0")?);
        }
        Ok(MultiPop { keys, end, count: count.unwrap_or(1) })
    }

    /// Takes from the first sorted set that is there; null if there is none.
    pub fn perform(&self, ctx: &mut Ctx<'_>) -> Result<(), CommandError> {
        for key in self.keys {
            if ctx.read::<ZSet>(key)?.is_some() {
                return take(ctx, key, self.end, self.count, true, |out, count| {
                    out.array(2);
                    out.bulk(key);
                    out.array(count);
                });
            }
        }
        ctx.out.null_array();
        Ok(())
    }
}

fn zrandmember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 {
        let len = ctx.peek::<ZSet>(args[1])?.map_or(0, ZSet::len);
        let rank = if len == 0 { 0 } else { ctx.random_below(len) };
        return ctx.reply_from::<ZSet>(args[1], |zset, out| {
            out.optional(zset.and_then(|zset| zset.select(rank)).map(|(member, _)| member));
        });
    }
    let count = args.negatable(2)?;
    let with_scores = match args.rest(3) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withscores") => true,
        _ => return Err(error::SYNTAX),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::new("ERR value is out of range"));
    }
    let len = ctx.peek::<ZSet>(args[1])?.map_or(0, ZSet::len);
    let ranks = sample::positions(ctx, count, len)?;
    let work = ctx.work;
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        reply_len(out, ranks.count_left(), with_scores);
        out.each(work, ranks.filter_map(|rank| zset?.select(rank)), |out, (member, score)| {
            if with_scores { reply_pair(out, member, score) } else { out.bulk(member) }
        });
    })
}

fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = scan::cursor(args[2])?;
    if ctx.read::<ZSet>(args[1])?.is_none() {
        // As in Redis, nobody reads the options then.
        scan::reply(ctx.out, 0, |_| 0);
        return Ok(());
    }
    let options = scan::ScanOptions::parse(args.cursor(3), scan::Scanned::Members)?;
    let work = ctx.work;
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        let Some(zset) = zset else { return };
        let at_once = zset.len() <= SCANNED_AT_ONCE;
        let (next, found) =
            if at_once { (0, zset.iter_from(0).collect()) } else { zset.scan(cursor, options.count) };
        scan::reply(out, next, |out| {
            let mut shown = 0;
            let shown_of = found.into_iter().filter(|(member, _)| options.shows(member));
            out.each(work, shown_of, |out, (member, score)| {
                out.bulk(member);
                // Redis' compact encoding keeps integers as such; elsewhere they have 17 digits like all scores.
                if at_once && score == score.trunc() && score.abs() < 2f64.powi(62) {
                    out.bulk_integer(score as i64);
                } else {
                    out.bulk_float(score);
                }
                shown += 2;
            });
            shown
        });
    })
}
