//! A disk that loses what was not flushed.

use std::collections::BTreeMap;

use crate::{LogChange, LogKey, Saved};

#[derive(Default)]
pub struct Disk {
    durable: BTreeMap<LogKey, Vec<u8>>,
    /// Batches that are not flushed, oldest first.
    written: Vec<Vec<LogChange>>,
}

impl Disk {
    /// Takes a batch, which a crash may lose until it is flushed.
    pub fn write(&mut self, batch: Vec<LogChange>) {
        if !batch.is_empty() {
            self.written.push(batch);
        }
    }

    /// All that was written is durable.
    pub fn flush(&mut self) {
        for batch in std::mem::take(&mut self.written) {
            self.keep(batch);
        }
    }

    /// The machine loses power: of the batches that were not flushed only the first `kept` are there.
    pub fn crash(&mut self, kept: usize) {
        let mut written = std::mem::take(&mut self.written);
        written.truncate(kept);
        written.into_iter().for_each(|batch| self.keep(batch));
    }

    /// How many batches are not flushed.
    pub fn unflushed(&self) -> usize {
        self.written.len()
    }

    /// What a start finds.
    pub fn read(&self) -> Saved {
        let entries = self.durable.iter().filter_map(|(key, record)| match key {
            LogKey::Entry(index) => Some((*index, record.clone())),
            LogKey::State => None,
        });
        Saved { state: self.durable.get(&LogKey::State).cloned(), entries: entries.collect() }
    }

    fn keep(&mut self, batch: Vec<LogChange>) {
        for change in batch {
            match change {
                LogChange::Put(key, record) => drop(self.durable.insert(key, record)),
                LogChange::Delete(key) => drop(self.durable.remove(&key)),
            }
        }
    }
}
