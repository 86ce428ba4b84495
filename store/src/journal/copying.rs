//! A copy of the disk that is made while the disk is written.
//!
//! The writer copies records in the order of their keys, a slice between two batches. What a batch changes in records that
//! were copied before is copied again. A copy that has come to the end is therefore the disk as one batch left it.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::disk::{Disk, DiskError, Op};

/// How much is copied between two batches.
const SLICE_BYTES: usize = 1 << 20;
/// Pieces that the receiver has not taken.
const MOST_PIECES: usize = 4;
/// A receiver that takes nothing while so much is changed gets no copy.
const MOST_CHANGED_BYTES: usize = 256 << 20;

/// A piece of a copy.
#[derive(Debug)]
pub(crate) enum CopyPiece {
    /// To be applied, in order.
    Changes(Vec<Op>),
    /// All was sent: the copy is the disk after the batch with this number.
    End(u64),
}

/// The side of a copy that the writer has.
pub(crate) struct Copying {
    pieces: mpsc::Sender<CopyPiece>,
    /// Records before this key were copied.
    copied: Vec<u8>,
    /// What batches have changed in these since; none is a removal.
    changed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    changed_bytes: usize,
    /// Whether all records were copied once.
    is_at_end: bool,
}

impl Copying {
    /// A copy that has not begun, and where its pieces come out. Without [`CopyPiece::End`] it is not complete.
    pub fn new() -> (Copying, mpsc::Receiver<CopyPiece>) {
        let (pieces, receiver) = mpsc::channel(MOST_PIECES);
        let copying = Copying {
            pieces,
            copied: Vec::new(),
            changed: BTreeMap::new(),
            changed_bytes: 0,
            is_at_end: false,
        };
        (copying, receiver)
    }

    /// This batch was applied.
    pub fn note(&mut self, batch: &[Op]) {
        for op in batch {
            let (key, value) = match op {
                Op::Put(key, value) => (key, Some(value)),
                Op::Delete(key) => (key, None),
            };
            if self.is_at_end || *key < self.copied {
                self.changed_bytes += key.len() + value.map_or(0, Vec::len);
                self.changed.insert(key.clone(), value.cloned());
            }
        }
    }

    /// Copies on, if the receiver has taken what came before. Whether there is more to do.
    pub fn go_on(&mut self, disk: &mut dyn Disk) -> Result<bool, DiskError> {
        let permit = match self.pieces.try_reserve() {
            Ok(permit) => permit,
            Err(TrySendError::Full(())) => return Ok(self.changed_bytes <= MOST_CHANGED_BYTES),
            Err(TrySendError::Closed(())) => return Ok(false),
        };
        if !self.changed.is_empty() {
            self.changed_bytes = 0;
            let op = |(key, value)| match value {
                Some(value) => Op::Put(key, value),
                None => Op::Delete(key),
            };
            permit.send(CopyPiece::Changes(std::mem::take(&mut self.changed).into_iter().map(op).collect()));
            return Ok(true);
        }
        if self.is_at_end {
            permit.send(CopyPiece::End(disk.seq()));
            return Ok(false);
        }
        let records = disk.records(&self.copied, SLICE_BYTES)?;
        match records.last() {
            None => self.is_at_end = true,
            Some((last, _)) => {
                self.copied = [last, &b"\0"[..]].concat();
                let ops = records.into_iter().map(|(key, value)| Op::Put(key, value)).collect();
                permit.send(CopyPiece::Changes(ops));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::journal::testing::{MemoryDisk, Platter};

    /// A batch: keys and values, where none is a removal.
    type Batch = Vec<(u8, Option<u8>)>;

    fn ops(batch: &Batch) -> Vec<Op> {
        let op = |(key, value): &(u8, Option<u8>)| match value {
            // Two of them are a slice.
            Some(value) => Op::Put(vec![*key], vec![*value; SLICE_BYTES / 2]),
            None => Op::Delete(vec![*key]),
        };
        batch.iter().map(op).collect()
    }

    fn contents(disk: &mut dyn Disk) -> Vec<(Vec<u8>, u8)> {
        let records = disk.records(b"", usize::MAX).expect("it is in memory");
        records.into_iter().map(|(key, value)| (key, value[0])).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_copy_is_the_disk_as_a_batch_left_it(
            first in prop::collection::vec((0..20u8, any::<u8>().prop_map(Some)), 0..20),
            batches in prop::collection::vec(prop::collection::vec((0..20u8, any::<Option<u8>>()), 0..4), 0..20),
        ) {
            let (mut disk, mut copy) = (MemoryDisk(Arc::new(Platter::default())), MemoryDisk(Arc::new(Platter::default())));
            disk.apply(1, &ops(&first)).expect("it is in memory");
            let (mut copying, mut pieces) = Copying::new();
            let (mut batches, mut more) = (batches.into_iter().zip(2..), true);
            while more {
                if let Some((batch, number)) = batches.next() {
                    let batch = ops(&batch);
                    disk.apply(number, &batch).expect("it is in memory");
                    copying.note(&batch);
                }
                more = copying.go_on(&mut disk).expect("it is in memory");
                // The receiver takes what is there, or waits for more.
                if disk.seq() % 3 == 0 || !more || pieces.len() == MOST_PIECES {
                    while let Ok(piece) = pieces.try_recv() {
                        match piece {
                            CopyPiece::Changes(ops) => copy.apply(0, &ops).expect("it is in memory"),
                            CopyPiece::End(number) => copy.apply(number, &[]).expect("it is in memory"),
                        }
                    }
                }
            }
            prop_assert_eq!(copy.seq(), disk.seq());
            prop_assert_eq!(contents(&mut copy), contents(&mut disk));
        }
    }
}
