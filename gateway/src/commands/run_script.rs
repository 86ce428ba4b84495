//! The commands that run a script or a function.

use std::sync::Arc;

use store_engine::{CommandError, Reply};

use super::{function, script};
use crate::admission::Admitted;
use crate::scripting::{self, ScriptCall};
use crate::scripts::cache::{parse_sha, sha_in_pieces, sha_of};
use crate::scripts::header::Header;
use crate::scripts::options::Flags;
use crate::server::{ScriptSource, Server};
use crate::session::Session;

/// Runs the script or function that a call names.
pub async fn run(
    server: &Arc<Server>,
    session: &mut Session,
    admitted: &Admitted<'_>,
    source: ScriptSource,
    read_only: bool,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if std::mem::take(&mut session.wants_debugger) {
        return Err(script::NO_DEBUGGER);
    }
    let call = match source {
        ScriptSource::Function => function::function_call(server, session, admitted, read_only)?,
        ScriptSource::Text => {
            let sha = sha_in_pieces(admitted.args()[1]).await;
            script::script_call(server, session, admitted, Some(sha), false, read_only)?
        }
        ScriptSource::Digest => {
            if server.store.is_shared() {
                Box::pin(script::find_remote(server, admitted.args()[1])).await;
            }
            script::script_call(server, session, admitted, parse_sha(admitted.args()[1]), true, read_only)?
        }
    };
    scripting::run_script(server, call, out).await;
    Ok(())
}

/// Whether the script or function may write that a call names by this word: unless it says that it does not.
pub fn may_write(server: &Server, source: ScriptSource, called: &[u8]) -> bool {
    let flags = match source {
        ScriptSource::Text => Header::parse(called).ok().map(|(header, _)| header.options.flags),
        ScriptSource::Digest => {
            let known = parse_sha(called).and_then(|sha| server.scripting.cache.get(&sha));
            known.map(|known| known.options.flags)
        }
        ScriptSource::Function => server.scripting.functions.get(called).map(|function| function.flags),
    };
    !flags.is_some_and(|flags| flags.has(Flags::NO_WRITES))
}

/// The script or function that a call names, as far as it is known, and what it is called with.
pub fn call_of<'a>(
    server: &Server,
    session: &mut Session,
    admitted: &Admitted<'a>,
    source: ScriptSource,
    read_only: bool,
) -> Result<ScriptCall<'a>, CommandError> {
    let text = admitted.args()[1];
    match source {
        ScriptSource::Function => function::function_call(server, session, admitted, read_only),
        ScriptSource::Text => {
            script::script_call(server, session, admitted, Some(sha_of(text)), false, read_only)
        }
        ScriptSource::Digest => {
            script::script_call(server, session, admitted, parse_sha(text), true, read_only)
        }
    }
}
