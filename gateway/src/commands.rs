//! Session commands: about the connection, the server, scripts and transactions.

pub mod acl;
mod calls;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod dispatch;
pub mod function;
pub mod introspect;
pub mod latency;
pub mod lolwut;
pub mod memory;
mod migrate;
mod module;
pub mod multi;
pub mod perform;
pub mod persistence;
pub mod pubsub;
pub mod reload;
pub mod replication;
pub mod rows;
mod run_script;
pub mod script;
pub mod server;
pub mod sync;
pub mod table;
pub mod watch;
pub mod watching;
