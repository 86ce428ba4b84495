//! Reads the copy of a server's data on a thread of its own, and makes commands of it.

use std::io::{self, Read};

use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::rdb::{self, Dialect};
use tokio::sync::mpsc::{Receiver, Sender};

use crate::telemetry::counters::unix_ms;

/// So many commands, or bytes of them, are handed on together.
const BATCH_COMMANDS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;

/// A command of one's own.
pub type Command = Vec<Vec<u8>>;

/// What is to be done, in its order.
#[derive(Default)]
pub struct Batch {
    /// Scripts and libraries.
    pub commands: Vec<Command>,
    /// Keys of a database, each as RESTORE takes it.
    pub keys: Vec<(usize, Command)>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.keys.len() + self.commands.len() >= BATCH_COMMANDS || self.bytes >= BATCH_BYTES
    }

    fn add(&mut self, command: Command) {
        self.bytes += command.iter().map(Vec::len).sum::<usize>();
        self.commands.push(command);
    }

    fn add_key(&mut self, db: usize, command: Command) {
        self.bytes += command.iter().map(Vec::len).sum::<usize>();
        self.keys.push((db, command));
    }
}

/// Reads a file that comes in pieces, and hands on what is to be done; the first batch when it is known that it is a file with
/// data. Keys are left out that have expired `behind_ms` milliseconds ago. An error says what is wrong with the file; nothing is wrong with it if no one wants the batches any more.
pub fn read(pieces: Receiver<Vec<u8>>, batches: &Sender<Batch>, behind_ms: u64) -> Result<(), String> {
    let reader = RdbReader::limited(Pieces { pieces, current: Vec::new(), taken: 0 });
    let reader = reader.map_err(|fault| damaged(&fault))?;
    let mut batch = Batch::default();
    for item in reader {
        match item.map_err(|fault| damaged(&fault))? {
            RdbItem::Aux { name, .. } if name == b"moonshard-ver" => {
                return Err(
                    "is a Moonshard server, which sends no changes: use `moonshard import`".to_owned()
                );
            }
            RdbItem::Aux { .. } => {}
            RdbItem::Script(text) => batch.add(vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), text]),
            RdbItem::Library(text) => {
                batch.add(vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), b"REPLACE".to_vec(), text]);
            }
            RdbItem::Key { db, key, entry, meta } => {
                let Some(entry) = entry.living(unix_ms().saturating_sub(behind_ms)) else { continue };
                let at_ms = entry.expire_at_ms.map_or(0, |at_ms| at_ms.get()).to_string();
                let payload = rdb::dump(&entry.value, Dialect::Redis);
                let mut command = vec![b"RESTORE".to_vec(), key, at_ms.into_bytes(), payload];
                let mut option =
                    |words: &[&str]| command.extend(words.iter().map(|word| word.as_bytes().to_vec()));
                if entry.expire_at_ms.is_some() {
                    option(&["ABSTTL"]);
                }
                match (meta.freq, meta.idle_s) {
                    (Some(freq), _) => option(&["FREQ", &freq.to_string()]),
                    (None, Some(seconds)) => {
                        option(&["IDLETIME", &seconds.min(i64::MAX as u64).to_string()]);
                    }
                    (None, None) => {}
                }
                batch.add_key(db, command);
            }
        }
        if batch.is_full() && batches.blocking_send(std::mem::take(&mut batch)).is_err() {
            return Ok(());
        }
    }
    // The last one, which may be the first: a file without data empties this server.
    let _ = batches.blocking_send(batch);
    Ok(())
}

fn damaged(fault: &impl std::fmt::Display) -> String {
    format!("has sent a copy that cannot be read: {fault}")
}

/// A file that comes in pieces.
struct Pieces {
    pieces: Receiver<Vec<u8>>,
    current: Vec<u8>,
    taken: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.current.len() {
            match self.pieces.blocking_recv() {
                Some(piece) => (self.current, self.taken) = (piece, 0),
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.current.len() - self.taken);
        into[..count].copy_from_slice(&self.current[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;

    /// What a file becomes that comes byte by byte.
    fn batches(file: &[u8]) -> Result<Vec<String>, String> {
        let (send, pieces) = channel(file.len().max(1));
        for byte in file {
            send.try_send(vec![*byte]).expect("there is room");
        }
        drop(send);
        let (batches, mut come) = channel(8);
        read(pieces, &batches, 0)?;
        drop(batches);
        let mut shown = Vec::new();
        while let Some(batch) = come.blocking_recv() {
            shown.push(format!("{} commands", batch.commands.len()));
            for (db, command) in batch.keys {
                let words: Vec<String> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
                shown.push(format!("{db}: {} {} {} {}", words[0], words[1], words[2], words[4..].join(" ")));
            }
        }
        Ok(shown)
    }

    #[test]
    fn files_become_commands() {
        let keys = b"REDIS0010\xfe\x02\0\x01a\x011\xfc\xff\xff\xff\xff\xff\0\0\0\xf9\x05\0\x01b\x012\xff\0\0\0\0\0\0\0\0";
        let wanted = ["0 commands", "2: RESTORE a 0 ", "2: RESTORE b 1099511627775 ABSTTL FREQ 5"];
        // The time of the second key is over.
        assert_eq!(batches(keys), Ok(wanted[..2].iter().map(|line| (*line).to_owned()).collect()));
        let mut later = keys.to_vec();
        later[22] = 1;
        assert_eq!(batches(&later).map(|lines| lines.len()), Ok(3));
        assert_eq!(batches(b"REDIS0010\xff\0\0\0\0\0\0\0\0"), Ok(vec!["0 commands".to_owned()]));
    }

    #[test]
    fn what_is_no_file_begins_nothing() {
        for (file, wanted) in [
            (
                &b"HTTP/1.1 200"[..],
                "has sent a copy that cannot be read: byte 9: damaged data: this is no RDB file",
            ),
            (b"REDIS0010\xfe", "has sent a copy that cannot be read: byte 10: the data end here"),
            (
                b"REDIS0010\xfa\x0dmoonshard-ver\x011\xff\0\0\0\0\0\0\0\0",
                "is a Moonshard server, which sends no changes: use `moonshard import`",
            ),
        ] {
            assert_eq!(batches(file), Err(wanted.to_owned()));
        }
    }
}
