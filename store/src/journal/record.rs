//! How the disk is laid out.
//!
//! ```text
//! h<db><key>           checkpoint of a key: record number, then either the entry or [`Parts`]
//! p<version><part>     one part of a big collection: a field, member, or list index
//! q<version><field>    when a field of a big hash expires
//! r<number>            journal: records from this number on, each behind its length
//! ```
//!
//! Numbers in keys are big-endian, so that their order is that of the disk.

use store_engine::codec::{Input, Malformed, put_number};
use store_engine::effect::{EntryMeta, Put};
use store_engine::{Entry, codec};

/// First byte of a journal chunk's key. The highest there is: adding to the end costs least.
pub const LOG: u8 = b'r';
/// First byte of a checkpointed key.
pub const HEAD: u8 = b'h';
/// First byte of a part.
pub const PART: u8 = b'p';
/// First byte of the time of a part.
pub const TIME: u8 = b'q';

/// The disk's key of the chunk whose first record has this number.
pub fn log_key(first: u64) -> Vec<u8> {
    [&[LOG], &first.to_be_bytes()[..]].concat()
}

/// The number in a [`log_key`].
pub fn log_number(disk_key: &[u8]) -> Result<u64, Malformed> {
    let digits = disk_key.get(1..).and_then(|rest| rest.try_into().ok()).ok_or(Malformed)?;
    Ok(u64::from_be_bytes(digits))
}

/// The disk's key of a key.
pub fn head_key(db: usize, key: &[u8]) -> Vec<u8> {
    [&[HEAD, db as u8], key].concat()
}

/// Database and key in a [`head_key`].
pub fn head_name(disk_key: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    match disk_key {
        [HEAD, db, key @ ..] if usize::from(*db) <= store_engine::DATABASES => Ok((usize::from(*db), key)),
        _ => Err(Malformed),
    }
}

/// What the disk's keys of all parts of a version begin with, and those of their times.
pub fn parts_prefixes(version: u64) -> [Vec<u8>; 2] {
    [PART, TIME].map(|first| [&[first], &version.to_be_bytes()[..]].concat())
}

/// The disk's key of a part.
pub fn part_key(version: u64, part: &[u8]) -> Vec<u8> {
    [&[PART], &version.to_be_bytes()[..], part].concat()
}

/// The disk's key of the time at which a field of a hash expires.
pub fn time_key(version: u64, field: &[u8]) -> Vec<u8> {
    [&[TIME], &version.to_be_bytes()[..], field].concat()
}

/// Version and part in a [`part_key`] or [`time_key`].
pub fn part_name(disk_key: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (version, part) = disk_key.get(1..).and_then(<[u8]>::split_first_chunk).ok_or(Malformed)?;
    Ok((u64::from_be_bytes(*version), part))
}

/// A list index as a part: its order is that of the numbers.
pub fn index_part(index: i64) -> [u8; 8] {
    (index.cast_unsigned() ^ 1 << 63).to_be_bytes()
}

/// The index in an [`index_part`].
pub fn part_index(part: &[u8]) -> Result<i64, Malformed> {
    let bits = u64::from_be_bytes(part.try_into().map_err(|_| Malformed)?);
    Ok((bits ^ 1 << 63).cast_signed())
}

/// A big collection whose elements are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Which parts are of this collection. Never used again: parts of others are waste.
    pub version: u64,
    /// How many there are.
    pub count: u64,
    /// Of a list, the index of its first element; of a hash, how many fields expire.
    pub first: i64,
}

/// A checkpointed key as read.
pub struct Head<'a> {
    /// The newest journal record that it contains.
    pub number: u64,
    /// Its entry; empty if it has parts.
    pub entry: Put<'a>,
    /// Where its elements are.
    pub parts: Option<Parts>,
}

const WHOLE: u8 = 0;
const IN_PARTS: u8 = 1;

/// The record of a key with everything it holds, as of journal record `number`.
pub fn whole(number: u64, entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(number, &mut out);
    out.push(WHOLE);
    EntryMeta::of(entry).write(&mut out);
    codec::put_value(&entry.value, &mut out);
    out
}

/// The beginning of [`whole`] for a string of `len` bytes, which follow.
pub fn begin_string(number: u64, meta: EntryMeta, len: usize) -> Vec<u8> {
    // Some 30 bytes stand before the string.
    let mut out = Vec::with_capacity(len + 64);
    put_number(number, &mut out);
    out.push(WHOLE);
    meta.write(&mut out);
    codec::begin_string(len, &mut out);
    out
}

/// The record of a key whose elements are parts.
pub fn in_parts(number: u64, entry: &Entry, parts: Parts) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(number, &mut out);
    out.push(IN_PARTS);
    put_number(parts.version, &mut out);
    put_number(parts.count, &mut out);
    out.extend_from_slice(&parts.first.to_le_bytes());
    EntryMeta::of(entry).write(&mut out);
    codec::put_shape(&entry.value, &mut out);
    out
}

/// Reads what [`whole`] or [`in_parts`] wrote.
pub fn head(bytes: &[u8]) -> Result<Head<'_>, Malformed> {
    let mut input = Input(bytes);
    let number = input.number()?;
    let parts = match input.byte()? {
        WHOLE => None,
        IN_PARTS => {
            let (version, count) = (input.number()?, input.number()?);
            let first = input.take(8)?.try_into().map_err(|_| Malformed)?;
            Some(Parts { version, count, first: i64::from_le_bytes(first) })
        }
        _ => return Err(Malformed),
    };
    Ok(Head { number, entry: Put::encoded(input.0), parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_in_order_on_disk() {
        let indices = [i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX];
        assert!(indices.map(index_part).is_sorted());
        assert_eq!(indices.map(|index| part_index(&index_part(index))), indices.map(Ok));
    }

    #[test]
    fn names_come_back() {
        assert_eq!(log_number(&log_key(7)), Ok(7));
        assert_eq!(head_name(&head_key(3, b"key")), Ok((3, &b"key"[..])));
        assert_eq!(part_name(&part_key(9, b"field")), Ok((9, &b"field"[..])));
        assert_eq!(head_name(b"h"), Err(Malformed));
        assert_eq!(part_name(b"p123"), Err(Malformed));
    }
}
