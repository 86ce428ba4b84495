//! What commands cost, as their rows say it.

use crate::Args;
use crate::steps::BYTES_PER_STEP;
use crate::value::{Str, Value};

/// How the work of a command grows with the values under its keys. Commands that touch no more than a few elements,
/// such as HGET, keep [`Cost::Inferred`] and its meaning for [`flags::FAST`].
#[derive(Clone, Copy)]
pub enum Cost {
    /// [`Cost::Constant`] of commands that are [`flags::FAST`], [`Cost::Values`] of others.
    Inferred,
    /// Not at all, but for the bytes of one element.
    Constant,
    /// So many steps for each element, or [`BYTES_PER_STEP`] bytes, of all values under its keys.
    Values(u32),
    /// As many elements of the first key's value as this says of a value with that many elements; of a string, bytes.
    Elements(fn(Args<'_>, usize) -> usize),
    /// As many steps as this says of the size of the first key's value, which may be small or missing: the arguments say how
    /// much is done with it.
    Arguments(fn(Args<'_>, Size) -> u64),
    /// A step for so many pairs of bytes, one of each value under its keys.
    Product(usize),
    /// With the number of keys in the database, as this says of so many.
    Keyspace(fn(Args<'_>, usize) -> usize),
}

/// The size of a value, as far as it says what commands on it cost.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Size {
    /// Elements of a collection; of a string, bytes.
    pub elements: usize,
    /// Bytes on the heap.
    pub bytes: usize,
    /// Bytes that a string can have without being copied to another place.
    pub capacity: usize,
    /// Whether it is a string.
    pub is_string: bool,
}

impl Size {
    /// The size of `value`.
    pub fn of(value: &Value) -> Size {
        let bytes = value.bytes();
        let elements = match value {
            Value::String(text) => text.len(),
            Value::List(list) => list.len(),
            Value::Hash(hash) => hash.len(),
            Value::Set(set) => set.len(),
            Value::ZSet(zset) => zset.len(),
            Value::Stream(stream) => stream.len(),
            Value::Json(json) => json.len_by_bytes(),
        };
        let capacity = match value {
            Value::String(Str::Raw(text)) => text.capacity(),
            _ => elements,
        };
        Size { elements, bytes, capacity, is_string: matches!(value, Value::String(_)) }
    }

    /// Steps that `elements` of its elements cost.
    pub fn steps(self, elements: usize) -> u64 {
        if self.is_string {
            return (elements / BYTES_PER_STEP) as u64;
        }
        let each = 1 + self.bytes / self.elements.max(1) / BYTES_PER_STEP;
        (elements as u64).saturating_mul(each as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_elements_cost_more() {
        let size =
            Size { elements: 10, bytes: 10 * 1024 * BYTES_PER_STEP, is_string: false, ..Size::default() };
        assert_eq!(size.steps(3), 3 * 1025);
        let text = Size { elements: 1 << 20, bytes: 1 << 20, is_string: true, ..Size::default() };
        assert_eq!(text.steps(1 << 20), (1 << 20) / BYTES_PER_STEP as u64);
    }
}
