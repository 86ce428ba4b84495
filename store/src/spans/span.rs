//! A span as the SDK takes it when it has ended.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::context::child;

/// Room for the attributes of most spans.
const FACTS: usize = 8;
/// Bytes of a text in an attribute: scripts name themselves, and peers word their errors.
const MOST_TEXT: usize = 256;
/// The clocks are compared so often.
const COMPARED: Duration = Duration::from_secs(1);

/// The names of the client's address in a span.
pub const CLIENT: [&str; 2] = ["client.address", "client.port"];
/// And of the server's.
pub const SERVER: [&str; 2] = ["server.address", "server.port"];

/// What a span is called.
pub type Name = Cow<'static, str>;

/// The attributes of a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttributeValue<'a> {
    /// A word of ours.
    Word(&'static str),
    /// A text of a client or a peer.
    Text(&'a str),
    /// A number.
    Number(u64),
    /// A number that is written as a word.
    Digits(u64),
}

impl From<&'static str> for AttributeValue<'_> {
    fn from(word: &'static str) -> Self {
        AttributeValue::Word(word)
    }
}

impl From<u64> for AttributeValue<'_> {
    fn from(number: u64) -> Self {
        AttributeValue::Number(number)
    }
}

impl From<usize> for AttributeValue<'_> {
    fn from(number: usize) -> Self {
        AttributeValue::Number(number as u64)
    }
}

impl From<AttributeValue<'_>> for Value {
    fn from(fact: AttributeValue<'_>) -> Value {
        match fact {
            AttributeValue::Word(word) => word.into(),
            AttributeValue::Text(text) => cut(text).to_owned().into(),
            AttributeValue::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
            AttributeValue::Digits(number) => number.to_string().into(),
        }
    }
}

/// Something that was done.
#[derive(Clone, Debug)]
pub struct Span(SpanData);

impl Span {
    /// One of this context and parent, with its beginning and end.
    pub fn new(
        context: SpanContext,
        parent: Option<&SpanContext>,
        name: impl Into<Name>,
        kind: SpanKind,
        times: Range<Instant>,
    ) -> Span {
        let took = times.end.saturating_duration_since(times.start);
        let ended = unix_time(times.end);
        let version = env!("CARGO_PKG_VERSION");
        Span(SpanData {
            span_context: context,
            parent_span_id: parent.map_or(SpanId::INVALID, SpanContext::span_id),
            parent_span_is_remote: parent.is_some_and(SpanContext::is_remote),
            span_kind: kind,
            name: name.into(),
            start_time: UNIX_EPOCH + ended.saturating_sub(took),
            end_time: UNIX_EPOCH + ended,
            attributes: Vec::with_capacity(FACTS),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("moonshard").with_version(version).build(),
        })
    }

    /// A part of `parent`, with its beginning and end.
    pub fn within(
        parent: &SpanContext,
        name: impl Into<Name>,
        kind: SpanKind,
        times: Range<Instant>,
    ) -> Span {
        Span::new(child(parent), Some(parent), name, kind, times)
    }

    /// With a fact more.
    pub fn with<'a>(mut self, name: &'static str, fact: impl Into<AttributeValue<'a>>) -> Span {
        self.0.attributes.push(KeyValue::new(name, fact.into()));
        self
    }

    /// With the host and the port of an address.
    pub fn with_address(self, [host_name, port_name]: [&'static str; 2], address: &str) -> Span {
        let Some((host, port)) = address.rsplit_once(':') else {
            return self.with(host_name, AttributeValue::Text(address));
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let span = self.with(host_name, AttributeValue::Text(bare));
        match port.parse::<u64>() {
            Ok(port) => span.with(port_name, port),
            Err(_) => span,
        }
    }

    /// With an error.
    pub fn with_error(mut self, text: &str) -> Span {
        self.0.status = Status::error(cut(text).to_owned());
        self
    }

    /// With the error that this reply is, if it is one: its code word becomes the type.
    pub fn with_reply(self, reply: &[u8]) -> Span {
        let Some(text) = reply.strip_prefix(b"-") else { return self };
        let end = text.iter().position(|byte| *byte == b'\r').unwrap_or(text.len()).min(MOST_TEXT);
        let text = String::from_utf8_lossy(&text[..end]);
        let code = AttributeValue::Text(text.split(' ').next().unwrap_or_default());
        self.with("db.response.status_code", code).with("error.type", code).with_error(&text)
    }

    /// As the SDK takes it.
    pub fn into_data(self) -> SpanData {
        self.0
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT)]
}

/// The time of an instant since 1970. The clock behind it is rarely read.
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
    use super::*;
    use crate::spans::root;

    fn attributes(span: Span) -> Vec<(String, Value)> {
        let attributes = span.into_data().attributes.into_iter();
        attributes.map(|fact| (fact.key.to_string(), fact.value)).collect()
    }

    #[test]
    fn a_span_has_what_it_is_given() {
        let (root, began) = (root(), Instant::now());
        let times = began..began + Duration::from_nanos(1_234_567);
        let exported = Span::new(root.clone(), None, "GET", SpanKind::Server, times.clone()).into_data();
        assert_eq!((&exported.span_context, exported.parent_span_id), (&root, SpanId::INVALID));
        assert_eq!((exported.span_kind, &*exported.name), (SpanKind::Server, "GET"));
        let took = exported.end_time.duration_since(exported.start_time);
        assert_eq!(took.expect("it ended later"), Duration::from_nanos(1_234_567));
        let span = Span::within(&root, "SET", SpanKind::Client, times);
        let span = span.with("word", "a").with("text", AttributeValue::Text("b")).with("number", 0usize);
        let span = span.with("large", u64::MAX).with("digits", AttributeValue::Digits(10)).with_error("c");
        let exported = span.clone().into_data();
        assert_eq!(
            (exported.parent_span_id, exported.span_context.trace_id()),
            (root.span_id(), root.trace_id())
        );
        assert_eq!(exported.status, Status::error("c"));
        let expected: [(&str, Value); 5] = [
            ("word", "a".into()),
            ("text", "b".into()),
            ("number", 0i64.into()),
            ("large", i64::MAX.into()),
            ("digits", "10".into()),
        ];
        assert_eq!(attributes(span), expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn of_a_long_text_the_beginning_is_told() {
        let (now, long) = (Instant::now(), "\u{e9}x".repeat(100_000));
        let span = Span::within(&root(), "script", SpanKind::Internal, now..now);
        let span = span.with("moonshard.script.name", AttributeValue::Text(&long)).with_error(&long);
        assert_eq!(span.clone().into_data().status, Status::error(long[..255].to_owned()));
        // The next byte is the first half of a letter.
        assert_eq!(attributes(span)[0].1, long[..255].to_owned().into());
    }

    #[test]
    fn an_address_is_told_as_host_and_port() {
        let now = Instant::now();
        for (address, host, port) in [
            ("10.0.0.1:7101", "10.0.0.1", Some(7101)),
            ("[2001:db8::1]:7101", "2001:db8::1", Some(7101)),
            ("node.example", "node.example", None),
        ] {
            let span = Span::within(&root(), "SET", SpanKind::Client, now..now);
            let host = (SERVER[0].to_owned(), host.into());
            let port = port.map(|port: i64| (SERVER[1].to_owned(), port.into()));
            let expected: Vec<(String, Value)> = [host].into_iter().chain(port).collect();
            assert_eq!(attributes(span.with_address(SERVER, address)), expected);
        }
    }

    #[test]
    fn an_error_is_told_with_its_code_word() {
        let now = Instant::now();
        let span = Span::within(&root(), "GET", SpanKind::Server, now..now);
        assert_eq!(span.clone().with_reply(b"+OK\r\n").into_data().status, Status::Unset);
        let span = span.with_reply(b"-WRONGTYPE no\r\n");
        assert_eq!(span.clone().into_data().status, Status::error("WRONGTYPE no"));
        assert!(attributes(span).contains(&("error.type".to_owned(), "WRONGTYPE".into())));
    }

    #[test]
    fn instants_are_told_in_unix_time() {
        let (now, unix) =
            (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later"));
        for seconds in [0, 1, 10, 1000] {
            let (exported, off) =
                (unix_time(now + Duration::from_secs(seconds)), Duration::from_secs(seconds));
            assert!(exported.abs_diff(unix + off) < Duration::from_secs(30), "{exported:?}");
        }
        let before = now.checked_sub(Duration::from_millis(10)).expect("the machine has run so long");
        assert_eq!(unix_time(now) - unix_time(before), Duration::from_millis(10));
    }
}
