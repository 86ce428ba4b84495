//! Replies as trees: for faces that speak another language than RESP, and for tests.
//!
//! On the road of a RESP client nothing is ever made into a tree; see [`transcode`](mod@crate::transcode).

use std::fmt;

use store_engine::{Protocol, number};

use crate::scan::{self, ReplyError, ReplyLimits, line_end};

/// One reply, in RESP2 or RESP3. Streamed types (`$?`, `*?`) are not read, as no server sends them.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// `+`
    Status(Vec<u8>),
    /// `-`, and `!` where the text may hold line ends.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `_` and `$-1`
    Null,
    /// `*-1`, which RESP2 has beside the null of strings.
    NullArray,
    /// `*`
    Array(Vec<Value>),
    /// `%`, in the order it came in
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`: its digits; of a script's reply any text without line ends
    BigNumber(Vec<u8>),
    /// `=`
    Verbatim {
        /// Three letters, such as `txt` or `mkd`.
        format: [u8; 3],
        /// The text without them.
        text: Vec<u8>,
    },
    /// `>`: not the answer to anything.
    Push(Vec<Value>),
    /// `|`: a value that something is said about.
    Attribute {
        /// What is said.
        attributes: Vec<(Value, Value)>,
        /// About this.
        value: Box<Value>,
    },
}

impl Value {
    /// Reads `bytes`, which must be one reply and nothing else.
    ///
    /// ```
    /// use resp::{ReplyLimits, Value};
    /// let value = Value::parse(b"*2\r\n:1\r\n$1\r\na\r\n", ReplyLimits::default()).unwrap();
    /// assert_eq!(value, Value::Array(vec![Value::Integer(1), Value::Bulk(b"a".to_vec())]));
    /// ```
    pub fn parse(bytes: &[u8], limits: ReplyLimits) -> Result<Value, ReplyError> {
        match Reader::new(limits).read(bytes)? {
            Progress::Incomplete { .. } => Err(ReplyError::Truncated),
            Progress::Done { consumed, .. } if consumed < bytes.len() => Err(ReplyError::TrailingBytes),
            Progress::Done { value, .. } => Ok(value),
        }
    }

    /// The text of a status, error, bulk or verbatim string.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Status(text) | Value::Error(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Some(text)
            }
            _ => None,
        }
    }

    /// Whether it is a null of any kind.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullArray)
    }

    /// Appends the value as RESP. In RESP2 the types it lacks become those that it has, and attributes are
    /// left out.
    pub fn write_to(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Value::Status(text) => line(out, b'+', text),
            // Only the bulk form of RESP3 can hold a line end.
            Value::Error(text) if resp3 && text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => {
                bulk(out, b'!', &[text]);
            }
            Value::Error(text) => line(out, b'-', text),
            Value::Integer(value) => line(out, b':', itoa::Buffer::new().format(*value).as_bytes()),
            Value::Bulk(text) => bulk(out, b'$', &[text]),
            Value::Null | Value::NullArray if resp3 => out.extend_from_slice(b"_\r\n"),
            Value::Null => out.extend_from_slice(b"$-1\r\n"),
            Value::NullArray => out.extend_from_slice(b"*-1\r\n"),
            Value::Array(items) => elements(out, b'*', items, protocol),
            Value::Set(items) => elements(out, if resp3 { b'~' } else { b'*' }, items, protocol),
            Value::Push(items) => elements(out, if resp3 { b'>' } else { b'*' }, items, protocol),
            Value::Map(items) if resp3 => pairs(out, b'%', items.len(), items, protocol),
            Value::Map(items) => pairs(out, b'*', 2 * items.len(), items, protocol),
            Value::Double(value) => {
                let mut text = Vec::new();
                number::push_f64(&mut text, *value);
                if resp3 { line(out, b',', &text) } else { bulk(out, b'$', &[&text]) }
            }
            Value::Boolean(value) if resp3 => {
                out.extend_from_slice(if *value { b"#t\r\n" } else { b"#f\r\n" })
            }
            Value::Boolean(value) => Value::Integer(i64::from(*value)).write_to(protocol, out),
            Value::BigNumber(digits) if resp3 => line(out, b'(', digits),
            Value::BigNumber(digits) => bulk(out, b'$', &[digits]),
            Value::Verbatim { format, text } if resp3 => bulk(out, b'=', &[format, b":", text]),
            Value::Verbatim { text, .. } => bulk(out, b'$', &[text]),
            Value::Attribute { attributes, value } => {
                if resp3 {
                    pairs(out, b'|', attributes.len(), attributes, protocol);
                }
                value.write_to(protocol, out);
            }
        }
    }
}

/// A line; CR and LF within become blanks, so that no text can forge a second reply.
fn line(out: &mut Vec<u8>, type_byte: u8, text: &[u8]) {
    out.push(type_byte);
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

fn header(out: &mut Vec<u8>, type_byte: u8, len: usize) {
    line(out, type_byte, itoa::Buffer::new().format(len).as_bytes());
}

fn bulk(out: &mut Vec<u8>, type_byte: u8, parts: &[&[u8]]) {
    header(out, type_byte, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn elements(out: &mut Vec<u8>, type_byte: u8, items: &[Value], protocol: Protocol) {
    header(out, type_byte, items.len());
    items.iter().for_each(|item| item.write_to(protocol, out));
}

fn pairs(out: &mut Vec<u8>, type_byte: u8, len: usize, items: &[(Value, Value)], protocol: Protocol) {
    header(out, type_byte, len);
    for (key, value) in items {
        key.write_to(protocol, out);
        value.write_to(protocol, out);
    }
}

/// As redis-cli would have a programmer read it: `["a", 1, {"k": nil}]`.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Status(text) => write!(f, "+{}", text.escape_ascii()),
            Value::Error(text) => write!(f, "-{}", text.escape_ascii()),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Bulk(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Value::Null => f.write_str("nil"),
            Value::NullArray => f.write_str("nil[]"),
            Value::Array(items) => f.debug_list().entries(items).finish(),
            Value::Map(items) => {
                f.debug_map().entries(items.iter().map(|(key, value)| (key, value))).finish()
            }
            Value::Set(items) => f.write_str("~").and_then(|()| f.debug_set().entries(items).finish()),
            Value::Double(value) => write!(f, "{value:?}"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::BigNumber(digits) => write!(f, "({}", digits.escape_ascii()),
            Value::Verbatim { format, text } => {
                write!(f, "{}:\"{}\"", format.escape_ascii(), text.escape_ascii())
            }
            Value::Push(items) => f.write_str(">").and_then(|()| f.debug_list().entries(items).finish()),
            Value::Attribute { attributes, value } => {
                f.write_str("|")?;
                f.debug_map().entries(attributes.iter().map(|(key, value)| (key, value))).finish()?;
                write!(f, " {value:?}")
            }
        }
    }
}

/// What a buffer came to.
#[derive(Debug, PartialEq)]
pub enum Progress {
    /// No whole reply yet.
    Incomplete {
        /// The buffer must hold at least this many bytes before asking again can bring anything new.
        wanted: usize,
    },
    /// A reply.
    Done {
        /// The reply.
        value: Value,
        /// Its length at the front of the buffer.
        consumed: usize,
    },
}

/// Reads replies from a buffer that grows. As with requests, nothing is allocated by announced sizes.
#[derive(Debug)]
pub struct Reader {
    limits: ReplyLimits,
    open: Vec<Open>,
    /// Everything before this offset has been read.
    at: usize,
    /// Everything before this offset is known to hold no end of the line that starts at `at`.
    scanned: usize,
}

/// An aggregate that is not complete.
#[derive(Debug)]
struct Open {
    type_byte: u8,
    missing: usize,
    items: Vec<Value>,
}

/// What one line (and the bytes it announces) came to.
enum Item {
    Value(Value),
    Open(Open),
    Wanted(usize),
}

impl Reader {
    /// A reader at the start of a reply.
    pub fn new(limits: ReplyLimits) -> Self {
        Reader { limits, open: Vec::new(), at: 0, scanned: 0 }
    }

    /// The first reply of `buffer`. After [`Progress::Incomplete`] call again with the same bytes and more
    /// behind them; reading goes on where it stopped. After [`Progress::Done`] call with what follows it,
    /// after an error not at all.
    pub fn read(&mut self, buffer: &[u8]) -> Result<Progress, ReplyError> {
        loop {
            let mut value = match self.item(buffer)? {
                Item::Value(value) => value,
                Item::Open(open) if open.missing == 0 => close(open),
                Item::Open(open) => {
                    self.open.push(open);
                    continue;
                }
                Item::Wanted(wanted) if wanted > self.limits.max_bytes => return Err(ReplyError::TooLong),
                Item::Wanted(wanted) => return Ok(Progress::Incomplete { wanted }),
            };
            loop {
                let Some(open) = self.open.last_mut() else {
                    self.scanned = 0;
                    return Ok(Progress::Done { value, consumed: std::mem::take(&mut self.at) });
                };
                open.items.push(value);
                open.missing -= 1;
                if open.missing > 0 {
                    break;
                }
                value = close(self.open.pop().expect("it was there a moment ago"));
            }
        }
    }

    /// Reads what stands at `at`: a whole value or the head of an aggregate.
    fn item(&mut self, buffer: &[u8]) -> Result<Item, ReplyError> {
        let Some(&type_byte) = buffer.get(self.at) else { return Ok(Item::Wanted(self.at + 1)) };
        // Refused before its line is there, so that rubbish is not waited for.
        if !b"+-:$*%~#,(=_>|!".contains(&type_byte) {
            return Err(ReplyError::UnknownType(type_byte));
        }
        let from = self.scanned.max(self.at + 1);
        let end = match line_end(buffer, from) {
            Ok(end) => end,
            Err(ReplyError::Truncated) => {
                // A CR at the very end is looked at again, with what follows it.
                self.scanned = buffer.len() - usize::from(buffer.ends_with(b"\r"));
                return Ok(Item::Wanted(buffer.len() + 1));
            }
            Err(error) => return Err(error),
        };
        let text = &buffer[self.at + 1..end];
        let body = end + 2;
        let mut next = body;
        let value = match type_byte {
            b'+' => Value::Status(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Integer(number::parse_i64(text).ok_or(ReplyError::Number)?),
            b',' => Value::Double(double(text)?),
            b'(' => Value::BigNumber(text.to_vec()),
            b'#' if text == b"t" => Value::Boolean(true),
            b'#' if text == b"f" => Value::Boolean(false),
            b'#' => return Err(ReplyError::Boolean),
            b'_' if text.is_empty() => Value::Null,
            b'_' => return Err(ReplyError::Null),
            _ => match (type_byte, scan::length(text)?) {
                (b'$', None) => Value::Null,
                (b'*', None) => Value::NullArray,
                (_, None) => return Err(ReplyError::Length),
                (b'$' | b'=' | b'!', Some(len)) => {
                    let wanted = body
                        .checked_add(len)
                        .and_then(|end| end.checked_add(2))
                        .ok_or(ReplyError::TooLong)?;
                    if wanted > buffer.len() {
                        // Only the head is read again when more has come.
                        return Ok(Item::Wanted(wanted));
                    }
                    if buffer[wanted - 2..wanted] != *b"\r\n" {
                        return Err(ReplyError::LineEnd);
                    }
                    next = wanted;
                    string(type_byte, &buffer[body..wanted - 2])?
                }
                (_, Some(len)) => {
                    if self.open.len() >= self.limits.max_depth {
                        return Err(ReplyError::TooDeep);
                    }
                    let missing = match type_byte {
                        b'%' => len.checked_mul(2),
                        // The value that the attributes belong to comes behind them.
                        b'|' => len.checked_mul(2).and_then(|len| len.checked_add(1)),
                        _ => Some(len),
                    };
                    let missing = missing.ok_or(ReplyError::TooLong)?;
                    self.advance(body)?;
                    return Ok(Item::Open(Open { type_byte, missing, items: Vec::new() }));
                }
            },
        };
        self.advance(next)?;
        Ok(Item::Value(value))
    }

    fn advance(&mut self, to: usize) -> Result<(), ReplyError> {
        if to > self.limits.max_bytes {
            return Err(ReplyError::TooLong);
        }
        self.at = to;
        Ok(())
    }
}

fn string(type_byte: u8, text: &[u8]) -> Result<Value, ReplyError> {
    Ok(match type_byte {
        b'$' => Value::Bulk(text.to_vec()),
        b'!' => Value::Error(text.to_vec()),
        _ => match text {
            [a, b, c, b':', text @ ..] => Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() },
            _ => return Err(ReplyError::Verbatim),
        },
    })
}

fn double(text: &[u8]) -> Result<f64, ReplyError> {
    let text = std::str::from_utf8(text).ok().filter(|text| scan::is_double(text.as_bytes()));
    text.and_then(|text| text.parse().ok()).ok_or(ReplyError::Number)
}

fn close(open: Open) -> Value {
    let Open { type_byte, mut items, .. } = open;
    match type_byte {
        b'*' => Value::Array(items),
        b'~' => Value::Set(items),
        b'>' => Value::Push(items),
        b'%' => Value::Map(paired(items)),
        _ => {
            let value = Box::new(items.pop().expect("an attribute is complete with the value behind it"));
            Value::Attribute { attributes: paired(items), value }
        }
    }
}

fn paired(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut items = items.into_iter();
    std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect()
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
