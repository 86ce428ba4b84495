//! Why settings are refused.

use std::{fmt, io};

use store_engine::CommandError;

/// A parameter whose value cannot be used, for an error at start: `parameter: reason`.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The parameter.
    pub parameter: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl SettingError {
    /// For this parameter.
    pub fn new(parameter: &'static str, reason: impl fmt::Display) -> SettingError {
        SettingError { parameter, reason: reason.to_string() }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.parameter, self.reason)
    }
}

/// Why CONFIG SET changes nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum SetError {
    /// There is no parameter of this name.
    Unknown(String),
    /// The parameter, and what is wrong with it or its value.
    Refused(String, String),
}

/// The texts of Redis 7.0.15, without the code word.
impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Unknown(name) => {
                write!(f, "Unknown option or number of arguments for CONFIG SET - '{name}'")
            }
            SetError::Refused(name, why) => {
                write!(f, "CONFIG SET failed (possibly related to argument '{name}') - {why}")
            }
        }
    }
}

impl From<SetError> for CommandError {
    fn from(error: SetError) -> CommandError {
        CommandError::owned(format!("ERR {error}"))
    }
}

/// Why CONFIG REWRITE does not write the file.
#[derive(Debug)]
pub enum RewriteError {
    /// There is none.
    NoFile,
    /// It cannot be read or written.
    File(io::Error),
    /// What is in it is not TOML.
    Syntax(toml_edit::TomlError),
}

/// The texts of Redis 7.0.15, without the code word.
impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RewriteError::NoFile => f.write_str("The server is running without a config file"),
            RewriteError::File(error) => {
                // As `strerror` has it.
                let text = error.to_string();
                let text = text.split(" (os error").next().unwrap_or_default();
                write!(f, "Rewriting config file: {text}")
            }
            RewriteError::Syntax(error) => {
                write!(f, "Rewriting config file: {}", error.message().replace('\n', ", "))
            }
        }
    }
}

impl From<RewriteError> for CommandError {
    fn from(error: RewriteError) -> CommandError {
        CommandError::owned(format!("ERR {error}"))
    }
}
