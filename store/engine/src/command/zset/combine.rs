//! Unions, intersections and differences of sorted sets. Sets take part as sorted sets whose scores are all 1.

use std::cmp::Ordering;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use smallvec::SmallVec;

use super::range::{reply_len, reply_pair, store};
use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::set::Member;
use crate::value::{Set, ZSet};
use crate::{Args, Ctx, Cursor, Partitions, Value, Work};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "zdiff",
        since: "6.2.0",
        summary: "Returns the difference of several sorted sets.",
        complexity: DIFF_COST,
        syntax: "numkeys:int key... WITHSCORES?",
        run: |ctx, args| reply(ctx, args, SetOperation::Diff),
        ..READS
    },
    Command {
        name: "zdiffstore",
        since: "6.2.0",
        summary: "Stores the difference of several sorted sets.",
        complexity: DIFF_COST,
        syntax: "destination:key numkeys:int key...",
        run: |ctx, args| reply_stored(ctx, args, SetOperation::Diff),
        ..STORES
    },
    Command {
        name: "zinter",
        since: "6.2.0",
        summary: "Returns the intersection of several sorted sets.",
        complexity: INTER_COST,
        syntax: "numkeys:int key... WEIGHTS=weight:int...? AGGREGATE=aggregate(SUM | MIN | MAX)? WITHSCORES?",
        run: |ctx, args| reply(ctx, args, SetOperation::Inter),
        ..READS
    },
    Command {
        name: "zintercard",
        since: "7.0.0",
        summary: "Counts the members of the intersection of several sorted sets.",
        complexity: "O(N*K) at worst, with N the size of the smallest of the K inputs.",
        syntax: "numkeys:int key... LIMIT=limit:int?",
        run: zintercard,
        ..READS
    },
    Command {
        name: "zinterstore",
        since: "2.0.0",
        summary: "Stores the intersection of several sorted sets.",
        complexity: INTER_COST,
        syntax: "destination:key numkeys:int key... WEIGHTS=weight:int...? AGGREGATE=aggregate(SUM | MIN | MAX)?",
        run: |ctx, args| reply_stored(ctx, args, SetOperation::Inter),
        ..STORES
    },
    Command {
        name: "zunion",
        since: "6.2.0",
        summary: "Returns the union of several sorted sets.",
        complexity: UNION_COST,
        syntax: "numkeys:int key... WEIGHTS=weight:int...? AGGREGATE=aggregate(SUM | MIN | MAX)? WITHSCORES?",
        run: |ctx, args| reply(ctx, args, SetOperation::Union),
        ..READS
    },
    Command {
        name: "zunionstore",
        since: "2.0.0",
        summary: "Stores the union of several sorted sets.",
        complexity: UNION_COST,
        syntax: "destination:key numkeys:int key... WEIGHTS=weight:int...? AGGREGATE=aggregate(SUM | MIN | MAX)?",
        run: |ctx, args| reply_stored(ctx, args, SetOperation::Union),
        ..STORES
    },
];

const READS: Command = Command {
    group: Group::SortedSet,
    arity: Arity::AtLeast(3),
    keys: &[KeyPart::Counted { count_at: 1, first: 2, step: 1, access: Access::Read }],
    flags: flags::MOVABLE_KEYS,
    cost: Cost::Values(3),
    ..Command::BASE
};
const STORES: Command = Command {
    arity: Arity::AtLeast(4),
    keys: &[
        KeyPart::one(1, Access::Write),
        KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Read },
    ],
    access: Access::Write,
    flags: flags::DENY_OOM | flags::MOVABLE_KEYS,
    cost: Cost::Values(4),
    ..READS
};

const UNION_COST: &str =
    "O(N)+O(M*log(M)) with N the sum of the sizes of the inputs and M the size of the result.";
const INTER_COST: &str = "O(N*K)+O(M*log(M)) at worst, with N the size of the smallest of the K inputs and M the size of the result.";
const DIFF_COST: &str =
    "O(N*K)+O(M*log(M)) at worst, with N the size of the first of the K inputs and M the size of the result.";

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    Union,
    Inter,
    Diff,
}

/// How the scores of a member in several inputs become one.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn join(self, left: f64, right: f64) -> f64 {
        match self {
            // An infinity and its opposite cancel out.
            Aggregate::Sum => zero_if_nan(left + right),
            Aggregate::Min => {
                if right < left {
                    right
                } else {
                    left
                }
            }
            Aggregate::Max => {
                if right > left {
                    right
                } else {
                    left
                }
            }
        }
    }
}

/// Zero times infinity is zero here.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What one of the keys holds.
#[derive(Clone, Copy)]
enum Source<'a> {
    Missing,
    Sorted(&'a ZSet),
    Plain(&'a Set),
}

impl<'a> Source<'a> {
    fn len(self) -> usize {
        match self {
            Source::Missing => 0,
            Source::Sorted(zset) => zset.len(),
            Source::Plain(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Missing => None,
            Source::Sorted(zset) => zset.score(member),
            Source::Plain(set) => set.contains(member).then_some(1.0),
        }
    }

    /// Shows `each` the members until it returns false.
    fn walk(self, mut each: impl FnMut(Member<'a>, f64) -> bool) {
        match self {
            Source::Missing => true,
            Source::Sorted(zset) => {
                zset.iter_from(0).all(|(member, score)| each(Member::of_text(member), score))
            }
            Source::Plain(set) => set.iter().all(|member| each(member, 1.0)),
        };
    }
}

#[derive(Clone, Copy)]
struct SourceSet<'a> {
    source: Source<'a>,
    weight: f64,
}

/// The inputs of a call, in the order in which they are combined, and its other options.
struct Plan<'a> {
    operation: SetOperation,
    inputs: SmallVec<[SourceSet<'a>; 4]>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// Members with their scores, lowest first, each once.
type Members<'a> = Vec<(Member<'a>, f64)>;

/// Reads the keys that are counted at `count_at`; the cursor then stands behind them.
fn inputs<'a>(
    partitions: &'a Partitions<'_>,
    (db, now_ms): (usize, u64),
    args: Args<'a>,
    count_at: usize,
    name: &str,
) -> Result<(SmallVec<[SourceSet<'a>; 4]>, Cursor<'a>), CommandError> {
    let mut cursor = args.cursor(count_at);
    let count = cursor.integer()?;
    if count < 1 {
        return Err(CommandError::owned(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut inputs = SmallVec::new();
    for key in cursor.take(count)? {
        let source = match partitions.peek(db, key, now_ms).map(|entry| &entry.value) {
            None => Source::Missing,
            Some(Value::ZSet(zset)) => Source::Sorted(zset),
            Some(Value::Set(set)) => Source::Plain(set),
            Some(_) => return Err(error::WRONG_TYPE),
        };
        inputs.push(SourceSet { source, weight: 1.0 });
    }
    Ok((inputs, cursor))
}

impl<'a> Plan<'a> {
    /// Reads a call whose number of keys stands at `count_at`: behind the destination, if it has one.
    fn parse(
        partitions: &'a Partitions<'_>,
        position: (usize, u64),
        args: Args<'a>,
        count_at: usize,
        operation: SetOperation,
    ) -> Result<Plan<'a>, CommandError> {
        let stores = count_at == 2;
        let name = match (operation, stores) {
            (SetOperation::Union, false) => "zunion",
            (SetOperation::Union, true) => "zunionstore",
            (SetOperation::Inter, false) => "zinter",
            (SetOperation::Inter, true) => "zinterstore",
            (SetOperation::Diff, false) => "zdiff",
            (SetOperation::Diff, true) => "zdiffstore",
        };
        let (inputs, mut cursor) = inputs(partitions, position, args, count_at, name)?;
        let mut plan = Plan { operation, inputs, aggregate: Aggregate::Sum, with_scores: false };
        let scored = operation != SetOperation::Diff;
        while !cursor.is_done() {
            if scored && cursor.remaining() > plan.inputs.len() && cursor.flag("weights") {
                for input in &mut plan.inputs {
                    input.weight =
                        cursor.float().map_err(|_| CommandError::new("ERR weight value is not a float"))?;
                }
            } else if scored && cursor.remaining() > 1 && cursor.flag("aggregate") {
                plan.aggregate = match cursor.bytes()? {
                    word if word.eq_ignore_ascii_case(b"sum") => Aggregate::Sum,
                    word if word.eq_ignore_ascii_case(b"min") => Aggregate::Min,
                    word if word.eq_ignore_ascii_case(b"max") => Aggregate::Max,
                    _ => return Err(error::SYNTAX),
                };
            } else if !stores && cursor.flag("withscores") {
                plan.with_scores = true;
            } else {
                return Err(error::SYNTAX);
            }
        }
        if scored {
            // The smallest first, as in Redis: an intersection is then quickest, and sums of floats depend on
            // the order.
            plan.inputs.sort_by_key(|input| input.source.len());
        }
        Ok(plan)
    }

    fn members(&self, work: &Work) -> Members<'a> {
        let mut members = match self.operation {
            SetOperation::Union => self.union(work),
            SetOperation::Inter => self.inter(work),
            SetOperation::Diff => self.diff(work),
        };
        if work.is_cancelled() {
            return members;
        }
        members.sort_unstable_by(|(left, left_score), (right, right_score)| {
            // No score is NaN.
            left_score.partial_cmp(right_score).unwrap_or(Ordering::Equal).then_with(|| left.cmp(right))
        });
        members
    }

    fn union(&self, work: &Work) -> Members<'a> {
        let largest = self.inputs.last().map_or(0, |input| input.source.len());
        let mut scores =
            IndexMap::<Member<'_>, f64, _>::with_capacity_and_hasher(largest, RandomState::default());
        for SourceSet { source, weight } in &self.inputs {
            source.walk(|member, score| {
                let score = zero_if_nan(score * weight);
                scores
                    .entry(member)
                    .and_modify(|joined| *joined = self.aggregate.join(*joined, score))
                    .or_insert(score);
                work.step(1)
            });
        }
        scores.into_iter().collect()
    }

    fn inter(&self, work: &Work) -> Members<'a> {
        let mut members = Vec::new();
        let Some((first, others)) = self.inputs.split_first() else { return members };
        first.source.walk(|member, score| {
            let start = Some(zero_if_nan(score * first.weight));
            let joined = others.iter().try_fold(start, |joined, other| {
                let score = other.source.score(&member).filter(|_| work.step(1))? * other.weight;
                Some(joined.map(|joined| self.aggregate.join(joined, score)))
            });
            if let Some(Some(score)) = joined {
                members.push((member, score));
            }
            work.step(1)
        });
        members
    }

    fn diff(&self, work: &Work) -> Members<'a> {
        let mut members = Vec::new();
        let Some((first, others)) = self.inputs.split_first() else { return members };
        first.source.walk(|member, score| {
            if others.iter().all(|other| work.step(1) && other.source.score(&member).is_none()) {
                members.push((member, score));
            }
            work.step(1)
        });
        members
    }
}

/// Notes that the keys counted at `count_at` are read.
fn note_reads(ctx: &mut Ctx<'_>, args: Args<'_>, count_at: usize) {
    let mut cursor = args.cursor(count_at);
    let count = cursor.integer().ok().and_then(|count| usize::try_from(count).ok());
    if let Some(Ok(keys)) = count.map(|count| cursor.take(count)) {
        ctx.note_reads(keys);
    }
}

fn reply(ctx: &mut Ctx<'_>, args: Args<'_>, operation: SetOperation) -> Result<(), CommandError> {
    note_reads(ctx, args, 1);
    let plan = Plan::parse(&ctx.partitions, (ctx.db, ctx.now_ms), args, 1, operation)?;
    let members = plan.members(ctx.work);
    reply_len(ctx.out, members.len(), plan.with_scores);
    ctx.out.each(ctx.work, members, |out, (member, score)| {
        if plan.with_scores { reply_pair(out, &member, score) } else { out.bulk(&member) }
    });
    Ok(())
}

fn reply_stored(ctx: &mut Ctx<'_>, args: Args<'_>, operation: SetOperation) -> Result<(), CommandError> {
    note_reads(ctx, args, 2);
    let members = Plan::parse(&ctx.partitions, (ctx.db, ctx.now_ms), args, 2, operation)?.members(ctx.work);
    let mut stored = ZSet::default();
    for (member, score) in ctx.work.over(members) {
        stored.insert(&member, score + 0.0); // -0 becomes 0
    }
    store(ctx, args[1], stored);
    Ok(())
}

fn zintercard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    note_reads(ctx, args, 1);
    let (mut inputs, mut cursor) = inputs(&ctx.partitions, (ctx.db, ctx.now_ms), args, 1, "zintercard")?;
    let mut limit = 0;
    while !cursor.is_done() {
        if cursor.remaining() < 2 || !cursor.flag("limit") {
            return Err(error::SYNTAX);
        }
        let wanted = cursor.integer().ok().and_then(|limit| usize::try_from(limit).ok());
        limit = wanted.ok_or(CommandError::new("ERR LIMIT can't be negative"))?;
    }
    inputs.sort_by_key(|input| input.source.len());
    let (mut count, work) = (0, ctx.work);
    if let Some((first, others)) = inputs.split_first() {
        first.source.walk(|member, _| {
            let mut others = others.iter();
            count += usize::from(others.all(|other| work.step(1) && other.source.score(&member).is_some()));
            work.step(1) && (limit == 0 || count < limit)
        });
    }
    ctx.out.count(count);
    Ok(())
}
