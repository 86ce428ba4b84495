//! COMMAND and its subcommands: the table of commands, shown to clients.

mod arguments;
mod tips;

use store_engine::command::resolve;
use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply, glob, syntax};

use super::rows::CONNECTION;
use crate::admission::full_name;
use crate::registry::info::{categories, flag_names, key_specs, legacy_range, used_keys};
use crate::server::{Handler, Registry, SessionCommand};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "command",
        arity: Arity::AtLeast(1),
        summary: "Returns detailed information about all commands.",
        complexity: "O(N) where N is the total number of commands",
        subcommands: COMMAND,
        help: HELP,
        ..OF_COMMANDS
    },
    run: Handler::Inline(|server, _, args, out| command(&server.registry, args, out)),
}];

const OF_COMMANDS: Command =
    Command { since: "2.8.13", group: Group::Commands, flags: flags::RANDOM, syntax: "", ..CONNECTION };

/// What COMMAND HELP shows.
const HELP: &str = "\
(no subcommand)
    Return details about all Redis commands.
COUNT
    Return the total number of commands in this Redis server.
LIST
    Return a list of all commands in this Redis server.
INFO [<command-name> ...]
    Return details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
DOCS [<command-name> ...]
    Return documentation details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
GETKEYS <full-command>
    Return the keys from a full Redis command.
GETKEYSANDFLAGS <full-command>
    Return the keys and the access flags from a full Redis command.";

static COMMAND: &[Command] = &[
    Command {
        name: "count",
        arity: Arity::Exactly(2),
        summary: "Returns a count of commands.",
        ..OF_COMMANDS
    },
    Command {
        name: "docs",
        since: "7.0.0",
        arity: Arity::AtLeast(2),
        summary: "Returns documentary information about one, multiple or all commands.",
        complexity: "O(N) where N is the number of commands to look up",
        syntax: "command-name...?",
        ..OF_COMMANDS
    },
    Command {
        name: "getkeys",
        // As in Redis, although there are calls of one word.
        arity: Arity::AtLeast(4),
        summary: "Extracts the key names from an arbitrary command.",
        complexity: "O(N) where N is the number of arguments to the command",
        ..OF_COMMANDS
    },
    Command {
        name: "getkeysandflags",
        since: "7.0.0",
        arity: Arity::AtLeast(4),
        summary: "Extracts the key names and access flags for an arbitrary command.",
        complexity: "O(N) where N is the number of arguments to the command",
        ..OF_COMMANDS
    },
    Command {
        name: "help",
        since: "5.0.0",
        arity: Arity::Exactly(2),
        summary: "Returns helpful text about the different subcommands.",
        ..OF_COMMANDS
    },
    Command {
        name: "info",
        arity: Arity::AtLeast(2),
        summary: "Returns information about one, multiple or all commands.",
        complexity: "O(N) where N is the number of commands to look up",
        syntax: "command-name...?",
        ..OF_COMMANDS
    },
    Command {
        name: "list",
        since: "7.0.0",
        arity: Arity::AtLeast(2),
        summary: "Returns a list of command names.",
        complexity: "O(N) where N is the total number of commands",
        syntax: "FILTERBY=filterby(MODULE=module-name | ACLCAT=category | PATTERN=pattern:pattern)?",
        ..OF_COMMANDS
    },
];

fn command(registry: &Registry, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match args.get(1).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None => all(registry, out),
        Some(b"count") => out.count(registry.names().len()),
        Some(b"info") if args.len() == 2 => all(registry, out),
        Some(b"info") => {
            out.array(args.len() - 2);
            args.rest(2).iter().for_each(|name| info(registry, name, out));
        }
        Some(b"docs") => docs(registry, args, out),
        Some(b"list") => list(registry, args, out)?,
        Some(b"getkeys") => {
            let call = Args::new(args.rest(2));
            let keys = used(registry, call)?;
            out.array(keys.len());
            keys.iter().for_each(|(at, _)| out.bulk(call[*at]));
        }
        Some(b"getkeysandflags") => {
            let call = Args::new(args.rest(2));
            let keys = used(registry, call)?;
            out.array(keys.len());
            for (at, uses) in keys {
                out.array(2);
                out.bulk(call[at]);
                let flags: Vec<&str> = uses.split(' ').collect();
                out.set(flags.len());
                flags.iter().for_each(|flag| out.status(flag));
            }
        }
        _ => reply::help(out, "COMMAND", HELP),
    }
    Ok(())
}

fn all(registry: &Registry, out: &mut Reply) {
    let names = registry.names();
    out.array(names.len());
    names.iter().for_each(|name| info(registry, name.as_bytes(), out));
}

fn info(registry: &Registry, name: &[u8], out: &mut Reply) {
    match named(registry, name) {
        None => out.null(),
        Some((name, spec)) => info_of(registry, spec, &name, out),
    }
}

/// The command of this name, or the subcommand: `config|get`.
fn named(registry: &Registry, name: &[u8]) -> Option<(String, &'static Command)> {
    let name = name.to_ascii_lowercase();
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let container = registry.lookup(words.next()?)?.spec();
    match words.next() {
        None => Some((container.name.to_owned(), container)),
        Some(_) => subcommands(registry, container, container.name)
            .into_iter()
            .find(|(full, _)| full.as_bytes() == name),
    }
}

/// The subcommands of a container of this full name, with their full names.
fn subcommands(registry: &Registry, command: &Command, name: &str) -> Vec<(String, &'static Command)> {
    let own = command.subcommands.iter().map(|sub| (format!("{}|{}", command.name, sub.name), sub));
    own.chain(registry.inners(name).map(|sub| (sub.name.to_owned(), sub))).collect()
}

fn info_of(registry: &Registry, command: &Command, name: &str, out: &mut Reply) {
    out.array(10);
    out.bulk(name.as_bytes());
    out.integer(command.arity.as_redis());
    let flags = flag_names(command);
    out.set(flags.len());
    flags.iter().for_each(|flag| out.status(flag));
    let (first, last, step) = legacy_range(command);
    out.integer(first);
    out.integer(last);
    out.integer(step);
    let categories = categories(command);
    out.set(categories.len());
    categories.iter().for_each(|category| out.status(category));
    let tips: Vec<&str> = tips::tips(name).collect();
    out.set(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    key_specs(command, name, out);
    let subcommands = subcommands(registry, command, name);
    match subcommands.len() {
        0 => out.set(0),
        count => out.array(count),
    }
    for (name, sub) in subcommands {
        info_of(registry, sub, &name, out);
    }
}

fn docs(registry: &Registry, args: Args<'_>, out: &mut Reply) {
    let names = registry.names();
    let rows: Vec<(String, &'static Command)> = match args.rest(2) {
        [] => names.iter().filter_map(|name| named(registry, name.as_bytes())).collect(),
        names => names.iter().filter_map(|name| named(registry, name)).collect(),
    };
    out.map(rows.len());
    for (name, row) in rows {
        docs_of(registry, row, &name, out);
    }
}

fn docs_of(registry: &Registry, command: &Command, name: &str, out: &mut Reply) {
    let subcommands = subcommands(registry, command, name);
    let arguments = syntax::parse(command.syntax);
    out.bulk(name.as_bytes());
    out.map(5 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty()));
    for (field, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
        ("syntax", &*syntax::manual(command.syntax)),
    ] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
    if !arguments.is_empty() {
        out.bulk(b"arguments");
        arguments::write(&arguments, out);
    }
    if !subcommands.is_empty() {
        out.bulk(b"subcommands");
        out.map(subcommands.len());
        for (name, sub) in subcommands {
            docs_of(registry, sub, &name, out);
        }
    }
}

fn list(registry: &Registry, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    let rows = registry.names().iter().filter_map(|name| named(registry, name.as_bytes()));
    let mut rows: Vec<(String, &'static Command)> =
        rows.flat_map(|row| [vec![row.clone()], subcommands(registry, row.1, &row.0)].concat()).collect();
    if cursor.flag("FILTERBY") {
        if cursor.flag("PATTERN") {
            let pattern = cursor.bytes()?.to_ascii_lowercase();
            rows.retain(|(name, _)| glob::matches(&pattern, name.as_bytes()));
        } else if cursor.flag("ACLCAT") {
            let wanted = format!("@{}", String::from_utf8_lossy(cursor.bytes()?).to_lowercase());
            rows.retain(|(_, spec)| categories(spec).contains(&wanted));
        } else if cursor.flag("MODULE") {
            cursor.bytes()?;
            rows.clear();
        } else {
            return Err(store_engine::error::SYNTAX);
        }
    }
    if !cursor.is_done() {
        return Err(store_engine::error::SYNTAX);
    }
    out.array(rows.len());
    rows.iter().for_each(|(name, _)| out.bulk(name.as_bytes()));
    Ok(())
}

/// Where the keys of the call behind COMMAND GETKEYS stand, each with what is done with it.
fn used(registry: &Registry, call: Args<'_>) -> Result<Vec<(usize, &'static str)>, CommandError> {
    let row = registry.find(call.name());
    let row = row.map(|found| registry.inner(found.0, call).unwrap_or(found).0.spec());
    let spec = row.and_then(|row| Some((row, resolve(row, call)?)));
    let (row, spec) = spec.ok_or(CommandError::new("ERR Invalid command specified"))?;
    if spec.keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    if !spec.arity.allows(call.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    match used_keys(spec, &full_name(row, spec), call) {
        Ok(keys) if !keys.is_empty() => Ok(keys),
        // Scripts may have none.
        _ if spec.group == Group::Scripting => Ok(Vec::new()),
        _ => Err(CommandError::new("ERR Invalid arguments specified for command")),
    }
}
