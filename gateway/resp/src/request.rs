//! Requests of clients, cut out of a connection's input buffer where they stand.
//!
//! The parser copies nothing and allocates nothing by what a client announces: it keeps the ranges of the
//! arguments that have arrived whole, eight bytes for at least six received. What it accepts, refuses and
//! skips was compared with redis-server 7.0.15, down to the two bytes behind a bulk string, which Redis does
//! not look at.
//!
//! Two deviations, both so that an answer does not depend on how the network cut the bytes: a line longer
//! than `max_inline_bytes` is refused also when it arrives in one piece, and a NUL byte does not hide the end
//! of its line.

use std::fmt;
use std::ops::Range;

use memchr::memchr;
use smallvec::SmallVec;
use store_engine::number;

use crate::inline;
use crate::scan::short_number;

/// The arguments of a request as slices. Calls of up to sixteen need no allocation.
pub type Slices<'a> = SmallVec<[&'a [u8]; 16]>;

/// What a client that has not yet authenticated may announce: enough for HELLO and AUTH, as in Redis.
const UNAUTHENTICATED_MAX_ARGS: u32 = 10;
const UNAUTHENTICATED_MAX_BULK_BYTES: u32 = 16 * 1024;

/// Lengths of up to seven digits are read before anyone asks how long their line is; so that many bytes must
/// be allowed, or the answer would depend on how they arrived.
const MIN_INLINE_BYTES: u32 = 16;

/// Ranges and unquoted text kept from one request to the next. A single huge request must not make its
/// connection expensive for the rest of its life.
const KEPT_RANGES: usize = 1024;
const KEPT_TEXT_BYTES: usize = 16 * 1024;

/// How much a client may send. Nothing is allocated by these numbers; they bound what a buffer can come to
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument: Redis' `proto-max-bulk-len`.
    pub max_bulk_bytes: u32,
    /// The most arguments of a request. Redis 7.0 allows all that fit its `int`; the request's size bounds
    /// them first.
    pub max_args: u32,
    /// The longest line: an inline command, or the text of a length. Never taken as less than 16.
    pub max_inline_bytes: u32,
    /// The longest request as a whole: Redis' `client-query-buffer-limit`.
    pub max_request_bytes: u32,
}

impl Default for Limits {
    /// The defaults of redis-server 7.0.
    fn default() -> Self {
        Limits {
            max_bulk_bytes: 512 << 20,
            max_args: i32::MAX as u32,
            max_inline_bytes: 64 << 10,
            max_request_bytes: 1 << 30,
        }
    }
}

/// What the client did wrong. The connection answers with [`ProtocolError::write_to`] and closes; the parser
/// must not be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// `*` was followed by something that is no number, or by more than `max_args`.
    InvalidMultibulkLength,
    /// More than ten arguments before authentication.
    UnauthenticatedMultibulkLength,
    /// `$` was followed by something that is no number, by a negative one, or by more than `max_bulk_bytes`.
    InvalidBulkLength,
    /// An argument of more than 16 KB before authentication.
    UnauthenticatedBulkLength,
    /// An argument that did not start with `$`.
    ExpectedBulk(u8),
    /// The line after `*` does not end.
    TooBigMultibulkCount,
    /// The line after `$` does not end.
    TooBigBulkCount,
    /// An inline command longer than `max_inline_bytes`.
    TooBigInline,
    /// An inline command whose quotes do not close.
    UnbalancedQuotes,
    /// A request longer than `max_request_bytes`. (Redis closes such a connection without a word.)
    TooBigRequest,
}

impl ProtocolError {
    /// Appends the error reply, as redis-server 7.0.15 spells it.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-ERR ");
        match *self {
            // The byte goes out raw, as no character set is known, but it must not end the line.
            ProtocolError::ExpectedBulk(byte) => {
                out.extend_from_slice(b"Protocol error: expected '$', got '");
                out.push(if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
                out.push(b'\'');
            }
            _ => out.extend_from_slice(self.to_string().as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedBulk(byte) => {
                return write!(f, "Protocol error: expected '$', got '{}'", byte.escape_ascii());
            }
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::TooBigRequest => "too big request",
        };
        write!(f, "Protocol error: {text}")
    }
}

impl std::error::Error for ProtocolError {}

/// What the buffer came to.
#[derive(Debug)]
pub enum Step<'p> {
    /// No whole request yet.
    Incomplete {
        /// Bytes at the front of the buffer that are done with (empty requests); drop them before asking
        /// again.
        consumed: usize,
        /// After that, the buffer must hold at least this many bytes before asking again can bring anything
        /// new. A hint for the size of the next read; it is what the client announced, so do not allocate it
        /// blindly.
        wanted: usize,
    },
    /// A request.
    Request(Request<'p>),
}

/// One request: where its arguments stand. There is always at least one.
#[derive(Debug)]
pub struct Request<'p> {
    /// Bytes at the front of the buffer that are done with once the arguments have been used.
    pub consumed: usize,
    start: usize,
    ranges: &'p [Range<u32>],
    text: Option<&'p [u8]>,
}

impl<'p> Request<'p> {
    /// The arguments, the command's name first. `buffer` is the one given to [`Parser::next`]. The vector is
    /// large, and moving it costs more than parsing did: where requests come in rows, use
    /// [`fill`](Self::fill).
    #[inline]
    pub fn slices<'a>(&self, buffer: &'a [u8]) -> Slices<'a>
    where
        'p: 'a,
    {
        let mut slices = Slices::new();
        cut(self.ranges, self.text.unwrap_or(&buffer[self.start..self.consumed]), &mut slices);
        slices
    }

    /// Writes the arguments over `slices`, which borrow only the buffer: so one vector (or one for each) can
    /// serve all requests of a pipeline while the parser goes on. False for the rare inline command with
    /// quotes, whose words stand in the parser; use [`slices`](Self::slices) there.
    #[inline]
    pub fn fill<'a>(&self, buffer: &'a [u8], slices: &mut Slices<'a>) -> bool {
        if self.text.is_none() {
            cut(self.ranges, &buffer[self.start..self.consumed], slices);
        }
        self.text.is_none()
    }
}

#[inline]
fn cut<'a>(ranges: &[Range<u32>], source: &'a [u8], slices: &mut Slices<'a>) {
    slices.clear();
    slices.extend(ranges.iter().map(|range| &source[range.start as usize..range.end as usize]));
}

/// Cuts a connection's input into requests.
///
/// ```
/// use resp::{Limits, Parser, Step};
/// let mut parser = Parser::new(Limits::default());
/// let buffer = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*1\r\n$";
/// let (mut at, mut seen) = (0, Vec::new());
/// while let Step::Request(request) = parser.next(&buffer[at..]).unwrap() {
///     seen.push(request.slices(&buffer[at..]).join(&b' '));
///     at += request.consumed;
/// }
/// assert_eq!(seen, [&b"GET k"[..], b"PING"]);
/// assert_eq!(&buffer[at..], b"*1\r\n$");
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    authenticated: bool,
    /// `limits`, made tighter for unauthenticated clients.
    max_args: u32,
    max_bulk_bytes: u32,
    /// Arguments of the current request that have not arrived whole; 0 between requests.
    missing: u32,
    /// The announced length of the argument that is arriving, once it is known.
    bulk: Option<u32>,
    /// Everything before this offset in the current request has been understood.
    at: usize,
    /// Everything before this offset is known to hold no end of the line that starts at `at`.
    scanned: usize,
    ranges: Vec<Range<u32>>,
    text: Vec<u8>,
}

impl Parser {
    /// A parser at the start of a connection that needs no authentication.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { max_inline_bytes: limits.max_inline_bytes.max(MIN_INLINE_BYTES), ..limits };
        let mut parser = Parser {
            limits,
            authenticated: true,
            max_args: 0,
            max_bulk_bytes: 0,
            missing: 0,
            bulk: None,
            at: 0,
            scanned: 0,
            ranges: Vec::new(),
            text: Vec::new(),
        };
        parser.set_authenticated(true);
        parser
    }

    /// Until the client has authenticated, requests of more than ten arguments or 16 KB each are refused.
    /// Takes effect with the next length that is read, also in requests that already stand in the buffer.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
        let (args, bulk) = if authenticated {
            (u32::MAX, u32::MAX)
        } else {
            (UNAUTHENTICATED_MAX_ARGS, UNAUTHENTICATED_MAX_BULK_BYTES)
        };
        self.max_args = self.limits.max_args.min(args);
        self.max_bulk_bytes = self.limits.max_bulk_bytes.min(bulk);
    }

    /// The first request of `buffer`. After [`Step::Incomplete`] call again with the same bytes (less the
    /// consumed ones) and more behind them: parsing goes on where it stopped. After [`Step::Request`] call
    /// with what follows it.
    #[inline]
    pub fn next<'p>(&'p mut self, buffer: &[u8]) -> Result<Step<'p>, ProtocolError> {
        let mut start = 0;
        loop {
            let request = &buffer[start..];
            if self.missing == 0 {
                match request.first() {
                    None => return Ok(Step::Incomplete { consumed: start, wanted: 1 }),
                    Some(b'*') => {
                        let Some(count) = self.announcement(request)? else {
                            return Ok(Step::Incomplete { consumed: start, wanted: request.len() + 1 });
                        };
                        if count == 0 {
                            start += self.finish();
                            continue;
                        }
                        self.missing = count;
                        self.recycle();
                    }
                    Some(_) => match self.inline(request)? {
                        None => return Ok(Step::Incomplete { consumed: start, wanted: request.len() + 1 }),
                        Some((len, _)) if self.ranges.is_empty() => {
                            start += len;
                            continue;
                        }
                        Some((len, quoted)) => {
                            let text = quoted.then_some(&self.text[..]);
                            return Ok(Step::Request(Request {
                                consumed: start + len,
                                start,
                                ranges: &self.ranges,
                                text,
                            }));
                        }
                    },
                }
            }
            if let Some(wanted) = self.bulks(request)? {
                return Ok(Step::Incomplete { consumed: start, wanted });
            }
            let consumed = start + self.finish();
            return Ok(Step::Request(Request { consumed, start, ranges: &self.ranges, text: None }));
        }
    }

    /// Between requests again: the length of the one that ended.
    #[inline]
    fn finish(&mut self) -> usize {
        self.scanned = 0;
        std::mem::take(&mut self.at)
    }

    /// Forgets the previous request, and gives back what it needed far beyond the usual.
    #[inline]
    fn recycle(&mut self) {
        self.ranges.clear();
        if self.ranges.capacity() > KEPT_RANGES {
            self.ranges.shrink_to(KEPT_RANGES);
        }
        self.text.clear();
        if self.text.capacity() > KEPT_TEXT_BYTES {
            self.text.shrink_to(KEPT_TEXT_BYTES);
        }
    }

    /// Reads `*<count>`, at the start of a request. None: the line has not arrived whole. 0: an empty
    /// request.
    #[inline]
    fn announcement(&mut self, request: &[u8]) -> Result<Option<u32>, ProtocolError> {
        match short_number(request) {
            Some((count, len)) if count <= self.max_args => {
                self.at = len;
                Ok(Some(count))
            }
            _ => self.long_announcement(request),
        }
    }

    #[cold]
    fn long_announcement(&mut self, request: &[u8]) -> Result<Option<u32>, ProtocolError> {
        let Some(end) = self.line_end(request, 0, b'\r', 2, ProtocolError::TooBigMultibulkCount)? else {
            return Ok(None);
        };
        let count = number::parse_i64(&request[1..end])
            .filter(|count| *count <= i64::from(self.limits.max_args))
            .ok_or(ProtocolError::InvalidMultibulkLength)?;
        if count > i64::from(self.max_args) {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.at = end + 2;
        Ok(Some(u32::try_from(count).unwrap_or(0)))
    }

    /// Reads the arguments that are missing. Some(n): the request needs at least n bytes.
    fn bulks(&mut self, request: &[u8]) -> Result<Option<usize>, ProtocolError> {
        // In locals for the sake of speed: behind `self` the vector's fields would be written back at every
        // push.
        let mut ranges = std::mem::take(&mut self.ranges);
        let (mut at, mut missing) = (self.at, self.missing);
        let mut bulk = self.bulk.take();
        let wanted = loop {
            let len = match bulk.take() {
                Some(len) => len,
                None => match short_number(&request[at..]) {
                    Some((len, header)) if request[at] == b'$' && len <= self.max_bulk_bytes => {
                        at += header;
                        len
                    }
                    _ => match self.long_bulk_length(request, at)? {
                        Some((len, body)) => {
                            at = body;
                            len
                        }
                        None => break Some(request.len() + 1),
                    },
                },
            };
            let end = at + len as usize;
            if end + 2 > self.limits.max_request_bytes as usize {
                return Err(ProtocolError::TooBigRequest);
            }
            if end + 2 > request.len() {
                bulk = Some(len);
                break Some(end + 2);
            }
            ranges.push(at as u32..end as u32);
            // As in Redis, the two bytes behind an argument are skipped unread.
            at = end + 2;
            missing -= 1;
            if missing == 0 {
                break None;
            }
        };
        (self.ranges, self.at, self.missing, self.bulk) = (ranges, at, missing, bulk);
        Ok(wanted)
    }

    /// Reads `$<length>` at `at` whenever it is not short, valid and there: its value, and where the argument
    /// starts.
    #[cold]
    fn long_bulk_length(&mut self, request: &[u8], at: usize) -> Result<Option<(u32, usize)>, ProtocolError> {
        let Some(end) = self.line_end(request, at, b'\r', 2, ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        if request[at] != b'$' {
            return Err(ProtocolError::ExpectedBulk(request[at]));
        }
        let len = number::parse_i64(&request[at + 1..end])
            .and_then(|len| u32::try_from(len).ok())
            .filter(|len| *len <= self.limits.max_bulk_bytes)
            .ok_or(ProtocolError::InvalidBulkLength)?;
        if len > self.max_bulk_bytes {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        Ok(Some((len, end + 2)))
    }

    /// Reads an inline command: its length with the line end, and whether its words stand in `text`.
    #[cold]
    fn inline(&mut self, request: &[u8]) -> Result<Option<(usize, bool)>, ProtocolError> {
        let Some(end) = self.line_end(request, 0, b'\n', 1, ProtocolError::TooBigInline)? else {
            return Ok(None);
        };
        self.scanned = 0;
        self.recycle();
        let line = &request[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let quoted = inline::split(line, &mut self.ranges, &mut self.text)
            .map_err(|inline::Unbalanced| ProtocolError::UnbalancedQuotes)?;
        Ok(Some((end + 1, quoted)))
    }

    /// Where the line that starts at `at` ends with `type_byte`, once all `len` bytes of the line end have
    /// arrived. Remembers how far it has looked, so that a line that arrives byte by byte is not read over
    /// and over.
    fn line_end(
        &mut self,
        request: &[u8],
        at: usize,
        type_byte: u8,
        len: usize,
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.scanned.max(at);
        let end = memchr(type_byte, &request[from..]).map(|found| from + found);
        self.scanned = end.unwrap_or(request.len());
        if self.scanned - at > self.limits.max_inline_bytes as usize {
            return Err(too_big);
        }
        Ok(end.filter(|end| end + len <= request.len()))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
