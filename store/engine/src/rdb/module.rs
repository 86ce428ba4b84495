//! What modules of Redis have written: their names, and how to skip what may be skipped.

use std::io::Read;

use super::codec::{Decoder, Fault};

/// Marks what modules say of the next key, in Redis since 8.6.
pub const KEY_META: u8 = 243;

/// Redis has at most so many classes of it.
const MOST_CLASSES: u64 = 7;
/// The flag of a class that a server without its module may ignore.
const MAY_BE_IGNORED: u32 = 1;

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The name of a type of a module by its ID: nine characters of six bits, then ten bits of a version.
pub fn type_name(id: u64) -> String {
    name(id >> 10, 9, b"-_")
}

/// `last` are the two characters behind the letters, of which Redis has two orders.
fn name(bits: u64, len: u32, last: &[u8; 2]) -> String {
    let characters: Vec<char> = LETTERS.iter().chain(last).map(|byte| char::from(*byte)).collect();
    (0..len).rev().map(|at| characters[(bits >> (6 * at)) as usize % characters.len()]).collect()
}

/// Skips what modules say of a key, behind its mark, if all of it may be ignored.
pub fn skip_key_meta<R: Read>(from: &mut Decoder<R>) -> Result<(), Fault> {
    let classes = from.length()?;
    if classes > MOST_CLASSES {
        return Err(from.damage("a key has too many classes of metadata"));
    }
    for _ in 0..classes {
        // A name of four characters, five bits of a version, three of flags.
        let class = u32::from_le_bytes(from.bytes()?);
        if class & MAY_BE_IGNORED == 0 {
            let name = name(u64::from(class >> 8), 4, b"_-");
            return Err(from.foreign(format!("keys with metadata of the module class META-{name}")));
        }
        skip_value(from)?;
    }
    Ok(())
}

/// Skips what a module has written, part by part, up to its end.
pub fn skip_value<R: Read>(from: &mut Decoder<R>) -> Result<(), Fault> {
    loop {
        match from.length()? {
            0 => return Ok(()),
            1 | 2 => drop(from.length()?),
            3 => drop(from.bytes::<4>()?),
            4 => drop(from.bytes::<8>()?),
            5 => from.skip_string()?,
            _ => return Err(from.damage("data of a module of unknown form")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ID of a type, as Redis computes it.
    fn id(name: &[u8; 9], version: u64) -> u64 {
        let place = |byte| LETTERS.iter().chain(b"-_").position(|letter| *letter == byte).expect("a letter");
        name.iter().fold(0, |id, byte| id << 6 | place(*byte) as u64) << 10 | version
    }

    #[test]
    fn the_id_of_documents_is_that_of_their_type() {
        assert_eq!(crate::rdb::json::ID, id(b"ReJSON-RL", 3));
    }

    #[test]
    fn types_of_modules_have_names() {
        for name in [b"ReJSON-RL", b"vectorset", b"MBbloom--", b"A_9zZ-a0B"] {
            assert_eq!(type_name(id(name, 3)).as_bytes(), name);
        }
    }

    #[test]
    fn metadata_is_skipped_or_named() {
        let class = |flags: u32| ((1 << 18 | 2 << 12 | 62 << 6 | 63) << 8 | 1 << 3 | flags).to_le_bytes();
        let value = b"\x01\x05\x02\x80\0\0\0\x07\x03abcd\x04abcdefgh\x05\x02xy\0";
        let skipped = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bytes);
            skip_key_meta(&mut decoder).map(|()| decoder.offset()).map_err(|fault| fault.to_string())
        };
        let two = [&b"\x02"[..], &class(1), value, &class(7), b"\0"].concat();
        assert_eq!(skipped(&two), Ok(two.len() as u64));
        let wanted = "byte 5: not supported: keys with metadata of the module class META-BC_-";
        assert_eq!(skipped(&[&b"\x01"[..], &class(6), value].concat()), Err(wanted.into()));
        for (bytes, wanted) in [
            (&b"\x08"[..], "byte 1: damaged data: a key has too many classes of metadata"),
            (b"\x01\x01\0\0\0\x06", "byte 6: damaged data: data of a module of unknown form"),
            (b"\x01\x01\0\0\0\x05\x09xy", "byte 7: the data end here"),
        ] {
            assert_eq!(skipped(bytes), Err(wanted.into()));
        }
    }
}
