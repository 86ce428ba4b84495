//! A file with a part of the replicated logs. It only grows, and is deleted whole.
//!
//! ```text
//! header   "moonlogs", version u32, number of the first frame u64
//! frame    length of the body u64, CRC-32 of the body u32, body
//! ```
//!
//! Numbers are little-endian; a body is a `LogFrame`. A crash may leave a part of a header or of a frame at the end.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::{Buf as _, Bytes};
use prost::Message as _;
use proto::disk::v1 as disk;

use crate::journal::DiskError;
use crate::journal::directory::sync;

const MAGIC: &[u8; 8] = b"moonlogs";
/// The version of the format. Later ones are refused.
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 20;
const FRAME_HEADER_BYTES: usize = 12;
const SUFFIX: &str = ".log";

/// A segment that is written to.
pub(super) struct Segment {
    pub(super) number: u64,
    path: PathBuf,
    file: File,
    length: u64,
}

impl Segment {
    /// Creates a segment that will begin with the frame `first`. Durable when this returns.
    pub(super) fn create(dir: &Path, number: u64, first: u64) -> Result<Segment, DiskError> {
        let path = path_of(dir, number);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..].copy_from_slice(&first.to_le_bytes());
        let create = || {
            // One that is there was not created whole.
            let mut file = File::create(&path)?;
            file.write_all(&header)?;
            file.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(DiskError::io("create", &path))?;
        sync(dir)?;
        Ok(Segment { number, path, file, length: HEADER_BYTES as u64 })
    }

    /// Appends a frame. Durable when this returns; after an error it is unknown what of it is there.
    pub(super) fn append(&mut self, frame: &disk::LogFrame) -> Result<(), DiskError> {
        let body_bytes = frame.encoded_len();
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + body_bytes);
        bytes.extend_from_slice(&(body_bytes as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        frame.encode_raw(&mut bytes);
        let crc = crc32fast::hash(&bytes[FRAME_HEADER_BYTES..]);
        bytes[8..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(DiskError::io("write", &self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// The length of the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// The numbers of the segments in a directory, ascending.
pub(super) fn list(dir: &Path) -> Result<Vec<u64>, DiskError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(DiskError::io("list", dir))? {
        let name = entry.map_err(DiskError::io("list", dir))?.file_name();
        let number = |name: &str| name.strip_suffix(SUFFIX)?.parse::<u64>().ok();
        numbers.extend(name.to_str().and_then(number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a segment has.
pub(super) struct Contents {
    /// The number of its first frame.
    pub(super) first: u64,
    frames: Bytes,
    path: PathBuf,
}

/// Reads a segment; none if its header is not whole, so that it has no frame.
pub(super) fn read(dir: &Path, number: u64) -> Result<Option<Contents>, DiskError> {
    let path = path_of(dir, number);
    let mut frames = Bytes::from(fs::read(&path).map_err(DiskError::io("read", &path))?);
    if frames.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut header = frames.split_to(HEADER_BYTES);
    if header.split_to(MAGIC.len()) != MAGIC[..] {
        let (location, what) = ("its header".to_owned(), "it is no file of replicated logs".to_owned());
        return Err(DiskError::Damaged { file: path, location, what });
    }
    let (found, first) = (header.get_u32_le(), header.get_u64_le());
    if found > FORMAT {
        return Err(DiskError::Newer { dir: dir.to_owned(), found, known: FORMAT });
    }
    Ok(Some(Contents { first, frames, path }))
}

impl Contents {
    /// The frames in order, up to the first one that is not whole.
    pub(super) fn frames(mut self) -> impl Iterator<Item = Result<disk::LogFrame, DiskError>> {
        std::iter::from_fn(move || {
            let body = next_body(&mut self.frames)?;
            Some(disk::LogFrame::decode(body).map_err(|error| DiskError::Damaged {
                file: self.path.clone(),
                location: "a frame".to_owned(),
                what: error.to_string(),
            }))
        })
    }
}

/// The body of the next frame, if that is whole.
fn next_body(rest: &mut Bytes) -> Option<Bytes> {
    if rest.len() < FRAME_HEADER_BYTES {
        return None;
    }
    let (length, crc) = (rest.get_u64_le(), rest.get_u32_le());
    if length > rest.len() as u64 {
        return None;
    }
    let body = rest.split_to(length as usize);
    (crc32fast::hash(&body) == crc).then_some(body)
}

/// Removes what is behind this length. Durable when this returns.
pub(super) fn shorten(dir: &Path, number: u64, length: u64) -> Result<(), DiskError> {
    let path = path_of(dir, number);
    let shorten = || {
        let file = File::options().write(true).open(&path)?;
        file.set_len(length)?;
        file.sync_all()
    };
    shorten().map_err(DiskError::io("shorten", &path))
}

/// Makes durable what a process has appended that was killed before it could.
pub(super) fn flush(dir: &Path, number: u64) -> Result<(), DiskError> {
    sync(&path_of(dir, number))
}

/// Deletes a segment. Durable when this returns, so that no later one can be gone before it.
pub(super) fn delete(dir: &Path, number: u64) -> Result<(), DiskError> {
    let path = path_of(dir, number);
    match fs::remove_file(&path) {
        // An earlier attempt has failed behind this.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.map_err(DiskError::io("delete", &path))?,
    }
    sync(dir)
}

/// The file of a segment.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}{SUFFIX}"))
}
