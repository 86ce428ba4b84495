//! Keys as they stand in a file.

use std::io::{self, Write};

use super::KeyMeta;
use super::codec::{write_length, write_string};
use super::object::Encoding;
use super::version::Dialect;
use crate::Entry;

pub(super) const IDLE: u8 = 248;
pub(super) const FREQ: u8 = 249;
pub(super) const AUX: u8 = 250;
pub(super) const EXPIRE_MS: u8 = 252;

/// The field that says of the next key that it is sticky.
pub(super) const STICKY: &[u8] = b"moonshard-sticky";

/// Writes a field.
pub(super) fn write_aux(out: &mut impl Write, name: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(&[AUX])?;
    write_string(out, name)?;
    write_string(out, value)
}

/// Writes a key as it stands in a file for `reader`.
pub fn write_key(
    out: &mut impl Write,
    key: &[u8],
    entry: &Entry,
    meta: KeyMeta,
    reader: Dialect,
) -> io::Result<()> {
    if meta.sticky {
        write_aux(out, STICKY, b"1")?;
    }
    if let Some(at_ms) = entry.expire_at_ms {
        out.write_all(&[EXPIRE_MS])?;
        out.write_all(&at_ms.get().to_le_bytes())?;
    }
    if let Some(seconds) = meta.idle_s {
        out.write_all(&[IDLE])?;
        write_length(out, seconds)?;
    }
    if let Some(freq) = meta.freq {
        out.write_all(&[FREQ, freq])?;
    }
    let form = Encoding::of(&entry.value, reader);
    out.write_all(&[form.kind])?;
    write_string(out, key)?;
    form.write(out)
}
