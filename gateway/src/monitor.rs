//! Who watches what is asked of this server, and which calls took long.

mod latency;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store_engine::Args;

use crate::observe::unix_time;
use crate::pubsub::PubSub;
use crate::session::ClientInfo;

pub use latency::{Latency, Series, Spike};

/// Connections that said MONITOR.
#[derive(Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
}

impl Monitors {
    /// Whether there are any.
    pub fn listen(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// One more.
    pub fn enter(&self, client: &Arc<ClientInfo>) {
        let mut clients = self.clients.lock();
        clients.insert(client.id, client.clone());
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// One less.
    pub fn leave(&self, client: &ClientInfo) {
        let mut clients = self.clients.lock();
        clients.remove(&client.id);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Shows a call of `who` to all, as Redis does. Passwords are not shown.
    pub fn show(&self, pubsub: &PubSub, db: usize, who: &str, args: Args<'_>) {
        let now = unix_time();
        let mut line = format!("+{}.{:06} [{db} {who}]", now.as_secs(), now.subsec_micros());
        for (at, arg) in args.items().iter().enumerate() {
            line.push(' ');
            quote(if is_secret(args, at) { b"(redacted)" } else { arg }, &mut line);
        }
        line.push_str("\r\n");
        let line = Bytes::from(line);
        for client in self.clients.lock().values() {
            pubsub.tell(client, &line);
        }
    }
}

/// Whether the argument at `at` belongs to what somebody says to be let in, or to what is said of users.
fn is_secret(args: Args<'_>, at: usize) -> bool {
    let is =
        |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let of_hello = || is(0, "hello") && (1..=2).any(|back| at > back + 1 && is(at - back, "auth"));
    let of_users =
        || is(0, "acl") && at > 1 && ["setuser", "deluser", "getuser"].iter().any(|word| is(1, word));
    let of_config = || is(0, "config") && is(1, "set") && at > 2 && is(at - 1, "requirepass");
    (is(0, "auth") && at > 0) || of_hello() || of_users() || of_config()
}

/// Appends text between quotes, in letters that are seen.
pub fn quote(text: &[u8], line: &mut String) {
    line.push('"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            7 => line.push_str("\\a"),
            8 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => write!(line, "\\x{byte:02x}").expect("writing to a string cannot fail"),
        }
    }
    line.push('"');
}

/// Arguments of a call that are kept.
const MOST_ARGS: usize = 32;
/// Bytes of each that are kept.
const MOST_ARG_BYTES: usize = 128;

/// A call as it is kept: without passwords, and not too long.
pub fn shortened(args: Args<'_>) -> Vec<Vec<u8>> {
    let items = args.items();
    let kept = if items.len() > MOST_ARGS { MOST_ARGS - 1 } else { items.len() };
    let shortened = |(at, arg): (usize, &&[u8])| match is_secret(args, at) {
        true => b"(redacted)".to_vec(),
        false => cut(arg, MOST_ARG_BYTES),
    };
    let mut words: Vec<Vec<u8>> = items[..kept].iter().enumerate().map(shortened).collect();
    if kept < items.len() {
        words.push(format!("... ({} more arguments)", items.len() - kept).into_bytes());
    }
    words
}

/// The first bytes of a text that a log keeps, with the number of the others.
pub fn cut(text: &[u8], most: usize) -> Vec<u8> {
    match text.split_at_checked(most) {
        Some((first, others)) if !others.is_empty() => {
            [first, format!("... ({} more bytes)", others.len()).as_bytes()].concat()
        }
        _ => text.to_vec(),
    }
}

/// A call that took long.
#[derive(Clone)]
pub struct Slow {
    /// Its number.
    pub id: u64,
    /// Unix time in seconds of its end.
    pub at: u64,
    /// How long it took.
    pub micros: u64,
    /// What was called, shortened.
    pub args: Vec<Vec<u8>>,
    /// Where its client came from.
    pub addr: String,
    /// The client's name.
    pub name: String,
}

/// Calls that took long, the newest first.
#[derive(Default)]
pub struct SlowLog(Mutex<(u64, VecDeque<Slow>)>);

impl SlowLog {
    /// Adds a call, and forgets the oldest beyond `most`.
    pub fn add(&self, args: Args<'_>, client: &ClientInfo, took: Duration, most: usize) {
        let words = shortened(args);
        let (id, calls) = &mut *self.0.lock();
        calls.push_front(Slow {
            id: *id,
            at: unix_time().as_secs(),
            micros: took.as_micros() as u64,
            args: words,
            addr: client.addr.clone(),
            name: client.details.lock().name.clone(),
        });
        *id += 1;
        calls.truncate(most);
    }

    /// The newest ones.
    pub fn newest(&self, count: usize) -> Vec<Slow> {
        self.0.lock().1.iter().take(count).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().1.len()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.lock().1.clear();
    }
}
