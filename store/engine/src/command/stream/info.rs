//! XINFO: what is known of a stream, its groups and their consumers.

use super::group::no_group_of;
use super::{STREAM, misplaced, write_entries, write_entry, write_id};
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, Routing};
use crate::value::Stream;
use crate::value::stream::{Group, Id, Meta};
use crate::work::Work;
use crate::{Args, Ctx, Reply, reply};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[Command {
    name: "xinfo",
    arity: Arity::AtLeast(2),
    keys: KeyPart::NONE,
    summary: "A container for stream introspection commands.",
    complexity: "Depends on subcommand.",
    syntax: "",
    subcommands: SUBCOMMANDS,
    help: HELP,
    ..STREAM
}];

const SUB: Command = Command { keys: &[KeyPart::one(2, Access::Read)], ..STREAM };

static SUBCOMMANDS: &[Command] = &[
    Command {
        name: "consumers",
        arity: Arity::Exactly(4),
        summary: "Returns a list of the consumers in a consumer group.",
        syntax: "key groupname",
        run: consumers,
        ..SUB
    },
    Command {
        name: "groups",
        arity: Arity::Exactly(3),
        summary: "Returns a list of the consumer groups of a stream.",
        run: groups,
        ..SUB
    },
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        keys: KeyPart::NONE,
        routing: Routing::Anywhere,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        run: help,
        ..STREAM
    },
    Command {
        name: "stream",
        arity: Arity::AtLeast(3),
        summary: "Returns information about a stream.",
        complexity: "O(N) where N is the number of the stream's nodes.",
        syntax: "key FULL=full(COUNT=count:int?)?",
        run: stream,
        ..SUB
    },
];

/// What XINFO HELP tells.
const HELP: &str = "\
CONSUMERS <key> <groupname>
    Show consumers of <groupname>.
GROUPS <key>
    Show the stream consumer groups.
STREAM <key> [FULL [COUNT <count>]
    Show information about the stream.";

fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    reply::help(ctx.out, "XINFO", HELP);
    Ok(())
}

/// Shows the stream of the call to `write`.
fn show(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    write: impl FnOnce(&Stream, &mut Reply) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut done = Err(error::NO_SUCH_KEY);
    ctx.reply_from::<Stream>(args[2], |stream, out| {
        if let Some(stream) = stream {
            done = write(stream, out);
        }
    })?;
    done
}

fn write_known(out: &mut Reply, number: Option<i64>) {
    match number {
        Some(number) => out.integer(number),
        None => out.null(),
    }
}

fn write_group_counts(out: &mut Reply, stream: &Stream, group: &Group) {
    out.bulk(b"entries-read");
    write_known(out, group.entries_read.map(u64::cast_signed));
    out.bulk(b"lag");
    write_known(out, stream.lag(group));
}

fn groups(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    show(ctx, args, |stream, out| {
        out.array(stream.groups().len());
        for (name, group) in stream.groups() {
            out.map(6);
            out.bulk(b"name");
            out.bulk(name);
            out.bulk(b"consumers");
            out.count(group.consumers().len());
            out.bulk(b"pending");
            out.count(group.pending_len());
            out.bulk(b"last-delivered-id");
            write_id(out, group.last_id);
            write_group_counts(out, stream, group);
        }
        Ok(())
    })
}

fn consumers(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.now_ms.cast_signed();
    show(ctx, args, |stream, out| {
        let group = stream.group(args[3]).ok_or_else(|| no_group_of(args[2], args[3]))?;
        out.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            out.map(3);
            out.bulk(b"name");
            out.bulk(name);
            out.bulk(b"pending");
            out.count(consumer.pending_len());
            out.bulk(b"idle");
            out.integer(now_ms.saturating_sub(consumer.seen_ms).max(0));
        }
        Ok(())
    })
}

fn stream(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    show(ctx, args, |stream, out| {
        let full = match args.rest(3) {
            [] => None,
            [word] if word.eq_ignore_ascii_case(b"full") => Some(10),
            [word, count, _]
                if word.eq_ignore_ascii_case(b"full") && count.eq_ignore_ascii_case(b"count") =>
            {
                Some(usize::try_from(args.integer(5)?).unwrap_or(10))
            }
            _ => return Err(misplaced(args)),
        };
        let Meta { last_id, entries_added, max_deleted_id } = stream.meta();
        out.map(if full.is_some() { 9 } else { 10 });
        out.bulk(b"length");
        out.count(stream.len());
        out.bulk(b"radix-tree-keys");
        out.count(stream.node_count());
        out.bulk(b"radix-tree-nodes");
        let ids: Vec<[u8; 16]> = work.over(stream.nodes()).map(|(own, _)| own.to_bytes()).collect();
        out.count(radix_nodes(&ids, 0));
        out.bulk(b"last-generated-id");
        write_id(out, last_id);
        out.bulk(b"max-deleted-entry-id");
        write_id(out, max_deleted_id);
        out.bulk(b"entries-added");
        out.integer(entries_added.cast_signed());
        out.bulk(b"recorded-first-entry-id");
        write_id(out, stream.first_id());
        match full {
            Some(count) => write_full(out, stream, count, work),
            None => {
                out.bulk(b"groups");
                out.count(stream.groups().len());
                for (name, entry) in [
                    ("first-entry", stream.range(Id::MIN, Id::MAX).next()),
                    ("last-entry", stream.range_back(Id::MIN, Id::MAX).next()),
                ] {
                    out.bulk(name.as_bytes());
                    match entry {
                        Some(entry) => write_entry(out, entry),
                        None => out.null(),
                    }
                }
            }
        }
        Ok(())
    })
}

/// Entries, groups and consumers, `count` of what there may be many of, or all if that is 0.
fn write_full(out: &mut Reply, stream: &Stream, count: usize, work: &Work) {
    let most = if count == 0 { usize::MAX } else { count };
    out.bulk(b"entries");
    write_entries(out, work.over(stream.range(Id::MIN, Id::MAX)), count);
    out.bulk(b"groups");
    out.array(stream.groups().len());
    for (name, group) in stream.groups() {
        out.map(7);
        out.bulk(b"name");
        out.bulk(name);
        out.bulk(b"last-delivered-id");
        write_id(out, group.last_id);
        write_group_counts(out, stream, group);
        out.bulk(b"pel-count");
        out.count(group.pending_len());
        out.bulk(b"pending");
        out.array(group.pending_len().min(most));
        for (id, pending) in work.over(group.pending(Id::MIN).take(most)) {
            out.array(4);
            write_id(out, id);
            out.bulk(pending.consumer());
            out.integer(pending.delivered_ms);
            out.integer(pending.count.cast_signed());
        }
        out.bulk(b"consumers");
        out.array(group.consumers().len());
        for (name, consumer) in work.over(group.consumers()) {
            out.map(4);
            out.bulk(b"name");
            out.bulk(name);
            out.bulk(b"seen-time");
            out.integer(consumer.seen_ms);
            out.bulk(b"pel-count");
            out.count(consumer.pending_len());
            out.bulk(b"pending");
            out.array(consumer.pending_len().min(most));
            for id in work.over(consumer.pending(Id::MIN).take(most)) {
                out.array(3);
                write_id(out, id);
                let pending = group.pending_of(id);
                out.integer(pending.map_or(0, |pending| pending.delivered_ms));
                out.integer(pending.map_or(0, |pending| pending.count.cast_signed()));
            }
        }
    }
}

/// How many nodes a radix tree of these keys has, as Redis keeps them: one for each branching, each stretch between
/// two of them, and each end. The keys are in order and equal up to `depth`.
fn radix_nodes(keys: &[[u8; 16]], depth: usize) -> usize {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return 1 };
    let common = (depth..16).take_while(|at| first[*at] == last[*at]).count();
    let stretch = usize::from(common > 0);
    let branching = depth + common;
    if keys.len() == 1 || branching == 16 {
        return stretch + 1;
    }
    let branches = keys.chunk_by(|one, other| one[branching] == other[branching]);
    stretch + 1 + branches.map(|keys| radix_nodes(keys, branching + 1)).sum::<usize>()
}
