//! MONITOR and SLOWLOG.

use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{Handler, SessionCommand};
use crate::session::{Session, Sessions};
use crate::telemetry::Telemetry;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "monitor",
            flags: ADMIN.flags | flags::NO_SCRIPT,
            summary: "Listens for all requests received by the server in real-time.",
            complexity: "O(1)",
            syntax: "",
            ..ADMIN
        },
        run: Handler::Inline(|server, session, _, out| monitor(&server.sessions, session, out)),
    },
    SessionCommand {
        spec: Command {
            name: "slowlog",
            since: "2.2.12",
            arity: Arity::AtLeast(2),
            summary: "A container for slow log commands.",
            complexity: "Depends on subcommand.",
            syntax: "",
            subcommands: SLOWLOG,
            help: HELP,
            ..ADMIN
        },
        run: Handler::Inline(|server, _, args, out| slowlog(&server.telemetry, args, out)),
    },
];

const ADMIN: Command =
    Command { group: Group::Server, flags: flags::ADMIN | flags::LOADING | flags::DANGEROUS, ..CONNECTION };

/// What SLOWLOG HELP shows.
const HELP: &str = "\
GET [<count>]
    Return top <count> entries from the slowlog (default: 10, -1 mean all).
    Entries are made of:
    id, timestamp, time in microseconds, arguments array, client IP and port,
    client name
LEN
    Return the length of the slowlog.
RESET
    Reset the slowlog.";

static SLOWLOG: &[Command] = &[
    Command {
        name: "get",
        since: "2.2.12",
        arity: Arity::AtLeast(2),
        summary: "Returns the slow log's entries.",
        complexity: "O(N) where N is the number of entries returned",
        syntax: "count:int?",
        ..ADMIN
    },
    Command {
        name: "help",
        since: "6.2.0",
        arity: Arity::Exactly(2),
        flags: flags::LOADING,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "len",
        since: "2.2.12",
        arity: Arity::Exactly(2),
        summary: "Returns the number of entries in the slow log.",
        syntax: "",
        ..ADMIN
    },
    Command {
        name: "reset",
        since: "2.2.12",
        arity: Arity::Exactly(2),
        summary: "Clears all entries from the slow log.",
        complexity: "O(N) where N is the number of entries in the slowlog",
        syntax: "",
        ..ADMIN
    },
];

fn monitor(sessions: &Sessions, session: &mut Session, out: &mut Reply) -> Result<(), CommandError> {
    if !session.hears || session.in_exec {
        return Err(CommandError::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    sessions.monitors.enter(&session.client);
    session.monitors = true;
    session.client.details.lock().monitors = true;
    out.ok();
    Ok(())
}

fn slowlog(telemetry: &Telemetry, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"get" if args.len() <= 3 => {
            let wrong = CommandError::new("ERR count should be greater than or equal to -1");
            let count = match args.get(2) {
                None => 10,
                Some(_) => match args.integer(2) {
                    Ok(-1) => usize::MAX,
                    Ok(count) => usize::try_from(count).map_err(|_| wrong)?,
                    Err(_) => return Err(wrong),
                },
            };
            let newest = telemetry.slow_log.newest(count);
            out.array(newest.len());
            for slow in newest {
                out.array(6);
                out.integer(slow.id as i64);
                out.integer(slow.at as i64);
                out.integer(slow.micros as i64);
                out.array(slow.args.len());
                slow.args.iter().for_each(|arg| out.bulk(arg));
                out.bulk(slow.addr.as_bytes());
                out.bulk(slow.name.as_bytes());
            }
        }
        b"len" => out.count(telemetry.slow_log.len()),
        b"reset" => {
            telemetry.slow_log.clear();
            out.ok();
        }
        b"help" => reply::help(out, "SLOWLOG", HELP),
        _ => {
            let word = String::from_utf8_lossy(args[1]);
            return Err(CommandError::owned(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try SLOWLOG HELP."
            )));
        }
    }
    Ok(())
}
