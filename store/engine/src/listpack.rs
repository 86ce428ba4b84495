//! Listpacks, Redis' rows of texts and numbers in one string: their elements, one by one.
//!
//! The readers check all that Redis checks with `sanitize-dump-payload yes`.

use std::borrow::Cow;

use crate::number;
use crate::value::Str;

/// What is wrong with a packed string.
pub type Damage = &'static str;

pub(crate) const SHORT: Damage = "a packed collection ends too early";
pub(crate) const FORM: Damage = "an element of unknown form in a packed collection";
pub(crate) const LINK: Damage =
    "an element of a packed collection does not know how long it or its neighbour is";

/// Ends a listpack, as it does those that came before.
pub const END: u8 = 0xff;
/// A count of this or more is not written down.
pub const UNCOUNTED: usize = 0xffff;
/// Size and count at the start of a listpack.
pub const HEADER: usize = 6;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A number, which stands for its spelling.
    Number(i64),
}

impl<'a> Item<'a> {
    /// The element as a text.
    pub fn text(self) -> Cow<'a, [u8]> {
        match self {
            Item::Text(text) => Cow::Borrowed(text),
            Item::Number(number) => spelled(number),
        }
    }

    /// The element as a number, if it spells one.
    pub fn number(self) -> Option<i64> {
        match self {
            Item::Text(text) => number::parse_i64(text),
            Item::Number(number) => Some(number),
        }
    }
}

/// A number as an element.
pub fn spelled(number: i64) -> Cow<'static, [u8]> {
    Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec())
}

/// Takes the next bytes.
pub(crate) fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Damage> {
    let (taken, after) = rest.split_at_checked(len).ok_or(SHORT)?;
    *rest = after;
    Ok(taken)
}

/// Takes the next `N` bytes.
pub(crate) fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Damage> {
    Ok(take(rest, N)?.try_into().expect("as many as were asked for"))
}

/// A signed number of less than four bytes, the least first.
pub(crate) fn small(bytes: &[u8]) -> i64 {
    let mut wide = [0; 4];
    wide[4 - bytes.len()..].copy_from_slice(bytes);
    i64::from(i32::from_le_bytes(wide) >> (8 * (4 - bytes.len())))
}

/// Takes the next element.
pub fn item<'a>(rest: &mut &'a [u8]) -> Result<Item<'a>, Damage> {
    let start = *rest;
    let [first] = array(rest)?;
    let element = match first {
        0..0x80 => Item::Number(first.into()),
        0x80..0xc0 => Item::Text(take(rest, usize::from(first & 0x3f))?),
        0xc0..0xe0 => {
            let [second] = array(rest)?;
            // 13 bits with a sign.
            let bits = u16::from_be_bytes([first << 3 | second >> 5, second << 3]) as i16;
            Item::Number(i64::from(bits >> 3))
        }
        0xe0..0xf0 => {
            let [second] = array(rest)?;
            Item::Text(take(rest, usize::from(u16::from_be_bytes([first & 0xf, second])))?)
        }
        0xf0 => {
            let len = u32::from_le_bytes(array(rest)?);
            Item::Text(take(rest, len as usize)?)
        }
        0xf1 => Item::Number(small(take(rest, 2)?)),
        0xf2 => Item::Number(small(take(rest, 3)?)),
        0xf3 => Item::Number(small(take(rest, 4)?)),
        0xf4 => Item::Number(i64::from_le_bytes(array(rest)?)),
        _ => return Err(FORM),
    };
    let len = start.len() - rest.len();
    let linked = if len < 128 {
        array(rest)? == [len as u8]
    } else {
        let (back, count) = back_length(len);
        take(rest, count)? == &back[..count]
    };
    if linked { Ok(element) } else { Err(LINK) }
}

/// The length of an element as it stands behind it, to be read backwards: seven bits to a byte, all but the first
/// with a mark.
fn back_length(len: usize) -> ([u8; 5], usize) {
    // The limits are Redis' own, each one less than would do.
    let count = match len {
        0..=127 => 1,
        128..16383 => 2,
        16383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (at, byte) in bytes[..count].iter_mut().enumerate() {
        let mark = if at == 0 { 0 } else { 0x80 };
        *byte = (len >> (7 * (count - 1 - at)) & 0x7f) as u8 | mark;
    }
    (bytes, count)
}

/// Appends an element, as a number if it spells one.
pub fn push(out: &mut Vec<u8>, element: &[u8]) {
    match Str::integer_of(element) {
        Some(number) => push_number(out, number),
        None => linked(out, |out| text(out, element)),
    }
}

/// Appends a number.
pub fn push_number(out: &mut Vec<u8>, value: i64) {
    linked(out, |out| number(out, value));
}

/// Appends the length of what `write` appends.
fn linked(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let len = out.len() - start;
    if len < 128 {
        return out.push(len as u8);
    }
    let (back, count) = back_length(len);
    out.extend_from_slice(&back[..count]);
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..64 => out.push(0x80 | len as u8),
        len @ 64..4096 => out.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
        len => {
            out.push(0xf0);
            out.extend_from_slice(&(len as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
}

fn number(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_le_bytes();
    let (kind, len) = match number {
        0..128 => return out.push(number as u8),
        -4096..4096 => {
            return out.extend_from_slice(&(0xc000 | number as u16 & 0x1fff).to_be_bytes());
        }
        -0x8000..0x8000 => (0xf1, 2),
        -0x80_0000..0x80_0000 => (0xf2, 3),
        -0x8000_0000..0x8000_0000 => (0xf3, 4),
        _ => (0xf4, 8),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[..len]);
}
