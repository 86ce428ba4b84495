//! The connection to the server that is followed: bytes, lines, and what is said before the data comes.

use std::io;
use std::time::Duration;

use tls::{Protocol, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::file_end::FileEnd;
use crate::process::dial::Remote;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// How long a reply of one line may be.
const MOST_LINE_BYTES: usize = 64 << 10;
/// Bytes of the name of a history.
const ID_BYTES: usize = 40;

/// Who this server is to the other one.
pub struct Credentials {
    /// The user, or none for `default`.
    pub user: String,
    /// The password, or none.
    pub password: String,
    /// Where this server listens, for the lists of the other one.
    pub port: u16,
}

/// A place in the history of a server's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The history, as the server names it.
    pub id: String,
    /// How many bytes of it are applied.
    pub offset: u64,
}

/// What a server sends after PSYNC.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    /// What follows the position that was asked for, of a history that may have another name now.
    Rest(Option<String>),
    /// All data as it is at a position, then what follows that.
    Copy(Position),
}

/// A connection. Errors say what was lost, for the log.
pub struct Link {
    wire: Wire,
    received: Vec<u8>,
    /// Bytes of those received that are done with.
    taken: usize,
    /// How long the other server may be silent.
    time_limit: Duration,
}

impl Link {
    /// Connects.
    pub async fn open(remote: &Remote, time_limit: Duration) -> Result<Link, String> {
        let connected = timeout(time_limit, remote.reconnect(Protocol::Resp)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let wire = connected.map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Link { wire, received: Vec::new(), taken: 0, time_limit })
    }

    /// Says who asks.
    pub async fn introduce(&mut self, own: &Credentials) -> Result<(), String> {
        let reply = self.ask(&[b"PING"]).await?;
        // As in Redis: it answers, and lets us say who we are.
        let answers = [&b"+"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
        if !answers.iter().any(|start| reply.starts_with(start)) {
            return Err(refused("PING", &reply));
        }
        if !own.password.is_empty() {
            let user = Some(own.user.as_bytes()).filter(|user| !user.is_empty());
            let argv: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([own.password.as_bytes()]).collect();
            let reply = self.ask(&argv).await?;
            if !reply.starts_with(b"+") {
                return Err(refused("masterauth", &reply));
            }
        }
        let port = own.port.to_string();
        for options in [&["listening-port", &port][..], &["capa", "eof", "capa", "psync2"]] {
            let argv: Vec<&[u8]> = ["REPLCONF"].iter().chain(options).map(|word| word.as_bytes()).collect();
            // One that does not know an option goes on without.
            self.ask(&argv).await?;
        }
        Ok(())
    }

    /// Asks for what follows a position, or for all.
    pub async fn synchronize(&mut self, position: Option<&Position>) -> Result<Start, String> {
        let next = position.map(|position| (position.offset + 1).to_string());
        let id = position.map_or(&b"?"[..], |position| position.id.as_bytes());
        let line = self.ask(&[b"PSYNC", id, next.as_deref().unwrap_or("-1").as_bytes()]).await?;
        match start(&line) {
            Some(Start::Rest(_)) | None if position.is_none() => Err(refused("PSYNC", &line)),
            Some(start) => Ok(start),
            None => Err(refused("PSYNC", &line)),
        }
    }

    /// The end of the copy that begins now.
    pub async fn copy(&mut self) -> Result<FileEnd, String> {
        let line = self.line().await?;
        FileEnd::parse(&line).ok_or_else(|| refused("PSYNC", &line))
    }

    async fn ask(&mut self, argv: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.send(argv).await?;
        self.line().await
    }

    /// Sends a command.
    pub async fn send(&mut self, argv: &[&[u8]]) -> Result<(), String> {
        let mut bytes = format!("*{}\r\n", argv.len()).into_bytes();
        for arg in argv {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        let sent = async {
            self.wire.write_all(&bytes).await?;
            self.wire.flush().await
        };
        match timeout(self.time_limit, sent).await {
            Ok(sent) => sent.map_err(|error| format!("the connection was lost: {error}")),
            Err(_) => Err("takes nothing any more".to_owned()),
        }
    }

    /// The next line, without its end. Redis sends line feeds while it prepares a copy.
    async fn line(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let blank = self.rest().iter().take_while(|byte| **byte == b'\n').count();
            self.advance(blank);
            if let Some(end) = self.rest().windows(2).position(|pair| pair == b"\r\n") {
                let line = self.rest()[..end].to_vec();
                self.advance(end + 2);
                return Ok(line);
            }
            if self.rest().len() > MOST_LINE_BYTES {
                return Err("sends what is no reply: its line exceeds 64kb".to_owned());
            }
            self.receive_in_time().await?;
        }
    }

    /// What was received and is not done with.
    pub fn rest(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// So many of these bytes are done with.
    pub fn advance(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        } else if self.taken >= READ_BYTES {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Receives more. Dropping the future loses nothing.
    pub async fn receive(&mut self) -> Result<(), String> {
        self.received.reserve(READ_BYTES);
        match self.wire.read_buf(&mut self.received).await {
            Ok(0) => Err("has ended the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the connection was lost: {error}")),
        }
    }

    /// The same, as long as the other server may be silent.
    pub async fn receive_in_time(&mut self) -> Result<(), String> {
        let time_limit = self.time_limit;
        timeout(time_limit, self.receive()).await.unwrap_or_else(|_| Err(silent(time_limit)))
    }
}

/// Why a server is given up that is silent.
pub fn silent(time_limit: Duration) -> String {
    format!("has sent nothing for {} seconds", time_limit.as_secs())
}

/// What the reply to PSYNC says.
fn start(line: &[u8]) -> Option<Start> {
    let words: Vec<&str> = std::str::from_utf8(line).ok()?.split(' ').collect();
    let id = |word: &str| {
        let is_id = word.len() == ID_BYTES && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_id.then(|| word.to_owned())
    };
    match words[..] {
        ["+FULLRESYNC", name, offset] => {
            // As much again may follow, and the largest number of Redis is no position.
            let offset = offset.parse().ok().filter(|offset| *offset < i64::MAX as u64 / 2)?;
            Some(Start::Copy(Position { id: id(name)?, offset }))
        }
        ["+CONTINUE"] => Some(Start::Rest(None)),
        ["+CONTINUE", name] => Some(Start::Rest(Some(id(name)?))),
        _ => None,
    }
}

fn refused(what: &str, line: &[u8]) -> String {
    let line = line.strip_prefix(b"-").unwrap_or(line);
    let shown: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(200).collect();
    format!("refused {what}: {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_to_psync_are_read() {
        let id = "8de1787ba490483314a4d30f1c628bc5025eb761";
        let copy = |offset| Some(Start::Copy(Position { id: id.to_owned(), offset }));
        for (line, wanted) in [
            (format!("+FULLRESYNC {id} 0"), copy(0)),
            (format!("+FULLRESYNC {id} 123456"), copy(123_456)),
            (format!("+FULLRESYNC {id} -1"), None),
            (format!("+FULLRESYNC {id} 18446744073709551615"), None),
            (format!("+FULLRESYNC {id}"), None),
            ("+FULLRESYNC short 1".to_owned(), None),
            ("+CONTINUE".to_owned(), Some(Start::Rest(None))),
            (format!("+CONTINUE {id}"), Some(Start::Rest(Some(id.to_owned())))),
            ("+CONTINUE short".to_owned(), None),
            ("-NOMASTERLINK Can't SYNC while not connected with my master".to_owned(), None),
        ] {
            assert_eq!(start(line.as_bytes()), wanted, "{line}");
        }
    }

    #[test]
    fn what_a_server_says_is_cut_for_the_log() {
        let line = format!("-ERR \u{7}{}", "x".repeat(500));
        assert_eq!(refused("PSYNC", line.as_bytes()).len(), "refused PSYNC: ".len() + 200);
    }
}
