//! The server that MIGRATE moves keys to.

use std::io;
use std::time::Duration;

use store_engine::{CommandError, Protocol, Reply};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECTING: CommandError = CommandError::new("IOERR error or timeout connecting to the client");
const WRITING: CommandError = CommandError::new("IOERR error or timeout writing to target instance");
const READING: CommandError = CommandError::new("IOERR error or timeout reading to target instance");

/// Bytes of a line that are accepted as an answer: as many as Redis reads.
const MOST_ANSWER_BYTES: u64 = 1024;

/// Bytes whose acceptance is waited for at a time, as in Redis: the timeout is not that of a whole value.
const CHUNK_BYTES: usize = 64 << 10;

/// A connection to another server.
pub struct Target {
    wire: BufReader<TcpStream>,
    /// How long each step may take.
    timeout: Duration,
}

/// How a request was answered.
pub enum Answer {
    /// It was done.
    Done,
    /// It was refused: the error for our client.
    Refused(CommandError),
}

impl Target {
    /// Connects. The error is the reply of MIGRATE, as those of the other functions are.
    pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<Target, CommandError> {
        let connected = within(timeout, CONNECTING, TcpStream::connect((host, port))).await?;
        connected.set_nodelay(true).map_err(|_| CONNECTING)?;
        Ok(Target { wire: BufReader::new(connected), timeout })
    }

    /// Logs in, if there are arguments for AUTH, and selects a database. Nothing else is sent before both have succeeded.
    pub async fn enter(&mut self, credentials: &[&[u8]], db: i64) -> Result<(), CommandError> {
        let db = db.to_string();
        let calls = [("AUTH", credentials), ("SELECT", &[db.as_bytes()])];
        for (name, args) in calls.into_iter().filter(|(_, args)| !args.is_empty()) {
            let mut request = Reply::new(Protocol::Resp2);
            request.array(1 + args.len());
            request.bulk(name.as_bytes());
            args.iter().for_each(|arg| request.bulk(arg));
            self.send(&request.buf).await?;
            if let Answer::Refused(error) = self.answer().await? {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends a request.
    pub async fn send(&mut self, request: &[u8]) -> Result<(), CommandError> {
        for chunk in request.chunks(CHUNK_BYTES) {
            within(self.timeout, WRITING, self.wire.write_all(chunk)).await?;
        }
        Ok(())
    }

    /// Waits for the answer to the first request that has none. What is no answer of a Redis server is an error.
    pub async fn answer(&mut self) -> Result<Answer, CommandError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.wire).take(MOST_ANSWER_BYTES);
        within(self.timeout, READING, limited.read_until(b'\n', &mut line)).await?;
        match line.strip_suffix(b"\r\n") {
            Some([b'+', ..]) => Ok(Answer::Done),
            Some([b'-', text @ ..]) => Ok(Answer::Refused(CommandError::owned(format!(
                "ERR Target instance replied with error: {}",
                String::from_utf8_lossy(text)
            )))),
            _ => Err(READING),
        }
    }
}

/// What a step comes to, or `error` if it fails or takes too long.
async fn within<T>(
    limit: Duration,
    error: CommandError,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, CommandError> {
    match timeout(limit, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) | Err(_) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What a target of which all is known answers to a request.
    async fn answer_of(bytes: &[u8]) -> Result<Answer, CommandError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its port").port();
        let mut target =
            Target::connect("127.0.0.1", port, Duration::from_secs(60)).await.expect("it listens");
        let (mut other, _) = listener.accept().await.expect("it has connected");
        other.write_all(bytes).await.expect("it is open");
        drop(other);
        target.answer().await
    }

    #[tokio::test]
    async fn only_a_line_of_redis_is_an_answer() {
        assert!(matches!(answer_of(b"+OK\r\n").await, Ok(Answer::Done)));
        let refused = answer_of(b"-BUSYKEY it is there\r\n").await;
        let Ok(Answer::Refused(error)) = refused else { panic!("it is an error") };
        assert_eq!(error.text(), "ERR Target instance replied with error: BUSYKEY it is there");
        let endless = [b'+'; 2000];
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"+OK", b"", b":1\r\n", &endless] {
            assert_eq!(answer_of(bytes).await.err(), Some(READING));
        }
    }
}
