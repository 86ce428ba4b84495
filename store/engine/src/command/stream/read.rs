//! XREAD and XREADGROUP. Here each makes one attempt and answers null if there is nothing new; [`crate::wait`] says
//! what ends the waiting of those that want to.

use super::ids::id_of;
use super::{STREAM, WRITES, shown, write_entries, write_entry, write_id, write_parts};
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::timeout::whole_timeout_ms;
use crate::value::Stream;
use crate::value::stream::{Id, StreamEntry};
use crate::{Args, Ctx, Protocol, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "xread",
        arity: Arity::AtLeast(4),
        keys: &[KeyPart::Halved { access: Access::Read }],
        flags: flags::BLOCKING | flags::MOVABLE_KEYS,
        summary: "Returns entries of several streams with IDs greater than the given ones. Blocks until there \
                  are some if BLOCK is given.",
        complexity: READ,
        syntax: "COUNT=count:int? BLOCK=milliseconds:int? STREAMS=streams(key... id...)",
        run: read,
        ..STREAM
    },
    Command {
        name: "xreadgroup",
        arity: Arity::AtLeast(7),
        keys: &[KeyPart::Halved { access: Access::Write }],
        flags: flags::BLOCKING | flags::MOVABLE_KEYS,
        summary: "Returns new or pending entries of several streams for a consumer of a group. Blocks until \
                  there are some if BLOCK is given.",
        complexity: READ,
        syntax: "GROUP=group_consumer(group consumer) COUNT=count:int? BLOCK=milliseconds:int? \
                 CLAIM=min-idle-time:int@8.4.0? NOACK? STREAMS=streams(key... id...)",
        run: read,
        ..WRITES
    },
];

const READ: &str = "O(M) for each stream with M being the number of entries returned.";

/// An ID above all others stands for `>`.
const NEW: Id = Id::MAX;

/// So many entries at most are given to one that has waited, if it does not say.
pub const MOST_AFTER_WAIT: &str = "1000";

/// What a call wants.
pub struct Wanted<'a> {
    /// How long it waits, in milliseconds; 0: for ever. `None`: it does not.
    pub block_ms: Option<u64>,
    /// How many entries of each stream; 0: all.
    pub count: usize,
    /// The group and the consumer of XREADGROUP.
    pub group: Option<(&'a [u8], &'a [u8])>,
    /// Where its keys begin.
    pub keys_at: usize,
    /// The streams.
    pub keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
    no_ack: bool,
    /// For how long, in milliseconds, entries have been pending that are delivered again, as in Redis 8.4.
    pub claim_ms: Option<i64>,
}

impl<'a> Wanted<'a> {
    /// When the first entry that is pending in the group can be claimed, in Unix milliseconds.
    pub fn claimable_ms(&self, stream: &Stream) -> Option<i64> {
        let (idle_ms, (name, _)) = (self.claim_ms?, self.group?);
        let pending = stream.group(name)?.pending(Id::MIN);
        let held = pending.filter(|(id, _)| stream.get(*id).is_some());
        held.map(|(_, pending)| pending.delivered_ms.saturating_add(idle_ms)).min()
    }

    /// Reads a call, but for its IDs.
    pub fn parse(args: Args<'a>) -> Result<Wanted<'a>, CommandError> {
        let grouped = args.name().eq_ignore_ascii_case(b"xreadgroup");
        let (mut block_ms, mut count, mut group, mut no_ack) = (None, 0, None, false);
        let mut claim_ms = None;
        let mut cursor = args.cursor(1);
        while !cursor.is_done() {
            let more = cursor.remaining() - 1;
            if more > 0 && cursor.flag("BLOCK") {
                block_ms = Some(whole_timeout_ms(cursor.bytes()?)?);
            } else if more > 0 && cursor.flag("COUNT") {
                count = usize::try_from(cursor.integer()?).unwrap_or(0);
            } else if more > 0 && cursor.flag("STREAMS") {
                let keys_at = cursor.position();
                let rest = cursor.rest();
                if rest.len() % 2 == 1 {
                    return Err(CommandError::new(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                    ));
                }
                if grouped && group.is_none() {
                    return Err(CommandError::new("ERR Missing GROUP option for XREADGROUP"));
                }
                let (keys, ids) = rest.split_at(rest.len() / 2);
                return Ok(Wanted { block_ms, count, group, keys_at, keys, ids, no_ack, claim_ms });
            } else if more > 1 && cursor.flag("GROUP") {
                if !grouped {
                    return Err(CommandError::new(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                group = Some((cursor.bytes()?, cursor.bytes()?));
            } else if more > 0 && cursor.flag("CLAIM") {
                if !grouped {
                    return Err(CommandError::new(
                        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                let idle = number::parse_i64(cursor.bytes()?)
                    .ok_or(CommandError::new("ERR min-idle-time is not an integer"))?;
                if idle < 0 {
                    return Err(CommandError::new("ERR min-idle-time must be a positive integer"));
                }
                claim_ms = Some(idle);
            } else if cursor.flag("NOACK") {
                if !grouped {
                    return Err(CommandError::new(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                no_ack = true;
            } else {
                return Err(error::SYNTAX);
            }
        }
        Err(error::SYNTAX)
    }

    /// The entry behind which a stream is read.
    pub fn behind(&self, at: usize, stream: Option<&Stream>) -> Result<Id, CommandError> {
        if let Some((group, _)) = self.group
            && stream.is_none_or(|stream| stream.group(group).is_none())
        {
            let (key, group) = (shown(self.keys[at]), shown(group));
            return Err(CommandError::owned(format!(
                "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
            )));
        }
        match (self.ids[at], self.group) {
            (b"$", None) => Ok(stream.map_or(Id::MIN, |stream| stream.meta().last_id)),
            (b"$", Some(_)) => Err(CommandError::new(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                 an empty result set.",
            )),
            // As in Redis 7.4. Of a stream without entries the next one.
            (b"+", None) => {
                Ok(stream
                    .map_or(Id::MIN, |stream| stream.top_id().previous().unwrap_or(stream.meta().last_id)))
            }
            (b"+", Some(_)) => Err(CommandError::new(
                "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return \
                 an empty result set.",
            )),
            (b">", Some(_)) => Ok(NEW),
            (b">", None) => Err(CommandError::new(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            (text, _) => id_of(text),
        }
    }

    /// Which of its keys are waited for from where they end now, and so must be named with that.
    pub fn dollars(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (ids_at, ids) = (self.keys_at + self.keys.len(), self.ids);
        let keys = self.keys.iter().zip(ids).enumerate();
        keys.filter(|(_, (_, id))| **id == b"$").map(move |(at, (key, _))| (ids_at + at, *key))
    }
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let wanted = Wanted::parse(args)?;
    let mut behind = Vec::with_capacity(wanted.keys.len());
    for (at, key) in wanted.keys.iter().enumerate() {
        behind.push(wanted.behind(at, ctx.read::<Stream>(key)?)?);
    }
    let start = ctx.out.buf.len();
    let mut served = 0;
    for (key, behind) in wanted.keys.iter().zip(behind) {
        let done = match wanted.group {
            None => read_alone(ctx, key, behind, wanted.count)?,
            Some((group, consumer)) => {
                let Wanted { count, no_ack, claim_ms, .. } = wanted;
                let reader = GroupReader { key, group, consumer, count, no_ack, claim_ms };
                if behind == NEW { reader.read_new(ctx)? } else { reader.read_again(ctx, behind)? }
            }
        };
        served += usize::from(done);
    }
    match ctx.out.protocol {
        _ if served == 0 => ctx.out.null_array(),
        Protocol::Resp2 => ctx.out.array_from(start, served),
        Protocol::Resp3 => ctx.out.map_from(start, served),
    }
    Ok(())
}

/// Begins the reply for a key.
fn write_key(out: &mut crate::Reply, key: &[u8]) {
    if out.protocol == Protocol::Resp2 {
        out.array(2);
    }
    out.bulk(key);
}

/// Whether there was something behind this entry.
fn read_alone(ctx: &mut Ctx<'_>, key: &[u8], behind: Id, count: usize) -> Result<bool, CommandError> {
    let mut done = false;
    ctx.reply_from::<Stream>(key, |stream, out| {
        let Some(stream) = stream.filter(|stream| stream.top_id() > behind) else { return };
        let Some(from) = behind.next() else { return };
        done = true;
        write_key(out, key);
        write_entries(out, stream.range(from, Id::MAX), count);
    })?;
    Ok(done)
}

/// Writes an entry; if something is known of its deliveries, with that: for how long it was pending, and how often it was
/// delivered before.
fn write_entry_and(out: &mut crate::Reply, entry: StreamEntry<'_>, known: Option<(i64, u64)>) {
    let Some((idle, count)) = known else { return write_entry(out, entry) };
    out.array(4);
    write_parts(out, entry);
    out.integer(idle);
    out.integer(count.cast_signed());
}

/// A consumer at a stream that has its group.
struct GroupReader<'a> {
    key: &'a [u8],
    group: &'a [u8],
    consumer: &'a [u8],
    count: usize,
    no_ack: bool,
    claim_ms: Option<i64>,
}

impl GroupReader<'_> {
    fn most(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }

    /// The entries that have been pending for long enough, the longest first, with what is known of them.
    fn claimable(&self, stream: &Stream, now_ms: i64) -> Vec<(Id, i64, u64)> {
        let Some(min_idle_ms) = self.claim_ms else { return Vec::new() };
        let group = stream.group(self.group).into_iter();
        let pending = group.flat_map(|group| group.pending(Id::MIN));
        let idle =
            pending.map(|(id, pending)| (id, now_ms.saturating_sub(pending.delivered_ms), pending.count));
        // Of those that are deleted there is nothing to return.
        let ripe = idle.filter(|(id, idle, _)| *idle >= min_idle_ms && stream.get(*id).is_some());
        let mut ripe: Vec<_> = ripe.collect();
        ripe.sort_by_key(|(id, idle, _)| (-idle, *id));
        ripe.truncate(self.most());
        ripe
    }

    /// Whether there were entries that no consumer of the group had read, or entries to be claimed.
    fn read_new(&self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let (now_ms, work) = (ctx.now_ms.cast_signed(), ctx.work);
        let Some((mut stream, out)) = ctx.edit(self.key).existing_and_reply::<Stream>()? else {
            return Ok(false);
        };
        let Some(group) = stream.group(self.group) else { return Ok(false) };
        let (mut last_id, mut entries_read) = (group.last_id, group.entries_read);
        let claimed = self.claimable(&stream, now_ms);
        let most = self.most() - claimed.len();
        let from = last_id.next().filter(|_| stream.top_id() > last_id && most > 0);
        if from.is_none() && claimed.is_empty() {
            return Ok(false);
        }
        stream.see(self.group, self.consumer, now_ms);
        write_key(out, self.key);
        let mut delivered = Vec::new();
        out.array_of(|out| {
            for (id, idle, count) in work.over(&claimed) {
                stream
                    .get(*id)
                    .into_iter()
                    .for_each(|entry| write_entry_and(out, entry, Some((*idle, *count))));
            }
            let known = self.claim_ms.map(|_| (0, 0));
            let new = from.into_iter().flat_map(|from| stream.range(from, Id::MAX)).take(most);
            for entry in work.over(new) {
                last_id = entry.id;
                entries_read = match entries_read {
                    Some(read) if !stream.has_tombstone_from(last_id) => read.checked_add(1),
                    _ if stream.meta().entries_added > 0 => stream.added_up_to(last_id),
                    other => other,
                };
                write_entry_and(out, entry, known);
                delivered.push(last_id);
                if out.is_over_limit() {
                    break;
                }
            }
            claimed.len() + delivered.len()
        });
        for (id, _, count) in work.over(claimed) {
            stream.deliver(self.group, id, self.consumer, now_ms, count.wrapping_add(1));
        }
        if !delivered.is_empty() {
            stream.set_group(self.group, last_id, entries_read);
        }
        if !self.no_ack {
            for id in work.over(delivered) {
                stream.deliver(self.group, id, self.consumer, now_ms, 1);
            }
        }
        Ok(true)
    }

    /// Reads what is pending for the consumer behind this entry; there always is something to tell of it.
    fn read_again(&self, ctx: &mut Ctx<'_>, behind: Id) -> Result<bool, CommandError> {
        let (now_ms, work) = (ctx.now_ms.cast_signed(), ctx.work);
        let Some((mut stream, out)) = ctx.edit(self.key).existing_and_reply::<Stream>()? else {
            return Ok(false);
        };
        stream.see(self.group, self.consumer, now_ms);
        let Some(group) = stream.group(self.group) else { return Ok(false) };
        let held = group.consumer(self.consumer).into_iter();
        let ids: Vec<Id> = match behind.next() {
            Some(from) => held.flat_map(|consumer| consumer.pending(from)).take(self.most()).collect(),
            None => Vec::new(),
        };
        write_key(out, self.key);
        out.array(ids.len());
        for id in work.over(ids) {
            let Some(entry) = stream.get(id) else {
                out.array(2);
                write_id(out, id);
                out.null_array();
                continue;
            };
            write_entry(out, entry);
            let pending = stream.group(self.group).and_then(|group| group.pending_of(id));
            let count = pending.map_or(0, |pending| pending.count).wrapping_add(1);
            stream.deliver(self.group, id, self.consumer, now_ms, count);
        }
        Ok(true)
    }
}
