//! The way to nodes in other processes.

pub(crate) mod asked;
mod cluster;
mod error;
mod execute;
pub(crate) mod link;
mod lost;
mod merge;
mod moves;
mod patience;
pub(crate) mod rehearsal;
mod transaction;
mod trust;

pub use cluster::{Cluster, Respondent};
pub use error::TransactionError;
pub use link::{Greeting, Link, Pending, Traffic};
pub use lost::Lost;
pub use moves::{Member, MoveError, Moved, PreparedTransaction, accept, look};
pub use patience::Patience;
pub use transaction::{DistributedTransaction, WatchId};
pub use trust::Trust;
