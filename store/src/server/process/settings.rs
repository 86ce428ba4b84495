//! What a process with replicas is given, and where its files are.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use crate::client::PeerCredentials;
use crate::journal::Reads;
use crate::node::Node;
use crate::replication::{GroupId, META};
use crate::server::Configure;
use crate::spans::Sink;

/// What the program adds to a node while the node leads its group.
pub trait Companion: Send + Sync + 'static {
    /// Applies the configuration to the node; returns what changes it.
    fn configure(&self, node: &Arc<Node>) -> Configure;
    /// How many bytes per second a copy of a group's data may take on its way to another process.
    fn copy_rate(&self) -> u64;
    /// What is done in the background as long as the node leads.
    fn background(&self, node: Arc<Node>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What a process with replicas is given.
pub struct ProcessSettings {
    /// Its data directory.
    pub dir: PathBuf,
    /// How many shards a node has.
    pub shards: usize,
    /// Where its machine is; empty if that is not known.
    pub zone: String,
    /// How a leader knows that it still leads when it answers.
    pub reads: Reads,
    /// What peers have to know and to have.
    pub credentials: PeerCredentials,
    /// Returns the Unix time in milliseconds.
    pub clock: fn() -> u64,
    /// Where spans of traced requests go.
    pub sink: Option<Sink>,
    /// Logs what an operator has to know.
    pub warn: fn(&str),
    /// What the program adds.
    pub companion: Box<dyn Companion>,
}

/// The directory of the logs among those of the groups.
pub(super) const LOG: &str = "log";

/// Where replicas are below a data directory.
pub(super) fn replicas_dir(dir: &Path) -> PathBuf {
    dir.join("replicas")
}

/// The name of the directory with the data of a group, among those of the other groups.
pub(super) fn dir_name(group: GroupId) -> String {
    match group {
        GroupId::META => META.to_owned(),
        GroupId(number) => format!("g{number}"),
    }
}

/// The directory with the data of a group below a data directory.
pub(super) fn group_dir(dir: &Path, group: GroupId) -> PathBuf {
    replicas_dir(dir).join(dir_name(group))
}

/// The directory of the replicated logs below a data directory.
pub(super) fn log_dir(dir: &Path) -> PathBuf {
    replicas_dir(dir).join(LOG)
}
