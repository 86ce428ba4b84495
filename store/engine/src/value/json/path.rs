//! Paths: JSONPath as RedisJSON 2 reads it, and its older form without the `$`.
//!
//! By hand, with the evaluation in `select`: libraries for JSONPath work on the values of serde_json, read RFC 9535 and not the
//! dialect that clients of RedisJSON send (`.a["b"]`, `=~`, paths without `$`), and none ends with the work of a call.
//!
//! | | |
//! | --- | --- |
//! | `$`, `.` | the root; a path that does not begin with `$.`, `$[` or is `$` is a legacy one |
//! | `.name`, `["name"]`, `['a','b']` | members by name |
//! | `[0]`, `[-1]`, `[0,2]`, `[start:end:step]` | elements by position |
//! | `.*`, `[*]` | all members or elements |
//! | `..name`, `..*`, `..[0]` | the same of the value and of all that is in it |
//! | `[?(@.a > 1 && @.b =~ "x")]` | those for which this is true |

use super::node::Node;
use super::pattern::Pattern;
use crate::error::CommandError;

/// A longer path is refused: what it costs to look at one value grows with it.
const MOST_BYTES: usize = 16 << 10;
/// So many filters may lie in each other: each may look at all values for each value of the one around it.
const MOST_FILTERS: usize = 4;
/// So many brackets may lie in each other in a filter.
const MOST_BRACKETS: usize = 32;

/// A path that was read.
#[derive(Debug)]
pub struct Path {
    /// From the root on.
    pub segments: Vec<Segment>,
    /// Whether replies are those of RedisJSON 1: of one value, and not a list.
    pub is_legacy: bool,
    /// As a JSONPath, for error texts.
    pub text: String,
}

/// One step of a path.
#[derive(Debug, PartialEq)]
pub struct Segment {
    /// Whether it also looks into all that is in a value.
    pub descends: bool,
    /// Which elements or members it selects: several are names only, or positions only.
    pub selectors: Vec<Selector>,
}

/// Some elements or members of a value.
#[derive(Debug, PartialEq)]
pub enum Selector {
    /// The member of this name.
    Name(Box<str>),
    /// The element at this position, from the end if negative.
    Index(i64),
    /// All.
    All,
    /// Elements from the first position up to the second, every so many.
    Slice(Option<i64>, Option<i64>, usize),
    /// Those for which this is true.
    Filter(Test),
}

/// What a filter asks.
#[derive(Debug, PartialEq)]
pub enum Test {
    /// Whether one of these is true.
    Any(Vec<Test>),
    /// Whether all of these are.
    All(Vec<Test>),
    /// Whether there is such a value.
    Exists(Term),
    /// How two values compare.
    Compare(Term, Operator, Term),
    /// Whether a string has a match of this pattern.
    Matches(Term, Pattern),
}

/// A value in a filter.
#[derive(Debug, PartialEq)]
pub enum Term {
    /// What a path selects from the value that is looked at, if that is one value.
    Current(Vec<Segment>),
    /// What a path selects from the root.
    Root(Vec<Segment>),
    /// This one.
    Constant(Node),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
}

impl Path {
    /// Reads a path.
    ///
    /// Errors: what was expected, and where.
    pub fn parse(path: &[u8]) -> Result<Path, CommandError> {
        if path.len() > MOST_BYTES {
            let text = format!("ERR a JSON path may have {MOST_BYTES} bytes at most");
            return Err(CommandError::owned(text));
        }
        let path =
            std::str::from_utf8(path).map_err(|_| CommandError::new("ERR JSON paths must be valid UTF-8"))?;
        let is_legacy = !matches!(path.as_bytes(), [b'$'] | [b'$', b'.' | b'[', ..]);
        let text = match path {
            "." => "$".to_owned(),
            _ if !is_legacy => path.to_owned(),
            _ if path.starts_with('.') => format!("${path}"),
            _ => format!("$.{path}"),
        };
        let mut parser = Parser { text: &text, at: 1, filters: 0, brackets: 0 };
        let segments = parser.segments()?;
        if parser.at < text.len() {
            return Err(parser.expected("`.`, `[` or the end"));
        }
        Ok(Path { segments, is_legacy, text })
    }

    /// The root, as commands without a path mean it.
    pub fn root() -> Path {
        Path { segments: Vec::new(), is_legacy: true, text: "$".to_owned() }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether it names one place, which may not exist.
    pub fn is_static(&self) -> bool {
        self.segments.iter().all(|segment| {
            !segment.descends && matches!(*segment.selectors, [Selector::Name(_) | Selector::Index(_)])
        })
    }
}

/// What an `at` or a `from` of a parser is.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Filters around this place.
    filters: usize,
    /// Brackets around this place in its filter.
    brackets: usize,
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"-_`~+#%$^/:".contains(&byte)
}

impl Parser<'_> {
    fn expected(&self, what: &str) -> CommandError {
        CommandError::owned(format!("ERR Error occurred on position {}, expected {what}", self.at + 1))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Whether `word` comes next, which is then left behind.
    fn takes(&mut self, word: &str) -> bool {
        let hit = self.text[self.at..].starts_with(word);
        self.at += if hit { word.len() } else { 0 };
        hit
    }

    /// All bytes of a kind that come next.
    fn while_of(&mut self, belongs: impl Fn(u8) -> bool) -> &str {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn segments(&mut self) -> Result<Vec<Segment>, CommandError> {
        let mut segments = Vec::new();
        loop {
            let (descends, dotted) = match self.peek() {
                Some(b'.') if self.takes("..") => (true, true),
                Some(b'.') => (false, self.takes(".")),
                Some(b'[') => (false, false),
                _ => return Ok(segments),
            };
            let selectors = if self.takes("[") {
                let selectors = self.bracket()?;
                self.skip_blanks();
                if !self.takes("]") {
                    return Err(self.expected("`]`"));
                }
                selectors
            } else if dotted && self.takes("*") {
                vec![Selector::All]
            } else {
                match self.while_of(is_of_name) {
                    "" => return Err(self.expected("a name, `*` or `[`")),
                    name => vec![Selector::Name(name.into())],
                }
            };
            segments.push(Segment { descends, selectors });
        }
    }

    /// What is between `[` and `]`.
    fn bracket(&mut self) -> Result<Vec<Selector>, CommandError> {
        self.skip_blanks();
        match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Ok(vec![Selector::All])
            }
            Some(b'?') => {
                self.at += 1;
                self.filters += 1;
                if self.filters > MOST_FILTERS {
                    return Err(self.expected(&format!("at most {MOST_FILTERS} filters in each other")));
                }
                let brackets = std::mem::take(&mut self.brackets);
                let test = self.any()?;
                self.brackets = brackets;
                self.filters -= 1;
                Ok(vec![Selector::Filter(test)])
            }
            Some(b'"' | b'\'') => self.listed(|parser| Ok(Selector::Name(parser.string()?))),
            Some(b':') => self.slice(None),
            Some(b'-' | b'0'..=b'9') => {
                let first = self.integer()?;
                self.skip_blanks();
                if self.peek() == Some(b':') {
                    return self.slice(Some(first));
                }
                let mut selectors = vec![Selector::Index(first)];
                if self.takes(",") {
                    selectors.extend(self.listed(|parser| Ok(Selector::Index(parser.integer()?)))?);
                }
                Ok(selectors)
            }
            _ => Err(self.expected("`*`, `?`, a position or a name in quotes")),
        }
    }

    /// Several of a kind, with commas between them.
    fn listed(
        &mut self,
        read: impl Fn(&mut Self) -> Result<Selector, CommandError>,
    ) -> Result<Vec<Selector>, CommandError> {
        let mut all = Vec::new();
        loop {
            self.skip_blanks();
            all.push(read(self)?);
            self.skip_blanks();
            if !self.takes(",") {
                return Ok(all);
            }
        }
    }

    /// A slice from its first colon on.
    fn slice(&mut self, start: Option<i64>) -> Result<Vec<Selector>, CommandError> {
        let (mut end, mut step) = (None, 1);
        self.at += 1;
        self.skip_blanks();
        if matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            end = Some(self.integer()?);
            self.skip_blanks();
        }
        if self.takes(":") {
            self.skip_blanks();
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                let from = self.at;
                step = usize::try_from(self.integer()?).unwrap_or_default();
                if step == 0 {
                    self.at = from;
                    return Err(self.expected("a step of at least 1"));
                }
            }
        }
        Ok(vec![Selector::Slice(start, end, step)])
    }

    fn integer(&mut self) -> Result<i64, CommandError> {
        let from = self.at;
        self.takes("-");
        self.while_of(|byte| byte.is_ascii_digit());
        let number = self.text[from..self.at].parse();
        number.map_err(|_| {
            self.at = from;
            self.expected("a number")
        })
    }

    /// A string in quotes of either kind; a backslash stands before a quote and a backslash.
    fn string(&mut self) -> Result<Box<str>, CommandError> {
        let Some(quote @ (b'"' | b'\'')) = self.peek() else { return Err(self.expected("a quote")) };
        self.at += 1;
        let mut read = String::new();
        loop {
            read.push_str(self.while_of(|byte| byte != quote && byte != b'\\'));
            match self.peek() {
                None => return Err(self.expected("the closing quote")),
                Some(b'\\') => {
                    self.at += 1;
                    let Some(escaped @ (b'"' | b'\'' | b'\\')) = self.peek() else {
                        return Err(self.expected("a quote or a backslash"));
                    };
                    read.push(char::from(escaped));
                    self.at += 1;
                }
                Some(_) => {
                    self.at += 1;
                    return Ok(read.into());
                }
            }
        }
    }

    fn any(&mut self) -> Result<Test, CommandError> {
        self.joined("||", Parser::all, Test::Any)
    }

    fn all(&mut self) -> Result<Test, CommandError> {
        self.joined("&&", Parser::single, Test::All)
    }

    /// Tests with `word` between them.
    fn joined(
        &mut self,
        word: &str,
        read: fn(&mut Self) -> Result<Test, CommandError>,
        join: fn(Vec<Test>) -> Test,
    ) -> Result<Test, CommandError> {
        let first = read(self)?;
        let mut tests = vec![first];
        loop {
            self.skip_blanks();
            if !self.takes(word) {
                break;
            }
            tests.push(read(self)?);
        }
        Ok(if tests.len() > 1 { join(tests) } else { tests.remove(0) })
    }

    fn single(&mut self) -> Result<Test, CommandError> {
        self.skip_blanks();
        if self.takes("(") {
            self.brackets += 1;
            if self.brackets > MOST_BRACKETS {
                return Err(self.expected(&format!("at most {MOST_BRACKETS} brackets in each other")));
            }
            let test = self.any()?;
            self.skip_blanks();
            if !self.takes(")") {
                return Err(self.expected("`)`"));
            }
            self.brackets -= 1;
            return Ok(test);
        }
        let left = self.term()?;
        self.skip_blanks();
        let Some(operator) = self.operator() else { return Ok(Test::Exists(left)) };
        self.skip_blanks();
        Ok(match (operator, self.term()?) {
            (Operator::Matches, Term::Constant(Node::String(text))) => {
                Test::Matches(left, Pattern::new(&text))
            }
            (operator, right) => Test::Compare(left, operator, right),
        })
    }

    fn operator(&mut self) -> Option<Operator> {
        const OPERATORS: [(&str, Operator); 7] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("=~", Operator::Matches),
            ("<=", Operator::LessOrEqual),
            ("<", Operator::Less),
            (">=", Operator::GreaterOrEqual),
            (">", Operator::Greater),
        ];
        OPERATORS.iter().find(|(word, _)| self.takes(word)).map(|(_, operator)| *operator)
    }

    fn term(&mut self) -> Result<Term, CommandError> {
        let constant = match self.peek() {
            Some(b'@') => {
                self.at += 1;
                return Ok(Term::Current(self.segments()?));
            }
            Some(b'$') => {
                self.at += 1;
                return Ok(Term::Root(self.segments()?));
            }
            Some(b'"' | b'\'') => Node::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.takes("true") => Node::Bool(true),
            _ if self.takes("false") => Node::Bool(false),
            _ if self.takes("null") => Node::Null,
            _ => return Err(self.expected("`@`, `$`, a number, a string, `true`, `false` or `null`")),
        };
        Ok(Term::Constant(constant))
    }

    fn number(&mut self) -> Result<Node, CommandError> {
        let from = self.at;
        self.takes("-");
        self.while_of(|byte| byte.is_ascii_digit() || byte == b'.');
        if self.takes("e") || self.takes("E") {
            let _ = self.takes("-") || self.takes("+");
            self.while_of(|byte| byte.is_ascii_digit());
        }
        let spelled = &self.text[from..self.at];
        let float = spelled.parse().ok().filter(|float: &f64| float.is_finite());
        match (spelled.parse(), float) {
            (Ok(whole), _) => Ok(Node::Int(whole)),
            (_, Some(float)) => Ok(Node::Float(float)),
            _ => {
                self.at = from;
                Err(self.expected("a number"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_paths_are_refused_with_the_place() {
        for (path, wanted) in [
            ("", "position 3, expected a name, `*` or `[`"),
            ("$.", "position 3, expected a name, `*` or `[`"),
            ("$..", "position 4, expected a name, `*` or `[`"),
            ("$.a b", "position 4, expected `.`, `[` or the end"),
            ("$[", "position 3, expected `*`, `?`, a position or a name in quotes"),
            ("$[0", "position 4, expected `]`"),
            ("$[-]", "position 3, expected a number"),
            ("$[99999999999999999999]", "position 3, expected a number"),
            ("$[0:1:0]", "position 7, expected a step of at least 1"),
            ("$['a]", "position 6, expected the closing quote"),
            ("$['a\\b']", "position 6, expected a quote or a backslash"),
            ("$['a',0]", "position 7, expected a quote"),
            ("$[?]", "position 4, expected `@`, `$`, a number, a string, `true`, `false` or `null`"),
            ("$[?(@.a]", "position 8, expected `)`"),
            ("$[?(@.a==)]", "position 10, expected `@`, `$`, a number, a string, `true`, `false` or `null`"),
            ("$[?(@.a==1.2.3)]", "position 10, expected a number"),
        ] {
            let error = Path::parse(path.as_bytes()).expect_err(path);
            assert_eq!(error.text(), format!("ERR Error occurred on {wanted}"), "{path}");
        }
        assert!(Path::parse(b"$.\xff").is_err());
        assert!(Path::parse(&[b'a'; MOST_BYTES + 1]).is_err());
    }

    #[test]
    fn filters_and_brackets_are_bounded() {
        let filters = |count: usize| format!("$[?(1{})]", "&&@[?(1".repeat(count)) + &")]".repeat(count);
        let nested = |count: usize| {
            let inner = (1..count).fold("@.a".to_owned(), |inner, _| format!("@[?({inner})]"));
            format!("$[?({inner})]")
        };
        assert!(Path::parse(nested(MOST_FILTERS).as_bytes()).is_ok());
        assert!(Path::parse(nested(MOST_FILTERS + 1).as_bytes()).is_err());
        assert!(Path::parse(filters(100).as_bytes()).is_err());
        let brackets = |count: usize| format!("$[?{}1{}]", "(".repeat(count), ")".repeat(count));
        assert!(Path::parse(brackets(MOST_BRACKETS).as_bytes()).is_ok());
        assert!(Path::parse(brackets(MOST_BRACKETS + 1).as_bytes()).is_err());
    }

    #[test]
    fn legacy_paths_are_told_apart() {
        for (path, is_legacy, text, is_static) in [
            (".", true, "$", true),
            ("$", false, "$", true),
            ("a.b", true, "$.a.b", true),
            (".a[0]", true, "$.a[0]", true),
            ("[\"a\"]", true, "$.[\"a\"]", true),
            ("$a", true, "$.$a", true),
            ("$.a['b'][-1]", false, "$.a['b'][-1]", true),
            ("$..a", false, "$..a", false),
            ("$['a','b']", false, "$['a','b']", false),
            ("$[0:1]", false, "$[0:1]", false),
        ] {
            let read = Path::parse(path.as_bytes()).expect(path);
            assert_eq!(
                (read.is_legacy, &*read.text, read.is_static()),
                (is_legacy, text, is_static),
                "{path}"
            );
        }
    }
}
