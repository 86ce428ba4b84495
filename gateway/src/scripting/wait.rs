//! Blocking calls of clients: an attempt that finds nothing waits in the store.

use std::time::Duration;

use resp::{ReplyLimits, Value};
use smallvec::SmallVec;
use store::{ParsedCall, Store};
use store_engine::spec::flags;
use store_engine::wait::BlockingCall;
use store_engine::{Args, CommandError, Protocol, Reply, command, error};

use crate::admission::Admitted;
use crate::session::ClientInfo;
use crate::telemetry::counters::unix_ms;

/// Whether the reply from `start` on says that a blocking call found nothing.
pub fn found_nothing(admitted: &Admitted<'_>, out: &Reply, start: usize) -> bool {
    admitted.spec().has(flags::BLOCKING)
        && out.is_null_from(start)
        && BlockingCall::of(admitted.spec(), admitted.args()).blocks()
}

/// The reply to a blocking call whose time is over.
pub fn timed_out(protocol: Protocol) -> Vec<u8> {
    let mut out = Reply::new(protocol);
    out.null_array();
    out.buf
}

/// Waits until a call that found nothing is served, its time is over, or another client ends it by way of
/// [`ClientInfo::blocked`]. Dropping this gives its place up.
pub async fn wait(store: &Store, client: &ClientInfo, admitted: &Admitted<'_>, db: usize, out: &mut Reply) {
    let blocking = BlockingCall::of(admitted.spec(), admitted.args());
    let timeout_ms = match blocking.timeout_ms() {
        Ok(timeout_ms) => timeout_ms,
        Err(error) => return out.error(&error),
    };
    let mut ends = Vec::new();
    for (at, key) in blocking.dollars() {
        match last_id(store, client, db, key).await {
            Ok(id) => ends.push((at, id)),
            Err(error) => return out.error(&error),
        }
    }
    let mut items = SmallVec::<[&[u8]; 8]>::from_slice(admitted.args().items());
    ends.iter().for_each(|(at, id)| items[*at] = id);
    let call = admitted.at(db, unix_ms());
    let call = call.with_items(&items).expect("the IDs of streams are no keys");
    let protocol = out.protocol;
    let timer = async {
        if timeout_ms > 0 {
            tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
            if let Some(blocked) = client.blocked.lock().clone() {
                blocked.answer(timed_out(protocol));
            }
        }
        // Whoever was first has answered.
        std::future::pending::<()>().await;
    };
    let began = |blocked| *client.blocked.lock() = Some(blocked);
    let served = store.block(&call, protocol, client.id, unix_ms, began);
    let reply = tokio::select! {
        biased;
        reply = served => reply,
        () = timer => Ok(Vec::new()),
    };
    *client.blocked.lock() = None;
    match reply {
        Ok(reply) => out.relay(&reply),
        Err(error) => out.error(&error),
    }
}

/// Where a stream ends now: a call that waits for later entries may have to look for them again and again.
async fn last_id(store: &Store, client: &ClientInfo, db: usize, key: &[u8]) -> Result<Vec<u8>, CommandError> {
    let items = [&b"XINFO"[..], b"STREAM", key];
    let args = Args::new(&items);
    let row = command::lookup(b"xinfo").and_then(|row| command::resolve(row, args));
    let call = row.and_then(|row| ParsedCall::new(row, args)).expect("the engine has it").of_server();
    let mut out = Reply::new(Protocol::Resp2);
    store.execute(&call.at(db, 0), client.id, unix_ms, &mut 0, &mut out).await;
    let nothing = CommandError::new("ERR internal error: cannot read the last ID of a stream");
    match Value::parse(&out.buf, ReplyLimits::default()) {
        Ok(Value::Array(fields)) => {
            let name = fields.iter().position(|field| field.text() == Some(b"last-generated-id"));
            let id = name.and_then(|at| fields.get(at + 1)?.text());
            id.map(<[u8]>::to_vec).ok_or(nothing)
        }
        Ok(Value::Error(text)) if text == error::NO_SUCH_KEY.text().as_bytes() => Ok(b"0-0".to_vec()),
        Ok(Value::Error(text)) => Err(CommandError::owned(String::from_utf8_lossy(&text).into_owned())),
        _ => Err(nothing),
    }
}
