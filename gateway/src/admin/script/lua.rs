//! What a Lua 5.1 program names: its globals, and its calls of `redis.call` and other members of global tables.
//!
//! The program is read for its scopes only. Whether it compiles is decided by the Lua of the sandbox, which says more about
//! what is wrong.

mod expressions;
mod lexer;
mod outline;
mod parser;
mod statements;
#[cfg(test)]
mod tests;
mod text;

use self::lexer::Token;
use self::parser::Parser;

pub use outline::{Argument, Call, Outline, SyntaxError};

/// Reads a program.
pub fn outline(text: &[u8]) -> Result<Outline, SyntaxError> {
    let mut parser = Parser::new(lexer::tokens(text)?);
    parser.block()?;
    match parser.peek() {
        Token::End => Ok(parser.finish()),
        _ => parser.expected("<eof>"),
    }
}
