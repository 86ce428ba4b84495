//! A blocking client that hides nothing: it sends what it is told and gives replies as they came.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use resp::{Progress, Reader, ReplyLimits, Value};
use store_engine::Protocol;

use crate::notation;

/// A connection.
pub struct Client {
    stream: TcpStream,
    reader: Reader,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, and says HELLO 3 for RESP3.
    pub fn connect(address: SocketAddr, protocol: Protocol) -> Client {
        Client::over(TcpStream::connect(address).expect("the server accepts connections"), protocol)
    }

    /// Connects, if somebody listens.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        Ok(Client::over(TcpStream::connect(address)?, Protocol::Resp2))
    }

    fn over(stream: TcpStream, protocol: Protocol) -> Client {
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(crate::TIMEOUT)).expect("a socket option");
        stream.set_write_timeout(Some(crate::TIMEOUT)).expect("a socket option");
        let limits = ReplyLimits { max_depth: 1024, max_bytes: 1 << 30 };
        let mut client = Client { stream, reader: Reader::new(limits), buffer: Vec::new() };
        if protocol == Protocol::Resp3 {
            let hello = client.call(["HELLO", "3"]);
            assert!(matches!(hello, Value::Map(_)), "HELLO 3 was answered with {hello:?}");
        }
        client
    }

    /// Sends one command and gives its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) -> Value {
        self.send(args);
        self.read()
    }

    /// Sends a command written as in redis-cli, such as `SET key "a value"`, and gives its reply.
    pub fn run(&mut self, line: &str) -> Value {
        self.call(notation::arguments(line).expect("balanced quotes"))
    }

    /// Runs commands, none of which may fail.
    #[track_caller]
    pub fn run_all(&mut self, lines: &[&str]) {
        for line in lines {
            let reply = self.run(line);
            assert!(!matches!(reply, Value::Error(_)), "{line}: {}", notation::reply(&reply));
        }
    }

    /// EVAL.
    pub fn eval(&mut self, script: &str, keys: &[&str], args: &[&str]) -> Value {
        let count = keys.len().to_string();
        self.call(["EVAL", script, &count].iter().chain(keys).chain(args))
    }

    /// Sends one command and leaves its reply for later.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) {
        self.send_raw(&encode(args)).expect("the server accepts requests");
    }

    /// Sends these bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next reply.
    ///
    /// # Panics
    /// When there is none.
    pub fn read(&mut self) -> Value {
        self.try_read().expect("a reply").expect("a reply before the connection ends")
    }

    /// The next reply; `None` when the server has closed the connection.
    pub fn try_read(&mut self) -> io::Result<Option<Value>> {
        loop {
            match self.reader.read(&self.buffer) {
                Ok(Progress::Done { value, consumed }) => {
                    self.buffer.drain(..consumed);
                    return Ok(Some(value));
                }
                Ok(Progress::Incomplete { .. }) => {}
                Err(error) => {
                    let start = self.buffer[..self.buffer.len().min(200)].escape_ascii();
                    return Err(io::Error::new(ErrorKind::InvalidData, format!("{error}: {start}")));
                }
            }
            let mut bytes = [0; 64 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The server closed with bytes of ours unread.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends all requests at once and gives all replies.
    pub fn pipeline(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let bytes: Vec<u8> = requests.iter().flat_map(encode).collect();
        let mut stream = self.stream.try_clone().expect("a second handle");
        // Beside the reading, as either side may have to wait for the other.
        let writer = std::thread::spawn(move || stream.write_all(&bytes));
        let replies = requests.iter().map(|_| self.read()).collect();
        writer.join().expect("no panic").expect("the server accepts requests");
        replies
    }

    /// Whether the server has closed the connection; waits for it.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.try_read(), Ok(None))
    }

    /// Says that nothing more will be sent. Replies still come.
    pub fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// The socket, for what this client does not do.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Reads a command that a client sent as an array of bulk strings.
pub fn read_request(wire: &mut BufReader<TcpStream>) -> Vec<String> {
    let number = |wire: &mut BufReader<TcpStream>| -> usize {
        let mut line = String::new();
        wire.read_line(&mut line).expect("a line");
        line.trim_end()[1..].parse().expect("a number behind the mark")
    };
    let count = number(wire);
    let argument = |_| {
        let mut arg = vec![0; number(wire) + 2];
        wire.read_exact(&mut arg).expect("an argument and the end of its line");
        String::from_utf8_lossy(arg.trim_ascii_end()).into_owned()
    };
    (0..count).map(argument).collect()
}

/// A command as an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(args: impl IntoIterator<Item = A>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut count = 0;
    for arg in args {
        let arg = arg.as_ref();
        body.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        body.extend_from_slice(arg);
        body.extend_from_slice(b"\r\n");
        count += 1;
    }
    let mut bytes = format!("*{count}\r\n").into_bytes();
    bytes.append(&mut body);
    bytes
}
