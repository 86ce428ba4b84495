//! What a client says that wants a copy of the data, as replicas do, and the RDB file on its way to it.

use store::{SnapshotError, StoreSnapshot};
use store_engine::rdb::Version;
use store_engine::rdb::file::RdbWriter;

/// From so many bytes on a piece of a file is sent.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of the mark at the end of a file.
pub const MARK_BYTES: usize = 40;

/// What REPLCONF has said, and what SYNC has made of it.
#[derive(Default)]
pub struct Replica {
    /// The client finds the end of a file by a mark: `capa eof`.
    pub finds_mark: bool,
    /// What the file is to have: `rdb-filter-only`.
    pub filter: Filter,
    /// The version of the file: `rdb-version`.
    pub version: Version,
    /// The file that is to be sent behind the replies.
    pub file: Option<RdbStream>,
}

/// What a file has beside what is said about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// Everything.
    #[default]
    Everything,
    /// Libraries of functions.
    Functions,
    /// Nothing.
    Nothing,
}

/// An RDB file that is made while it is sent.
pub struct RdbStream {
    /// Where keys come from, if it has any.
    snapshot: Option<StoreSnapshot>,
    /// Until the end is written.
    file: Option<RdbWriter<Vec<u8>>>,
    mark: [u8; MARK_BYTES],
    keys: u64,
}

impl RdbStream {
    /// A file whose beginning is written, and the mark behind it.
    pub fn new(
        snapshot: Option<StoreSnapshot>,
        file: RdbWriter<Vec<u8>>,
        mark: [u8; MARK_BYTES],
    ) -> RdbStream {
        RdbStream { snapshot, file: Some(file), mark, keys: 0 }
    }

    /// How many keys it has so far.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of entries that are kept for it since they have changed.
    pub fn held_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, StoreSnapshot::held_bytes)
    }

    /// An error if it cannot be completed any more.
    pub fn check(&self) -> Result<(), SnapshotError> {
        self.snapshot.as_ref().map_or(Ok(()), StoreSnapshot::check)
    }

    /// The next piece; `None`: that was all. It takes a millisecond of CPU time or two.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, SnapshotError> {
        loop {
            let parts = match &mut self.snapshot {
                Some(snapshot) => snapshot.next().await?,
                None => None,
            };
            let Some(file) = &mut self.file else { return Ok(None) };
            let Some(parts) = parts else { break };
            for part in &parts {
                self.keys += part.keys;
                file.part(part).expect("memory takes everything");
            }
            if file.written() >= PIECE_BYTES {
                return Ok(Some(file.take()));
            }
        }
        self.snapshot = None;
        let Some(file) = self.file.take() else { return Ok(None) };
        let mut end = file.finish().expect("memory takes everything");
        end.extend_from_slice(&self.mark);
        Ok(Some(end))
    }
}
