//! Bitmaps: strings seen as rows of bits, the highest bit of a byte first.

pub mod field;

use super::string;
use crate::cost::Cost;
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::Str;
use crate::{Args, Ctx, Value, Work, number};

/// Longest string in bytes, as Redis' default `proto-max-bulk-len`.
const MAX_BYTES: u64 = Str::MAX_BYTES as u64;

const BITMAP: Command = Command { group: Group::Bitmap, since: "2.2.0", ..Command::BASE };

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "bitcount",
        since: "2.6.0",
        arity: Arity::AtLeast(2),
        summary: "Counts the set bits of a string.",
        complexity: "O(N)",
        syntax: "key index(start:int end:int index_unit(BYTE | BIT)@7.0.0?)?",
        run: count,
        ..BITMAP
    },
    Command {
        name: "bitop",
        since: "2.6.0",
        arity: Arity::AtLeast(4),
        keys: &[
            KeyPart::one(2, Access::Write),
            KeyPart::Range { first: 3, last: -1, step: 1, access: Access::Read },
        ],
        access: Access::Write,
        flags: flags::DENY_OOM,
        summary: "Performs bitwise operations on strings and stores the result.",
        complexity: "O(N)",
        syntax: "operation destkey:key key...",
        run: combine,
        ..BITMAP
    },
    Command {
        name: "bitpos",
        since: "2.8.7",
        arity: Arity::AtLeast(3),
        summary: "Finds the first bit that is set or clear in a string.",
        complexity: "O(N)",
        syntax: "key bit:int index(start:int end_index(end:int index_unit(BYTE | BIT)@7.0.0?)?)?",
        run: position,
        ..BITMAP
    },
    Command {
        name: "getbit",
        arity: Arity::Exactly(3),
        flags: flags::FAST,
        summary: "Returns a bit of a string by its offset.",
        syntax: "key offset:int",
        run: get,
        ..BITMAP
    },
    Command {
        name: "setbit",
        arity: Arity::Exactly(4),
        keys: KeyPart::FIRST_WRITE,
        access: Access::Write,
        flags: flags::DENY_OOM,
        summary: "Sets or clears a bit of a string by its offset. Creates the key if it doesn't exist.",
        syntax: "key offset:int value:int",
        cost: Cost::Arguments(|args, size| string::steps_to(args, size, 8)),
        run: set,
        ..BITMAP
    },
];

/// Bytes between two looks at whether a call is to end.
const CHUNK: usize = 1 << 20;
const OFFSET: CommandError = CommandError::new("ERR bit offset is not an integer or out of range");

/// Byte and mask of the bit at an offset.
fn bit_at(offset: u64) -> (usize, u8) {
    ((offset >> 3) as usize, 0x80 >> (offset & 7))
}

fn offset(text: &[u8]) -> Result<u64, CommandError> {
    let offset = number::parse_i64(text).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset >> 3 < MAX_BYTES).ok_or(OFFSET)
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (at, mask) = bit_at(offset(args[2])?);
    ctx.reply_from::<Str>(args[1], |text, out| {
        let byte = text.and_then(|text| text.as_bytes().get(at).copied()).unwrap_or(0);
        out.integer(i64::from(byte & mask != 0));
    })
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let (at, mask) = bit_at(offset(args[2])?);
    let on = match number::parse_i64(args[3]) {
        Some(bit @ (0 | 1)) => bit == 1,
        _ => return Err(CommandError::new("ERR bit is not an integer or out of range")),
    };
    let old = if let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? {
        if !text.make_room(at, at + 1, work) {
            return Ok(());
        }
        let held = text.as_bytes().get(at).copied();
        let old = held.unwrap_or(0);
        let new = if on { old | mask } else { old & !mask };
        if held != Some(new) {
            text.write_at(at, &[new]);
        }
        old
    } else {
        let Some(mut bytes) = Str::zeros(at + 1, work) else { return Ok(()) };
        bytes[at] = if on { mask } else { 0 };
        ctx.put(args[1], Value::String(Str::Raw(bytes)), Expiry::Clear);
        0
    };
    ctx.out.integer(i64::from(old & mask != 0));
    Ok(())
}

/// Whether a range counts bits: the word BIT, against BYTE.
fn counts_bits(word: &[u8]) -> Result<bool, CommandError> {
    let bit = word.eq_ignore_ascii_case(b"bit");
    if bit || word.eq_ignore_ascii_case(b"byte") { Ok(bit) } else { Err(error::SYNTAX) }
}

/// The bits of a string of `len` bytes that a range names, both ends inclusive. Negative ends count from the
/// end of the string.
fn bits_of(len: usize, start: i64, end: i64, in_bits: bool) -> std::ops::Range<u64> {
    let unit = if in_bits { 1 } else { 8 };
    let total = (len * 8 / unit) as i64;
    let from_end = |at: i64| if at < 0 { total.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(total - 1));
    if start > end { 0..0 } else { start as u64 * unit as u64..(end as u64 + 1) * unit as u64 }
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    // The arguments of a missing key are read by nobody, as in Redis.
    let Some(text) = ctx.read::<Str>(args[1])? else {
        ctx.out.integer(0);
        return Ok(());
    };
    let bytes = text.as_bytes();
    let bits = match args.len() {
        2 => 0..bytes.len() as u64 * 8,
        4 | 5 => {
            let (start, end) = (args.integer(2)?, args.integer(3)?);
            let crossed = start < 0 && end < 0 && start > end;
            let in_bits = !crossed && args.get(4).map_or(Ok(false), counts_bits)?;
            if crossed { 0..0 } else { bits_of(bytes.len(), start, end, in_bits) }
        }
        _ => return Err(error::SYNTAX),
    };
    let (first, last) = (bits.start.div_ceil(8), bits.end / 8);
    // Bits of a byte that the range has only in part.
    let single = |bits: std::ops::Range<u64>| {
        let set = |bit: &u64| bytes[(*bit >> 3) as usize] & bit_at(*bit).1 != 0;
        bits.filter(set).count()
    };
    let found = if first > last {
        single(bits)
    } else {
        let whole = bytes[first as usize..last as usize].chunks(CHUNK);
        whole.take_while(|chunk| work.step_bytes(chunk.len())).map(ones).sum::<usize>()
            + single(bits.start..first * 8)
            + single(last * 8..bits.end)
    };
    ctx.out.count(found);
    Ok(())
}

fn ones(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word).count_ones() as usize).sum::<usize>()
        + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()
}

fn position(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    let wanted = match args.integer(2)? {
        bit @ (0 | 1) => bit == 1,
        _ => return Err(CommandError::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(text) = ctx.read::<Str>(args[1])? else {
        ctx.out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(error::SYNTAX);
    }
    let bytes = text.as_bytes();
    let start = if args.len() > 3 { args.integer(3)? } else { 0 };
    let in_bits = args.get(5).map_or(Ok(false), counts_bits)?;
    let end = if args.len() > 4 { args.integer(4)? } else { -1 };
    let bits = bits_of(bytes.len(), start, end, in_bits);
    let found = match first_bit(&bytes, bits.clone(), wanted, work) {
        Some(bit) => bit as i64,
        // Without an end the string goes on with zeros.
        None if !wanted && !bits.is_empty() && args.len() <= 4 => bytes.len() as i64 * 8,
        None => -1,
    };
    ctx.out.integer(found);
    Ok(())
}

/// The first bit of a range that is as wanted.
fn first_bit(bytes: &[u8], bits: std::ops::Range<u64>, wanted: bool, work: &Work) -> Option<u64> {
    let dull = if wanted { 0x00 } else { 0xff };
    let mut bit = bits.start;
    while bit < bits.end {
        let (at, mask) = bit_at(bit);
        if mask == 0x80 && bytes[at] == dull {
            // From here on whole bytes are skipped.
            let skipped = bytes[at..].iter().take(CHUNK).take_while(|byte| **byte == dull).count();
            bit += skipped as u64 * 8;
            if !work.step_bytes(skipped) {
                return None;
            }
            continue;
        }
        if (bytes[at] & mask != 0) == wanted {
            return Some(bit);
        }
        bit += 1;
    }
    None
}

fn combine(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    type BitOp = fn(u8, u8) -> u8;
    let work = ctx.work;
    let word = args[1].to_ascii_lowercase();
    let operation: BitOp = match &word[..] {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        b"not" => |a, _| !a,
        _ => return Err(error::SYNTAX),
    };
    if word == b"not" && args.len() != 4 {
        return Err(CommandError::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result: Vec<u8> = Vec::new();
    for (at, key) in args.rest(3).iter().enumerate() {
        let text = ctx.read::<Str>(key)?;
        let bytes = text.map(Str::as_bytes).unwrap_or_default();
        if at == 0 {
            result.reserve_exact(bytes.len());
            bytes.chunks(CHUNK).take_while(|chunk| work.step_bytes(chunk.len())).for_each(|chunk| {
                let start = result.len();
                result.extend_from_slice(chunk);
                if word == b"not" {
                    result[start..].iter_mut().for_each(|byte| *byte = !*byte);
                }
            });
            continue;
        }
        // Shorter strings go on with zeros.
        if result.len() < bytes.len() {
            result.resize(bytes.len(), 0);
        }
        let (both, beyond) = result.split_at_mut(bytes.len());
        let both = both.chunks_mut(CHUNK).zip(bytes.chunks(CHUNK));
        both.take_while(|(_, chunk)| work.step_bytes(chunk.len())).for_each(|(held, chunk)| {
            held.iter_mut().zip(chunk).for_each(|(held, byte)| *held = operation(*held, *byte));
        });
        let beyond = beyond.chunks_mut(CHUNK).take_while(|held| work.step_bytes(held.len()));
        beyond.flatten().for_each(|held| *held = operation(*held, 0));
    }
    let len = result.len();
    if len == 0 {
        ctx.delete(args[2]);
    } else {
        ctx.put(args[2], Value::String(Str::Raw(result)), Expiry::Clear);
    }
    ctx.out.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn single_bits() {
        let mut bench = Bench::new();
        bench.expect("SETBIT k 7 1", ":0");
        bench.expect("SETBIT k 7 0", ":1");
        bench.expect("SETBIT k 100 1", ":0");
        bench.expect("STRLEN k", ":13");
        bench.expect("GETBIT k 100", ":1");
        bench.expect("GETBIT k 4294967295", ":0");
        bench.expect("SETBIT k 4294967296 1", "-ERR bit offset is not an integer or out of range");
        bench.expect("SETBIT k 1 2", "-ERR bit is not an integer or out of range");
    }

    #[test]
    fn counts_in_ranges() {
        let mut bench = Bench::new();
        bench.run("SET k foobar");
        for (range, wanted) in [
            ("", 26),
            (" 0 0", 4),
            (" 1 1 BYTE", 6),
            (" 5 30 BIT", 17),
            (" 9 10 BIT", 2),
            (" -2 -3", 0),
            (" 3 100", 14 - 4),
        ] {
            bench.expect(&format!("BITCOUNT k{range}"), &format!(":{wanted}"));
        }
        bench.expect("BITCOUNT k 0", "-ERR syntax error");
    }

    #[test]
    fn positions() {
        let mut bench = Bench::new();
        bench.call(&[b"SET", b"k", b"\xff\xf0\x00"]);
        bench.expect("BITPOS k 0", ":12");
        bench.expect("BITPOS k 1 2", ":-1");
        bench.expect("BITPOS k 1 7 15 BIT", ":7");
        bench.call(&[b"SET", b"k", b"\xff\xff"]);
        bench.expect("BITPOS k 0", ":16");
        bench.expect("BITPOS k 0 0 -1", ":-1");
        bench.expect("BITPOS none 0", ":0");
        bench.expect("BITPOS none 1", ":-1");
    }

    #[test]
    fn combinations_pad_with_zeros() {
        let mut bench = Bench::new();
        bench.run("MSET a abc b ab");
        bench.expect("BITOP AND r a b", ":3");
        bench.expect("BITCOUNT r 2 2", ":0");
        bench.expect("BITOP NOT r b", ":2");
        bench.expect("BITOP XOR r a a", ":3");
        bench.expect("BITOP NOT r a b", "-ERR BITOP NOT must be called with a single source key.");
        bench.expect("BITOP OR r none", ":0");
        bench.expect("EXISTS r", ":0");
        bench.check_roll_back(&[
            "SETBIT a 3 1",
            "SETBIT a 50 1",
            "SETBIT n 9 1",
            "BITOP OR b a n",
            "SETBIT a 51 1",
        ]);
    }
}
