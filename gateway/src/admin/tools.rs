//! `moonshard store`: what can be done with the data of a server that does not run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use store::journal::WAY_OUT;
use store::persist::{self, Contents, Examined};
use store_engine::rdb::file::{Event, Reader, Writer};
use store_engine::rdb::{Cause, Fault, Marks};
use store_engine::{Aging, Entry, Keyspace};
use tracing::info;

use crate::commands::rows::REDIS_VERSION;
use crate::config::file::replace;
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
        folder: PathBuf,
    },
    /// Write what is in a data-dir into an RDB file.
    Dump {
        /// The data-dir.
        folder: PathBuf,
        /// The file; `-` is standard output.
        file: PathBuf,
    },
    /// Make a data-dir of an RDB file.
    Restore {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// The data-dir.
        folder: PathBuf,
    },
}

/// Why a task did not end well, in one line.
#[derive(Debug)]
enum Failure {
    /// Something is damaged.
    Damaged(String),
    /// It could not be done.
    NotDone(String),
}

/// The field of an RDB file that has what SCRIPT FLAGS said of a script: its digest and the words.
const FLAGS_FIELD: &[u8] = b"moonshard-script-flags";

/// Does it; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    let done = match task {
        Task::Check { folder } => check(folder),
        Task::Dump { folder, file } => dump(folder, file),
        Task::Restore { file, folder } => restore(file, folder),
    };
    let (code, why) = match done {
        Ok(()) => return 0,
        Err(Failure::Damaged(why)) => (1, why),
        Err(Failure::NotDone(why)) => (2, why),
    };
    info!("{why}");
    code
}

fn check(folder: &Path) -> Result<(), Failure> {
    let (found, problems) = examine(folder)?;
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
    verdict(folder, problems)
}

fn dump(folder: &Path, file: &Path) -> Result<(), Failure> {
    let (found, problems) = examine(folder)?;
    let to_stdout = file == Path::new("-");
    let written = if to_stdout {
        write(&found.contents, &mut io::stdout().lock())
    } else {
        replace(file, |out| write(&found.contents, out))
    };
    written.map_err(|error| Failure::NotDone(format!("cannot write {}: {error}", file.display())))?;
    if !to_stdout {
        say(&format!("{} written\n", file.display()))?;
    }
    verdict(folder, problems)
}

/// What there is, and how many problems, which are told.
fn examine(folder: &Path) -> Result<(Examined, usize), Failure> {
    let mut problems = 0;
    let found = persist::examine(folder, &mut |problem| {
        problems += 1;
        info!("{problem:#}");
    });
    Ok((found.map_err(|error| Failure::NotDone(error.to_string()))?, problems))
}

fn verdict(folder: &Path, problems: usize) -> Result<(), Failure> {
    let noun = if problems == 1 { "problem" } else { "problems" };
    let folder = folder.display();
    if problems == 0 {
        Ok(())
    } else {
        Err(Failure::Damaged(format!("{problems} {noun} in {folder}; {WAY_OUT}")))
    }
}

fn say(text: &str) -> Result<(), Failure> {
    let said = io::stdout().write_all(text.as_bytes());
    said.map_err(|error| Failure::NotDone(format!("cannot write to standard output: {error}")))
}

fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// Writes an RDB file. How long ago keys were used is left out: what their stamps mean is a setting of the server.
fn write(contents: &Contents, out: &mut dyn Write) -> io::Result<()> {
    let now_ms = now_ms();
    let mut file = Writer::new(out)?;
    file.aux(b"redis-ver", REDIS_VERSION.as_bytes())?;
    file.aux(b"redis-bits", b"64")?;
    file.aux(b"ctime", (now_ms / 1000).to_string().as_bytes())?;
    file.aux(b"moonshard-ver", env!("CARGO_PKG_VERSION").as_bytes())?;
    for (sha, words) in contents.records(FLAGS) {
        file.aux(FLAGS_FIELD, &[sha, b" ", words].concat())?;
    }
    for (_, text) in contents.records(SCRIPT) {
        file.script(text)?;
    }
    for (_, text) in contents.records(LIBRARY) {
        file.function_library(text)?;
    }
    for (db, space) in contents.databases().filter(|(_, space)| !space.is_empty()) {
        file.database(db, space.len(), space.expiring())?;
        for (key, entry) in living(space, now_ms) {
            file.key(key, entry, Marks { sticky: entry.sticky, ..Marks::default() })?;
        }
    }
    file.finish()?;
    Ok(())
}

fn living(space: &Keyspace, now_ms: u64) -> impl Iterator<Item = (&[u8], &Entry)> {
    let pairs = (0..space.len()).filter_map(|at| space.pair_at(at)).map(|(key, entry)| (&**key, entry));
    pairs.filter(move |(_, entry)| !entry.is_expired(now_ms))
}

fn restore(file: &Path, folder: &Path) -> Result<(), Failure> {
    let name = file.display();
    let source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file);
        Box::new(opened.map_err(|error| Failure::NotDone(format!("cannot read {name}: {error}")))?)
    };
    let (contents, keys, expired) = read(source).map_err(|failure| match failure {
        Failure::Damaged(why) => {
            Failure::Damaged(format!("{name} is damaged: {why}; nothing was restored, use another backup"))
        }
        Failure::NotDone(why) => Failure::NotDone(format!("{name}: {why}; nothing was restored")),
    })?;
    persist::fill(folder.to_owned(), contents).map_err(|error| {
        let why = error.to_string();
        if error.is_loss() { Failure::Damaged(why) } else { Failure::NotDone(why) }
    })?;
    say(&format!("{keys} keys restored, {expired} expired keys skipped\n"))
}

/// Reads an RDB file; returns what it holds, how many keys that is, and how many had expired.
fn read(source: impl Read) -> Result<(Contents, usize, usize), Failure> {
    let now_ms = now_ms();
    let (mut contents, mut keys, mut expired) = (Contents::default(), 0, 0);
    for event in Reader::new(source).map_err(faulty)? {
        match event.map_err(faulty)? {
            Event::Aux { name, value } if name == FLAGS_FIELD => {
                if let Some((sha, words)) = value.split_at_checked(40)
                    && parse_sha(sha).is_some()
                    && let Some(words) = words.strip_prefix(b" ")
                {
                    contents.put_record(&[FLAGS, sha].concat(), words);
                }
            }
            Event::Aux { .. } => {}
            Event::Script(text) => {
                let sha = spelled(&sha_of(&text));
                contents.put_record(&[SCRIPT, sha.as_bytes()].concat(), &text);
            }
            Event::Library(text) => {
                let told = |why: &str| Failure::Damaged(format!("a function library: {why}"));
                let name = Outline::parse(&text).map_err(|error| told(error.text()))?.name;
                if !contents.put_record(&[LIBRARY, name.as_bytes()].concat(), &text) {
                    return Err(told(&format!("{name} occurs twice")));
                }
            }
            Event::Key { entry, .. } if entry.is_expired(now_ms) => expired += 1,
            Event::Key { db, key, entry, marks } => {
                let stamp = stamp(marks, now_ms).unwrap_or(entry.stamp);
                if !contents.put(db, &key, Entry { stamp, sticky: marks.sticky, ..entry }) {
                    let key = key.escape_ascii();
                    return Err(Failure::Damaged(format!("key \"{key}\" of database {db} occurs twice")));
                }
                keys += 1;
            }
        }
    }
    Ok((contents, keys, expired))
}

/// A file has the one or the other, as its server's policy was.
fn stamp(marks: Marks, now_ms: u64) -> Option<store_engine::Stamp> {
    let frequency = Aging::Frequency { log_factor: 0, decay_minutes: 0 };
    let aging = if marks.freq.is_some() { frequency } else { Aging::Recency };
    aging.recalled(marks.idle_s, marks.freq, now_ms)
}

fn faulty(fault: Fault) -> Failure {
    let why = fault.to_string();
    match fault.cause {
        Cause::Short | Cause::Damage(_) => Failure::Damaged(why),
        Cause::Source(_) | Cause::Foreign(_) => Failure::NotDone(why),
    }
}
