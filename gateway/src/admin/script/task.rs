//! What `moonshard script` is asked to do.

use std::io::Read;
use std::path::{Path, PathBuf};

use tls::Files;

use super::definitions::Language;
use super::error::ToolError;
use crate::config::Address;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    /// Run a script and print its reply.
    Run {
        /// The script.
        call: ScriptCall,
        /// Print JSON.
        json: bool,
    },
    /// Run a script, undo its changes, and print its reply and these changes.
    DryRun {
        /// The script.
        call: ScriptCall,
        /// Print JSON.
        json: bool,
    },
    /// Look for mistakes in scripts without running them.
    Check {
        /// The scripts.
        files: Vec<PathBuf>,
    },
    /// Run the tests in files of tests.
    Test {
        /// The files.
        files: Vec<PathBuf>,
        /// Where a report in the format of JUnit is written.
        junit: Option<PathBuf>,
    },
    /// Print what scripts can call, for an editor.
    Definitions {
        /// The language of the scripts.
        language: Language,
    },
    /// Run a script repeatedly and print how long it takes.
    Bench {
        /// The script.
        call: ScriptCall,
        /// For so many seconds.
        seconds: u32,
        /// By so many clients at once.
        clients: u32,
    },
}

/// A script with what it is called with.
#[derive(Debug, PartialEq, Eq)]
pub struct ScriptCall {
    /// Its file; `-` is standard input.
    pub file: PathBuf,
    /// `KEYS`
    pub keys: Vec<String>,
    /// `ARGV`
    pub args: Vec<String>,
    /// The server that runs it; without one it is run in this process, with an empty store.
    pub server: Option<ServerAddress>,
}

impl ScriptCall {
    /// The text of the script.
    pub fn text(&self) -> Result<Vec<u8>, ToolError> {
        if self.file != Path::new("-") {
            return read(&self.file);
        }
        let mut text = Vec::new();
        let read = std::io::stdin().read_to_end(&mut text);
        read.map_err(|error| ToolError::new(format_args!("cannot read standard input: {error}")))?;
        Ok(text)
    }
}

/// The bytes of a file.
pub fn read(file: &Path) -> Result<Vec<u8>, ToolError> {
    std::fs::read(file)
        .map_err(|error| ToolError::new(format_args!("cannot read {}: {error}", file.display())))
}

/// A server, and how this process authenticates to it. The password may also come from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Its address.
    pub address: Address,
    /// The user, if not `default`.
    pub user: Option<String>,
    /// The password, if it is known here.
    pub password: Option<String>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The certificates, if the connection uses TLS.
    pub tls: Option<Files>,
}
