//! Session commands: about the connection, the server, scripts and transactions.

pub mod acl;
mod calls;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod function;
pub mod introspect;
pub mod latency;
pub mod lolwut;
pub mod memory;
pub mod multi;
pub mod persistence;
pub mod pubsub;
pub mod replication;
mod run_script;
pub mod scripting;
pub mod server;
pub mod watching;

use std::collections::HashSet;
use std::sync::Arc;

use store_engine::reply::help;
use store_engine::{CommandError, Reply};

use crate::gate::Admitted;
use crate::log;
use crate::recall;
use crate::registry::{Handler, SessionCommand};
use crate::scripts::parse_sha;
use crate::server::Server;
use crate::session::Session;

/// All families of session commands.
pub static FAMILIES: &[&[SessionCommand]] = &[
    acl::COMMANDS,
    connection::COMMANDS,
    function::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    introspect::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    multi::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    watching::COMMANDS,
];

/// Performs a session command.
pub async fn perform(
    server: &Arc<Server>,
    session: &mut Session,
    admitted: &Admitted<'_>,
    handler: Handler,
    out: &mut Reply,
) {
    let mark = out.buf.len();
    let done = match handler {
        Handler::Inline(run) => run(server, session, admitted.args, out),
        Handler::Async(handler) => (handler.run)(server, session, admitted.args, out).await,
        Handler::Script { source, read_only } => {
            run_script::run(server, session, admitted, source, read_only, out).await
        }
        Handler::Publish { shard } => pubsub::publish(server, session, admitted.args, shard, out).await,
    };
    if let Err(error) = done {
        out.buf.truncate(mark);
        out.error(&error);
    }
}

/// Makes the users, scripts, flags and libraries known that are kept, and forgets others. Those that this version refuses
/// are named in the log and stay where they are.
pub async fn recall(server: &Server) -> Result<(), CommandError> {
    let _turn = server.loading.lock().await;
    let store = &server.store;
    acl::recall(server).await?;
    for (sha, words) in store.records(recall::FLAGS).await? {
        let words: Vec<&[u8]> = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let said = scripting::options(&words);
        if let (Some(sha), Ok(said)) = (parse_sha(&sha), said) {
            // Too many are too many for whoever says it first.
            let _ = server.scripts.add_flags(&sha, said);
        }
    }
    let mut kept = HashSet::new();
    for (sha, text) in store.records(recall::SCRIPT).await? {
        let Some(digest) = parse_sha(&sha) else { continue };
        kept.insert(digest);
        if !server.scripts.is_pinned(&digest)
            && let Err(error) = scripting::recall_script(server, &text).await
        {
            let sha = String::from_utf8_lossy(&sha);
            log::notice(&format!("cannot reload the script {sha} from the catalog: {}", error.text()));
        }
    }
    server.scripts.keep_only(&kept);
    function::recall_libraries(server).await
}

#[cfg(test)]
mod tests {
    use store_engine::spec::flags;

    use super::FAMILIES;
    use crate::audit::{ALSO, LOOK};
    use crate::registry::Registry;

    #[test]
    fn the_audit_names_commands_that_there_are() {
        let registry = Registry::new(FAMILIES);
        for (names, admin) in [(LOOK, true), (ALSO, false)] {
            for name in names {
                let number = (0..registry.count()).find(|number| registry.name_of(*number) == *name);
                let facts = registry.facts_of(number.unwrap_or_else(|| panic!("{name} is no command")));
                assert_eq!(facts.has(flags::ADMIN), admin, "{name}");
            }
        }
    }
}
