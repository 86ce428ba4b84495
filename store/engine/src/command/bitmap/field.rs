//! BITFIELD: numbers of any width in a string.

use super::{BITMAP, MAX_BYTES};
use crate::cost::{Cost, Size};
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::steps::BYTES_PER_STEP;
use crate::value::Str;
use crate::{Args, Ctx, Value, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "bitfield",
        since: "3.2.0",
        keys: KeyPart::FIRST_WRITE,
        access: Access::Write,
        flags: flags::DENY_OOM,
        summary: "Performs operations on integers of any width in a string.",
        syntax: "key operation(GET=encoding_offset(encoding offset:int) | write(OVERFLOW=wrap_sat_fail(WRAP | SAT | FAIL)? write_operation(SET=encoding_offset_value(encoding offset:int value:int) | INCRBY=encoding_offset_increment(encoding offset:int increment:int))))...?",
        cost: Cost::Arguments(steps_to_extend),
        run: |ctx, args| perform(ctx, args, false),
        ..FIELDS
    },
    Command {
        name: "bitfield_ro",
        since: "6.0.0",
        flags: flags::FAST,
        summary: "Returns integers of any width from a string.",
        syntax: "key GET=encoding_offset(encoding offset:int)...+?",
        cost: Cost::Constant,
        run: |ctx, args| perform(ctx, args, true),
        ..FIELDS
    },
];

const FIELDS: Command =
    Command { arity: Arity::AtLeast(2), complexity: "O(N) where N is the number of operations.", ..BITMAP };

/// What becomes of a number that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// Where a number stands, and how it is kept.
#[derive(Clone, Copy)]
struct Field {
    offset: u64,
    bits: u32,
    signed: bool,
}

#[derive(Clone, Copy)]
enum What {
    Get,
    Set(i64),
    Increment(i64),
}

#[derive(Clone, Copy)]
struct FieldOp {
    field: Field,
    what: What,
    overflow: Overflow,
}

impl Field {
    fn parse(encoding: &[u8], offset: &[u8]) -> Result<Field, CommandError> {
        // As C reads it: up to the first zero byte.
        let encoding = encoding.split(|byte| *byte == 0).next().unwrap_or_default();
        let (signed, digits) = match encoding {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => (false, &b""[..]),
        };
        let widest = if signed { 64 } else { 63 };
        let bits =
            number::parse_i64(digits).filter(|bits| (1..=widest).contains(bits)).ok_or(CommandError::new(
                "ERR Invalid bitfield type. Use something like i16 u8. \
                 Note that u64 is not supported but i64 is.",
            ))?;
        let (digits, unit) = match offset {
            [b'#', digits @ ..] => (digits, bits),
            _ => (offset, 1),
        };
        let offset = number::parse_i64(digits)
            .and_then(|offset| u64::try_from(offset.wrapping_mul(unit)).ok())
            .filter(|offset| (offset + bits as u64 - 1) >> 3 < MAX_BYTES)
            .ok_or(super::OFFSET)?;
        Ok(Field { offset, bits: bits as u32, signed })
    }

    /// The bytes that it touches.
    fn bytes(self) -> std::ops::Range<usize> {
        (self.offset >> 3) as usize..((self.offset + u64::from(self.bits) - 1) >> 3) as usize + 1
    }

    /// How far its bytes, read as one number, have to be shifted; and its bits in there.
    fn shift_and_mask(self) -> (u32, u128) {
        let behind = 8 * self.bytes().len() as u32 - (self.offset & 7) as u32 - self.bits;
        (behind, ((1 << self.bits) - 1) << behind)
    }

    /// Its bytes in a string, which goes on with zeros, as one number.
    fn window(self, text: &[u8]) -> u128 {
        self.bytes().fold(0, |window, at| window << 8 | u128::from(text.get(at).copied().unwrap_or(0)))
    }

    /// The number.
    fn get(self, text: &[u8]) -> i128 {
        let (behind, mask) = self.shift_and_mask();
        let value = ((self.window(text) & mask) >> behind) as i128;
        if self.signed && value >> (self.bits - 1) != 0 { value - (1 << self.bits) } else { value }
    }

    /// Its bytes with another number in them, of which the low bits count.
    fn put(self, text: &[u8], value: i128) -> Vec<u8> {
        let (behind, mask) = self.shift_and_mask();
        let window = self.window(text) & !mask | (value.cast_unsigned() << behind) & mask;
        window.to_be_bytes()[16 - self.bytes().len()..].to_vec()
    }

    /// The least and the most that fits.
    fn bounds(self) -> (i128, i128) {
        let span = 1i128 << self.bits;
        if self.signed { (-span / 2, span / 2 - 1) } else { (0, span - 1) }
    }

    /// `value`, or what becomes of it if it does not fit.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (least, most) = self.bounds();
        if (least..=most).contains(&value) {
            return Some(value);
        }
        match overflow {
            Overflow::Wrap => Some((value - least).rem_euclid(1 << self.bits) + least),
            Overflow::Saturate => Some(value.clamp(least, most)),
            Overflow::Fail => None,
        }
    }
}

impl FieldOp {
    /// The number to be written, and the reply; `None` if it does not fit.
    fn outcome(self, text: &[u8]) -> Option<(i128, i128)> {
        let old = self.field.get(text);
        match self.what {
            What::Get => Some((old, old)),
            What::Set(value) => {
                // What is negative is too much for an unsigned field, never too little.
                let value = match (self.field.signed, self.overflow) {
                    (false, _) => i128::from(value.cast_unsigned()),
                    // Redis takes for too much what is so little that its distance to the most overflows.
                    (true, Overflow::Saturate) => {
                        let most = self.field.bounds().1;
                        let is_far = most - i128::from(value) > i128::from(i64::MAX);
                        if is_far && self.field.bits < 64 { most } else { i128::from(value) }
                    }
                    (true, _) => i128::from(value),
                };
                Some((self.field.fit(value, self.overflow)?, old))
            }
            What::Increment(by) => {
                let new = self.field.fit(old + i128::from(by), self.overflow)?;
                Some((new, new))
            }
        }
    }
}

/// Steps of filling a string up to the end of the last field that is written: what is there may have to move.
fn steps_to_extend(args: Args<'_>, size: Size) -> u64 {
    let writes = args.rest(2).windows(3).filter(|operation| !operation[0].eq_ignore_ascii_case(b"get"));
    let fields = writes.filter_map(|operation| Field::parse(operation[1], operation[2]).ok());
    let end = fields.map(|field| field.bytes().end).max().unwrap_or(0);
    if end <= size.capacity { 1 } else { (end / BYTES_PER_STEP) as u64 }
}

fn parse(args: Args<'_>) -> Result<Vec<FieldOp>, CommandError> {
    let (mut cursor, mut overflow, mut steps) = (args.cursor(2), Overflow::Wrap, Vec::new());
    while !cursor.is_done() {
        let left = cursor.remaining() - 1;
        if left >= 1 && cursor.flag("overflow") {
            overflow = match cursor.bytes()? {
                word if word.eq_ignore_ascii_case(b"wrap") => Overflow::Wrap,
                word if word.eq_ignore_ascii_case(b"sat") => Overflow::Saturate,
                word if word.eq_ignore_ascii_case(b"fail") => Overflow::Fail,
                _ => return Err(CommandError::new("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let gets = left >= 2 && cursor.flag("get");
        let sets = !gets && left >= 3 && cursor.flag("set");
        if !gets && !sets && (left < 3 || !cursor.flag("incrby")) {
            return Err(error::SYNTAX);
        }
        let field = Field::parse(cursor.bytes()?, cursor.bytes()?)?;
        let what = match gets {
            true => What::Get,
            false if sets => What::Set(cursor.integer()?),
            false => What::Increment(cursor.integer()?),
        };
        steps.push(FieldOp { field, what, overflow });
    }
    Ok(steps)
}

fn perform(ctx: &mut Ctx<'_>, args: Args<'_>, read_only: bool) -> Result<(), CommandError> {
    let steps = parse(args)?;
    let writes = steps.iter().filter(|step| !matches!(step.what, What::Get));
    let Some(len) = writes.map(|step| step.field.bytes().end).max() else {
        return ctx.reply_from::<Str>(args[1], |text, out| {
            let text = text.map(Str::as_bytes).unwrap_or_default();
            out.array(steps.len());
            steps.iter().for_each(|step| out.integer(step.field.get(&text) as i64));
        });
    };
    if read_only {
        return Err(CommandError::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    // Room for all comes first, whether it is used or not.
    let work = ctx.work;
    if ctx.read::<Str>(args[1])?.is_none() {
        let Some(zeros) = Str::zeros(len, work) else { return Ok(()) };
        ctx.put(args[1], Value::String(Str::Raw(zeros)), Expiry::Clear);
    }
    let Some((mut text, out)) = ctx.edit(args[1]).existing_and_reply::<Str>()? else { return Ok(()) };
    if text.len() < len {
        if !text.make_room(len - 1, len, work) {
            return Ok(());
        }
        text.write_at(len - 1, &[0]);
    }
    out.array(steps.len());
    for step in steps {
        let bytes = text.as_bytes();
        let Some((new, reply)) = step.outcome(&bytes) else {
            out.null();
            continue;
        };
        out.integer(reply as i64);
        let range = step.field.bytes();
        if matches!(step.what, What::Get) {
            continue;
        }
        let written = step.field.put(&bytes, new);
        if bytes[range.clone()] != *written {
            drop(bytes);
            text.write_at(range.start, &written);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn numbers_of_every_width_come_back() {
        let mut bench = Bench::new();
        for bits in 1..=64_u32 {
            for offset in 0..9 {
                bench.run("DEL k");
                let (most, least) = (i64::MAX >> (64 - bits), i64::MIN >> (64 - bits));
                for value in [most, least, 0, most / 3] {
                    bench.run(&format!("BITFIELD k SET i{bits} {offset} {value}"));
                    bench.expect(&format!("BITFIELD_RO k GET i{bits} {offset}"), &format!("*1 :{value}"));
                }
                if bits < 64 {
                    let most = i64::MAX >> (63 - bits);
                    bench.run(&format!("BITFIELD k SET u{bits} {offset} {most}"));
                    let get = format!("BITFIELD k GET u{bits} {offset} GET u1 {}", offset + bits);
                    bench.expect(&get, &format!("*2 :{most} :0"));
                    bench.expect("BITCOUNT k", &format!(":{bits}"));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit() {
        let mut bench = Bench::new();
        bench.expect("BITFIELD k INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :1 :1");
        bench.run("BITFIELD k INCRBY u2 100 2 OVERFLOW SAT INCRBY u2 102 2");
        bench.expect("BITFIELD k INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :0 :3");
        bench.expect("BITFIELD k OVERFLOW FAIL INCRBY u2 102 1 GET u2 102", "*2 $-1 :3");
        bench.expect("BITFIELD k OVERFLOW SAT SET u4 0 -1 GET u4 0 INCRBY u4 0 -20", "*3 :0 :15 :0");
        bench.expect("BITFIELD far OVERFLOW SAT SET i8 0 -9223372036854775681 GET i8 0", "*2 :0 :127");
        bench.expect("BITFIELD near OVERFLOW SAT SET i8 0 -9223372036854775680 GET i8 0", "*2 :0 :-128");
        bench.expect("BITFIELD k SET i8 #1 300 GET i8 8 INCRBY i8 8 -200", "*3 :0 :44 :100");
        bench
            .expect("BITFIELD n SET i64 3 9223372036854775807 INCRBY i64 3 1", "*2 :0 :-9223372036854775808");
        bench.expect("BITFIELD n OVERFLOW SAT INCRBY i64 3 -1", "*1 :-9223372036854775808");
        bench.expect("BITFIELD none OVERFLOW FAIL SET u1 20 2", "*1 $-1");
        bench.expect("STRLEN none", ":3");
    }

    #[test]
    fn what_is_refused() {
        let mut bench = Bench::new();
        let kind = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let offset = "-ERR bit offset is not an integer or out of range";
        for (rest, wanted) in [
            ("GET u64 0", kind),
            ("GET i65 0", kind),
            ("GET i0 0", kind),
            ("GET I8 0", kind),
            ("GET u8 -1", offset),
            ("GET u8 #9223372036854775807", offset),
            ("GET u8 4294967296", offset),
            ("SET u8 4294967289 1", offset),
            ("GET u8", "-ERR syntax error"),
            ("SET u8 0", "-ERR syntax error"),
            ("OVERFLOW", "-ERR syntax error"),
            ("OVERFLOW NO", "-ERR Invalid OVERFLOW type specified"),
            ("SET u8 0 x", "-ERR value is not an integer or out of range"),
        ] {
            bench.expect(&format!("BITFIELD k {rest}"), wanted);
        }
        bench.expect("BITFIELD_RO k SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand");
        bench.expect("EXISTS k", ":0");
        bench.expect("BITFIELD k", "*0");
        bench.run("SET k 12");
        bench.expect("BITFIELD_RO k GET u8 #1 GET u8 #2", "*2 :50 :0");
        bench.check_roll_back(&[
            "BITFIELD k SET u4 2 7 INCRBY i9 40 -3",
            "BITFIELD n SET u4 2 7",
            "BITFIELD n INCRBY u4 2 1 SET u1 90 1",
        ]);
        bench.run("LPUSH l a");
        bench.expect(
            "BITFIELD l SET u4 2 7",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
    }
}
