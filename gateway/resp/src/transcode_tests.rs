use super::*;

fn to(protocol: Protocol, reply: &[u8]) -> Result<Vec<u8>, ReplyError> {
    let mut out = b"before".to_vec();
    let done = transcode(reply, protocol, &mut out, ReplyLimits::default());
    if done.is_err() {
        assert_eq!(out, b"before");
    }
    done.map(|()| out[6..].to_vec())
}

#[test]
fn resp3_is_copied_and_resp2_is_downgraded() {
    for (reply, resp2) in [
        ("+OK\r\n", "+OK\r\n"),
        ("+\r\n", "+\r\n"),
        ("-ERR no\r\n", "-ERR no\r\n"),
        (":1\r\n", ":1\r\n"),
        (":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
        ("$0\r\n\r\n", "$0\r\n\r\n"),
        ("$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
        ("$-1\r\n", "$-1\r\n"),
        ("*-1\r\n", "*-1\r\n"),
        ("*0\r\n", "*0\r\n"),
        ("*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n"),
        ("_\r\n", "$-1\r\n"),
        ("#t\r\n", ":1\r\n"),
        ("#f\r\n", ":0\r\n"),
        (",1.5\r\n", "$3\r\n1.5\r\n"),
        (",-inf\r\n", "$4\r\n-inf\r\n"),
        ("(12345678901234567890\r\n", "$20\r\n12345678901234567890\r\n"),
        ("=8\r\ntxt:a\r\nb\r\n", "$4\r\na\r\nb\r\n"),
        ("=4\r\nmkd:\r\n", "$0\r\n\r\n"),
        ("%0\r\n", "*0\r\n"),
        (
            "%5\r\n+a\r\n:1\r\n+b\r\n:2\r\n+c\r\n:3\r\n+d\r\n:4\r\n+e\r\n:5\r\n",
            "*10\r\n+a\r\n:1\r\n+b\r\n:2\r\n+c\r\n:3\r\n+d\r\n:4\r\n+e\r\n:5\r\n",
        ),
        ("~2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (
            "*4\r\n:1\r\n%1\r\n+k\r\n~1\r\n,0.5\r\n_\r\n*1\r\n#t\r\n",
            "*4\r\n:1\r\n*2\r\n+k\r\n*1\r\n$3\r\n0.5\r\n$-1\r\n*1\r\n:1\r\n",
        ),
    ] {
        assert_eq!(to(Protocol::Resp3, reply.as_bytes()), Ok(reply.as_bytes().to_vec()));
        assert_eq!(to(Protocol::Resp2, reply.as_bytes()), Ok(resp2.as_bytes().to_vec()), "{reply:?}");
    }
}

#[test]
fn anything_else_is_refused() {
    use ReplyError::*;
    for (reply, error) in [
        ("", Truncated),
        ("+OK", Truncated),
        ("+OK\r", Truncated),
        ("+OK\n", LineEnd),
        ("+O\rK\r\n", LineEnd),
        ("-ERR\n:1\r\n", LineEnd),
        ("+OK\r\n+OK\r\n", TrailingBytes),
        ("+OK\r\n\n", TrailingBytes),
        ("*0\r\n\r\n", TrailingBytes),
        (":\r\n", Number),
        (":+1\r\n", Number),
        (":01\r\n", Number),
        (":1x\r\n", Number),
        (":1\rx", LineEnd),
        (":12\rx", LineEnd),
        (":9223372036854775808\r\n", Number),
        ("$3\r\nab\r\n", LineEnd),
        ("$1\r\nabc", LineEnd),
        ("$3\r\nabc", Truncated),
        ("$3\r\nabc\r", Truncated),
        ("$1\rxa\r\n", LineEnd),
        ("$-2\r\n", Length),
        ("$x\r\n", Length),
        ("$\r\n", Length),
        ("$9223372036854775807\r\n", Truncated),
        ("*-2\r\n", Length),
        ("*1\r\n", Truncated),
        ("*2\r\n:1\r\n", Truncated),
        ("*1000000000\r\n:1\r\n", Truncated),
        ("%9223372036854775807\r\n+a\r\n", Truncated),
        ("%1\r\n+a\r\n", Truncated),
        ("%-1\r\n", Length),
        ("~-1\r\n", Length),
        ("=-1\r\n", Length),
        ("=3\r\ntxt\r\n", Verbatim),
        ("=5\r\ntext:\r\n", Verbatim),
        ("_x\r\n", Null),
        ("_\r", Truncated),
        ("#x\r\n", Boolean),
        ("#t", Truncated),
        ("#t\r\r", Boolean),
        (",\r\n", Number),
        (",1,5\r\n", Number),
        (">1\r\n:1\r\n", UnknownType(b'>')),
        ("|1\r\n+a\r\n:1\r\n:2\r\n", UnknownType(b'|')),
        ("!3\r\nERR\r\n", UnknownType(b'!')),
        ("*?\r\n.\r\n", Length),
        ("*1\r\nx\r\n", UnknownType(b'x')),
        ("*3\r\n_\r\n%1\r\n+a\r\n,1\r\nx\r\n", UnknownType(b'x')),
        ("\r\n", UnknownType(b'\r')),
    ] {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(to(protocol, reply.as_bytes()), Err(error), "{reply:?}");
        }
    }
}

#[test]
fn depth_and_length_are_limited() {
    let nested =
        |depth: usize, type_byte: &str| format!("{}:1\r\n", format!("{type_byte}1\r\n").repeat(depth));
    for type_byte in ["*", "~"] {
        assert!(to(Protocol::Resp2, nested(256, type_byte).as_bytes()).is_ok());
        assert_eq!(to(Protocol::Resp2, nested(257, type_byte).as_bytes()), Err(ReplyError::TooDeep));
        assert_eq!(to(Protocol::Resp3, nested(100_000, type_byte).as_bytes()), Err(ReplyError::TooDeep));
    }
    let limits = ReplyLimits { max_depth: 0, max_bytes: 5 };
    let ask = |reply: &[u8]| transcode(reply, Protocol::Resp3, &mut Vec::new(), limits);
    assert_eq!(ask(b":10\r\n"), Ok(()));
    assert_eq!(ask(b":100\r\n"), Err(ReplyError::TooLong));
    assert_eq!(ask(b"*0\r\n"), Err(ReplyError::TooDeep));
}
