//! MODULE: there are no modules.

use store_engine::reply::help;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{Handler, SessionCommand};

/// The row.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "module",
        arity: Arity::AtLeast(2),
        summary: "A container for module commands.",
        complexity: "Depends on subcommand.",
        syntax: "",
        flags: 0,
        subcommands: MODULE,
        help: HELP,
        ..SERVER
    },
    run: Handler::Inline(|_, _, args, out| module(args, out)),
}];

const SERVER: Command = Command { since: "4.0.0", group: Group::Server, ..CONNECTION };
const ADMIN: Command = Command { flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..SERVER };

static MODULE: &[Command] = &[
    Command {
        name: "help",
        since: "5.0.0",
        arity: Arity::Exactly(2),
        summary: "Returns helpful text about the different subcommands.",
        complexity: "O(1)",
        syntax: "",
        flags: 0,
        ..SERVER
    },
    Command {
        name: "list",
        arity: Arity::Exactly(2),
        summary: "Returns all loaded modules.",
        complexity: "O(N) where N is the number of loaded modules.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "load",
        arity: Arity::AtLeast(3),
        summary: "Loads a module.",
        complexity: "O(1)",
        syntax: "path:string arg:string...?",
        ..ADMIN
    },
    Command {
        name: "loadex",
        since: "7.0.0",
        arity: Arity::AtLeast(3),
        summary: "Loads a module using extended parameters.",
        complexity: "O(1)",
        syntax: "path:string CONFIG=configs(name:string value:string)...+? ARGS=args(arg:string)...?",
        ..ADMIN
    },
    Command {
        name: "unload",
        arity: Arity::Exactly(3),
        summary: "Unloads a module.",
        complexity: "O(1)",
        syntax: "name:string",
        ..ADMIN
    },
];

/// What MODULE HELP shows.
const HELP: &str = "\
LIST
    Return a list of loaded modules.
LOAD <path> [<arg> ...]
    Load a module library from <path>, passing to it any optional arguments.
LOADEX <path> [[CONFIG NAME VALUE]...] [ARGS ...]
    Load a module library from <path>, while passing it module configurations and optional arguments.
UNLOAD <name>
    Unload a module.";

fn module(args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"help" => help(out, "MODULE", HELP),
        b"list" => out.array(0),
        _ => return Err(CommandError::new("ERR Modules are not available on this server")),
    }
    Ok(())
}
