//! Blocking calls of clients: an attempt that finds nothing waits in the store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use resp::{ReplyLimits, Value};
use smallvec::SmallVec;
use store::client::Backoff;
use store::{Call, Cluster, Node, Store};
use store_engine::keys::keys_of;
use store_engine::spec::flags;
use store_engine::wait::BlockingCall;
use store_engine::{Args, CommandError, Protocol, Reply, command, error};

use crate::admission::Admitted;
use crate::server::Server;
use crate::session::{Blocked, ClientInfo, RemoteWaits};
use crate::telemetry::counters::unix_ms;

/// Whether the reply from `start` on says that a blocking call found nothing.
pub fn found_nothing(admitted: &Admitted<'_>, out: &Reply, start: usize) -> bool {
    admitted.spec.has(flags::BLOCKING)
        && out.is_null_from(start)
        && BlockingCall::of(admitted.spec, admitted.args).blocks()
}

/// The reply to a blocking call whose time is over.
pub fn timed_out(protocol: Protocol) -> Vec<u8> {
    let mut out = Reply::new(protocol);
    out.null_array();
    out.buf
}

/// Waits until a call that found nothing is served, its time is over, or somebody ends it by way of
/// [`ClientInfo::blocked`]. Dropping this gives its place up.
pub async fn wait(
    server: &Arc<Server>,
    client: &ClientInfo,
    admitted: &Admitted<'_>,
    db: usize,
    out: &mut Reply,
) {
    let blocking = BlockingCall::of(admitted.spec, admitted.args);
    let timeout_ms = match blocking.timeout_ms() {
        Ok(timeout_ms) => timeout_ms,
        Err(error) => return out.error(&error),
    };
    let mut ends = Vec::new();
    for (at, key) in blocking.dollars() {
        match last_id(server, client, db, key).await {
            Ok(id) => ends.push((at, id)),
            Err(error) => return out.error(&error),
        }
    }
    let mut items = SmallVec::<[&[u8]; 8]>::from_slice(admitted.args.items());
    ends.iter().for_each(|(at, id)| items[*at] = id);
    let args = Args::new(&items);
    let call = Call { command: admitted.spec, args, keys: &admitted.keys, db, now_ms: unix_ms() };
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
    let served = async {
        match &server.store {
            Store::Local(node) => wait_local(node, client, &call, protocol).await,
            Store::Distributed(cluster) => wait_remote(cluster, client, &call, protocol).await,
        }
    };
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

/// Where a stream ends now: whoever waits for what comes then may have to look for it again and again.
async fn last_id(
    server: &Arc<Server>,
    client: &ClientInfo,
    db: usize,
    key: &[u8],
) -> Result<Vec<u8>, CommandError> {
    let items = [&b"XINFO"[..], b"STREAM", key];
    let args = Args::new(&items);
    let row = command::lookup(b"xinfo").and_then(|row| command::resolve(row, args));
    let row = row.expect("the engine has it");
    let keys = keys_of(row, args)?;
    let call = Call { command: row, args, keys: &keys, db, now_ms: unix_ms() };
    let mut out = Reply::new(Protocol::Resp2);
    server.store.execute(&call, client.id, unix_ms, &mut 0, &mut out).await;
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

async fn wait_local(
    node: &Arc<Node>,
    client: &ClientInfo,
    call: &Call<'_>,
    protocol: Protocol,
) -> Result<Vec<u8>, CommandError> {
    let mut blocked = node.block(call, protocol);
    *client.blocked.lock() = Some(Blocked::Local(blocked.waiter().clone()));
    let failed = CommandError::new("ERR internal error: the task that executed this call failed");
    blocked.reply(unix_ms).await.ok_or(failed)
}

async fn wait_remote(
    cluster: &Arc<Cluster>,
    client: &ClientInfo,
    call: &Call<'_>,
    protocol: Protocol,
) -> Result<Vec<u8>, CommandError> {
    let waits = Arc::<RemoteWaits>::default();
    *client.blocked.lock() = Some(Blocked::Remote(waits.clone()));
    let mut backoff = Backoff::default();
    loop {
        let waiting = cluster.wait(call, protocol);
        let (notify_only, map) = (waiting.notify_only, waiting.map.clone());
        let (reply, cancel) = waiting.reply(cluster);
        let mut reply = pin!(reply);
        if notify_only {
            // Only now, as whatever comes from here on is told.
            let mut out = Reply::new(protocol);
            cluster.execute(call, client.id, &mut 0, &mut out).await;
            if !out.is_null_from(0) {
                return Ok(out.buf);
            }
            if *cluster.map() != *map {
                // Others may have to be asked to tell.
                continue;
            }
        }
        tokio::select! {
            biased;
            wakeup = &mut reply => match wakeup? {
                Some(wakeup) if notify_only && wakeup.is_empty() => continue,
                Some(reply) => return Ok(reply.to_vec()),
                None => {}
            },
            end = waits.ended() => {
                if notify_only {
                    return Ok(end);
                }
                cancel.cancel();
                let last = reply.await?.unwrap_or_default();
                let nothing = last.is_empty() || Reply::append_to(last.to_vec(), protocol).is_null_from(0);
                return Ok(if nothing { end } else { last.to_vec() });
            }
        }
        // Slots have moved, and it waits where they are now.
        tokio::select! {
            biased;
            again = backoff.again() => again?,
            end = waits.ended() => return Ok(end),
        }
    }
}
