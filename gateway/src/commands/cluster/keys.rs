//! The keys of slots.

use resp::{ReplyLimits, Value};
use store::{ParsedCall, Store};
use store_engine::slot::SLOTS;
use store_engine::{Args, CommandError, Protocol, Reply, command};

use crate::session::Session;
use crate::telemetry::counters::unix_ms;

/// The slot of this number.
pub fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// Shows each key of database 0 until `see` has seen enough. What moves within the table meanwhile may be shown twice.
pub async fn each_key(
    store: &Store,
    session: &Session,
    mut see: impl FnMut(&[u8]) -> bool,
) -> Result<(), CommandError> {
    let row = command::lookup(b"scan").expect("the engine has it");
    let unexpected = || CommandError::new("ERR internal error: unexpected type of SCAN reply");
    let mut cursor = b"0".to_vec();
    loop {
        let items = [&b"SCAN"[..], &cursor, b"COUNT", b"1000"];
        let call = ParsedCall::new(row, Args::new(&items)).expect("SCAN takes these arguments").of_server();
        let mut out = Reply::new(Protocol::Resp2);
        store.execute(&call.at(0, 0), session.client.id, unix_ms, &mut 0, &mut out).await;
        let (next, keys) = match Value::parse(&out.buf, ReplyLimits::default()) {
            Ok(Value::Array(parts)) => match <[Value; 2]>::try_from(parts) {
                Ok([next, Value::Array(keys)]) => (next, keys),
                _ => return Err(unexpected()),
            },
            Ok(Value::Error(text)) => {
                return Err(CommandError::owned(String::from_utf8_lossy(&text).into_owned()));
            }
            _ => return Err(unexpected()),
        };
        // All of a step: one that has seen enough takes no more.
        let goes_on = keys.iter().filter_map(Value::text).fold(true, |_, key| see(key));
        cursor = next.text().ok_or_else(unexpected)?.to_vec();
        if cursor == b"0" || !goes_on {
            return Ok(());
        }
    }
}
