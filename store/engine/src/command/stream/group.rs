//! XGROUP: groups and their consumers.

use super::ids::{id_of, loose_id};
use super::{STREAM, misplaced, shown};
use crate::error::CommandError;
use crate::spec::{Access, Arity, Command, KeyPart, Routing, flags};
use crate::value::Stream;
use crate::value::stream::Id;
use crate::{Args, Ctx, reply};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[Command {
    name: "xgroup",
    arity: Arity::AtLeast(2),
    keys: KeyPart::NONE,
    access: Access::Write,
    summary: "A container for consumer groups commands.",
    complexity: "Depends on subcommand.",
    syntax: "",
    subcommands: SUBCOMMANDS,
    help: HELP,
    ..STREAM
}];

const SUB: Command = Command {
    keys: &[KeyPart::one(2, Access::Write)],
    access: Access::Write,
    arity: Arity::Exactly(5),
    ..STREAM
};

static SUBCOMMANDS: &[Command] = &[
    Command {
        name: "create",
        arity: Arity::AtLeast(5),
        flags: flags::DENY_OOM,
        summary: "Creates a consumer group.",
        syntax: "key groupname id(id | $!new_id) MKSTREAM? ENTRIESREAD=entries_read:int?",
        run: create,
        ..SUB
    },
    Command {
        name: "createconsumer",
        since: "6.2.0",
        flags: flags::DENY_OOM,
        summary: "Creates a consumer in a consumer group.",
        syntax: "key groupname consumername",
        run: create_consumer,
        ..SUB
    },
    Command {
        name: "delconsumer",
        summary: "Deletes a consumer from a consumer group.",
        complexity: "O(N) where N is the number of entries that are pending for the consumer.",
        syntax: "key groupname consumername",
        run: delete_consumer,
        ..SUB
    },
    Command {
        name: "destroy",
        arity: Arity::Exactly(4),
        summary: "Destroys a consumer group.",
        complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
        syntax: "key groupname",
        run: destroy,
        ..SUB
    },
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        keys: KeyPart::NONE,
        access: Access::Read,
        routing: Routing::Anywhere,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        run: help,
        ..STREAM
    },
    Command {
        name: "setid",
        arity: Arity::AtLeast(5),
        summary: "Sets the last-delivered ID of a consumer group.",
        syntax: "key groupname id(id | $!new_id) ENTRIESREAD=entries_read:int?",
        run: set_id,
        ..SUB
    },
];

/// What XGROUP HELP tells.
const HELP: &str = "\
CREATE <key> <groupname> <id|$> [option]
    Create a new consumer group. Options are:
    * MKSTREAM
      Create the empty stream if it does not exist.
    * ENTRIESREAD entries_read
      Set the group's entries_read counter (internal use).
CREATECONSUMER <key> <groupname> <consumer>
    Create a new consumer in the specified group.
DELCONSUMER <key> <groupname> <consumer>
    Remove the specified consumer.
DESTROY <key> <groupname>
    Remove the specified group.
SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]
    Set the current group ID and entries_read counter.";

fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    reply::help(ctx.out, "XGROUP", HELP);
    Ok(())
}

/// What may stand behind the ID.
#[derive(Default)]
struct GroupOptions {
    mkstream: bool,
    entries_read: Option<u64>,
}

impl GroupOptions {
    fn parse(args: Args<'_>, creates: bool) -> Result<GroupOptions, CommandError> {
        let mut options = GroupOptions::default();
        let mut cursor = args.cursor(5);
        while !cursor.is_done() {
            if creates && cursor.flag("MKSTREAM") {
                options.mkstream = true;
            } else if cursor.remaining() > 1 && cursor.flag("ENTRIESREAD") {
                options.entries_read = match cursor.integer()? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| {
                        CommandError::new("ERR value for ENTRIESREAD must be positive or -1")
                    })?),
                };
            } else {
                return Err(misplaced(args));
            }
        }
        Ok(options)
    }
}

const NO_KEY: CommandError = CommandError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
     option to create an empty stream automatically.",
);

/// `-NOGROUP No such consumer group 'g' for key name 'k'`
pub(super) fn no_group_of(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (shown(key), shown(group));
    CommandError::owned(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The last ID of the stream, which must have the group.
fn last_id_with_group(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Id, CommandError> {
    let stream = ctx.edit(args[2]).existing::<Stream>()?.ok_or(NO_KEY)?;
    match stream.group(args[3]) {
        Some(_) => Ok(stream.meta().last_id),
        None => Err(no_group_of(args[2], args[3])),
    }
}

fn create(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let GroupOptions { mkstream, entries_read } = GroupOptions::parse(args, true)?;
    let held = ctx.edit(args[2]).existing::<Stream>()?;
    let held = held.map(|stream| (stream.meta().last_id, stream.group(args[3]).is_some()));
    if held.is_none() && !mkstream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(misplaced(args));
    }
    let id = match args[4] {
        b"$" => held.map_or(Id::MIN, |(last_id, _)| last_id),
        text => id_of(text)?,
    };
    if held.is_some_and(|(_, has_group)| has_group) {
        return Err(CommandError::new("BUSYGROUP Consumer Group name already exists"));
    }
    let mut stream = ctx.edit(args[2]).or_create::<Stream>()?;
    stream.set_group(args[3], id, entries_read);
    stream.note_event("xgroup-create");
    drop(stream);
    ctx.out.ok();
    Ok(())
}

fn set_id(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let GroupOptions { entries_read, .. } = GroupOptions::parse(args, false)?;
    let last_id = last_id_with_group(ctx, args)?;
    if args.len() != 5 && args.len() != 7 {
        return Err(misplaced(args));
    }
    let id = if args[4] == b"$" { last_id } else { loose_id(args[4], 0)? };
    if let Some(mut stream) = ctx.edit(args[2]).existing::<Stream>()? {
        stream.set_group(args[3], id, entries_read);
        stream.note_event("xgroup-setid");
    }
    ctx.out.ok();
    Ok(())
}

fn destroy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut stream = ctx.edit(args[2]).existing::<Stream>()?.ok_or(NO_KEY)?;
    let removed = stream.remove_group(args[3]);
    if removed {
        stream.note_event("xgroup-destroy");
    }
    drop(stream);
    ctx.out.count(usize::from(removed));
    Ok(())
}

fn create_consumer(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    last_id_with_group(ctx, args)?;
    let now_ms = ctx.now_ms.cast_signed();
    let mut created = false;
    if let Some(mut stream) = ctx.edit(args[2]).existing::<Stream>()? {
        created = stream.group(args[3]).is_some_and(|group| group.consumer(args[4]).is_none());
        if created {
            stream.see(args[3], args[4], now_ms);
        }
    }
    ctx.out.count(usize::from(created));
    Ok(())
}

fn delete_consumer(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    last_id_with_group(ctx, args)?;
    let mut removed = None;
    if let Some(mut stream) = ctx.edit(args[2]).existing::<Stream>()? {
        removed = stream.remove_consumer(args[3], args[4]);
        if removed.is_some() {
            stream.note_event("xgroup-delconsumer");
        }
    }
    ctx.out.count(removed.unwrap_or(0));
    Ok(())
}
