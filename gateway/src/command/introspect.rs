//! COMMAND and its subcommands: the table of commands, shown to clients.

mod tips;

use store_engine::command::resolve;
use store_engine::keys::keys_of;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply, glob};

use super::connection::CONNECTION;
use crate::facts::{categories, flag_names, key_specs, legacy_range};
use crate::registry::{SessionCommand, SessionRun};
use crate::server::Server;
use crate::session::Session;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    facts: Command {
        name: "command",
        since: "2.8.13",
        arity: Arity::AtLeast(1),
        flags: flags::RANDOM,
        summary: "Returns detailed information about all commands.",
        complexity: "O(N) where N is the total number of commands",
        syntax: "[COUNT | DOCS | GETKEYS | INFO | LIST]",
        ..SERVER
    },
    run: SessionRun::Now(command),
}];

const SERVER: Command = Command { group: Group::Server, ..CONNECTION };

fn command(server: &Server, _: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let Some(word) = args.get(1) else {
        all(server, out);
        return Ok(());
    };
    match &*word.to_ascii_lowercase() {
        b"count" if args.len() == 2 => out.count(server.registry.names().len()),
        b"info" if args.len() == 2 => all(server, out),
        b"info" => {
            out.array(args.len() - 2);
            args.rest(2).iter().for_each(|name| info(server, name, out));
        }
        b"docs" => docs(server, args, out),
        b"list" => list(server, args, out)?,
        // Four as in Redis, although there are calls of one word.
        b"getkeys" if args.len() >= 4 => getkeys(server, args, out)?,
        b"help" if args.len() == 2 => super::help(
            out,
            "COMMAND",
            &[
                ("(no subcommand)", "Return details about all commands."),
                ("COUNT", "Return the total number of commands in this server."),
                ("DOCS [<command-name> ...]", "Return documentation details about multiple commands."),
                ("GETKEYS <full-command>", "Return the keys from a full command."),
                ("INFO [<command-name> ...]", "Return details about multiple commands."),
                ("LIST", "Return a list of all commands in this server."),
            ],
        ),
        b"count" | b"getkeys" | b"help" => {
            let name = format!("command|{}", String::from_utf8_lossy(word).to_lowercase());
            return Err(store_engine::error::wrong_arity(&name));
        }
        _ => {
            let word = String::from_utf8_lossy(word);
            return Err(CommandError::owned(format!("ERR unknown subcommand '{word}'. Try COMMAND HELP.")));
        }
    }
    Ok(())
}

fn all(server: &Server, out: &mut Reply) {
    let names = server.registry.names();
    out.array(names.len());
    names.iter().for_each(|name| info(server, name.as_bytes(), out));
}

fn info(server: &Server, name: &[u8], out: &mut Reply) {
    match named(server, name) {
        None => out.null(),
        Some((name, facts)) => info_of(server, facts, &name, out),
    }
}

/// The command of this name, or the subcommand: `config|get`.
fn named(server: &Server, name: &[u8]) -> Option<(String, &'static Command)> {
    let name = name.to_ascii_lowercase();
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let container = server.registry.lookup(words.next()?)?.facts();
    match words.next() {
        None => Some((container.name.to_owned(), container)),
        Some(_) => subcommands(server, container).into_iter().find(|(full, _)| full.as_bytes() == name),
    }
}

/// The subcommands of a container, with their full names.
fn subcommands(server: &Server, command: &Command) -> Vec<(String, &'static Command)> {
    let own = command.subcommands.iter().map(|sub| (format!("{}|{}", command.name, sub.name), sub));
    own.chain(server.registry.inners(command.name).map(|sub| (sub.name.to_owned(), sub))).collect()
}

fn info_of(server: &Server, command: &Command, name: &str, out: &mut Reply) {
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
    out.array(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    key_specs(command, name, out);
    let subcommands = subcommands(server, command);
    out.array(subcommands.len());
    for (name, sub) in subcommands {
        info_of(server, sub, &name, out);
    }
}

fn docs(server: &Server, args: Args<'_>, out: &mut Reply) {
    let names = server.registry.names();
    let rows: Vec<(String, &'static Command)> = match args.rest(2) {
        [] => names.iter().filter_map(|name| named(server, name.as_bytes())).collect(),
        names => names.iter().filter_map(|name| named(server, name)).collect(),
    };
    out.map(rows.len());
    for (name, row) in rows {
        docs_of(server, row, &name, out);
    }
}

fn docs_of(server: &Server, command: &Command, name: &str, out: &mut Reply) {
    let subcommands = subcommands(server, command);
    out.bulk(name.as_bytes());
    out.map(5 + usize::from(!subcommands.is_empty()));
    for (field, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
        ("syntax", command.syntax),
    ] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
    if !subcommands.is_empty() {
        out.bulk(b"subcommands");
        out.map(subcommands.len());
        for (name, sub) in subcommands {
            docs_of(server, sub, &name, out);
        }
    }
}

fn list(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    let rows = server.registry.names().iter().filter_map(|name| named(server, name.as_bytes()));
    let mut rows: Vec<(String, &'static Command)> =
        rows.flat_map(|row| [vec![row.clone()], subcommands(server, row.1)].concat()).collect();
    if cursor.flag("FILTERBY") {
        if cursor.flag("PATTERN") {
            let pattern = cursor.bytes()?.to_ascii_lowercase();
            rows.retain(|(name, _)| glob::matches(&pattern, name.as_bytes()));
        } else if cursor.flag("ACLCAT") {
            let wanted = format!("@{}", String::from_utf8_lossy(cursor.bytes()?).to_lowercase());
            rows.retain(|(_, facts)| categories(facts).contains(&wanted));
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

fn getkeys(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let call = Args::new(args.rest(2));
    let row = server.registry.lookup(call.name());
    let facts = row.and_then(|row| resolve(row.facts(), call));
    let facts = facts.ok_or(CommandError::new("ERR Invalid command specified"))?;
    if facts.keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    const INVALID: CommandError = CommandError::new("ERR Invalid number of arguments specified for command");
    if !facts.arity.allows(call.len()) {
        return Err(INVALID);
    }
    let keys =
        keys_of(facts, call).map_err(|_| CommandError::new("ERR Invalid arguments specified for command"))?;
    if keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    out.array(keys.len());
    keys.iter().for_each(|&(at, _)| out.bulk(call[at]));
    Ok(())
}
