//! From a guest's reply to a client's: checked, then copied.
//!
//! The guest is not trusted: a byte of its reply that were not what it seems could forge a second reply, and
//! the client would from then on take every answer for another. So nothing reaches `out` unless all of it has
//! been understood.
//!
//! One pass does both. Stretches that need no change are copied whole, which is everything for a RESP3
//! client, and for a RESP2 client all but the types that it does not know. Since RESP2 flattens locally (a
//! map of n is an array of 2n, whatever stands inside), neither task needs a tree.

use smallvec::SmallVec;
use store_engine::{Protocol, number};

use crate::scan::{self, ReplyError, ReplyLimits, line_end, short_number};

/// The shortest element is `_\r\n` or `+\r\n`; this bounds how many can follow.
const SHORTEST_ELEMENT: usize = 3;

/// Checks that `reply` is exactly one reply (RESP3, or RESP2, whose nulls are allowed) and appends it to
/// `out` in the protocol `to`. After an error `out` is as it was.
///
/// ```
/// use resp::{ReplyLimits, transcode};
/// use store_engine::Protocol;
/// let mut out = Vec::new();
/// transcode(b"%1\r\n+pi\r\n,3.14\r\n", Protocol::Resp2, &mut out, ReplyLimits::default()).unwrap();
/// assert_eq!(out, b"*2\r\n+pi\r\n$4\r\n3.14\r\n");
/// ```
pub fn transcode(
    reply: &[u8],
    to: Protocol,
    out: &mut Vec<u8>,
    limits: ReplyLimits,
) -> Result<(), ReplyError> {
    if reply.len() > limits.max_bytes {
        return Err(ReplyError::TooLong);
    }
    let before = out.len();
    let copied = match to {
        Protocol::Resp3 => walk::<false>(reply, limits, out),
        Protocol::Resp2 => walk::<true>(reply, limits, out),
    };
    match copied {
        Ok(copied) => {
            out.extend_from_slice(&reply[copied..]);
            Ok(())
        }
        Err(error) => {
            out.truncate(before);
            Err(error)
        }
    }
}

/// Whether a guest's reply is an error, if it is a reply at all.
pub fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

/// Walks over the whole reply. With `RESP2`, writes what must change and all that stands before it; returns
/// up to where the reply has been written.
fn walk<const RESP2: bool>(
    reply: &[u8],
    limits: ReplyLimits,
    out: &mut Vec<u8>,
) -> Result<usize, ReplyError> {
    // For each aggregate around the present one, how many of its elements are still to come.
    let mut open: SmallVec<[usize; 32]> = SmallVec::new();
    let mut missing = 1;
    let mut at = 0;
    let mut copied = 0;
    loop {
        let start = at;
        let mut elements = None;
        match *reply.get(at).ok_or(ReplyError::Truncated)? {
            b':' => match short_number(&reply[at..]) {
                Some((_, len)) if reply[at + len - 1] == b'\n' => at += len,
                _ => {
                    let end = line_end(reply, at + 1)?;
                    number::parse_i64(&reply[at + 1..end]).ok_or(ReplyError::Number)?;
                    at = end + 2;
                }
            },
            b'$' => {
                if let (Some(len), body) = announced(reply, at)? {
                    at = bulk_end(reply, body, len)?;
                } else {
                    at += b"$-1\r\n".len();
                }
            }
            b'+' | b'-' => at = line_end(reply, at + 1)? + 2,
            b'*' => {
                if let (Some(len), body) = announced(reply, at)? {
                    elements = Some(len);
                    at = body;
                } else {
                    at += b"*-1\r\n".len();
                }
            }
            b'_' => {
                match reply.get(at + 1..at + 3) {
                    Some(b"\r\n") => at += 3,
                    Some(_) => return Err(ReplyError::Null),
                    None => return Err(ReplyError::Truncated),
                }
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    out.extend_from_slice(b"$-1\r\n");
                    copied = at;
                }
            }
            b'%' => {
                let (Some(pairs), body) = announced(reply, at)? else { return Err(ReplyError::Length) };
                let len = pairs.checked_mul(2).ok_or(ReplyError::Truncated)?;
                elements = Some(len);
                at = body;
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    push_header(out, b'*', len);
                    copied = at;
                }
            }
            b'~' => {
                let (Some(len), body) = announced(reply, at)? else { return Err(ReplyError::Length) };
                elements = Some(len);
                at = body;
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    out.push(b'*');
                    copied = start + 1;
                }
            }
            type_byte @ (b',' | b'(') => {
                let end = line_end(reply, at + 1)?;
                let text = &reply[at + 1..end];
                // Redis sends whatever a script calls a big number.
                if type_byte == b',' && !scan::is_double(text) {
                    return Err(ReplyError::Number);
                }
                at = end + 2;
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    push_header(out, b'$', text.len());
                    // The text and its line end are what a bulk string has there, too.
                    copied = start + 1;
                }
            }
            b'#' => {
                let one = match reply.get(at + 1..at + 4) {
                    Some(b"t\r\n") => b":1\r\n",
                    Some(b"f\r\n") => b":0\r\n",
                    Some(_) => return Err(ReplyError::Boolean),
                    None => return Err(ReplyError::Truncated),
                };
                at += 4;
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    out.extend_from_slice(one);
                    copied = at;
                }
            }
            b'=' => {
                let (Some(len), body) = announced(reply, at)? else { return Err(ReplyError::Length) };
                at = bulk_end(reply, body, len)?;
                if len < 4 || reply[body + 3] != b':' {
                    return Err(ReplyError::Verbatim);
                }
                if RESP2 {
                    out.extend_from_slice(&reply[copied..start]);
                    push_header(out, b'$', len - 4);
                    copied = body + 4;
                }
            }
            other => return Err(ReplyError::UnknownType(other)),
        }
        missing -= 1;
        if let Some(len) = elements {
            if open.len() >= limits.max_depth {
                return Err(ReplyError::TooDeep);
            }
            if len > (reply.len() - at) / SHORTEST_ELEMENT {
                return Err(ReplyError::Truncated);
            }
            open.push(missing);
            missing = len;
        }
        while missing == 0 {
            match open.pop() {
                Some(outer) => missing = outer,
                None if at == reply.len() => return Ok(copied),
                None => return Err(ReplyError::TrailingBytes),
            }
        }
    }
}

/// The length behind the mark at `at` (None for -1) and where its line ends.
#[inline]
fn announced(reply: &[u8], at: usize) -> Result<(Option<usize>, usize), ReplyError> {
    match short_number(&reply[at..]) {
        Some((value, len)) if reply[at + len - 1] == b'\n' => Ok((Some(value as usize), at + len)),
        _ => {
            let end = line_end(reply, at + 1)?;
            Ok((scan::length(&reply[at + 1..end])?, end + 2))
        }
    }
}

/// Where a bulk string of `len` bytes at `body` ends, its line end included.
#[inline]
fn bulk_end(reply: &[u8], body: usize, len: usize) -> Result<usize, ReplyError> {
    if len > reply.len() - body {
        return Err(ReplyError::Truncated);
    }
    match reply[body + len..] {
        [b'\r', b'\n', ..] => Ok(body + len + 2),
        [] | [b'\r'] => Err(ReplyError::Truncated),
        _ => Err(ReplyError::LineEnd),
    }
}

fn push_header(out: &mut Vec<u8>, type_byte: u8, len: usize) {
    out.push(type_byte);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "transcode_tests.rs"]
mod tests;
