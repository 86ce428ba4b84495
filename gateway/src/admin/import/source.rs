//! The server whose data is copied. It sends an RDB file, as to a replica.

use std::io::{self, Read};
use std::time::Duration;

use resp::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::admin::merge::keyspace;
use crate::admin::script::ServerAddress;
use crate::admin::script::error::ToolError;
use crate::admin::script::remote::Connection;
use crate::follow::file_end::FileEnd;

/// A server that sends nothing for so long is given up: that of replicas in Redis.
const STALLED: Duration = Duration::from_secs(60);

/// A connection on which no file has been asked for.
pub struct Source {
    connection: Connection,
    address: String,
}

impl Source {
    /// Connects and authenticates.
    pub async fn open(server: &ServerAddress) -> Result<Source, ToolError> {
        let address = server.address.to_string();
        let opened = timeout(STALLED, Connection::open_resp2(server)).await;
        let connection =
            opened.unwrap_or_else(|_| Err(ToolError::new(format_args!("{address} does not answer"))))?;
        Ok(Source { connection, address })
    }

    /// How many keys the server has, or its database `db`; none if it does not say.
    pub async fn keys(&mut self, db: Option<usize>) -> Result<Option<u64>, ToolError> {
        let told = self.call(&[b"INFO", b"keyspace"]).await?;
        Ok(match told {
            Value::Bulk(text) => {
                let keyspace = keyspace::parse(&text);
                let wanted = |name: &usize| db.is_none_or(|db| db == *name);
                Some(keyspace.iter().filter(|(name, _)| wanted(name)).map(|(_, keys)| keys).sum())
            }
            _ => None,
        })
    }

    /// Asks for the file and waits for its beginning.
    pub async fn snapshot(mut self, runtime: &Runtime) -> Result<Snapshot<'_>, ToolError> {
        // A server that knows `rdb-only` keeps no changes for this connection meanwhile.
        for options in [&["capa", "eof", "capa", "psync2"][..], &["rdb-only", "1"]] {
            let argv: Vec<&[u8]> = ["REPLCONF"].iter().chain(options).map(|word| word.as_bytes()).collect();
            self.call(&argv).await?;
        }
        let line = self.connection.first_line(&[b"PSYNC", b"?", b"-1"], STALLED).await?;
        if !line.starts_with(b"+FULLRESYNC ") {
            return Err(self.refused(&line));
        }
        let line = self.connection.line(STALLED).await?;
        let end = FileEnd::parse(&line).ok_or_else(|| self.refused(&line))?;
        let Source { connection, address } = self;
        Ok(Snapshot { runtime, connection, address, end, received: Vec::new(), taken: 0 })
    }

    async fn call(&mut self, argv: &[&[u8]]) -> Result<Value, ToolError> {
        let called = timeout(STALLED, self.connection.call(argv)).await;
        called.unwrap_or_else(|_| Err(ToolError::new(format_args!("{} does not answer", self.address))))
    }

    fn refused(&self, line: &[u8]) -> ToolError {
        let line = String::from_utf8_lossy(line.strip_prefix(b"-").unwrap_or(line)).into_owned();
        ToolError::new(format_args!("{} gives no copy of its data: {line}", self.address))
    }
}

/// An RDB file that is received while it is read. No more of it is held than was received at once.
pub struct Snapshot<'a> {
    runtime: &'a Runtime,
    connection: Connection,
    address: String,
    end: FileEnd,
    received: Vec<u8>,
    /// Bytes of those received that were read.
    taken: usize,
}

impl Snapshot<'_> {
    fn receive(&mut self) -> io::Result<()> {
        self.received.drain(..self.taken);
        self.taken = 0;
        let received = async { timeout(STALLED, self.connection.receive(&mut self.received)).await };
        // The kind of an error would be taken for the end of a file that is damaged.
        let lost = |why: &str| io::Error::other(format!("{} {why}", self.address));
        match self.runtime.block_on(received) {
            Ok(Ok(0)) => Err(lost("has ended the connection before its data was complete: its log says why")),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(lost(&format!("was lost: {error}"))),
            Err(_) => Err(lost("sends nothing any more")),
        }
    }
}

impl Read for Snapshot<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let rest = &self.received[self.taken..];
            let (held, is_end) = self.end.of(rest);
            if held == 0 && !is_end {
                self.receive()?;
                continue;
            }
            let count = held.min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            self.taken += count;
            self.end.take(count);
            return Ok(count);
        }
    }
}
