//! Nodes whose data outlives the process: they are read from a disk, and a thread writes down what happens to them.

mod offline;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use self::offline::{Contents, Examined, examine, fill};
use self::writer::Writer;
use crate::journal::load::{self, Judge, Loaded};
use crate::journal::{
    Database, Disk, DiskError, Durability, Failure, GroupCommit, Journal, Op, Open, Reads, in_dir, unix_ms,
};
use crate::node::Node;

/// A node whose data outlives the process, with the thread that writes it down.
pub struct Kept {
    /// The node, as it was left.
    pub node: Arc<Node>,
    writer: JoinHandle<()>,
}

impl Kept {
    /// Reads what the disk holds into a node with `shards` shards, and begins to write down what happens to it.
    pub fn open(open: Open, shards: usize, durability: Durability) -> Result<Kept, DiskError> {
        let disk = open()?;
        let (node, writer) = prepare(disk, open, shards, durability, |_| None, &mut Err)?;
        Kept::begin(node, writer)
    }

    /// The same for a replica: its changes are durable when its group has committed them. `wake` is called when there are
    /// records that have to be proposed to the group.
    pub(crate) fn open_replica(
        open: Open,
        shards: usize,
        reads: Reads,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Kept, DiskError> {
        let disk = open()?;
        let group = |newest| Some(GroupCommit::new(newest, reads, wake));
        let (node, writer) = prepare(disk, open, shards, Durability::Sync, group, &mut Err)?;
        Kept::begin(node, writer)
    }

    /// The same with the disk in a directory, although data is lost. What is missing is passed to `lost`. Damaged files are
    /// kept beside the new ones.
    pub fn open_accepting_loss(
        dir: PathBuf,
        shards: usize,
        durability: Durability,
        lost: &mut dyn FnMut(DiskError),
    ) -> Result<Kept, DiskError> {
        let disk = Box::new(Database::open_accepting_loss(&dir, lost)?);
        let (node, writer) = prepare(disk, in_dir(dir), shards, durability, |_| None, &mut |error| {
            lost(error);
            Ok(())
        })?;
        Kept::begin(node, writer)
    }

    fn begin(node: Arc<Node>, writer: Writer) -> Result<Kept, DiskError> {
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || writer.run());
        let failed = |error: io::Error| DiskError::Refused(format!("cannot start a thread: {error}"));
        Ok(Kept { node, writer: thread.map_err(failed)? })
    }

    /// Writes down what is left to be, unless `abandon`, and ends the thread. Nothing may change any more. An error:
    /// the disk does not have everything.
    pub fn close(self, abandon: bool) -> Result<(), Failure> {
        let Some(journal) = self.node.journal() else { return Ok(()) };
        journal.close(abandon);
        if self.writer.join().is_err() {
            return Err("the writer of the journal has panicked".into());
        }
        let progress = journal.progress();
        match progress.failure {
            Some(reason) if !abandon => Err(reason),
            _ => Ok(()),
        }
    }
}

fn prepare(
    mut disk: Box<dyn Disk>,
    open: Open,
    shards: usize,
    durability: Durability,
    group: impl FnOnce(u64) -> Option<GroupCommit>,
    judge: &mut Judge,
) -> Result<(Arc<Node>, Writer), DiskError> {
    let loaded = load::load(&*disk, shards.max(1), judge)?;
    let Loaded { mut partitions, catalog, state, is_sound, garbage } = loaded;
    let now_ms = unix_ms();
    for space in partitions.iter_mut().flat_map(|partition| &mut partition.databases) {
        space.stamp_all(now_ms);
    }
    let newest = state.newest;
    let node = Node::with(partitions, Some(Journal::new(durability, newest, group(newest))));
    node.keep_expired();
    *node.catalog.lock() = catalog;
    let node = Arc::new(node);
    if !garbage.is_empty() {
        disk.apply(newest, &garbage.into_iter().map(Op::Delete).collect::<Vec<_>>())?;
        disk.flush()?;
    }
    let mut writer = Writer::new(node.clone(), disk, open, state);
    if !is_sound {
        writer.checkpoint_all()?;
    }
    Ok((node, writer))
}
