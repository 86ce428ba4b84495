//! The way to nodes in other processes.

mod cluster;
mod execute;
pub(crate) mod link;
mod merge;
mod work;

pub use cluster::Cluster;
pub use link::{Link, Lost, Pending};
pub use work::{Trouble, WatchId, Work};
