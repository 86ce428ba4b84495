//! The session that applies what the primary sends.

use std::sync::Arc;

use resp::{Limits, Parser, ReplyLimits, Value};
use store::Call;
use store_engine::spec::flags;
use store_engine::{Args, Protocol, Reply};

use super::adapt::adapted;
use super::copy::{Batch, Command};
use crate::admission::{self, Admitted, Origin, Parsed};
use crate::commands::dispatch;
use crate::server::Server;
use crate::session::Session;
use crate::telemetry::counters::unix_ms;

/// The name of the user that applies changes, in the audit log.
const USER: &[u8] = b"(primary)";
/// How slow the clock of changes is. Only the primary says that a key has expired: until then it may also say that the key lives
/// longer. What has expired longer ago than this will not be said to live.
const BEHIND_MS: u64 = 3_600_000;
/// Bytes of a command's name that an error shows.
const SHOWN_BYTES: usize = 64;

/// Parses what the primary sends, with the limits of Redis: those of clients here may be lower.
pub fn parser() -> Parser {
    Parser::new(Limits::default())
}

/// Applies changes.
pub struct Applier {
    server: Arc<Server>,
    session: Session,
    /// The data is empty, or has a part of the copy that is being loaded.
    loading: bool,
    /// Bytes of commands that are not applied, as their transaction is not complete.
    pending: u64,
    /// Bytes of commands that were applied since that was asked for.
    applied: u64,
}

impl Applier {
    /// One that has applied nothing.
    pub fn new(server: &Arc<Server>) -> Applier {
        let account = server.acl.internal(USER);
        let client = server.sessions.new_client(String::new(), String::new(), account.clone());
        let mut session = Session::within(client, account, 0, Protocol::Resp2);
        // On store nodes keys expire by the clocks of these.
        session.behind_ms = if server.store.node().is_some() { BEHIND_MS } else { 0 };
        // The slow clock is not to be seen in how recently keys were used.
        session.client.set_no_touch(true);
        Applier { server: server.clone(), session, loading: false, pending: 0, applied: 0 }
    }

    /// Milliseconds by which its clock is slow.
    pub fn behind_ms(&self) -> u64 {
        self.session.behind_ms
    }

    /// The number of its client.
    pub fn client(&self) -> u64 {
        self.session.client.id
    }

    /// Deletes all data and all libraries. What follows is a copy.
    pub async fn empty(&mut self) -> Result<(), String> {
        self.session.select(0);
        self.run(&[b"FLUSHALL"]).await?;
        self.run(&[b"FUNCTION", b"FLUSH"]).await?;
        self.loading = true;
        Ok(())
    }

    /// Whether a copy is being loaded.
    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// No more of a copy comes.
    pub fn end_loading(&mut self) {
        self.loading = false;
        self.session.select(0);
    }

    /// Loads a part of a copy.
    pub async fn load(&mut self, batch: Batch) -> Result<(), String> {
        for command in &batch.commands {
            let argv: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            self.run(&argv).await?;
        }
        for keys in batch.keys.chunk_by(|one, other| one.0 == other.0) {
            self.restore(keys[0].0, keys).await?;
        }
        self.server.store.wait_for_disk().await;
        Ok(())
    }

    /// Restores keys of a database.
    async fn restore(&mut self, db: usize, keys: &[(usize, Command)]) -> Result<(), String> {
        let (server, session) = (&self.server, &mut self.session);
        let requests: Vec<Vec<&[u8]>> =
            keys.iter().map(|(_, command)| command.iter().map(Vec::as_slice).collect()).collect();
        let admit = |argv| {
            let admitted = admission::admit(server, Origin::Client(session), Args::new(argv));
            admitted.map_err(|why| why.error().text().to_owned())
        };
        let admitted: Vec<Admitted<'_>> =
            requests.iter().map(|argv| admit(argv)).collect::<Result<_, String>>()?;
        let now_ms = session.clock_of(unix_ms());
        let calls: Vec<Call<'_>> = admitted.iter().map(|admitted| admitted.at(db, now_ms)).collect();
        let (client, seed) = (session.client.id, &mut session.seed);
        if let Some(failed) = server.store.execute_together(&calls, client, seed).await {
            return failed.first().map_or(Ok(()), |(_, reply)| Err(text_of(reply)));
        }
        for call in &calls {
            let mut out = Reply::new(Protocol::Resp2);
            let done = match server.store.try_execute(call, seed, &mut out) {
                Some(done) => done,
                None => server.store.execute(call, client, || now_ms, seed, &mut out).await,
            };
            if !done {
                return Err(text_of(&out.buf));
            }
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    /// Applies a command of the primary. Whether the primary wants to know how far this server is. An error: this server
    /// has not done what the primary has.
    pub async fn apply(&mut self, argv: &[&[u8]]) -> Result<bool, String> {
        let args = Args::new(argv);
        let is_named = |name: &str| args.name().eq_ignore_ascii_case(name.as_bytes());
        if is_named("ping") {
            return Ok(false);
        }
        if is_named("replconf") {
            return Ok(args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"getack")));
        }
        let shown = args.name().escape_ascii().to_string();
        let shown = &shown[..shown.len().min(SHOWN_BYTES)];
        let parsed = admission::parse(&self.server.registry, args, false);
        let parsed =
            parsed.map_err(|error| format!("sends {shown}, which this server refuses: {}", error.text()))?;
        if !is_change(&parsed) {
            return Err(format!("sends {shown}, which is no change of data"));
        }
        drop(parsed);
        let adapted = adapted(argv, unix_ms());
        let words: Vec<&[u8]> = adapted.iter().flatten().map(Vec::as_slice).collect();
        let done = self.run(if adapted.is_some() { &words } else { argv }).await;
        done.map_err(|why| format!("sends {shown}, which has failed here: {why}"))?;
        let bytes = argv.iter().map(|arg| arg.len()).sum();
        self.server.store.wait_for_room(bytes).await;
        self.server.store.wait_for_disk().await;
        tokio::task::coop::consume_budget().await;
        Ok(false)
    }

    /// So many bytes were received and are done with.
    pub fn count(&mut self, bytes: usize) {
        self.pending += bytes as u64;
        if self.session.multi.is_none() {
            self.applied += std::mem::take(&mut self.pending);
        }
    }

    /// Bytes that were applied since the last call.
    pub fn take_applied(&mut self) -> u64 {
        std::mem::take(&mut self.applied)
    }

    /// Forgets the part of a transaction whose rest will not come on this connection.
    pub fn forget_transaction(&mut self) {
        self.session.multi = None;
        (self.pending, self.applied) = (0, 0);
    }

    /// Runs a command. An error reply, also one within that of EXEC, is an error.
    async fn run(&mut self, argv: &[&[u8]]) -> Result<(), String> {
        let (server, session) = (&self.server, &mut self.session);
        let mut out = Reply::new(Protocol::Resp2);
        session.clock = None;
        let now_ms = session.clock_of(unix_ms());
        if let Some(waiting) = dispatch::begin(server, session, Args::new(argv), now_ms, &mut out) {
            Box::pin(dispatch::finish(server, session, waiting, &mut out)).await;
        }
        match out.buf.first() {
            Some(b'-') => Err(text_of(&out.buf)),
            Some(b'*') if argv[0].eq_ignore_ascii_case(b"exec") => first_error(&out.buf),
            _ => Ok(()),
        }
    }
}

/// Whether a primary may send a command: one that changes data, or is a part of what does.
fn is_change(parsed: &Parsed<'_>) -> bool {
    let spec = parsed.spec();
    match parsed.row.spec().name {
        "multi" | "exec" | "select" | "function" | "script" => true,
        "migrate" => false,
        _ => (spec.is_write() && !spec.has(flags::BLOCKING)) || spec.has(flags::PUBLISHES),
    }
}

fn text_of(reply: &[u8]) -> String {
    let text = reply.strip_prefix(b"-").unwrap_or(reply);
    String::from_utf8_lossy(text).trim_end().to_owned()
}

/// The first error among the replies of a transaction.
fn first_error(reply: &[u8]) -> Result<(), String> {
    let limits = ReplyLimits { max_bytes: usize::MAX, ..ReplyLimits::default() };
    match Value::parse(reply, limits) {
        Ok(Value::Array(replies)) => {
            let error = replies.iter().find_map(|reply| match reply {
                Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
            error.map_or(Ok(()), Err)
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the reply cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::FAMILIES;
    use crate::server::Registry;

    #[test]
    fn only_changes_are_taken() {
        let registry = Registry::new(FAMILIES);
        let taken = |line: &str| {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            is_change(&admission::parse(&registry, Args::new(&items), false).expect(line))
        };
        for line in [
            "SET a 1",
            "SELECT 1",
            "MULTI",
            "EXEC",
            "PUBLISH a b",
            "FUNCTION FLUSH",
            "SCRIPT LOAD a",
            "EVAL a 0",
            "LPOP a",
            "XCLAIM a g c 0 1-1",
            "FLUSHALL",
        ] {
            assert!(taken(line), "{line}");
        }
        for line in [
            "GET a",
            "BLPOP a 0",
            "MIGRATE h 1 a 0 1",
            "CONFIG SET a b",
            "ACL SETUSER a",
            "SHUTDOWN",
            "REPLICAOF NO ONE",
            "SUBSCRIBE a",
            "MONITOR",
            "WAIT 1 0",
            "DEBUG SLEEP 1",
        ] {
            let is_taken = std::panic::catch_unwind(|| taken(line)).unwrap_or(false);
            assert!(!is_taken, "{line}");
        }
    }

    #[test]
    fn errors_within_a_transaction_are_found() {
        assert_eq!(first_error(b"*2\r\n+OK\r\n:1\r\n"), Ok(()));
        assert_eq!(first_error(b"*2\r\n+OK\r\n-ERR no\r\n"), Err("ERR no".to_owned()));
    }
}
