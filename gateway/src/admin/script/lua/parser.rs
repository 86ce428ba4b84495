//! The place in a program that is read, and the scopes of local variables there.

use std::collections::HashSet;

use super::lexer::Token;
use super::outline::{Argument, Global, Member, Outline, SyntaxError};
use super::text::Text;

/// Nested expressions and blocks; the Lua of the sandbox allows fewer.
const DEEPEST: usize = 250;

pub(super) type Parsed<T> = Result<T, SyntaxError>;

/// What is known of an expression.
#[derive(Clone)]
pub(super) enum Expr {
    Global(String, u32),
    /// A local variable and its value.
    Local(String, Option<Known>),
    Member(Member),
    Text(Text),
    /// Any number of values.
    Open,
    Other,
}

/// A value of a local variable.
#[derive(Clone)]
pub(super) enum Known {
    /// A member of a global table.
    Member(Member),
    Text(Text),
}

pub(super) struct Local {
    pub(super) name: String,
    pub(super) value: Option<Known>,
    number: usize,
}

/// An argument that is known if nothing is assigned to the variables that it is read from.
struct Conditional {
    call: usize,
    at: usize,
    variables: Vec<usize>,
}

pub(super) struct Parser {
    tokens: Vec<(Token, u32)>,
    pub(super) at: usize,
    depth: usize,
    pub(super) scopes: Vec<Vec<Local>>,
    pub(super) outline: Outline,
    /// How many local variables there were.
    declared: usize,
    /// Those to which something was assigned after their declaration.
    reassigned: HashSet<usize>,
    conditional: Vec<Conditional>,
}

impl Parser {
    /// A parser at the beginning of a program.
    pub(super) fn new(tokens: Vec<(Token, u32)>) -> Parser {
        Parser {
            tokens,
            at: 0,
            depth: 0,
            scopes: vec![Vec::new()],
            outline: Outline::default(),
            declared: 0,
            reassigned: HashSet::new(),
            conditional: Vec::new(),
        }
    }

    /// What was found, at the end of the program.
    pub(super) fn finish(mut self) -> Outline {
        for Conditional { call, at, variables } in self.conditional {
            if variables.iter().any(|variable| self.reassigned.contains(variable)) {
                self.outline.calls[call].args[at] = Argument::Other;
            }
        }
        self.outline
    }

    pub(super) fn peek(&self) -> &Token {
        self.ahead(0)
    }

    pub(super) fn ahead(&self, count: usize) -> &Token {
        self.tokens.get(self.at + count).map_or(&Token::End, |(token, _)| token)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if *found == word)
    }

    pub(super) fn accept(&mut self, word: &str) -> bool {
        let found = self.is(word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, word: &str) -> Parsed<()> {
        if self.accept(word) { Ok(()) } else { self.expected(&format!("'{word}'")) }
    }

    pub(super) fn expected<T>(&self, what: &str) -> Parsed<T> {
        Err(SyntaxError::new(self.line(), format!("{what} expected")))
    }

    pub(super) fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Token::Name(name) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.expected("<name>"),
        }
    }

    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            return Err(SyntaxError::new(self.line(), "the program is nested too deeply"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub(super) fn in_scope<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.scopes.push(Vec::new());
        let result = self.nested(read);
        self.scopes.pop();
        result
    }

    pub(super) fn declare(&mut self, name: String, value: Option<Known>) {
        let number = self.declared;
        self.declared += 1;
        let value = match value {
            Some(Known::Text(text)) => text.read_from(number).map(Known::Text),
            other => other,
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Local { name, value, number });
        }
    }

    /// Notes that the argument `at` of the next call is read from these variables.
    pub(super) fn depends(&mut self, at: usize, variables: &[usize]) {
        if !variables.is_empty() {
            let call = self.outline.calls.len();
            self.conditional.push(Conditional { call, at, variables: variables.to_vec() });
        }
    }

    pub(super) fn local(&mut self, name: &str) -> Option<&mut Local> {
        self.scopes.iter_mut().rev().flat_map(|scope| scope.iter_mut().rev()).find(|local| local.name == name)
    }

    pub(super) fn global(&mut self, name: &str, line: u32, is_write: bool) {
        self.outline.globals.push(Global { name: name.to_owned(), line, is_write });
    }

    /// Notes that the value of an expression is used.
    pub(super) fn used(&mut self, expr: &Expr) {
        if let Expr::Global(name, line) = expr {
            self.global(name, *line, false);
        }
    }

    /// Notes that a local variable has another value from now on. Whether there is one.
    pub(super) fn reassign(&mut self, name: &str) -> bool {
        let Some(local) = self.local(name) else { return false };
        local.value = None;
        let number = local.number;
        self.reassigned.insert(number);
        true
    }

    pub(super) fn assigned(&mut self, target: &Expr) {
        match target {
            Expr::Global(name, line) => self.global(name, *line, true),
            Expr::Local(name, _) => {
                self.reassign(name);
            }
            _ => {}
        }
    }
}
