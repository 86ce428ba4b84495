//! SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF and SHUTDOWN. Everything is on disk within a second anyway; what is saved here
//! is that, and that all of it is in the checkpoint, so that the next start has nothing to repeat.

use store::Store;
use store::journal::{Journal, misconf};
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply, error};

use super::rows::CONNECTION;
use crate::process::Stop;
use crate::server::{AsyncHandler, Handler, InExec, Server, SessionCommand};
use crate::session::{DataAccess, Session};

const ADMIN: Command = Command {
    group: Group::Server,
    flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS,
    arity: Arity::Exactly(1),
    syntax: "",
    ..CONNECTION
};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "save",
            summary: "Synchronously saves the database(s) to disk.",
            complexity: "O(N) where N is the total number of keys in all databases",
            flags: ADMIN.flags | flags::NO_MULTI,
            ..ADMIN
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            data_access: DataAccess::Nothing,
            ..AsyncHandler::new(|server, _, _, out| Box::pin(save(&server.store, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "bgsave",
            arity: Arity::AtLeast(1),
            summary: "Asynchronously saves the database(s) to disk.",
            syntax: "SCHEDULE@3.2.2?",
            ..ADMIN
        },
        run: Handler::Inline(|server, _, args, out| background_save(&server.store, args, out)),
    },
    SessionCommand {
        spec: Command {
            name: "bgrewriteaof",
            summary: "Asynchronously rewrites the append-only file to disk.",
            ..ADMIN
        },
        run: Handler::Inline(|server, _, _, out| rewrite(&server.store, out)),
    },
    SessionCommand {
        spec: Command {
            name: "lastsave",
            summary: "Returns the Unix timestamp of the last successful save to disk.",
            flags: flags::ADMIN | flags::DANGEROUS | flags::FAST,
            ..ADMIN
        },
        run: Handler::Inline(last_save),
    },
    SessionCommand {
        spec: Command {
            name: "shutdown",
            arity: Arity::AtLeast(1),
            summary: "Synchronously saves the database(s) to disk and shuts down the Redis server.",
            syntax: "nosave_save(NOSAVE | SAVE)? NOW@7.0.0? FORCE@7.0.0? ABORT@7.0.0?",
            flags: ADMIN.flags | flags::NO_MULTI,
            ..ADMIN
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            ..AsyncHandler::new(|server, session, args, _| Box::pin(shutdown(server, session, args)))
        }),
    },
];

fn journal(store: &Store) -> Result<&Journal, CommandError> {
    let node = store.node().ok_or(CommandError::new("ERR The data is on store nodes: use SAVE"))?;
    node.journal()
        .ok_or(CommandError::new("ERR Persistence is disabled: the server runs with --data-dir none"))
}

/// SAVE: waits until all changes so far are in the checkpoint, if there is one.
async fn save(store: &Store, out: &mut Reply) -> Result<(), CommandError> {
    match store.cluster() {
        Some(cluster) => cluster.save(true).await?,
        None => {
            if let Some(journal) = store.journal() {
                journal.checkpoint().await.map_err(|reason| misconf(&reason))?;
            }
        }
    }
    out.ok();
    Ok(())
}

fn background_save(store: &Store, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let scheduled = match args.rest(1) {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"schedule") => true,
        _ => return Err(error::SYNTAX),
    };
    let journal = journal(store)?;
    if journal.progress().saving && !scheduled {
        return Err(CommandError::new("ERR Background save already in progress"));
    }
    journal.begin_checkpoint();
    out.status("Background saving started");
    Ok(())
}

fn rewrite(store: &Store, out: &mut Reply) -> Result<(), CommandError> {
    let journal = journal(store)?;
    if journal.progress().saving {
        return Err(CommandError::new("ERR Background append only file rewriting already in progress"));
    }
    journal.begin_checkpoint();
    out.status("Background append only file rewriting started");
    Ok(())
}

fn last_save(server: &Server, _: &mut Session, _: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let saved_at = match server.store.journal() {
        Some(journal) => journal.progress().saved_at,
        None => server.process.started_at,
    };
    out.integer(saved_at as i64);
    Ok(())
}

/// SHUTDOWN: ends the process, if what was changed can be kept. Whoever asked hears nothing but the end of the
/// connection.
async fn shutdown(server: &Server, session: &mut Session, args: Args<'_>) -> Result<(), CommandError> {
    const WORDS: [&str; 5] = ["nosave", "save", "now", "force", "abort"];
    let mut said = [false; WORDS.len()];
    for word in args.rest(1) {
        match WORDS.iter().position(|known| word.eq_ignore_ascii_case(known.as_bytes())) {
            Some(at) => said[at] = true,
            None => return Err(error::SYNTAX),
        }
    }
    let [nosave, save, now, force, abort] = said;
    if (nosave && save) || (abort && (nosave || save || now || force)) {
        return Err(error::SYNTAX);
    }
    if abort {
        return Err(CommandError::new("ERR No shutdown in progress."));
    }
    if !nosave && let Some(journal) = server.store.journal() {
        let flushed = journal.flush().await;
        if flushed.is_err() && !force {
            return Err(CommandError::new("ERR Errors trying to SHUTDOWN. Check logs."));
        }
    }
    session.closing = true;
    server.process.stop.send_replace(if nosave { Stop::Abandoning } else { Stop::Saving });
    Ok(())
}
