//! Session commands: about the connection, the server, scripts and transactions.

pub mod client;
pub mod connection;
pub mod function;
pub mod introspect;
pub mod multi;
pub mod persistence;
pub mod scripting;
pub mod server;

use store_engine::Reply;

use crate::log;
use crate::recall;
use crate::registry::SessionCommand;
use crate::scripts::parse_sha;
use crate::server::Server;

/// All families of session commands.
pub static FAMILIES: &[&[SessionCommand]] = &[
    connection::COMMANDS,
    function::COMMANDS,
    client::COMMANDS,
    introspect::COMMANDS,
    multi::COMMANDS,
    persistence::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
];

/// The reply of a container's HELP: a line for the form of each subcommand and one for what it does.
fn help(out: &mut Reply, container: &str, subcommands: &[(&str, &str)]) {
    out.array(1 + 2 * subcommands.len() + 2);
    out.status(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (form, meaning) in subcommands {
        out.status(form);
        out.status(&format!("    {meaning}"));
    }
    out.status("HELP");
    out.status("    Prints this help.");
}

/// Makes the scripts, flags and libraries known that were so when the data was written. Those that this version
/// refuses are named in the log and stay where they are.
pub async fn recall(server: &Server) {
    let node = &server.node;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (sha, words) in node.records(recall::FLAGS) {
        let words: Vec<&[u8]> = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let said = scripting::options(&words);
        if let (Some(sha), Ok(said)) = (parse_sha(&sha), said) {
            // Too many are too many for whoever says it first.
            let _ = server.scripts.add_flags(&sha, said, |_| ());
        }
    }
    for (sha, source) in node.records(recall::SCRIPT) {
        if let Err(error) = scripting::load(server, &source).await {
            log::notice(&format!("the script {} cannot be loaded again: {}", text(&sha), error.text()));
        }
    }
    for (name, source) in node.records(recall::LIBRARY) {
        if let Err(error) = function::load_again(server, &source).await {
            log::notice(&format!("the library {} cannot be loaded again: {}", text(&name), error.text()));
        }
    }
}
