//! HELLO, AUTH, SELECT, PING, ECHO, QUIT, RESET.

use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, DATABASES, Protocol, Reply};

use crate::acl;
use crate::acl::log::{Context, Reason};
use crate::admission;
use crate::commands::client::set_name;
use crate::commands::pubsub::leave;
use crate::commands::rows::{CONNECTION, REDIS_VERSION};
use crate::commands::watch::unwatch;
use crate::server::{Handler, Server, SessionCommand};
use crate::session::{Replies, Session};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "hello",
            since: "6.0.0",
            arity: Arity::AtLeast(1),
            flags: flags::NO_SCRIPT | flags::FAST | flags::NO_AUTH | flags::NO_MULTI,
            summary: "Handshakes with the server.",
            syntax: "arguments(protover:int AUTH=username_password(username password)? SETNAME=clientname?)?",
            ..CONNECTION
        },
        run: Handler::Inline(hello),
    },
    SessionCommand {
        spec: Command {
            name: "auth",
            arity: Arity::AtLeast(2),
            flags: flags::NO_SCRIPT | flags::FAST | flags::NO_AUTH,
            summary: "Authenticates the connection.",
            complexity: "O(N) where N is the number of passwords defined for the user",
            syntax: "username@6.0.0? password",
            ..CONNECTION
        },
        run: Handler::Inline(auth),
    },
    SessionCommand {
        spec: Command {
            name: "select",
            arity: Arity::Exactly(2),
            summary: "Changes the selected database.",
            syntax: "index:int",
            ..CONNECTION
        },
        run: Handler::Inline(|_, session, args, out| select(session, args, out)),
    },
    SessionCommand {
        spec: Command {
            name: "quit",
            arity: Arity::AtLeast(1),
            flags: flags::NO_SCRIPT | flags::FAST | flags::NO_AUTH,
            summary: "Closes the connection.",
            syntax: "",
            ..CONNECTION
        },
        run: Handler::Inline(|_, session, _, out| {
            session.closing = true;
            out.ok();
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command {
            name: "reset",
            since: "6.2.0",
            flags: flags::NO_SCRIPT | flags::FAST | flags::NO_AUTH,
            summary: "Resets the connection.",
            syntax: "",
            ..CONNECTION
        },
        run: Handler::Inline(reset),
    },
];

fn hello(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let mut cursor = args.cursor(1);
    let mut protocol = session.protocol;
    if !cursor.is_done() {
        let version = cursor
            .integer()
            .map_err(|_| CommandError::new("ERR Protocol version is not an integer or out of range"))?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        };
    }
    let mut name = None;
    let option_error = |option: &[u8]| {
        CommandError::owned(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)))
    };
    while let Some(option) = cursor.peek() {
        if cursor.flag("AUTH") && cursor.remaining() >= 2 {
            let words = cursor.take(2)?;
            log_in(server, session, words[0], words[1], args.name())?;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && cursor.flag("SETNAME") && !cursor.is_done() {
            name = Some(cursor.bytes()?);
        } else {
            return Err(option_error(option));
        }
    }
    if session.needs_password(&server.acl) {
        return Err(CommandError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same \
             time",
        ));
    }
    if let Some(name) = name {
        set_name(session, name)?;
    }
    session.speak(protocol);
    out.protocol = protocol;
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"redis");
    out.bulk(b"version");
    out.bulk(REDIS_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(session.client.id as i64);
    out.bulk(b"mode");
    out.bulk(server.config.mode().as_bytes());
    out.bulk(b"role");
    out.bulk(if server.sessions.following.primary().is_some() { b"replica" } else { b"master" });
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

fn auth(server: &Server, session: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match args.len() {
        2 if server.acl.default_account().user().takes_any_password() => {
            return Err(CommandError::new(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => log_in(server, session, acl::DEFAULT, args[1], args.name())?,
        3 => log_in(server, session, args[1], args[2], args.name())?,
        _ => return Err(store_engine::error::SYNTAX),
    }
    out.ok();
    Ok(())
}

/// Makes the session that of a user, if the password is right. `command` is what ACL LOG shows otherwise.
fn log_in(
    server: &Server,
    session: &mut Session,
    user: &[u8],
    password: &[u8],
    command: &[u8],
) -> Result<(), CommandError> {
    match server.acl.authenticate(user, password) {
        Some(account) => {
            session.become_user(account, true);
            Ok(())
        }
        None => {
            let context = if session.in_exec { Context::Multi } else { Context::Toplevel };
            let (object, client) = (command.to_vec(), Some(&*session.client));
            admission::note_refusal(server, Reason::Auth, context, object, user, client);
            Err(acl::WRONGPASS)
        }
    }
}

fn select(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    session.select(selected(args)?);
    out.ok();
    Ok(())
}

/// The database that SELECT means.
pub(super) fn selected(args: Args<'_>) -> Result<usize, CommandError> {
    let db = args.integer(1).map_err(|_| store_engine::error::NOT_AN_INTEGER)?;
    let db = usize::try_from(db).ok().filter(|db| *db < DATABASES);
    db.ok_or(CommandError::new("ERR DB index is out of range"))
}

fn reset(server: &Server, session: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    unwatch(&server.store, session);
    leave(server, session);
    session.take_pushes(out);
    session.multi = None;
    let account = server.acl.default_account().clone();
    session.become_user(account, server.acl.allows_unauthenticated());
    session.replies = Replies::All;
    session.db = 0;
    session.speak(Protocol::Resp2);
    out.protocol = Protocol::Resp2;
    let mut details = session.client.details.lock();
    details.name.clear();
    details.no_evict = false;
    session.client.maintenance.set_wanted(false);
    session.client.set_no_touch(false);
    details.db = 0;
    out.status("RESET");
    Ok(())
}
