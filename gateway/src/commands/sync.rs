//! SYNC, PSYNC and REPLCONF: a client gets all data as an RDB file, and then nothing more, as there are no replicas.

use std::io::{self, Write};

use store::{SnapshotOptions, StoreSnapshot};
use store_engine::rdb::Version;
use store_engine::rdb::file::RdbWriter;
use store_engine::spec::flags;
use store_engine::{Args, Arity, Command, CommandError, DATABASES, Group, Reply, error};

use super::rows::{CONNECTION, REDIS_VERSION};
use crate::scripting::records::{FLAGS, LIBRARY, SCRIPT};
use crate::scripts::cache::{sha_of, spelled};
use crate::server::{AsyncHandler, Handler, InExec, Server, SessionCommand};
use crate::session::replica::{Filter, RdbStream, Replica};
use crate::session::{DataAccess, Session};
use crate::telemetry::counters::unix_ms;

/// What may be kept of changes while a file is sent, if the output limit allows more: that of replicas in Redis.
const MOST_KEPT_BYTES: usize = 256 << 20;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "sync",
            since: "1.0.0",
            arity: Arity::Exactly(1),
            flags: BASE.flags | flags::NO_MULTI,
            summary: "Internal command used for replication",
            syntax: "",
            ..BASE
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            data_access: DataAccess::Nothing,
            ends_with_client: true,
            ..AsyncHandler::new(|server, session, _, out| Box::pin(sync(server, session, false, out)))
        }),
    },
    SessionCommand {
        spec: Command {
            name: "psync",
            since: "2.8.0",
            arity: Arity::AtLeast(3),
            flags: BASE.flags | flags::NO_MULTI,
            summary: "Internal command used for replication",
            syntax: "replicationid offset:int",
            ..BASE
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            data_access: DataAccess::Nothing,
            ends_with_client: true,
            ..AsyncHandler::new(|server, session, args, out| {
                Box::pin(async move {
                    args.integer(2)?;
                    sync(server, session, true, out).await
                })
            })
        }),
    },
    SessionCommand {
        spec: Command {
            name: "replconf",
            since: "3.0.0",
            arity: Arity::AtLeast(1),
            summary: "An internal command for configuring the replication stream",
            complexity: "O(1)",
            syntax: "",
            ..BASE
        },
        run: Handler::Inline(|_, session, args, out| replconf(session, args, out)),
    },
];

const BASE: Command = Command {
    group: Group::Server,
    flags: flags::NO_SCRIPT | flags::ADMIN | flags::DANGEROUS,
    complexity: "O(N) where N is the total number of keys in all databases",
    ..CONNECTION
};

/// REPLCONF. What is of no use here is taken, as a replica would not go on without.
fn replconf(session: &mut Session, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(error::SYNTAX);
    }
    for at in (1..args.len()).step_by(2) {
        let value = args[at + 1];
        match &*args[at].to_ascii_lowercase() {
            b"listening-port" => {
                args.integer(at + 1)?;
            }
            b"ip-address" => {}
            b"capa" if value.eq_ignore_ascii_case(b"eof") => replica(session).finds_mark = true,
            b"capa" => {}
            b"rdb-only" => match args.integer(at + 1)? {
                0 | 1 => {}
                _ => return Err(CommandError::new("ERR value is out of range, value must between 0 and 1")),
            },
            // An option of this server.
            b"rdb-version" => replica(session).version = version(args.integer(at + 1)?)?,
            b"rdb-filter-only" => replica(session).filter = filter(value)?,
            b"ack" | b"getack" => {
                // No reply, where one is not needed to tell the others apart.
                if session.in_exec || !session.hears {
                    out.ok();
                }
                return Ok(());
            }
            _ => return Err(named("Unrecognized REPLCONF option", args[at])),
        }
    }
    out.ok();
    Ok(())
}

fn replica(session: &mut Session) -> &mut Replica {
    session.replica.get_or_insert_default()
}

fn filter(words: &[u8]) -> Result<Filter, CommandError> {
    let mut filter = Filter::Nothing;
    for word in words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        if !word.eq_ignore_ascii_case(b"functions") {
            return Err(named("Unsupported rdb-filter-only option", word));
        }
        filter = Filter::Functions;
    }
    Ok(filter)
}

fn version(number: i64) -> Result<Version, CommandError> {
    let version = u16::try_from(number).ok().and_then(Version::of_number);
    version.ok_or_else(|| {
        let known = Version::ALL.map(|version| version.number().to_string()).join(", ");
        CommandError::owned(format!("ERR RDB version {number} is not written, only {known}"))
    })
}

fn named(what: &str, word: &[u8]) -> CommandError {
    CommandError::owned(format!("ERR {what}: {}", String::from_utf8_lossy(word)))
}

/// Takes a snapshot of the data, which the connection sends as an RDB file behind the reply.
async fn sync(
    server: &Server,
    session: &mut Session,
    tells_id: bool,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if !session.hears {
        return Err(CommandError::new("ERR SYNC and PSYNC need a connection of the Redis protocol"));
    }
    let Replica { finds_mark, filter, version, .. } = *replica(session);
    if !finds_mark {
        return Err(CommandError::new(
            "ERR The length of the RDB file is not known before its end: send REPLCONF capa eof first",
        ));
    }
    let mut file = RdbWriter::new(Vec::new(), version).expect("memory takes everything");
    let snapshot = match filter {
        Filter::Everything => Some(begin(server, &mut file, version).await?),
        Filter::Functions => {
            let libraries = server.store.records(LIBRARY).await?;
            write_head(&mut file, unix_ms(), |prefix| {
                let libraries = libraries.iter().filter(move |_| prefix == LIBRARY);
                libraries.map(|(name, text)| (&**name, &**text))
            })
            .expect("memory takes everything");
            None
        }
        Filter::Nothing => None,
    };
    let mark =
        spelled(&sha_of(&[store::random(), store::random(), store::random()].map(u64::to_le_bytes).concat()));
    if tells_id {
        out.buf.extend_from_slice(format!("+FULLRESYNC {} 0\r\n", server.process.run_id).as_bytes());
    }
    out.buf.extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
    let mark = mark.as_bytes().try_into().expect("a digest is spelled with 40 digits");
    replica(session).file = Some(RdbStream::new(snapshot, file, mark));
    Ok(())
}

/// Takes a snapshot and writes what comes before its keys.
async fn begin(
    server: &Server,
    file: &mut RdbWriter<Vec<u8>>,
    version: Version,
) -> Result<StoreSnapshot, CommandError> {
    let limit = server.config.client_output_buffer_limit.normal.hard.get_usize();
    let most_bytes = if limit == 0 { MOST_KEPT_BYTES } else { limit.min(MOST_KEPT_BYTES) };
    let now_ms = unix_ms();
    let options = SnapshotOptions { now_ms, most_bytes, reader: version.dialect() };
    let snapshot = server.store.snapshot(options).await?;
    write_head(file, now_ms, |prefix| snapshot.records(prefix).into_iter()).expect("memory takes everything");
    let usage = snapshot.usage();
    for db in (0..DATABASES).filter(|db| usage.keys[*db] > 0) {
        file.database(db, usage.keys[db], usage.expiring[db]).expect("memory takes everything");
    }
    Ok(snapshot)
}

/// The field of an RDB file that has what SCRIPT FLAGS said of a script: its digest and the words.
pub const FLAGS_FIELD: &[u8] = b"moonshard-script-flags";

/// Writes what comes before the keys of an RDB file: what there is to say about it, scripts and libraries. `records` gives
/// records of the catalog by the beginning of their names.
pub fn write_head<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>>(
    file: &mut RdbWriter<impl Write>,
    now_ms: u64,
    records: impl Fn(&'static [u8]) -> I,
) -> io::Result<()> {
    file.aux(b"redis-ver", REDIS_VERSION.as_bytes())?;
    file.aux(b"redis-bits", b"64")?;
    file.aux(b"ctime", (now_ms / 1000).to_string().as_bytes())?;
    file.aux(b"moonshard-ver", env!("CARGO_PKG_VERSION").as_bytes())?;
    for (sha, words) in records(FLAGS) {
        file.aux(FLAGS_FIELD, &[sha, b" ", words].concat())?;
    }
    for (_, text) in records(SCRIPT) {
        file.script(text)?;
    }
    for (_, text) in records(LIBRARY) {
        file.function_library(text)?;
    }
    Ok(())
}
