//! WAIT, ROLE, REPLICAOF and FAILOVER: what there is to say where there are no replicas.

use std::sync::Arc;
use std::time::Duration;

use store::{Blocked, Ending};
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::server::{AsyncHandler, Handler, SessionCommand};
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
            ..AsyncHandler::new(|_, session, args, out| Box::pin(wait(session, args, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "role",
            since: "2.8.12",
            arity: Arity::Exactly(1),
            flags: flags::NO_SCRIPT | flags::LOADING | flags::FAST | flags::DANGEROUS | flags::ADMIN,
            summary: "Returns the replication role.",
            syntax: "",
            ..BASE
        },
        run: Handler::Inline(|_, _, _, out| {
            out.array(3);
            out.bulk(b"master");
            out.integer(0);
            out.array(0);
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command {
            name: "replicaof",
            since: "5.0.0",
            arity: Arity::Exactly(3),
            summary: "Configures a server as replica of another, or promotes it to a master.",
            syntax: "args(host-port(host port:int) | no-one(NO ONE))",
            ..BASE
        },
        run: Handler::Inline(|_, _, args, out| replica_of(args, out)),
    },
    SessionCommand {
        spec: Command {
            name: "slaveof",
            since: "1.0.0",
            arity: Arity::Exactly(3),
            summary: "Sets a Redis server as a replica of another, or promotes it to being a master.",
            syntax: "args(host-port(host port:int) | no-one(NO ONE))",
            ..BASE
        },
        run: Handler::Inline(|_, _, args, out| replica_of(args, out)),
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
        run: Handler::Inline(|_, _, args, _| {
            Err(CommandError::new(match args.get(1) {
                Some(word) if word.eq_ignore_ascii_case(b"abort") => "ERR No failover in progress.",
                _ => "ERR FAILOVER requires connected replicas.",
            }))
        }),
    },
];

const BASE: Command =
    Command { group: Group::Server, flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..CONNECTION };

fn replica_of(args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    if !(args[1].eq_ignore_ascii_case(b"no") && args[2].eq_ignore_ascii_case(b"one")) {
        return Err(CommandError::new(
            "ERR This server cannot be a replica; use `moonshard store restore` to import the data of a Redis server",
        ));
    }
    out.ok();
    Ok(())
}

/// WAIT: no replica will ever confirm anything, so who wants one waits for the time to pass.
async fn wait(session: &Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let wanted = args.integer(1)?;
    let timeout_ms = match args.integer(2) {
        Ok(millis) => u64::try_from(millis).map_err(|_| CommandError::new("ERR timeout is negative"))?,
        Err(_) => return Err(CommandError::new("ERR timeout is not an integer or out of range")),
    };
    if wanted <= 0 || session.in_exec {
        out.integer(0);
        return Ok(());
    }
    let waits = Arc::<Ending>::default();
    *session.client.blocked.lock() = Some(Blocked::Remote(waits.clone()));
    let time_is_over = async {
        match timeout_ms {
            0 => std::future::pending().await,
            millis => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    };
    tokio::select! {
        () = time_is_over => out.integer(0),
        end = waits.reply() => match resp::is_error(&end) {
            // CLIENT UNBLOCK … ERROR.
            true => out.relay(&end),
            false => out.integer(0),
        },
    }
    *session.client.blocked.lock() = None;
    Ok(())
}
