//! A store node: owns shards of the data, runs commands on them, keeps transactions apart.
//!
//! Architecture invariant: nothing is awaited while a shard's mutex is held. Whoever must wait for a key waits
//! in that key's queue in the [`lock::LockTable`], outside the mutex.

mod call;
mod catalog;
pub mod client;
mod copies;
mod evict;
mod handle;
pub mod journal;
pub mod lock;
mod memory;
pub mod node;
mod notify;
mod parked;
pub mod persist;
mod random;
pub mod server;
mod shard;
pub mod spans;
pub mod times;
pub mod topology;
pub mod txn;
pub mod upkeep;
pub mod wait;

pub use call::Call;
pub use client::{Cluster, Trouble, WatchId};
pub use copies::{Keeper, Origin};
pub use evict::{Demand, Evicted};
pub use handle::{Store, Unit};
pub use lock::{LockRequest, Mode, TxnId};
pub use memory::{Limit, Usage};
pub use node::Node;
pub use notify::Audience;
pub use parked::Parked;
pub use random::random;
pub use txn::{Batch, Change, Conflict, LimitReached, OnFull, Preview, Transaction, TxnLimits};
pub use wait::Waiter;
