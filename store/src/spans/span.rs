//! A span as OTLP writes it.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Context;
use super::message::Message;

/// Room for what is told of most.
const BYTES: usize = 320;
/// Bytes that are told of a text: scripts name themselves, and peers word their errors.
const MOST_TEXT: usize = 256;
/// The clocks are compared so often.
const COMPARED: Duration = Duration::from_secs(1);

/// Under which names a span tells where whoever asks is.
pub const CLIENT: [&str; 2] = ["client.address", "client.port"];
/// And where whoever answers is.
pub const SERVER: [&str; 2] = ["server.address", "server.port"];

/// On which side of a call a span is, by the numbers of OTLP's `SpanKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Neither.
    Internal = 1,
    /// It answers.
    Server = 2,
    /// It asks somebody else.
    Client = 3,
}

/// What is told of a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    /// A word.
    Word(&'a str),
    /// A number.
    Number(u64),
    /// A number that is told as a word.
    Digits(u64),
}

impl<'a> From<&'a str> for Fact<'a> {
    fn from(word: &'a str) -> Self {
        Fact::Word(word)
    }
}

impl From<u64> for Fact<'_> {
    fn from(number: u64) -> Self {
        Fact::Number(number)
    }
}

impl From<usize> for Fact<'_> {
    fn from(number: usize) -> Self {
        Fact::Number(number as u64)
    }
}

/// Something that was done: a `Span` of OTLP, written as it is sent, with its fields in the order in which they become
/// known.
#[derive(Clone, Debug)]
pub struct Span(Message);

impl Span {
    /// One of this context and parent, with its beginning and end.
    pub fn new(
        context: Context,
        parent: Option<[u8; 8]>,
        name: &str,
        side: Side,
        times: Range<Instant>,
    ) -> Span {
        let took = times.end.saturating_duration_since(times.start);
        let ended = unix_time(times.end);
        let mut message = Message::with_capacity(BYTES);
        message.bytes(1, &context.trace);
        message.bytes(2, &context.span);
        if let Some(parent) = &parent {
            message.bytes(4, parent);
        }
        message.bytes(5, name.as_bytes());
        message.number(6, side as u64);
        message.fixed64(7, nanos(ended.saturating_sub(took)));
        message.fixed64(8, nanos(ended));
        // It is sampled.
        message.fixed32(16, 1);
        Span(message)
    }

    /// A part of `parent`, with its beginning and end.
    pub fn within(parent: &Context, name: &str, side: Side, times: Range<Instant>) -> Span {
        Span::new(parent.child(), Some(parent.span), name, side, times)
    }

    /// With a fact more.
    pub fn with<'a>(mut self, name: &str, fact: impl Into<Fact<'a>>) -> Span {
        self.add(name, fact.into());
        self
    }

    /// With the host and the port of an address.
    pub fn with_address(self, [host_name, port_name]: [&str; 2], address: &str) -> Span {
        let Some((host, port)) = address.rsplit_once(':') else { return self.with(host_name, address) };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let span = self.with(host_name, bare);
        match port.parse::<u64>() {
            Ok(port) => span.with(port_name, port),
            Err(_) => span,
        }
    }

    fn add(&mut self, name: &str, fact: Fact<'_>) {
        self.0.message(9, |attribute| {
            attribute.bytes(1, name.as_bytes());
            attribute.message(2, |value| match fact {
                Fact::Word(text) => value.bytes(1, cut(text).as_bytes()),
                Fact::Number(number) => value.number(3, i64::try_from(number).unwrap_or(i64::MAX) as u64),
                Fact::Digits(number) => value.bytes(1, itoa::Buffer::new().format(number).as_bytes()),
            });
        });
    }

    /// With an error.
    pub fn with_error(mut self, text: &str) -> Span {
        const ERROR: u64 = 2;
        self.0.message(15, |status| {
            status.bytes(2, cut(text).as_bytes());
            status.number(3, ERROR);
        });
        self
    }

    /// With the error that this reply is, if it is one: its code word becomes the type.
    pub fn with_reply(self, reply: &[u8]) -> Span {
        let Some(text) = reply.strip_prefix(b"-") else { return self };
        let end = text.iter().position(|byte| *byte == b'\r').unwrap_or(text.len()).min(MOST_TEXT);
        let text = String::from_utf8_lossy(&text[..end]);
        let code = text.split(' ').next().unwrap_or_default();
        self.with("db.response.status_code", code).with("error.type", code).with_error(&text)
    }

    /// The message.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The Unix time of an instant. The clock that tells it is rarely read.
fn unix_time(at: Instant) -> Duration {
    thread_local! {
        /// An instant and its Unix time.
        static KNOWN: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    }
    let is_near = |(known, _): &(Instant, Duration)| at.saturating_duration_since(*known) < COMPARED;
    let (known, unix) = KNOWN.get().filter(is_near).unwrap_or_else(|| {
        let now = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        KNOWN.set(Some(now));
        now
    });
    match at.checked_duration_since(known) {
        Some(later) => unix + later,
        None => unix.saturating_sub(known - at),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
    use opentelemetry_proto::tonic::trace::v1 as otlp;
    use prost::Message as _;

    use super::*;

    fn read(span: &Span) -> otlp::Span {
        otlp::Span::decode(span.as_bytes()).expect("a message")
    }

    #[test]
    fn spans_are_read_as_they_were_written() {
        let (root, began) = (Context::root(), Instant::now());
        let times = began..began + Duration::from_nanos(1_234_567);
        let told = read(&Span::new(root, None, "GET", Side::Server, times.clone()));
        assert_eq!((&*told.trace_id, &*told.span_id), (&root.trace[..], &root.span[..]));
        assert_eq!(
            (told.parent_span_id.len(), told.kind(), &*told.name),
            (0, otlp::span::SpanKind::Server, "GET")
        );
        assert_eq!((told.end_time_unix_nano - told.start_time_unix_nano, told.flags), (1_234_567, 1));
        for length in [0, 1, 100, 127, 128, 256] {
            let text = "x".repeat(length);
            let span = Span::within(&root, &text, Side::Client, times.clone());
            let span = span.with("word", &*text).with("number", 0usize).with("large", u64::MAX);
            let told = read(&span.with("digits", Fact::Digits(10)).with_error(&text));
            assert_eq!((&*told.parent_span_id, told.kind()), (&root.span[..], otlp::span::SpanKind::Client));
            assert_eq!((&told.name, told.trace_id), (&text, root.trace.to_vec()));
            let of = |value| Some(AnyValue { value: Some(value) });
            let values: Vec<_> = told.attributes.into_iter().map(|fact| (fact.key, fact.value)).collect();
            let expected = [
                ("word", of(Value::StringValue(text.clone()))),
                ("number", of(Value::IntValue(0))),
                ("large", of(Value::IntValue(i64::MAX))),
                ("digits", of(Value::StringValue("10".to_owned()))),
            ];
            assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
            let code = otlp::status::StatusCode::Error.into();
            assert_eq!(told.status, Some(otlp::Status { message: text, code }));
        }
    }

    #[test]
    fn of_a_long_text_the_beginning_is_told() {
        let (now, long) = (Instant::now(), "\u{e9}x".repeat(100_000));
        let span = Span::within(&Context::root(), "script", Side::Internal, now..now);
        let told = read(&span.with("moonshard.script.name", &*long).with_error(&long));
        let word = told.attributes[0].value.clone().and_then(|value| value.value);
        // The next byte is the first half of a letter.
        assert_eq!(word, Some(Value::StringValue(long[..255].to_owned())));
        assert_eq!(told.status.expect("an error").message, long[..255]);
    }

    #[test]
    fn an_address_is_told_as_host_and_port() {
        let now = Instant::now();
        for (address, told) in [
            ("10.0.0.1:7101", ("10.0.0.1", Some(7101))),
            ("[2001:db8::1]:7101", ("2001:db8::1", Some(7101))),
            ("node.example", ("node.example", None)),
        ] {
            let span = Span::within(&Context::root(), "SET", Side::Client, now..now);
            let facts = read(&span.with_address(SERVER, address)).attributes.into_iter();
            let values: Vec<_> =
                facts.map(|fact| (fact.key, fact.value.and_then(|value| value.value))).collect();
            let host = (SERVER[0].to_owned(), Some(Value::StringValue(told.0.to_owned())));
            let port = told.1.map(|port| (SERVER[1].to_owned(), Some(Value::IntValue(port))));
            assert_eq!(values, [host].into_iter().chain(port).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_is_told_with_its_code_word() {
        let now = Instant::now();
        let span = Span::within(&Context::root(), "GET", Side::Server, now..now);
        assert!(read(&span.clone().with_reply(b"+OK\r\n")).status.is_none());
        let told = read(&span.with_reply(b"-WRONGTYPE no\r\n"));
        assert_eq!(told.status.expect("an error").message, "WRONGTYPE no");
        let is_type = |fact: &&KeyValue| fact.key == "error.type";
        let code = told.attributes.iter().find(is_type).and_then(|fact| fact.value.clone()?.value);
        assert_eq!(code, Some(Value::StringValue("WRONGTYPE".to_owned())));
    }

    #[test]
    fn instants_are_told_in_unix_time() {
        let (now, unix) =
            (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later"));
        for seconds in [0, 1, 10, 1000] {
            let (told, off) = (unix_time(now + Duration::from_secs(seconds)), Duration::from_secs(seconds));
            assert!(told.abs_diff(unix + off) < Duration::from_secs(30), "{told:?}");
        }
        let before = now.checked_sub(Duration::from_millis(10)).expect("the machine has run so long");
        assert_eq!(unix_time(now) - unix_time(before), Duration::from_millis(10));
    }
}
