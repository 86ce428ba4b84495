//! JSON text into values, with the error texts of serde_json, which RedisJSON passes on to its clients.
//!
//! By hand and not by serde_json: it reads straight into the compact representation, counts its steps and its memory while it
//! reads, and so ends with the work of its call.

use super::MAX_DEPTH;
use super::node::{Node, Object};
use crate::error::{self, CommandError};
use crate::steps::{CANCELLED, Work};

/// The value that `text` spells.
///
/// Errors: what is wrong and where; more memory than the work may take; the end of the work.
pub fn parse(text: &[u8], work: &Work) -> Result<Node, CommandError> {
    let text = std::str::from_utf8(text).map_err(|_| CommandError::new("ERR JSON must be valid UTF-8"))?;
    let mut parser = Parser { text, at: 0, held: 0, depth: 0, work };
    let node = parser.value().and_then(|node| {
        parser.skip_blanks();
        if parser.peek().is_some() { Err(Wrong::Here("trailing characters")) } else { Ok(node) }
    });
    node.map_err(|wrong| parser.error(wrong))
}

/// How an error begins if the text is too short.
const END_OF_TEXT: &str = "EOF";

/// Why a text was not read.
enum Wrong {
    /// The next character is not what it should be.
    Here(&'static str),
    /// The one before was not.
    Before(&'static str),
    /// The text ends while this is done.
    End(&'static str),
    /// The call ends.
    Ended,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Bytes of memory that the values read so far take, about.
    held: usize,
    depth: usize,
    work: &'a Work,
}

impl Parser<'_> {
    fn error(&self, wrong: Wrong) -> CommandError {
        let (what, end) = match wrong {
            Wrong::Here(what) => (what.to_owned(), (self.at + 1).min(self.text.len())),
            Wrong::Before(what) => (what.to_owned(), self.at),
            Wrong::End(what) => (format!("{END_OF_TEXT} while {what}"), self.at),
            Wrong::Ended if self.work.is_over_memory() => return error::OUT_OF_MEMORY,
            Wrong::Ended => return CANCELLED,
        };
        let read = &self.text.as_bytes()[..end];
        let line = memchr::memchr_iter(b'\n', read).count() + 1;
        let column = end - memchr::memrchr(b'\n', read).map_or(0, |at| at + 1);
        CommandError::owned(format!("ERR {what} at line {line} column {column}"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        let blanks = self.text.as_bytes()[self.at..].iter();
        self.at += blanks.take_while(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r')).count();
    }

    fn takes(&mut self, byte: u8) -> bool {
        let hit = self.peek() == Some(byte);
        self.at += usize::from(hit);
        hit
    }

    /// Counts a value that takes so many bytes beside its own place.
    fn count(&mut self, bytes: usize) -> Result<(), Wrong> {
        self.held += size_of::<Node>() + bytes;
        if self.work.add_element(bytes, self.held) { Ok(()) } else { Err(Wrong::Ended) }
    }

    fn value(&mut self) -> Result<Node, Wrong> {
        self.skip_blanks();
        let node = match self.peek() {
            None => return Err(Wrong::End("parsing a value")),
            Some(b'n') => self.word("null", Node::Null)?,
            Some(b't') => self.word("true", Node::Bool(true))?,
            Some(b'f') => self.word("false", Node::Bool(false))?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'"') => {
                self.at += 1;
                let text = self.string()?;
                self.count(text.len())?;
                return Ok(Node::String(text));
            }
            Some(first @ (b'[' | b'{')) => {
                self.at += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Wrong::Before("recursion limit exceeded"));
                }
                self.count(0)?;
                let node = if first == b'[' { self.array()? } else { self.object()? };
                self.depth -= 1;
                return Ok(node);
            }
            Some(_) => return Err(Wrong::Here("expected value")),
        };
        self.count(0)?;
        Ok(node)
    }

    fn word(&mut self, word: &'static str, node: Node) -> Result<Node, Wrong> {
        for byte in word.bytes() {
            match self.peek() {
                None => return Err(Wrong::End("parsing a value")),
                Some(next) if next != byte => return Err(Wrong::Here("expected ident")),
                Some(_) => self.at += 1,
            }
        }
        Ok(node)
    }

    fn digits(&mut self) -> Result<usize, Wrong> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match (self.at - start, self.peek()) {
            (0, None) => Err(Wrong::End("parsing a value")),
            (0, Some(_)) => Err(Wrong::Here("invalid number")),
            (count, _) => Ok(count),
        }
    }

    fn number(&mut self) -> Result<Node, Wrong> {
        let start = self.at;
        let is_negative = self.takes(b'-');
        let is_zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && is_zero {
            self.at = start + usize::from(is_negative) + 1;
            return Err(Wrong::Here("invalid number"));
        }
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if self.takes(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let spelled = &self.text[start..self.at];
        if !self.work.step_bytes(spelled.len()) {
            return Err(Wrong::Ended);
        }
        if is_whole
            && spelled != "-0"
            && let Ok(whole) = spelled.parse()
        {
            return Ok(Node::Int(whole));
        }
        match spelled.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(Node::Float(float)),
            _ => Err(Wrong::Before("number out of range")),
        }
    }

    fn array(&mut self) -> Result<Node, Wrong> {
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.takes(b']') {
            return Ok(Node::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Node::Array(elements));
                }
                None => return Err(Wrong::End("parsing a list")),
                Some(_) => return Err(Wrong::Here("expected `,` or `]`")),
            }
            self.skip_blanks();
            if self.peek() == Some(b']') {
                return Err(Wrong::Here("trailing comma"));
            }
        }
    }

    fn object(&mut self) -> Result<Node, Wrong> {
        let mut object = Box::<Object>::default();
        self.skip_blanks();
        if self.takes(b'}') {
            return Ok(Node::Object(object));
        }
        loop {
            match self.peek() {
                Some(b'"') => self.at += 1,
                None => return Err(Wrong::End("parsing an object")),
                Some(_) => return Err(Wrong::Here("key must be a string")),
            }
            let name = self.string()?;
            self.count(name.len())?;
            self.skip_blanks();
            match self.peek() {
                Some(b':') => self.at += 1,
                None => return Err(Wrong::End("parsing an object")),
                Some(_) => return Err(Wrong::Here("expected `:`")),
            }
            let node = self.value()?;
            object.set(name, node);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Node::Object(object));
                }
                None => return Err(Wrong::End("parsing an object")),
                Some(_) => return Err(Wrong::Here("expected `,` or `}`")),
            }
            self.skip_blanks();
            if self.peek() == Some(b'}') {
                return Err(Wrong::Here("trailing comma"));
            }
        }
    }

    /// A string behind its opening quote.
    fn string(&mut self) -> Result<Box<str>, Wrong> {
        let mut unescaped = String::new();
        loop {
            let start = self.at;
            let plain = self.text.as_bytes()[start..].iter();
            self.at += plain.take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            // Cut at single bytes of their own, hence between characters.
            let plain = &self.text[start..self.at];
            match self.peek() {
                None => return Err(Wrong::End("parsing a string")),
                Some(b'"') => {
                    self.at += 1;
                    if unescaped.is_empty() {
                        return Ok(plain.into());
                    }
                    unescaped.push_str(plain);
                    return Ok(unescaped.into());
                }
                Some(b'\\') => {
                    unescaped.push_str(plain);
                    self.at += 1;
                    unescaped.push(self.escape()?);
                }
                Some(_) => {
                    let what = "control character (\\u0000-\\u001F) found while parsing a string";
                    return Err(Wrong::Here(what));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Wrong> {
        let Some(mark) = self.peek() else { return Err(Wrong::End("parsing a string")) };
        let escaped = match mark {
            b'"' | b'\\' | b'/' => char::from(mark),
            b'b' => '\x08',
            b'f' => '\x0c',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(Wrong::Here("invalid escape")),
        };
        self.at += 1;
        Ok(escaped)
    }

    fn unicode(&mut self) -> Result<char, Wrong> {
        let first = self.four_digits()?;
        let code = match first {
            0xdc00..=0xdfff => return Err(Wrong::Before("lone leading surrogate in hex escape")),
            0xd800..=0xdbff => {
                if !(self.takes(b'\\') && self.takes(b'u')) {
                    return Err(Wrong::Here("unexpected end of hex escape"));
                }
                let second = self.four_digits()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(Wrong::Before("lone leading surrogate in hex escape"));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            _ => first,
        };
        char::from_u32(code).ok_or(Wrong::Before("invalid unicode code point"))
    }

    fn four_digits(&mut self) -> Result<u32, Wrong> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(byte) = self.peek() else { return Err(Wrong::End("parsing a string")) };
            let digit = char::from(byte).to_digit(16).ok_or(Wrong::Here("invalid escape"))?;
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::super::print::printed;
    use super::*;
    use crate::steps::CancelFlag;

    fn read(text: &str) -> Result<Node, String> {
        parse(text.as_bytes(), &Work::unlimited()).map_err(|error| error.text().to_owned())
    }

    #[test]
    fn values_are_read_and_printed() {
        for (text, wanted) in [
            ("null", "null"),
            (" [ true , false ] ", "[true,false]"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "9.223372036854776e18"),
            ("-0", "-0.0"),
            ("0", "0"),
            ("1.0", "1.0"),
            ("1e2", "100.0"),
            ("1.5E-7", "1.5e-7"),
            ("0.00001", "0.00001"),
            ("1e16", "1e16"),
            ("123456789012345680.0", "1.2345678901234568e17"),
            ("{}", "{}"),
            ("[[],{}]", "[[],{}]"),
            (r#"{"b":1,"a":2,"b":3}"#, r#"{"b":3,"a":2}"#),
            (r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00é""#, r#""\"\\/\b\f\n\r\tAé😀é""#),
            (r#""\u0000\u001f""#, r#""\u0000\u001f""#),
        ] {
            assert_eq!(read(text).map(|node| printed(&node)), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, wanted) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("bad", "expected value at line 1 column 1"),
            ("nul", "EOF while parsing a value at line 1 column 3"),
            ("nulx", "expected ident at line 1 column 4"),
            ("{", "EOF while parsing an object at line 1 column 1"),
            ("{a", "key must be a string at line 1 column 2"),
            (r#"{"a""#, "EOF while parsing an object at line 1 column 4"),
            (r#"{"a" 1"#, "expected `:` at line 1 column 6"),
            (r#"{"a":1 2"#, "expected `,` or `}` at line 1 column 8"),
            (r#"{"a":1,}"#, "trailing comma at line 1 column 8"),
            ("[", "EOF while parsing a value at line 1 column 1"),
            ("[1", "EOF while parsing a list at line 1 column 2"),
            ("[1 2", "expected `,` or `]` at line 1 column 4"),
            ("[1,]", "trailing comma at line 1 column 4"),
            ("1 2", "trailing characters at line 1 column 3"),
            ("\n\n 01", "invalid number at line 3 column 3"),
            ("-", "EOF while parsing a value at line 1 column 1"),
            ("1.x", "invalid number at line 1 column 3"),
            ("1e999", "number out of range at line 1 column 5"),
            ("\"a", "EOF while parsing a string at line 1 column 2"),
            (r#""\x""#, "invalid escape at line 1 column 3"),
            (r#""\ud800""#, "unexpected end of hex escape at line 1 column 8"),
            (r#""\udc00""#, "lone leading surrogate in hex escape at line 1 column 7"),
            (
                "\"a\nb\"",
                "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
            ),
        ] {
            assert_eq!(read(text), Err(format!("ERR {wanted}")), "{text}");
        }
        assert!(parse(b"\"\xff\"", &Work::unlimited()).is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(read(&nested(MAX_DEPTH)).expect("it is allowed").depth(), MAX_DEPTH);
        let wanted = format!("ERR recursion limit exceeded at line 1 column {}", MAX_DEPTH + 1);
        assert_eq!(read(&nested(MAX_DEPTH + 1)), Err(wanted));
    }

    #[test]
    fn reading_ends_with_the_work_and_the_memory() {
        let text = format!("[{}1]", "1,".repeat(100_000));
        let small = Work::unlimited().with_memory_limit(100_000);
        assert_eq!(parse(text.as_bytes(), &small), Err(error::OUT_OF_MEMORY));
        assert!(small.steps() < 10_000);
        let ended = Work::until(CancelFlag::new(true.into()));
        assert_eq!(parse(text.as_bytes(), &ended), Err(CANCELLED));
        assert!(ended.steps() < 10_000);
    }
}
