//! What is refused while another server says what the data is.

use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Group, Routing};

use super::origin::{Checked, NotAdmitted, Origin, ScriptMemory, ScriptOrigin};
use super::parse::parse;
use crate::server::{Handler, Row, Server, SessionCommand};
use crate::session::following::Mode;
use crate::session::{DataAccess, OwnedCall, Session};

/// The reply to a write.
const READ_ONLY: CommandError = CommandError::new("READONLY You can't write against a read only replica.");
/// The reply to all that needs data, while a part of it is there.
const LOADING: CommandError = CommandError::new("LOADING Redis is loading the dataset in memory");

/// Subcommands of FUNCTION that change libraries.
const CHANGE_LIBRARIES: [&str; 4] = ["delete", "flush", "load", "restore"];

fn mode(server: &Server, origin: Origin<'_>) -> Mode {
    let following = &server.sessions.following;
    match origin {
        Origin::Client(session) | Origin::Exec(session) => following.mode_for(session.client.id),
        Origin::Script(script) => following.mode_for(script.caller.client),
    }
}

/// Refuses what changes data.
pub(super) fn refuse_writes(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    if mode(server, origin) == Mode::Primary {
        return Ok(());
    }
    let changes = match origin {
        // A part of what it does would be done.
        Origin::Script(ScriptOrigin { memory: ScriptMemory::Fixed { wrote: true, .. }, .. }) => false,
        Origin::Client(session) if call.spec().name == "exec" => {
            let queued = session.multi.iter().flat_map(|multi| &multi.queued);
            queued.into_iter().any(|call| queued_writes(server, call))
        }
        _ => writes(call.row, call.spec()),
    };
    if changes { Err(READ_ONLY.into()) } else { Ok(()) }
}

/// Refuses a script that may write, as it says or does not say: the others are refused when they do.
pub fn refuse_writing_script(server: &Server, session: &Session) -> Result<(), CommandError> {
    match server.sessions.following.mode_for(session.client.id) {
        Mode::Primary => Ok(()),
        Mode::Replica | Mode::Loading => Err(READ_ONLY),
    }
}

fn queued_writes(server: &Server, call: &OwnedCall) -> bool {
    let items: Vec<&[u8]> = call.iter().map(|item| &**item).collect();
    parse(&server.registry, Args::new(&items), false).is_ok_and(|call| writes(call.row, call.spec()))
}

/// Whether a call changes data by itself: a script does so by its calls.
fn writes(row: Row, spec: &Command) -> bool {
    match row {
        Row::Session(SessionCommand { run: Handler::Script { .. }, .. }) => false,
        _ if row.spec().name == "function" => CHANGE_LIBRARIES.contains(&spec.name),
        _ => spec.is_write() && !spec.has(flags::KEEPS_RESULT),
    }
}

/// Refuses what needs data.
pub(super) fn refuse_while_loading(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let is_refused = mode(server, origin) == Mode::Loading && needs_data(call.row, call.spec());
    if is_refused { Err(LOADING.into()) } else { Ok(()) }
}

/// PING is among them, as in Redis: by it others find out whether a server is of use.
fn needs_data(row: Row, spec: &Command) -> bool {
    match row {
        _ if matches!(spec.name, "ping" | "psync" | "sync" | "watch") => true,
        Row::Engine(_) => spec.routing != Routing::Anywhere,
        Row::Session(SessionCommand { run: Handler::Script { .. }, .. }) => true,
        Row::Session(_) if spec.has(flags::ADMIN) || spec.group == Group::Connection => false,
        Row::Session(command) => command.run.data_access(spec.name) != DataAccess::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::FAMILIES;
    use crate::server::Registry;

    /// The rows that a function says yes to, of these.
    fn those(of: fn(Row, &Command) -> bool, lines: &[&str]) -> Vec<String> {
        let registry = Registry::new(FAMILIES);
        let is_one = |line: &&&str| {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let call = parse(&registry, Args::new(&items), false).expect(line);
            of(call.row, call.spec())
        };
        lines.iter().filter(is_one).map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn writes_are_told_from_reads() {
        let lines = [
            "SET a 1",
            "DEL a",
            "FLUSHALL",
            "SORT a",
            "XREADGROUP GROUP g c STREAMS a >",
            "XGROUP DESTROY a g",
            "MIGRATE h 1 a 0 1",
            "FUNCTION FLUSH",
            "GETEX a",
            "SWAPDB 0 1",
        ];
        assert_eq!(those(writes, &lines), lines);
        let lines = [
            "GET a",
            "PFCOUNT a",
            "SORT_RO a",
            "EVAL s 0",
            "EVALSHA s 0",
            "FCALL f 0",
            "FUNCTION LIST",
            "SCRIPT LOAD s",
            "PUBLISH a b",
            "CONFIG SET hz 1",
            "ACL DELUSER u",
            "XINFO STREAM a",
            "REPLICAOF NO ONE",
        ];
        assert!(those(writes, &lines).is_empty());
    }

    #[test]
    fn what_needs_data_is_told_from_the_rest() {
        let lines = [
            "GET a",
            "SET a 1",
            "DBSIZE",
            "KEYS *",
            "SCAN 0",
            "EVAL s 0",
            "PING",
            "PSYNC ? -1",
            "WATCH a",
            "EXEC",
        ];
        assert_eq!(those(needs_data, &lines), lines);
        let lines = [
            "INFO",
            "AUTH p",
            "HELLO 3",
            "SELECT 1",
            "CLIENT LIST",
            "CONFIG GET *",
            "ACL LIST",
            "REPLICAOF NO ONE",
            "ROLE",
            "MULTI",
            "DISCARD",
            "SUBSCRIBE a",
            "SHUTDOWN",
            "COMMAND",
            "SLOWLOG GET",
        ];
        assert!(those(needs_data, &lines).is_empty(), "{:?}", those(needs_data, &lines));
    }
}
