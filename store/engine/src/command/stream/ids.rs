//! IDs as calls spell them.

use crate::error::CommandError;
use crate::value::stream::{self, Id, Spelled};

/// `-ERR Invalid stream ID specified as stream command argument`
pub const INVALID_ID: CommandError =
    CommandError::new("ERR Invalid stream ID specified as stream command argument");

/// Reads an ID whose number is not left to us.
pub fn id_of(text: &[u8]) -> Result<Id, CommandError> {
    id_with(text, 0)
}

fn id_with(text: &[u8], missing_seq: u64) -> Result<Id, CommandError> {
    match stream::parse(text, missing_seq) {
        Some(Spelled { ms, seq: Some(seq) }) => Ok(Id { ms, seq }),
        _ => Err(INVALID_ID),
    }
}

/// Reads an ID, or the least or greatest one.
pub fn loose_id(text: &[u8], missing_seq: u64) -> Result<Id, CommandError> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        _ => id_with(text, missing_seq),
    }
}

/// Reads IDs.
pub fn ids_of(texts: &[&[u8]]) -> Result<Vec<Id>, CommandError> {
    texts.iter().map(|text| id_of(text)).collect()
}

/// Reads the start of an interval: the first ID in it.
pub fn from_id(text: &[u8]) -> Result<Id, CommandError> {
    match text {
        [b'(', text @ ..] if !text.is_empty() => {
            id_of(text)?.next().ok_or(CommandError::new("ERR invalid start ID for the interval"))
        }
        _ => loose_id(text, 0),
    }
}

/// Reads the end of an interval: the last ID in it.
pub fn to_id(text: &[u8]) -> Result<Id, CommandError> {
    match text {
        [b'(', text @ ..] if !text.is_empty() => {
            let end = id_with(text, u64::MAX)?;
            end.previous().ok_or(CommandError::new("ERR invalid end ID for the interval"))
        }
        _ => loose_id(text, u64::MAX),
    }
}
