//! Why a process does not start.

use std::{fmt, io};

use crate::acl::file::FileError;
use crate::config::SettingError;
use crate::process::persistence::StorageError;

/// Why a process does not start, or does not end well: one line.
#[derive(Debug)]
pub enum StartError {
    /// A parameter cannot be used.
    Setting(SettingError),
    /// The data cannot be had, or was not kept.
    Storage(StorageError),
    /// The file of users cannot be used.
    Users(FileError),
    /// The system refuses to do this.
    System(&'static str, io::Error),
    /// Scripts cannot be run, for this reason.
    ScriptEngine(String),
    /// The data is there, and cannot be served.
    Store(store::server::StartError),
    /// The process cannot take part in its cluster.
    Replicas(store::server::process::ProcessError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("moonshard: ")?;
        match self {
            StartError::Setting(error) => error.fmt(f),
            StartError::Storage(error) => error.fmt(f),
            StartError::Users(error) => error.fmt(f),
            StartError::System(what, error) => write!(f, "cannot {what}: {error}"),
            StartError::ScriptEngine(why) => write!(f, "cannot prepare the script engine: {why}"),
            StartError::Store(error) => error.fmt(f),
            StartError::Replicas(error) => error.fmt(f),
        }
    }
}

impl From<SettingError> for StartError {
    fn from(error: SettingError) -> StartError {
        StartError::Setting(error)
    }
}

impl From<StorageError> for StartError {
    fn from(error: StorageError) -> StartError {
        StartError::Storage(error)
    }
}
