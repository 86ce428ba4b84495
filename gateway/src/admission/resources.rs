//! What is refused while memory is full or the disk cannot be written.

use store_engine::spec::flags;
use store_engine::{Args, Command};

use super::origin::{Checked, NotAdmitted, Origin, ScriptMemory, ScriptOrigin};
use super::parse::parse;
use crate::scripts::cache::{parse_sha, sha_of};
use crate::scripts::header::Header;
use crate::server::{Handler, Row, ScriptSource, Server, SessionCommand, memory};
use crate::session::{Multi, Session};

/// Refuses a call that needs memory when there is none: [`memory::FULL`].
pub(super) fn refuse_when_full(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let is_refused = match origin {
        Origin::Client(session) => {
            // Nothing is looked at where nothing can be full.
            server.store.may_be_full()
                && needs_memory_in(server, session.multi.as_ref(), call)
                && memory::is_full(&server.store)
        }
        Origin::Script(ScriptOrigin { memory, .. }) => {
            call.spec().has(flags::DENY_OOM)
                && match *memory {
                    ScriptMemory::Fixed { full, wrote } => full && !wrote,
                    ScriptMemory::Present { slack_bytes } => {
                        memory::exceeds_limit(&server.store, slack_bytes)
                    }
                }
        }
        Origin::Exec(_) => false,
    };
    if is_refused { Err(memory::FULL.into()) } else { Ok(()) }
}

/// Whether a call of a client needs memory, which may be a part of the transaction `multi`.
fn needs_memory_in(server: &Server, multi: Option<&Multi>, call: &Checked<'_, '_>) -> bool {
    match (multi, call.spec().name) {
        (None, _) => needs_memory(server, call.row, call.spec(), call.args()),
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(multi), "exec") => multi.queued.iter().any(|call| {
            let items: Vec<&[u8]> = call.iter().map(|item| &**item).collect();
            let queued = parse(&server.registry, Args::new(&items), false);
            queued.is_ok_and(|queued| needs_memory(server, queued.row, queued.spec(), queued.args()))
        }),
        // The queue needs some.
        (Some(_), _) => true,
    }
}

/// Refuses a call that changes something while the disk cannot be written: [`store::journal::misconf`].
pub(super) fn refuse_while_disk_fails(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let Err(error) = server.store.refuse_while_failing() else { return Ok(()) };
    let changes = match origin {
        // A part of what it does would be done, as in Redis' `scriptVerifyWriteCommandAllow`. The end of the script is refused.
        Origin::Script(ScriptOrigin { memory: ScriptMemory::Fixed { wrote: true, .. }, .. }) => false,
        Origin::Client(Session { multi: Some(multi), .. }) if call.spec().name == "exec" => {
            multi.queued.iter().any(|call| {
                let row = server.registry.lookup(&call[0]);
                row.is_some_and(|row| row.spec().is_write())
            })
        }
        _ => call.spec().is_write(),
    };
    if changes { Err(error.into()) } else { Ok(()) }
}

/// Whether a call needs memory as far as its row says, or the header of its script.
fn needs_memory(server: &Server, row: Row, spec: &Command, args: Args<'_>) -> bool {
    let Row::Session(SessionCommand { run: Handler::Script { source, .. }, .. }) = row else {
        return spec.has(flags::DENY_OOM);
    };
    let script = args[1];
    let known = match source {
        ScriptSource::Function => {
            let function = server.scripting.functions.get(script);
            return function.is_some_and(|function| !function.flags.spares_memory());
        }
        ScriptSource::Digest => parse_sha(script).and_then(|sha| server.scripting.cache.get(&sha)),
        ScriptSource::Text => server.scripting.cache.get(&sha_of(script)),
    };
    match known {
        Some(known) => {
            known.header.shebang && !known.options.or_configured(&server.config).flags.spares_memory()
        }
        None if *source == ScriptSource::Digest => false,
        None => Header::parse(script).is_ok_and(|(header, _)| {
            header.shebang && !header.options.or_configured(&server.config).flags.spares_memory()
        }),
    }
}
