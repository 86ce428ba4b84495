//! How the replicas of a group agree on one log, by the Raft implementation of TiKV.
//!
//! A [`Replica`] is a state machine without threads, clocks, disks or sockets. Ticks of a clock, messages of other replicas
//! and proposals go in. A [`Round`] comes out: messages to be sent, changes of the log to be brought to disk, and entries
//! that are committed. The caller does that in order; `simulation` is a caller that draws everything from a seed.
//!
//! ```text
//! tick, step, propose ──▶ Replica ──▶ Round: send, then write and flush `changes`, then send `send_after`
//!                            ▲                                     │
//!                            └──────────── persisted ◀─────────────┘
//! ```

mod error;
mod lease;
mod log;
mod members;
mod message;
mod parts;
mod plan;
mod position;
mod replica;
mod timing;

#[cfg(test)]
mod simulation;

pub use self::error::ConsensusError;
pub use self::lease::LEASE_MS;
pub use self::log::{Log, LogChange, LogKey, Saved};
pub use self::members::{MemberChange, Members};
pub use self::message::Outgoing;
pub use self::parts::{Committed, Data};
pub use self::plan::{Step, next_step};
pub use self::position::Position;
pub use self::replica::{Follower, Replica, Role, Round, Settings};
pub use self::timing::{ELECTION_TICKS, HEARTBEAT_TICKS, TICK_MS};
