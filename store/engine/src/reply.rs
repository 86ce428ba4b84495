//! Every answer, written once as RESP bytes.
//!
//! A command writes its reply straight into the buffer of whoever asked: a connection's output, or the buffer a
//! guest reads. RESP is the form both ends need anyway, so nothing is built as a tree and encoded again; faces
//! that speak another language (HTTP, gRPC) parse these bytes.

use crate::steps::CancelFlag;
use crate::{CommandError, Work, number};

/// The client's protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2: maps and sets are flat arrays, floats are strings.
    Resp2,
    /// RESP3.
    Resp3,
}

/// The reply of a container's HELP: the lines of its row, between those that all have.
pub fn help(out: &mut Reply, container: &str, lines: &str) {
    let first = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let all = [&*first].into_iter().chain(lines.lines()).chain(["HELP", "    Prints this help."]);
    out.array(all.clone().count());
    all.for_each(|line| out.status(line));
}

/// Room that the mark, length and line ends of an element take at most.
const HEADER_BYTES: usize = 24;

/// A growing reply. Aggregates are announced with their length; the caller then writes that many elements.
pub struct Reply {
    /// The bytes so far.
    pub buf: Vec<u8>,
    /// Which protocol they are in.
    pub protocol: Protocol,
    /// Most bytes that `buf` may hold. What would exceed it is left out, and [`Reply::is_over_limit`] from then on.
    limit: usize,
    is_over_limit: bool,
    /// Where the latest error begins.
    error_at: Option<usize>,
    /// Steps that the calls which wrote it have taken.
    pub steps: u64,
    /// Raised when nobody wants it any more.
    pub cancel: Option<CancelFlag>,
    /// [`Work::memory_limit`] of the calls that write it.
    pub memory_limit: usize,
}

impl Reply {
    /// An empty reply.
    pub fn new(protocol: Protocol) -> Self {
        Reply::append_to(Vec::new(), protocol)
    }

    /// A reply behind what is in `buf` already.
    pub fn append_to(buf: Vec<u8>, protocol: Protocol) -> Self {
        Reply {
            buf,
            protocol,
            limit: usize::MAX,
            is_over_limit: false,
            error_at: None,
            steps: 0,
            cancel: None,
            memory_limit: usize::MAX,
        }
    }

    /// From now on no more than `bytes` may come to what is there.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = self.buf.len().saturating_add(bytes);
        self.is_over_limit = false;
    }

    /// Where another reply begins, behind those that are there.
    pub fn begin(&mut self) -> usize {
        self.error_at = None;
        self.buf.len()
    }

    /// Takes back what was written from `mark` on.
    pub fn truncate(&mut self, mark: usize) {
        self.buf.truncate(mark);
        self.error_at = self.error_at.filter(|at| *at < mark);
    }

    /// Whether what was written from `mark` on is an error, and not only an element of it.
    pub fn is_error_from(&self, mark: usize) -> bool {
        self.error_at == Some(mark)
    }

    /// Notes that an error was written into `buf`, from `mark` on.
    pub fn note_error(&mut self, mark: usize) {
        self.error_at = Some(mark);
    }

    /// Adds a whole reply that came as bytes from elsewhere.
    pub fn relay(&mut self, reply: &[u8]) {
        if reply.first() == Some(&b'-') {
            self.note_error(self.buf.len());
        }
        self.buf.extend_from_slice(reply);
    }

    /// Adds a reply that was written elsewhere, with what is known of it.
    pub fn append(&mut self, other: Reply) {
        if let Some(at) = other.error_at {
            self.note_error(self.buf.len() + at);
        }
        if self.buf.is_empty() {
            self.buf = other.buf;
        } else {
            self.buf.extend_from_slice(&other.buf);
        }
        self.is_over_limit |= other.is_over_limit;
        self.steps = self.steps.saturating_add(other.steps);
    }

    /// The work of a call that writes it.
    pub fn work(&self) -> Work {
        let work = self.cancel.clone().map_or_else(Work::unlimited, Work::until);
        work.with_memory_limit(self.memory_limit)
    }

    /// The largest number of bytes that `buf` may hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether something was left out as it would have exceeded the limit: the reply is of no use then.
    pub fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Whether there is room for so many bytes more; if not, the reply is over its limit.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = bytes <= self.limit.saturating_sub(self.buf.len());
        self.is_over_limit |= !has_room;
        has_room
    }

    /// Has `write` write each of `items`, a step each; ends early when the work is cancelled or the reply over its
    /// limit.
    pub fn each<I: IntoIterator>(
        &mut self,
        work: &Work,
        items: I,
        mut write: impl FnMut(&mut Self, I::Item),
    ) {
        for item in work.over(items) {
            write(self, item);
            if self.is_over_limit {
                break;
            }
        }
    }

    /// A bulk string for each of `items`, as [`Reply::each`].
    pub fn bulks<T: AsRef<[u8]>>(&mut self, work: &Work, items: impl IntoIterator<Item = T>) {
        self.each(work, items, |out, item| out.bulk(item.as_ref()));
    }

    fn resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    fn header(&mut self, mark: u8, number: i64) {
        if !self.has_room(HEADER_BYTES) {
            return;
        }
        self.buf.push(mark);
        self.buf.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.buf.extend_from_slice(b"\r\n");
    }

    /// `+OK`
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// A status line; must hold no CR or LF.
    pub fn status(&mut self, text: &str) {
        self.buf.push(b'+');
        self.buf.extend_from_slice(text.as_bytes());
        self.buf.extend_from_slice(b"\r\n");
    }

    /// An error line. CR and LF become blanks, so that no text can forge a second reply.
    pub fn error(&mut self, error: &CommandError) {
        self.note_error(self.buf.len());
        self.buf.push(b'-');
        let text = error.text().bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.buf.extend(text);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A length or count.
    pub fn count(&mut self, value: usize) {
        self.header(b':', value as i64);
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.has_room(HEADER_BYTES + bytes.len()) {
            return;
        }
        self.header(b'$', bytes.len() as i64);
        self.buf.extend_from_slice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string of what `write` adds to the bytes, which stops when they are more than it is given.
    pub fn bulk_of(&mut self, write: impl FnOnce(&mut Vec<u8>, usize)) {
        let start = self.buf.len();
        write(&mut self.buf, self.limit);
        let end = self.buf.len();
        if !self.has_room(HEADER_BYTES) {
            return self.buf.truncate(start);
        }
        self.header(b'$', (end - start) as i64);
        let header = self.buf.len() - end;
        self.buf[start..].rotate_right(header);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string that spells an integer.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// The missing value: `$-1` or `_`.
    pub fn null(&mut self) {
        if !self.has_room(HEADER_BYTES) {
            return;
        }
        self.buf.extend_from_slice(if self.resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The missing array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        self.buf.extend_from_slice(if self.resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Whether a missing value or array is all that was written from `mark` on.
    pub fn is_null_from(&self, mark: usize) -> bool {
        matches!(&self.buf[mark..], b"$-1\r\n" | b"*-1\r\n" | b"_\r\n")
    }

    /// `Some`: bulk; `None`: null.
    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Announces an array of `len` elements.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Announces `len` elements that are no answer to anything; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3() { b'>' } else { b'*' }, len as i64);
    }

    /// Announces a map of `pairs` key-value pairs; in RESP2 an array of twice as many elements.
    pub fn map(&mut self, pairs: usize) {
        if self.resp3() { self.header(b'%', pairs as i64) } else { self.header(b'*', 2 * pairs as i64) }
    }

    /// Announces a set of `len` elements; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3() { b'~' } else { b'*' }, len as i64);
    }

    /// A double; in RESP2 a bulk string.
    pub fn double(&mut self, value: f64) {
        if self.resp3() {
            self.buf.push(b',');
            number::push_f64(&mut self.buf, value);
            self.buf.extend_from_slice(b"\r\n");
        } else {
            self.bulk_float(value);
        }
    }

    /// A double that is spelled already; in RESP2 a bulk string.
    pub fn spelled_double(&mut self, text: &str) {
        if self.resp3() {
            self.buf.push(b',');
            self.buf.extend_from_slice(text.as_bytes());
            self.buf.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// A bulk string that spells a float with 17 digits.
    pub fn bulk_float(&mut self, value: f64) {
        let start = self.buf.len();
        number::push_f64(&mut self.buf, value);
        let end = self.buf.len();
        self.header(b'$', (end - start) as i64);
        let header = self.buf.len() - end;
        self.buf[start..].rotate_right(header);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A boolean; in RESP2 an integer 0 or 1.
    pub fn boolean(&mut self, value: bool) {
        if self.resp3() {
            self.buf.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.integer(i64::from(value));
        }
    }

    /// A text with a three-letter format; in RESP2 a bulk string.
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        if self.resp3() {
            self.header(b'=', text.len() as i64 + 4);
            self.buf.extend_from_slice(format.as_bytes());
            self.buf.push(b':');
            self.buf.extend_from_slice(text);
            self.buf.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// An array whose length is known only after `fill`, which writes the elements and returns their number.
    pub fn array_of(&mut self, fill: impl FnOnce(&mut Self) -> usize) {
        let start = self.buf.len();
        let len = fill(self);
        self.array_from(start, len);
    }

    /// Makes what was written from `mark` on an array of `len` elements.
    pub fn array_from(&mut self, mark: usize, len: usize) {
        self.error_at = None;
        let end = self.buf.len();
        self.array(len);
        let header = self.buf.len() - end;
        self.buf[mark..].rotate_right(header);
    }

    /// The same of a map.
    pub fn map_from(&mut self, mark: usize, pairs: usize) {
        self.error_at = None;
        let end = self.buf.len();
        self.map(pairs);
        let header = self.buf.len() - end;
        self.buf[mark..].rotate_right(header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SYNTAX;

    #[test]
    fn an_element_that_is_an_error_makes_no_error_of_the_reply() {
        let mut out = Reply::new(Protocol::Resp2);
        let first = out.begin();
        out.array(1);
        out.error(&SYNTAX);
        assert!(!out.is_error_from(first));
        let second = out.begin();
        out.array_of(|out| {
            out.error(&SYNTAX);
            1
        });
        assert!(!out.is_error_from(second));
        let third = out.begin();
        out.error(&SYNTAX);
        assert!(out.is_error_from(third));
    }

    #[test]
    fn what_is_taken_back_is_no_error() {
        let mut out = Reply::new(Protocol::Resp2);
        out.ok();
        let mark = out.begin();
        out.error(&SYNTAX);
        out.truncate(mark);
        out.ok();
        assert!(!out.is_error_from(mark));
    }

    #[test]
    fn replies_from_elsewhere_are_told_apart() {
        let mut other = Reply::new(Protocol::Resp2);
        other.relay(b"-ERR no\r\n");
        let mut out = Reply::new(Protocol::Resp2);
        out.ok();
        let mark = out.begin();
        out.append(other);
        assert!(out.is_error_from(mark));
        let mark = out.begin();
        out.relay(b"+OK\r\n");
        assert!(!out.is_error_from(mark));
    }
}
