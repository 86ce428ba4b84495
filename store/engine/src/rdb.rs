//! Redis' serialised form: values as DUMP gives them, and whole files.
//!
//! What is read is all that Redis has written up to 8.10, and Valkey up to 9.2, except what only modules or newer
//! commands make, which is refused by its name. What is written is version 10, that of Redis 7.0, or a newer
//! [`Version`]. Redis 7.0 knows no hashes whose fields expire: they are written as in Redis 7.4 or as in Valkey 9.

mod codec;
mod crc64;
mod estimate;
pub mod file;
mod json;
pub mod key;
mod kind;
mod lzf;
mod module;
mod object;
mod packed;
mod stream;
mod template;
mod version;

pub use codec::{Cause, Decoder, Fault, write_string};
pub use estimate::steps_to_load;
pub use version::{Dialect, Version};

use std::io::{self, Write};

use crate::{CommandError, Value, Work};
use crc64::crc64;
use object::Encoding;
use template::Templates;

/// Bytes of version and checksum.
const FOOTER: usize = 10;
/// The longest string of a value, as commands make them.
const LONGEST: u64 = 512 << 20;
/// Marks a library of functions.
pub const LIBRARY: u8 = 245;

/// A payload that [`unseal`] refuses.
pub const WRONG_SEAL: CommandError = CommandError::new("ERR DUMP payload version or checksum are wrong");

/// What DUMP gives, without version and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The bytes.
    pub body: &'a [u8],
    /// Whose form they have, which the version has said.
    pub dialect: Dialect,
}

/// What is said of a key beside its value and expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyMeta {
    /// Seconds since it was last used.
    pub idle_s: Option<u64>,
    /// How often it is used, on Redis' logarithmic scale.
    pub freq: Option<u8>,
    /// Whether it stays when memory is short.
    pub sticky: bool,
}

/// Ends `body` with the version of Redis 7.0 and a checksum.
pub fn seal(body: &mut Vec<u8>) {
    seal_as(Version::Redis7_0, body);
}

/// Ends `body` with version and checksum.
pub fn seal_as(version: Version, body: &mut Vec<u8>) {
    body.extend_from_slice(&version.number().to_le_bytes());
    let sum = crc64(0, body);
    body.extend_from_slice(&sum.to_le_bytes());
}

/// What was sealed, if the version is one that is read and the checksum is right.
pub fn unseal(payload: &[u8]) -> Option<Payload<'_>> {
    let (body, footer) = payload.split_at(payload.len().checked_sub(FOOTER)?);
    let (version, sum) = footer.split_at(2);
    let version = u16::from_le_bytes(version.try_into().expect("two bytes"));
    let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
    let dialect = Dialect::of_version(version)?;
    (sum == crc64(0, &payload[..payload.len() - 8])).then_some(Payload { body, dialect })
}

/// What DUMP gives for `value`. Only for a hash whose fields expire it makes a difference for whom it is.
pub fn dump(value: &Value, reader: Dialect) -> Vec<u8> {
    let mut payload = Vec::new();
    let version = write_value(value, reader, &mut payload).expect("memory takes everything");
    seal_as(version, &mut payload);
    payload
}

/// Writes what DUMP gives for `value`, up to the seal, and returns the version for that. The only errors are those of `out`.
pub fn write_value(value: &Value, reader: Dialect, out: &mut impl Write) -> io::Result<Version> {
    let form = Encoding::of(value, reader);
    out.write_all(&[form.kind])?;
    form.write(out)?;
    Ok(match (value, reader) {
        (Value::Hash(hash), Dialect::Redis) if hash.is_expiring() => Version::Redis7_4,
        (Value::Hash(hash), Dialect::Valkey) if hash.is_expiring() => Version::Valkey9_0,
        _ => Version::Redis7_0,
    })
}

/// The value of an unsealed payload. Like Redis, does not ask what comes behind it. If `work` ends, which is for the caller to
/// ask, the result is of no use.
pub fn load(payload: Payload<'_>, work: &Work) -> Result<Value, Fault> {
    let Payload { body, dialect } = payload;
    let mut decoder = Decoder::limited(body, LONGEST.min(work.memory_limit() as u64));
    let mut kind = decoder.byte()?;
    if dialect == Dialect::Redis && kind == module::KEY_META {
        module::skip_key_meta(&mut decoder)?;
        kind = decoder.byte()?;
    }
    let loaded = object::read(kind, dialect, &Templates::default(), &mut decoder, work);
    if let Err(Fault { cause: Cause::TooLong(len), .. }) = &loaded {
        // The work ends, unless it is longer than any string may be.
        work.has_memory(*len as usize);
    }
    loaded?.ok_or_else(|| decoder.damage("an empty collection"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_that_and_nothing_newer() {
        let mut empty = Vec::new();
        seal(&mut empty);
        // What FUNCTION DUMP of redis-server 7.0.15 gives without a library.
        assert_eq!(empty, b"\x0a\x00\x5d\x9b\x5c\x40\x0f\x7f\xa2\xda");
        let sealed_as = |version: u16| {
            let mut payload = version.to_le_bytes().to_vec();
            let sum = crc64(0, &payload);
            payload.extend_from_slice(&sum.to_le_bytes());
            payload
        };
        let dialect = |version| unseal(&sealed_as(version)).map(|payload| payload.dialect);
        assert!([0, 9, 12, 15].iter().all(|version| dialect(*version) == Some(Dialect::Redis)));
        assert!([80, 81].iter().all(|version| dialect(*version) == Some(Dialect::Valkey)));
        assert!([16, 79, 82, u16::MAX].iter().all(|version| dialect(*version).is_none()));
        assert_eq!(unseal(b"short"), None);
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let payload = dump(&Value::string(b"a text"), Dialect::Redis);
        assert!(unseal(&payload).is_some());
        for bit in 0..8 * payload.len() {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&damaged), None, "{bit}");
        }
    }
}
