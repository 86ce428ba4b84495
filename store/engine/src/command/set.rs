//! Sets.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::{sample, scan};
use crate::cost::Cost;
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::set::Member;
use crate::value::{Kind, Set};
use crate::{Args, Ctx, Partitions, Value, Work, number};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "sadd",
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Adds members and returns the number of new ones. The key is created if it doesn't exist.",
        complexity: "O(N) where N is the number of members to be added.",
        run: add,
        ..CHANGES
    },
    Command {
        name: "srem",
        flags: flags::FAST,
        summary: "Removes members. The key is deleted with its last member.",
        complexity: "O(N) where N is the number of members to be removed.",
        run: remove,
        ..CHANGES
    },
    Command {
        name: "sismember",
        arity: Arity::Exactly(3),
        flags: flags::FAST,
        summary: "Determines whether a member belongs to a set.",
        syntax: "key member",
        run: |ctx, args| {
            ctx.reply_from::<Set>(args[1], |set, out| {
                out.count(usize::from(set.is_some_and(|set| set.contains(args[2]))));
            })
        },
        ..SET
    },
    Command {
        name: "smismember",
        since: "6.2.0",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Determines whether several members belong to a set.",
        complexity: "O(N) where N is the number of members requested.",
        syntax: "key member...",
        run: |ctx, args| {
            let work = ctx.work;
            ctx.reply_from::<Set>(args[1], |set, out| {
                let members = args.rest(2);
                out.array(members.len());
                out.each(work, members, |out, member| {
                    out.count(usize::from(set.is_some_and(|set| set.contains(member))));
                });
            })
        },
        ..SET
    },
    Command {
        name: "smembers",
        summary: "Returns all members.",
        complexity: "O(N) where N is the number of members.",
        run: |ctx, args| {
            let work = ctx.work;
            ctx.reply_from::<Set>(args[1], |set, out| {
                out.set(set.map_or(0, Set::len));
                out.bulks(work, set.into_iter().flat_map(Set::iter));
            })
        },
        ..SET
    },
    Command {
        name: "scard",
        flags: flags::FAST,
        summary: "Returns the number of members.",
        run: |ctx, args| ctx.reply_from::<Set>(args[1], |set, out| out.count(set.map_or(0, Set::len))),
        ..SET
    },
    Command {
        name: "spop",
        arity: Arity::AtLeast(2),
        flags: flags::FAST | flags::RANDOM,
        summary: "Removes and returns random members.",
        complexity: "O(N) where N is the number of members returned.",
        syntax: "key count:int@3.2.0?",
        cost: Cost::Elements(|args, len| sample::most(args, len).saturating_mul(2)),
        run: pop,
        ..CHANGES
    },
    Command {
        name: "srandmember",
        arity: Arity::AtLeast(2),
        flags: flags::RANDOM,
        summary: "Returns random members.",
        complexity: "O(N) where N is the number of members returned.",
        syntax: "key count:int@2.6.0?",
        cost: Cost::Arguments(sample::steps),
        run: random_member,
        ..SET
    },
    Command {
        name: "smove",
        arity: Arity::Exactly(4),
        keys: &[KeyPart::Range { first: 1, last: 2, step: 1, access: Access::Write }],
        flags: flags::FAST,
        summary: "Moves a member to another set.",
        syntax: "source:key destination:key member",
        run: move_member,
        ..CHANGES
    },
    Command {
        name: "sinter",
        summary: "Returns the intersection of several sets.",
        run: |ctx, args| combine(ctx, args, intersection),
        ..COMBINES
    },
    Command {
        name: "sinterstore",
        summary: "Stores the intersection of several sets.",
        cost: Cost::Values(3),
        run: |ctx, args| combine_and_store(ctx, args, intersection),
        ..STORES
    },
    Command {
        name: "sintercard",
        since: "7.0.0",
        arity: Arity::AtLeast(3),
        keys: &[KeyPart::Counted { count_at: 1, first: 2, step: 1, access: Access::Read }],
        flags: flags::MOVABLE_KEYS,
        summary: "Returns the number of members of the intersection of several sets.",
        syntax: "numkeys:int key... LIMIT=limit:int?",
        run: intersection_size,
        ..COMBINES
    },
    Command {
        name: "sunion",
        summary: "Returns the union of several sets.",
        complexity: "O(N) where N is the number of members of all sets.",
        cost: Cost::Values(2),
        run: |ctx, args| combine(ctx, args, union),
        ..COMBINES
    },
    Command {
        name: "sunionstore",
        summary: "Stores the union of several sets.",
        complexity: "O(N) where N is the number of members of all sets.",
        cost: Cost::Values(4),
        run: |ctx, args| combine_and_store(ctx, args, all),
        ..STORES
    },
    Command {
        name: "sdiff",
        summary: "Returns the difference of several sets.",
        complexity: "O(N*M) where N is the size of the first set and M the number of sets.",
        cost: Cost::Values(2),
        run: |ctx, args| combine(ctx, args, difference),
        ..COMBINES
    },
    Command {
        name: "sdiffstore",
        summary: "Stores the difference of several sets.",
        complexity: "O(N*M) where N is the size of the first set and M the number of sets.",
        cost: Cost::Values(3),
        run: |ctx, args| combine_and_store(ctx, args, difference),
        ..STORES
    },
    Command {
        name: "sscan",
        since: "2.8.0",
        arity: Arity::AtLeast(3),
        flags: flags::RANDOM,
        summary: "Iterates over the members of a set.",
        complexity: "O(1) for every call, O(N) for all N members.",
        syntax: "key cursor:int MATCH=pattern:pattern? COUNT=count:int?",
        cost: Cost::Elements(scan::elements),
        run: scan_members,
        ..SET
    },
];

const SET: Command = Command { group: Group::Set, ..Command::BASE };
const CHANGES: Command = Command {
    arity: Arity::AtLeast(3),
    keys: KeyPart::FIRST_WRITE,
    access: Access::Write,
    syntax: "key member...",
    ..SET
};
const COMBINES: Command = Command {
    arity: Arity::AtLeast(2),
    keys: KeyPart::ALL_READ,
    complexity: "O(N*M) where N is the size of the smallest set and M the number of sets.",
    syntax: "key...",
    ..SET
};
const STORES: Command = Command {
    arity: Arity::AtLeast(3),
    keys: &[
        KeyPart::one(1, Access::Write),
        KeyPart::Range { first: 2, last: -1, step: 1, access: Access::Read },
    ],
    access: Access::Write,
    flags: flags::DENY_OOM,
    syntax: "destination:key key...",
    ..COMBINES
};

fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let mut set = ctx.edit(args[1]).or_create::<Set>()?;
    let added = work.over(args.rest(2)).filter(|member| set.insert(member)).count();
    drop(set);
    ctx.out.count(added);
    Ok(())
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let removed = match ctx.edit(args[1]).existing::<Set>()? {
        None => 0,
        Some(mut set) => work.over(args.rest(2)).filter(|member| set.remove(member)).count(),
    };
    ctx.out.count(removed);
    Ok(())
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
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
    let len = ctx.peek::<Set>(args[1])?.map_or(0, Set::len);
    let size = count.unwrap_or(1).min(len);
    // Highest first: a removal moves only what lies behind it.
    let mut picked = if size < len { sample::distinct(ctx, size, len) } else { Vec::new() };
    picked.sort_unstable_by(|a, b| b.cmp(a));
    let work = ctx.work;
    let Some((mut set, out)) = ctx.edit(args[1]).existing_and_reply::<Set>()? else {
        match count {
            None => ctx.out.null(),
            Some(_) => ctx.out.set(0),
        }
        return Ok(());
    };
    if count.is_some() {
        out.set(size);
    }
    if size == len {
        out.bulks(work, set.iter());
        drop(set);
        ctx.delete(args[1]);
        return Ok(());
    }
    out.each(work, picked, |out, at| {
        if let Some(member) = set.at(at) {
            out.bulk(&member);
        }
        set.remove_at(at);
    });
    Ok(())
}

fn random_member(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        2 => {
            let len = ctx.peek::<Set>(args[1])?.map_or(0, Set::len);
            let at = if len == 0 { 0 } else { ctx.random_below(len) };
            ctx.reply_from::<Set>(args[1], |set, out| {
                out.optional(set.and_then(|set| set.at(at)).as_deref());
            })
        }
        3 => {
            let count = args.negatable(2)?;
            let len = ctx.peek::<Set>(args[1])?.map_or(0, Set::len);
            let picked = sample::positions(ctx, count, len)?;
            let work = ctx.work;
            ctx.reply_from::<Set>(args[1], |set, out| {
                out.array(picked.count_left());
                out.bulks(work, picked.filter_map(|at| set?.at(at)));
            })
        }
        _ => Err(error::SYNTAX),
    }
}

fn move_member(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (source, destination, member) = (args[1], args[2], args[3]);
    let moved = match ctx.read::<Set>(source)? {
        None => false,
        Some(set) => {
            let held = set.contains(member);
            ctx.read::<Set>(destination)?;
            held
        }
    };
    if moved && source != destination {
        if let Some(mut set) = ctx.edit(source).existing::<Set>()? {
            set.remove(member);
        }
        ctx.edit(destination).or_create::<Set>()?.insert(member);
    }
    ctx.out.count(usize::from(moved));
    Ok(())
}

/// The sets under several keys, none for those that do not exist.
type Sets<'s> = Vec<Option<&'s Set>>;

/// Looks all keys up first, so that a wrong type among them is an error whatever the others hold.
fn sets<'s>(
    partitions: &'s Partitions<'_>,
    db: usize,
    now_ms: u64,
    keys: &[&[u8]],
) -> Result<Sets<'s>, CommandError> {
    keys.iter()
        .map(|key| match partitions.peek(db, key, now_ms) {
            None => Ok(None),
            Some(entry) => Set::of(&entry.value).map(Some).ok_or(error::WRONG_TYPE),
        })
        .collect()
}

/// How several sets become the members of one.
type Combination = for<'s> fn(&Work, Sets<'s>) -> Vec<Member<'s>>;

/// The members of the smallest set that all others have.
fn in_all<'s>(work: &Work, sets: Sets<'s>) -> impl Iterator<Item = Member<'s>> {
    // No set has no members.
    let mut sets = sets.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
    sets.sort_by_key(|set| set.len());
    let smallest = sets.first().copied();
    let members = smallest.into_iter().flat_map(Set::iter);
    let members = work.over(members);
    // A step for each set that is asked: a call may name thousands.
    members.filter(move |member| sets.iter().skip(1).all(|set| work.step(1) && set.contains(member)))
}

fn intersection<'s>(work: &Work, sets: Sets<'s>) -> Vec<Member<'s>> {
    in_all(work, sets).collect()
}

/// The members of all sets, one after the other: some come again.
fn all<'s>(work: &Work, sets: Sets<'s>) -> Vec<Member<'s>> {
    work.over(sets.iter().flatten().flat_map(|set| set.iter())).collect()
}

fn union<'s>(work: &Work, sets: Sets<'s>) -> Vec<Member<'s>> {
    let members = work.over(sets.iter().flatten().flat_map(|set| set.iter()));
    if sets.iter().flatten().count() == 1 {
        return members.collect();
    }
    let mut seen = HashSet::with_hasher(RandomState::default());
    members.filter(|member| seen.insert(*member)).collect()
}

fn difference<'s>(work: &Work, sets: Sets<'s>) -> Vec<Member<'s>> {
    let Some((first, others)) = sets.split_first() else { return Vec::new() };
    let members = work.over(first.iter().flat_map(|set| set.iter()));
    members
        .filter(|member| others.iter().flatten().all(|set| work.step(1) && !set.contains(member)))
        .collect()
}

fn combine(ctx: &mut Ctx<'_>, args: Args<'_>, how: Combination) -> Result<(), CommandError> {
    ctx.note_reads(args.rest(1));
    let members = how(ctx.work, sets(&ctx.partitions, ctx.db, ctx.now_ms, args.rest(1))?);
    ctx.out.set(members.len());
    ctx.out.bulks(ctx.work, members);
    Ok(())
}

fn combine_and_store(ctx: &mut Ctx<'_>, args: Args<'_>, how: Combination) -> Result<(), CommandError> {
    let mut result = Set::default();
    ctx.note_reads(args.rest(2));
    let members = how(ctx.work, sets(&ctx.partitions, ctx.db, ctx.now_ms, args.rest(2))?);
    for member in ctx.work.over(members) {
        result.insert(&member);
    }
    let len = result.len();
    if len == 0 {
        ctx.delete(args[1]);
    } else {
        ctx.put(args[1], Value::Set(result), Expiry::Clear);
    }
    ctx.out.count(len);
    Ok(())
}

fn intersection_size(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = number::parse_i64(args[1]).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or(CommandError::new("ERR numkeys should be greater than 0"))?;
    let mut rest = args.cursor(2);
    if count > rest.remaining() {
        return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
    }
    let keys = rest.take(count)?;
    let mut limit = 0;
    while !rest.is_done() {
        if rest.remaining() < 2 || !rest.flag("limit") {
            return Err(error::SYNTAX);
        }
        limit = number::parse_i64(rest.bytes()?)
            .filter(|limit| *limit >= 0)
            .ok_or(CommandError::new("ERR LIMIT can't be negative"))?;
    }
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    ctx.note_reads(keys);
    let found = in_all(ctx.work, sets(&ctx.partitions, ctx.db, ctx.now_ms, keys)?).take(limit).count();
    ctx.out.count(found);
    Ok(())
}

fn scan_members(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = scan::cursor(args[2])?;
    if ctx.read::<Set>(args[1])?.is_none() {
        // As in Redis, nobody reads the options then.
        scan::reply(ctx.out, 0, |_| 0);
        return Ok(());
    }
    let options = scan::ScanOptions::parse(args.cursor(3), scan::Scanned::Members)?;
    let work = ctx.work;
    ctx.reply_from::<Set>(args[1], |set, out| {
        let Some(set) = set else { return };
        let window = options.window(cursor, set.len());
        scan::reply(out, window.start as u64, |out| {
            let mut shown = 0;
            out.each(work, window.filter_map(|at| set.at(at)), |out, member| {
                if options.shows(&member) {
                    out.bulk(&member);
                    shown += 1;
                }
            });
            shown
        });
    })
}

#[cfg(test)]
mod tests;
