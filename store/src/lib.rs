//! A store node: owns shards of the data, runs commands on them, keeps transactions apart.
//!
//! Architecture invariant: nothing is awaited while a shard's mutex is held. A transaction that must wait for a key waits
//! in that key's queue in the [`lock::LockTable`], outside the mutex.
//!
//! A file imports only from files below it:
//!
//! | file | what it has |
//! | --- | --- |
//! | `handle` | the data as the gateway sees it, in this process or on nodes in others |
//! | `server` | a node as gateways and other nodes see it |
//! | `client` | the way to nodes in other processes, and transactions over several of them |
//! | `replication` | groups of nodes on several machines that have the same data |
//! | `persist` | nodes whose data outlives the process, and the thread that writes it down |
//! | `blocked`, `background`, `snapshot` | blocked calls; what is done in the background; all data as it is at one moment |
//! | `txn` | transactions on one node |
//! | `evict`, `catalog` | what needs the whole node: room in memory, records beside the data |
//! | `node` | the shards, and calls that are no part of a transaction |
//! | `shard` | a partition of the data with its locks and queues, behind one mutex |
//! | `journal` | what was committed, on its way to the disk; the disk |
//! | `wait` | which call waits for which key |
//! | `call_buffer` | calls with arguments of their own |
//! | `call` | a call: parsed, admitted, and run on partitions |
//! | `invalidations`, `lock`, `memory`, `notify`, `parts`, `random`, `spans`, `latency`, `topology` | what knows nothing of the others |

pub mod background;
mod blocked;
mod call;
mod call_buffer;
mod catalog;
pub mod client;
mod evict;
mod handle;
mod invalidations;
pub mod journal;
pub mod latency;
pub mod lock;
mod memory;
pub mod node;
mod notify;
mod parts;
pub mod persist;
mod random;
pub mod replication;
pub mod server;
mod shard;
mod snapshot;
pub mod spans;
pub mod topology;
pub mod txn;
pub mod wait;

pub use blocked::BlockedCall;
pub use call::{AdmittedCall, Call, ParsedCall, Pass};
pub use call_buffer::{BufferedCall, CallBuffer};
pub use client::{Cluster, TransactionError, WatchId};
pub use evict::{Demand, Evicted};
pub use handle::{Blocked, Ending, Store, StoreSnapshot, Transaction, Watch};
pub use invalidations::{InvalidationListener, Origin};
pub use lock::{LockRequest, Mode, TxnId};
pub use memory::{Limit, Usage};
pub use node::Node;
pub use notify::Audience;
pub use parts::relay;
pub use random::random;
pub use snapshot::{SnapshotError, SnapshotOptions};
pub use txn::{Batch, Change, Conflict, LimitReached, LocalTransaction, OnFull, Preview, TxnLimits};
pub use wait::Waiter;
