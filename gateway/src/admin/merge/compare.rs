//! Whether a server has what was sent to it.

use std::num::NonZeroU64;

use resp::Value as ReplyValue;
use store_engine::rdb::{self, Dialect};
use store_engine::{Entry, Stamp, Value, Work};

/// What a server may find expired before this process does: its clock may be ahead.
const CLOCKS_MS: u64 = 5000;

/// Whether a key of a server, by its replies to `DUMP` and `PEXPIRETIME`, is the one that was sent. Keys and fields of hashes
/// that have expired may be missing.
pub fn is_same(sent: &Entry, payload: &ReplyValue, expires: &ReplyValue, now_ms: u64) -> bool {
    let expired_ms = now_ms + CLOCKS_MS;
    let (payload, at_ms) = match (payload, expires) {
        (ReplyValue::Bulk(payload), ReplyValue::Integer(at_ms)) if *at_ms != -2 => (payload, *at_ms),
        _ => return sent.clone().living(expired_ms).is_none(),
    };
    let loaded = rdb::unseal(payload).and_then(|payload| rdb::load(payload, &Work::unlimited()).ok());
    let Some(found) = loaded else { return false };
    let found_at_ms = u64::try_from(at_ms).ok().and_then(NonZeroU64::new);
    found_at_ms == sent.expire_at_ms
        && (is_same_value(&sent.value, &found) || is_same_hash_later(&sent.value, &found, expired_ms))
}

fn is_same_value(sent: &Value, found: &Value) -> bool {
    let dump = |value| rdb::dump(value, Dialect::Redis);
    match (sent, found) {
        // What payloads of Redis 7.0 say of streams: newer files say more.
        (Value::Stream(_), Value::Stream(_)) => dump(sent) == dump(found),
        _ => sent == found,
    }
}

/// Whether the fields of two hashes are the same that have not expired then.
fn is_same_hash_later(sent: &Value, found: &Value, at_ms: u64) -> bool {
    let Value::Hash(hash) = sent else { return false };
    let left = |value: &Value| {
        let entry = Entry::new(value.clone(), Stamp::default());
        entry.living(at_ms).map(|entry| entry.value)
    };
    hash.is_expiring() && left(sent) == left(found)
}

#[cfg(test)]
mod tests {
    use store_engine::rdb::Payload;

    use super::*;

    fn entry(value: Value, at_ms: u64) -> Entry {
        Entry { expire_at_ms: NonZeroU64::new(at_ms), ..Entry::new(value, Stamp::default()) }
    }

    fn dumped(value: &Value) -> ReplyValue {
        ReplyValue::Bulk(rdb::dump(value, Dialect::Valkey))
    }

    #[test]
    fn value_and_expiry_are_compared() {
        let (value, other) = (Value::string(b"a"), Value::string(b"b"));
        let at = ReplyValue::Integer;
        let sent = entry(value.clone(), 90_000);
        assert!(is_same(&sent, &dumped(&value), &at(90_000), 1));
        assert!(!is_same(&sent, &dumped(&other), &at(90_000), 1));
        assert!(!is_same(&sent, &dumped(&value), &at(90_001), 1));
        assert!(!is_same(&sent, &dumped(&value), &at(-1), 1));
        assert!(!is_same(&sent, &ReplyValue::Bulk(b"damaged".to_vec()), &at(90_000), 1));
        let lasting = entry(value.clone(), 0);
        assert!(is_same(&lasting, &dumped(&value), &at(-1), 1));
        assert!(!is_same(&lasting, &ReplyValue::Null, &at(-2), 1));
        // A key that expires about now may be missing.
        assert!(!is_same(&sent, &ReplyValue::Null, &at(-2), 1));
        assert!(is_same(&sent, &ReplyValue::Null, &at(-2), 89_000));
        assert!(is_same(&sent, &dumped(&value), &at(-2), 89_000));
    }

    #[test]
    fn fields_that_have_expired_may_be_missing() {
        // A hash as Valkey dumps it; -1 stands for no time.
        let hash = |fields: &[(u8, i64)]| {
            let mut body = vec![22, fields.len() as u8];
            for (field, at_ms) in fields {
                body.extend_from_slice(&[1, *field, 1, b'v']);
                body.extend_from_slice(&at_ms.to_le_bytes());
            }
            rdb::load(Payload { body: &body, dialect: Dialect::Valkey }, &Work::unlimited())
                .expect("a payload")
        };
        let sent = entry(hash(&[(b'f', 9000), (b'g', -1)]), 0);
        let at = ReplyValue::Integer(-1);
        assert!(is_same(&sent, &dumped(&sent.value), &at, 1));
        assert!(is_same(&sent, &dumped(&hash(&[(b'g', -1)])), &at, 8000));
        assert!(!is_same(&sent, &dumped(&hash(&[(b'g', -1)])), &at, 1));
        assert!(!is_same(&sent, &dumped(&hash(&[(b'h', -1)])), &at, 8000));
    }
}
