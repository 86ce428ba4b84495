//! Texts of which it is known what they are made of.

use std::sync::Arc;

use super::outline::Argument;

/// Most local variables that a text may depend on: with more, nothing is known of it.
const MOST_VARIABLES: usize = 16;

/// What an expression consists of.
#[derive(Clone)]
pub(super) enum Parts {
    /// A string or a number.
    Literal(Arc<[u8]>),
    /// An element of `KEYS`.
    Key,
    /// An element of `ARGV`.
    Argument,
    /// A concatenation of the others.
    Built { from_keys: bool },
}

/// A text, if nothing is assigned later to the local variables that it is read from.
#[derive(Clone)]
pub(super) struct Text {
    pub(super) parts: Parts,
    /// The numbers of these variables.
    pub(super) variables: Vec<usize>,
}

impl Text {
    pub(super) fn of(parts: Parts) -> Text {
        Text { parts, variables: Vec::new() }
    }

    pub(super) fn literal(text: &[u8]) -> Text {
        Text::of(Parts::Literal(text.into()))
    }

    /// The same, read from a variable.
    pub(super) fn read_from(mut self, variable: usize) -> Option<Text> {
        self.variables.push(variable);
        (self.variables.len() <= MOST_VARIABLES).then_some(self)
    }

    /// This one and another behind it.
    pub(super) fn followed_by(mut self, mut other: Text) -> Option<Text> {
        self.variables.append(&mut other.variables);
        self.variables.sort_unstable();
        self.variables.dedup();
        let from_keys = self.has_key() || other.has_key();
        let variables = self.variables;
        (variables.len() <= MOST_VARIABLES).then_some(Text { parts: Parts::Built { from_keys }, variables })
    }

    fn has_key(&self) -> bool {
        matches!(self.parts, Parts::Key | Parts::Built { from_keys: true })
    }

    /// What it is as an argument.
    pub(super) fn argument(&self) -> Argument {
        match &self.parts {
            Parts::Literal(text) => Argument::Literal(text.clone()),
            Parts::Built { from_keys } => Argument::Built { from_keys: *from_keys },
            // They are names that a client has passed.
            Parts::Key | Parts::Argument => Argument::Other,
        }
    }
}
