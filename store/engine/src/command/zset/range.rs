//! Sorted sets by range: of ranks, of scores, or of member bytes where all scores are equal.
//!
//! Every range comes down to a span of ranks: bounds of scores and bytes are found as numbers of members before
//! them, LIMIT cuts the span, and only what is left is walked. So no offset and no count costs time.

use std::ops::Range;

use crate::cost::Cost;
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::ZSet;
use crate::{Args, Ctx, Reply, Value, args, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "zcount",
        since: "2.0.0",
        arity: Arity::Exactly(4),
        flags: flags::FAST,
        summary: "Counts the members with scores in a range.",
        complexity: "O(log(N)) with N the size of the sorted set.",
        syntax: "key min:double max:double",
        run: |ctx, args| count(ctx, args, By::Score),
        ..READS
    },
    Command {
        name: "zlexcount",
        since: "2.8.9",
        arity: Arity::Exactly(4),
        flags: flags::FAST,
        summary: "Counts the members in a lexicographical range.",
        complexity: "O(log(N)) with N the size of the sorted set.",
        syntax: "key min max",
        run: |ctx, args| count(ctx, args, By::Lex),
        ..READS
    },
    Command {
        name: "zrange",
        summary: "Returns the members in a range of ranks, scores or bytes.",
        syntax: "key start stop sortby(BYSCORE | BYLEX)@6.2.0? REV@6.2.0? LIMIT=offset_count(offset:int count:int)@6.2.0? WITHSCORES?",
        cost: Cost::Elements(elements),
        run: |ctx, args| range(ctx, args, Query::default()),
        ..READS
    },
    Command {
        name: "zrangebylex",
        since: "2.8.9",
        summary: "Returns the members in a lexicographical range.",
        syntax: "key min max LIMIT=offset_count(offset:int count:int)?",
        cost: Cost::Elements(limited),
        run: |ctx, args| range(ctx, args, Query::of(By::Lex, false)),
        ..READS
    },
    Command {
        name: "zrangebyscore",
        since: "1.0.5",
        summary: "Returns the members with scores in a range.",
        syntax: "key min:double max:double WITHSCORES@2.0.0? LIMIT=offset_count(offset:int count:int)?",
        cost: Cost::Elements(limited),
        run: |ctx, args| range(ctx, args, Query::of(By::Score, false)),
        ..READS
    },
    Command {
        name: "zrangestore",
        since: "6.2.0",
        arity: Arity::AtLeast(5),
        keys: &[KeyPart::one(1, Access::Write), KeyPart::one(2, Access::Read)],
        flags: flags::DENY_OOM,
        summary: "Stores the members in a range under another key.",
        complexity: "O(log(N)+M*log(M)) with N the size of the sorted set and M the number of members stored.",
        syntax: "dst:key src:key min max sortby(BYSCORE | BYLEX)? REV? LIMIT=offset_count(offset:int count:int)?",
        cost: Cost::Values(2),
        run: zrangestore,
        ..WRITES
    },
    Command {
        name: "zremrangebylex",
        since: "2.8.9",
        summary: "Removes the members in a lexicographical range.",
        syntax: "key min max",
        run: |ctx, args| remove(ctx, args, By::Lex),
        ..REMOVES
    },
    Command {
        name: "zremrangebyrank",
        since: "2.0.0",
        summary: "Removes the members in a range of ranks.",
        syntax: "key start:int stop:int",
        cost: Cost::Elements(args::range),
        run: |ctx, args| remove(ctx, args, By::Rank),
        ..REMOVES
    },
    Command {
        name: "zremrangebyscore",
        summary: "Removes the members with scores in a range.",
        syntax: "key min:double max:double",
        run: |ctx, args| remove(ctx, args, By::Score),
        ..REMOVES
    },
    Command {
        name: "zrevrange",
        summary: "Returns the members in a range of ranks, the highest score first.",
        syntax: "key start:int stop:int WITHSCORES?",
        cost: Cost::Elements(args::range),
        run: |ctx, args| range(ctx, args, Query::of(By::Rank, true)),
        ..READS
    },
    Command {
        name: "zrevrangebylex",
        since: "2.8.9",
        summary: "Returns the members in a lexicographical range, the last one first.",
        syntax: "key max min LIMIT=offset_count(offset:int count:int)?",
        cost: Cost::Elements(limited),
        run: |ctx, args| range(ctx, args, Query::of(By::Lex, true)),
        ..READS
    },
    Command {
        name: "zrevrangebyscore",
        since: "2.2.0",
        summary: "Returns the members with scores in a range, the highest score first.",
        syntax: "key max:double min:double WITHSCORES? LIMIT=offset_count(offset:int count:int)?",
        cost: Cost::Elements(limited),
        run: |ctx, args| range(ctx, args, Query::of(By::Score, true)),
        ..READS
    },
];

const READS: Command = Command {
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::AtLeast(4),
    complexity: "O(log(N)+M) with N the size of the sorted set and M the number of members returned.",
    ..Command::BASE
};
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..READS };
const REMOVES: Command = Command {
    arity: Arity::Exactly(4),
    complexity: "O(M*log(N)) with N the size of the sorted set and M the number of members removed.",
    ..WRITES
};

const NOT_A_SCORE_RANGE: CommandError = CommandError::new("ERR min or max is not a float");
const NOT_A_LEX_RANGE: CommandError = CommandError::new("ERR min or max not valid string range item");
const LIMIT_OF_RANKS: CommandError = CommandError::new(
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
);
const SCORES_OF_LEX: CommandError =
    CommandError::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX");

/// How many members of a sorted set of `len` a call of the ZRANGE kind walks over, at most.
fn elements(args: Args<'_>, len: usize) -> usize {
    let is_by = |word: &&[u8]| word.eq_ignore_ascii_case(b"byscore") || word.eq_ignore_ascii_case(b"bylex");
    if args.rest(4).iter().any(is_by) { limited(args, len) } else { args::range(args, len) }
}

/// The same where LIMIT alone says it.
fn limited(args: Args<'_>, len: usize) -> usize {
    let options = args.rest(4);
    let limit = options.iter().position(|word| word.eq_ignore_ascii_case(b"limit"));
    let count = limit.and_then(|at| options.get(at + 2)).and_then(|text| number::parse_i64(text));
    count.and_then(|count| usize::try_from(count).ok()).map_or(len, |count| count.min(len))
}

/// What the bounds of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A parsed range.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// First and last rank, negative from the end.
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

#[derive(Clone, Copy)]
struct ScoreBound {
    score: f64,
    exclusive: bool,
}

#[derive(Clone, Copy)]
enum LexBound<'a> {
    Lowest,
    Highest,
    Including(&'a [u8]),
    Excluding(&'a [u8]),
}

impl ScoreBound {
    /// As liberal as `strtod`, which reads it in Redis: leading blanks, nothing at all, values out of range.
    fn parse(text: &[u8]) -> Result<ScoreBound, CommandError> {
        let (exclusive, text) = match text {
            [b'(', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let (score, read) = number::strtod(text);
        let ends = matches!(text.get(read), None | Some(0));
        if !ends || score.is_nan() {
            return Err(NOT_A_SCORE_RANGE);
        }
        Ok(ScoreBound { score, exclusive })
    }
}

impl<'a> LexBound<'a> {
    fn parse(text: &'a [u8]) -> Result<LexBound<'a>, CommandError> {
        match text {
            // A byte 0 ends the text where Redis looks for the end.
            [b'-'] | [b'-', 0, ..] => Ok(LexBound::Lowest),
            [b'+'] | [b'+', 0, ..] => Ok(LexBound::Highest),
            [b'[', rest @ ..] => Ok(LexBound::Including(rest)),
            [b'(', rest @ ..] => Ok(LexBound::Excluding(rest)),
            _ => Err(NOT_A_LEX_RANGE),
        }
    }
}

impl<'a> Bounds<'a> {
    fn parse(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Bounds<'a>, CommandError> {
        Ok(match by {
            By::Rank => Bounds::Ranks(
                number::parse_i64(low).ok_or(error::NOT_AN_INTEGER)?,
                number::parse_i64(high).ok_or(error::NOT_AN_INTEGER)?,
            ),
            By::Score => Bounds::Scores(ScoreBound::parse(low)?, ScoreBound::parse(high)?),
            By::Lex => Bounds::Lex(LexBound::parse(low)?, LexBound::parse(high)?),
        })
    }

    /// The ranks within the bounds; empty spans may have any start.
    fn span(self, zset: &ZSet) -> Range<usize> {
        let len = zset.len();
        match self {
            Bounds::Ranks(first, last) => args::positions(first, last, len),
            Bounds::Scores(low, high) => {
                let start = match low {
                    ScoreBound { score, exclusive: false } => zset.count_below(score),
                    ScoreBound { score, exclusive: true } => zset.count_up_to(score),
                };
                let end = match high {
                    ScoreBound { score, exclusive: false } => zset.count_up_to(score),
                    ScoreBound { score, exclusive: true } => zset.count_below(score),
                };
                start..end.max(start)
            }
            Bounds::Lex(low, high) => {
                let start = match low {
                    LexBound::Lowest => 0,
                    LexBound::Highest => len,
                    LexBound::Including(member) => zset.lex_count_below(member),
                    LexBound::Excluding(member) => zset.lex_count_up_to(member),
                };
                let end = match high {
                    LexBound::Lowest => 0,
                    LexBound::Highest => len,
                    LexBound::Including(member) => zset.lex_count_up_to(member),
                    LexBound::Excluding(member) => zset.lex_count_below(member),
                };
                start..end.max(start)
            }
        }
    }
}

/// What a call of the ZRANGE kind asks for, but for its bounds.
#[derive(Clone, Copy)]
struct Query {
    /// `None`: an option may say it, else ranks.
    by: Option<By>,
    /// `None`: an option may say it, else the lowest first.
    reverse: Option<bool>,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl Default for Query {
    fn default() -> Query {
        Query { by: None, reverse: None, with_scores: false, offset: 0, limit: -1 }
    }
}

impl Query {
    /// Of a command whose name says it all.
    fn of(by: By, reverse: bool) -> Query {
        Query { by: Some(by), reverse: Some(reverse), ..Query::default() }
    }

    /// Reads the options and bounds that follow the source key at `source`.
    fn parse<'a>(&mut self, args: Args<'a>, source: usize, store: bool) -> Result<Bounds<'a>, CommandError> {
        let mut cursor = args.cursor(source + 3);
        while !cursor.is_done() {
            if !store && cursor.flag("withscores") {
                self.with_scores = true;
            } else if cursor.remaining() > 2 && cursor.flag("limit") {
                self.offset = cursor.integer()?;
                self.limit = cursor.integer()?;
            } else if self.reverse.is_none() && cursor.flag("rev") {
                self.reverse = Some(true);
            } else if self.by.is_none() && cursor.flag("bylex") {
                self.by = Some(By::Lex);
            } else if self.by.is_none() && cursor.flag("byscore") {
                self.by = Some(By::Score);
            } else {
                return Err(error::SYNTAX);
            }
        }
        let by = self.by.unwrap_or(By::Rank);
        if self.limit != -1 && by == By::Rank {
            return Err(LIMIT_OF_RANKS);
        }
        if self.with_scores && by == By::Lex {
            return Err(SCORES_OF_LEX);
        }
        let (first, second) = (args[source + 1], args[source + 2]);
        // Reversed ranges of scores and bytes name the higher bound first.
        let swapped = self.is_reverse() && by != By::Rank;
        if swapped { Bounds::parse(by, second, first) } else { Bounds::parse(by, first, second) }
    }

    fn is_reverse(&self) -> bool {
        self.reverse.unwrap_or(false)
    }

    /// The ranks to walk over, from the end of the range if reversed.
    fn window(&self, bounds: Bounds<'_>, zset: &ZSet) -> Range<usize> {
        let span = bounds.span(zset);
        if let Bounds::Ranks(..) = bounds {
            // Ranks count from where the walk starts.
            let len = zset.len();
            return if self.is_reverse() { len - span.end..len - span.start } else { span };
        }
        // As in Redis, a negative offset skips everything, a negative limit is none.
        let found = span.len();
        let skipped = usize::try_from(self.offset).map_or(found, |offset| offset.min(found));
        let left = found - skipped;
        let taken = usize::try_from(self.limit).map_or(left, |limit| limit.min(left));
        if self.is_reverse() {
            let end = span.end - skipped;
            end - taken..end
        } else {
            let start = span.start + skipped;
            start..start + taken
        }
    }
}

/// Shows `each` the members of `window`, its last one first if `reverse`, until it returns false.
fn walk<'a>(
    zset: &'a ZSet,
    window: Range<usize>,
    reverse: bool,
    mut each: impl FnMut((&'a [u8], f64)) -> bool,
) {
    if window.is_empty() {
    } else if reverse {
        zset.rev_iter_from(window.end - 1).take(window.len()).all(each);
    } else {
        zset.iter_from(window.start).take(window.len()).all(&mut each);
    }
}

/// Writes members with their scores: as pairs in RESP3, flat in RESP2.
pub(super) fn reply_pair(out: &mut Reply, member: &[u8], score: f64) {
    if out.protocol == crate::Protocol::Resp3 {
        out.array(2);
    }
    out.bulk(member);
    out.double(score);
}

/// Announces `len` members, with their scores if `with_scores`.
pub(super) fn reply_len(out: &mut Reply, len: usize, with_scores: bool) {
    let flat = with_scores && out.protocol == crate::Protocol::Resp2;
    out.array(if flat { 2 * len } else { len });
}

fn range(ctx: &mut Ctx<'_>, args: Args<'_>, mut query: Query) -> Result<(), CommandError> {
    let bounds = query.parse(args, 1, false)?;
    let work = ctx.work;
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        let Some(zset) = zset else { return out.array(0) };
        let window = query.window(bounds, zset);
        reply_len(out, window.len(), query.with_scores);
        walk(zset, window, query.is_reverse(), |(member, score)| {
            if query.with_scores {
                reply_pair(out, member, score)
            } else {
                out.bulk(member)
            }
            work.step(1) && !out.is_over_limit()
        });
    })
}

fn zrangestore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut query = Query::default();
    let bounds = query.parse(args, 2, true)?;
    let mut stored = ZSet::default();
    let work = ctx.work;
    if let Some(zset) = ctx.read::<ZSet>(args[2])? {
        walk(zset, query.window(bounds, zset), false, |(member, score)| {
            stored.insert(member, score);
            work.step(1)
        });
    }
    store(ctx, args[1], stored);
    Ok(())
}

/// Puts `zset` under `key`, or removes the key if there is nothing to put; replies with the number of members.
pub(super) fn store(ctx: &mut Ctx<'_>, key: &[u8], zset: ZSet) {
    let len = zset.len();
    if len == 0 {
        ctx.delete(key);
    } else {
        ctx.put(key, Value::ZSet(zset), Expiry::Clear);
    }
    ctx.out.count(len);
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, by: By) -> Result<(), CommandError> {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    ctx.reply_from::<ZSet>(args[1], |zset, out| out.count(zset.map_or(0, |zset| bounds.span(zset).len())))
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>, by: By) -> Result<(), CommandError> {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    let span = ctx.read::<ZSet>(args[1])?.map_or(0..0, |zset| bounds.span(zset));
    let removed = span.len();
    remove_span(ctx, args[1], span)?;
    ctx.out.count(removed);
    Ok(())
}

/// Removes the members of these ranks, all of which exist, and the key with its last member.
pub(super) fn remove_span(ctx: &mut Ctx<'_>, key: &[u8], span: Range<usize>) -> Result<(), CommandError> {
    let work = ctx.work;
    let Some(mut zset) = ctx.edit(key).existing::<ZSet>()? else { return Ok(()) };
    if span.len() == zset.len() {
        drop(zset);
        // One record restores the whole set.
        ctx.delete(key);
        return Ok(());
    }
    for _ in work.over(span.clone()) {
        zset.remove_at(span.start);
    }
    Ok(())
}
