//! Lengths and strings, of which everything else is made.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read, Write};

use super::lzf;
use crate::value::Str;

/// Memory is asked for in steps of this size: a damaged length costs no more than one.
const STEP: usize = 64 * 1024;

/// Why something cannot be read.
#[derive(Debug)]
pub struct Fault {
    /// Up to which byte it was read.
    pub offset: u64,
    /// What was found there.
    pub cause: Cause,
}

/// What is wrong.
#[derive(Debug)]
pub enum Cause {
    /// The source failed.
    Source(io::Error),
    /// There is too little.
    Short,
    /// This cannot be.
    Damage(&'static str),
    /// A string of so many bytes is more than is read.
    TooLong(u64),
    /// It may be right, but we do not have that.
    Foreign(Cow<'static, str>),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.offset)?;
        match &self.cause {
            Cause::Source(error) => error.fmt(f),
            Cause::Short => f.write_str("the data end here"),
            Cause::Damage(what) => write!(f, "damaged data: {what}"),
            Cause::TooLong(_) => f.write_str("damaged data: a string is too long"),
            Cause::Foreign(what) => write!(f, "not supported: {what}"),
        }
    }
}

impl std::error::Error for Fault {}

/// Reads what Redis wrote. Nothing that it reads is trusted.
pub struct Decoder<R> {
    source: R,
    offset: u64,
    longest: u64,
}

impl<R: Read> Decoder<R> {
    /// Reads strings of any length.
    pub fn new(source: R) -> Decoder<R> {
        Decoder::limited(source, u64::MAX)
    }

    /// Refuses strings of more than `longest` bytes: a packed one may be much longer than it looks.
    pub fn limited(source: R, longest: u64) -> Decoder<R> {
        Decoder { source, offset: 0, longest }
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// How many bytes have been read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// That what was read last cannot be.
    pub fn damage(&self, what: &'static str) -> Fault {
        Fault { offset: self.offset, cause: Cause::Damage(what) }
    }

    /// That what was read last is nothing of ours.
    pub fn foreign(&self, what: impl Into<Cow<'static, str>>) -> Fault {
        Fault { offset: self.offset, cause: Cause::Foreign(what.into()) }
    }

    fn exact(&mut self, into: &mut [u8]) -> Result<(), Fault> {
        self.source.read_exact(into).map_err(|error| {
            let short = error.kind() == io::ErrorKind::UnexpectedEof;
            Fault { offset: self.offset, cause: if short { Cause::Short } else { Cause::Source(error) } }
        })?;
        self.offset += into.len() as u64;
        Ok(())
    }

    /// The next `N` bytes.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Fault> {
        let [byte] = self.bytes()?;
        Ok(byte)
    }

    /// Puts the next `len` bytes into `into`.
    pub(super) fn take(&mut self, mut len: u64, into: &mut Vec<u8>) -> Result<(), Fault> {
        into.clear();
        while len > 0 {
            let (held, step) = (into.len(), len.min(STEP as u64));
            into.resize(held + step as usize, 0);
            self.exact(&mut into[held..])?;
            len -= step;
        }
        Ok(())
    }

    /// A length or another number.
    pub fn length(&mut self) -> Result<u64, Fault> {
        match self.start()? {
            Start::Length(len) => Ok(len),
            Start::Special(_) => Err(self.damage("a length is missing")),
        }
    }

    fn start(&mut self) -> Result<Start, Fault> {
        let first = self.byte()?;
        Ok(Start::Length(match first {
            0..0x40 => first.into(),
            0x40..0x80 => u16::from_be_bytes([first & 0x3f, self.byte()?]).into(),
            0x80 => u32::from_be_bytes(self.bytes()?).into(),
            0x81 => u64::from_be_bytes(self.bytes()?),
            0xc0.. => return Ok(Start::Special(first & 0x3f)),
            _ => return Err(self.damage("a length of unknown form")),
        }))
    }

    /// Puts the next string into `into`.
    pub fn string(&mut self, into: &mut Vec<u8>) -> Result<(), Fault> {
        let number = match self.start()? {
            Start::Length(len) => {
                self.check(len)?;
                return self.take(len, into);
            }
            Start::Special(0) => i32::from(i8::from_le_bytes(self.bytes()?)),
            Start::Special(1) => i32::from(i16::from_le_bytes(self.bytes()?)),
            Start::Special(2) => i32::from_le_bytes(self.bytes()?),
            Start::Special(3) => return self.packed(into),
            Start::Special(_) => return Err(self.damage("a string of unknown form")),
        };
        into.clear();
        into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        Ok(())
    }

    /// The next string in a buffer of its own.
    pub fn owned(&mut self) -> Result<Vec<u8>, Fault> {
        let mut text = Vec::new();
        self.string(&mut text)?;
        Ok(text)
    }

    /// Reads how many bytes of the next string follow, and how many they are when they are unpacked.
    pub(super) fn string_size(&mut self) -> Result<(u64, u64), Fault> {
        match self.start()? {
            Start::Length(len) => Ok((len, len)),
            Start::Special(form @ 0..=2) => Ok((1 << form, 1 << form)),
            Start::Special(3) => Ok((self.length()?, self.length()?)),
            Start::Special(_) => Err(self.damage("a string of unknown form")),
        }
    }

    /// Skips so many bytes.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), Fault> {
        let mut skipped = [0; 512];
        while len > 0 {
            let step = len.min(skipped.len() as u64);
            self.exact(&mut skipped[..step as usize])?;
            len -= step;
        }
        Ok(())
    }

    /// Skips the next string without unpacking it.
    pub(super) fn skip_string(&mut self) -> Result<(), Fault> {
        let (bytes, _) = self.string_size()?;
        self.skip(bytes)
    }

    fn packed(&mut self, into: &mut Vec<u8>) -> Result<(), Fault> {
        let (packed, len) = (self.length()?, self.length()?);
        self.check(packed)?;
        self.check(len)?;
        let mut bytes = Vec::new();
        self.take(packed, &mut bytes)?;
        into.clear();
        lzf::unpack(&bytes, len, into).ok_or_else(|| self.damage("a packed string cannot be unpacked"))
    }

    fn check(&self, len: u64) -> Result<(), Fault> {
        match len > self.longest {
            true => Err(Fault { offset: self.offset, cause: Cause::TooLong(len) }),
            false => Ok(()),
        }
    }
}

/// How a string starts: with its length, or by saying that it is kept in another way.
enum Start {
    Length(u64),
    Special(u8),
}

/// Writes a length or another number.
pub fn write_length(out: &mut impl Write, len: u64) -> io::Result<()> {
    match len {
        0..64 => out.write_all(&[len as u8]),
        64..16384 => out.write_all(&(0x4000 | len as u16).to_be_bytes()),
        _ => match u32::try_from(len) {
            Ok(len) => {
                out.write_all(&[0x80])?;
                out.write_all(&len.to_be_bytes())
            }
            Err(_) => {
                out.write_all(&[0x81])?;
                out.write_all(&len.to_be_bytes())
            }
        },
    }
}

/// Writes a string, as a number if it spells a small one; never compressed.
pub fn write_string(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    if let Some(number) = Str::integer_of(text).and_then(|number| i32::try_from(number).ok()) {
        return write_number(out, number);
    }
    write_length(out, text.len() as u64)?;
    out.write_all(text)
}

fn write_number(out: &mut impl Write, number: i32) -> io::Result<()> {
    if let Ok(byte) = i8::try_from(number) {
        out.write_all(&[0xc0, byte as u8])
    } else if let Ok(short) = i16::try_from(number) {
        out.write_all(&[0xc1])?;
        out.write_all(&short.to_le_bytes())
    } else {
        out.write_all(&[0xc2])?;
        out.write_all(&number.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], longest: u64) -> Result<Vec<u8>, String> {
        let mut decoder = Decoder::limited(bytes, longest);
        let text = decoder.owned().map_err(|fault| fault.to_string())?;
        assert_eq!(decoder.source(), b"", "all of it");
        assert_eq!(decoder.offset(), bytes.len() as u64);
        Ok(text)
    }

    #[test]
    fn strings_of_every_length_come_back() {
        for len in [0, 1, 63, 64, 16383, 16384, STEP, STEP + 1, 3 * STEP + 7] {
            let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut bytes = Vec::new();
            write_string(&mut bytes, &text).expect("memory takes all");
            assert_eq!(read(&bytes, len as u64), Ok(text));
            bytes.pop();
            assert!(read(&bytes, len as u64).is_err(), "{len}");
        }
    }

    #[test]
    fn lengths_of_every_size_come_back() {
        for len in [0, 63, 64, 16383, 16384, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut bytes = Vec::new();
            write_length(&mut bytes, len).expect("memory takes all");
            assert_eq!(Decoder::new(&*bytes).length().ok(), Some(len));
        }
    }

    #[test]
    fn numbers_are_short() {
        for (text, wanted) in [
            ("0", &b"\xc0\x00"[..]),
            ("-5", b"\xc0\xfb"),
            ("256", b"\xc1\x00\x01"),
            ("-32769", b"\xc2\xff\x7f\xff\xff"),
            ("-2147483648", b"\xc2\x00\x00\x00\x80"),
            ("2147483648", b"\x0a2147483648"),
            ("007", b"\x03007"),
            ("-0", b"\x02-0"),
        ] {
            let mut bytes = Vec::new();
            write_string(&mut bytes, text.as_bytes()).expect("memory takes all");
            assert_eq!(bytes, wanted, "{text}");
            assert_eq!(read(&bytes, 20), Ok(text.into()));
        }
    }

    #[test]
    fn packed_strings_and_damage() {
        let packed = "damaged data: a packed string cannot be unpacked";
        for (bytes, wanted) in [
            (&b"\xc3\x05\x0a\x00a\xe0\x00\x00"[..], Ok("aaaaaaaaaa")),
            (b"\xc3\x05\x09\x00a\xe0\x00\x00", Err(format!("byte 8: {packed}"))),
            (b"\xc3\x04\x0a\x00a\xe0\x00", Err(format!("byte 7: {packed}"))),
            (b"\xc3\xc0\x05", Err("byte 2: damaged data: a length is missing".into())),
            (b"\xc3\x05\x7f\xff", Err("byte 4: damaged data: a string is too long".into())),
            (b"\xc4\x01", Err("byte 1: damaged data: a string of unknown form".into())),
            (b"\x82", Err("byte 1: damaged data: a length of unknown form".into())),
            (b"\x05text", Err("byte 1: the data end here".into())),
            (b"\x7f\xff", Err("byte 2: damaged data: a string is too long".into())),
            (b"", Err("byte 0: the data end here".into())),
        ] {
            assert_eq!(read(bytes, 1000), wanted.map(Into::into), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn strings_are_skipped_without_a_look_at_them() {
        for (bytes, wanted) in [
            (&b"\x04text"[..], Ok((4, 4))),
            (b"\xc1\x00\x01", Ok((2, 2))),
            (b"\xc2\x00\x00\x01\x00", Ok((4, 4))),
            (b"\xc3\x01\x81\xff\xff\xff\xff\xff\xff\xff\xffx", Ok((1, u64::MAX))),
            (b"\xc4\x01", Err("byte 1: damaged data: a string of unknown form".to_owned())),
            (b"\x05text", Err("byte 1: the data end here".to_owned())),
        ] {
            let mut decoder = Decoder::new(bytes);
            let size = decoder.string_size().and_then(|size| decoder.skip(size.0).map(|()| size));
            assert_eq!(size.map_err(|fault| fault.to_string()), wanted, "{}", bytes.escape_ascii());
            assert!(wanted.is_err() || decoder.source().is_empty(), "all of it");
            let skipped = Decoder::new(bytes).skip_string();
            assert_eq!(skipped.is_ok(), wanted.is_ok());
        }
    }

    #[test]
    fn an_announced_size_is_not_believed() {
        let mut into = Vec::new();
        let fault = Decoder::new(&b"\x81\x7f\xff\xff\xff\xff\xff\xff\xfftext"[..]).string(&mut into);
        assert!(matches!(fault, Err(Fault { offset: 9, cause: Cause::Short })));
        assert!(into.capacity() <= 2 * STEP);
    }
}
