//! `moonshard import`: copies the data of a server that serves into another one. What it gets is what a replica gets.

mod source;

use std::fmt;

use store_engine::rdb::file::RdbReader;

use self::source::Source;
use super::merge::keyspace::{self, Keyspace};
use super::merge::sender::{Counts, Options, Sender};
use super::offline_tools::{ToolError, ended, faulty, say};
use super::runtime;
use super::script::ServerAddress;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub struct Task {
    /// The server that has the data.
    pub source: ServerAddress,
    /// The only database that is copied, if not all are.
    pub db: Option<usize>,
    /// The server that gets them.
    pub target: ServerAddress,
    /// What becomes of data that the target has.
    pub policy: Policy,
}

/// What becomes of data that the target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It must have no keys.
    Empty,
    /// They stay; the same keys and libraries of the source are refused.
    Merge,
    /// They stay, except those that the source has too.
    Replace,
}

/// Does it; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    ended(perform(task))
}

fn perform(task: &Task) -> Result<(), ToolError> {
    let runtime = runtime().ok_or_else(|| not_done("there is no runtime")).map_err(of_nothing)?;
    let source = runtime.block_on(Source::open(&task.source));
    let mut source = source.map_err(not_done).map_err(of_nothing)?;
    let total = runtime.block_on(source.keys(task.db)).map_err(not_done).map_err(of_nothing)?;
    let options = Options { replace: task.policy == Policy::Replace, compares: true, only: task.db };
    let mut sender = Sender::begin(&runtime, &task.target, options, total).map_err(of_nothing)?;
    let before = sender.keyspace().map_err(of_nothing)?;
    if task.policy == Policy::Empty && !before.is_empty() {
        return Err(of_nothing(not_done(format_args!(
            "{} is not empty, it has {}: use --merge to keep these keys, or --replace to replace those that the source \
             has too",
            task.target.address,
            keyspace::shown(&before)
        ))));
    }
    let address = &task.source.address;
    sender.progress.wait_for(&format!("the data of {address}"));
    let snapshot = runtime.block_on(source.snapshot(&runtime));
    sender.progress.clear();
    let snapshot = snapshot.map_err(not_done).map_err(of_nothing)?;
    let reader = RdbReader::limited(snapshot).map_err(faulty);
    let done = reader.and_then(|reader| sender.send_all(reader));
    sender.progress.clear();
    let keys = sender.counts.keys();
    done.map_err(|error| match error {
        ToolError::Damaged(why) => ToolError::Damaged(format!(
            "stopped after {keys} keys: what {address} has sent is damaged: {why}"
        )),
        ToolError::NotDone(why) => {
            not_done(format_args!("stopped after {keys} keys, which stay on {}: {why}", task.target.address))
        }
    })?;
    let after = sender.keyspace()?;
    report(task, &sender.counts, &after)
}

fn not_done(why: impl fmt::Display) -> ToolError {
    ToolError::NotDone(why.to_string())
}

/// An error before anything was sent.
fn of_nothing(error: ToolError) -> ToolError {
    error.with_outcome("nothing was imported")
}

/// Says what was done. All must be on the target as it was on the source.
fn report(task: &Task, counts: &Counts, after: &Keyspace) -> Result<(), ToolError> {
    let mut text = String::new();
    for (db, keys) in &counts.databases {
        let expiring = keys.all - keys.lasting;
        text.push_str(&format!("database {db}: {} keys, {expiring} of which expire\n", keys.all));
    }
    text.push_str(&format!(
        "{} keys, {} libraries and {} scripts imported, {} expired keys skipped, {} refused, {} different\n",
        counts.keys(),
        counts.libraries,
        counts.scripts,
        counts.expired,
        counts.refused,
        counts.different
    ));
    say(&text)?;
    if counts.different > 0 {
        let (different, target) = (counts.different, &task.target.address);
        return Err(ToolError::Damaged(format!(
            "{different} keys on {target} differ from those of the source"
        )));
    }
    counts.verdict()?;
    match task.policy {
        Policy::Empty => agreed(counts, after),
        // How many of the keys that were there before are left is unknown.
        Policy::Merge | Policy::Replace => Ok(()),
    }
}

/// Whether the databases have as many keys as were sent. Keys that expire may be missing.
fn agreed(counts: &Counts, after: &Keyspace) -> Result<(), ToolError> {
    let databases = counts.databases.keys().chain(after.keys());
    for db in databases {
        let sent = counts.databases.get(db).copied().unwrap_or_default();
        let found = after.get(db).copied().unwrap_or_default();
        if !(sent.lasting..=sent.all).contains(&found) {
            return Err(ToolError::Damaged(format!(
                "database {db} has {found} keys, but {} were imported: another client has changed them, or keys were \
                 evicted",
                sent.all
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::merge::sender::Keys;
    use super::*;

    #[test]
    fn databases_have_what_was_sent() {
        let databases = [(0, Keys { all: 5, lasting: 3 }), (7, Keys { all: 1, lasting: 0 })].into();
        let counts = Counts { databases, ..Counts::default() };
        for (after, wanted) in [
            (&[(0, 5), (7, 1)][..], true),
            (&[(0, 3)], true),
            (&[(0, 2), (7, 1)], false),
            (&[(0, 6), (7, 1)], false),
            (&[(0, 5), (1, 1)], false),
        ] {
            assert_eq!(agreed(&counts, &after.iter().copied().collect()).is_ok(), wanted, "{after:?}");
        }
    }
}
