use proptest::prelude::*;

use super::*;
use crate::transcode;

fn parse(bytes: &[u8]) -> Result<Value, ReplyError> {
    Value::parse(bytes, ReplyLimits::default())
}

fn write(value: &Value, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    value.write_to(protocol, &mut out);
    out
}

/// What a RESP2 client can know of a value.
fn downgraded(value: &Value) -> Value {
    let all = |items: &[Value]| items.iter().map(downgraded).collect();
    match value {
        Value::Set(items) | Value::Array(items) | Value::Push(items) => Value::Array(all(items)),
        Value::Map(items) => {
            Value::Array(items.iter().flat_map(|(key, value)| [downgraded(key), downgraded(value)]).collect())
        }
        Value::Double(value) => {
            let mut text = Vec::new();
            number::push_f64(&mut text, *value);
            Value::Bulk(text)
        }
        Value::Boolean(value) => Value::Integer(i64::from(*value)),
        Value::BigNumber(text) | Value::Verbatim { text, .. } => Value::Bulk(text.clone()),
        Value::Attribute { value, .. } => downgraded(value),
        other => other.clone(),
    }
}

#[test]
fn every_type_as_a_programmer_reads_it() {
    for (bytes, shown) in [
        (&b"+OK\r\n"[..], "+OK"),
        (b"-ERR no\r\n", "-ERR no"),
        (b"!7\r\nERR\r\nno\r\n", "-ERR\\r\\nno"),
        (b":-5\r\n", "-5"),
        (b"$3\r\na\r\n\r\n", "\"a\\r\\n\""),
        (b"$-1\r\n", "nil"),
        (b"_\r\n", "nil"),
        (b"*-1\r\n", "nil[]"),
        (b"*0\r\n", "[]"),
        (b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "[1, [\"a\"]]"),
        (b"%2\r\n+a\r\n:1\r\n+b\r\n_\r\n", "{+a: 1, +b: nil}"),
        (b"~2\r\n:1\r\n:2\r\n", "~{1, 2}"),
        (b",1.5\r\n", "1.5"),
        (b",-inf\r\n", "-inf"),
        (b",nan\r\n", "NaN"),
        (b"#t\r\n", "true"),
        (b"(12345678901234567890\r\n", "(12345678901234567890"),
        (b"=6\r\nmkd:hi\r\n", "mkd:\"hi\""),
        (b">2\r\n+message\r\n$1\r\nx\r\n", ">[+message, \"x\"]"),
        (b"|1\r\n+ttl\r\n:5\r\n*1\r\n|0\r\n:1\r\n", "|{+ttl: 5} [|{} 1]"),
    ] {
        let value = parse(bytes).unwrap();
        assert_eq!(format!("{value:?}"), shown);
        let again = write(&value, Protocol::Resp3);
        assert_eq!(format!("{:?}", parse(&again).unwrap()), shown.replace("nil[]", "nil"));
        let resp2 = write(&value, Protocol::Resp2);
        assert!(transcode(&resp2, Protocol::Resp2, &mut Vec::new(), ReplyLimits::default()).is_ok());
    }
}

#[test]
fn anything_else_is_refused() {
    use ReplyError::*;
    for (bytes, error) in [
        (&b""[..], Truncated),
        (b"*1\r\n", Truncated),
        (b"|1\r\n+a\r\n:1\r\n", Truncated),
        (b"$5\r\nabc\r\n", Truncated),
        (b":1\r\n:2\r\n", TrailingBytes),
        (b"x", UnknownType(b'x')),
        (b"+a\rb\r\n", LineEnd),
        (b"$1\r\nabc", LineEnd),
        (b"*x\r\n", Length),
        (b">-1\r\n", Length),
        (b":x\r\n", Number),
        (b",x\r\n", Number),
        (b"#x\r\n", Boolean),
        (b"_x\r\n", Null),
        (b"=3\r\ntxt\r\n", Verbatim),
        (b"$9223372036854775807\r\n", TooLong),
        (b"%9223372036854775807\r\n", Truncated),
        (b"|9223372036854775807\r\n", Truncated),
    ] {
        assert_eq!(parse(bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn depth_and_length_are_limited() {
    for type_byte in ["*1\r\n", "|0\r\n", "%1\r\n+a\r\n"] {
        assert!(parse(format!("{}:1\r\n", type_byte.repeat(256)).as_bytes()).is_ok());
        assert_eq!(parse(format!("{}:1\r\n", type_byte.repeat(257)).as_bytes()), Err(ReplyError::TooDeep));
    }
    let limits = ReplyLimits { max_bytes: 8, ..ReplyLimits::default() };
    let mut reader = Reader::new(limits);
    assert_eq!(reader.read(b"$2\r\n"), Ok(Progress::Incomplete { wanted: 8 }));
    assert_eq!(Reader::new(limits).read(b"$3\r\n"), Err(ReplyError::TooLong));
    assert_eq!(Reader::new(limits).read(b"+1234567"), Err(ReplyError::TooLong));
    for long in ["*2\r\n:1\r\n:2\r\n", "*2\r\n*0\r\n*0\r\n", "*2\r\n*0\r\n*0"] {
        assert_eq!(Reader::new(limits).read(long.as_bytes()), Err(ReplyError::TooLong), "{long:?}");
    }
}

#[test]
fn replies_follow_each_other() {
    let mut buffer = b"+a\r\n*1\r\n:1\r\n+c".to_vec();
    let mut reader = Reader::new(ReplyLimits::default());
    let mut seen = Vec::new();
    while let Ok(Progress::Done { value, consumed }) = reader.read(&buffer) {
        seen.push(format!("{value:?}"));
        buffer.drain(..consumed);
    }
    assert_eq!(seen, ["+a", "[1]"]);
    assert_eq!(buffer, b"+c");
}

/// Any value that a guest may send.
fn values() -> impl Strategy<Value = Value> {
    let line = "[^\r\n]{0,40}".prop_map(String::into_bytes);
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![
        line.clone().prop_map(Value::Status),
        line.prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        (0..10i64).prop_map(Value::Integer),
        bytes.clone().prop_map(Value::Bulk),
        Just(Value::Null),
        proptest::num::f64::NORMAL.prop_map(Value::Double),
        Just(Value::Double(f64::NEG_INFINITY)),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,30}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        bytes.prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Set),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        value in values(),
        cuts in proptest::collection::vec(any::<u16>(), 0..6),
    ) {
        let bytes = write(&value, Protocol::Resp3);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % bytes.len()).collect();
        cuts.sort_unstable();
        let mut reader = Reader::new(ReplyLimits::default());
        for cut in cuts {
            let progress = reader.read(&bytes[..cut]).unwrap();
            let Progress::Incomplete { wanted } = progress else { panic!("{progress:?} after {cut} bytes") };
            prop_assert!(cut < wanted && wanted <= bytes.len());
        }
        prop_assert_eq!(reader.read(&bytes), Ok(Progress::Done { value, consumed: bytes.len() }));
    }

    #[test]
    fn transcoding_keeps_what_the_protocol_can_say(value in values()) {
        let bytes = write(&value, Protocol::Resp3);
        let mut out = Vec::new();
        transcode(&bytes, Protocol::Resp3, &mut out, ReplyLimits::default()).unwrap();
        prop_assert_eq!(&out, &bytes);

        out.clear();
        transcode(&bytes, Protocol::Resp2, &mut out, ReplyLimits::default()).unwrap();
        prop_assert_eq!(parse(&out), Ok(downgraded(&value)));
        prop_assert_eq!(&out, &write(&value, Protocol::Resp2));

        // What is RESP2 already stays as it is.
        let mut again = Vec::new();
        transcode(&out, Protocol::Resp2, &mut again, ReplyLimits::default()).unwrap();
        prop_assert_eq!(again, out);
    }

    #[test]
    fn damaged_replies_are_judged_alike(
        value in values(),
        at in any::<u16>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = write(&value, Protocol::Resp3);
        let at = usize::from(at) % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let mut out = Vec::new();
        let accepted = transcode(&bytes, Protocol::Resp3, &mut out, ReplyLimits::default()).is_ok();
        // The guest may send less than the reader knows.
        let knows_more = bytes.iter().any(|byte| matches!(byte, b'>' | b'|' | b'!'));
        prop_assert!(accepted == parse(&bytes).is_ok() || knows_more);
    }
}
