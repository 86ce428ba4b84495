//! REPLICAOF, SLAVEOF and ROLE: which server this one follows, and how far it is.

use std::fmt::Write as _;
use std::sync::Arc;

use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};
use tracing::info;

use super::rows::CONNECTION;
use crate::config::Address;
use crate::server::{AsyncHandler, Handler, InExec, Server, SessionCommand};
use crate::session::DataAccess;
use crate::session::following::{Following, Mode, Stage};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
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
        run: Handler::Inline(|server, _, _, out| {
            role(&server.sessions.following, out);
            Ok(())
        }),
    },
    SessionCommand {
        spec: Command {
            name: "replicaof",
            since: "5.0.0",
            arity: Arity::Exactly(3),
            flags: BASE.flags | flags::NO_MULTI,
            summary: "Configures a server as replica of another, or promotes it to a master.",
            syntax: "args(host-port(host port:int) | no-one(NO ONE))",
            ..BASE
        },
        run: REPLICA_OF,
    },
    SessionCommand {
        spec: Command {
            name: "slaveof",
            since: "1.0.0",
            arity: Arity::Exactly(3),
            flags: BASE.flags | flags::NO_MULTI,
            summary: "Sets a Redis server as a replica of another, or promotes it to being a master.",
            syntax: "args(host-port(host port:int) | no-one(NO ONE))",
            ..BASE
        },
        run: REPLICA_OF,
    },
];

const BASE: Command =
    Command { group: Group::Server, flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS, ..CONNECTION };

const REPLICA_OF: Handler = Handler::Async(AsyncHandler {
    in_exec: InExec::Refused,
    data_access: DataAccess::Nothing,
    ..AsyncHandler::new(|server, _, args, out| Box::pin(replica_of(server, args, out)))
});

/// REPLICAOF.
async fn replica_of(server: &Arc<Server>, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    let following = &server.sessions.following;
    if args[1].eq_ignore_ascii_case(b"no") && args[2].eq_ignore_ascii_case(b"one") {
        let number = match following.is_elsewhere() {
            true => Some(following.stop_everywhere()),
            false => following.stop(),
        };
        if let Some(number) = number {
            server.config.set_primary(None);
            // What was received is applied or not, and nothing of it is when clients write.
            following.taken_up(number).await;
        }
        out.ok();
        return Ok(());
    }
    let port = args.integer(2).ok().filter(|port| (0..=i64::from(u16::MAX)).contains(port));
    let port = port.ok_or(CommandError::new("ERR Invalid master port"))?;
    let host = std::str::from_utf8(args[1]).ok();
    let primary = host.and_then(|host| Address::of_words(host, port));
    let primary = primary.ok_or(CommandError::new("ERR Invalid master host"))?;
    server.config.set_primary(Some(&primary));
    if !following.follow(primary.clone()) {
        out.status("OK Already connected to specified master");
        return Ok(());
    }
    info!("replica: REPLICAOF {primary} was called");
    unblock_all(server);
    out.ok();
    Ok(())
}

/// Before the names of records about a server that is followed. Each has the process that wrote it.
pub const RECORDS: &[u8] = b"replica/";
/// The record that is there while a gateway of store nodes follows a server.
pub const FOLLOWED: &[u8] = b"followed";
/// The record that is there while a part of a copy is.
pub const UNFINISHED: &[u8] = b"unfinished";

/// Learns from the catalog whether another gateway of the same store nodes follows a server.
pub async fn reload(server: &Server) -> Result<(), CommandError> {
    if !server.store.is_shared() {
        return Ok(());
    }
    let (following, own) = (&server.sessions.following, server.process.run_id.as_bytes());
    // Before the records are read: they may be older than what is written meanwhile.
    let was_registered = following.is_registered();
    let records = server.store.records(RECORDS).await?;
    let owner = |name: &[u8]| records.iter().find(|(found, _)| found == name).map(|(_, owner)| &**owner);
    let is_of_other = |name: &[u8]| owner(name).is_some_and(|owner| owner != own);
    following.set_elsewhere(match (is_of_other(UNFINISHED), is_of_other(FOLLOWED)) {
        (true, _) => Mode::Loading,
        (false, true) => Mode::Replica,
        (false, false) => Mode::Primary,
    });
    if was_registered && owner(FOLLOWED) != Some(own) && following.leave() {
        info!("replica: REPLICAOF was called at another gateway, which counts instead");
        server.config.set_primary(None);
    }
    Ok(())
}

/// Ends all calls that wait for keys: what they would take away is not theirs any more.
fn unblock_all(server: &Server) {
    const WHY: CommandError = CommandError::new(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    );
    for client in server.sessions.clients.lock().values() {
        let blocked = client.blocked.lock().clone();
        if let Some(blocked) = blocked {
            blocked.answer(format!("-{}\r\n", WHY.text()).into_bytes());
        }
    }
}

fn role(following: &Following, out: &mut Reply) {
    let Some(primary) = following.primary() else {
        out.array(3);
        out.bulk(b"master");
        out.integer(0);
        out.array(0);
        return;
    };
    let link = following.link();
    let offset = link.offset.filter(|_| link.stage == Stage::Connected);
    out.array(5);
    out.bulk(b"slave");
    out.bulk(primary.host.as_bytes());
    out.integer(primary.port.into());
    out.bulk(link.stage.word().as_bytes());
    out.integer(offset.map_or(-1, u64::cast_signed));
}

/// INFO's section.
pub fn describe(following: &Following, text: &mut String) {
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}:{value}\r\n");
    };
    let Some(primary) = following.primary() else {
        line("role", &"master");
        line("connected_slaves", &0);
        if following.is_elsewhere() {
            line("followed_by_other_gateway", &1);
        }
        return;
    };
    let link = following.link();
    let is_up = link.stage == Stage::Connected;
    line("role", &"slave");
    line("master_host", &primary.host);
    line("master_port", &primary.port);
    line("master_link_status", if is_up { &"up" } else { &"down" });
    let heard = link.heard.map_or(-1, |heard| heard.elapsed().as_secs().cast_signed());
    line("master_last_io_seconds_ago", &heard);
    line("master_sync_in_progress", &u8::from(link.stage == Stage::Sync));
    let offset = link.offset.unwrap_or_default();
    line("slave_read_repl_offset", &offset);
    line("slave_repl_offset", &offset);
    if link.stage == Stage::Sync {
        line("master_sync_total_bytes", &link.copy_bytes.unwrap_or_default());
        line("master_sync_read_bytes", &link.copied_bytes);
    }
    if !is_up {
        let lost = link.lost.map_or(-1, |lost| lost.elapsed().as_secs().cast_signed());
        line("master_link_down_since_seconds", &lost);
        if !link.why.is_empty() {
            line("master_link_error", &link.why.replace(['\r', '\n'], " "));
        }
    }
    line("slave_priority", &100);
    line("slave_read_only", &1);
    line("replica_announced", &0);
    line("connected_slaves", &0);
    if !link.id.is_empty() {
        line("master_replid", &link.id);
    }
    line("master_repl_offset", &offset);
}
