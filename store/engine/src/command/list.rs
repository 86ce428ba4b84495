//! Lists.

use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::List;
use crate::{Args, Ctx, Reply, args, number};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "lpush",
        summary: "Adds elements to the front of a list. The key is created if it doesn't exist.",
        run: |ctx, args| push(ctx, args, true, true),
        ..PUSHES
    },
    Command {
        name: "rpush",
        summary: "Adds elements to the end of a list. The key is created if it doesn't exist.",
        run: |ctx, args| push(ctx, args, false, true),
        ..PUSHES
    },
    Command {
        name: "lpushx",
        since: "2.2.0",
        summary: "Adds elements to the front of a list that exists.",
        run: |ctx, args| push(ctx, args, true, false),
        ..PUSHES
    },
    Command {
        name: "rpushx",
        since: "2.2.0",
        summary: "Adds elements to the end of a list that exists.",
        run: |ctx, args| push(ctx, args, false, false),
        ..PUSHES
    },
    Command {
        name: "lpop",
        summary: "Removes and returns elements from the front of a list.",
        cost: Cost::Elements(args::count),
        run: |ctx, args| pop(ctx, args, true),
        ..POPS
    },
    Command {
        name: "rpop",
        summary: "Removes and returns elements from the end of a list.",
        cost: Cost::Elements(args::count),
        run: |ctx, args| pop(ctx, args, false),
        ..POPS
    },
    Command { name: "llen", flags: flags::FAST, summary: "Returns the length of a list.", run: len, ..LIST },
    Command {
        name: "lindex",
        arity: Arity::Exactly(3),
        summary: "Returns the element at a position, counted from the end if negative.",
        syntax: "key index:int",
        run: index,
        ..LIST
    },
    Command {
        name: "lset",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM,
        summary: "Replaces the element at a position.",
        syntax: "key index:int element",
        run: set,
        ..WRITES
    },
    Command {
        name: "linsert",
        since: "2.2.0",
        arity: Arity::Exactly(5),
        flags: flags::DENY_OOM,
        summary: "Inserts an element before or after another one.",
        complexity: "O(N) where N is the number of elements looked at or moved.",
        syntax: "key where(BEFORE | AFTER) pivot element",
        run: insert,
        ..WRITES
    },
    Command {
        name: "lrem",
        arity: Arity::Exactly(4),
        summary: "Removes the elements that equal a value: all, the first, or the last ones.",
        complexity: "O(N) where N is the length of the list.",
        syntax: "key count:int element",
        run: remove,
        ..WRITES
    },
    Command {
        name: "lrange",
        arity: Arity::Exactly(4),
        summary: "Returns the elements between two positions.",
        complexity: "O(N) where N is the number of elements returned.",
        syntax: "key start:int stop:int",
        cost: Cost::Elements(args::range),
        run: range,
        ..LIST
    },
    Command {
        name: "ltrim",
        arity: Arity::Exactly(4),
        summary: "Trims a list to the elements between two positions.",
        complexity: "O(N) where N is the number of elements removed.",
        syntax: "key start:int stop:int",
        run: trim,
        ..WRITES
    },
    Command {
        name: "lpos",
        since: "6.0.6",
        arity: Arity::AtLeast(3),
        summary: "Returns the positions of the elements that equal a value.",
        complexity: "O(N) where N is the number of elements compared, at most the length of the list.",
        syntax: "key element RANK=rank:int? COUNT=num-matches:int? MAXLEN=len:int?",
        run: position,
        ..LIST
    },
    Command {
        name: "lmove",
        since: "6.2.0",
        arity: Arity::Exactly(5),
        summary: "Moves an element from an end of a list to an end of another or the same one.",
        syntax: "source:key destination:key wherefrom(LEFT | RIGHT) whereto(LEFT | RIGHT)",
        cost: Cost::Constant,
        run: |ctx, args| {
            let (from, to) = (end_named(args[3])?, end_named(args[4])?);
            move_element(ctx, args[1], args[2], from, to)
        },
        ..MOVES
    },
    Command {
        name: "rpoplpush",
        since: "1.2.0",
        arity: Arity::Exactly(3),
        summary: "Moves the last element of a list to the front of another or the same one.",
        syntax: "source:key destination:key",
        cost: Cost::Constant,
        run: |ctx, args| move_element(ctx, args[1], args[2], false, true),
        ..MOVES
    },
    Command {
        name: "lmpop",
        since: "7.0.0",
        arity: Arity::AtLeast(4),
        keys: &[KeyPart::Counted { count_at: 1, first: 2, step: 1, access: Access::Write }],
        flags: flags::MOVABLE_KEYS,
        summary: "Removes and returns elements of the first list that exists.",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        syntax: "numkeys:int key... where(LEFT | RIGHT) COUNT=count:int?",
        run: |ctx, args| {
            let call = MultiPop::parse(args, 1)?;
            if !call.perform(ctx)? {
                ctx.out.null_array();
            }
            Ok(())
        },
        ..WRITES
    },
];

const LIST: Command = Command { group: Group::List, ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..LIST };
const PUSHES: Command = Command {
    arity: Arity::AtLeast(3),
    flags: flags::DENY_OOM | flags::FAST,
    complexity: "O(1) for each element added.",
    syntax: "key element...",
    ..WRITES
};
const POPS: Command = Command {
    arity: Arity::AtLeast(2),
    flags: flags::FAST,
    complexity: "O(N) where N is the number of elements returned.",
    syntax: "key count:int@6.2.0?",
    ..WRITES
};
const MOVES: Command = Command {
    keys: &[KeyPart::Range { first: 1, last: 2, step: 1, access: Access::Write }],
    flags: flags::DENY_OOM,
    ..WRITES
};

fn push(ctx: &mut Ctx<'_>, args: Args<'_>, front: bool, create: bool) -> Result<(), CommandError> {
    let edit = ctx.edit(args[1]);
    let list = if create { Some(edit.or_create::<List>()?) } else { edit.existing::<List>()? };
    let len = list.map_or(0, |mut list| {
        args.rest(2).iter().for_each(|element| list.push(front, element));
        list.len()
    });
    ctx.out.count(len);
    Ok(())
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, front: bool) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(error::wrong_arity(if front { "lpop" } else { "rpop" }));
    }
    let Some(text) = args.get(2) else {
        if !take(ctx, args[1], front, 1, |_, _| ())? {
            ctx.out.null();
        }
        return Ok(());
    };
    let count = number::parse_i64(text).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(error::NOT_POSITIVE)?;
    if !take(ctx, args[1], front, count, |out, count| out.array(count))? {
        ctx.out.null_array();
    }
    Ok(())
}

/// Takes up to `count` elements from an end of the list under `key`: what LPOP, LMPOP and the blocking pops do.
/// Writes what `announce` makes of their number, then the elements. `false` and no word if there is no list.
pub(crate) fn take(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    front: bool,
    count: usize,
    announce: impl FnOnce(&mut Reply, usize),
) -> Result<bool, CommandError> {
    let Some((mut list, out)) = ctx.edit(key).existing_and_reply::<List>()? else { return Ok(false) };
    let (len, count) = (list.len(), count.min(list.len()));
    announce(out, count);
    if front {
        list.iter_from(0).take(count).for_each(|element| out.bulk(element));
    } else {
        list.iter_from(len - count).rev().for_each(|element| out.bulk(element));
    }
    if count < len {
        list.trim(front, count);
    } else {
        drop(list);
        ctx.delete(key);
    }
    Ok(true)
}

fn len(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply_from::<List>(args[1], |list, out| out.count(list.map_or(0, List::len)))
}

/// The position that `index` names in a list of `len` elements.
fn position_of(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|at| *at < len)
}

fn index(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    // A missing list is answered before the index is looked at.
    if ctx.read::<List>(args[1])?.is_none() {
        ctx.out.null();
        return Ok(());
    }
    let index = args.integer(2)?;
    ctx.reply_from::<List>(args[1], |list, out| {
        out.optional(list.and_then(|list| list.get(position_of(index, list.len())?)));
    })
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut list = ctx.edit(args[1]).existing::<List>()?.ok_or(error::NO_SUCH_KEY)?;
    let index = args.integer(2)?;
    let at = position_of(index, list.len()).ok_or(error::INDEX_OUT_OF_RANGE)?;
    list.set(at, args[3]);
    drop(list);
    ctx.out.ok();
    Ok(())
}

fn insert(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let after = match args[2] {
        word if word.eq_ignore_ascii_case(b"after") => true,
        word if word.eq_ignore_ascii_case(b"before") => false,
        _ => return Err(error::SYNTAX),
    };
    let work = ctx.work;
    let outcome = match ctx.edit(args[1]).existing::<List>()? {
        None => 0,
        Some(mut list) => {
            let pivot = work.over(list.iter_from(0)).position(|element| element == args[3]);
            match pivot {
                None => -1,
                Some(at) => {
                    list.insert(at + usize::from(after), args[4]);
                    list.len() as i64
                }
            }
        }
    };
    ctx.out.integer(outcome);
    Ok(())
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (work, count) = (ctx.work, args.integer(2)?);
    let Some(mut list) = ctx.edit(args[1]).existing::<List>()? else {
        ctx.out.integer(0);
        return Ok(());
    };
    let most = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(count) => count,
    };
    let equal = |(at, element): (usize, &[u8])| (element == args[3]).then_some(at);
    let mut found: Vec<usize> = if count < 0 {
        work.over(list.iter_from(0).enumerate().rev()).filter_map(equal).take(most).collect()
    } else {
        work.over(list.iter_from(0).enumerate()).filter_map(equal).take(most).collect()
    };
    if found.len() == list.len() {
        drop(list);
        ctx.delete(args[1]);
    } else {
        if count < 0 {
            found.reverse();
        }
        list.remove_all(&found);
        drop(list);
    }
    ctx.out.count(found.len());
    Ok(())
}

/// The positions from `start` to `stop`, both counted from the end if negative, of a list of `len` elements.
fn span(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from = if start < 0 { (start + len).max(0) } else { start };
    let last = if stop < 0 { stop + len } else { stop.min(len - 1) };
    if from > last || from >= len { 0..0 } else { from as usize..last as usize + 1 }
}

fn range(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let work = ctx.work;
    ctx.reply_from::<List>(args[1], |list, out| match list {
        None => out.array(0),
        Some(list) => {
            let span = span(start, stop, list.len());
            out.array(span.len());
            out.bulks(work, list.iter_from(span.start).take(span.len()));
        }
    })
}

fn trim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    ctx.out.ok();
    let Some(mut list) = ctx.edit(args[1]).existing::<List>()? else { return Ok(()) };
    let len = list.len();
    let kept = span(start, stop, len);
    if kept.is_empty() {
        drop(list);
        ctx.delete(args[1]);
    } else {
        // Redis tells watchers even if everything stays.
        list.touch();
        list.trim(false, len - kept.end);
        list.trim(true, kept.start);
    }
    Ok(())
}

fn position(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut rank, mut count, mut max_len) = (1i64, None, 0);
    let mut options = args.cursor(3);
    let not_negative = |text: &[u8], error| {
        number::parse_i64(text).filter(|value| *value >= 0).ok_or(CommandError::new(error))
    };
    while !options.is_done() {
        if options.remaining() < 2 {
            return Err(error::SYNTAX);
        } else if options.flag("rank") {
            rank = options.integer()?;
            if rank == 0 {
                return Err(CommandError::new(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                     or use negative to start from the end of the list",
                ));
            }
        } else if options.flag("count") {
            count = Some(not_negative(options.bytes()?, "ERR COUNT can't be negative")?);
        } else if options.flag("maxlen") {
            max_len = not_negative(options.bytes()?, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(error::SYNTAX);
        }
    }
    // The smallest number has no negative: in Redis it comes out as "every match counts".
    let skipped = rank.checked_abs().map_or(0, |rank| usize::try_from(rank - 1).unwrap_or(usize::MAX));
    let work = ctx.work;
    ctx.reply_from::<List>(args[1], |list, out| {
        let Some(list) = list else { return reply_positions(out, count, std::iter::empty()) };
        let last = list.len().saturating_sub(1);
        let compared = unlimited(max_len);
        if rank > 0 {
            let found = work.over(list.iter_from(0).take(compared)).enumerate();
            let found = found.filter_map(|(at, element)| (element == args[2]).then_some(at));
            reply_positions(out, count, found.skip(skipped));
        } else {
            let found = work.over(list.iter_from(0).rev().take(compared)).enumerate();
            let found = found.filter_map(|(at, element)| (element == args[2]).then_some(last - at));
            reply_positions(out, count, found.skip(skipped));
        }
    })
}

/// A limit of which 0 means none.
fn unlimited(limit: i64) -> usize {
    usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}

/// Without COUNT the first position or null, else as many as COUNT says.
fn reply_positions(out: &mut Reply, count: Option<i64>, mut found: impl Iterator<Item = usize>) {
    match count {
        Some(count) => out.array_of(|out| found.take(unlimited(count)).map(|at| out.count(at)).count()),
        None => match found.next() {
            Some(at) => out.count(at),
            None => out.null(),
        },
    }
}

/// The end of a list that LMOVE and LMPOP mean: whether it is the front.
pub(crate) fn end_named(word: &[u8]) -> Result<bool, CommandError> {
    match word {
        word if word.eq_ignore_ascii_case(b"left") => Ok(true),
        word if word.eq_ignore_ascii_case(b"right") => Ok(false),
        _ => Err(error::SYNTAX),
    }
}

/// Moves an element and writes it to the reply; null if there is no list under `source`.
pub(crate) fn move_element(
    ctx: &mut Ctx<'_>,
    source: &[u8],
    destination: &[u8],
    from_front: bool,
    to_front: bool,
) -> Result<(), CommandError> {
    if ctx.read::<List>(source)?.is_none() {
        ctx.out.null();
        return Ok(());
    }
    if source == destination {
        // In one edit, so that the list of one element is never empty.
        if let Some((mut list, out)) = ctx.edit(source).existing_and_reply::<List>()?
            && let Some(element) = list.pop(from_front)
        {
            list.push(to_front, &element);
            out.bulk(&element);
        }
        return Ok(());
    }
    ctx.read::<List>(destination)?;
    let element = match ctx.edit(source).existing::<List>()? {
        None => None,
        Some(mut list) => list.pop(from_front),
    };
    if let Some(element) = element {
        ctx.edit(destination).or_create::<List>()?.push(to_front, &element);
        ctx.out.bulk(&element);
    }
    Ok(())
}

/// The arguments of LMPOP and BLMPOP.
pub(crate) struct MultiPop<'a> {
    /// Where to look, in this order.
    pub keys: &'a [&'a [u8]],
    front: bool,
    count: usize,
}

impl<'a> MultiPop<'a> {
    /// Reads all from the number of keys on, which stands at `at`.
    pub fn parse(args: Args<'a>, at: usize) -> Result<Self, CommandError> {
        let positive = |text: &[u8], error| {
            let value = number::parse_i64(text).and_then(|value| usize::try_from(value).ok());
            value.filter(|value| *value > 0).ok_or(CommandError::new(error))
        };
        let mut rest = args.cursor(at);
        let key_count = positive(rest.bytes()?, "ERR numkeys should be greater than 0")?;
        let keys = rest.take(key_count)?;
        let front = end_named(rest.bytes()?)?;
        let mut count = None;
        while !rest.is_done() {
            if count.is_some() || rest.remaining() < 2 || !rest.flag("count") {
                return Err(error::SYNTAX);
            }
            count = Some(positive(rest.bytes()?, "ERR count should be greater than 0")?);
        }
        Ok(MultiPop { keys, front, count: count.unwrap_or(1) })
    }

    /// Takes from the first list that is there; `false` and no word if there is none.
    pub fn perform(&self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        for key in self.keys {
            let announce = |out: &mut Reply, count| {
                out.array(2);
                out.bulk(key);
                out.array(count);
            };
            if take(ctx, key, self.front, self.count, announce)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
