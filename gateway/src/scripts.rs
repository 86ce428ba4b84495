//! Which scripts and functions are known, what they ask for in their header, and which of them run.

pub mod cache;
pub mod functions;
pub mod header;
pub mod options;
pub mod running;
