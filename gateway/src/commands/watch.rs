//! WATCH, UNWATCH.

use store::Store;
use store_engine::{Args, Arity, Command, CommandError, KeyPart, Reply};
use tokio::runtime::Handle;

use super::rows::TRANSACTIONS;
use crate::server::{AsyncHandler, Handler, InExec, SessionCommand};
use crate::session::{DataAccess, Session, watch_bytes};
use crate::telemetry::counters::unix_ms;

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "watch",
            since: "2.2.0",
            arity: Arity::AtLeast(2),
            keys: KeyPart::ALL_READ,
            summary: "Monitors changes to keys to determine the execution of a transaction.",
            complexity: "O(1) for every key.",
            syntax: "key...",
            ..TRANSACTIONS
        },
        run: Handler::Async(AsyncHandler {
            in_exec: InExec::Refused,
            data_access: DataAccess::Nothing,
            ..AsyncHandler::new(|server, session, args, out| {
                Box::pin(watch(&server.store, session, args, out))
            })
        }),
    },
    SessionCommand {
        spec: Command {
            name: "unwatch",
            since: "2.2.0",
            summary: "Forgets about watched keys of a transaction.",
            syntax: "",
            ..TRANSACTIONS
        },
        run: Handler::Inline(|server, session, _, out| {
            // EXEC looks at the keys until it has done all, and forgets them then.
            if !session.in_exec {
                unwatch(&server.store, session);
            }
            out.ok();
            Ok(())
        }),
    },
];

/// Keys that are watched before others have their turn.
const KEYS_PER_TURN: usize = 1000;

/// WATCH.
async fn watch(
    store: &Store,
    session: &mut Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    if session.multi.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    // Before the first one: it is watched what was asked for, or nothing.
    let bytes = args.rest(1).iter().map(|key| watch_bytes(key)).sum();
    session.client.held.refuse_more(bytes)?;
    for (at, key) in args.rest(1).iter().enumerate() {
        if at % KEYS_PER_TURN == KEYS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        let watched = (session.db, (*key).into());
        if session.watched.contains_key(&watched) {
            continue;
        }
        let watch = store.watch(session.db, key, unix_ms()).await?;
        session.client.details.lock().watched.extend(watch.flag().cloned());
        session.watched.insert(watched, watch);
        let held = &session.client.held;
        held.set_watched(held.watched() + watch_bytes(key));
    }
    out.ok();
    Ok(())
}

/// Forgets all watched keys of a session.
pub fn unwatch(store: &Store, session: &mut Session) {
    let count = session.watched.len();
    if count == 0 {
        return;
    }
    session.client.details.lock().watched.clear();
    let watched = std::mem::take(&mut session.watched);
    let store = store.clone();
    let forget = move || {
        for ((db, key), watch) in watched {
            store.unwatch(db, &key, watch);
        }
    };
    match Handle::try_current() {
        // The client need not wait for that.
        Ok(runtime) if count > KEYS_PER_TURN => drop(runtime.spawn_blocking(forget)),
        _ => forget(),
    }
    session.client.held.set_watched(0);
}

/// Whether a watched key has changed. One that has expired counts: looking at it removes it, which raises its flag.
pub(super) fn has_changed(store: &Store, session: &Session, now_ms: u64) -> bool {
    let expired = session.watched.keys().any(|(db, key)| store.refresh(*db, key, now_ms));
    expired || session.watch_broken()
}
