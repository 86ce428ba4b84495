//! What the one writer wants of a disk, and what can be wrong with one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Key and value. A key is not empty and does not begin with byte 255.
    Put(Vec<u8>, Vec<u8>),
    /// A key that need not be there.
    Delete(Vec<u8>),
}

/// A record: its key and its value.
pub type DiskRecord = (Vec<u8>, Vec<u8>);

/// Ordered records that outlive the process. Of batches that were not flushed, a crash loses any number from the end,
/// never a part of one.
///
/// After an error of `apply` or `flush` it is unknown what is on the disk: the handle refuses everything from then on.
pub trait Disk: Send {
    /// The number of the last batch; 0 before the first.
    fn seq(&self) -> u64;

    /// Applies a batch whole, its steps in order. Numbers do not fall.
    fn apply(&mut self, seq: u64, batch: &[Op]) -> Result<(), DiskError>;

    /// Returns when all that was applied is durable.
    fn flush(&mut self) -> Result<(), DiskError>;

    /// Where it is, for messages.
    fn dir(&self) -> &Path;

    /// Calls `each` with all records whose keys begin with `prefix`, in the order of the keys. Only for the start:
    /// refused once a batch was applied.
    fn scan(&self, prefix: &[u8], each: &mut Each) -> Result<(), DiskError>;

    /// The keys from `from` on that begin with `prefix`, in order, `most` of them at most. At any time.
    fn keys(&mut self, prefix: &[u8], from: &[u8], most: usize) -> Result<Vec<Vec<u8>>, DiskError>;

    /// The records whose keys are `from` or come behind it, in order: about `most_bytes`, at least one if there is any. At any
    /// time.
    fn records(&mut self, from: &[u8], most_bytes: usize) -> Result<Vec<DiskRecord>, DiskError>;
}

/// Opens a disk, again if it has failed.
pub type Open = Box<dyn Fn() -> Result<Box<dyn Disk>, DiskError> + Send>;

/// Called with a key and its value; an error ends the scan.
pub type Each<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), DiskError> + 'a;

/// Why a disk cannot be used. Shown with `{:#}`, it does not say what to do when data is gone.
#[derive(Debug)]
pub enum DiskError {
    /// What a file holds is not what was written to it.
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it, or which record.
        location: String,
        /// What is wrong there.
        what: String,
    },
    /// Everything reads well, but the last batches are gone, though they had been flushed.
    Lost {
        /// The database.
        dir: PathBuf,
        /// The last batch that was flushed.
        flushed: u64,
        /// The last one that is there.
        found: u64,
    },
    /// Another process has it open.
    Busy(PathBuf),
    /// A later version wrote it.
    Newer {
        /// The database.
        dir: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// The system said no.
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// Its answer.
        error: io::Error,
    },
    /// The database panicked.
    Panic {
        /// While it should do what.
        doing: &'static str,
        /// The database.
        dir: PathBuf,
        /// Its last words.
        what: String,
    },
    /// It was used in a way that it does not allow, or after an error, which is repeated here.
    Refused(String),
}

impl DiskError {
    /// For `map_err`: what was tried with which file.
    pub fn io(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let file = file.to_owned();
        move |error| DiskError::Io { doing, file, error }
    }

    /// The text for clients: without paths, neither of this system nor of the one that the program was built on.
    pub fn cause(&self) -> String {
        match self {
            DiskError::Io { error, .. } => match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code).to_string(),
                // The system's number is lost where the database has added its own words.
                None if error.kind() == io::ErrorKind::StorageFull => "No space left on device".to_owned(),
                None => error.kind().to_string(),
            },
            DiskError::Damaged { .. } | DiskError::Lost { .. } => "the database is damaged".to_owned(),
            DiskError::Busy(_) => "the database is in use by another process".to_owned(),
            DiskError::Newer { .. } => "the database is of a later version".to_owned(),
            DiskError::Panic { .. } | DiskError::Refused(_) => "the database has failed".to_owned(),
        }
    }

    /// Whether data is gone, so that an operator has to accept that.
    pub fn is_loss(&self) -> bool {
        matches!(self, DiskError::Damaged { .. } | DiskError::Lost { .. })
    }
}

/// What to do when data is gone.
pub const WAY_OUT: &str = "restore a backup; or inspect the remaining data with `moonshard store dump`, and \
                           start once with `--accept-loss` to continue with it, which retains the old files";

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Damaged { file, location, what } => {
                write!(f, "{} is damaged: {location}: {what}", file.display())?;
            }
            DiskError::Lost { dir, flushed, found } => write!(
                f,
                "{} has lost data: batch {flushed} had been flushed, but the last one found is {found}",
                dir.display()
            )?,
            DiskError::Busy(dir) => {
                write!(f, "{} is in use by another process; stop it first", dir.display())?;
            }
            DiskError::Newer { dir, found, known } => write!(
                f,
                "{} has format {found}, but this program supports formats up to {known}; use the version that \
                 wrote it, or a later one",
                dir.display()
            )?,
            DiskError::Io { doing, file, error } => {
                write!(f, "cannot {doing} {}: {error}", file.display())?;
            }
            DiskError::Panic { doing, dir, what } => {
                write!(f, "could not {doing} {}: {what}; report this", dir.display())?;
            }
            DiskError::Refused(why) => f.write_str(why)?,
        }
        // In a list of problems it would stand again and again.
        if self.is_loss() && !f.alternate() { write!(f, "; {WAY_OUT}") } else { Ok(()) }
    }
}

impl std::error::Error for DiskError {}
