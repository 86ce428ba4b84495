//! The file `flushed`: what was flushed last, kept apart from the database or the logs. If these have less, something is
//! lost, which they cannot know by themselves.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::directory::sync;
use super::disk::DiskError;

pub(crate) const NAME: &str = "flushed";

/// The slots take turns, in blocks of their own: a write that a crash tears leaves the other one.
const SLOT_STEP: u64 = 4096;

/// Three numbers and their checksum.
const SLOT_BYTES: usize = 28;

/// What a flush made durable.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flushed {
    /// The last batch.
    pub seq: u64,
    /// The newest file to which batches are appended,
    pub log: u64,
    /// and its length. The number of a batch alone would not do: where the end of a log is lost, a place that it gave
    /// to others may hold the newest number.
    pub length: u64,
}

/// The open file.
pub(crate) struct Watermark {
    path: PathBuf,
    file: File,
    turn: u64,
}

fn slot(flushed: Flushed) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&flushed.seq.to_le_bytes());
    slot[8..16].copy_from_slice(&flushed.log.to_le_bytes());
    slot[16..24].copy_from_slice(&flushed.length.to_le_bytes());
    let crc = crc32fast::hash(&slot[..24]);
    slot[24..].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn parse(bytes: &[u8]) -> Option<Flushed> {
    let bytes = bytes.get(..SLOT_BYTES)?;
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let flushed = Flushed { seq: number(0)?, log: number(8)?, length: number(16)? };
    (slot(flushed) == *bytes).then_some(flushed)
}

/// What `dir`'s mark says, or `None` if it has no mark.
pub(crate) fn read(dir: &Path) -> Result<Option<Flushed>, DiskError> {
    Ok(newest(&dir.join(NAME))?.map(|(flushed, _)| flushed))
}

/// What a mark says, with the slot that says it.
fn newest(path: &Path) -> Result<Option<(Flushed, u64)>, DiskError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::io("read", path)(error)),
    };
    let slots = [(Some(&*bytes), 0), (bytes.get(SLOT_STEP as usize..), 1)];
    match slots.into_iter().filter_map(|(bytes, slot)| Some((parse(bytes?)?, slot))).max() {
        Some(found) => Ok(Some(found)),
        None => Err(DiskError::Damaged {
            file: path.to_owned(),
            location: "both of its slots".to_owned(),
            what: "no checksum matches".to_owned(),
        }),
    }
}

/// The error for a directory that lacks its mark.
pub(crate) fn missing(dir: &Path) -> DiskError {
    let (location, what) = ("the whole file".to_owned(), "it is missing".to_owned());
    DiskError::Damaged { file: dir.join(NAME), location, what }
}

impl Watermark {
    /// Opens `dir`'s mark for writing. One that is not there or cannot be read is made anew.
    pub fn open(dir: &Path, flushed: Flushed) -> Result<Watermark, DiskError> {
        let path = dir.join(NAME);
        let mut newest = newest(&path);
        if !matches!(newest, Ok(Some(_))) {
            let unfinished = dir.join("flushed.new");
            let mut bytes = vec![0; SLOT_STEP as usize];
            bytes[..SLOT_BYTES].copy_from_slice(&slot(flushed));
            bytes.extend_from_slice(&slot(flushed));
            fs::write(&unfinished, bytes).map_err(DiskError::io("write", &unfinished))?;
            sync(&unfinished)?;
            fs::rename(&unfinished, &path).map_err(DiskError::io("rename", &unfinished))?;
            sync(dir)?;
            newest = Ok(Some((flushed, 0)));
        }
        // The older slot is written next.
        let turn = newest.ok().flatten().map_or(0, |(_, slot)| slot);
        let file = OpenOptions::new().write(true).open(&path).map_err(DiskError::io("open", &path))?;
        Ok(Watermark { path, file, turn })
    }

    /// Returns when it is durable.
    pub fn write(&mut self, flushed: Flushed) -> Result<(), DiskError> {
        self.note(flushed)?;
        self.file.sync_data().map_err(DiskError::io("write", &self.path))
    }

    /// Leaves it to the system when it becomes durable.
    pub fn note(&mut self, flushed: Flushed) -> Result<(), DiskError> {
        self.turn ^= 1;
        let written = self.file.write_all_at(&slot(flushed), self.turn * SLOT_STEP);
        written.map_err(DiskError::io("write", &self.path))
    }

    /// Makes the mark of a new database: its last batch, and nothing about its logs.
    pub fn reset(dir: &Path, seq: u64) -> Result<(), DiskError> {
        let flushed = Flushed { seq, ..Flushed::default() };
        let mut watermark = Watermark::open(dir, flushed)?;
        watermark.write(flushed)?;
        watermark.write(flushed)
    }
}
