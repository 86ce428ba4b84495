//! A connection to a server, over RESP3.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use resp::reader::{Progress, Reader};
use resp::{ReplyLimits, Value};
use tls::{Protocol, Tls, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::error::ToolError;
use super::task::{ServerAddress, read};
use crate::process::dial::Remote;

/// The variable that has the password, as for redis-cli: a password on the command line would be seen by other users.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;
/// How many bytes are written before it is looked whether the server still takes them.
const WRITTEN_BYTES: usize = 1 << 20;

/// How long a reply of one line may be.
const MOST_LINE_BYTES: usize = 64 << 10;

/// A connection on which one request is made at a time.
pub struct Connection {
    address: String,
    wire: Wire,
    received: Vec<u8>,
}

impl Connection {
    /// Connects and authenticates.
    pub async fn open(server: &ServerAddress) -> Result<Connection, ToolError> {
        let mut connection = Connection::connect(server).await?;
        let user = server.user.as_deref().unwrap_or("default");
        let password = password(server)?;
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &password {
            hello.extend([b"AUTH", user.as_bytes(), password]);
        }
        connection.enter(&hello, password.is_some()).await?;
        Ok(connection)
    }

    /// The same over RESP2, also to a server that knows neither users nor HELLO.
    pub async fn open_resp2(server: &ServerAddress) -> Result<Connection, ToolError> {
        let mut connection = Connection::connect(server).await?;
        let password = password(server)?;
        if let Some(password) = &password {
            let user = server.user.as_ref().map(|user| user.as_bytes());
            let auth: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(user).chain([&password[..]]).collect();
            connection.enter(&auth, true).await?;
        }
        connection.enter(&[b"PING"], password.is_some()).await?;
        Ok(connection)
    }

    async fn connect(server: &ServerAddress) -> Result<Connection, ToolError> {
        let address = server.address.to_string();
        let tls = server
            .tls
            .clone()
            .map(Tls::load)
            .transpose()
            .map_err(|error| ToolError::new(format_args!("tls: {error}")))?;
        let remote = Remote { address: address.clone(), name: None, tls: tls.map(Arc::new) };
        let wire = remote.connect(Protocol::Resp).await;
        let wire =
            wire.map_err(|error| ToolError::new(format_args!("cannot connect to {address}: {error}")))?;
        Ok(Connection { address, wire, received: Vec::new() })
    }

    /// Makes a request that every client may make once it has authenticated.
    async fn enter(&mut self, argv: &[&[u8]], has_password: bool) -> Result<(), ToolError> {
        match self.call(argv).await? {
            Value::Error(text) if !has_password && text.starts_with(b"NOAUTH") => {
                Err(ToolError::new(format_args!(
                    "{} requires a password: set --password-file FILE or {PASSWORD_VARIABLE}",
                    self.address
                )))
            }
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Err(ToolError::new(format_args!("{} refused the connection: {text}", self.address)))
            }
            _ => Ok(()),
        }
    }

    /// Makes a request and waits for its reply.
    pub async fn call(&mut self, argv: &[&[u8]]) -> Result<Value, ToolError> {
        self.exchange(argv).await.map_err(|error| self.no_reply(&error))
    }

    /// Makes a request and waits for the first line that comes, as [`Connection::line`] does.
    pub async fn first_line(&mut self, argv: &[&[u8]], stalled: Duration) -> Result<Vec<u8>, ToolError> {
        let line = async {
            self.send(argv).await?;
            self.next_line(stalled).await
        };
        line.await.map_err(|error| self.no_reply(&error))
    }

    /// The next line that comes, without its end. A server that sends nothing for so long as `stalled` is given up; Redis
    /// sends line feeds while it prepares an RDB file.
    pub async fn line(&mut self, stalled: Duration) -> Result<Vec<u8>, ToolError> {
        self.next_line(stalled).await.map_err(|error| self.no_reply(&error))
    }

    /// Sends requests, made by [`push_request`], and waits for their `count` replies. A server that takes and sends nothing
    /// for so long as `stalled` is given up.
    pub async fn pipeline(
        &mut self,
        requests: &[u8],
        count: usize,
        stalled: Duration,
    ) -> Result<Vec<Value>, ToolError> {
        self.exchange_all(requests, count, stalled).await.map_err(|error| self.no_reply(&error))
    }

    fn no_reply(&self, error: &io::Error) -> ToolError {
        ToolError::new(format_args!("{} did not reply: {error}", self.address))
    }

    async fn exchange_all(
        &mut self,
        requests: &[u8],
        count: usize,
        stalled: Duration,
    ) -> io::Result<Vec<Value>> {
        let too_late = || io::Error::from(io::ErrorKind::TimedOut);
        for piece in requests.chunks(WRITTEN_BYTES) {
            timeout(stalled, self.wire.write_all(piece)).await.map_err(|_| too_late())??;
        }
        timeout(stalled, self.wire.flush()).await.map_err(|_| too_late())??;
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            replies.push(timeout(stalled, self.next_reply()).await.map_err(|_| too_late())??);
        }
        Ok(replies)
    }

    async fn next_line(&mut self, stalled: Duration) -> io::Result<Vec<u8>> {
        loop {
            let begin = self.received.iter().position(|byte| *byte != b'\n').unwrap_or(self.received.len());
            self.received.drain(..begin);
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                let mut line: Vec<u8> = self.received.drain(..end + 2).collect();
                line.truncate(end);
                return Ok(line);
            }
            if self.received.len() > MOST_LINE_BYTES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "this is no reply: its line exceeds 64kb",
                ));
            }
            let more = timeout(stalled, self.read_more()).await;
            more.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        }
    }

    /// Appends what comes to `into`; returns how many bytes, which are none when the server has ended the connection.
    pub async fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        if !self.received.is_empty() {
            into.append(&mut self.received);
            return Ok(into.len());
        }
        into.reserve(READ_BYTES);
        self.wire.read_buf(into).await
    }

    async fn exchange(&mut self, argv: &[&[u8]]) -> io::Result<Value> {
        self.send(argv).await?;
        self.next_reply().await
    }

    async fn next_reply(&mut self) -> io::Result<Value> {
        let mut reader = Reader::new(ReplyLimits::default());
        loop {
            let progress = reader.read(&self.received).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("this is no reply: {error}"))
            })?;
            match progress {
                Progress::Done { value, consumed } => {
                    self.received.drain(..consumed);
                    return Ok(value);
                }
                Progress::Incomplete { .. } => self.read_more().await?,
            }
        }
    }

    async fn send(&mut self, argv: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        push_request(&mut bytes, argv);
        self.wire.write_all(&bytes).await?;
        self.wire.flush().await
    }

    async fn read_more(&mut self) -> io::Result<()> {
        self.received.reserve(READ_BYTES);
        match self.wire.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Appends a request to others.
pub fn push_request(requests: &mut Vec<u8>, argv: &[&[u8]]) {
    requests.extend_from_slice(format!("*{}\r\n", argv.len()).as_bytes());
    for arg in argv {
        requests.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        requests.extend_from_slice(arg);
        requests.extend_from_slice(b"\r\n");
    }
}

fn password(server: &ServerAddress) -> Result<Option<Vec<u8>>, ToolError> {
    if let Some(password) = &server.password {
        return Ok(Some(password.clone().into_bytes()));
    }
    if let Some(file) = &server.password_file {
        let text = read(file)?;
        return Ok(Some(
            text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end().to_vec(),
        ));
    }
    Ok(std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty()).map(String::into_bytes))
}
