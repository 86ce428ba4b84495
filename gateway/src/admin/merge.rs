//! `moonshard store restore --merge`: puts what an RDB file has into a server that serves.

pub(super) mod compare;
pub(super) mod keyspace;
mod progress;
pub(super) mod sender;

use std::fs;
use std::path::PathBuf;

use store_engine::rdb::file::{RdbItem, RdbReader};

use self::sender::{Options, Sender};
use super::offline_tools::{ToolError, ended, faulty, open, refused, say};
use super::runtime;
use super::script::ServerAddress;

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
    let nothing = "nothing was restored";
    let runtime = runtime().ok_or_else(|| ToolError::NotDone(nothing.to_owned()))?;
    let options = Options { replace: task.replace, ..Options::default() };
    let mut sender =
        Sender::begin(&runtime, &task.server, options, total).map_err(|error| error.with_outcome(nothing))?;
    let reader = RdbReader::new(source).map_err(faulty);
    let done = reader.and_then(|reader| sender.send_all(reader));
    sender.progress.clear();
    let (counts, keys) = (&sender.counts, sender.counts.keys());
    match done {
        Ok(()) => {
            say(&format!(
                "{keys} keys, {} libraries and {} scripts restored, {} expired keys skipped, {} refused\n",
                counts.libraries, counts.scripts, counts.expired, counts.refused
            ))?;
            counts.verdict()
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
