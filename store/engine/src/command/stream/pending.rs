//! What was delivered and not acknowledged: XACK, XPENDING, XCLAIM and XAUTOCLAIM.

use super::ids::{from_id, id_of, ids_of, to_id};
use super::{STREAM, WRITES, count_of, shown, write_entry, write_id};
use crate::cost::Cost;
use crate::edit::Editor;
use crate::error::{self, CommandError};
use crate::number;
use crate::spec::{Arity, Command, flags};
use crate::value::Stream;
use crate::value::stream::{Group, Id, Pending};
use crate::{Args, Ctx, Reply, Work};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "xack",
        arity: Arity::AtLeast(4),
        flags: flags::FAST,
        summary: "Acknowledges entries of a consumer group and returns the number of entries that were pending.",
        complexity: "O(1) for each entry.",
        syntax: "key group id...",
        cost: Cost::Constant,
        run: acknowledge,
        ..WRITES
    },
    Command {
        name: "xautoclaim",
        since: "6.2.0",
        arity: Arity::AtLeast(6),
        flags: flags::FAST,
        summary: "Changes the owner of pending entries to a consumer.",
        complexity: "O(1) if COUNT is small.",
        syntax: "key group consumer min-idle-time start COUNT=count:int? JUSTID?",
        cost: Cost::Arguments(|args, _| most_claimed(args).saturating_mul(STEPS_PER_CLAIM)),
        run: claim_some,
        ..WRITES
    },
    Command {
        name: "xclaim",
        arity: Arity::AtLeast(6),
        flags: flags::FAST,
        summary: "Changes the owner of entries that have been pending for some time to a consumer.",
        complexity: "O(log N) with N being the number of entries in the PEL of the consumer group.",
        syntax: "key group consumer min-idle-time id... IDLE=ms:int? TIME=unix-time-milliseconds:time? RETRYCOUNT=count:int? FORCE? JUSTID? LASTID=id?",
        cost: Cost::Constant,
        run: claim,
        ..WRITES
    },
    Command {
        name: "xpending",
        arity: Arity::AtLeast(3),
        summary: "Returns the pending entries of a consumer group, as a summary or a range.",
        complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter.",
        syntax: "key group filters(IDLE=min-idle-time:int@6.2.0? start end count:int consumer?)?",
        run: list,
        ..STREAM
    },
];

/// Steps that it takes to give an entry to another consumer.
const STEPS_PER_CLAIM: u64 = 8;

/// How many entries XAUTOCLAIM may give to a consumer.
fn most_claimed(args: Args<'_>) -> u64 {
    let mut options = args.rest(6).windows(2);
    let given = options.find(|option| option[0].eq_ignore_ascii_case(b"count"));
    let given = given.and_then(|option| number::parse_i64(option[1]));
    given.and_then(|given| u64::try_from(given).ok()).unwrap_or(100)
}

/// `-NOGROUP No such key 'k' or consumer group 'g'`
fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (shown(key), shown(group));
    CommandError::owned(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

fn acknowledge(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let stream = ctx.edit(args[1]).existing::<Stream>()?;
    let mut settled = 0;
    if let Some(mut stream) = stream.filter(|stream| stream.group(args[2]).is_some()) {
        let ids = ids_of(args.rest(3))?;
        settled = work.over(ids).filter(|id| stream.settle(args[2], *id)).count();
    }
    ctx.out.count(settled);
    Ok(())
}

/// A range of what is pending.
struct Range<'a> {
    min_idle_ms: i64,
    from: Id,
    to: Id,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    fn parse(args: Args<'a>) -> Result<Range<'a>, CommandError> {
        if !(6..=9).contains(&args.len()) {
            return Err(error::SYNTAX);
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if args[3].eq_ignore_ascii_case(b"idle") {
            min_idle_ms = args.integer(4)?;
            if args.len() < 8 {
                return Err(error::SYNTAX);
            }
            at = 5;
        }
        let count = count_of(args, at + 2)?;
        let (from, to) = (from_id(args[at])?, to_id(args[at + 1])?);
        Ok(Range { min_idle_ms, from, to, count, consumer: args.get(at + 3) })
    }

    fn write(&self, group: &Group, now_ms: i64, work: &Work, out: &mut Reply) {
        let idle = |pending: &Pending| now_ms.saturating_sub(pending.delivered_ms);
        let rested = |pending: &Pending| self.min_idle_ms == 0 || idle(pending) >= self.min_idle_ms;
        let write = |out: &mut Reply, id: Id, pending: &Pending| {
            out.array(4);
            write_id(out, id);
            out.bulk(pending.consumer());
            out.integer(idle(pending).max(0));
            out.integer(pending.count.cast_signed());
        };
        out.array_of(|out| match self.consumer {
            None => {
                let range = work.over(group.pending(self.from)).take_while(|(id, _)| *id <= self.to);
                let range = range.filter(|(_, pending)| rested(pending)).take(self.count);
                range.map(|(id, pending)| write(out, id, pending)).count()
            }
            Some(name) => {
                let ids = group.consumer(name).into_iter().flat_map(|consumer| consumer.pending(self.from));
                let range = work.over(ids).take_while(|id| *id <= self.to);
                let range = range.filter_map(|id| Some((id, group.pending_of(id)?)));
                let range = range.filter(|(_, pending)| rested(pending)).take(self.count);
                range.map(|(id, pending)| write(out, id, pending)).count()
            }
        });
    }
}

fn write_summary(group: &Group, out: &mut Reply) {
    out.array(4);
    out.count(group.pending_len());
    let first = group.pending(Id::MIN).next().map(|(id, _)| id);
    let (Some(first), Some(last)) = (first, group.last_pending()) else {
        out.null();
        out.null();
        return out.null_array();
    };
    write_id(out, first);
    write_id(out, last);
    out.array_of(|out| {
        let busy = group.consumers().filter(|(_, consumer)| consumer.pending_len() > 0);
        busy.map(|(name, consumer)| {
            out.array(2);
            out.bulk(name);
            out.bulk_integer(consumer.pending_len() as i64);
        })
        .count()
    });
}

fn list(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let range = if args.len() == 3 { None } else { Some(Range::parse(args)?) };
    let (now_ms, work) = (ctx.now_ms.cast_signed(), ctx.work);
    let mut found = false;
    ctx.reply_from::<Stream>(args[1], |stream, out| {
        let Some(group) = stream.and_then(|stream| stream.group(args[2])) else { return };
        found = true;
        match range {
            Some(range) => range.write(group, now_ms, work, out),
            None => write_summary(group, out),
        }
    })?;
    if found { Ok(()) } else { Err(no_group(args[1], args[2])) }
}

/// The stream of a call whose second argument is one of its groups, with the reply.
fn with_group<'s>(
    ctx: &'s mut Ctx<'_>,
    args: Args<'s>,
) -> Result<(Editor<'s, Stream>, &'s mut Reply), CommandError> {
    let held = ctx.edit(args[1]).existing_and_reply::<Stream>()?;
    let held = held.filter(|(stream, _)| stream.group(args[2]).is_some());
    held.ok_or_else(|| no_group(args[1], args[2]))
}

/// Reads a number, or says this.
fn number_or(text: &[u8], error: &'static str) -> Result<i64, CommandError> {
    number::parse_i64(text).ok_or(CommandError::new(error))
}

/// What XCLAIM is told behind the IDs.
#[derive(Default)]
struct Claim {
    delivered_ms: Option<i64>,
    count: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: Id,
}

impl Claim {
    fn parse(args: Args<'_>, first: usize, now_ms: i64) -> Result<Claim, CommandError> {
        let mut claim = Claim::default();
        let mut cursor = args.cursor(first);
        while let Some(word) = cursor.peek() {
            let valued = cursor.remaining() > 1;
            if cursor.flag("FORCE") {
                claim.force = true;
            } else if cursor.flag("JUSTID") {
                claim.just_id = true;
            } else if valued && cursor.flag("IDLE") {
                let idle = number_or(cursor.bytes()?, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered_ms = Some(now_ms.wrapping_sub(idle));
            } else if valued && cursor.flag("TIME") {
                let time = number_or(cursor.bytes()?, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.delivered_ms = Some(time);
            } else if valued && cursor.flag("RETRYCOUNT") {
                let count = number_or(cursor.bytes()?, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.count = u64::try_from(count).ok();
            } else if valued && cursor.flag("LASTID") {
                claim.last_id = id_of(cursor.bytes()?)?;
            } else {
                return Err(CommandError::owned(format!("ERR Unrecognized XCLAIM option '{}'", shown(word))));
            }
        }
        // A clock that is not ours may be wrong.
        claim.delivered_ms = claim.delivered_ms.filter(|time| (0..=now_ms).contains(time));
        Ok(claim)
    }
}

fn write_claimed(stream: &Stream, id: Id, just_id: bool, out: &mut Reply) {
    match stream.get(id) {
        Some(entry) if !just_id => write_entry(out, entry),
        _ => write_id(out, id),
    }
}

fn claim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.now_ms.cast_signed();
    let (key, group, consumer) = (args[1], args[2], args[3]);
    let held = ctx.edit(key).existing::<Stream>()?;
    if held.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_group(key, group));
    }
    let min_idle_ms = number_or(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
    let ids: Vec<Id> = args.rest(5).iter().map_while(|text| id_of(text).ok()).collect();
    let claim = Claim::parse(args, 5 + ids.len(), now_ms)?;
    let delivered_ms = claim.delivered_ms.unwrap_or(now_ms);
    let work = ctx.work;
    let (mut stream, out) = with_group(ctx, args)?;
    if let Some(Group { last_id, entries_read, .. }) = stream.group(group)
        && claim.last_id > *last_id
    {
        let entries_read = *entries_read;
        stream.set_group(group, claim.last_id, entries_read);
    }
    out.array_of(|out| {
        let mut claimed = 0;
        for id in ids {
            if !work.step(STEPS_PER_CLAIM) {
                break;
            }
            if stream.get(id).is_none() {
                stream.settle(group, id);
                continue;
            }
            let pending = stream.group(group).and_then(|group| group.pending_of(id));
            let before = match pending {
                Some(pending) => {
                    let idle = now_ms.saturating_sub(pending.delivered_ms);
                    if min_idle_ms > 0 && idle < min_idle_ms {
                        continue;
                    }
                    pending.count
                }
                // As if it had been delivered once.
                None if claim.force => 1,
                None => continue,
            };
            // Whoever gets nothing is not made known.
            if claimed == 0 {
                stream.see(group, consumer, now_ms);
            }
            let once_more = if claim.just_id { 0 } else { 1 };
            let count = claim.count.unwrap_or(before.wrapping_add(once_more));
            stream.deliver(group, id, consumer, delivered_ms, count);
            write_claimed(&stream, id, claim.just_id, out);
            claimed += 1;
        }
        claimed
    });
    Ok(())
}

/// For each entry that XAUTOCLAIM may return it looks at so many.
const ATTEMPTS: u64 = 10;

fn claim_some(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.now_ms.cast_signed();
    let (group, consumer) = (args[2], args[3]);
    let min_idle_ms = number_or(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let from = from_id(args[5])?;
    let (mut count, mut just_id) = (100, false);
    let mut cursor = args.cursor(6);
    while !cursor.is_done() {
        if cursor.remaining() > 1 && cursor.flag("COUNT") {
            const MOST: u64 = i64::MAX as u64 / 16;
            let given = number::parse_i64(cursor.bytes()?).and_then(|given| u64::try_from(given).ok());
            let given = given.filter(|given| (1..=MOST).contains(given));
            count = given.ok_or(CommandError::new("ERR COUNT must be > 0"))?;
        } else if cursor.flag("JUSTID") {
            just_id = true;
        } else {
            return Err(error::SYNTAX);
        }
    }
    let work = ctx.work;
    let (mut stream, out) = with_group(ctx, args)?;
    let mut attempts = count.saturating_mul(ATTEMPTS);
    let (mut deleted, mut claimed) = (Vec::new(), Vec::new());
    let mut next = Some(from);
    let mut end = Id::MIN;
    while let Some(from) = next {
        let pending = stream.group(group).and_then(|group| group.pending(from).next());
        let Some((id, pending)) = pending else { break };
        if attempts == 0 || count == 0 || !work.step(STEPS_PER_CLAIM) {
            end = id;
            break;
        }
        attempts -= 1;
        next = id.next();
        let (idle, before) = (now_ms.saturating_sub(pending.delivered_ms), pending.count);
        if stream.get(id).is_none() {
            stream.settle(group, id);
            deleted.push(id);
            count -= 1;
            continue;
        }
        if min_idle_ms > 0 && idle < min_idle_ms {
            continue;
        }
        if claimed.is_empty() {
            stream.see(group, consumer, now_ms);
        }
        let once_more = if just_id { 0 } else { 1 };
        stream.deliver(group, id, consumer, now_ms, before.wrapping_add(once_more));
        claimed.push(id);
        count -= 1;
    }
    out.array(3);
    write_id(out, end);
    out.array(claimed.len());
    claimed.iter().for_each(|id| write_claimed(&stream, *id, just_id, out));
    out.array(deleted.len());
    deleted.iter().for_each(|id| write_id(out, *id));
    Ok(())
}
