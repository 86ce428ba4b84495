//! Requests that are sessions of their own: they run commands and get their replies.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use resp::{ReplyLimits, Value};
use store::journal::misconf;
use store_engine::{Args, DATABASES, Protocol, Reply};

use crate::acl::NOAUTH;
use crate::admission::{self, Origin};
use crate::commands::dispatch;
use crate::config::ClientGone;
use crate::server::{Row, Server};
use crate::session::{ClientInfo, DataAccess, Session};
use crate::telemetry::counters::{Counters, unix_ms};
use crate::telemetry::spans::Parent;

/// Why a request is not answered as it wished.
#[derive(Clone, Debug)]
pub enum Failure {
    /// It does not say what it should.
    Request(String),
    /// The text of an error reply.
    Reply(Vec<u8>),
    /// What must not happen.
    Internal(String),
}

impl Failure {
    fn internal(error: &dyn std::fmt::Display) -> Failure {
        Failure::Internal(format!("ERR internal error: {error}"))
    }
}

/// Why nothing of a transaction was done.
pub struct Refused {
    /// In one error.
    pub why: Failure,
    /// Which of its commands were refused, and the texts of their errors.
    pub commands: Vec<(usize, Vec<u8>)>,
}

impl From<Failure> for Refused {
    fn from(why: Failure) -> Refused {
        Refused { why, commands: Vec::new() }
    }
}

/// A session, and the server it is with.
pub struct Work {
    /// What all share.
    pub server: Arc<Server>,
    /// What its commands are run in.
    pub session: Session,
}

impl Work {
    /// A new session of this client, to which replies of RESP3 are given. Nothing is traced before it is known who asks.
    pub fn new(server: &Arc<Server>, client: Arc<ClientInfo>) -> Work {
        let mut session = Session::new(client, &server.acl);
        session.protocol = Protocol::Resp3;
        session.parent = Parent::Untraced;
        Work { server: server.clone(), session }
    }

    /// Selects a database.
    pub fn select(&mut self, db: Option<usize>) -> Result<(), Failure> {
        let refused = || Failure::Reply(b"ERR DB index is out of range".to_vec());
        let db = db.filter(|db| *db < DATABASES).ok_or_else(refused)?;
        if db != self.session.db {
            self.check(&[b"SELECT", db.to_string().as_bytes()])?;
            self.session.db = db;
        }
        Ok(())
    }

    /// Refuses what comes to the same as a command that the client may not run.
    pub fn check(&self, argv: &[&[u8]]) -> Result<(), Failure> {
        let admitted = admission::admit(&self.server, Origin::Client(&self.session), Args::new(argv));
        admitted.map(drop).map_err(|why| Failure::Reply(why.error().text().as_bytes().to_vec()))
    }

    /// Says who asks, as an `Authorization` header does: `Basic` with user and password, or `Bearer` with the password
    /// of the user `default`.
    pub fn authenticate(&mut self, header: &[u8]) -> Result<(), Failure> {
        let wrong = || {
            let text =
                "WRONGPASS authorization must be Basic with user and password or Bearer with a password";
            Failure::Reply(text.as_bytes().to_vec())
        };
        let at = header.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let (scheme, rest) = (&header[..at], header[at..].trim_ascii());
        let decoded;
        let (user, password) = if scheme.eq_ignore_ascii_case(b"basic") {
            decoded = BASE64.decode(rest).map_err(|_| wrong())?;
            let colon = decoded.iter().position(|byte| *byte == b':').ok_or_else(wrong)?;
            (&decoded[..colon], &decoded[colon + 1..])
        } else if scheme.eq_ignore_ascii_case(b"bearer") {
            (&b"default"[..], rest)
        } else {
            return Err(wrong());
        };
        let argv: [&[u8]; 3] = [b"AUTH", user, password];
        let mut out = Reply::new(self.session.protocol);
        self.session.clock = None;
        let left =
            dispatch::begin(&self.server, &mut self.session, Args::new(&argv), unix_ms(), &mut out).is_some();
        match out.buf.split_first() {
            Some((b'+', _)) if !left => Ok(()),
            Some((b'-', text)) => Err(Failure::Reply(text.trim_ascii_end().to_vec())),
            _ => Err(Failure::Internal("ERR internal error: AUTH returned no reply".into())),
        }
    }

    /// Refuses an unauthenticated client.
    pub fn require_authentication(&self) -> Result<(), Failure> {
        match self.session.needs_password(&self.server.acl) {
            true => Err(Failure::Reply(NOAUTH.text().as_bytes().to_vec())),
            false => Ok(()),
        }
    }

    /// Runs a command. Its reply as RESP, once its changes are kept as durability promises.
    pub async fn run(&mut self, argv: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        let reply = self.begin(argv).await?;
        self.keep().await?;
        Ok(reply)
    }

    /// Runs a command; an error reply is a failure.
    pub async fn value(&mut self, argv: &[&[u8]]) -> Result<Value, Failure> {
        self.sized_value(argv).await.map(|(value, _)| value)
    }

    /// [`Work::value`], and how many bytes it has.
    async fn sized_value(&mut self, argv: &[&[u8]]) -> Result<(Value, usize), Failure> {
        let reply = self.run(argv).await?;
        let bytes = reply.len();
        match apart(bytes, move || parse(&reply)).await?? {
            Value::Error(text) => Err(Failure::Reply(text)),
            value => Ok((value, bytes)),
        }
    }

    /// Runs a command whose reply must not be sent before [`Work::keep`].
    pub async fn begin(&mut self, argv: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        // Others on this thread have their turn, however long a pipeline is, and so has the disk.
        tokio::task::coop::consume_budget().await;
        self.server.store.wait_for_disk().await;
        let reply = if outlives_its_client(&self.server, argv) {
            let client = self.session.client.clone();
            let server = self.server.clone();
            let unauthenticated = Session::new(client, &server.acl);
            let mut own = std::mem::replace(&mut self.session, unauthenticated);
            *own.client.account.lock() = own.account.clone();
            let argv: Vec<Vec<u8>> = argv.iter().map(|arg| arg.to_vec()).collect();
            let run = tokio::spawn(async move {
                let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
                let reply = perform(&server, &mut own, &argv).await;
                (own, reply)
            });
            let (own, reply) = run.await.map_err(|error| Failure::internal(&error))?;
            self.session = own;
            reply
        } else {
            perform(&self.server, &mut self.session, argv).await
        };
        Counters::add(&self.server.telemetry.counters.commands, 1);
        self.server.store.wait_for_room(argv.iter().map(|arg| arg.len()).sum()).await;
        if reply.len() >= LARGE_BYTES {
            tokio::task::yield_now().await;
        }
        Ok(reply)
    }

    /// Waits until what was done is kept as durability promises.
    pub async fn keep(&mut self) -> Result<(), Failure> {
        if self.session.data_access != DataAccess::Nothing
            && let Some(journal) = self.server.store.journal()
            && let Err(reason) = journal.settle(self.session.data_access == DataAccess::Written).await
            && self.session.data_access == DataAccess::Written
        {
            return Err(Failure::Reply(misconf(&reason).text().as_bytes().to_vec()));
        }
        self.session.data_access = DataAccess::Nothing;
        Ok(())
    }

    /// Runs commands as one transaction: their replies and how many bytes these have, or why nothing was done.
    pub async fn transaction(
        &mut self,
        commands: impl Iterator<Item = Vec<&[u8]>>,
    ) -> Result<(Vec<Value>, usize), Refused> {
        // MULTI and the queued commands have no spans of their own: they are parts of that of EXEC.
        let parent = std::mem::replace(&mut self.session.parent, Parent::Untraced);
        let queued = self.queue(commands).await;
        self.session.parent = parent;
        let refused = queued?;
        match self.sized_value(&[b"EXEC"]).await {
            Ok((Value::Array(replies), bytes)) => Ok((replies, bytes)),
            Ok((other, bytes)) => Ok((vec![other], bytes)),
            Err(why) => Err(Refused { why, commands: refused }),
        }
    }

    /// Begins a transaction: which of its commands were refused, with the texts of their errors.
    async fn queue(
        &mut self,
        commands: impl Iterator<Item = Vec<&[u8]>>,
    ) -> Result<Vec<(usize, Vec<u8>)>, Failure> {
        self.begin(&[b"MULTI"]).await?;
        let mut refused = Vec::new();
        for (index, command) in commands.enumerate() {
            if let Value::Error(text) = parse(&self.begin(&command).await?)? {
                refused.push((index, text));
            }
        }
        Ok(refused)
    }
}

/// Bytes of a reply from which on it is converted on another thread.
const LARGE_BYTES: usize = 256 << 10;

/// Does what takes as long as a reply of so many bytes is large: here, or on another thread.
pub async fn apart<T: Send + 'static>(
    bytes: usize,
    convert: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    match bytes < LARGE_BYTES {
        true => Ok(convert()),
        false => tokio::task::spawn_blocking(convert).await.map_err(|error| Failure::internal(&error)),
    }
}

/// A reply as a tree.
pub fn parse(reply: &[u8]) -> Result<Value, Failure> {
    Value::parse(reply, ReplyLimits::default())
        .map_err(|error| Failure::Internal(format!("ERR the reply cannot be encoded: {error}")))
}

/// The code word of an error text.
pub fn code_of(text: &str) -> &str {
    let word = text.split(' ').next().unwrap_or_default();
    let is_code = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if is_code { word } else { "ERR" }
}

/// Commands that change what a connection is, and what to do or to know instead: here each request is a session of its own.
const OF_CONNECTIONS: &[(&str, &str)] = &[
    ("multi", "use instead: a pipeline with \"atomic\": true"),
    ("exec", "use instead: a pipeline with \"atomic\": true"),
    ("discard", "use instead: a pipeline with \"atomic\": true"),
    ("watch", "use instead: a script, which is atomic"),
    ("unwatch", "use instead: a script, which is atomic"),
    ("select", "use instead: the parameter db"),
    ("hello", "replies always use the types of RESP3"),
    ("reset", "each request has a session of its own"),
    ("quit", "each request has a session of its own"),
];

/// Refuses a command without a name, or one that makes no sense without a connection of its own.
pub fn admit(name: Option<&[u8]>) -> Result<(), Failure> {
    let Some(name) = name else { return Err(Failure::Request("a command must have a name".into())) };
    let is_named = |(known, _): &&(&str, &str)| name.eq_ignore_ascii_case(known.as_bytes());
    match OF_CONNECTIONS.iter().find(is_named) {
        Some((known, instead)) => {
            let known = known.to_uppercase();
            let text = format!("ERR {known} requires a persistent connection; {instead}");
            Err(Failure::Reply(text.into_bytes()))
        }
        None => Ok(()),
    }
}

/// Whether a command is or has a script that is to run to its end although its client has disconnected.
fn outlives_its_client(server: &Server, argv: &[&[u8]]) -> bool {
    server.config.script_client_gone.get() == ClientGone::Finish
        && matches!(
            server.registry.lookup(argv[0]),
            Some(Row::Session(row)) if row.run.outlives_client()
        )
}

async fn perform(server: &Arc<Server>, session: &mut Session, argv: &[&[u8]]) -> Vec<u8> {
    let mut out = Reply::new(session.protocol);
    session.clock = None;
    if let Some(waiting) = dispatch::begin(server, session, Args::new(argv), unix_ms(), &mut out) {
        // Boxed, as it is the bulk of what would be moved from frame to frame: a call of gRPC that holds it is 20 KB.
        Box::pin(dispatch::finish(server, session, waiting, &mut out)).await;
    }
    out.buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_words_are_told_from_other_words() {
        for (text, wanted) in [
            ("WRONGTYPE Operation against a key", "WRONGTYPE"),
            ("ERR syntax error", "ERR"),
            ("My own words", "ERR"),
            ("FULL at 2", "FULL"),
            ("", "ERR"),
        ] {
            assert_eq!(code_of(text), wanted);
        }
    }

    #[test]
    fn commands_of_connections_are_refused_with_what_to_do_or_to_know() {
        let text = |name: &[u8]| match admit(Some(name)) {
            Err(Failure::Reply(text)) => String::from_utf8(text).expect("it is text"),
            other => panic!("{:?}", other.is_ok()),
        };
        assert_eq!(
            text(b"Select"),
            "ERR SELECT requires a persistent connection; use instead: the parameter db"
        );
        assert_eq!(
            text(b"hello"),
            "ERR HELLO requires a persistent connection; replies always use the types of RESP3"
        );
    }
}
