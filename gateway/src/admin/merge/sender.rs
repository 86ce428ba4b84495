//! Sends what an RDB file has to a server that serves: keys by RESTORE, libraries by FUNCTION RESTORE, scripts by SCRIPT LOAD.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use resp::Value;
use store_engine::Entry;
use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::rdb::{self, Dialect, KeyMeta, LIBRARY};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::compare::is_same;
use super::keyspace::{self, Keyspace};
use super::progress::Progress;
use crate::admin::offline_tools::{ToolError, faulty, flags, now_ms};
use crate::admin::script::ServerAddress;
use crate::admin::script::remote::{Connection, push_request};
use crate::commands::sync::FLAGS_FIELD;

/// So many requests, or bytes of them, are sent before their replies are waited for.
const BATCH_REQUESTS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
/// A server that takes and sends nothing for so long is given up.
const STALLED: Duration = Duration::from_secs(60);

/// How keys are sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Replace keys and libraries that the server has.
    pub replace: bool,
    /// Read each key back and compare it; and report progress by lines where there is no terminal.
    pub compares: bool,
    /// Send the keys of this database only.
    pub only: Option<usize>,
}

/// What was sent, and is said of an error.
enum Sent {
    /// With its entry if it is to be compared.
    Key {
        db: usize,
        key: Vec<u8>,
        entry: Option<Entry>,
        is_lasting: bool,
    },
    Library,
    Script,
    Flags,
}

/// Keys of a database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    /// All that the server has taken.
    pub all: u64,
    /// Those of them that do not expire, nor do fields of them.
    pub lasting: u64,
}

/// What has become of what was read.
#[derive(Default)]
pub struct Counts {
    /// Keys that the server has taken, by database.
    pub databases: BTreeMap<usize, Keys>,
    /// Keys that had expired.
    pub expired: u64,
    /// Libraries that the server has taken.
    pub libraries: u64,
    /// Scripts that the server has taken.
    pub scripts: u64,
    /// What the server has refused.
    pub refused: u64,
    /// Keys that the server has otherwise than they were sent.
    pub different: u64,
}

impl Counts {
    /// Keys that the server has taken.
    pub fn keys(&self) -> u64 {
        self.databases.values().map(|keys| keys.all).sum()
    }

    /// Nothing may have been refused.
    pub fn verdict(&self) -> Result<(), ToolError> {
        match self.refused {
            0 => Ok(()),
            refused => {
                Err(ToolError::NotDone(format!("the server refused {refused} keys, scripts or libraries")))
            }
        }
    }
}

/// A connection to the server.
pub struct Sender<'a> {
    runtime: &'a Runtime,
    connection: Connection,
    options: Options,
    /// Whose form payloads have.
    reader: Dialect,
    /// Whether the server knows flags of scripts and sticky keys.
    is_ours: bool,
    db: usize,
    requests: Vec<u8>,
    sent: Vec<Sent>,
    /// What was done so far.
    pub counts: Counts,
    /// How far it is.
    pub progress: Progress,
}

impl<'a> Sender<'a> {
    /// Connects, and asks the server what it is. `total` are the keys that will be sent, if that is known.
    pub fn begin(
        runtime: &'a Runtime,
        server: &ServerAddress,
        options: Options,
        total: Option<u64>,
    ) -> Result<Sender<'a>, ToolError> {
        let opened = runtime.block_on(async { timeout(STALLED, Connection::open(server)).await });
        let late = |_| Err(ToolError::NotDone(format!("{} does not answer", server.address)));
        let connection = opened.map(|opened| opened.map_err(not_done)).unwrap_or_else(late)?;
        let mut sender = Sender {
            runtime,
            connection,
            options,
            reader: Dialect::Redis,
            is_ours: false,
            db: 0,
            requests: Vec::new(),
            sent: Vec::new(),
            counts: Counts::default(),
            progress: Progress::new(total, options.compares),
        };
        let told = sender.call(&[b"INFO", b"server"])?;
        let told = String::from_utf8_lossy(told.text().unwrap_or_default()).into_owned();
        let says = |name: &str| told.lines().any(|line| line.starts_with(name));
        sender.reader = if says("valkey_version:") { Dialect::Valkey } else { Dialect::Redis };
        sender.is_ours = says("moonshard_version:");
        if options.compares {
            // Else DUMP would be a use of the key. Redis knows that since 7.2.
            sender.call(&[b"CLIENT", b"NO-TOUCH", b"ON"])?;
        }
        Ok(sender)
    }

    /// How many keys the server has: those of database 0, of databases that INFO names, and of those that were sent. The counts of
    /// INFO do not do: a server with store nodes gathers them from time to time only.
    pub fn keyspace(&mut self) -> Result<Keyspace, ToolError> {
        let info = self.call(&[b"INFO", b"keyspace"])?;
        if let Value::Error(text) = &info {
            return Err(ToolError::NotDone(String::from_utf8_lossy(text).into_owned()));
        }
        let named = keyspace::parse(info.text().unwrap_or_default());
        let databases: BTreeSet<usize> =
            [0].into_iter().chain(named.into_keys()).chain(self.counts.databases.keys().copied()).collect();
        let mut keyspace = Keyspace::new();
        for db in databases {
            self.select(db)?;
            match self.call(&[b"DBSIZE"])? {
                Value::Integer(keys) if keys > 0 => keyspace.insert(db, keys.cast_unsigned()),
                Value::Error(text) => {
                    return Err(ToolError::NotDone(String::from_utf8_lossy(&text).into_owned()));
                }
                _ => None,
            };
        }
        Ok(keyspace)
    }

    /// Sends all that the reader gives.
    pub fn send_all(&mut self, reader: RdbReader<impl Read>) -> Result<(), ToolError> {
        for item in reader {
            match item.map_err(faulty)? {
                RdbItem::Aux { name, value } if name == FLAGS_FIELD && self.is_ours => {
                    if let Some((sha, words)) = flags(&value) {
                        let words = words.split(|byte| *byte == b' ');
                        let argv: Vec<&[u8]> =
                            [&b"SCRIPT"[..], b"FLAGS", sha].into_iter().chain(words).collect();
                        self.send(&argv, Sent::Flags)?;
                    }
                }
                RdbItem::Aux { .. } => {}
                RdbItem::Script(text) => self.send(&[b"SCRIPT", b"LOAD", &text], Sent::Script)?,
                RdbItem::Library(text) => self.send_library(&text)?,
                RdbItem::Key { db, .. } if self.options.only.is_some_and(|only| only != db) => {}
                RdbItem::Key { db, key, entry, meta } => match entry.living(now_ms()) {
                    Some(entry) => self.send_key(db, key, entry, meta)?,
                    None => self.counts.expired += 1,
                },
            }
        }
        self.flush()
    }

    fn send_library(&mut self, text: &[u8]) -> Result<(), ToolError> {
        let mut payload = vec![LIBRARY];
        rdb::write_string(&mut payload, text).expect("memory takes everything");
        rdb::seal(&mut payload);
        let policy: &[u8] = if self.options.replace { b"REPLACE" } else { b"APPEND" };
        self.send(&[b"FUNCTION", b"RESTORE", &payload, policy], Sent::Library)
    }

    fn send_key(&mut self, db: usize, key: Vec<u8>, entry: Entry, meta: KeyMeta) -> Result<(), ToolError> {
        self.select(db)?;
        let payload = rdb::dump(&entry.value, self.reader);
        let at_ms = entry.expire_at_ms.map_or(0, |at_ms| at_ms.get()).to_string();
        let mut argv: Vec<&[u8]> = vec![b"RESTORE", &key, at_ms.as_bytes(), &payload];
        if entry.expire_at_ms.is_some() {
            argv.push(b"ABSTTL");
        }
        if self.options.replace {
            argv.push(b"REPLACE");
        }
        // A file has the one or the other, as its server's policy was.
        let used = match (meta.freq, meta.idle_s) {
            (Some(freq), _) => Some((&b"FREQ"[..], freq.to_string())),
            (None, Some(seconds)) => Some((&b"IDLETIME"[..], seconds.min(i64::MAX as u64).to_string())),
            (None, None) => None,
        };
        if let Some((option, number)) = &used {
            argv.extend([*option, number.as_bytes()]);
        }
        if meta.sticky && self.is_ours {
            argv.push(b"STICK");
        }
        push_request(&mut self.requests, &argv);
        let is_lasting = entry.next_expiry().is_none();
        let entry = self.options.compares.then_some(entry);
        self.sent.push(Sent::Key { db, key, entry, is_lasting });
        self.flush_if_full()
    }

    fn send(&mut self, argv: &[&[u8]], sent: Sent) -> Result<(), ToolError> {
        push_request(&mut self.requests, argv);
        self.sent.push(sent);
        self.flush_if_full()
    }

    fn call(&mut self, argv: &[&[u8]]) -> Result<Value, ToolError> {
        let mut request = Vec::new();
        push_request(&mut request, argv);
        self.exchange(&request, 1)?.pop().ok_or_else(|| ToolError::NotDone("a reply is missing".to_owned()))
    }

    fn exchange(&mut self, requests: &[u8], count: usize) -> Result<Vec<Value>, ToolError> {
        self.runtime.block_on(self.connection.pipeline(requests, count, STALLED)).map_err(not_done)
    }

    /// Changes the database, of which the server has to approve before keys are sent.
    fn select(&mut self, db: usize) -> Result<(), ToolError> {
        if db == self.db {
            return Ok(());
        }
        self.flush()?;
        match self.call(&[b"SELECT", db.to_string().as_bytes()])? {
            Value::Error(text) => {
                Err(ToolError::NotDone(format!("database {db}: {}", String::from_utf8_lossy(&text))))
            }
            _ => {
                self.db = db;
                Ok(())
            }
        }
    }

    fn flush_if_full(&mut self) -> Result<(), ToolError> {
        match self.sent.len() >= BATCH_REQUESTS || self.requests.len() >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what has gathered and looks at the replies.
    fn flush(&mut self) -> Result<(), ToolError> {
        let (requests, sent) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.sent));
        let replies = self.exchange(&requests, sent.len())?;
        drop(requests);
        let mut taken = Vec::new();
        for (sent, reply) in sent.into_iter().zip(replies) {
            let Value::Error(text) = reply else {
                match sent {
                    Sent::Key { db, key, entry, is_lasting } => {
                        let keys = self.counts.databases.entry(db).or_default();
                        keys.all += 1;
                        keys.lasting += u64::from(is_lasting);
                        taken.extend(entry.map(|entry| (key, entry)));
                    }
                    Sent::Library => self.counts.libraries += 1,
                    Sent::Script => self.counts.scripts += 1,
                    Sent::Flags => {}
                }
                continue;
            };
            let what = match sent {
                Sent::Key { db, key, .. } => named(db, &key),
                Sent::Library => "a library of functions".to_owned(),
                Sent::Script => "a script".to_owned(),
                Sent::Flags => "flags of a script".to_owned(),
            };
            let line = format!("{what}: {}", String::from_utf8_lossy(&text));
            if stops_all(&text) {
                return Err(ToolError::NotDone(line));
            }
            self.counts.refused += 1;
            self.say(&line);
        }
        self.compare(taken)?;
        self.progress.tell(self.counts.keys() + self.counts.expired + self.counts.refused);
        Ok(())
    }

    /// Reads keys back that the server has just taken.
    fn compare(&mut self, taken: Vec<(Vec<u8>, Entry)>) -> Result<(), ToolError> {
        let mut requests = Vec::new();
        for (key, _) in &taken {
            push_request(&mut requests, &[b"DUMP", key]);
            push_request(&mut requests, &[b"PEXPIRETIME", key]);
        }
        let replies = self.exchange(&requests, 2 * taken.len())?;
        for ((key, entry), replies) in taken.iter().zip(replies.chunks_exact(2)) {
            if let Some(Value::Error(text)) = replies.iter().find(|reply| matches!(reply, Value::Error(_))) {
                let (what, text) = (named(self.db, key), String::from_utf8_lossy(text));
                return Err(ToolError::NotDone(format!("{what} cannot be compared: {text}")));
            }
            if !is_same(entry, &replies[0], &replies[1], now_ms()) {
                self.counts.different += 1;
                let line = format!(
                    "{} differs from the {} that was sent",
                    named(self.db, key),
                    entry.value.type_name()
                );
                self.say(&line);
            }
        }
        Ok(())
    }

    fn say(&mut self, line: &str) {
        self.progress.clear();
        eprintln!("moonshard: {line}");
    }
}

fn not_done(error: crate::admin::script::error::ToolError) -> ToolError {
    ToolError::NotDone(error.to_string())
}

fn named(db: usize, key: &[u8]) -> String {
    format!("key \"{}\" of database {db}", key.escape_ascii())
}

/// Whether an error would come for all that follows, too: what is wrong with one key alone has these codes.
fn stops_all(error: &[u8]) -> bool {
    ![&b"BUSYKEY "[..], b"ERR "].iter().any(|code| error.starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_key_do_not_stop_the_others() {
        for (error, wanted) in [
            ("BUSYKEY Target key name already exists.", false),
            ("ERR Bad data format", false),
            ("ERR DUMP payload version or checksum are wrong", false),
            ("OOM command not allowed when used memory > 'maxmemory'.", true),
            ("READONLY You can't write against a read only replica.", true),
            ("MOVED 1 127.0.0.1:7000", true),
            ("NOPERM this user has no permissions to run the 'restore' command", true),
        ] {
            assert_eq!(stops_all(error.as_bytes()), wanted, "{error}");
        }
    }
}
