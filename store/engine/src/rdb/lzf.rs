//! LZF, with which Redis packs strings: runs of new bytes, and references to bytes already there.

/// The longest run of bytes that a reference stands for.
const LONGEST_RUN: u64 = 264;
/// Bytes that each byte of what was packed stands for, at most: a reference to the longest run has three.
pub const MOST_BYTES_OF_ONE: u64 = LONGEST_RUN / 3;

/// Appends what was packed, which must be `len` bytes. No more memory is taken than for these.
pub fn unpack(mut packed: &[u8], len: u64, out: &mut Vec<u8>) -> Option<()> {
    if len > MOST_BYTES_OF_ONE * packed.len() as u64 {
        return None;
    }
    // That there are too many is seen behind the last run.
    out.reserve_exact((len + LONGEST_RUN) as usize);
    let start = out.len();
    let mut take = |count: usize| {
        let (taken, rest) = packed.split_at_checked(count)?;
        packed = rest;
        Some(taken)
    };
    while let Some(&[control]) = take(1) {
        if control < 32 {
            out.extend_from_slice(take(usize::from(control) + 1)?);
        } else {
            let mut count = usize::from(control >> 5) + 2;
            if control >> 5 == 7 {
                count += usize::from(take(1)?[0]);
            }
            let back = (usize::from(control & 31) << 8 | usize::from(take(1)?[0])) + 1;
            let from = out.len().checked_sub(back).filter(|from| *from >= start)?;
            // What is referred to may reach into what is being written.
            while count > 0 {
                let whole = count.min(out.len() - from);
                out.extend_from_within(from..from + whole);
                count -= whole;
            }
        }
        if (out.len() - start) as u64 > len {
            return None;
        }
    }
    ((out.len() - start) as u64 == len).then_some(())
}

#[cfg(test)]
mod tests {
    use super::unpack;

    #[test]
    fn runs_and_references() {
        for (packed, len, wanted) in [
            (&b"\x02abc"[..], 3, Some("abc")),
            (b"\x00a\xe0\x00\x00", 10, Some("aaaaaaaaaa")),
            (b"\x02abc\x80\x02", 9, Some("abcabcabc")),
            (b"\x02abc\x20\x01", 6, Some("abcbcb")),
            (b"", 0, Some("")),
            (b"\x00a\xe0\x00\x00", 9, None),
            (b"\x00a\xe0\x00\x00", 11, None),
            (b"\x00a\xe0\x00\x01", 10, None),
            (b"\x00a\xe0\x00", 10, None),
            (b"\x00a\xe0", 10, None),
            (b"\x02ab", 3, None),
            (b"\x00a\xe0\xff\x00", 265, Some("a".repeat(265).as_str())),
            (b"\x00a\xe0\xff\x00", u64::MAX, None),
        ] {
            // What was there before is not referred to.
            let mut out = b"before".to_vec();
            let done = unpack(packed, len, &mut out).map(|()| &out[6..]);
            assert_eq!(done, wanted.map(str::as_bytes), "{} {len}", packed.escape_ascii());
        }
    }
}
