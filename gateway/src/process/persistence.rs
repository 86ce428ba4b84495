//! What the gateway has to do with the data's life on disk: it opens and closes it, says how it is, and refuses
//! changes that could not be kept.

use std::fmt::{self, Write as _};

use store::client::PeerCredentials;
use store::journal::{DiskError, Failure, in_dir};
use store::persist::Kept;
use store::topology::InvalidMap;
use store::{Cluster, Node, Store};
use tracing::info;

use crate::config::{Address, Choice, Config, SettingError};

/// The node, and what writes it down if it outlives the process.
pub struct Storage {
    store: Store,
    kept: Option<Kept>,
}

/// Why the data cannot be had, or was not kept: one line.
#[derive(Debug)]
pub enum StorageError {
    /// The store nodes are no cluster.
    Stores(InvalidMap),
    /// The folder cannot be used.
    Folder(DiskError),
    /// What was left to be written was not.
    Unwritten(Failure),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Stores(error) => write!(f, "stores: {error}"),
            StorageError::Folder(error) => write!(f, "data-dir: {error}"),
            StorageError::Unwritten(reason) => write!(f, "the last writes are lost: {reason}"),
        }
    }
}

impl Storage {
    /// As the configuration says: the data of other processes, which it has to `credentials`, of its folder, or none. With `accept_loss` what is left of it, if some is
    /// lost.
    pub fn open(
        config: &Config,
        credentials: PeerCredentials,
        accept_loss: bool,
    ) -> Result<Storage, StorageError> {
        let stores: Vec<String> = config.stores.get().iter().map(Address::to_string).collect();
        if !stores.is_empty() {
            let notify = u32::try_from(config.notify_keyspace_events.get()).unwrap_or_default();
            let cluster = Cluster::open(&stores, credentials, notify).map_err(StorageError::Stores)?;
            cluster.set_sparse_limit(config.sparse_limit());
            return Ok(Storage { store: Store::Distributed(cluster), kept: None });
        }
        let shards = config.shards.get_usize();
        let Some(dir) = config.data_dir.get() else {
            return Ok(Storage { store: Store::Local(Node::new(shards)), kept: None });
        };
        let durability = config.durability.get();
        let begun = std::time::Instant::now();
        let opened = match Kept::open(in_dir(dir.clone()), shards, durability) {
            Err(error) if error.is_loss() && accept_loss => {
                Kept::open_accepting_loss(dir.clone(), shards, durability, &mut |error| {
                    info!("--accept-loss: {error:#}");
                })
            }
            opened => opened,
        };
        let kept = opened.map_err(StorageError::Folder)?;
        let keys: usize = kept.node.usage().keys.iter().sum();
        if keys > 0 {
            let (dir, seconds) = (dir.display(), begun.elapsed().as_secs_f64());
            info!("{keys} keys read from {dir} in {seconds:.1} seconds");
        }
        Ok(Storage { store: Store::Local(kept.node.clone()), kept: Some(kept) })
    }

    /// Where the data is.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Writes down what is left to be, unless `abandon`. Nothing may change any more.
    pub fn close(self, abandon: bool) -> Result<(), StorageError> {
        let Some(kept) = self.kept else { return Ok(()) };
        kept.close(abandon).map_err(StorageError::Unwritten)
    }
}

/// The word that gateways and store nodes of a cluster must know.
pub fn token(config: &Config) -> Result<Option<String>, SettingError> {
    let Some(file) = config.cluster_token_file.get() else { return Ok(None) };
    let failed =
        |why: String| SettingError::new("cluster-token-file", format_args!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
    match text.trim() {
        "" => Err(failed("the file is empty".into())),
        token => Ok(Some(token.to_owned())),
    }
}

/// INFO's section. `is_loading`: a part of another server's data is there.
pub fn describe(store: &Store, is_loading: bool, text: &mut String) {
    let line = |text: &mut String, name: &str, value: &dyn fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}:{value}\r\n");
    };
    line(text, "loading", &u8::from(is_loading));
    let Some(journal) = store.journal() else {
        line(text, "durability", &"memory");
        line(text, "rdb_bgsave_in_progress", &0);
        line(text, "aof_enabled", &0);
        return;
    };
    let progress = journal.progress();
    let status = if progress.failure.is_none() { "ok" } else { "err" };
    line(text, "durability", &journal.durability().word());
    line(text, "rdb_changes_since_last_save", &(journal.newest().saturating_sub(progress.checkpoint)));
    line(text, "rdb_bgsave_in_progress", &u8::from(progress.saving));
    line(text, "rdb_last_save_time", &progress.saved_at);
    line(text, "rdb_last_bgsave_status", &status);
    line(text, "aof_enabled", &1);
    line(text, "aof_rewrite_in_progress", &u8::from(progress.saving));
    line(text, "aof_last_write_status", &status);
    line(text, "aof_current_size", &progress.journal_bytes);
    line(text, "journal_newest", &journal.newest());
    line(text, "journal_durable", &progress.durable);
    line(text, "journal_checkpoint", &progress.checkpoint);
    line(text, "journal_flushes", &progress.flushes);
}
