//! Redis' serialised form: values as DUMP gives them, and whole files.
//!
//! What is written is version 10, that of Redis 7.0; what is read is all that Redis has written up to 7.4, and Valkey up
//! to 9, from whomever it comes. Redis 7.0 knows no hashes whose fields expire: a payload of one is that of Valkey 9, in
//! its version, and in a file it is as in Redis 7.4.

mod codec;
mod crc64;
pub mod file;
pub mod key;
mod kind;
mod lzf;
mod object;
mod packed;
mod stream;

pub use codec::{Cause, Decoder, Fault, write_string};

use crate::{CommandError, Value};
use crc64::crc64;
use object::Encoding;

/// The version that Redis 7.0 writes.
const VERSION: u16 = 10;
/// The newest one that is read, that of Redis 7.4. What it added is either read or refused by its name.
const NEWEST: u16 = 12;
/// The version of Valkey 9.0, which has left those between to Redis.
const VALKEY: u16 = 80;
/// Bytes of version and checksum.
const FOOTER: usize = 10;
/// The longest string of a value, as commands make them.
const LONGEST: u64 = 512 << 20;
/// Marks a library of functions.
pub const LIBRARY: u8 = 245;

/// A payload that [`unseal`] refuses.
pub const WRONG_SEAL: CommandError = CommandError::new("ERR DUMP payload version or checksum are wrong");

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

/// Ends `body` with version and checksum.
pub fn seal(body: &mut Vec<u8>) {
    seal_as(VERSION, body);
}

fn seal_as(version: u16, body: &mut Vec<u8>) {
    body.extend_from_slice(&version.to_le_bytes());
    let sum = crc64(0, body);
    body.extend_from_slice(&sum.to_le_bytes());
}

/// The body of a sealed payload, if version and checksum are right.
pub fn unseal(payload: &[u8]) -> Option<&[u8]> {
    let (body, footer) = payload.split_at(payload.len().checked_sub(FOOTER)?);
    let (version, sum) = footer.split_at(2);
    let version = u16::from_le_bytes(version.try_into().expect("two bytes"));
    let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
    ((version <= NEWEST || version == VALKEY) && sum == crc64(0, &payload[..payload.len() - 8]))
        .then_some(body)
}

/// What DUMP gives for `value`.
pub fn dump(value: &Value) -> Vec<u8> {
    let form = Encoding::of(value, kind::HASH_2);
    let mut payload = vec![form.kind];
    form.write(&mut payload).expect("memory takes everything");
    seal_as(if form.kind == kind::HASH_2 { VALKEY } else { VERSION }, &mut payload);
    payload
}

/// The value of an unsealed payload. Like Redis, does not ask what comes behind it.
pub fn load(body: &[u8]) -> Result<Value, Fault> {
    let mut decoder = Decoder::limited(body, LONGEST);
    let kind = decoder.byte()?;
    object::read(kind, &mut decoder)?.ok_or_else(|| decoder.damage("an empty collection"))
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
        assert_eq!(unseal(&sealed_as(9)), Some(&[][..]));
        assert_eq!(unseal(&sealed_as(12)), Some(&[][..]));
        assert_eq!(unseal(&sealed_as(80)), Some(&[][..]));
        assert!([13, 79, 81].iter().all(|version| unseal(&sealed_as(*version)).is_none()));
        assert_eq!(unseal(b"short"), None);
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let payload = dump(&Value::string(b"a text"));
        assert!(unseal(&payload).is_some());
        for bit in 0..8 * payload.len() {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&damaged), None, "{bit}");
        }
    }
}
