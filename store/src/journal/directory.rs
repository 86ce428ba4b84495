//! What every directory with a database or with logs has: a lock, and names that are durable.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::disk::DiskError;

/// How long to wait for the lock of a directory that its owner is about to release: a killed process holds it until the
/// system has cleared it away, and so does a child between its fork and its exec.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the lock of a directory, which the process that has the database open holds.
pub(crate) fn lock(dir: &Path, make: bool) -> Result<File, DiskError> {
    let path = dir.join("lock");
    let file = if make { File::create(&path) } else { File::open(&path) };
    let file = file.map_err(DiskError::io("open", &path))?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(10))
            }
            Err(TryLockError::WouldBlock) => return Err(DiskError::Busy(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(DiskError::io("lock", &path)(error)),
        }
    }
}

pub(super) fn rename(dir: &Path, from: &Path, to: &Path) -> Result<(), DiskError> {
    fs::rename(from, to).map_err(DiskError::io("rename", from))?;
    sync(dir)
}

/// Makes a file, or the names in a directory, durable.
pub(crate) fn sync(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(DiskError::io("sync", path))
}
