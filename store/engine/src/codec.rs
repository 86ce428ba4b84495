//! Values and numbers as bytes, for the journal and the checkpoint: lengths first, numbers as LEB128, scores as the
//! bits of their double. Reading trusts nothing.

use crate::Value;
use crate::value::stream::Part;
use crate::value::{Hash, List, Set, Stream, ZSet};

/// Bytes that are not what was written: cut off, or never ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Writes a number, small ones in few bytes.
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes bytes behind their length.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// What [`put_number`] wrote.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// A count or position.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    /// What [`put_bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count()?;
        self.take(len)
    }

    /// A score; never NaN.
    pub fn score(&mut self) -> Result<f64, Malformed> {
        let bits = self.take(8)?.try_into().map_err(|_| Malformed)?;
        let score = f64::from_le_bytes(bits);
        if score.is_nan() { Err(Malformed) } else { Ok(score) }
    }
}

const STRING: u8 = 0;
const LIST: u8 = 1;
const HASH: u8 = 2;
const SET: u8 = 3;
const ZSET: u8 = 4;
const STREAM: u8 = 5;

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
            out.push(HASH);
            put_number(hash.len() as u64, out);
            for (field, value) in hash.iter() {
                put_bytes(field, out);
                put_bytes(value, out);
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
    }
}

/// Writes the empty collection of the value's type; the elements are kept elsewhere.
pub fn put_shape(value: &Value, out: &mut Vec<u8>) {
    out.push(match value {
        Value::String(_) => STRING,
        Value::List(_) => LIST,
        Value::Hash(_) => HASH,
        Value::Set(_) => SET,
        Value::ZSet(_) => ZSET,
        Value::Stream(_) => STREAM,
    });
    out.push(0);
}

/// Reads what [`put_value`] wrote.
pub fn value(input: &mut Input<'_>) -> Result<Value, Malformed> {
    let kind = input.byte()?;
    if kind == STRING {
        return Ok(Value::string(input.bytes()?));
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
        HASH => {
            let mut hash = Hash::default();
            for _ in 0..count {
                let (field, value) = (input.bytes()?, input.bytes()?);
                hash.insert(field, value);
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
        fn numbers_come_back(number: u64) {
            let mut out = Vec::new();
            put_number(number, &mut out);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Ok(number));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut input = Input(&bytes);
            let _ = input.number();
            let _ = value(&mut Input(&bytes));
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_malformed() {
        assert_eq!(Input(&[0xFF; 9]).number(), Err(Malformed));
        let most = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(Input(&most).number(), Ok(u64::MAX));
        let more = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02];
        assert_eq!(Input(&more).number(), Err(Malformed));
    }
}
