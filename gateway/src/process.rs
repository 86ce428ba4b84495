//! What the process has of its machine: threads, open files, certificates, connections to other processes, the data
//! directory and the build.

pub mod certificates;
pub mod descriptors;
pub mod dial;
pub mod io;
pub mod persistence;
pub mod version;
