//! MIGRATE: keys move to another server, which gets each of them by RESTORE.
//!
//! Keys are moved in batches. Those of a batch are locked from before their values are read until those that the other server
//! has acknowledged are deleted here, so that no change is lost; other clients, and other keys, are served meanwhile. Values
//! are read and sent one at a time. If the client disconnects, or the connection to the other server is lost, keys that are
//! not deleted here may be there, too.

mod target;

use std::sync::Arc;
use std::time::Duration;

use store::{LockRequest, Mode, ParsedCall, Store, Transaction};
use store_engine::spec::{Access, flags};
use store_engine::{
    Args, Arity, Command, CommandError, Group, KeyPart, Protocol, Reply, command, error, number,
};

use crate::scripting::error_of;
use crate::server::{AsyncHandler, Handler, InExec, Server, SessionCommand};
use crate::session::Session;
use crate::telemetry::arguments::cut;
use crate::telemetry::counters::unix_ms;
use target::{Answer, Target};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[SessionCommand {
    spec: Command {
        name: "migrate",
        since: "2.6.0",
        group: Group::Generic,
        arity: Arity::AtLeast(6),
        keys: &[KeyPart::Migrated { access: Access::Write }],
        access: Access::Write,
        flags: flags::DANGEROUS | flags::MOVABLE_KEYS | flags::NO_MULTI,
        summary: "Transfers keys to another server.",
        complexity: "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See the pages of these commands for time complexity. Also an O(N) data transfer between the two instances is performed.",
        syntax: "host port:int key_or_empty_string(key | !empty_string) destination-db:int timeout:int COPY@3.0.0? REPLACE@3.0.0? authentication(AUTH=password@4.0.7? | AUTH2=username_password(username password)@6.0.0?)? KEYS=key@3.0.6...?",
        ..Command::BASE
    },
    run: Handler::Async(AsyncHandler {
        in_exec: InExec::Refused,
        ends_with_client: true,
        ..AsyncHandler::new(|server, session, args, out| Box::pin(migrate(server, session, args, out)))
    }),
}];

/// Keys that are locked together.
const KEYS_PER_BATCH: usize = 64;

/// The timeout of a call that gives none that is positive.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of the name of a host that an error shows.
const MOST_SHOWN_BYTES: usize = 128;

/// What is wanted of a MIGRATE.
struct Options<'a> {
    keys: &'a [&'a [u8]],
    /// The database of the other server, whose number that server checks.
    db: i64,
    /// For each wait for the other server.
    timeout: Duration,
    copy: bool,
    replace: bool,
    /// Arguments of AUTH; empty if there are none.
    credentials: &'a [&'a [u8]],
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, CommandError> {
        let (mut copy, mut replace, mut credentials) = (false, false, &[][..]);
        let mut keys = &args.items()[3..4];
        let mut cursor = args.cursor(6);
        while !cursor.is_done() {
            if cursor.flag("COPY") {
                copy = true;
            } else if cursor.flag("REPLACE") {
                replace = true;
            } else if cursor.flag("AUTH") {
                credentials = cursor.take(1)?;
            } else if cursor.flag("AUTH2") {
                credentials = cursor.take(2)?;
            } else if cursor.flag("KEYS") {
                if !args[3].is_empty() {
                    return Err(CommandError::new(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                keys = cursor.rest();
            } else {
                return Err(error::SYNTAX);
            }
        }
        let timeout = u64::try_from(args.integer(5)?).ok().filter(|ms| *ms > 0);
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        Ok(Options { keys, db: args.integer(4)?, timeout, copy, replace, credentials })
    }
}

async fn migrate(
    server: &Arc<Server>,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let options = Options::parse(args)?;
    let host = String::from_utf8_lossy(args[1]);
    if !server.config.migrate_hosts.allow(&host) {
        let host = cut(args[1], MOST_SHOWN_BYTES);
        return Err(CommandError::owned(format!(
            "ERR MIGRATE to the host '{}' is not allowed: add it to the parameter migrate-hosts and restart the server",
            String::from_utf8_lossy(&host)
        )));
    }
    if !any_exists(&server.store, session, options.keys).await? {
        out.status("NOKEY");
        return Ok(());
    }
    // Port 0 takes no connection.
    let port = std::str::from_utf8(args[2]).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
    let mut target = Target::connect(&host, port, options.timeout).await?;
    target.enter(options.credentials, options.db).await?;
    let mut failure = None;
    for keys in options.keys.chunks(KEYS_PER_BATCH) {
        let mut batch = Batch::begin(&server.store, session.db, keys, &options).await?;
        let moved = batch.move_to(&mut target, &options, keys, &mut failure).await;
        batch.txn.commit().await.map_err(error_of)?;
        if let Err(error) = moved {
            failure.get_or_insert(error);
            break;
        }
    }
    match failure {
        Some(error) => Err(error),
        None => {
            out.ok();
            Ok(())
        }
    }
}

/// Whether there is one of these keys.
async fn any_exists(store: &Store, session: &Session, keys: &[&[u8]]) -> Result<bool, CommandError> {
    if keys.is_empty() {
        return Ok(false);
    }
    let items = [&[&b"EXISTS"[..]], keys].concat();
    let row = command::lookup(b"exists").expect("the engine has it");
    let call = ParsedCall::new(row, Args::new(&items)).expect("it takes any number of keys").of_server();
    let mut reply = Reply::new(Protocol::Resp2);
    store.execute(&call.at(session.db, 0), session.client.id, unix_ms, &mut 0, &mut reply).await;
    Ok(integer(&reply.buf)? > 0)
}

/// Keys that are locked while they are moved.
struct Batch {
    txn: Transaction,
    db: usize,
    now_ms: u64,
    mode: Mode,
}

impl Batch {
    /// Waits until the keys are locked.
    async fn begin(
        store: &Store,
        db: usize,
        keys: &[&[u8]],
        options: &Options<'_>,
    ) -> Result<Batch, CommandError> {
        let mode = if options.copy { Mode::Shared } else { Mode::Exclusive };
        let locks = keys.iter().map(|key| LockRequest { db, key: (*key).into(), mode }).collect();
        let mut txn = store.begin(locks, false, None, Vec::new()).await.map_err(error_of)?;
        let now_ms = txn.keep_time(unix_ms);
        Ok(Batch { txn, db, now_ms, mode })
    }

    /// Sends the keys, and deletes those that the target takes unless they are copied. Those that it refuses stay, and
    /// `refusal` is the first reason. An error says that nothing more can be sent.
    async fn move_to(
        &mut self,
        target: &mut Target,
        options: &Options<'_>,
        keys: &[&[u8]],
        refusal: &mut Option<CommandError>,
    ) -> Result<(), CommandError> {
        let mut sent = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(request) = self.restore(key, options.replace).await? {
                target.send(&request).await?;
                sent.push(key);
            }
        }
        for key in sent {
            match target.answer().await? {
                Answer::Done if options.copy => {}
                Answer::Done => self.run("del", key, &mut Reply::new(Protocol::Resp2)).await?,
                Answer::Refused(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Ok(())
    }

    /// A request to restore a key, if there is such a key.
    async fn restore(&mut self, key: &[u8], replace: bool) -> Result<Option<Vec<u8>>, CommandError> {
        let mut ttl = Reply::new(Protocol::Resp2);
        self.run("pttl", key, &mut ttl).await?;
        let ttl_ms = match integer(&ttl.buf)? {
            -2 => return Ok(None),
            -1 => 0,
            ttl_ms => ttl_ms.max(1),
        };
        let mut request = Reply::new(Protocol::Resp2);
        request.array(if replace { 5 } else { 4 });
        request.bulk(b"RESTORE");
        request.bulk(key);
        request.bulk(ttl_ms.to_string().as_bytes());
        // The reply is the argument, as both are bulk strings: large values are not copied.
        self.run("dump", key, &mut request).await?;
        if replace {
            request.bulk(b"REPLACE");
        }
        Ok(Some(request.buf))
    }

    /// Runs a command that takes a key only, and appends its reply.
    async fn run(&mut self, name: &str, key: &[u8], out: &mut Reply) -> Result<(), CommandError> {
        let items = [name.as_bytes(), key];
        let row = command::lookup(items[0]).expect("the engine has it");
        let call = ParsedCall::new(row, Args::new(&items)).expect("it takes one key").of_server();
        let start = out.begin();
        let done = self.txn.execute(&call.at(self.db, self.now_ms), self.mode, &mut 0, out).await;
        if done.map_err(error_of)? { Ok(()) } else { Err(error_in(&out.buf[start..])) }
    }
}

/// The integer that a reply is.
fn integer(reply: &[u8]) -> Result<i64, CommandError> {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    digits.and_then(number::parse_i64).ok_or_else(|| error_in(reply))
}

/// The error that a reply is.
fn error_in(reply: &[u8]) -> CommandError {
    let text = reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii_end();
    CommandError::owned(String::from_utf8_lossy(text).into_owned())
}
