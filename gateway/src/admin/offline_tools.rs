//! `moonshard store`: what can be done with the data of a server that does not run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use store::journal::WAY_OUT;
use store::persist::{self, Contents, Examined};
use store_engine::rdb::file::{RdbItem, RdbReader, RdbWriter};
use store_engine::rdb::{Cause, Fault, KeyMeta, Version};
use store_engine::{Aging, Entry, Keyspace};

use crate::commands::sync::{FLAGS_FIELD, write_head};
use crate::config::atomic_file::replace;
use crate::scripting::records::{FLAGS, LIBRARY, SCRIPT};
use crate::scripts::cache::{parse_sha, sha_of, spelled};
use crate::scripts::functions::Outline;
use crate::telemetry::counters::unix_time;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    /// Tell what is in a data-dir, and what is damaged.
    Check {
        /// The data-dir.
        dir: PathBuf,
    },
    /// Write what is in a data-dir into an RDB file.
    Dump {
        /// The data-dir.
        dir: PathBuf,
        /// The file; `-` is standard output.
        file: PathBuf,
        /// The version of the file.
        version: Version,
    },
    /// Make a data-dir of an RDB file.
    Restore {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// The data-dir.
        dir: PathBuf,
    },
}

/// Why a task did not end well, in one line.
#[derive(Debug)]
pub(super) enum ToolError {
    /// Something is damaged.
    Damaged(String),
    /// It could not be done.
    NotDone(String),
}

impl ToolError {
    /// The same, with what has become of the task.
    pub(super) fn with_outcome(self, outcome: &str) -> ToolError {
        match self {
            ToolError::Damaged(why) => ToolError::Damaged(format!("{why}; {outcome}")),
            ToolError::NotDone(why) => ToolError::NotDone(format!("{why}; {outcome}")),
        }
    }
}

/// Does it; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    ended(match task {
        Task::Check { dir } => check(dir),
        Task::Dump { dir, file, version } => dump(dir, file, *version),
        Task::Restore { file, dir } => restore(file, dir),
    })
}

/// Says why something did not end well; returns what the process exits with.
pub(super) fn ended(done: Result<(), ToolError>) -> u8 {
    let (code, why) = match done {
        Ok(()) => return 0,
        Err(ToolError::Damaged(why)) => (1, why),
        Err(ToolError::NotDone(why)) => (2, why),
    };
    eprintln!("moonshard: {why}");
    code
}

fn check(dir: &Path) -> Result<(), ToolError> {
    let (found, problems) = examine(dir)?;
    let mut text = String::new();
    for (db, space) in found.contents.databases().filter(|(_, space)| !space.is_empty()) {
        let (keys, expiring, bytes) = (space.len(), space.expiring(), space.bytes());
        let sticky = space.sticky().keys;
        text.push_str(&format!(
            "database {db}: {keys} keys, {expiring} expire, {sticky} sticky, {bytes} bytes\n"
        ));
    }
    let records = |prefix| found.contents.records(prefix).count();
    text.push_str(&format!("scripts: {}\nlibraries: {}\n", records(SCRIPT), records(LIBRARY)));
    let Examined { journal_records, journal_bytes, .. } = found;
    text.push_str(&format!("journal: {journal_records} records, {journal_bytes} bytes\n"));
    say(&text)?;
    verdict(dir, problems)
}

fn dump(dir: &Path, file: &Path, version: Version) -> Result<(), ToolError> {
    let (found, problems) = examine(dir)?;
    let to_stdout = file == Path::new("-");
    let written = if to_stdout {
        write(&found.contents, version, &mut io::stdout().lock())
    } else {
        replace(file, |out| write(&found.contents, version, out))
    };
    written.map_err(|error| ToolError::NotDone(format!("cannot write {}: {error}", file.display())))?;
    if !to_stdout {
        say(&format!("{} written\n", file.display()))?;
    }
    verdict(dir, problems)
}

/// What there is, and the number of problems, which are printed.
fn examine(dir: &Path) -> Result<(Examined, usize), ToolError> {
    let mut problems = 0;
    let found = persist::examine(dir, &mut |problem| {
        problems += 1;
        eprintln!("moonshard: {problem:#}");
    });
    Ok((found.map_err(|error| ToolError::NotDone(error.to_string()))?, problems))
}

fn verdict(dir: &Path, problems: usize) -> Result<(), ToolError> {
    let noun = if problems == 1 { "problem" } else { "problems" };
    let dir = dir.display();
    if problems == 0 {
        Ok(())
    } else {
        Err(ToolError::Damaged(format!("{problems} {noun} in {dir}; {WAY_OUT}")))
    }
}

pub(super) fn say(text: &str) -> Result<(), ToolError> {
    super::print(text)
        .map_err(|error| ToolError::NotDone(format!("cannot write to standard output: {error}")))
}

pub(super) fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Writes an RDB file. How long ago keys were used is left out: what their stamps mean is a setting of the server.
fn write(contents: &Contents, version: Version, out: &mut dyn Write) -> io::Result<()> {
    let now_ms = now_ms();
    let mut file = RdbWriter::new(out, version)?;
    write_head(&mut file, now_ms, |prefix| contents.records(prefix))?;
    for (db, space) in contents.databases().filter(|(_, space)| !space.is_empty()) {
        file.database(db, space.len(), space.expiring())?;
        for (key, entry) in living(space, now_ms) {
            file.key(key, entry, KeyMeta { sticky: entry.sticky, ..KeyMeta::default() })?;
        }
    }
    file.finish()?;
    Ok(())
}

fn living(space: &Keyspace, now_ms: u64) -> impl Iterator<Item = (&[u8], &Entry)> {
    let pairs = (0..space.len()).filter_map(|at| space.pair_at(at)).map(|(key, entry)| (&**key, entry));
    pairs.filter(move |(_, entry)| !entry.is_expired(now_ms))
}

fn restore(file: &Path, dir: &Path) -> Result<(), ToolError> {
    let read = read(open(file)?).map_err(|failure| refused(file, failure));
    let (contents, keys, expired) = read?;
    persist::fill(dir.to_owned(), contents).map_err(|error| {
        let why = error.to_string();
        if error.is_loss() { ToolError::Damaged(why) } else { ToolError::NotDone(why) }
    })?;
    say(&format!("{keys} keys restored, {expired} expired keys skipped\n"))
}

/// A file, or standard input.
pub(super) fn open(file: &Path) -> Result<Box<dyn Read>, ToolError> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file);
    let failed = |error| ToolError::NotDone(format!("cannot read {}: {error}", file.display()));
    Ok(Box::new(opened.map_err(failed)?))
}

/// What is said of a file of which nothing is restored.
pub(super) fn refused(file: &Path, failure: ToolError) -> ToolError {
    let name = file.display();
    match failure {
        ToolError::Damaged(why) => {
            ToolError::Damaged(format!("{name} is damaged: {why}; nothing was restored, use another backup"))
        }
        ToolError::NotDone(why) => ToolError::NotDone(format!("{name}: {why}; nothing was restored")),
    }
}

/// Reads an RDB file; returns what it holds, how many keys that is, and how many had expired.
fn read(source: impl Read) -> Result<(Contents, usize, usize), ToolError> {
    let now_ms = now_ms();
    let (mut contents, mut keys, mut expired) = (Contents::default(), 0, 0);
    for event in RdbReader::new(source).map_err(faulty)? {
        match event.map_err(faulty)? {
            RdbItem::Aux { name, value } if name == FLAGS_FIELD => {
                if let Some((sha, words)) = flags(&value) {
                    contents.put_record(&[FLAGS, sha].concat(), words);
                }
            }
            RdbItem::Aux { .. } => {}
            RdbItem::Script(text) => {
                let sha = spelled(&sha_of(&text));
                contents.put_record(&[SCRIPT, sha.as_bytes()].concat(), &text);
            }
            RdbItem::Library(text) => {
                let damaged = |why: &str| ToolError::Damaged(format!("a function library: {why}"));
                let name = Outline::parse(&text).map_err(|error| damaged(error.text()))?.name;
                if !contents.put_record(&[LIBRARY, name.as_bytes()].concat(), &text) {
                    return Err(damaged(&format!("{name} occurs twice")));
                }
            }
            RdbItem::Key { db, key, entry, meta } => {
                let Some(entry) = entry.living(now_ms) else {
                    expired += 1;
                    continue;
                };
                let stamp = stamp(meta, now_ms).unwrap_or(entry.stamp);
                if !contents.put(db, &key, Entry { stamp, sticky: meta.sticky, ..entry }) {
                    let key = key.escape_ascii();
                    return Err(ToolError::Damaged(format!("key \"{key}\" of database {db} occurs twice")));
                }
                keys += 1;
            }
        }
    }
    Ok((contents, keys, expired))
}

/// The digest of a script and its flags, as [`FLAGS_FIELD`] has them.
pub(super) fn flags(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sha, words) = value.split_at_checked(40)?;
    parse_sha(sha)?;
    Some((sha, words.strip_prefix(b" ")?))
}

/// A file has the one or the other, as its server's policy was.
fn stamp(meta: KeyMeta, now_ms: u64) -> Option<store_engine::Stamp> {
    let frequency = Aging::Frequency { log_factor: 0, decay_minutes: 0 };
    let aging = if meta.freq.is_some() { frequency } else { Aging::Recency };
    aging.stamp_of_access(meta.idle_s, meta.freq, now_ms)
}

pub(super) fn faulty(fault: Fault) -> ToolError {
    let why = fault.to_string();
    match fault.cause {
        Cause::Short | Cause::Damage(_) | Cause::TooLong(_) => ToolError::Damaged(why),
        Cause::Source(_) | Cause::Foreign(_) => ToolError::NotDone(why),
    }
}
