//! What becomes of the outcome of a run.

use resp::ReplyLimits;
use script::{Outcome, Spent};

use super::call::ScriptCall;
use super::errors::fate;
use super::limits::limit_error;
use crate::server::Server;
use crate::telemetry::counters::Counters;
use crate::telemetry::script_stats::Ended;

/// Counts a run that ended by itself, `failed` with an error.
pub(super) fn note_end(server: &Server, call: &ScriptCall<'_>, failed: bool, spent: &Spent) {
    call.note(server, if failed { Ended::WithError } else { Ended::Well }, spent);
    Counters::add(&server.counters.scripts_run, 1);
}

/// [`append_reply`], and [`note_end`].
pub(super) fn append_outcome(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    spent: &Spent,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let failed = append_reply(server, call, outcome, spent, out)?;
    note_end(server, call, failed, spent);
    Ok(failed)
}

/// Appends the reply of a run that ended by itself, and says whether that is an error; the error's text if
/// something ended it, which is counted.
pub(super) fn append_reply(
    server: &Server,
    call: &ScriptCall<'_>,
    outcome: Outcome,
    spent: &Spent,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let (program, writes) = (&call.program, fate(call));
    let trapped = |what: String| {
        Counters::add(&server.counters.script_traps, 1);
        call.note(server, Ended::ByLimit, spent);
        Err(format!("SCRIPTTRAP {what}; {writes}"))
    };
    match outcome {
        Outcome::Reply(bytes) => {
            let mark = out.len();
            if let Err(error) = resp::transcode(&bytes, call.protocol, out, ReplyLimits::default()) {
                return trapped(format!("the sandbox returned no valid reply: {error}"));
            }
            Ok(out.get(mark) == Some(&b'-'))
        }
        Outcome::CompileError(message) => Err(call.compile_error(server, &message)),
        Outcome::Limit(limit) => {
            call.note(server, Ended::ByLimit, spent);
            Err(limit_error(server, call, limit))
        }
        Outcome::Stopped => trapped(format!("{program} was stopped")),
        Outcome::Trap(what) => trapped(format!("the sandbox stopped {program}: {what}")),
    }
}
