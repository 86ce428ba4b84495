//! Values as JSON text, as serde_json writes it.

use std::io::Write;

use super::node::Node;
use crate::steps::Work;

/// What stands between the parts of a text: nothing, unless JSON.GET asks for it.
#[derive(Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Before each element and member, once for each level.
    pub indent: &'a [u8],
    /// Where a line ends.
    pub newline: &'a [u8],
    /// Between a name's colon and its value.
    pub space: &'a [u8],
}

/// Writes text, up to a limit.
pub struct Printer<'a> {
    /// Where it goes.
    pub out: &'a mut Vec<u8>,
    layout: Layout<'a>,
    level: usize,
    /// From so many bytes on nothing more is written.
    limit: usize,
    work: &'a Work,
}

impl<'a> Printer<'a> {
    /// Writes into `out`, which may be longer than `limit` bytes at the end: the text is not complete then.
    pub fn new(out: &'a mut Vec<u8>, layout: Layout<'a>, limit: usize, work: &'a Work) -> Printer<'a> {
        Printer { out, layout, level: 0, limit, work }
    }

    /// Writes a value; whether to go on.
    pub fn node(&mut self, node: &Node) -> bool {
        if self.out.len() > self.limit || !self.work.step(1) {
            return false;
        }
        match node {
            Node::Null => self.out.extend_from_slice(b"null"),
            Node::Bool(true) => self.out.extend_from_slice(b"true"),
            Node::Bool(false) => self.out.extend_from_slice(b"false"),
            Node::Int(number) => self.out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
            Node::Float(number) => float(*number, self.out),
            Node::String(text) => return self.string(text),
            Node::Array(elements) => return self.list(b"[]", elements.iter(), |out, node| out.node(node)),
            Node::Object(object) => {
                return self.list(b"{}", object.iter(), |out, (name, node)| out.name(name) && out.node(node));
            }
        }
        true
    }

    /// Writes the name of a member.
    pub fn name(&mut self, name: &str) -> bool {
        let goes_on = self.string(name);
        self.out.push(b':');
        self.out.extend_from_slice(self.layout.space);
        goes_on
    }

    /// Writes an array or object of these parts.
    pub fn list<T>(
        &mut self,
        marks: &[u8; 2],
        parts: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> bool,
    ) -> bool {
        let is_empty = parts.len() == 0;
        self.out.push(marks[0]);
        self.level += 1;
        for (number, part) in parts.enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            self.end_line();
            if !write(self, part) {
                return false;
            }
        }
        self.level -= 1;
        if !is_empty {
            self.end_line();
        }
        self.out.push(marks[1]);
        true
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(self.layout.newline);
        if !self.layout.indent.is_empty() {
            (0..self.level).for_each(|_| self.out.extend_from_slice(self.layout.indent));
        }
    }

    fn string(&mut self, text: &str) -> bool {
        let out = &mut *self.out;
        out.push(b'"');
        let mut plain = 0;
        for (at, byte) in text.bytes().enumerate() {
            let mark = match byte {
                b'"' | b'\\' => byte,
                0x08 => b'b',
                0x0c => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                0..0x20 => b'u',
                _ => continue,
            };
            out.extend_from_slice(&text.as_bytes()[plain..at]);
            out.extend_from_slice(&[b'\\', mark]);
            if mark == b'u' {
                let _ = write!(out, "{byte:04x}");
            }
            plain = at + 1;
        }
        out.extend_from_slice(&text.as_bytes()[plain..]);
        out.push(b'"');
        self.work.step_bytes(text.len())
    }
}

/// The shortest digits that mean this number, always with a fraction or exponent.
fn float(number: f64, out: &mut Vec<u8>) {
    let size = number.abs();
    // Rust changes to exponents one power of ten before serde_json does.
    let written =
        if (1e-5..1e-4).contains(&size) { write!(out, "{number}") } else { write!(out, "{number:?}") };
    let _ = written;
}

/// A value as text without anything between its parts.
pub fn printed(node: &Node) -> String {
    let (mut out, work) = (Vec::new(), Work::unlimited());
    Printer::new(&mut out, Layout::default(), usize::MAX, &work).node(node);
    // Strings are text, and all else that is written is ASCII.
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn the_layout_is_that_of_redisjson() {
        let work = Work::unlimited();
        let node = parse(br#"{"a":[1,{"b":[]}],"c":{}}"#, &work).expect("it is right");
        for (layout, wanted) in [
            (
                Layout { indent: b"  ", newline: b"\n", space: b" " },
                "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": {}\n}",
            ),
            (Layout { space: b" ", ..Layout::default() }, r#"{"a": [1,{"b": []}],"c": {}}"#),
            (
                Layout { indent: b"\t", ..Layout::default() },
                "{\t\"a\":[\t\t1,\t\t{\t\t\t\"b\":[]\t\t}\t],\t\"c\":{}}",
            ),
        ] {
            let mut out = Vec::new();
            assert!(Printer::new(&mut out, layout, usize::MAX, &work).node(&node));
            assert_eq!(String::from_utf8(out).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn printing_ends_at_the_limit() {
        let work = Work::unlimited();
        let node = Node::Array(vec![Node::Null; 100_000]);
        let mut out = Vec::new();
        assert!(!Printer::new(&mut out, Layout::default(), 1000, &work).node(&node));
        assert!(out.len() > 1000 && out.len() < 1010 && work.steps() < 1000);
    }
}
