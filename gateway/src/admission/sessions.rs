//! What a session refuses while it is in a state that the call does not suit.

use store_engine::spec::flags;
use store_engine::{CommandError, Protocol};

use super::origin::{Checked, NotAdmitted, Origin};
use super::parse::full_name;

/// Commands that act at once within MULTI.
const NOT_QUEUED: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];

/// Whether a command is queued within MULTI.
pub fn is_queued(name: &str) -> bool {
    !NOT_QUEUED.contains(&name)
}

/// Refuses what EXEC could not do.
pub(super) fn refuse_within_multi(origin: Origin<'_>, call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    match origin {
        Origin::Client(session)
            if session.multi.is_some() && call.spec().has(flags::NO_MULTI) && is_queued(call.spec().name) =>
        {
            Err(CommandError::new("ERR Command not allowed inside a transaction").into())
        }
        _ => Ok(()),
    }
}

/// The commands of a client of RESP2 that is subscribed to something.
const WHILE_SUBSCRIBED: [&str; 9] = [
    "ping",
    "subscribe",
    "ssubscribe",
    "psubscribe",
    "unsubscribe",
    "sunsubscribe",
    "punsubscribe",
    "quit",
    "reset",
];

/// Redis' refusal of other commands while a RESP2 connection is subscribed to something: the client could not distinguish
/// their replies from messages.
pub(super) fn refuse_while_subscribed(origin: Origin<'_>, call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    let Origin::Client(session) = origin else { return Ok(()) };
    if session.subscriptions.is_none()
        || session.protocol == Protocol::Resp3
        || WHILE_SUBSCRIBED.contains(&call.spec().name)
    {
        return Ok(());
    }
    let name = full_name(call.row.spec(), call.spec());
    let text = format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
         this context"
    );
    Err(CommandError::owned(text).into())
}
