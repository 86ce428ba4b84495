//! Session commands: about the connection, the server, scripts and transactions.

pub mod client;
pub mod connection;
pub mod function;
pub mod introspect;
pub mod multi;
pub mod scripting;
pub mod server;

use store_engine::Reply;

use crate::registry::SessionCommand;

/// All families of session commands.
pub static FAMILIES: &[&[SessionCommand]] = &[
    connection::COMMANDS,
    function::COMMANDS,
    client::COMMANDS,
    introspect::COMMANDS,
    multi::COMMANDS,
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
    out.status("    Print this help.");
}
