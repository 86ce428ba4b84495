//! The way to nodes in other processes.

mod adoption;
mod backoff;
mod clock;
mod cluster;
mod credentials;
pub(crate) mod directory;
pub(crate) mod dry_run;
mod error;
mod execute;
mod founding;
mod large_calls;
pub(crate) mod link;
pub(crate) mod link_error;
mod lost;
pub mod members;
mod merge;
mod moves;
mod recovery;
pub(crate) mod request;
pub(crate) mod silence;
mod snapshot;
mod survey;
mod topology_error;
mod transaction;
pub(crate) mod way;

pub use adoption::adopt;
pub use backoff::Backoff;
pub use clock::{ClockOffset, ClocksDiffer, MAX_CLOCK_DIFFERENCE};
pub use cluster::{Cluster, QueryHandler};
pub use credentials::PeerCredentials;
pub use directory::Directory;
pub use error::TransactionError;
pub use founding::{Founded, found};
pub use link::{Link, LinkHandshake, Pending, Traffic};
pub use link_error::{LinkError, MapError};
pub use lost::Lost;
pub use moves::{
    Decided, Member, MoveError, Moved, PreparedTransaction, Unfinished, accept, drain_timeout, look,
};
pub use recovery::{RecoveredGroup, RecoveryPlan, SoleReplica, plan_recovery};
pub use snapshot::ClusterSnapshot;
pub use survey::{ReplicaView, Role, Survey};
pub use topology_error::{NodeError, TopologyError};
pub use transaction::{DistributedTransaction, WatchId};
