//! What an administrator starts from the command line: the program's arguments, its manual, and its tools.

pub mod backup;
pub mod cli;
pub mod health;
pub mod import;
pub mod merge;
pub mod offline_tools;
pub mod reference;
pub mod script;
pub mod topology;

use std::io::{self, Write as _};

use tokio::runtime::{Builder, Runtime};

/// Writes to standard output. A reader that has read enough, as `head` has, is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// What a tool that asks others runs on. If there is none, it is said why.
fn runtime() -> Option<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| eprintln!("moonshard: cannot start the runtime: {error}")).ok()
}
