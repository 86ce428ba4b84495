//! What becomes of the outcome of a run.

use resp::ReplyLimits;
use script::{Outcome, ResourceUsage};

use super::call::{Program, ScriptCall};
use super::errors::ScriptError;
use super::limits::Reached;
use crate::scripts::Scripting;
use crate::server::Server;
use crate::telemetry::Telemetry;
use crate::telemetry::counters::Counters;
use crate::telemetry::script_stats::Ended;

/// Counts a run that ended by itself, `failed` with an error.
pub(super) fn note_end(telemetry: &Telemetry, call: &ScriptCall<'_>, failed: bool, usage: &ResourceUsage) {
    call.note(telemetry, if failed { Ended::WithError } else { Ended::Well }, usage);
    Counters::add(&telemetry.counters.scripts_run, 1);
}

/// Counts a script that was killed.
pub(super) fn note_killed(telemetry: &Telemetry, call: &ScriptCall<'_>) -> ScriptError {
    Counters::add(&telemetry.counters.scripts_killed, 1);
    call.note(telemetry, Ended::Killed, &ResourceUsage::default());
    ScriptError::Killed
}

/// Counts a transaction that was killed while it was still waiting for its keys, or its user's turn.
pub(super) fn note_never_run(telemetry: &Telemetry) {
    Counters::add(&telemetry.counters.scripts_killed, 1);
    telemetry.script_totals.add(Ended::Killed, &ResourceUsage::default());
}

/// Forgets a script that does not compile.
pub(super) fn forget(scripting: &Scripting, call: &ScriptCall<'_>) {
    if let Program::Script(known) = &call.program {
        scripting.cache.forget(known);
    }
}

/// Whether a run ended by itself with an error.
pub(super) fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(reply) if resp::is_error(reply))
}

/// [`append_reply`], and [`note_end`].
pub(super) fn append_outcome(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    usage: &ResourceUsage,
    out: &mut Vec<u8>,
) -> Result<bool, ScriptError> {
    let failed = append_reply(server, call, outcome, usage, out)?;
    note_end(&server.telemetry, call, failed, usage);
    Ok(failed)
}

/// Appends the reply of a run that ended by itself, and says whether that is an error. What ended it otherwise is counted.
pub(super) fn append_reply(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    usage: &ResourceUsage,
    out: &mut Vec<u8>,
) -> Result<bool, ScriptError> {
    let trapped = |error: ScriptError| {
        Counters::add(&server.telemetry.counters.script_traps, 1);
        call.note(&server.telemetry, Ended::ByLimit, usage);
        Err(error)
    };
    let failed = is_error(&outcome);
    match outcome {
        Outcome::Reply(bytes) => match resp::transcode(&bytes, call.protocol, out, ReplyLimits::default()) {
            Ok(()) => Ok(failed),
            Err(error) => trapped(ScriptError::InvalidReply(error)),
        },
        Outcome::CompileError(message) => {
            forget(&server.scripting, call);
            Err(ScriptError::Compile(message))
        }
        Outcome::Limit(limit) => {
            call.note(&server.telemetry, Ended::ByLimit, usage);
            Err(ScriptError::Limit(Reached::by_call(&server.acl, call, limit)))
        }
        Outcome::Stopped => trapped(ScriptError::Stopped),
        Outcome::Trap(what) => trapped(ScriptError::Trap(what)),
    }
}
