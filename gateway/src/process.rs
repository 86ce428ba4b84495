//! What the process has of its machine: threads, open files, certificates, connections to other processes and the data
//! directory.

pub mod certificates;
pub mod descriptors;
pub mod dial;
pub mod io;
pub mod persistence;
