//! EVAL and its relatives, SCRIPT.

use std::sync::Arc;
use std::time::Instant;

use script::Script;
use store::spans::Part;
use store_engine::keys::keys_of;
use store_engine::reply;
use store_engine::spec::{Access, flags};
use store_engine::{Args, Arity, Command, CommandError, Group, KeyPart, Reply, Routing, error, number};

use crate::admission::{self, Admitted};
use crate::scripting::{self, Program, ScriptCall, records};
use crate::scripts::Scripting;
use crate::scripts::cache::{Known, Sha, parse_sha, sha_of};
use crate::scripts::header::Header;
use crate::scripts::options::{BadOption, Flags, Options};
use crate::server::{AsyncHandler, Handler, ScriptSource, Server, SessionCommand, gateways, memory};
use crate::session::Session;
use crate::telemetry::Telemetry;
use crate::telemetry::script_stats::Stats;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    eval_row("eval", "2.6.0", "Executes a server-side Lua script.", ScriptSource::Text, false),
    eval_row(
        "evalsha",
        "2.6.0",
        "Executes a server-side Lua script by SHA1 digest.",
        ScriptSource::Digest,
        false,
    ),
    eval_row("eval_ro", "7.0.0", "Executes a read-only server-side Lua script.", ScriptSource::Text, true),
    eval_row(
        "evalsha_ro",
        "7.0.0",
        "Executes a read-only server-side Lua script by SHA1 digest.",
        ScriptSource::Digest,
        true,
    ),
    SessionCommand {
        spec: Command {
            name: "script",
            summary: "A container for Lua scripts management commands.",
            complexity: "Depends on subcommand.",
            syntax: "",
            arity: Arity::AtLeast(2),
            subcommands: SCRIPT,
            help: HELP,
            ..SCRIPTING
        },
        run: Handler::Async(AsyncHandler {
            untouching: &["debug", "exists", "help", "kill", "latency", "list", "running", "show", "stats"],
            ..AsyncHandler::new(|server, session, args, out| Box::pin(script(server, session, args, out)))
        }),
    },
];

const SCRIPTING: Command = Command {
    since: "2.6.0",
    group: Group::Scripting,
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::NO_SCRIPT,
    routing: Routing::Anywhere,
    ..Command::BASE
};

const fn eval_row(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    source: ScriptSource,
    read_only: bool,
) -> SessionCommand {
    const READ: &[KeyPart] = &[KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Read }];
    const WRITE: &[KeyPart] = &[KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Write }];
    let syntax = match source {
        ScriptSource::Text => "script numkeys:int key...? arg...?",
        _ => "sha1 numkeys:int key...? arg...?",
    };
    SessionCommand {
        spec: Command {
            name,
            since,
            arity: Arity::AtLeast(3),
            keys: if read_only { READ } else { WRITE },
            access: if read_only { Access::Read } else { Access::Write },
            flags: flags::NO_SCRIPT | flags::MOVABLE_KEYS,
            summary,
            complexity: "Depends on the script that is executed.",
            syntax,
            ..SCRIPTING
        },
        run: Handler::Script { source, read_only },
    }
}

const fn sub(name: &'static str, arity: Arity, summary: &'static str, syntax: &'static str) -> Command {
    Command { name, arity, summary, syntax, ..SCRIPTING }
}

/// What SCRIPT HELP shows.
const HELP: &str = "\
EXISTS <sha1> [<sha1> ...]
    Return information about the existence of the scripts in the script cache.
FLUSH [ASYNC|SYNC]
    Flush the Lua scripts cache. Very dangerous on replicas.
    When called without the optional mode argument, the behavior is determined by the
    lazyfree-lazy-user-flush configuration directive. Valid modes are:
    * ASYNC: Asynchronously flush the scripts cache.
    * SYNC: Synchronously flush the scripts cache.
KILL
    Kill the currently executing Lua script.
LOAD <script>
    Load a script into the scripts cache without executing it.
FLAGS <sha1> [<flag> ...]
    Add flags and options to a script, which need not be loaded; without arguments, return them.
KILL <sha1> | CLIENT <client-id>
    Kill the runs of a script, or the run of a client. Their writes are rolled back.
LATENCY
    Return the latencies of the runs of each script.
LIST
    Return the digest and text of each script.
RUNNING
    Return the scripts that are running or waiting for locks.
SHOW <sha1>
    Return the text of a script.
STATS [<sha1> | RESET]
    Return statistics of the runs of a script or of all scripts, or reset them.";

static SCRIPT: &[Command] = &[
    sub("exists", Arity::AtLeast(3), "Determines whether server-side Lua scripts exist.", "sha1..."),
    sub(
        "flush",
        Arity::AtLeast(2),
        "Removes all server-side Lua scripts from the script cache.",
        "async(ASYNC | SYNC)@6.2.0?",
    ),
    sub("flags", Arity::AtLeast(3), "Adds flags and options to a server-side Lua script.", "sha1 flag...?"),
    Command {
        since: "5.0.0",
        ..sub("help", Arity::Exactly(2), "Returns helpful text about the different subcommands.", "")
    },
    sub(
        "kill",
        Arity::AtLeast(2),
        "Terminates server-side Lua scripts during execution.",
        "which(sha1 | CLIENT=client-id:int)?",
    ),
    sub(
        "latency",
        Arity::Exactly(2),
        "Returns the latencies of the runs of each server-side Lua script.",
        "",
    ),
    Command {
        since: "3.2.0",
        complexity: "O(1)",
        ..sub(
            "debug",
            Arity::Exactly(3),
            "Sets the debug mode of server-side Lua scripts.",
            "mode(YES | SYNC | NO)",
        )
    },
    sub("list", Arity::Exactly(2), "Lists the server-side Lua scripts.", ""),
    sub("running", Arity::Exactly(2), "Lists the server-side Lua scripts that are running.", ""),
    sub("show", Arity::Exactly(3), "Returns the text of a server-side Lua script.", "sha1"),
    sub(
        "stats",
        Arity::AtLeast(2),
        "Returns statistics of the runs of a server-side Lua script, or of all of them.",
        "which(sha1 | RESET)?",
    ),
    sub("load", Arity::Exactly(3), "Loads a server-side Lua script to the script cache.", "script"),
];

/// Another gateway may have loaded a script that is not known here.
pub(super) async fn find_remote(server: &Server, sha: &[u8]) {
    let Some(digest) = parse_sha(sha) else { return };
    if server.scripting.cache.get(&digest).is_some() {
        return;
    }
    let name = [records::SCRIPT, &*sha.to_ascii_lowercase()].concat();
    if let Ok(records) = server.store.records(&name).await
        && let Some((_, text)) = records.first()
        && sha_of(text) == digest
    {
        // What does not compile here is as good as unknown.
        let _ = reload_script(server, text).await;
    }
}

/// Makes a script known that was loaded before, or elsewhere. Whoever needs it now has not asked for that.
pub async fn reload_script(server: &Server, text: &[u8]) -> Result<(), CommandError> {
    let script = compiled(server, None, text).await?;
    server.scripting.cache.pin(text, &script).map(drop)
}

/// Finds the script of this digest that an EVAL call means, and what it is called with.
pub(super) fn script_call<'a>(
    server: &Server,
    session: &mut Session,
    admitted: &Admitted<'a>,
    sha: Option<Sha>,
    by_sha: bool,
    read_only: bool,
) -> Result<ScriptCall<'a>, CommandError> {
    const UNKNOWN: CommandError = CommandError::new("NOSCRIPT No matching script. Please use EVAL.");
    let args = admitted.args();
    let sha = sha.ok_or(UNKNOWN)?;
    // First, so that a call that is wrong keeps no script.
    let count = key_count(admitted)?;
    let known = if by_sha {
        server.scripting.cache.get(&sha).ok_or(UNKNOWN)?
    } else {
        server.scripting.cache.get_or_add(sha, args[1])?
    };
    program_call(server, session, admitted, Program::Script(known), count, read_only)
}

/// What a script or function is called with, of whose arguments `count` are keys. `read_only`: it may not write.
pub(super) fn program_call<'a>(
    server: &Server,
    session: &mut Session,
    admitted: &Admitted<'a>,
    program: Program,
    count: usize,
    read_only: bool,
) -> Result<ScriptCall<'a>, CommandError> {
    let (keys, args) = admitted.args().rest(3).split_at(count);
    session.seed = session.seed.wrapping_add(1);
    let (own, suits_read_only, says) = match &program {
        Program::Script(known) => (known.options, known.header.suits_read_only(), known.header.shebang),
        Program::Function(function) => (Options { flags: function.flags, ..function.options }, false, true),
    };
    let mut options = session.overrides.options.over(own).or_configured(&server.config);
    let is_read_only = options.flags.has(Flags::NO_WRITES);
    if read_only && !is_read_only && !suits_read_only {
        return Err(CommandError::new("ERR Can not execute a script with write flag using *_ro command."));
    }
    let read_only = read_only || is_read_only;
    if says && !read_only {
        admission::refuse_writing_script(server, session)?;
    }
    let budget = admission::grant(&server.acl, session, &mut options, read_only)?;
    Ok(ScriptCall {
        since: session.clock.unwrap_or_else(Instant::now),
        trace: session.overrides.trace.clone(),
        span: run_span(&server.telemetry, session, &options),
        reader: super::client::tracking::reader(session, keys),
        read_only,
        budget,
        options,
        program,
        words: admitted.args().items(),
        keys,
        args,
        db: session.db,
        protocol: session.protocol,
        seed: session.seed,
        client: session.client.id,
        no_touch: session.client.no_touch(),
        account: session.limited_account(),
        in_exec: false,
        full: !options.flags.spares_memory() && memory::is_full(&server.store),
    })
}

/// The span of a run, if its request is traced or its script always is.
fn run_span(telemetry: &Telemetry, session: &mut Session, options: &Options) -> Option<Part> {
    if session.span.is_none() && options.flags.has(Flags::TRACE) {
        session.span = telemetry.spans.begin_wanted(&session.parent);
    }
    Some(telemetry.spans.scope(session.span.as_ref()?)?.part())
}

/// How many keys a call names, by its third word.
pub(super) fn key_count(admitted: &Admitted<'_>) -> Result<usize, CommandError> {
    match admitted.keys().len() {
        // Admission has found none: there is none, or the number is wrong.
        0 => Ok(keys_of(admitted.spec(), admitted.args())?.len()),
        count => Ok(count),
    }
}

/// SCRIPT and its subcommands.
async fn script(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if args[1].eq_ignore_ascii_case(b"debug") {
        return debug(session, args, out);
    }
    if args[1].eq_ignore_ascii_case(b"load") {
        out.bulk(load(server, session, args[2]).await?.sha.as_bytes());
        return Ok(());
    }
    manage(server, args, out).await
}

/// The reply to a client that wants to debug a script, and to the script that it then sends.
pub(super) const NO_DEBUGGER: CommandError = CommandError::new(
    "ERR There is no Lua debugger on this server; run the script with the flag dry-run, or step through it in the web \
     console",
);

/// SCRIPT DEBUG. redis-cli ignores the error and sends the script, which Redis would roll back and this server would keep: the
/// next script of the session is refused, too.
fn debug(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match &*args[2].to_ascii_lowercase() {
        b"no" => session.wants_debugger = false,
        b"yes" | b"sync" => {
            session.wants_debugger = true;
            return Err(NO_DEBUGGER);
        }
        _ => return Err(CommandError::new("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
    out.ok();
    Ok(())
}

/// Adds a script to those that are kept, if it compiles.
async fn load(server: &Server, session: &Session, text: &[u8]) -> Result<Arc<Known>, CommandError> {
    let script = compiled(server, Some(session), text).await?;
    let _script_permit = server.scripting.loading.lock().await;
    server.scripting.cache.has_room_for(text)?;
    records::keep_script(&server.store, text).await?;
    server.scripting.cache.pin(text, &script)
}

/// The script with this text, compiled. If it is not known yet, it still is not: an error leaves nothing behind.
async fn compiled(
    server: &Server,
    session: Option<&Session>,
    text: &[u8],
) -> Result<Arc<Script>, CommandError> {
    let script = match server.scripting.cache.get(&sha_of(text)) {
        Some(known) => known.script.clone(),
        None => server.scripting.cache.new_script(&Header::parse(text)?.1),
    };
    scripting::compile(server, session, &script).await?;
    Ok(script)
}

/// What a script's header says, if both compile. Nothing is kept of it.
pub async fn check(server: &Server, session: &Session, text: &[u8]) -> Result<Header, CommandError> {
    let (header, body) = Header::parse(text)?;
    scripting::compile(server, Some(session), &Script::new(&body)).await?;
    Ok(header)
}

async fn manage(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let word = args[1].to_ascii_lowercase();
    match &*word {
        b"exists" => {
            out.array(args.len() - 2);
            for sha in args.rest(2) {
                out.integer(i64::from(
                    parse_sha(sha).is_some_and(|sha| server.scripting.cache.get(&sha).is_some()),
                ));
            }
        }
        b"flush" => {
            let mode = args.get(2).map(<[u8]>::to_ascii_lowercase);
            if args.len() > 3 || mode.is_some_and(|mode| !matches!(&*mode, b"sync" | b"async")) {
                return Err(CommandError::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            let _script_permit = server.scripting.loading.lock().await;
            // Scripts that could not be forgotten where they are kept would be there again soon.
            records::forget_scripts(&server.store).await?;
            server.scripting.cache.flush();
            out.ok();
        }
        b"kill" => kill(server, args, out).await?,
        b"flags" => {
            let sha = parse_sha(args[2]).ok_or(error::SYNTAX)?;
            if args.len() == 3 {
                let words = server.scripting.cache.options(&sha).words();
                out.array(words.len());
                words.iter().for_each(|word| out.bulk(word.as_bytes()));
            } else {
                let _script_permit = server.scripting.loading.lock().await;
                let said = server.scripting.cache.add_flags(&sha, options(args.rest(3))?)?;
                records::keep_flags(&server.store, args[2], said).await?;
                out.ok();
            }
        }
        b"list" => {
            let all = server.scripting.cache.all();
            out.array(all.len());
            for known in all {
                out.array(2);
                out.bulk(known.sha.as_bytes());
                out.bulk(&known.text());
            }
        }
        b"running" => {
            let mut runs = server.scripting.runs.list();
            runs.retain(|run| run.who.function.is_none());
            out.array(runs.len());
            for run in runs {
                out.map(3);
                out.bulk(b"sha1");
                out.bulk(run.who.name.as_bytes());
                out.bulk(b"client-id");
                out.integer(run.who.client as i64);
                out.bulk(b"duration_ms");
                out.integer(run.since.elapsed().as_millis() as i64);
            }
        }
        b"show" => out.bulk(&find(&server.scripting, args[2])?.text()),
        b"stats" => stats(&server.scripting, args, out)?,
        b"latency" => {
            let all = server.scripting.cache.all();
            out.array(all.len());
            for known in all {
                out.array(2);
                out.bulk(known.sha.as_bytes());
                out.bulk(Stats::report(std::iter::once(&*known.stats)).latency.as_bytes());
            }
        }
        _ => reply::help(out, "SCRIPT", HELP),
    }
    Ok(())
}

fn find(scripting: &Scripting, sha: &[u8]) -> Result<Arc<Known>, CommandError> {
    let known = parse_sha(sha).and_then(|sha| scripting.cache.get(&sha));
    known.ok_or(CommandError::new("NOSCRIPT No matching script. Please use EVAL."))
}

/// Flags and options of SCRIPT FLAGS, in Dragonfly's words if they are wrong.
pub fn options(words: &[&[u8]]) -> Result<Options, CommandError> {
    let mut options = Options::default();
    for word in words {
        let word = String::from_utf8_lossy(word);
        let added = match word.split_once('=') {
            Some((key, value)) => options.set(key, value),
            None => options.add_flag(&word),
        };
        added.map_err(|bad| {
            CommandError::owned(match bad {
                BadOption::Flag(flag) => format!("ERR Invalid config format: Invalid flag: {flag}"),
                BadOption::Key(word) => format!("ERR Invalid config format: Invalid option: {word}"),
                BadOption::Value(word, expected) => {
                    format!("ERR Invalid config format: {word}, expected {expected}")
                }
            })
        })?;
    }
    Ok(options)
}

async fn kill(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let killed = match args.rest(2) {
        [] => gateways::kill(server, false, None).await?,
        [sha] => {
            gateways::kill(server, false, Some(&String::from_utf8_lossy(sha).to_ascii_lowercase())).await?
        }
        // Connections are numbered by each gateway for itself.
        [word, id] if word.eq_ignore_ascii_case(b"client") => {
            let id = number::parse_i64(id).and_then(|id| u64::try_from(id).ok());
            let id = id.ok_or(CommandError::new("ERR Invalid client ID"))?;
            server.scripting.runs.kill(|who| who.function.is_none() && who.client == id)
        }
        _ => return Err(error::SYNTAX),
    };
    if killed == 0 {
        return Err(CommandError::new("NOTBUSY No scripts in execution right now."));
    }
    out.ok();
    Ok(())
}

fn stats(scripting: &Scripting, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let report = match args.rest(2) {
        [] => Stats::report(scripting.cache.all().iter().map(|known| &*known.stats)),
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            scripting.cache.all().iter().for_each(|known| known.stats.reset());
            out.ok();
            return Ok(());
        }
        [sha] => Stats::report(std::iter::once(&*find(scripting, sha)?.stats)),
        _ => return Err(error::SYNTAX),
    };
    out.map(report.counts.len());
    for (name, value) in report.counts {
        out.bulk(name.as_bytes());
        out.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }
    Ok(())
}
