//! What is known of a program.

use std::fmt;
use std::sync::Arc;

/// What a program names.
#[derive(Debug, Default)]
pub struct Outline {
    /// Each use of a global variable.
    pub globals: Vec<Global>,
    /// Each call of a member of a global table, such as `string.rep`.
    pub calls: Vec<Call>,
    /// The functions that are local to the whole program.
    pub local_functions: Vec<String>,
}

/// A use of a global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// The line of the use.
    pub line: u32,
    /// It is assigned.
    pub is_write: bool,
}

/// A member of a global table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of the table.
    pub table: String,
    /// The name of the member.
    pub name: String,
    /// The line of the use.
    pub line: u32,
}

/// A call of a member of a global table, also by a local variable that has it as its initial value.
#[derive(Debug)]
pub struct Call {
    /// What is called.
    pub function: Member,
    /// The arguments.
    pub args: Vec<Argument>,
    /// The last argument may stand for any number of arguments, as `...` and calls do.
    pub is_open: bool,
}

/// What is known of an argument, which may be a local variable to which nothing else is ever assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A string or a number.
    Literal(Arc<[u8]>),
    /// A concatenation of literals and elements of `ARGV` and, if `from_keys`, of `KEYS`.
    Built {
        /// Whether an element of `KEYS` is a part of it.
        from_keys: bool,
    },
    /// Nothing is known.
    Other,
}

impl Argument {
    /// The text of a literal.
    pub fn literal(&self) -> Option<&[u8]> {
        match self {
            Argument::Literal(text) => Some(text),
            _ => None,
        }
    }
}

/// Why a program could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line.
    pub line: u32,
    /// What is wrong there.
    pub text: String,
}

impl SyntaxError {
    /// An error in a line.
    pub fn new(line: u32, text: impl Into<String>) -> SyntaxError {
        SyntaxError { line, text: text.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}
