//! CLIENT and its subcommands.

pub mod tracking;

use std::sync::Arc;
use std::time::Duration;

use store_engine::reply;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Protocol, Reply, error, number};

use super::rows::CONNECTION;
use crate::scripting;
use crate::server::{Handler, Server, SessionCommand};
use crate::session::{ClientInfo, Replies, Session, Sessions};
use crate::telemetry::counters::unix_ms;
use crate::telemetry::spans::{Parent, parse_traceparent};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "client",
        since: "2.4.0",
        arity: Arity::AtLeast(2),
        summary: "A container for client connection commands.",
        complexity: "Depends on subcommand.",
        syntax: "",
        subcommands: CLIENT,
        help: HELP,
        ..BASE
    },
    run: Handler::Inline(client),
}];

const BASE: Command = Command { flags: flags::NO_SCRIPT, ..CONNECTION };

const fn sub(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    summary: &'static str,
    syntax: &'static str,
) -> Command {
    Command { name, since, arity, summary, syntax, ..BASE }
}

/// One of those that are about other connections.
const fn admin(command: Command) -> Command {
    Command { flags: command.flags | flags::ADMIN, ..command }
}

/// What CLIENT HELP shows.
const HELP: &str = "\
CACHING (YES|NO)
    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
GETREDIR
    Return the client ID we are redirecting to when tracking is enabled.
GETNAME
    Return the name of the current connection.
ID
    Return the ID of the current connection.
INFO
    Return information about the current client connection.
KILL <ip:port>
    Kill connection made from <ip:port>.
KILL <option> <value> [<option> <value> [...]]
    Kill connections. Options are:
    * ADDR (<ip:port>|<unixsocket>:0)
      Kill connections made from the specified address
    * LADDR (<ip:port>|<unixsocket>:0)
      Kill connections made to specified local address
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Kill connections by type.
    * USER <username>
      Kill connections authenticated by <username>.
    * SKIPME (YES|NO)
      Skip killing current connection (default: yes).
    * MAXAGE <maxage>
      Kill connections older than the specified age.
LIST [options ...]
    Return information about client connections. Options:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Return clients of specified type.
UNPAUSE
    Stop the current client pause, resuming traffic.
PAUSE <timeout> [WRITE|ALL]
    Suspend all, or just write, clients for <timeout> milliseconds.
REPLY (ON|OFF|SKIP)
    Control the replies sent to the current connection.
SETNAME <name>
    Assign the name <name> to the current connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    Unblock the specified blocked client.
TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
         [OPTIN] [OPTOUT] [NOLOOP]
    Control server assisted client side caching.
TRACKINGINFO
    Report tracking status for the current connection.
MAINT_NOTIFICATIONS (ON|OFF) [MOVING-ENDPOINT-TYPE <type>]
    Be notified before the server stops.
NO-EVICT (ON|OFF)
    Protect current client connection from eviction.
NO-TOUCH (ON|OFF)
    Will not touch LRU/LFU stats when this mode is on.
SETINFO <option> <value>
    Set the name or version of the client library.
TRACEPARENT <context>
    Set the trace context of the next requests.";

static CLIENT: &[Command] = &[
    sub(
        "caching",
        "6.0.0",
        Arity::Exactly(3),
        "Instructs the server whether to track the keys in the next request.",
        "mode(YES | NO)",
    ),
    sub("getname", "2.6.9", Arity::Exactly(2), "Returns the name of the connection.", ""),
    sub(
        "getredir",
        "6.0.0",
        Arity::Exactly(2),
        "Returns the client ID to which the connection's tracking notifications are redirected.",
        "",
    ),
    sub("help", "5.0.0", Arity::Exactly(2), "Returns helpful text about the different subcommands.", ""),
    sub("id", "5.0.0", Arity::Exactly(2), "Returns the unique client ID of the connection.", ""),
    sub("info", "6.2.0", Arity::Exactly(2), "Returns information about the connection.", ""),
    admin(sub(
        "kill",
        "2.4.0",
        Arity::AtLeast(3),
        "Terminates open connections.",
        "filter(ip:port~2.8.12 | new-format(ID=client-id:int@2.8.12? | TYPE=normal_master_slave_pubsub(NORMAL | MASTER@3.2.0 | SLAVE | REPLICA@5.0.0 | PUBSUB)@2.8.12? | USER=username? | ADDR=ip:port? | LADDR=ip:port@6.2.0? | SKIPME=yes/no? | MAXAGE=maxage:int@7.4.0?)...)",
    )),
    admin(sub(
        "list",
        "2.4.0",
        Arity::AtLeast(2),
        "Lists open connections.",
        "TYPE=normal_master_replica_pubsub(NORMAL | MASTER | REPLICA | PUBSUB)@5.0.0? ID=id(client-id:int...)@6.2.0?",
    )),
    sub(
        "maint_notifications",
        "8.4.0",
        Arity::AtLeast(3),
        "Controls whether the connection is notified before the server stops. Not a command of open source Redis.",
        "enabled(ON | OFF) MOVING-ENDPOINT-TYPE=type(INTERNAL-IP | INTERNAL-FQDN | EXTERNAL-IP | EXTERNAL-FQDN | NONE)?",
    ),
    admin(sub(
        "no-evict",
        "7.0.0",
        Arity::Exactly(3),
        "Sets the client eviction mode of the connection.",
        "enabled(ON | OFF)",
    )),
    sub(
        "no-touch",
        "7.2.0",
        Arity::Exactly(3),
        "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
        "enabled(ON | OFF)",
    ),
    admin(sub(
        "pause",
        "2.9.50",
        Arity::AtLeast(3),
        "Suspends commands processing.",
        "timeout:int mode(WRITE | ALL)@6.2.0?",
    )),
    sub(
        "reply",
        "3.2.0",
        Arity::Exactly(3),
        "Instructs the server whether to reply to commands.",
        "on_off_skip(ON | OFF | SKIP)",
    ),
    sub(
        "traceparent",
        "7.0.0",
        Arity::Exactly(3),
        "Sets the trace context of the next requests of the connection. Not a Redis command.",
        "value",
    ),
    sub(
        "setinfo",
        "7.2.0",
        Arity::Exactly(4),
        "Sets information specific to the client or connection.",
        "attr(LIB-NAME=libname | LIB-VER=libver)",
    ),
    sub("setname", "2.6.9", Arity::Exactly(3), "Sets the connection name.", "connection-name"),
    sub(
        "tracking",
        "6.0.0",
        Arity::AtLeast(3),
        "Controls server-assisted client-side caching for the connection.",
        "status(ON | OFF) REDIRECT=client-id:int? PREFIX=prefix...+? BCAST? OPTIN? OPTOUT? NOLOOP?",
    ),
    sub(
        "trackinginfo",
        "6.2.0",
        Arity::Exactly(2),
        "Returns information about server-assisted client-side caching for the connection.",
        "",
    ),
    admin(sub(
        "unblock",
        "5.0.0",
        Arity::AtLeast(3),
        "Unblocks a client that is blocked by a command, from another connection.",
        "client-id:int timeout_error(TIMEOUT | ERROR)?",
    )),
    admin(sub("unpause", "6.2.0", Arity::Exactly(2), "Resumes processing commands from paused clients.", "")),
];

fn client(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"id" => out.integer(session.client.id as i64),
        b"getname" => {
            let details = session.client.details.lock();
            if details.name.is_empty() { out.null() } else { out.bulk(details.name.as_bytes()) }
        }
        b"setname" => {
            set_name(session, args[2])?;
            out.ok();
        }
        b"setinfo" => {
            set_info(session, args)?;
            out.ok();
        }
        b"info" => out.verbatim("txt", server.line_of(&session.client).as_bytes()),
        b"list" => list(server, args, out)?,
        b"kill" => kill(server, session, args, out)?,
        b"tracking" => {
            tracking::tracking(server, session, args)?;
            out.ok();
        }
        b"caching" => {
            tracking::caching(session, args[2])?;
            out.ok();
        }
        b"getredir" => out.integer(tracking::redirection(session)),
        b"trackinginfo" => tracking::info(session, out),
        b"unblock" => unblock(&server.sessions, args, out)?,
        b"traceparent" => {
            session.parent = match args[2] {
                b"" => Parent::Unknown,
                text => Parent::Caller(parse_traceparent(text).ok_or_else(|| {
                    CommandError::new(
                        "ERR traceparent must be 00-TRACE-SPAN-FLAGS as defined by W3C Trace Context, or empty",
                    )
                })?),
            };
            out.ok();
        }
        b"maint_notifications" => {
            maintenance(session, args)?;
            out.ok();
        }
        b"no-evict" => {
            session.client.details.lock().no_evict = is_on(args[2])?;
            out.ok();
        }
        b"no-touch" => {
            session.client.set_no_touch(is_on(args[2])?);
            out.ok();
        }
        b"pause" => {
            pause(server, args)?;
            out.ok();
        }
        b"unpause" => {
            server.sessions.pause.end();
            server.store.hold_expired(server.sessions.holds_expired());
            out.ok();
        }
        b"reply" => {
            session.replies = match &*args[2].to_ascii_lowercase() {
                b"on" => Replies::All,
                b"off" => Replies::None,
                b"skip" if session.replies == Replies::None => Replies::None,
                b"skip" => Replies::SkipTwo,
                _ => return Err(error::SYNTAX),
            };
            out.ok();
        }
        _ => reply::help(out, "CLIENT", HELP),
    }
    Ok(())
}

/// MAINT_NOTIFICATIONS. The type of an endpoint is taken and not needed, as no endpoint is named.
fn maintenance(session: &Session, args: Args<'_>) -> Result<(), CommandError> {
    const TYPES: [&str; 5] = ["internal-ip", "internal-fqdn", "external-ip", "external-fqdn", "none"];
    let wanted = is_on(args[2])?;
    for option in args.rest(3).chunks(2) {
        let [name, kind] = option else { return Err(error::SYNTAX) };
        let is_known = TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known.as_bytes()));
        if !name.eq_ignore_ascii_case(b"moving-endpoint-type") || !is_known {
            return Err(error::SYNTAX);
        }
    }
    if wanted && !(session.hears && session.protocol == Protocol::Resp3) {
        return Err(CommandError::new("ERR MAINT_NOTIFICATIONS needs RESP3: send HELLO 3 first"));
    }
    session.client.maintenance.set_wanted(wanted);
    Ok(())
}

fn is_on(word: &[u8]) -> Result<bool, CommandError> {
    match &*word.to_ascii_lowercase() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(error::SYNTAX),
    }
}

/// Longest name of a client, of its library, and of that library's version. CLIENT LIST, SLOWLOG and ACL LOG hold copies
/// of them.
const MOST_NAME_BYTES: usize = 1024;

/// Names the connection; the name must be plain, since CLIENT LIST separates its fields by blanks.
pub fn set_name(session: &Session, name: &[u8]) -> Result<(), CommandError> {
    if !is_plain(name) {
        return Err(CommandError::new(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    refuse_long(name, "Client names")?;
    session.client.details.lock().name = String::from_utf8_lossy(name).into_owned();
    Ok(())
}

fn refuse_long(name: &[u8], what: &str) -> Result<(), CommandError> {
    if name.len() > MOST_NAME_BYTES {
        let text = format!("ERR {what} cannot be longer than {MOST_NAME_BYTES} bytes.");
        return Err(CommandError::owned(text));
    }
    Ok(())
}

fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn set_info(session: &Session, args: Args<'_>) -> Result<(), CommandError> {
    let (option, value) = (args[2].to_ascii_lowercase(), args[3]);
    let shown = String::from_utf8_lossy(args[2]).into_owned();
    if !is_plain(value) {
        let text = format!("ERR {shown} cannot contain spaces, newlines or special characters.");
        return Err(CommandError::owned(text));
    }
    refuse_long(value, &shown)?;
    let value = String::from_utf8_lossy(value).into_owned();
    let mut details = session.client.details.lock();
    match &*option {
        b"lib-name" => details.lib_name = value,
        b"lib-ver" => details.lib_ver = value,
        _ => return Err(CommandError::owned(format!("ERR Unrecognized option '{shown}'"))),
    }
    Ok(())
}

fn pause(server: &Server, args: Args<'_>) -> Result<(), CommandError> {
    let only_writes = match args.rest(3) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"all") => false,
        [word] if word.eq_ignore_ascii_case(b"write") => true,
        [_] => return Err(CommandError::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(wrong_count(args)),
    };
    let millis =
        args.integer(2).map_err(|_| CommandError::new("ERR timeout is not an integer or out of range"))?;
    let millis = u64::try_from(millis).map_err(|_| CommandError::new("ERR timeout is negative"))?;
    server.sessions.pause.begin(Duration::from_millis(millis), only_writes);
    // Keys do not expire while clients are paused. Store nodes know nothing of that.
    server.store.hold_expired(millis > 0 || server.sessions.holds_expired());
    Ok(())
}

fn wrong_count(args: Args<'_>) -> CommandError {
    let word = String::from_utf8_lossy(args[1]);
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{word}'. Try CLIENT HELP."
    ))
}

fn list(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let mut cursor = args.cursor(2);
    let mut wanted: Option<Vec<u64>> = None;
    let mut subscribed = None;
    if cursor.flag("TYPE") {
        match kind(cursor.bytes()?)? {
            Some(is) => subscribed = Some(is),
            None => wanted = Some(Vec::new()),
        }
    } else if cursor.flag("ID") {
        let mut ids = Vec::new();
        while !cursor.is_done() {
            let id = cursor.integer().ok().and_then(|id| u64::try_from(id).ok());
            ids.push(id.ok_or(CommandError::new("ERR Invalid client ID"))?);
        }
        if ids.is_empty() {
            return Err(error::SYNTAX);
        }
        wanted = Some(ids);
    }
    if !cursor.is_done() {
        return Err(error::SYNTAX);
    }
    let mut clients: Vec<_> = server.sessions.clients.lock().values().cloned().collect();
    clients.sort_unstable_by_key(|client| client.id);
    clients.retain(|client| wanted.as_ref().is_none_or(|ids| ids.contains(&client.id)));
    clients.retain(|client| {
        subscribed.is_none_or(|subscribed| client.details.lock().is_subscribed() == subscribed)
    });
    let text: String = clients.iter().map(|client| server.line_of(client)).collect();
    out.verbatim("txt", text.as_bytes());
    Ok(())
}

/// A type of clients: whether they are subscribed to something; nothing: there are none.
fn kind(word: &[u8]) -> Result<Option<bool>, CommandError> {
    match &*word.to_ascii_lowercase() {
        b"normal" => Ok(Some(false)),
        b"pubsub" => Ok(Some(true)),
        b"master" | b"replica" | b"slave" => Ok(None),
        _ => {
            let text = format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word));
            Err(CommandError::owned(text))
        }
    }
}

fn kill(server: &Server, session: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let clients: Vec<_> = server.sessions.clients.lock().values().cloned().collect();
    if args.len() == 3 {
        let addr = String::from_utf8_lossy(args[2]);
        let victim = clients.iter().find(|client| client.addr == addr);
        let victim = victim.ok_or(CommandError::new("ERR No such client"))?;
        end(session, victim);
        out.ok();
        return Ok(());
    }
    let (mut id, mut addr, mut laddr, mut user) = (None, None, None, None);
    let (mut skip_me, mut subscribed, mut max_age) = (true, None, 0);
    let mut cursor = args.cursor(2);
    while !cursor.is_done() {
        if cursor.flag("ID") {
            let number = cursor.integer().ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            id = Some(number.ok_or(CommandError::new("ERR client-id should be greater than 0"))?);
        } else if cursor.flag("TYPE") {
            subscribed = Some(kind(cursor.bytes()?)?);
        } else if cursor.flag("ADDR") {
            addr = Some(String::from_utf8_lossy(cursor.bytes()?));
        } else if cursor.flag("LADDR") {
            laddr = Some(String::from_utf8_lossy(cursor.bytes()?));
        } else if cursor.flag("USER") {
            let name = cursor.bytes()?;
            let found = server.acl.find(name);
            user = Some(found.ok_or_else(|| {
                CommandError::owned(format!("ERR No such user '{}'", String::from_utf8_lossy(name)))
            })?);
        } else if cursor.flag("SKIPME") {
            skip_me = match &*cursor.bytes()?.to_ascii_lowercase() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(error::SYNTAX),
            };
        } else if cursor.flag("MAXAGE") {
            // As in Redis 7.4.
            let seconds = number::parse_i64(cursor.bytes()?)
                .ok_or(CommandError::new("ERR maxage is not an integer or out of range"))?;
            let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            max_age = seconds.ok_or(CommandError::new("ERR maxage should be greater than 0"))?;
        } else {
            return Err(error::SYNTAX);
        }
    }
    let now = unix_ms() / 1000;
    let chosen = clients.iter().filter(|client| {
        id.is_none_or(|id| client.id == id)
            && addr.as_ref().is_none_or(|addr| client.addr == **addr)
            && laddr.as_ref().is_none_or(|laddr| client.laddr == **laddr)
            && user.as_ref().is_none_or(|user| Arc::ptr_eq(&client.account.lock(), user))
            && now.saturating_sub(client.since_ms / 1000) >= max_age
            && subscribed.is_none_or(|kind| kind == Some(client.details.lock().is_subscribed()))
            && !(skip_me && client.id == session.client.id)
    });
    let mut count = 0;
    for client in chosen.cloned().collect::<Vec<_>>() {
        end(session, &client);
        count += 1;
    }
    out.integer(count);
    Ok(())
}

fn unblock(sessions: &Sessions, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let with_error = match args.rest(3) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"timeout") => false,
        [word] if word.eq_ignore_ascii_case(b"error") => true,
        [_] => {
            return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(wrong_count(args)),
    };
    let id = u64::try_from(args.integer(2)?).ok();
    let client = id.and_then(|id| sessions.client(id));
    let ended = client.is_some_and(|client| {
        let blocked = client.blocked.lock().clone();
        blocked.is_some_and(|blocked| blocked.answer(unblocked(with_error, client.details.lock().resp)))
    });
    out.integer(i64::from(ended));
    Ok(())
}

/// What a client reads that is unblocked.
fn unblocked(with_error: bool, resp: u8) -> Vec<u8> {
    let protocol = if resp == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    if !with_error {
        return scripting::timed_out(protocol);
    }
    let mut out = Reply::new(protocol);
    out.error(&CommandError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
    out.buf
}

/// Ends a connection; one's own after the reply.
fn end(session: &mut Session, client: &ClientInfo) {
    if client.id == session.client.id {
        session.closing = true;
    } else {
        client.kill();
    }
}
