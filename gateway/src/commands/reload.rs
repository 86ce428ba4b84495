//! Reads users, scripts, flags and libraries again from the catalog.

use std::collections::HashSet;

use store_engine::CommandError;
use tracing::info;

use super::{acl, function, replicaof, script};
use crate::scripting::records;
use crate::scripts::cache::parse_sha;
use crate::server::Server;

/// Makes the users, scripts, flags and libraries known that are kept, and forgets others. Those that this version refuses
/// are named in the log and stay where they are.
pub async fn reload(server: &Server) -> Result<(), CommandError> {
    let _script_permit = server.scripting.loading.lock().await;
    let store = &server.store;
    acl::reload_users(server).await?;
    replicaof::reload(server).await?;
    for (sha, words) in store.records(records::FLAGS).await? {
        let words: Vec<&[u8]> = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let said = script::options(&words);
        if let (Some(sha), Ok(said)) = (parse_sha(&sha), said) {
            // Flags beyond the limit are left out; SCRIPT FLAGS refuses them when they are set.
            let _ = server.scripting.cache.add_flags(&sha, said);
        }
    }
    let mut kept = HashSet::new();
    for (sha, text) in store.records(records::SCRIPT).await? {
        let Some(digest) = parse_sha(&sha) else { continue };
        kept.insert(digest);
        if !server.scripting.cache.is_pinned(&digest)
            && let Err(error) = script::reload_script(server, &text).await
        {
            let sha = String::from_utf8_lossy(&sha);
            info!("cannot reload the script {sha} from the catalog: {}", error.text());
        }
    }
    server.scripting.cache.keep_only(&kept);
    function::reload_libraries(server).await
}
