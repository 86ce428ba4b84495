//! `moonshard backup`: gets all data of a server that serves, as an RDB file.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use resp::Value;
use store_engine::rdb::file::{RdbItem, RdbReader};
use store_engine::rdb::{Fault, Version};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::runtime;
use super::script::ServerAddress;
use super::script::error::ToolError;
use super::script::remote::Connection;
use crate::config::atomic_file::replace;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub struct Task {
    /// The server.
    pub server: ServerAddress,
    /// The file; `-` is standard output.
    pub file: PathBuf,
    /// Replace a file that is there.
    pub force: bool,
    /// The version of the file.
    pub version: Version,
}

/// A server that sends nothing for so long is given up.
const STALLED: Duration = Duration::from_secs(60);
/// Pieces that are received before those before them are checked.
const MOST_WAITING: usize = 4;

/// Keys and bytes of a file.
type Size = (u64, u64);

/// Does it; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    match perform(task) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("moonshard: {error}");
            1
        }
    }
}

fn perform(task: &Task) -> Result<(), ToolError> {
    let Task { server, file, force, version } = task;
    let to_stdout = file == Path::new("-");
    let refuse_to_overwrite = || match !force && !to_stdout && fs::metadata(file).is_ok_and(|it| it.is_file())
    {
        true => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists: use --force to replace it"))
        }
        false => Ok(()),
    };
    let not_written =
        |error: io::Error| ToolError::new(format_args!("cannot write {}: {error}", file.display()));
    refuse_to_overwrite().map_err(not_written)?;
    let runtime = runtime().ok_or_else(|| ToolError::new("nothing was written"))?;
    let (mut connection, mark) = runtime.block_on(ask(server, *version))?;
    let mut size = Size::default();
    let mut write = |out: &mut dyn Write| -> io::Result<()> {
        size = runtime.block_on(receive(&mut connection, &mark, out))?;
        Ok(())
    };
    if to_stdout {
        write(&mut io::stdout()).map_err(not_written)?;
    } else {
        replace(file, |out| write(out).and_then(|()| refuse_to_overwrite())).map_err(not_written)?;
    }
    let (keys, bytes) = size;
    // Beside the data there is nothing on standard output.
    match to_stdout {
        true => eprintln!("{keys} keys, {bytes} bytes"),
        false => println!("{}: {keys} keys, {bytes} bytes", file.display()),
    }
    Ok(())
}

/// Asks for the file; gives the mark that comes behind it.
async fn ask(server: &ServerAddress, version: Version) -> Result<(Connection, Vec<u8>), ToolError> {
    let mut connection = Connection::open(server).await?;
    let refused = |text: &[u8]| {
        ToolError::new(format_args!("{} gives no backup: {}", server.address, String::from_utf8_lossy(text)))
    };
    let number = version.number().to_string();
    let options = [[&b"capa"[..], b"eof"], [b"rdb-only", b"1"], [b"rdb-version", number.as_bytes()]];
    // Redis, and older versions of this server, write their own version only.
    let asks_for_another = usize::from(version != Version::default());
    for option in &options[..2 + asks_for_another] {
        if let Value::Error(text) = connection.call(&[b"REPLCONF", option[0], option[1]]).await? {
            return Err(refused(&text));
        }
    }
    let line = connection.first_line(&[b"SYNC"], STALLED).await?;
    match line.strip_prefix(b"$EOF:") {
        Some(mark) => Ok((connection, mark.to_vec())),
        None => Err(refused(line.strip_prefix(b"-").unwrap_or(&line))),
    }
}

/// Writes what comes before the mark to `out`, and reads it at the same time as the RDB file that it has to be.
async fn receive(connection: &mut Connection, mark: &[u8], out: &mut dyn Write) -> io::Result<Size> {
    let (pieces, source) = sync_channel(MOST_WAITING);
    let counting = spawn_blocking(move || count(Pieces { source, piece: Vec::new(), taken: 0 }));
    let (mut received, mut bytes) = (Vec::new(), 0);
    let mut is_over = false;
    while !is_over {
        let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the server sends nothing any more");
        let read = timeout(STALLED, connection.receive(&mut received)).await;
        if read.unwrap_or_else(|_| Err(stalled()))? == 0 {
            return Err(io::Error::other(
                "the server has ended the backup before it was complete: its log says why",
            ));
        }
        is_over = received.ends_with(mark);
        let piece: Vec<u8> = received.drain(..received.len().saturating_sub(mark.len())).collect();
        out.write_all(&piece)?;
        bytes += piece.len() as u64;
        // Who reads them does not stop before their end, unless they are damaged.
        is_over |= pieces.send(piece).is_err();
    }
    drop(pieces);
    out.flush()?;
    let counted = counting.await.map_err(io::Error::other)?;
    let keys = counted.map_err(|fault| io::Error::other(format!("what was received is damaged: {fault}")))?;
    Ok((keys, bytes))
}

/// Reads an RDB file to its end and counts its keys.
fn count(source: impl Read) -> Result<u64, Fault> {
    let mut keys = 0;
    for item in RdbReader::new(source)? {
        keys += u64::from(matches!(item?, RdbItem::Key { .. }));
    }
    Ok(keys)
}

/// What another thread receives.
struct Pieces {
    source: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    taken: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            match self.source.recv() {
                Ok(piece) => (self.piece, self.taken) = (piece, 0),
                Err(_) => return Ok(0),
            }
        }
        let count = into.len().min(self.piece.len() - self.taken);
        into[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
