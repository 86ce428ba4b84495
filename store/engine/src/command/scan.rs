//! What SCAN, HSCAN, SSCAN and ZSCAN have in common: the cursor and the options.

use crate::error::{self, CommandError};
use crate::{Args, Cursor, Reply, glob};

const INVALID_CURSOR: CommandError = CommandError::new("ERR invalid cursor");

/// How many elements of a collection of `len` a call of HSCAN, SSCAN or ZSCAN looks at.
pub fn elements(args: Args<'_>, len: usize) -> usize {
    let count = ScanOptions::parse(args.cursor(3), Scanned::Fields).map_or(0, |options| options.count);
    count.max(WHOLE_UP_TO).min(len)
}

/// Collections up to this size are scanned in one step.
const WHOLE_UP_TO: usize = 128;

/// A cursor as C's `strtoul` reads it, as Redis does: a sign is allowed, and no digits at all are 0.
pub fn cursor(text: &[u8]) -> Result<u64, CommandError> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() && !text.is_empty() {
        return Err(INVALID_CURSOR);
    }
    let value = digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    });
    let value = value.ok_or(INVALID_CURSOR)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Where a step of SCAN begins, and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of the partition.
    pub partition: usize,
    /// How many of its entries were not looked at yet, or more than there are.
    pub left: usize,
    /// How many the step looks at.
    pub count: usize,
}

impl Page {
    /// A cursor is the number of entries left in its partition times the number of partitions, plus the
    /// partition's number; 0 begins.
    pub(crate) fn of(cursor: u64, options: &ScanOptions<'_>, total: u64) -> Page {
        let left = if cursor == 0 { usize::MAX } else { (cursor / total) as usize };
        Page { partition: (cursor % total) as usize, left, count: options.count }
    }

    /// Whether the step ends in its partition, of which `len` entries are there.
    pub fn ends_within(&self, len: usize) -> bool {
        self.left.min(len) > self.count
    }
}

/// The page that a call of SCAN asks for, if there are `total` partitions and the call is right.
pub fn page(args: Args<'_>, total: usize) -> Option<Page> {
    let options = ScanOptions::parse(args.cursor(2), Scanned::Keys).ok()?;
    Some(Page::of(cursor(args.get(1)?).ok()?, &options, total as u64))
}

/// What is scanned, on which it depends which options there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// SCAN, which has TYPE.
    Keys,
    /// HSCAN, which has NOVALUES.
    Fields,
    /// SSCAN and ZSCAN.
    Members,
}

/// The options behind the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions<'a> {
    /// COUNT: how much to do in this step, at least 1 and as large as the caller likes.
    pub count: usize,
    /// MATCH, unless it is `*`.
    pub pattern: Option<&'a [u8]>,
    /// TYPE, which only SCAN knows.
    pub kind: Option<&'a [u8]>,
    /// NOVALUES, which only HSCAN knows. As in Redis 7.4.
    pub no_values: bool,
}

impl<'a> ScanOptions<'a> {
    /// Reads all that is left.
    pub fn parse(mut cursor: Cursor<'a>, scanned: Scanned) -> Result<ScanOptions<'a>, CommandError> {
        let mut options = ScanOptions { count: 10, pattern: None, kind: None, no_values: false };
        while !cursor.is_done() {
            if cursor.flag("novalues") {
                if scanned != Scanned::Fields {
                    return Err(CommandError::new("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
            } else if cursor.remaining() < 2 {
                return Err(error::SYNTAX);
            } else if cursor.flag("count") {
                let count = cursor.integer()?;
                if count < 1 {
                    return Err(error::SYNTAX);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            } else if cursor.flag("match") {
                options.pattern = Some(cursor.bytes()?).filter(|pattern| *pattern != b"*");
            } else if scanned == Scanned::Keys && cursor.flag("type") {
                options.kind = Some(cursor.bytes()?);
            } else {
                return Err(error::SYNTAX);
            }
        }
        Ok(options)
    }

    /// Which positions of a collection of `len` elements, which lie densely, this step looks at. Where the range
    /// starts is the next cursor. Small collections are looked at whole, as Redis' compact encodings.
    ///
    /// The walk goes from the end downwards. Removal moves elements only downwards (the last one into the gap, or
    /// all behind the gap by one) and insertion appends: so what is there all the time is never missed.
    pub fn window(&self, cursor: u64, len: usize) -> std::ops::Range<usize> {
        if len <= WHOLE_UP_TO {
            return 0..len;
        }
        let end =
            usize::try_from(cursor).map_or(len, |cursor| if cursor == 0 { len } else { cursor.min(len) });
        end.saturating_sub(self.count)..end
    }

    /// Whether `name` is to be shown, as far as MATCH says.
    pub fn shows(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// The reply of a step: the cursor of the next one, and the elements that `fill` writes and counts.
pub fn reply(out: &mut Reply, next: u64, fill: impl FnOnce(&mut Reply) -> usize) {
    out.array(2);
    out.bulk(itoa::Buffer::new().format(next).as_bytes());
    out.array_of(fill);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Args;

    #[test]
    fn cursors_as_strtoul_reads_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("", Some(0)),
            ("+5", Some(5)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            (" 1", None),
            ("1x", None),
            ("abc", None),
        ] {
            assert_eq!(cursor(text.as_bytes()).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn options_in_any_order() {
        let items: [&[u8]; 6] = [b"sscan", b"match", b"a*", b"COUNT", b"7", b"type"];
        let args = Args::new(&items[..5]);
        let options = ScanOptions::parse(args.cursor(1), Scanned::Members).unwrap();
        let wanted = ScanOptions { count: 7, pattern: Some(b"a*"), kind: None, no_values: false };
        assert_eq!(options, wanted);
        assert!(options.shows(b"ab") && !options.shows(b"b"));
        assert_eq!(ScanOptions::parse(Args::new(&items).cursor(1), Scanned::Keys), Err(error::SYNTAX));
    }
}
