//! Streams: entries added, read, and taken away.

pub mod group;
mod ids;
pub mod info;
pub mod pending;
pub mod read;
mod references;
pub mod removal;
mod trim;

use crate::cost::Cost;
use crate::error::{self, CommandError};
use crate::listpack::Item;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::Stream;
use crate::value::stream::{Id, Spelled, StreamEntry};
use crate::{Args, Ctx, Reply};
use ids::{from_id, id_of, ids_of, to_id};
use trim::TrimOptions;

/// How many entries XRANGE and XREVRANGE look at.
fn counted(args: Args<'_>, len: usize) -> usize {
    let count = args.get(5).and_then(crate::number::parse_i64);
    count.and_then(|count| usize::try_from(count).ok()).map_or(len, |count| count.min(len))
}

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "xadd",
        arity: Arity::AtLeast(5),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Appends an entry to a stream. The key is created if it doesn't exist.",
        complexity: "O(1) when adding a new entry, O(N) when trimming where N is the number of entries evicted.",
        syntax: "key NOMKSTREAM@6.2.0? condition(KEEPREF | DELREF | ACKED)@8.2.0? trim(strategy(MAXLEN | MINID@6.2.0) operator(=!equal | ~!approximately)? threshold LIMIT=count:int@6.2.0?)? id_or_auto(*!auto_id | id) field_value(field value)...",
        cost: Cost::Constant,
        run: add,
        ..WRITES
    },
    Command {
        name: "xdel",
        arity: Arity::AtLeast(3),
        flags: flags::FAST,
        summary: "Removes entries and returns the number of removed ones.",
        complexity: "O(1) for each entry, whatever the size of the stream.",
        syntax: "key id...",
        cost: Cost::Constant,
        run: delete,
        ..WRITES
    },
    Command {
        name: "xlen",
        flags: flags::FAST,
        summary: "Returns the number of entries.",
        cost: Cost::Constant,
        run: |ctx, args| {
            ctx.reply_from::<Stream>(args[1], |stream, out| out.count(stream.map_or(0, Stream::len)))
        },
        ..STREAM
    },
    Command {
        name: "xrange",
        syntax: "key start end COUNT=count:int?",
        summary: "Returns the entries within a range of IDs.",
        cost: Cost::Elements(counted),
        run: |ctx, args| range(ctx, args, false),
        ..RANGES
    },
    Command {
        name: "xrevrange",
        syntax: "key end start COUNT=count:int?",
        summary: "Returns the entries within a range of IDs, the last one first.",
        cost: Cost::Elements(counted),
        run: |ctx, args| range(ctx, args, true),
        ..RANGES
    },
    Command {
        name: "xsetid",
        arity: Arity::AtLeast(3),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Sets the last generated ID.",
        syntax: "key last-id ENTRIESADDED=entries_added:int@7.0.0? MAXDELETEDID=max_deleted_entry_id@7.0.0?",
        run: set_id,
        ..WRITES
    },
    Command {
        name: "xtrim",
        arity: Arity::AtLeast(4),
        summary: "Removes the oldest entries and returns their number.",
        complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
        syntax: "key trim(strategy(MAXLEN | MINID@6.2.0) operator(=!equal | ~!approximately)? threshold LIMIT=count:int@6.2.0? condition(KEEPREF | DELREF | ACKED)@8.2.0?)",
        run: cut,
        ..WRITES
    },
];

const STREAM: Command = Command { since: "5.0.0", group: Group::Stream, ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..STREAM };
const RANGES: Command = Command {
    arity: Arity::AtLeast(4),
    complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
    ..STREAM
};

/// Bytes as an error shows them: as C prints a text.
fn shown(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// What a container answers to words behind a subcommand that it cannot place.
fn misplaced(args: Args<'_>) -> CommandError {
    let word = &args[1][..args[1].len().min(128)];
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        shown(word),
        shown(args.name()).to_uppercase()
    ))
}

/// Writes an ID.
fn write_id(out: &mut Reply, id: Id) {
    out.bulk(&id.spelled());
}

fn write_item(out: &mut Reply, item: Item<'_>) {
    match item {
        Item::Text(text) => out.bulk(text),
        Item::Number(number) => out.bulk_integer(number),
    }
}

/// Writes an entry: its ID, and its fields with their values.
fn write_entry(out: &mut Reply, entry: StreamEntry<'_>) {
    out.array(2);
    write_parts(out, entry);
}

fn write_parts(out: &mut Reply, entry: StreamEntry<'_>) {
    write_id(out, entry.id);
    out.array(2 * entry.len());
    for (name, value) in entry.pairs() {
        write_item(out, name);
        write_item(out, value);
    }
}

/// Writes entries, `count` of them or, if that is 0, all.
fn write_entries<'s>(out: &mut Reply, entries: impl Iterator<Item = StreamEntry<'s>>, count: usize) {
    let most = if count == 0 { usize::MAX } else { count };
    out.array_of(|out| entries.take(most).map(|entry| write_entry(out, entry)).count());
}

/// Reads a count, which is 0 if it is negative.
fn count_of(args: Args<'_>, at: usize) -> Result<usize, CommandError> {
    Ok(usize::try_from(args.integer(at)?).unwrap_or(0))
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (options, id_at) = TrimOptions::parse(args, true)?;
    let pairs = args.rest(id_at + 1);
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(error::wrong_arity("xadd"));
    }
    if options.id == Some(Spelled { ms: 0, seq: Some(0) }) {
        return Err(CommandError::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let held = ctx.edit(args[1]).existing::<Stream>()?.map(|stream| stream.meta().last_id);
    if held.is_none() && options.no_mkstream {
        ctx.out.null();
        return Ok(());
    }
    let last = held.unwrap_or(Id::MIN);
    if last == Id::MAX {
        return Err(CommandError::new(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = match options.id {
        None if ctx.now_ms > last.ms => Some(Id { ms: ctx.now_ms, seq: 0 }),
        None => last.next(),
        Some(Spelled { ms, seq: Some(seq) }) => Some(Id { ms, seq }),
        Some(Spelled { ms, seq: None }) if ms == last.ms => last.seq.checked_add(1).map(|seq| Id { ms, seq }),
        Some(Spelled { ms, seq: None }) => Some(Id { ms, seq: 0 }),
    };
    let id = id.filter(|id| *id > last).ok_or(CommandError::new(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))?;
    let mut stream = ctx.edit(args[1]).or_create::<Stream>()?;
    stream.add(id, pairs);
    stream.note_event("xadd");
    if let Some(trim) = options.trim {
        trim.apply(&mut stream, options.references.unwrap_or_default());
    }
    drop(stream);
    write_id(ctx.out, id);
    Ok(())
}

fn cut(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (options, _) = TrimOptions::parse(args, false)?;
    let stream = ctx.edit(args[1]).existing::<Stream>()?;
    let removed = match (stream, options.trim) {
        (Some(mut stream), Some(trim)) => trim.apply(&mut stream, options.references.unwrap_or_default()),
        _ => 0,
    };
    ctx.out.count(removed);
    Ok(())
}

fn delete(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let Some(mut stream) = ctx.edit(args[1]).existing::<Stream>()? else {
        ctx.out.integer(0);
        return Ok(());
    };
    let ids = ids_of(args.rest(2))?;
    let (mut meta, mut removed) = (stream.meta(), 0);
    for id in ids {
        if stream.get(id).is_some() {
            stream.delete(id);
            meta.max_deleted_id = meta.max_deleted_id.max(id);
            removed += 1;
        }
    }
    stream.set_meta(meta);
    if removed > 0 {
        stream.note_event("xdel");
    }
    drop(stream);
    ctx.out.count(removed);
    Ok(())
}

fn range(ctx: &mut Ctx<'_>, args: Args<'_>, back: bool) -> Result<(), CommandError> {
    let (first, last) = if back { (3, 2) } else { (2, 3) };
    let (from, to) = (from_id(args[first])?, to_id(args[last])?);
    let mut count = None;
    let mut cursor = args.cursor(4);
    while !cursor.is_done() {
        if cursor.remaining() < 2 || !cursor.flag("COUNT") {
            return Err(error::SYNTAX);
        }
        count = Some(usize::try_from(cursor.integer()?).unwrap_or(0));
    }
    ctx.reply_from::<Stream>(args[1], |stream, out| match stream {
        None => out.array(0),
        Some(_) if count == Some(0) => out.null_array(),
        Some(stream) if back => write_entries(out, stream.range_back(from, to), count.unwrap_or(0)),
        Some(stream) => write_entries(out, stream.range(from, to), count.unwrap_or(0)),
    })
}

fn set_id(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let last_id = id_of(args[2])?;
    let (mut entries_added, mut max_deleted_id) = (None, Id::MIN);
    let mut cursor = args.cursor(3);
    while !cursor.is_done() {
        let valued = cursor.remaining() > 1;
        if valued && cursor.flag("ENTRIESADDED") {
            let count = u64::try_from(cursor.integer()?).ok();
            entries_added = Some(count.ok_or(CommandError::new("ERR entries_added must be positive"))?);
        } else if valued && cursor.flag("MAXDELETEDID") {
            max_deleted_id = id_of(cursor.bytes()?)?;
            if last_id < max_deleted_id {
                return Err(CommandError::new(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(error::SYNTAX);
        }
    }
    let stream = ctx.edit(args[1]).existing::<Stream>()?;
    let mut stream = stream.ok_or(error::NO_SUCH_KEY)?;
    let mut meta = stream.meta();
    if !stream.is_empty() && last_id < stream.top_id() {
        return Err(CommandError::new(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if !stream.is_empty() && entries_added.is_some_and(|added| added < stream.len() as u64) {
        return Err(CommandError::new(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    meta.last_id = last_id;
    meta.entries_added = entries_added.unwrap_or(meta.entries_added);
    if max_deleted_id != Id::MIN {
        meta.max_deleted_id = max_deleted_id;
    }
    stream.set_meta(meta);
    stream.note_event("xsetid");
    drop(stream);
    ctx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
