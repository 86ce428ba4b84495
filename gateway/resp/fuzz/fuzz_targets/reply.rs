//! Replies: what the transcoder lets through is a reply in either protocol and says the same; the tree reader
//! agrees with it, and does not care how the bytes arrive.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::reader::Progress;
use resp::{Reader, ReplyError, ReplyLimits, Value, transcode};
use store_engine::Protocol::{Resp2, Resp3};

/// Whether `resp2` is all that RESP2 can say of `resp3`.
fn says_the_same(resp3: &Value, resp2: &Value) -> bool {
    let all = |left: &[Value], right: &[Value]| {
        left.len() == right.len() && left.iter().zip(right).all(|(left, right)| says_the_same(left, right))
    };
    match (resp3, resp2) {
        (Value::Array(left) | Value::Set(left), Value::Array(right)) => all(left, right),
        (Value::Map(left), Value::Array(right)) => {
            let flat: Vec<Value> =
                left.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            all(&flat, right)
        }
        (Value::Double(left), Value::Bulk(right)) => {
            let right: f64 = std::str::from_utf8(right).unwrap().parse().unwrap();
            left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
        }
        (Value::Boolean(left), Value::Integer(right)) => i64::from(*left) == *right,
        (Value::BigNumber(left) | Value::Verbatim { text: left, .. }, Value::Bulk(right)) => left == right,
        (left, right) => left == right,
    }
}

/// Values compare unequal to themselves where they hold a NaN; their bytes do not.
fn bytes(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.write_to(Resp3, &mut out);
    out
}

fn read_bytewise(input: &[u8], limits: ReplyLimits) -> Result<Value, ReplyError> {
    let mut reader = Reader::new(limits);
    for end in 0..=input.len() {
        if let Progress::Done { value, consumed } = reader.read(&input[..end])? {
            assert_eq!(consumed, end);
            return if end == input.len() { Ok(value) } else { Err(ReplyError::TrailingBytes) };
        }
    }
    Err(ReplyError::Truncated)
}

fuzz_target!(|input: &[u8]| {
    let limits = ReplyLimits { max_depth: 20, max_bytes: 4000 };
    let read = Value::parse(input, limits);
    let bytewise = read_bytewise(input, limits);
    assert_eq!(read.as_ref().map(bytes), bytewise.as_ref().map(bytes));

    let mut same = b"kept".to_vec();
    let copied = transcode(input, Resp3, &mut same, limits);
    let mut resp2 = b"kept".to_vec();
    assert_eq!(transcode(input, Resp2, &mut resp2, limits), copied);
    if copied.is_err() {
        assert_eq!((&same[..], &resp2[..]), (&b"kept"[..], &b"kept"[..]));
        // The reader may know more types, but never fewer.
        let more = |byte: &u8| matches!(byte, b'>' | b'|' | b'!');
        assert!(read.is_err() || input.iter().any(more));
        return;
    }
    assert_eq!(&same[4..], input);
    let value = read.expect("what may be sent can be read");
    let resp2 = &resp2[4..];
    let flat =
        Value::parse(resp2, ReplyLimits { max_bytes: usize::MAX, ..limits }).expect("RESP2 can be read");
    assert!(says_the_same(&value, &flat), "{value:?} became {flat:?}");
    let mut again = Vec::new();
    transcode(resp2, Resp2, &mut again, ReplyLimits { max_bytes: usize::MAX, ..limits })
        .expect("RESP2 may be sent");
    assert_eq!(again, resp2);
});
