//! What is told of a script that has no reply of its own.

use script::Spent;
use store::Trouble;

use super::call::{Program, ScriptCall};
use crate::scripts::options::Flags;
use crate::scripts::runs::Who;
use crate::server::Server;
use crate::telemetry::counters::Counters;
use crate::telemetry::script_stats::Ended;

/// Counts a script that was killed; the text that becomes the reply.
pub(super) fn killed_error(server: &Server, call: &ScriptCall<'_>) -> String {
    Counters::add(&server.counters.scripts_killed, 1);
    call.note(server, Ended::Killed, &Spent::default());
    let command = call.program.kind().to_uppercase();
    let fate = match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        // What it had collected is gone with it.
        true => "its writes were not rolled back, because it is not atomic",
        false => fate(call),
    };
    format!("KILLED {} was stopped by {command} KILL; {fate}", call.program)
}

/// The same of a transaction that was still waiting for its keys, or its user's turn.
pub(super) fn never_run_error(server: &Server, who: &Who) -> String {
    Counters::add(&server.counters.scripts_killed, 1);
    server.totals.add(Ended::Killed, &Spent::default());
    let kind = if who.function.is_some() { "function" } else { "script" };
    format!(
        "KILLED {kind} {} was stopped by {} KILL before its transaction executed a command",
        who.name,
        kind.to_uppercase()
    )
}

/// What became of the writes of a script that was ended.
pub(super) fn fate(call: &ScriptCall<'_>) -> &'static str {
    match call.options.flags.has(Flags::DISABLE_ATOMICITY) {
        true => "its writes were not rolled back, because it is not atomic",
        false => "its writes were rolled back",
    }
}

/// The text for a unit that could not begin.
pub(super) fn lost(trouble: Trouble) -> String {
    match trouble {
        Trouble::Lost(error) => error.text().to_owned(),
        other => format!("ERR internal error: locks were not acquired: {other:?}"),
    }
}

/// Redis' text for what does not compile.
pub(super) fn compile_error(message: &str) -> String {
    format!("ERR Error compiling script (new function): {message}")
}

impl ScriptCall<'_> {
    /// Redis' text for what does not compile, which is not kept.
    pub(super) fn compile_error(&self, server: &Server, message: &str) -> String {
        if let Program::Script(known) = &self.program {
            server.scripts.forget(known);
        }
        compile_error(message)
    }
}
