//! Values as JSON, both ways.
//!
//! A reply is shown as people expect it: strings, numbers, arrays, objects, `null`. What JSON has no form for is an
//! object with one member, whose name says what it is:
//!
//! | value | shown as |
//! | --- | --- |
//! | a string that is not UTF-8 | `{"base64": "…"}` |
//! | an error inside a reply | `{"error": {"code": "ERR", "message": "ERR …"}}` |
//! | an infinite double, or none | `{"double": "inf"}` |
//! | a big number | `{"big_number": "…"}` |
//! | a map whose keys are not different strings, or that looks like one of these | `{"map": [[key, value], …]}` |
//! | what Redis says about a value | `{"attributes": [[key, value], …], "value": …}` |
//!
//! With `lossless=true` types are distinguished that look alike: `{"status": "OK"}`, `{"set": […]}`, `{"map": […]}` for all
//! maps, `{"verbatim": {"format": "txt", "text": …}}`.

use std::collections::HashSet;
use std::fmt;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use resp::Value;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use store_engine::error::REPLY_TOO_LARGE;

use super::problem::Problem;
use crate::net::request::code_of;

/// How much of a reply's types is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// What people need.
    Plain,
    /// All.
    Lossless,
}

/// A reply to be shown.
#[derive(Clone, Copy)]
pub struct Shown<'a>(pub &'a Value, pub Shape);

/// A string of any bytes to be shown.
#[derive(Clone, Copy)]
pub struct Text<'a>(pub &'a [u8]);

/// Names of objects that say what their one member is.
const TAGS: &[&str] =
    &["base64", "error", "double", "big_number", "map", "set", "status", "verbatim", "attributes"];

fn tagged<S: Serializer>(to: S, tag: &str, value: &impl Serialize) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    map.serialize_entry(tag, value)?;
    map.end()
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => tagged(to, "base64", &BASE64.encode(self.0)),
        }
    }
}

/// The code word and text of an error.
#[derive(serde::Serialize)]
struct ErrorShown<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(serde::Serialize)]
struct VerbatimShown<'a> {
    format: &'a str,
    text: Text<'a>,
}

impl Shown<'_> {
    /// The keys of a map that is shown as an object.
    fn plain_keys<'v>(&self, pairs: &'v [(Value, Value)]) -> Option<Vec<&'v str>> {
        let key = |(key, _): &'v (Value, Value)| match key {
            Value::Bulk(text) | Value::Status(text) => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let keys: Vec<&str> = pairs.iter().map(key).collect::<Option<_>>()?;
        let different: HashSet<&&str> = keys.iter().collect();
        let misleading = keys.first().is_some_and(|first| TAGS.contains(first));
        let plain = self.1 == Shape::Plain && different.len() == keys.len() && !misleading;
        plain.then_some(keys)
    }

    fn pairs<'v>(&self, pairs: &'v [(Value, Value)]) -> Vec<[Shown<'v>; 2]> {
        pairs.iter().map(|(key, value)| [Shown(key, self.1), Shown(value, self.1)]).collect()
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shape = self.1;
        let lossless = shape == Shape::Lossless;
        let items = |items: &'_ [Value], to: S| to.collect_seq(items.iter().map(|item| Shown(item, shape)));
        match self.0 {
            Value::Status(text) if lossless => tagged(to, "status", &Text(text)),
            Value::Verbatim { format, text } if lossless => {
                let format = std::str::from_utf8(format).unwrap_or("txt");
                tagged(to, "verbatim", &VerbatimShown { format, text: Text(text) })
            }
            Value::Status(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Text(text).serialize(to)
            }
            Value::Error(text) => {
                let message = &String::from_utf8_lossy(text);
                tagged(to, "error", &ErrorShown { code: code_of(message), message })
            }
            Value::Integer(number) => to.serialize_i64(*number),
            Value::Null | Value::NullArray => to.serialize_unit(),
            Value::Boolean(value) => to.serialize_bool(*value),
            Value::Double(number) if number.is_finite() => to.serialize_f64(*number),
            Value::Double(number) => tagged(to, "double", &number.to_string().to_lowercase()),
            Value::BigNumber(digits) => tagged(to, "big_number", &Text(digits)),
            Value::Set(members) if lossless => {
                let members: Vec<Shown<'_>> = members.iter().map(|member| Shown(member, shape)).collect();
                tagged(to, "set", &members)
            }
            Value::Array(members) | Value::Set(members) | Value::Push(members) => items(members, to),
            Value::Map(pairs) => match self.plain_keys(pairs) {
                Some(keys) => {
                    to.collect_map(keys.into_iter().zip(pairs.iter().map(|(_, value)| Shown(value, shape))))
                }
                None => tagged(to, "map", &self.pairs(pairs)),
            },
            Value::Attribute { attributes, value } if lossless => {
                let mut map = to.serialize_map(Some(2))?;
                map.serialize_entry("attributes", &self.pairs(attributes))?;
                map.serialize_entry("value", &Shown(value, shape))?;
                map.end()
            }
            Value::Attribute { value, .. } => Shown(value, shape).serialize(to),
        }
    }
}

/// An argument or key of a request: a string, a number, or `{"base64": "…"}`. Whole numbers of 64 bits are exact, others
/// are rounded to doubles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub Vec<u8>);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
        from.deserialize_any(WordVisitor)
    }
}

struct WordVisitor;

impl<'de> Visitor<'de> for WordVisitor {
    type Value = Word;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or {\"base64\": \"…\"}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Word, E> {
        Ok(Word(text.as_bytes().to_vec()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Word, E> {
        Ok(Word(number.to_string().into_bytes()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Word, E> {
        Ok(Word(number.to_string().into_bytes()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Word, E> {
        let mut text = Vec::new();
        store_engine::number::push_f64(&mut text, number);
        Ok(Word(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Word, A::Error> {
        let expected = || de::Error::custom("expected one member, base64");
        let (key, text): (String, String) = map.next_entry()?.ok_or_else(expected)?;
        if key != "base64" || map.next_key::<String>()?.is_some() {
            return Err(expected());
        }
        let bytes = BASE64.decode(text).map_err(|error| de::Error::custom(format!("base64: {error}")))?;
        Ok(Word(bytes))
    }
}

/// A body of JSON.
pub fn body(value: &impl Serialize) -> Response {
    // What is shown here has no maps whose keys are no strings, which is all that could fail.
    let text = serde_json::to_vec(value).expect("JSON can hold it");
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// [`body`] of no more than `most` bytes: a longer one is refused before it is whole.
pub fn body_within(value: &impl Serialize, most: usize) -> Result<Response, Problem> {
    let mut text = Bounded { text: Vec::new(), most };
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => {
            let json = HeaderValue::from_static("application/json");
            Ok(([(header::CONTENT_TYPE, json)], text.text).into_response())
        }
        Err(_) => Err(Problem::of_reply(REPLY_TOO_LARGE.text().as_bytes())),
    }
}

/// A text that takes no more than so many bytes.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.most - self.text.len() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether a text in JSON has more elements than so many: each but the first stands behind a comma.
pub fn has_more_elements(text: &[u8], most: usize) -> bool {
    // The shortest element is a digit.
    if text.len() / 2 <= most {
        return false;
    }
    let (mut commas, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' if !in_string => commas += 1,
            _ => {}
        }
    }
    commas >= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_outside_of_strings() {
        assert!(has_more_elements(b"[1,2,3]", 2) && !has_more_elements(b"[1,2,3]", 3));
        assert!(!has_more_elements(br#"["a,b,c,d\",e,f,"]"#, 1), "commas within a string");
    }

    #[test]
    fn a_body_that_is_too_long_is_refused() {
        assert!(body_within(&"four", 6).is_ok());
        let refused = body_within(&"\u{1}", 6).expect_err("an escape of six bytes, and quotes");
        assert_eq!(refused.code, "REPLYLIMIT");
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn both(value: &Value) -> [String; 2] {
        [Shape::Plain, Shape::Lossless]
            .map(|shape| serde_json::to_string(&Shown(value, shape)).expect("JSON"))
    }

    #[test]
    fn types_are_shown() {
        let pair = |key: Value| (key, Value::Integer(1));
        for (value, plain, lossless) in [
            (Value::Status("OK".into()), r#""OK""#, r#"{"status":"OK"}"#),
            (bulk("a\"é"), r#""a\"é""#, r#""a\"é""#),
            (Value::Bulk(vec![0xff, 0]), r#"{"base64":"/wA="}"#, r#"{"base64":"/wA="}"#),
            (Value::Integer(i64::MIN), "-9223372036854775808", "-9223372036854775808"),
            (Value::Null, "null", "null"),
            (Value::Boolean(true), "true", "true"),
            (Value::Double(3.0), "3.0", "3.0"),
            (Value::Double(f64::NEG_INFINITY), r#"{"double":"-inf"}"#, r#"{"double":"-inf"}"#),
            (Value::Double(f64::NAN), r#"{"double":"nan"}"#, r#"{"double":"nan"}"#),
            (Value::BigNumber(b"12".into()), r#"{"big_number":"12"}"#, r#"{"big_number":"12"}"#),
            (Value::Set(vec![bulk("a")]), r#"["a"]"#, r#"{"set":["a"]}"#),
            (Value::Map(vec![pair(bulk("a"))]), r#"{"a":1}"#, r#"{"map":[["a",1]]}"#),
            (Value::Map(vec![pair(bulk("error"))]), r#"{"map":[["error",1]]}"#, r#"{"map":[["error",1]]}"#),
            (
                Value::Map(vec![pair(bulk("a")), pair(bulk("a"))]),
                r#"{"map":[["a",1],["a",1]]}"#,
                r#"{"map":[["a",1],["a",1]]}"#,
            ),
            (Value::Map(vec![pair(Value::Integer(2))]), r#"{"map":[[2,1]]}"#, r#"{"map":[[2,1]]}"#),
            (
                Value::Array(vec![Value::Error("FULL at 2".into())]),
                r#"[{"error":{"code":"FULL","message":"FULL at 2"}}]"#,
                r#"[{"error":{"code":"FULL","message":"FULL at 2"}}]"#,
            ),
            (
                Value::Verbatim { format: *b"mkd", text: b"x".into() },
                r#""x""#,
                r#"{"verbatim":{"format":"mkd","text":"x"}}"#,
            ),
            (
                Value::Attribute { attributes: vec![pair(bulk("ttl"))], value: Box::new(bulk("v")) },
                r#""v""#,
                r#"{"attributes":[["ttl",1]],"value":"v"}"#,
            ),
        ] {
            assert_eq!(both(&value), [plain, lossless], "{value:?}");
        }
    }

    #[test]
    fn words_are_read() {
        for (text, wanted) in [
            (r#""a\u00e9""#, Some("aé".as_bytes())),
            ("12", Some(b"12")),
            ("-12", Some(b"-12")),
            ("1.5", Some(b"1.5")),
            (r#"{"base64":"/wA="}"#, Some(&[0xff, 0])),
            (r#"{"base64":"?"}"#, None),
            (r#"{"base64":"","x":1}"#, None),
            ("{}", None),
            ("null", None),
            ("true", None),
            ("[]", None),
        ] {
            let read = serde_json::from_str::<Word>(text).ok();
            assert_eq!(read.as_ref().map(|word| &*word.0), wanted, "{text}");
        }
    }
}
