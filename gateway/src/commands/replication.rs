//! WAIT, WAITAOF and FAILOVER: what there is to say where there are no replicas.

use std::sync::Arc;
use std::time::Duration;

use store::journal::{Journal, NO_JOURNAL};
use store::{Blocked, Ending, Store};
use store_engine::spec::flags;
use store_engine::wait::whole_timeout_ms;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{AsyncHandler, Handler, Server, SessionCommand};
use crate::session::{DataAccess, Session};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "wait",
            since: "3.0.0",
            group: Group::Generic,
            arity: Arity::Exactly(3),
            flags: flags::NO_SCRIPT,
            summary: "Blocks until the asynchronous replication of all preceding write commands sent by the \
                      connection is completed.",
            syntax: "numreplicas:int timeout:int",
            ..CONNECTION
        },
        run: Handler::Async(AsyncHandler {
            data_access: DataAccess::Nothing,
            blocks: true,
            ends_with_client: true,
            ..AsyncHandler::new(|server, session, args, out| Box::pin(wait(server, session, args, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "waitaof",
            since: "7.2.0",
            group: Group::Generic,
            arity: Arity::Exactly(4),
            flags: flags::NO_SCRIPT,
            summary: "Blocks until all preceding write commands of all connections are on disk.",
            syntax: "numlocal:int numreplicas:int timeout:int",
            ..CONNECTION
        },
        run: Handler::Async(AsyncHandler {
            data_access: DataAccess::Nothing,
            blocks: true,
            ends_with_client: true,
            ..AsyncHandler::new(|server, session, args, out| {
                Box::pin(wait_for_disk(&server.store, session, args, out))
            })
        }),
    },
    SessionCommand {
        spec: Command {
            name: "failover",
            since: "6.2.0",
            arity: Arity::AtLeast(1),
            summary: "Starts a coordinated failover from a server to one of its replicas.",
            syntax: "TO=target(host port:int FORCE?)? ABORT? TIMEOUT=milliseconds:int?",
            ..BASE
        },
        run: Handler::Inline(|server, _, args, _| {
            Err(CommandError::new(match args.get(1) {
                _ if server.sessions.following.primary().is_some() => {
                    "ERR FAILOVER is not valid when server is a replica."
                }
                Some(word) if word.eq_ignore_ascii_case(b"abort") => "ERR No failover in progress.",
                _ => "ERR FAILOVER requires connected replicas.",
            }))
        }),
    },
];

const BASE: Command =
    Command { group: Group::Server, flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..CONNECTION };

/// WAIT: no replica will ever confirm anything, so who wants one waits for the time to pass.
async fn wait(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if server.sessions.following.primary().is_some() {
        return Err(CommandError::new(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let wanted = args.integer(1)?;
    let timeout_ms = whole_timeout_ms(args[2])?;
    if wanted <= 0 || session.in_exec {
        out.integer(0);
        return Ok(());
    }
    match within(session, timeout_ms, std::future::pending::<()>()).await {
        Some(Err(error)) => out.relay(&error),
        _ => out.integer(0),
    }
    Ok(())
}

/// What `done` becomes, unless the time passes before or CLIENT UNBLOCK ends it; with its error as bytes, if it has one.
async fn within<T>(
    session: &Session,
    timeout_ms: u64,
    done: impl Future<Output = T>,
) -> Option<Result<T, Vec<u8>>> {
    let waits = Arc::<Ending>::default();
    *session.client.blocked.lock() = Some(Blocked::Remote(waits.clone()));
    let time_is_over = async {
        match timeout_ms {
            0 => std::future::pending().await,
            millis => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    };
    let ended = tokio::select! {
        done = done => Some(Ok(done)),
        () = time_is_over => None,
        end = waits.reply() => resp::is_error(&end).then_some(Err(end)),
    };
    *session.client.blocked.lock() = None;
    ended
}

/// WAITAOF, as in Redis 7.2, but for all that was changed and not only by this connection. Who wants a replica too waits
/// for the time to pass.
async fn wait_for_disk(
    store: &Store,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let local = match args.integer(1)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::new("ERR value is out of range, must be between 0 and 1")),
    };
    let replicas = args.integer(2).ok().and_then(|count| u64::try_from(count).ok());
    let replicas = replicas.ok_or(CommandError::new("ERR value is out of range, must be positive"))?;
    let timeout_ms = whole_timeout_ms(args[3])?;
    let on_disk = || store.journal().is_some_and(Journal::is_flushed);
    if local && store.node().is_some() && store.journal().is_none() {
        return Err(NO_JOURNAL);
    }
    let mut confirmed = on_disk();
    if !session.in_exec && (replicas > 0 || local && !confirmed) {
        let mut flushed = Ok(());
        let done = async {
            if local {
                flushed = store.flush().await;
                confirmed = flushed.is_ok();
            }
            if flushed.is_ok() && replicas > 0 {
                std::future::pending::<()>().await;
            }
        };
        if let Some(Err(error)) = within(session, timeout_ms, done).await {
            out.relay(&error);
            return Ok(());
        }
        flushed?;
    }
    out.array(2);
    out.integer(i64::from(confirmed || on_disk()));
    out.integer(0);
    Ok(())
}
