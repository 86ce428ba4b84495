//! FCALL, FCALL_RO, FUNCTION.

use std::sync::Arc;

use store_engine::reply;
use store_engine::spec::{Access, flags};
use store_engine::{Args, Arity, Command, CommandError, Group, KeyPart, Reply, Routing, glob, rdb};
use tracing::info;

use super::script::{key_count, program_call};
use crate::acl::limits::UserLimits;
use crate::admission::Admitted;
use crate::config::Config;
use crate::scripting::{self, Program, ScriptCall, records};
use crate::scripts::Scripting;
use crate::scripts::functions::{Function, Libraries, Library, Outline};
use crate::server::{AsyncHandler, Handler, ScriptSource, Server, SessionCommand, gateways};
use crate::session::Session;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "fcall",
            keys: &[KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Write }],
            access: Access::Write,
            summary: "Invokes a function.",
            ..FCALL
        },
        run: Handler::Script { source: ScriptSource::Function, read_only: false },
    },
    SessionCommand {
        spec: Command {
            name: "fcall_ro",
            keys: &[KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Read }],
            summary: "Invokes a read-only function.",
            ..FCALL
        },
        run: Handler::Script { source: ScriptSource::Function, read_only: true },
    },
    SessionCommand {
        spec: Command {
            name: "function",
            summary: "A container for function commands.",
            complexity: "Depends on subcommand.",
            arity: Arity::AtLeast(2),
            flags: 0,
            subcommands: FUNCTION,
            help: HELP,
            ..FUNCTIONS
        },
        run: Handler::Async(AsyncHandler {
            untouching: &["dump", "help", "kill", "list", "stats"],
            ..AsyncHandler::new(|server, session, args, out| Box::pin(function(server, session, args, out)))
        }),
    },
];

const FUNCTIONS: Command = Command {
    since: "7.0.0",
    group: Group::Scripting,
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::NO_SCRIPT,
    routing: Routing::Anywhere,
    syntax: "",
    ..Command::BASE
};

const FCALL: Command = Command {
    arity: Arity::AtLeast(3),
    flags: flags::NO_SCRIPT | flags::MOVABLE_KEYS,
    complexity: "Depends on the function that is executed.",
    syntax: "function numkeys:int key...? arg...?",
    ..FUNCTIONS
};

/// What FUNCTION HELP shows.
const HELP: &str = "\
LOAD [REPLACE] <FUNCTION CODE>
    Create a new library with the given library name and code.
DELETE <LIBRARY NAME>
    Delete the given library.
LIST [LIBRARYNAME PATTERN] [WITHCODE]
    Return general information on all the libraries:
    * Library name
    * The engine used to run the Library
    * Library description
    * Functions list
    * Library code (if WITHCODE is given)
    It also possible to get only function that matches a pattern using LIBRARYNAME argument.
STATS
    Return information about the current function running:
    * Function name
    * Command used to run the function
    * Duration in MS that the function is running
    If no function is running, return nil
    In addition, returns a list of available engines.
KILL
    Kill the current running function.
FLUSH [ASYNC|SYNC]
    Delete all the libraries.
    When called without the optional mode argument, the behavior is determined by the
    lazyfree-lazy-user-flush configuration directive. Valid modes are:
    * ASYNC: Asynchronously flush the libraries.
    * SYNC: Synchronously flush the libraries.
DUMP
    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command
RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]
    Restore the libraries represented by the given payload, it is possible to give a restore policy to
    control how to handle existing libraries (default APPEND):
    * FLUSH: delete all existing libraries.
    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.
    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old
      libraries with the new libraries (notice that even on this option there is a chance of failure
      in case of functions name collision with another library).";

static FUNCTION: &[Command] = &[
    Command {
        name: "delete",
        arity: Arity::Exactly(3),
        access: Access::Write,
        summary: "Deletes a library and its functions.",
        syntax: "library-name",
        ..FUNCTIONS
    },
    Command {
        name: "dump",
        summary: "Dumps all libraries into a serialized binary payload.",
        complexity: "O(N) where N is the number of functions",
        ..FUNCTIONS
    },
    Command {
        name: "flush",
        arity: Arity::AtLeast(2),
        access: Access::Write,
        summary: "Deletes all libraries and functions.",
        complexity: "O(N) where N is the number of functions deleted",
        syntax: "async(ASYNC | SYNC)?",
        ..FUNCTIONS
    },
    Command { name: "help", summary: "Returns helpful text about the different subcommands.", ..FUNCTIONS },
    Command { name: "kill", summary: "Terminates functions during execution.", ..FUNCTIONS },
    Command {
        name: "list",
        arity: Arity::AtLeast(2),
        summary: "Returns information about all libraries.",
        complexity: "O(N) where N is the number of functions",
        syntax: "LIBRARYNAME=library-name-pattern? WITHCODE?",
        ..FUNCTIONS
    },
    Command {
        name: "load",
        arity: Arity::AtLeast(3),
        access: Access::Write,
        flags: flags::NO_SCRIPT | flags::DENY_OOM,
        summary: "Creates a library.",
        complexity: "O(1) (considering compilation time is redundant)",
        syntax: "REPLACE? function-code",
        ..FUNCTIONS
    },
    Command {
        name: "restore",
        arity: Arity::AtLeast(3),
        access: Access::Write,
        flags: flags::NO_SCRIPT | flags::DENY_OOM,
        summary: "Restores all libraries from a payload.",
        complexity: "O(N) where N is the number of functions on the payload",
        syntax: "serialized-value policy(FLUSH | APPEND | REPLACE)?",
        ..FUNCTIONS
    },
    Command { name: "stats", summary: "Returns information about a function during execution.", ..FUNCTIONS },
];

/// Finds the function that an FCALL means, and what it is called with.
pub fn function_call<'a>(
    server: &Server,
    session: &mut Session,
    admitted: &Admitted<'a>,
    read_only: bool,
) -> Result<ScriptCall<'a>, CommandError> {
    let function = server
        .scripting
        .functions
        .get(admitted.args()[1])
        .ok_or(CommandError::new("ERR Function not found"))?;
    let count = key_count(admitted).map_err(|error| {
        let bad = CommandError::new("ERR Bad number of keys provided");
        if error == store_engine::error::NOT_AN_INTEGER { bad } else { error }
    })?;
    program_call(server, session, admitted, Program::Function(function), count, read_only)
}

/// FUNCTION and its subcommands.
async fn function(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"load" => load(server, session, args, out).await,
        b"restore" => restore(server, session, args, out).await,
        _ => manage(server, args, out).await,
    }
}

/// Changes the libraries, and what of them outlives the process.
async fn change(
    server: &Server,
    change: impl FnOnce(&mut Libraries) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    // The record has to be that of the last change.
    let _script_permit = server.scripting.loading.lock().await;
    if server.store.is_shared() {
        reload_libraries(server).await?;
    }
    let before = server.scripting.functions.libraries();
    server.scripting.functions.change(change)?;
    let kept = records::keep_libraries(&server.store, &before, &server.scripting.functions.libraries()).await;
    if kept.is_err() {
        server.scripting.functions.replace(before);
    }
    kept
}

/// Makes the libraries those that are kept. Those that this version refuses are named in the log and stay where they
/// are.
pub async fn reload_libraries(server: &Server) -> Result<(), CommandError> {
    let known = server.scripting.functions.libraries();
    let mut libraries = Libraries::default();
    for (name, text) in server.store.records(records::LIBRARY).await? {
        let held = known.all().find(|library| library.name.as_bytes() == name && *library.text == *text);
        let library = match held {
            Some(library) => Ok(library.clone()),
            None => load_again(server, &text).await,
        };
        if let Err(error) = library.and_then(|library| libraries.add(library)) {
            let name = String::from_utf8_lossy(&name);
            info!("cannot reload the library {name} from the catalog: {}", error.text());
        }
    }
    server.scripting.functions.replace(Arc::new(libraries));
    Ok(())
}

/// As Redis names a library that is in the way when one is made of its text.
fn in_the_way(name: &str) -> CommandError {
    CommandError::owned(format!("ERR Library '{name}' already exists"))
}

async fn load(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let (text, options) = args.rest(2).split_last().expect("the arity asks for a text");
    if let Some(other) = options.iter().find(|option| !option.eq_ignore_ascii_case(b"replace")) {
        let other = String::from_utf8_lossy(other);
        return Err(CommandError::owned(format!("ERR Unknown option given: {other}")));
    }
    let replace = !options.is_empty();
    let outline = Outline::parse(text)?;
    if !replace && server.scripting.functions.libraries().has(&outline.name) {
        return Err(in_the_way(&outline.name));
    }
    // No call of it would be allowed.
    server.acl.budget_for(&outline.options, &UserLimits::default())?;
    let library = Arc::new(scripting::load_library(server, Some(session), &outline).await?);
    change(server, |libraries| {
        // Somebody may have been quicker while this one was loaded.
        if libraries.has(&outline.name) && !replace {
            return Err(in_the_way(&outline.name));
        }
        libraries.remove(&outline.name);
        libraries.add(library)?;
        refuse_too_many_bytes(&server.config, libraries)
    })
    .await?;
    out.bulk(outline.name.as_bytes());
    Ok(())
}

/// An error if the libraries occupy more memory than they may.
fn refuse_too_many_bytes(config: &Config, libraries: &Libraries) -> Result<(), CommandError> {
    let (held, most) = (libraries.bytes(), config.script_cache_max_bytes.get_usize());
    if held <= most {
        return Ok(());
    }
    Err(CommandError::owned(format!(
        "SCRIPTLIMIT cache: libraries would use {held} bytes; the limit of {most} bytes is set by \
         script-cache-max-bytes"
    )))
}

/// A library that was loaded before.
async fn load_again(server: &Server, text: &[u8]) -> Result<Arc<Library>, CommandError> {
    Ok(Arc::new(scripting::load_library(server, None, &Outline::parse(text)?).await?))
}

/// What FUNCTION RESTORE does with the libraries that are there.
#[derive(Clone, Copy, PartialEq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

async fn restore(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(wrong_call(args));
    }
    let policy = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"append") => Policy::Append,
        Some(b"replace") => Policy::Replace,
        Some(b"flush") => Policy::Flush,
        Some(_) => {
            return Err(CommandError::new(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let body = rdb::unseal(args[2]).ok_or(rdb::WRONG_SEAL)?.body;
    // A text that is longer could not be loaded either; a packed one might be much longer than it looks.
    let mut decoder = rdb::Decoder::limited(body, server.config.budget().memory_bytes as u64);
    let mut restored = Libraries::default();
    while let Ok(kind) = decoder.byte() {
        if kind != rdb::LIBRARY {
            return Err(CommandError::new("ERR given type is not a function"));
        }
        let text = decoder.owned();
        let text = text.map_err(|_| CommandError::new("ERR Failed loading library payload"))?;
        let outline = Outline::parse(&text)?;
        if restored.has(&outline.name) {
            return Err(in_the_way(&outline.name));
        }
        restored.add(Arc::new(scripting::load_library(server, Some(session), &outline).await?))?;
        refuse_too_many_bytes(&server.config, &restored)?;
    }
    change(server, |libraries| {
        if policy == Policy::Flush {
            *libraries = restored;
            return Ok(());
        }
        for Library { name, .. } in restored.all().map(|library| &**library) {
            if libraries.has(name) && policy == Policy::Append {
                return Err(CommandError::owned(format!("ERR Library {name} already exists")));
            }
            libraries.remove(name);
        }
        restored.all().try_for_each(|library| libraries.add(library.clone()))?;
        refuse_too_many_bytes(&server.config, libraries)
    })
    .await?;
    out.ok();
    Ok(())
}

fn wrong_call(args: Args<'_>) -> CommandError {
    let word = String::from_utf8_lossy(args[1]);
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{word}'. Try FUNCTION HELP."
    ))
}

async fn manage(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"delete" => {
            change(server, |libraries| {
                let removed = std::str::from_utf8(args[2]).is_ok_and(|name| libraries.remove(name));
                if removed { Ok(()) } else { Err(CommandError::new("ERR Library not found")) }
            })
            .await?;
            out.ok();
        }
        b"flush" => {
            if args.len() > 3 {
                return Err(wrong_call(args));
            }
            let mode = args.get(2).map(<[u8]>::to_ascii_lowercase);
            if mode.is_some_and(|mode| !matches!(&*mode, b"sync" | b"async")) {
                return Err(CommandError::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            change(server, |libraries| {
                *libraries = Libraries::default();
                Ok(())
            })
            .await?;
            out.ok();
        }
        b"list" => list(&server.scripting, args, out)?,
        b"dump" => {
            let mut payload = Vec::new();
            for library in server.scripting.functions.libraries().all() {
                payload.push(rdb::LIBRARY);
                rdb::write_string(&mut payload, &library.text).expect("memory takes everything");
            }
            rdb::seal(&mut payload);
            out.bulk(&payload);
        }
        b"stats" => stats(&server.scripting, out),
        b"kill" => {
            if gateways::kill(server, true, None).await? == 0 {
                return Err(CommandError::new("NOTBUSY No scripts in execution right now."));
            }
            out.ok();
        }
        _ => reply::help(out, "FUNCTION", HELP),
    }
    Ok(())
}

fn list(scripting: &Scripting, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    let (mut pattern, mut with_code) = (None, false);
    while let Some(word) = cursor.peek() {
        if !with_code && cursor.flag("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && cursor.flag("LIBRARYNAME") {
            let given = cursor.bytes();
            let given = given.map_err(|_| CommandError::new("ERR library name argument was not given"))?;
            pattern = Some(given.to_ascii_lowercase());
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(CommandError::owned(format!("ERR Unknown argument {word}")));
        }
    }
    let libraries = scripting.functions.libraries();
    let wanted = |library: &&Arc<Library>| {
        let name = library.name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name.as_bytes()))
    };
    out.array_of(|out| {
        libraries
            .all()
            .filter(wanted)
            .map(|library| {
                out.map(if with_code { 4 } else { 3 });
                out.bulk(b"library_name");
                out.bulk(library.name.as_bytes());
                out.bulk(b"engine");
                out.bulk(b"LUA");
                out.bulk(b"functions");
                out.array(library.functions.len());
                library.functions.iter().for_each(|function| describe(function, out));
                if with_code {
                    out.bulk(b"library_code");
                    out.bulk(&library.text);
                }
            })
            .count()
    });
    Ok(())
}

fn describe(function: &Function, out: &mut Reply) {
    out.map(3);
    out.bulk(b"name");
    out.bulk(function.name.as_bytes());
    out.bulk(b"description");
    out.optional(function.description.as_deref());
    out.bulk(b"flags");
    out.set(function.flags.names().count());
    function.flags.names().for_each(|flag| out.status(flag));
}

fn stats(scripting: &Scripting, out: &mut Reply) {
    out.map(2);
    out.bulk(b"running_script");
    // Those that run are listed as they began.
    let runs = scripting.runs.list();
    match runs.iter().find_map(|run| Some((run, run.who.function.as_ref()?))) {
        None => out.null(),
        Some((run, call)) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(run.who.name.as_bytes());
            out.bulk(b"command");
            out.array(call.len());
            call.iter().for_each(|word| out.bulk(word));
            out.bulk(b"duration_ms");
            out.count(run.since.elapsed().as_millis() as usize);
        }
    }
    let (libraries, functions) = scripting.functions.libraries().counts();
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.count(libraries);
    out.bulk(b"functions_count");
    out.count(functions);
}
