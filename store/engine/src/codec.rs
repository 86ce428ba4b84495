//! Values as bytes, for the journal and the checkpoint, in the encodings of [`crate::coding`].

use std::num::NonZeroU64;

use crate::Value;
pub use crate::coding::{Input, Malformed, put_bytes, put_number};
use crate::value::json::{put_node, read_node};
use crate::value::stream::Part;
use crate::value::{Hash, Json, List, Set, Stream, ZSet};

const STRING: u8 = 0;
const LIST: u8 = 1;
const HASH: u8 = 2;
const SET: u8 = 3;
const ZSET: u8 = 4;
const STREAM: u8 = 5;
/// A hash some of whose fields expire.
const HASH_EXPIRING: u8 = 6;
const JSON: u8 = 7;

/// Writes a string value.
pub fn put_string(bytes: &[u8], out: &mut Vec<u8>) {
    begin_string(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes the beginning of a string of `len` bytes, which follow.
pub fn begin_string(len: usize, out: &mut Vec<u8>) {
    out.push(STRING);
    put_number(len as u64, out);
}

/// Writes a value of any type with all its elements.
pub fn put_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => put_string(&text.as_bytes(), out),
        Value::List(list) => {
            out.push(LIST);
            put_number(list.len() as u64, out);
            list.iter_from(0).for_each(|element| put_bytes(element, out));
        }
        Value::Hash(hash) => {
            let expires = hash.is_expiring();
            out.push(if expires { HASH_EXPIRING } else { HASH });
            put_number(hash.len() as u64, out);
            for (field, value) in hash.iter() {
                put_bytes(field, out);
                put_bytes(value, out);
                if expires {
                    put_number(hash.expiry(field).map_or(0, NonZeroU64::get), out);
                }
            }
        }
        Value::Set(set) => {
            out.push(SET);
            put_number(set.len() as u64, out);
            set.iter().for_each(|member| put_bytes(&member, out));
        }
        Value::ZSet(zset) => {
            out.push(ZSET);
            put_number(zset.len() as u64, out);
            for (member, score) in zset.iter_from(0) {
                put_bytes(member, out);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        Value::Stream(stream) => {
            out.push(STREAM);
            put_number(stream.part_count() as u64, out);
            for part in stream.parts() {
                put_bytes(&part.encoded(), out);
                put_bytes(&stream.part(part).unwrap_or_default(), out);
            }
        }
        Value::Json(json) => {
            out.push(JSON);
            put_node(json.root(), out);
        }
    }
}

/// Writes the empty collection of the value's type; the elements are kept elsewhere, with the times at which fields of
/// a hash expire.
pub fn put_shape(value: &Value, out: &mut Vec<u8>) {
    out.push(match value {
        Value::String(_) => STRING,
        Value::List(_) => LIST,
        Value::Hash(_) => HASH,
        Value::Set(_) => SET,
        Value::ZSet(_) => ZSET,
        Value::Stream(_) => STREAM,
        // `null`: a document is not kept in parts.
        Value::Json(_) => JSON,
    });
    out.push(0);
}

/// Reads what [`put_value`] wrote.
pub fn value(input: &mut Input<'_>) -> Result<Value, Malformed> {
    let kind = input.byte()?;
    if kind == STRING {
        return Ok(Value::string(input.bytes()?));
    }
    if kind == JSON {
        return Ok(Value::Json(Json::new(read_node(input, 0)?)));
    }
    // Memory grows with what is there, never by the count.
    let count = input.count()?;
    Ok(match kind {
        LIST => {
            let mut list = List::default();
            for _ in 0..count {
                list.push(false, input.bytes()?);
            }
            Value::List(list)
        }
        HASH | HASH_EXPIRING => {
            let mut hash = Hash::default();
            for _ in 0..count {
                let (field, value) = (input.bytes()?, input.bytes()?);
                hash.insert(field, value);
                if kind == HASH_EXPIRING
                    && let Some(at) = NonZeroU64::new(input.number()?)
                {
                    hash.set_expiry(field, Some(at));
                }
            }
            Value::Hash(hash)
        }
        SET => {
            let mut set = Set::default();
            for _ in 0..count {
                set.insert(input.bytes()?);
            }
            Value::Set(set)
        }
        ZSET => {
            let mut zset = ZSet::new();
            for _ in 0..count {
                let member = input.bytes()?;
                zset.insert(member, input.score()?);
            }
            Value::ZSet(zset)
        }
        STREAM => {
            let mut stream = Stream::default();
            for _ in 0..count {
                let part = Part::decoded(input.bytes()?)?;
                stream.put_part(part, input.bytes()?)?;
            }
            Value::Stream(stream)
        }
        _ => return Err(Malformed),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = value(&mut Input(&bytes));
        }
    }
}
