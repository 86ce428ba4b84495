use proptest::prelude::*;

use super::*;

type Call = Vec<Vec<u8>>;

/// What a whole conversation comes to: its requests, what follows them unread, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Outcome {
    calls: Vec<Call>,
    error: Option<ProtocolError>,
}

/// Feeds `input` as a connection does, in pieces that end at `cuts`.
fn converse(parser: &mut Parser, input: &[u8], cuts: &[usize]) -> Outcome {
    let mut calls = Vec::new();
    let mut buffer = Vec::new();
    let mut fed = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        buffer.extend_from_slice(&input[fed..cut]);
        fed = cut;
        loop {
            match parser.next(&buffer) {
                Ok(Step::Request(request)) => {
                    let slices = request.slices(&buffer);
                    let mut same = Slices::new();
                    if request.fill(&buffer, &mut same) {
                        assert_eq!(slices, same);
                    }
                    assert!(!slices.is_empty());
                    calls.push(slices.iter().map(|arg| arg.to_vec()).collect());
                    drop((slices, same));
                    let consumed = request.consumed;
                    buffer.drain(..consumed);
                }
                Ok(Step::Incomplete { consumed, wanted }) => {
                    buffer.drain(..consumed);
                    assert!(wanted > buffer.len(), "a whole request would have been given");
                    break;
                }
                Err(error) => return Outcome { calls, error: Some(error) },
            }
        }
    }
    Outcome { calls, error: None }
}

fn ask(input: &[u8]) -> Outcome {
    ask_with(Parser::new(Limits::default()), input)
}

/// Asks in one piece and byte by byte; both must agree.
fn ask_with(mut parser: Parser, input: &[u8]) -> Outcome {
    let (limits, authenticated) = (parser.limits, parser.authenticated);
    let whole = converse(&mut parser, input, &[]);
    let mut parser = Parser::new(limits);
    parser.set_authenticated(authenticated);
    let cuts: Vec<usize> = (0..input.len()).collect();
    assert_eq!(converse(&mut parser, input, &cuts), whole);
    whole
}

fn reply_to(input: &[u8]) -> String {
    let mut out = Vec::new();
    ask(input).error.expect("an error").write_to(&mut out);
    out.escape_ascii().to_string()
}

fn call(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn encode(call: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", call.len()).as_bytes());
    for arg in call {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// The answers were recorded from redis-server 7.0.15.
#[test]
fn errors_have_the_texts_of_redis() {
    let invalid_count = "-ERR Protocol error: invalid multibulk length\\r\\n";
    let invalid_bulk = "-ERR Protocol error: invalid bulk length\\r\\n";
    for (input, wanted) in [
        (&b"*x\r\n"[..], invalid_count),
        (b"*01\r\n", invalid_count),
        (b"*+1\r\n", invalid_count),
        (b"*-0\r\n", invalid_count),
        (b"*\r\n", invalid_count),
        (b"*- 1\r\n", invalid_count),
        (b"*2147483648\r\n", invalid_count),
        (b"*99999999999999999999\r\n", invalid_count),
        (b"*-99999999999999999999\r\n", invalid_count),
        (b"*1\n$4\nPING\n\r\n", invalid_count),
        (b"*1\r\n$x\r\n", invalid_bulk),
        (b"*1\r\n$-1\r\n", invalid_bulk),
        (b"*1\r\n$\r\n", invalid_bulk),
        (b"*1\r\n$04\r\n", invalid_bulk),
        (b"*1\r\n$536870913\r\n", invalid_bulk),
        (b"*1\r\nx\r\n", "-ERR Protocol error: expected \\'$\\', got \\'x\\'\\r\\n"),
        (b"*1\r\n:4\r\n", "-ERR Protocol error: expected \\'$\\', got \\':\\'\\r\\n"),
        (b"*1\r\n\r\n", "-ERR Protocol error: expected \\'$\\', got \\' \\'\\r\\n"),
        (b"*1\r\n\n\r\n", "-ERR Protocol error: expected \\'$\\', got \\' \\'\\r\\n"),
        (b"*1\r\n\xff\r\n", "-ERR Protocol error: expected \\'$\\', got \\'\\xff\\'\\r\\n"),
        (b"ECHO \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\\r\\n"),
    ] {
        assert_eq!(reply_to(input), wanted, "{}", input.escape_ascii());
    }
}

#[test]
fn a_line_ends_within_64_kb() {
    let long = |start: &[u8], len: usize| [start, &vec![b'1'; len - start.len()]].concat();
    for (start, error) in [
        (&b"*"[..], ProtocolError::TooBigMultibulkCount),
        (b"$", ProtocolError::TooBigBulkCount),
        (b"x", ProtocolError::TooBigBulkCount),
        (b"a", ProtocolError::TooBigInline),
    ] {
        let before: &[u8] = if error == ProtocolError::TooBigBulkCount { b"*1\r\n" } else { b"" };
        let fits = [before, &long(start, 65536)].concat();
        assert_eq!(ask(&fits).error, None);
        let too_long = [before, &long(start, 65537)].concat();
        assert_eq!(ask(&too_long).error, Some(error));
        assert_eq!(ask(&[&too_long[..], b"\r\n"].concat()).error, Some(error));
    }
    let mut out = Vec::new();
    ProtocolError::TooBigMultibulkCount.write_to(&mut out);
    ProtocolError::TooBigBulkCount.write_to(&mut out);
    ProtocolError::TooBigInline.write_to(&mut out);
    assert_eq!(
        out,
        b"-ERR Protocol error: too big mbulk count string\r\n\
          -ERR Protocol error: too big bulk count string\r\n\
          -ERR Protocol error: too big inline request\r\n"
    );
}

#[test]
fn before_authentication_little_is_accepted() {
    for (input, error) in [
        (&b"*10\r\n"[..], None),
        (b"*11\r\n", Some(ProtocolError::UnauthenticatedMultibulkLength)),
        (b"*2147483648\r\n", Some(ProtocolError::InvalidMultibulkLength)),
        (b"*1\r\n$16384\r\n", None),
        (b"*1\r\n$16385\r\n", Some(ProtocolError::UnauthenticatedBulkLength)),
        (b"*1\r\n$536870913\r\n", Some(ProtocolError::InvalidBulkLength)),
        (b"*1\r\n$4\r\nPING\r\n*11\r\n", Some(ProtocolError::UnauthenticatedMultibulkLength)),
    ] {
        let mut parser = Parser::new(Limits::default());
        parser.set_authenticated(false);
        assert_eq!(ask_with(parser, input).error, error, "{}", input.escape_ascii());
    }
    let mut parser = Parser::new(Limits::default());
    parser.set_authenticated(false);
    parser.set_authenticated(true);
    assert_eq!(ask_with(parser, b"*11\r\n$16385\r\n").error, None);
}

#[test]
fn empty_requests_are_skipped() {
    let ping = "*1\r\n$4\r\nPING\r\n";
    for empty in [
        "",
        "\r\n",
        "\n",
        "   \r\n",
        "\t\x0b\x0c\r\n",
        "\r\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*-5\r\n",
        "*0\r\n\n*-1\r\n",
    ] {
        let outcome = ask(format!("{empty}{ping}{empty}{ping}{empty}").as_bytes());
        assert_eq!(outcome, Outcome { calls: vec![call(&["PING"]); 2], error: None }, "{empty:?}");
    }
}

#[test]
fn an_endless_row_of_empty_requests_is_not_kept() {
    let mut parser = Parser::new(Limits::default());
    let Ok(Step::Incomplete { consumed, wanted }) = parser.next(b"\r\n*0\r\n*-1\r\n\n*1") else { panic!() };
    assert_eq!((consumed, wanted), (12, 3));
}

#[test]
fn line_ends_are_read_as_redis_reads_them() {
    let twice = Outcome { calls: vec![call(&["PING"]); 2], error: None };
    assert_eq!(ask(b"*1\r\n$4\r\nPINGxy*1\r\n$4\r\nPING\r\n"), twice);
    assert_eq!(ask(b"*1\rx$4\rxPINGxyPING\n"), twice);
    assert_eq!(ask(b"*1\n$4\nPING\n"), Outcome { calls: vec![], error: None });
}

#[test]
fn inline_commands() {
    for (line, wanted) in [
        (&b"PING\n"[..], vec![&b"PING"[..]]),
        (b"set  k v\r\n", vec![b"set", b"k", b"v"]),
        (b" *1\r\n", vec![b"*1"]),
        (b"set 'a b' \"\\x00\\n\"\r\n", vec![b"set", b"a b", b"\0\n"]),
        (b"ECHO a\0b\r\n", vec![b"ECHO", b"a\0b"]),
        (b"\"\"\r\n", vec![b""]),
    ] {
        assert_eq!(ask(line).calls, [wanted], "{}", line.escape_ascii());
    }
}

#[test]
fn a_request_as_a_whole_is_bounded() {
    let limits = Limits { max_request_bytes: 40, ..Limits::default() };
    let ask = |input: &str| ask_with(Parser::new(limits), input.as_bytes());
    assert_eq!(ask("*1\r\n$29\r\n").error, None);
    assert_eq!(ask("*1\r\n$30\r\n").error, Some(ProtocolError::TooBigRequest));
    assert_eq!(ask(&format!("*100\r\n{}", "$0\r\n\r\n".repeat(6))).error, Some(ProtocolError::TooBigRequest));
    // The bytes of earlier requests do not count.
    assert_eq!(ask(&"*2\r\n$3\r\nGET\r\n$10\r\n0123456789\r\n".repeat(9)).calls.len(), 9);
}

#[test]
fn own_limits() {
    let limits = Limits { max_args: 2, max_bulk_bytes: 5, max_inline_bytes: 3, ..Limits::default() };
    let ask = |input: &str| ask_with(Parser::new(limits), input.as_bytes()).error;
    assert_eq!(ask("*2\r\n$5\r\nabcde\r\n"), None);
    assert_eq!(ask("*3\r\n"), Some(ProtocolError::InvalidMultibulkLength));
    assert_eq!(ask("*2\r\n$6\r\n"), Some(ProtocolError::InvalidBulkLength));
    assert_eq!(ask("PING 12345678901\n"), None);
    assert_eq!(ask("PING 123456789012\n"), Some(ProtocolError::TooBigInline));
}

#[test]
fn announced_sizes_allocate_nothing() {
    let mut parser = Parser::new(Limits::default());
    let Ok(Step::Incomplete { wanted, .. }) = parser.next(b"*2147483647\r\n$1\r\nx\r\n$536870912\r\n") else {
        panic!()
    };
    assert_eq!(wanted, 32 + 536870912 + 2);
    assert!(parser.ranges.capacity() < 10);
}

#[test]
fn a_huge_request_is_forgotten() {
    let mut parser = Parser::new(Limits::default());
    let mut huge = Vec::new();
    encode(&vec![b"x".to_vec(); 100_000], &mut huge);
    assert_eq!(converse(&mut parser, &huge, &[]).calls[0].len(), 100_000);
    converse(&mut parser, b"*1\r\n$4\r\nPING\r\n", &[]);
    assert!(parser.ranges.capacity() <= KEPT_RANGES);
}

/// Any calls, and cuts anywhere in their bytes.
fn cut_up(bytes: Vec<u8>) -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let cuts = proptest::collection::vec(0..=bytes.len(), 0..12).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    });
    (Just(bytes), cuts)
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"*1\r\n".to_vec()),
        Just(b"*2\r\n$3\r\n".to_vec()),
        Just(b"$3\r\n".to_vec()),
        Just(b"*0\r\n".to_vec()),
        Just(b"\"a\\x0".to_vec()),
        Just(b"12345678901".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn whatever_is_encoded_comes_out_however_it_is_cut(
        (calls, (bytes, cuts)) in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..20), 0..6,
        ).prop_flat_map(|calls| {
            let mut bytes = Vec::new();
            calls.iter().for_each(|call| encode(call, &mut bytes));
            (Just(calls), cut_up(bytes))
        })
    ) {
        let outcome = converse(&mut Parser::new(Limits::default()), &bytes, &cuts);
        prop_assert_eq!(outcome, Outcome { calls, error: None });
    }

    #[test]
    fn rubbish_means_the_same_however_it_is_cut((bytes, cuts) in pieces().prop_flat_map(cut_up)) {
        let limits = Limits { max_inline_bytes: 20, max_request_bytes: 100, ..Limits::default() };
        let whole = converse(&mut Parser::new(limits), &bytes, &[]);
        prop_assert_eq!(converse(&mut Parser::new(limits), &bytes, &cuts), whole);
    }
}
