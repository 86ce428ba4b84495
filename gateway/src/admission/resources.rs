//! What is refused while memory is full or the disk cannot be written.

use store_engine::spec::flags;
use store_engine::{Args, CommandError};

use super::call::{Admitted, Origin, admit};
use crate::scripts::cache::{parse_sha, sha_of};
use crate::scripts::header::Header;
use crate::server::memory;
use crate::server::{Handler, Row, ScriptSource, Server, SessionCommand};
use crate::session::Multi;

/// Refuses a call of a client that needs memory when there is none: [`memory::FULL`]. `multi` is the transaction that
/// it will be a part of. What a script calls is refused where the script is run.
pub fn refuse_when_full(
    server: &Server,
    admitted: &Admitted<'_>,
    multi: Option<&Multi>,
) -> Result<(), CommandError> {
    if server.store.node().is_some() && server.config.maxmemory.get() == 0 {
        return Ok(());
    }
    let needs_memory = match (multi, admitted.spec.name) {
        (None, _) => needs_memory(server, admitted),
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(multi), "exec") => multi.queued.iter().any(|call| {
            let items: Vec<&[u8]> = call.iter().map(|item| &**item).collect();
            let queued = admit(&server.registry, Args::new(&items), Origin::Client);
            queued.is_ok_and(|queued| needs_memory(server, &queued))
        }),
        // The queue needs some.
        (Some(_), _) => true,
    };
    if needs_memory && server.memory_is_full() { Err(memory::FULL) } else { Ok(()) }
}

/// Refuses a call that changes something while the disk cannot be written: [`store::journal::misconf`].
/// `multi` is the transaction that it ends or belongs to.
pub fn refuse_what_cannot_be_kept(
    server: &Server,
    admitted: &Admitted<'_>,
    multi: Option<&Multi>,
) -> Result<(), CommandError> {
    let Some(node) = server.store.node() else { return Ok(()) };
    node.refuse_while_failing().or_else(|error| {
        let changes = match multi {
            Some(multi) if admitted.spec.name == "exec" => multi.queued.iter().any(|call| {
                let row = server.registry.lookup(&call[0]);
                row.is_some_and(|row| row.spec().is_write())
            }),
            _ => admitted.spec.is_write(),
        };
        if changes { Err(error) } else { Ok(()) }
    })
}

/// Whether a call needs memory as far as its row tells, or the header of its script.
fn needs_memory(server: &Server, admitted: &Admitted<'_>) -> bool {
    let Row::Session(SessionCommand { run: Handler::Script { source, .. }, .. }) = admitted.row else {
        return admitted.spec.has(flags::DENY_OOM);
    };
    let script = admitted.args[1];
    let known = match source {
        ScriptSource::Function => {
            let function = server.functions.get(script);
            return function.is_some_and(|function| !function.flags.spares_memory());
        }
        ScriptSource::Digest => parse_sha(script).and_then(|sha| server.scripts.get(&sha)),
        ScriptSource::Text => server.scripts.get(&sha_of(script)),
    };
    match known {
        Some(known) => known.header.shebang && !server.complete(known.options).flags.spares_memory(),
        None if *source == ScriptSource::Digest => false,
        None => Header::parse(script).is_ok_and(|(header, _)| {
            header.shebang && !server.complete(header.options).flags.spares_memory()
        }),
    }
}
