//! Conversations: requests and the replies they must get, in text files.
//!
//! ```text
//! # A comment.
//! > SET key value          a request on the connection without a name
//! +OK                      its reply
//! b> GET key               a request on connection `b`, which is opened by its first use
//! "value"
//! b waits> BLPOP list 0     a request that blocks its connection
//! b hears>                 until something else has happened: then its reply
//! ["list", "a"]
//! > ZSCORE z a             replies that differ between the protocols have two lines
//! resp2 "1.5"
//! resp3 1.5
//! unordered> SMEMBERS s    for replies without a promised order
//! unordered ["a", "b"]
//! raw> "*1\r\n$4\r\nPIN"    bytes, followed by a request of our own: all replies before that one's
//! -ERR …
//! closed                   the server has closed the connection
//! > INFO                   replies that are ours alone are marked so; Redis is not held to them
//! ours …
//! ```
//!
//! In a request `$1` stands for the reply to the request before, if that was a string.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use resp::Value;
use store_engine::Protocol;

use crate::client::{Client, encode};
use crate::{notation, wait_until};

/// A request with what it is answered.
struct Exchange {
    /// Line number in the file.
    line: usize,
    /// Name of the connection; empty for the usual one.
    connection: String,
    kind: Kind,
    request: String,
    expected: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ordered,
    Unordered,
    Raw,
    Waits,
    Hears,
}

/// Who answers.
#[derive(Clone, Copy, PartialEq)]
pub enum Answerer {
    /// Our server, which is held to every line.
    Ours,
    /// Redis, which is not held to those marked `ours`.
    Oracle,
}

/// What follows bytes of a `raw>` request, to know when its replies are over.
const END_MARK: &[u8] = b"end of the raw request";

fn parse(text: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let line = if line.ends_with('>') { &format!("{line} ") } else { line };
        let request = line
            .split_once("> ")
            .filter(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b' '));
        if let Some((name, request)) = request {
            let (name, kind) = match name.split_once(' ').unwrap_or((name, "")) {
                ("unordered", "") => ("", Kind::Unordered),
                ("raw", "") => ("", Kind::Raw),
                (name, "waits") => (name, Kind::Waits),
                (name, "hears") => (name, Kind::Hears),
                _ => (name, Kind::Ordered),
            };
            exchanges.push(Exchange {
                line: number + 1,
                connection: name.to_owned(),
                kind,
                request: request.to_owned(),
                expected: Vec::new(),
            });
        } else {
            exchanges.last_mut().expect("a reply follows a request").expected.push(line.to_owned());
        }
    }
    exchanges
}

impl Exchange {
    /// The lines that hold in this protocol, and whether they are ours alone.
    fn wanted(&self, protocol: Protocol) -> (Vec<&str>, bool) {
        let (mark, other) = match protocol {
            Protocol::Resp2 => ("resp2 ", "resp3 "),
            Protocol::Resp3 => ("resp3 ", "resp2 "),
        };
        let mut ours = false;
        let mut lines = Vec::new();
        for line in self.expected.iter().filter(|line| !line.starts_with(other)) {
            let line = line.strip_prefix(mark).unwrap_or(line);
            ours |= line.starts_with("ours ");
            lines.push(line.strip_prefix("ours ").unwrap_or(line));
        }
        (lines, ours)
    }

    /// Performs the request; its replies as lines.
    fn perform(&self, talk: &mut Talk) -> Vec<String> {
        let request = self.request.replace("$1", &talk.last);
        let address = talk.address;
        let protocol = talk.protocol;
        let open = || Client::connect(address, protocol);
        if self.kind == Kind::Raw {
            // May leave its connection in any state, so each has its own.
            return raw(&mut open(), &notation::arguments(&request).expect("balanced quotes").concat());
        }
        let client = talk.clients.entry(self.connection.clone()).or_insert_with(open);
        if self.kind == Kind::Waits {
            let before = blocked(&mut talk.observer);
            client.send(notation::arguments(&request).expect("balanced quotes"));
            wait_until(&format!("the client of line {} is blocked", self.line), || {
                blocked(&mut talk.observer) > before
            });
            return Vec::new();
        }
        if self.kind != Kind::Hears {
            client
                .send(notation::arguments(&request).unwrap_or_else(|| panic!("line {}: quotes", self.line)));
        }
        match client.try_read() {
            Ok(Some(reply)) => {
                talk.last = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
                let unordered = self.kind == Kind::Unordered;
                vec![if unordered { notation::unordered(&reply) } else { notation::reply(&reply) }]
            }
            Ok(None) => {
                talk.clients.remove(&self.connection);
                vec!["closed".to_owned()]
            }
            Err(error) => vec![format!("no reply: {error}")],
        }
    }
}

fn raw(client: &mut Client, bytes: &[u8]) -> Vec<String> {
    let echo = encode([b"ECHO".as_slice(), END_MARK]);
    let mut lines = Vec::new();
    // A server that closes early may refuse to take the rest; what it said comes first.
    let _ = client.send_raw(&[bytes, &echo].concat());
    loop {
        match client.try_read() {
            Ok(Some(Value::Bulk(text))) if text == END_MARK => return lines,
            Ok(Some(reply)) => lines.push(notation::reply(&reply)),
            Ok(None) => {
                lines.push("closed".to_owned());
                return lines;
            }
            Err(error) => {
                lines.push(format!("no reply: {error}"));
                return lines;
            }
        }
    }
}

/// The state of one run through a file.
struct Talk {
    address: SocketAddr,
    protocol: Protocol,
    clients: HashMap<String, Client>,
    observer: Client,
    last: String,
}

/// How many clients are blocked.
fn blocked(observer: &mut Client) -> usize {
    let info = observer.run("INFO clients");
    let text = String::from_utf8_lossy(info.text().expect("a string")).into_owned();
    let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:")).expect("a field");
    field.parse().expect("a number")
}

impl Talk {
    fn new(address: SocketAddr, protocol: Protocol) -> Talk {
        let mut clean = Client::connect(address, Protocol::Resp2);
        for command in ["FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH"] {
            assert_eq!(clean.run(command), Value::Status(b"OK".to_vec()), "{command}");
        }
        Talk { address, protocol, clients: HashMap::new(), observer: clean, last: String::new() }
    }
}

/// Replays a file. Every line that was answered otherwise, for people to read.
pub fn replay(name: &str, text: &str, address: SocketAddr, protocol: Protocol, who: Answerer) -> Vec<String> {
    let mut talk = Talk::new(address, protocol);
    let mut wrong = Vec::new();
    for exchange in parse(text) {
        let got = exchange.perform(&mut talk);
        let (wanted, ours) = exchange.wanted(protocol);
        if got != wanted && !(ours && who == Answerer::Oracle) {
            let (line, request) = (exchange.line, &exchange.request);
            let (wanted, got) = (wanted.join("\n    "), got.join("\n    "));
            wrong.push(format!(
                "{name}.txt:{line}, {protocol:?}: {request}\n  expected\n    {wanted}\n  got\n    {got}"
            ));
        }
    }
    wrong
}

/// The file as Redis would have it: replies marked `ours` stay, all others are what `oracle` answers.
pub fn rewritten(text: &str, oracle: SocketAddr) -> String {
    let exchanges = parse(text);
    let answers = |protocol| {
        let mut talk = Talk::new(oracle, protocol);
        exchanges.iter().map(|exchange| exchange.perform(&mut talk)).collect::<Vec<_>>()
    };
    let (resp2, resp3) = (answers(Protocol::Resp2), answers(Protocol::Resp3));
    let mut out = String::new();
    let mut lines = text.lines().enumerate();
    let mut copy_until = |end: usize, out: &mut String, replies: bool| {
        for (_, line) in lines.by_ref().take_while(|(at, _)| *at < end) {
            let reply = !line.trim().is_empty() && !line.starts_with('#');
            if !reply || replies {
                let _ = writeln!(out, "{line}");
            }
        }
    };
    let mut keep = true;
    for (at, exchange) in exchanges.iter().enumerate() {
        copy_until(exchange.line - 1, &mut out, keep);
        let _ = writeln!(out, "{}", text.lines().nth(exchange.line - 1).unwrap_or_default());
        keep = exchange.expected.iter().any(|line| line.contains("ours "));
        if keep {
            continue;
        }
        if resp2[at] == resp3[at] {
            resp2[at].iter().for_each(|line| out.push_str(&format!("{line}\n")));
        } else {
            resp2[at].iter().for_each(|line| out.push_str(&format!("resp2 {line}\n")));
            resp3[at].iter().for_each(|line| out.push_str(&format!("resp3 {line}\n")));
        }
    }
    copy_until(usize::MAX, &mut out, keep);
    out
}
