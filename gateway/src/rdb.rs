//! Redis' serialised form, as its DUMP commands give it: a body, the version of the form, a checksum.

use std::borrow::Cow;

/// The version that Redis 7.0 writes; what is newer is not read.
const VERSION: u16 = 10;
/// Bytes of version and checksum.
const FOOTER: usize = 10;
/// Marks a library of functions.
pub const LIBRARY: u8 = 245;

/// Ends `body` with version and checksum.
pub fn seal(body: &mut Vec<u8>) {
    body.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc64(body);
    body.extend_from_slice(&sum.to_le_bytes());
}

/// The body of a sealed payload, if version and checksum are right.
pub fn unseal(payload: &[u8]) -> Option<&[u8]> {
    let (body, footer) = payload.split_at(payload.len().checked_sub(FOOTER)?);
    let (version, sum) = footer.split_at(2);
    let version = u16::from_le_bytes(version.try_into().expect("two bytes"));
    let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
    (version <= VERSION && sum == crc64(&payload[..payload.len() - 8])).then_some(body)
}

/// Appends a string, never compressed.
pub fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..64 => out.push(len as u8),
        len @ 64..16384 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        len if u32::try_from(len).is_ok() => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        len => {
            out.push(0x81);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(text);
}

/// Takes a string of at most `most` bytes from the start of `rest`. `None` if there is none.
pub fn take_string<'a>(rest: &mut &'a [u8], most: usize) -> Option<Cow<'a, [u8]>> {
    let number = |value: i64| Some(Cow::Owned(value.to_string().into_bytes()));
    match take_length(rest)? {
        Length::Plain(len) => take(rest, len).filter(|text| text.len() <= most).map(Cow::Borrowed),
        Length::Special(0) => number(i8::from_le_bytes(array(rest)?).into()),
        Length::Special(1) => number(i16::from_le_bytes(array(rest)?).into()),
        Length::Special(2) => number(i32::from_le_bytes(array(rest)?).into()),
        Length::Special(3) => {
            let (Length::Plain(packed), Length::Plain(len)) = (take_length(rest)?, take_length(rest)?) else {
                return None;
            };
            let packed = take(rest, packed)?;
            unpack(packed, usize::try_from(len).ok().filter(|&len| len <= most)?).map(Cow::Owned)
        }
        Length::Special(_) => None,
    }
}

/// The start of a string: how long it is, or that it is kept in another way.
enum Length {
    Plain(u64),
    Special(u8),
}

fn take_length(rest: &mut &[u8]) -> Option<Length> {
    let [first] = array(rest)?;
    Some(match first {
        0..0x40 => Length::Plain(first.into()),
        0x40..0x80 => {
            let [second] = array(rest)?;
            Length::Plain(u16::from_be_bytes([first & 0x3f, second]).into())
        }
        0x80 => Length::Plain(u32::from_be_bytes(array(rest)?).into()),
        0x81 => Length::Plain(u64::from_be_bytes(array(rest)?)),
        0xc0.. => Length::Special(first & 0x3f),
        _ => return None,
    })
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = after;
    Some(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N as u64)?.try_into().ok()
}

/// Undoes LZF, with which Redis packs strings: runs of new bytes, and references to bytes already there.
fn unpack(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    while let Some([control]) = array(&mut packed) {
        if control < 32 {
            out.extend_from_slice(take(&mut packed, u64::from(control) + 1)?);
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if control >> 5 == 7 {
                let [more] = array(&mut packed)?;
                count += usize::from(more);
            }
            let [low] = array(&mut packed)?;
            let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
            let start = out.len().checked_sub(back)?;
            // What is referred to may reach into what is being written.
            for at in start..start + count {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// CRC-64 with the polynomial of Jones, bits reflected, as Redis has it.
fn crc64(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut sum = at as u64;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 };
                bit += 1;
            }
            table[at] = sum;
            at += 1;
        }
        table
    };
    bytes.iter().fold(0, |sum, byte| TABLE[(sum as u8 ^ byte) as usize] ^ sum >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        // The value in the comments of Redis' crc64.c.
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let mut empty = Vec::new();
        seal(&mut empty);
        // What FUNCTION DUMP of redis-server 7.0.15 gives without a library.
        assert_eq!(empty, b"\x0a\x00\x5d\x9b\x5c\x40\x0f\x7f\xa2\xda");
    }

    #[test]
    fn strings_of_every_length_come_back() {
        for len in [0, 1, 63, 64, 16383, 16384, 70_000] {
            let text = vec![b'x'; len];
            let mut sealed = Vec::new();
            push_string(&mut sealed, &text);
            seal(&mut sealed);
            let mut rest = unseal(&sealed).expect("sealed");
            assert_eq!(take_string(&mut rest, len).as_deref(), Some(&*text));
            assert!(rest.is_empty());
            sealed[0] ^= 1;
            assert_eq!(unseal(&sealed), None, "a flipped bit");
        }
    }

    #[test]
    fn numbers_and_packed_strings() {
        for (bytes, wanted) in [
            (&b"\xc0\xfb"[..], Some("-5")),
            (b"\xc1\x00\x01", Some("256")),
            (b"\xc2\xff\xff\xff\xff", Some("-1")),
            (b"\xc3\x05\x0a\x00a\xe0\x00\x00", Some("aaaaaaaaaa")),
            (b"\xc3\x05\x09\x00a\xe0\x00\x00", None),
            (b"\xc3\x05\x0b\x00a\xe0\x00\x00", None),
            (b"\xc3\x05\x0a\x00a\xe0\x00\x01", None),
            (b"\xc3\x04\x0a\x00a\xe0\x00", None),
            (b"\xc4\x01", None),
            (b"\x82", None),
            (b"\x05text", None),
            (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"", None),
        ] {
            let mut rest = bytes;
            let found = take_string(&mut rest, 1000);
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{}", bytes.escape_ascii());
        }
        let too_long = take_string(&mut &b"\xc3\x05\x0a\x00a\xe0\x00\x00"[..], 9);
        assert_eq!(too_long, None);
    }

    #[test]
    fn what_is_newer_is_not_read() {
        let sealed_as = |version: u16| {
            let mut payload = version.to_le_bytes().to_vec();
            let sum = crc64(&payload);
            payload.extend_from_slice(&sum.to_le_bytes());
            payload
        };
        assert_eq!(unseal(&sealed_as(9)), Some(&[][..]));
        assert_eq!(unseal(&sealed_as(11)), None);
        assert_eq!(unseal(b"short"), None);
    }
}
