//! The commands that run a script or a function.

use std::sync::Arc;

use store_engine::{CommandError, Reply};

use super::{function, script};
use crate::admission::Admitted;
use crate::scripting::{self, ScriptCall};
use crate::scripts::cache::{parse_sha, sha_in_pieces, sha_of};
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
