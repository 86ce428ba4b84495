//! Sorted sets: their members. Ranges, combinations and picks each have a chapter of their own below.

pub mod combine;
pub mod pop;
pub mod range;

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::ZSet;
use crate::{Args, Ctx};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "zadd",
        arity: Arity::AtLeast(4),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Adds members to a sorted set or changes their scores. The key is created if it doesn't exist.",
        complexity: "O(log(N)) for each member, with N the size of the sorted set.",
        syntax: "key condition(NX | XX)@3.0.2? comparison(GT | LT)@6.2.0? CH!change@3.0.2? INCR!increment@3.0.2? score_member(score:double member)...",
        run: add_members,
        ..WRITES
    },
    Command {
        name: "zcard",
        flags: flags::FAST,
        summary: "Returns the number of members of a sorted set.",
        run: zcard,
        ..READS
    },
    Command {
        name: "zincrby",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Adds to the score of a member, which is created if it doesn't exist.",
        complexity: "O(log(N)) with N the size of the sorted set.",
        syntax: "key increment:int member",
        run: |ctx, args| add(ctx, args, AddRules { incr: true, ..AddRules::default() }),
        ..WRITES
    },
    Command {
        name: "zmscore",
        since: "6.2.0",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Returns the scores of several members.",
        complexity: "O(N) with N the number of members requested.",
        syntax: "key member...",
        run: zmscore,
        ..READS
    },
    Command {
        name: "zrank",
        since: "2.0.0",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Returns the position of a member, the lowest score first.",
        complexity: "O(log(N)) with N the size of the sorted set.",
        syntax: "key member WITHSCORE@7.2.0?",
        run: |ctx, args| rank(ctx, args, "zrank", false),
        ..READS
    },
    Command {
        name: "zrem",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Removes members from a sorted set. The key is deleted with its last member.",
        complexity: "O(M*log(N)) with N the size of the sorted set and M the number of members to remove.",
        syntax: "key member...",
        run: zrem,
        ..WRITES
    },
    Command {
        name: "zrevrank",
        since: "2.0.0",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Returns the position of a member, the highest score first.",
        complexity: "O(log(N)) with N the size of the sorted set.",
        syntax: "key member WITHSCORE@7.2.0?",
        run: |ctx, args| rank(ctx, args, "zrevrank", true),
        ..READS
    },
    Command {
        name: "zscore",
        arity: Arity::Exactly(3),
        flags: flags::FAST,
        summary: "Returns the score of a member.",
        syntax: "key member",
        run: zscore,
        ..READS
    },
];

const READS: Command = Command { since: "1.2.0", group: Group::SortedSet, ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..READS };

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
struct AddRules {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl AddRules {
    /// Takes `word` if it is an option.
    fn accept(&mut self, word: &[u8]) -> bool {
        let option = match word {
            _ if word.eq_ignore_ascii_case(b"nx") => &mut self.nx,
            _ if word.eq_ignore_ascii_case(b"xx") => &mut self.xx,
            _ if word.eq_ignore_ascii_case(b"gt") => &mut self.gt,
            _ if word.eq_ignore_ascii_case(b"lt") => &mut self.lt,
            _ if word.eq_ignore_ascii_case(b"ch") => &mut self.ch,
            _ if word.eq_ignore_ascii_case(b"incr") => &mut self.incr,
            _ => return false,
        };
        *option = true;
        true
    }

    fn check(self, pairs: usize) -> Result<(), CommandError> {
        if self.nx && self.xx {
            return Err(CommandError::new("ERR XX and NX options at the same time are not compatible"));
        }
        if self.gt && self.lt || self.nx && (self.gt || self.lt) {
            return Err(CommandError::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.incr && pairs > 1 {
            return Err(CommandError::new("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// What a member that had `old` shall have; `None` if the options forbid to touch it.
    fn score(self, old: Option<f64>, given: f64) -> Option<f64> {
        let Some(old) = old else { return (!self.xx).then_some(given) };
        let score = if self.incr { old + given } else { given };
        let refused = self.nx || self.gt && score <= old || self.lt && score >= old;
        (!refused).then_some(score)
    }
}

/// ZADD, and ZINCRBY, which is ZADD with INCR (down to the options that nobody gives it).
/// ZADD.
pub(super) fn add_members(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    add(ctx, args, AddRules::default())
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, mut rules: AddRules) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    while cursor.peek().is_some_and(|word| rules.accept(word)) {
        cursor.bytes()?;
    }
    let pairs = cursor.rest();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(error::SYNTAX);
    }
    rules.check(pairs.len() / 2)?;
    let mut scores = SmallVec::<[f64; 16]>::new();
    for pair in pairs.chunks_exact(2) {
        scores.push(crate::number::parse_f64(pair[0]).ok_or(error::NOT_A_FLOAT)?);
    }

    // With XX a missing key stays missing. Without it the first pair creates a member of a missing key, so
    // that no empty set is left behind.
    let work = ctx.work;
    let edit = ctx.edit(args[1]);
    let mut zset = if rules.xx { edit.existing::<ZSet>()? } else { Some(edit.or_create::<ZSet>()?) };
    let (mut added, mut updated, mut last) = (0, 0, None);
    if let Some(zset) = &mut zset {
        for (pair, &given) in work.over(pairs.chunks_exact(2).zip(&scores)) {
            zset.update(pair[1], |old| {
                last = rules.score(old, given);
                let score = last.filter(|score| old != Some(*score) && !score.is_nan())?;
                if old.is_none() {
                    added += 1
                } else {
                    updated += 1
                };
                Some(score + 0.0) // -0 becomes 0, as in Redis' compact encoding
            });
        }
    }
    drop(zset);

    if !rules.incr {
        ctx.out.count(if rules.ch { added + updated } else { added });
        return Ok(());
    }
    match last {
        None => ctx.out.null(),
        // INCR has one pair, so nothing has been changed.
        Some(score) if score.is_nan() => {
            return Err(CommandError::new("ERR resulting score is not a number (NaN)"));
        }
        Some(score) => ctx.out.double(score),
    }
    Ok(())
}

fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply_from::<ZSet>(args[1], |zset, out| out.count(zset.map_or(0, ZSet::len)))
}

fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply_from::<ZSet>(args[1], |zset, out| match zset.and_then(|zset| zset.score(args[2])) {
        None => out.null(),
        Some(score) => out.double(score),
    })
}

fn zmscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        let members = args.rest(2);
        out.array(members.len());
        for member in work.over(members) {
            match zset.and_then(|zset| zset.score(member)) {
                None => out.null(),
                Some(score) => out.double(score),
            }
        }
    })
}

/// ZRANK and ZREVRANK; WITHSCORE as in Redis 7.2.
fn rank(ctx: &mut Ctx<'_>, args: Args<'_>, name: &str, reverse: bool) -> Result<(), CommandError> {
    let with_score = match args.rest(3) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withscore") => true,
        [_] => return Err(error::SYNTAX),
        _ => return Err(error::wrong_arity(name)),
    };
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        let found = zset.and_then(|zset| Some((zset, zset.rank(args[2])?)));
        let from_end = |zset: &ZSet, rank| if reverse { zset.len() - 1 - rank } else { rank };
        match (found, with_score) {
            (None, false) => out.null(),
            (None, true) => out.null_array(),
            (Some((zset, rank)), false) => out.count(from_end(zset, rank)),
            (Some((zset, rank)), true) => {
                out.array(2);
                out.count(from_end(zset, rank));
                out.double(zset.score(args[2]).unwrap_or_default());
            }
        }
    })
}

fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let removed = match ctx.edit(args[1]).existing::<ZSet>()? {
        None => 0,
        Some(mut zset) => work.over(args.rest(2)).filter(|member| zset.remove(member)).count(),
    };
    ctx.out.count(removed);
    Ok(())
}
