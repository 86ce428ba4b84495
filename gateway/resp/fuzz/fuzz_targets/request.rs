//! Requests: whatever the bytes, the parser does not panic, does not keep more than it was given, and
//! understands the same however the network cuts them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::{Limits, Parser, ProtocolError, Step};

#[derive(Debug, PartialEq)]
struct Outcome {
    calls: Vec<Vec<Vec<u8>>>,
    rest: Vec<u8>,
    error: Option<ProtocolError>,
}

fn converse(limits: Limits, authenticated: bool, input: &[u8], mut piece: impl FnMut() -> usize) -> Outcome {
    let mut parser = Parser::new(limits);
    parser.set_authenticated(authenticated);
    let (mut calls, mut rest, mut fed) = (Vec::new(), Vec::new(), 0);
    while fed < input.len() {
        let cut = (fed + piece().max(1)).min(input.len());
        rest.extend_from_slice(&input[fed..cut]);
        fed = cut;
        loop {
            let consumed = match parser.next(&rest) {
                Ok(Step::Request(request)) => {
                    let slices = request.slices(&rest);
                    assert!(!slices.is_empty());
                    assert!(slices.iter().map(|arg| arg.len()).sum::<usize>() <= request.consumed);
                    calls.push(slices.iter().map(|arg| arg.to_vec()).collect());
                    request.consumed
                }
                Ok(Step::Incomplete { consumed, wanted }) => {
                    assert!(wanted > rest.len() - consumed);
                    rest.drain(..consumed);
                    break;
                }
                Err(error) => {
                    let mut out = Vec::new();
                    error.write_to(&mut out);
                    assert_eq!(out.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count(), 2);
                    return Outcome { calls, rest: Vec::new(), error: Some(error) };
                }
            };
            rest.drain(..consumed);
        }
    }
    Outcome { calls, rest, error: None }
}

fuzz_target!(|data: &[u8]| {
    let [seed, small, input @ ..] = data else { return };
    let limits = if small & 1 == 1 {
        Limits { max_bulk_bytes: 20, max_args: 5, max_inline_bytes: 24, max_request_bytes: 60 }
    } else {
        Limits::default()
    };
    let authenticated = small & 2 == 2;
    let whole = converse(limits, authenticated, input, || usize::MAX >> 1);
    assert_eq!(converse(limits, authenticated, input, || 1), whole);
    let mut state = u32::from(*seed) | 1;
    let pieces = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 28) as usize
    };
    assert_eq!(converse(limits, authenticated, input, pieces), whole);
    // A multibulk request means what it says: written again, it is read again.
    for call in whole.calls {
        let mut again = format!("*{}\r\n", call.len()).into_bytes();
        for arg in &call {
            again.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            again.extend_from_slice(arg);
            again.extend_from_slice(b"\r\n");
        }
        let outcome = converse(Limits::default(), true, &again, || usize::MAX >> 1);
        assert_eq!(outcome, Outcome { calls: vec![call], rest: Vec::new(), error: None });
    }
});
