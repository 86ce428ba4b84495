//! `moonshard store restore --merge`: puts what an RDB file has into a server that serves, by RESTORE.

use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use resp::Value;
use store_engine::Entry;
use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::rdb::{self, Dialect, KeyMeta, LIBRARY};
use tokio::runtime::Runtime;

use super::offline_tools::{ToolError, ended, faulty, flags, now_ms, open, refused, say};
use super::runtime;
use super::script::ServerAddress;
use super::script::remote::{Connection, push_request};
use crate::commands::sync::FLAGS_FIELD;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub struct Task {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// The server.
    pub server: ServerAddress,
    /// Replace keys and libraries that the server has.
    pub replace: bool,
}

/// So many requests, or bytes of them, are sent before their replies are waited for.
const BATCH_REQUESTS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
/// A server that takes and sends nothing for so long is given up.
const STALLED: Duration = Duration::from_secs(60);
/// Time between two lines of progress on a terminal.
const REPORT: Duration = Duration::from_millis(200);

/// Does it; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    ended(perform(task))
}

fn perform(task: &Task) -> Result<(), ToolError> {
    // What can be read twice is looked at as a whole first: half of a damaged file is worse than nothing.
    let total = match fs::metadata(&task.file).is_ok_and(|metadata| metadata.is_file()) {
        true => Some(check(task).map_err(|failure| refused(&task.file, failure))?),
        false => None,
    };
    let source = open(&task.file)?;
    let mut merge = Merge::begin(task, total)?;
    let done = merge.send_all(RdbReader::new(source).map_err(faulty));
    merge.progress.clear();
    let Counts { keys, expired, libraries, scripts, refused } = merge.counts;
    match done {
        Ok(()) => {
            say(&format!(
                "{keys} keys, {libraries} libraries and {scripts} scripts restored, {expired} expired keys skipped, \
                 {refused} refused\n"
            ))?;
            match refused {
                0 => Ok(()),
                _ => Err(ToolError::NotDone(format!(
                    "the server refused {refused} keys, scripts or libraries"
                ))),
            }
        }
        Err(ToolError::Damaged(why)) => {
            let name = task.file.display();
            Err(ToolError::Damaged(format!("stopped after {keys} keys: {name} is damaged: {why}")))
        }
        Err(ToolError::NotDone(why)) => Err(ToolError::NotDone(format!("stopped after {keys} keys: {why}"))),
    }
}

/// Reads the file to its end; how many keys it has.
fn check(task: &Task) -> Result<u64, ToolError> {
    let mut keys = 0;
    for item in RdbReader::new(open(&task.file)?).map_err(faulty)? {
        keys += u64::from(matches!(item.map_err(faulty)?, RdbItem::Key { .. }));
    }
    Ok(keys)
}

/// What was sent, and is said of an error.
enum Sent {
    Key { db: usize, key: Vec<u8> },
    Library,
    Script,
    Flags,
}

#[derive(Default)]
struct Counts {
    keys: u64,
    expired: u64,
    libraries: u64,
    scripts: u64,
    refused: u64,
}

struct Merge {
    runtime: Runtime,
    connection: Connection,
    replace: bool,
    /// Whose form payloads have.
    reader: Dialect,
    /// Whether the server knows flags of scripts and sticky keys.
    is_ours: bool,
    db: usize,
    requests: Vec<u8>,
    sent: Vec<Sent>,
    counts: Counts,
    progress: Progress,
}

impl Merge {
    /// Connects, and asks the server what it is.
    fn begin(task: &Task, total: Option<u64>) -> Result<Merge, ToolError> {
        let not_done = |error: super::script::error::ToolError| {
            ToolError::NotDone(format!("{error}; nothing was restored"))
        };
        let runtime = runtime().ok_or_else(|| ToolError::NotDone("nothing was restored".to_owned()))?;
        let mut connection = runtime.block_on(Connection::open(&task.server)).map_err(not_done)?;
        let told = runtime.block_on(connection.call(&[b"INFO", b"server"])).map_err(not_done)?;
        let told = String::from_utf8_lossy(told.text().unwrap_or_default()).into_owned();
        let says = |name: &str| told.lines().any(|line| line.starts_with(name));
        Ok(Merge {
            runtime,
            connection,
            replace: task.replace,
            reader: if says("valkey_version:") { Dialect::Valkey } else { Dialect::Redis },
            is_ours: says("moonshard_version:"),
            db: 0,
            requests: Vec::new(),
            sent: Vec::new(),
            counts: Counts::default(),
            progress: Progress { total, told: None },
        })
    }

    fn send_all(
        &mut self,
        reader: Result<RdbReader<Box<dyn std::io::Read>>, ToolError>,
    ) -> Result<(), ToolError> {
        let now_ms = now_ms();
        for item in reader? {
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
                RdbItem::Key { db, key, entry, meta } => match entry.living(now_ms) {
                    Some(entry) => self.send_key(db, key, &entry, meta)?,
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
        let policy: &[u8] = if self.replace { b"REPLACE" } else { b"APPEND" };
        self.send(&[b"FUNCTION", b"RESTORE", &payload, policy], Sent::Library)
    }

    fn send_key(&mut self, db: usize, key: Vec<u8>, entry: &Entry, meta: KeyMeta) -> Result<(), ToolError> {
        self.select(db)?;
        let payload = rdb::dump(&entry.value, self.reader);
        let at_ms = entry.expire_at_ms.map_or(0, |at_ms| at_ms.get()).to_string();
        let mut argv: Vec<&[u8]> = vec![b"RESTORE", &key, at_ms.as_bytes(), &payload];
        if entry.expire_at_ms.is_some() {
            argv.push(b"ABSTTL");
        }
        if self.replace {
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
        self.sent.push(Sent::Key { db, key });
        self.flush_if_full()
    }

    fn send(&mut self, argv: &[&[u8]], sent: Sent) -> Result<(), ToolError> {
        push_request(&mut self.requests, argv);
        self.sent.push(sent);
        self.flush_if_full()
    }

    /// Changes the database, of which the server has to approve before keys are sent.
    fn select(&mut self, db: usize) -> Result<(), ToolError> {
        if db == self.db {
            return Ok(());
        }
        self.flush()?;
        let number = db.to_string();
        let reply = self.runtime.block_on(self.connection.call(&[b"SELECT", number.as_bytes()]));
        match reply.map_err(|error| ToolError::NotDone(error.to_string()))? {
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
        let replies = self.connection.pipeline(&requests, sent.len(), STALLED);
        let replies =
            self.runtime.block_on(replies).map_err(|error| ToolError::NotDone(error.to_string()))?;
        for (sent, reply) in sent.into_iter().zip(replies) {
            let Value::Error(text) = reply else {
                match sent {
                    Sent::Key { .. } => self.counts.keys += 1,
                    Sent::Library => self.counts.libraries += 1,
                    Sent::Script => self.counts.scripts += 1,
                    Sent::Flags => {}
                }
                continue;
            };
            let what = match sent {
                Sent::Key { db, key } => format!("key \"{}\" of database {db}", key.escape_ascii()),
                Sent::Library => "a library of functions".to_owned(),
                Sent::Script => "a script".to_owned(),
                Sent::Flags => "flags of a script".to_owned(),
            };
            let line = format!("{what}: {}", String::from_utf8_lossy(&text));
            if stops_all(&text) {
                return Err(ToolError::NotDone(line));
            }
            self.counts.refused += 1;
            self.progress.clear();
            eprintln!("moonshard: {line}");
        }
        self.progress.tell(&self.counts);
        Ok(())
    }
}

/// Whether an error would come for all that follows, too: what is wrong with one key alone has these codes.
fn stops_all(error: &[u8]) -> bool {
    ![&b"BUSYKEY "[..], b"ERR "].iter().any(|code| error.starts_with(code))
}

/// How far it is, for who looks at a terminal.
struct Progress {
    total: Option<u64>,
    told: Option<Instant>,
}

impl Progress {
    fn tell(&mut self, counts: &Counts) {
        if !stderr().is_terminal() || self.told.is_some_and(|told| told.elapsed() < REPORT) {
            return;
        }
        self.told = Some(Instant::now());
        let done = counts.keys + counts.expired + counts.refused;
        let line = match self.total {
            Some(total) => format!("{done} of {total} keys, {} %", done * 100 / total.max(1)),
            None => format!("{done} keys"),
        };
        // Progress is not worth an error where it cannot be written.
        let _ = write!(stderr(), "\r\x1b[K{line}");
    }

    /// Removes the line.
    fn clear(&mut self) {
        if self.told.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
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
