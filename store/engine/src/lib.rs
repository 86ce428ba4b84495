//! The engine: commands x keyspace -> reply + undo + effects.
//!
//! Architecture invariant: this crate is pure. It knows no clock, socket, disk, thread or async runtime; the
//! time and the randomness a command sees are values in its [`Ctx`]. Whoever locks a partition calls it.
//!
//! A command is one row and one function in its family's file below `command/`; everything that wants to know
//! something about a command (routing, locks, `redis.call`, COMMAND DOCS) reads that row.

pub mod args;
pub mod bytes_eq;
pub mod chunked_stack;
pub mod codec;
mod coding;
pub mod command;
mod cost;
pub mod ctx;
mod dense;
pub mod discard;
pub mod edit;
pub mod effect;
mod entry;
pub mod error;
pub mod evict;
pub mod expiry_index;
pub mod geo;
pub mod glob;
pub mod hyperloglog;
mod key_actions;
pub mod keys;
pub mod keyspace;
mod listpack;
pub mod long_double;
pub mod notifications;
pub mod number;
pub mod partition;
pub mod random;
pub mod rdb;
pub mod recency;
pub mod reply;
pub mod size;
pub mod slot;
pub mod snapshot;
pub mod spec;
mod steps;
pub mod syntax;
#[cfg(test)]
pub(crate) mod testing;
mod timeout;
pub mod undo;
pub mod value;
pub mod wait;
pub mod watch;
pub mod work;

pub use args::{Args, Cursor};
pub use ctx::Ctx;
pub use effect::Effects;
pub use entry::Entry;
pub use error::CommandError;
pub use keyspace::{DATABASES, Keyspace};
pub use partition::{Partition, Partitions};
pub use recency::{Aging, Stamp};
pub use reply::{Protocol, Reply};
pub use spec::{Access, Arity, Command, Group, KeyPart, Routing};
pub use undo::UndoLog;
pub use value::Value;
pub use work::Work;
