//! What is refused to scripts.

use store_engine::spec::flags;
use store_engine::{Command, CommandError, wait};

use super::origin::{Checked, NotAdmitted, Origin};
use crate::server::Row;

/// The error of a script that calls a command which is not for scripts.
pub const NOT_IN_SCRIPT: CommandError =
    CommandError::new("ERR This Redis command is not allowed from script");

/// Whether scripts may call a command, as far as its row says. HELP is for scripts, whatever its container is about. A
/// session command that may have to wait would do so while the script holds its locks, except commands about channels.
pub fn is_for_scripts(row: Row, spec: &Command) -> bool {
    let waits = matches!(row, Row::Session(command) if command.run.in_script().is_none());
    let refused = spec.has(flags::NO_SCRIPT) || (waits && !spec.has(flags::PUBSUB));
    !refused || spec.name == "help"
}

pub(super) fn refuse_outside_scripts(call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    if is_for_scripts(call.row, call.spec()) { Ok(()) } else { Err(NOT_IN_SCRIPT.into()) }
}

/// Refuses what writes to a script that may not write.
pub(super) fn refuse_writes(origin: Origin<'_>, call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    let spec = call.spec();
    match origin {
        Origin::Script(script) if script.read_only && (spec.is_write() || spec.has(flags::PUBLISHES)) => {
            Err(CommandError::new("ERR Write commands are not allowed from read-only scripts.").into())
        }
        _ => Ok(()),
    }
}

/// Refuses a call that waits for a key, as XREAD with BLOCK does.
pub(super) fn refuse_waiting(call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    Ok(wait::refuse_in_script(call.spec(), call.args())?)
}
