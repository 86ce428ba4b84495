//! CLUSTER, READONLY, READWRITE and ASKING: to clients of Redis Cluster this server is a cluster of one healthy node
//! that owns all slots, wherever the data is. So they connect, and are never sent elsewhere.

mod keys;
mod slot_stats;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use keys::{each_key, slot_of};
use store::Store;
use store_engine::reply;
use store_engine::slot::{SLOTS, slot};
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, Group, Reply};

use super::rows::CONNECTION;
use crate::admission::NOT_IN_SCRIPT;
use crate::process::Process;
use crate::server::{AsyncHandler, Handler, InExec, Server, SessionCommand};
use crate::session::{DataAccess, Session};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "cluster",
            arity: Arity::AtLeast(2),
            flags: 0,
            summary: "A container for Redis Cluster commands.",
            complexity: "Depends on subcommand.",
            subcommands: CLUSTER,
            help: HELP,
            ..BASE
        },
        run: Handler::Async(AsyncHandler {
            in_script: Some(reply_in_script),
            in_exec: InExec::Beforehand,
            data_access: DataAccess::Nothing,
            ends_with_client: true,
            ..AsyncHandler::new(|server, session, args, out| Box::pin(cluster(server, session, args, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "readonly",
            arity: Arity::Exactly(1),
            flags: flags::FAST,
            summary: "Enables read-only queries for a connection to a Redis Cluster replica node.",
            ..BASE
        },
        run: Handler::Inline(|server, _, _, out| fine(server, out)),
    },
    SessionCommand {
        spec: Command {
            name: "readwrite",
            arity: Arity::Exactly(1),
            flags: flags::FAST,
            summary: "Enables read-write queries for a connection to a Redis Cluster replica node.",
            ..BASE
        },
        run: Handler::Inline(|server, _, _, out| fine(server, out)),
    },
    SessionCommand {
        spec: Command {
            name: "asking",
            arity: Arity::Exactly(1),
            flags: flags::FAST,
            summary: "Signals that a cluster client is following an -ASK redirect.",
            ..BASE
        },
        run: Handler::Inline(|server, _, _, out| fine(server, out)),
    },
];

const BASE: Command = Command { since: "3.0.0", group: Group::Cluster, flags: 0, syntax: "", ..CONNECTION };

const fn sub(
    name: &'static str,
    arity: Arity,
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
) -> Command {
    Command { name, arity, summary, complexity, syntax, ..BASE }
}

/// One of those that change a cluster, which this one does not let be changed.
const fn change(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    summary: &'static str,
    syntax: &'static str,
) -> Command {
    const FLAGS: u32 = flags::ADMIN | flags::DANGEROUS;
    Command { since, flags: FLAGS, ..sub(name, arity, summary, "O(1)", syntax) }
}

/// What CLUSTER HELP shows: Redis' text, what would change a cluster included.
const HELP: &str = "\
ADDSLOTS <slot> [<slot> ...]
    Assign slots to current node.
ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]
    Assign slots which are between <start-slot> and <end-slot> to current node.
BUMPEPOCH
    Advance the cluster config epoch.
COUNT-FAILURE-REPORTS <node-id>
    Return number of failure reports for <node-id>.
COUNTKEYSINSLOT <slot>
    Return the number of keys in <slot>.
DELSLOTS <slot> [<slot> ...]
    Delete slots information from current node.
DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]
    Delete slots information which are between <start-slot> and <end-slot> from current node.
FAILOVER [FORCE|TAKEOVER]
    Promote current replica node to being a master.
FORGET <node-id>
    Remove a node from the cluster.
GETKEYSINSLOT <slot> <count>
    Return key names stored by current node in a slot.
FLUSHSLOTS
    Delete current node own slots information.
INFO
    Return information about the cluster.
KEYSLOT <key>
    Return the hash slot for <key>.
MEET <ip> <port> [<bus-port>]
    Connect nodes into a working cluster.
MYID
    Return the node id.
NODES
    Return cluster configuration seen by node. Output format:
    <id> <ip:port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...
REPLICATE <node-id>
    Configure current node as replica to <node-id>.
RESET [HARD|SOFT]
    Reset current node (default: soft).
SET-CONFIG-EPOCH <epoch>
    Set config epoch of current node.
SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)
    Set slot state.
REPLICAS <node-id>
    Return <node-id> replicas.
SAVECONFIG
    Force saving cluster configuration on disk.
SLOTS
    Return information about slots range mappings. Each range is made of:
    start, end, master and replicas IP addresses, ports and ids
SHARDS
    Return information about slot range mappings and the nodes associated with them.
SLOT-STATS
    Return an array of slot usage statistics for slots assigned to the current node.
LINKS
    Return information about all network links between this node and its peers.
    Output format is an array where each array element is a map containing attributes of a link";

static CLUSTER: &[Command] = &[
    change("addslots", "3.0.0", Arity::AtLeast(3), "Assigns new hash slots to a node.", "slot:int..."),
    change(
        "addslotsrange",
        "7.0.0",
        Arity::AtLeast(4),
        "Assigns new hash slot ranges to a node.",
        "start-slot_end-slot(start-slot:int end-slot:int)...",
    ),
    change("bumpepoch", "3.0.0", Arity::Exactly(2), "Advances the cluster config epoch.", ""),
    Command {
        flags: flags::ADMIN | flags::DANGEROUS,
        ..sub(
            "count-failure-reports",
            Arity::Exactly(3),
            "Returns the number of active failure reports active for a node.",
            "O(N) where N is the number of failure reports",
            "node-id",
        )
    },
    sub(
        "countkeysinslot",
        Arity::Exactly(3),
        "Returns the number of keys in a hash slot.",
        "O(N) where N is the number of keys in the database",
        "slot:int",
    ),
    change("delslots", "3.0.0", Arity::AtLeast(3), "Sets hash slots as unbound for a node.", "slot:int..."),
    change(
        "delslotsrange",
        "7.0.0",
        Arity::AtLeast(4),
        "Sets hash slot ranges as unbound for a node.",
        "start-slot_end-slot(start-slot:int end-slot:int)...",
    ),
    change(
        "failover",
        "3.0.0",
        Arity::AtLeast(2),
        "Forces a replica to perform a manual failover of its master.",
        "options(FORCE | TAKEOVER)?",
    ),
    change("flushslots", "3.0.0", Arity::Exactly(2), "Deletes all slots information from a node.", ""),
    change("forget", "3.0.0", Arity::Exactly(3), "Removes a node from the nodes table.", "node-id"),
    sub(
        "getkeysinslot",
        Arity::Exactly(4),
        "Returns the key names in a hash slot.",
        "O(N) where N is the number of keys in the database",
        "slot:int count:int",
    ),
    Command {
        since: "5.0.0",
        ..sub("help", Arity::Exactly(2), "Returns helpful text about the different subcommands.", "O(1)", "")
    },
    sub("info", Arity::Exactly(2), "Returns information about the state of a node.", "O(1)", ""),
    sub(
        "keyslot",
        Arity::Exactly(3),
        "Returns the hash slot for a key.",
        "O(N) where N is the number of bytes in the key",
        "key:string",
    ),
    Command {
        since: "7.0.0",
        ..sub(
            "links",
            Arity::Exactly(2),
            "Returns a list of all TCP links to and from peer nodes.",
            "O(N) where N is the total number of Cluster nodes",
            "",
        )
    },
    change(
        "meet",
        "3.0.0",
        Arity::AtLeast(4),
        "Forces a node to handshake with another node.",
        "ip port:int cluster_bus_port:int@4.0.0?",
    ),
    sub("myid", Arity::Exactly(2), "Returns the ID of a node.", "O(1)", ""),
    sub(
        "nodes",
        Arity::Exactly(2),
        "Returns the cluster configuration for a node.",
        "O(N) where N is the total number of Cluster nodes",
        "",
    ),
    Command {
        since: "5.0.0",
        flags: flags::ADMIN | flags::DANGEROUS,
        ..sub("replicas", Arity::Exactly(3), "Lists the replica nodes of a master node.", "O(1)", "node-id")
    },
    change(
        "replicate",
        "3.0.0",
        Arity::Exactly(3),
        "Configures a node as replica of a master node.",
        "node-id",
    ),
    Command {
        flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS,
        ..change("reset", "3.0.0", Arity::AtLeast(2), "Resets a node.", "hard_soft(HARD | SOFT)?")
    },
    change(
        "saveconfig",
        "3.0.0",
        Arity::Exactly(2),
        "Forces a node to save the cluster configuration to disk.",
        "",
    ),
    change(
        "set-config-epoch",
        "3.0.0",
        Arity::Exactly(3),
        "Sets the configuration epoch for a new node.",
        "config-epoch:int",
    ),
    change(
        "setslot",
        "3.0.0",
        Arity::AtLeast(4),
        "Binds a hash slot to a node.",
        "slot:int subcommand(IMPORTING=node-id | MIGRATING=node-id | NODE=node-id | STABLE)",
    ),
    Command {
        since: "7.0.0",
        ..sub(
            "shards",
            Arity::Exactly(2),
            "Returns the mapping of cluster slots to shards.",
            "O(N) where N is the total number of cluster nodes",
            "",
        )
    },
    Command {
        flags: flags::ADMIN | flags::DANGEROUS,
        ..sub("slaves", Arity::Exactly(3), "Lists the replica nodes of a master node.", "O(1)", "node-id")
    },
    Command {
        since: "8.2.0",
        ..sub(
            "slot-stats",
            Arity::AtLeast(4),
            "Returns the number of keys in each of several slots.",
            "O(N) where N is the number of keys in the database",
            "filter(SLOTSRANGE=slotsrange(start-slot:int end-slot:int) | ORDERBY=orderby(metric LIMIT=limit:int? order(ASC | DESC)?))",
        )
    },
    sub(
        "slots",
        Arity::Exactly(2),
        "Returns the mapping of cluster slots to nodes.",
        "O(N) where N is the total number of Cluster nodes",
        "",
    ),
];

/// There is nothing to switch: all that there is can be read and written here.
fn fine(server: &Server, out: &mut Reply) -> Result<(), CommandError> {
    check_enabled(server)?;
    out.ok();
    Ok(())
}

/// Refuses what makes sense in a cluster alone.
fn check_enabled(server: &Server) -> Result<(), CommandError> {
    match server.config.cluster_enabled.get() {
        true => Ok(()),
        false => Err(CommandError::new("ERR This instance has cluster support disabled")),
    }
}

/// CLUSTER.
async fn cluster(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"countkeysinslot" => count_keys(&server.store, session, args, out).await,
        b"getkeysinslot" => list_keys(&server.store, session, args, out).await,
        b"slot-stats" => {
            check_enabled(server)?;
            slot_stats::reply(&server.store, session, args, out).await
        }
        _ => write_reply(server, session, args, out),
    }
}

/// CLUSTER in a script. What looks at all keys would wait for those that the script has locked.
fn reply_in_script(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    match &*args[1].to_ascii_lowercase() {
        b"countkeysinslot" | b"getkeysinslot" | b"slot-stats" => Err(NOT_IN_SCRIPT),
        _ => write_reply(server, session, args, out),
    }
}

/// What is known without a look at the keys.
fn write_reply(
    server: &Server,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let id = &server.process.run_id;
    match &*args[1].to_ascii_lowercase() {
        b"info" => {
            // Tools take a server for a node of a cluster that answers this.
            check_enabled(server)?;
            let slots = SLOTS;
            let text = format!(
                "cluster_state:ok\r\ncluster_slots_assigned:{slots}\r\ncluster_slots_ok:{slots}\r\n\
                 cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
                 cluster_current_epoch:0\r\ncluster_my_epoch:0\r\ncluster_stats_messages_sent:0\r\n\
                 cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n"
            );
            out.verbatim("txt", text.as_bytes());
        }
        b"slots" => {
            let (host, port) = announced(server, session);
            out.array(1);
            out.array(3);
            out.integer(0);
            out.integer(i64::from(SLOTS) - 1);
            out.array(4);
            out.bulk(host.as_bytes());
            out.integer(port.into());
            out.bulk(id.as_bytes());
            out.array(0);
        }
        b"shards" => shards(server, session, out),
        b"nodes" => {
            let (host, port) = announced(server, session);
            // The second port is that of Redis' own bus, which there is none of.
            let line = format!("{id} {host}:{port}@0 myself,master - 0 0 0 connected 0-{}\n", SLOTS - 1);
            out.verbatim("txt", line.as_bytes());
        }
        b"myid" => out.bulk(id.as_bytes()),
        b"links" => out.array(0),
        b"keyslot" => out.integer(slot(args[2]).into()),
        b"replicas" | b"slaves" => {
            knows(&server.process, args[2])?;
            out.array(0);
        }
        b"count-failure-reports" => {
            knows(&server.process, args[2])?;
            out.integer(0);
        }
        b"failover" => return Err(CommandError::new("ERR You should send CLUSTER FAILOVER to a replica")),
        b"saveconfig" => out.ok(),
        b"help" => reply::help(out, "CLUSTER", HELP),
        _ => {
            return Err(CommandError::new(
                "ERR This server is a single cluster node that owns all slots; use moonshard topology to move \
                 slots between store nodes",
            ));
        }
    }
    Ok(())
}

async fn count_keys(
    store: &Store,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let wanted = slot_of(args.integer(2)?).ok_or(CommandError::new("ERR Invalid slot"))?;
    out.count(keys_in(store, session, wanted, usize::MAX).await?.len());
    Ok(())
}

async fn list_keys(
    store: &Store,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let (wanted, count) = (slot_of(args.integer(2)?), args.integer(3)?);
    let (Some(wanted), Ok(count)) = (wanted, usize::try_from(count)) else {
        return Err(CommandError::new("ERR Invalid slot or number of keys"));
    };
    let keys = keys_in(store, session, wanted, count).await?;
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key));
    Ok(())
}

/// Refuses what is no node.
fn knows(process: &Process, id: &[u8]) -> Result<(), CommandError> {
    if id == process.run_id.as_bytes() {
        return Ok(());
    }
    Err(CommandError::owned(format!("ERR Unknown node {}", String::from_utf8_lossy(id))))
}

/// Where clients are to connect: as configured, or where this one has.
fn announced(server: &Server, session: &Session) -> (String, u16) {
    if let Some(address) = server.config.cluster_announce.get() {
        return (address.host, address.port);
    }
    let own = session.client.laddr.parse::<SocketAddr>().unwrap_or(server.process.resp_addr);
    // Empty: the host by which the client has come, which it knows better.
    let host = if own.ip().is_unspecified() { String::new() } else { own.ip().to_string() };
    (host, server.process.resp_addr.port())
}

fn shards(server: &Server, session: &Session, out: &mut Reply) {
    let (host, port) = announced(server, session);
    out.array(1);
    out.map(2);
    out.bulk(b"slots");
    out.array(2);
    out.integer(0);
    out.integer(i64::from(SLOTS) - 1);
    out.bulk(b"nodes");
    out.array(1);
    out.map(7);
    out.bulk(b"id");
    out.bulk(server.process.run_id.as_bytes());
    out.bulk(b"port");
    out.integer(port.into());
    for (field, value) in [("ip", &*host), ("endpoint", &*host), ("role", "master")] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"replication-offset");
    out.integer(0);
    out.bulk(b"health");
    out.bulk(b"online");
}

/// Up to `most` keys of database 0 in a slot.
async fn keys_in(
    store: &Store,
    session: &Session,
    wanted: u16,
    most: usize,
) -> Result<BTreeSet<Vec<u8>>, CommandError> {
    let mut found = BTreeSet::new();
    let add = |key: &[u8]| {
        if slot(key) == wanted && found.len() < most {
            found.insert(key.to_vec());
        }
        found.len() < most
    };
    each_key(store, session, add).await?;
    Ok(found)
}
