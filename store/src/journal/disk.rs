//! What the writer asks of a disk.

use std::fmt;

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts a record in place of whatever the key had.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a record, if it is there.
    Delete(Vec<u8>),
}

/// Why the disk cannot be used.
#[derive(Clone, Debug)]
pub struct DiskError(pub String);

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DiskError {}

/// Is shown a record's key and value; says whether it wants more.
pub type Each<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, DiskError> + 'a;

/// Records in the order of their keys.
pub trait Disk: Send {
    /// Does all of a batch or nothing, and makes it last. After an error the disk is of no more use, and has to be
    /// opened again; the batch may then be there or not. `number` is that of the newest journal record in it.
    fn write(&mut self, number: u64, batch: &[Op]) -> Result<(), DiskError>;

    /// Shows records from `from` on, in order, until `each` says `false`.
    fn scan(&self, from: &[u8], each: &mut Each<'_>) -> Result<(), DiskError>;
}
