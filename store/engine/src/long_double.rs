//! The 80-bit floats of x86, in software: INCRBYFLOAT and HINCRBYFLOAT compute with C's `long double`, and 0.1 +
//! 0.2 must be 0.3 here too.
//!
//! A number is `mantissa * 2^exponent` with a mantissa of 64 bits. Everything rounds to nearest, ties to even.

use std::cmp::Ordering;

/// Exponent of the smallest numbers; a mantissa without its top bit is allowed only here.
const LEAST: i32 = -16_445;
/// Exponent of the largest numbers.
const MOST: i32 = 16_320;
/// Texts this long are no numbers for Redis (`MAX_LONG_DOUBLE_CHARS`).
const MAX_TEXT: usize = 5 * 1024;

/// A finite or infinite 80-bit float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

impl LongDouble {
    /// Zero.
    pub const ZERO: LongDouble = LongDouble { negative: false, mantissa: 0, exponent: LEAST };
    /// The largest finite one.
    pub const LARGEST: LongDouble = LongDouble { negative: false, mantissa: u64::MAX, exponent: MOST };
    /// The least finite one.
    pub const LEAST: LongDouble = LongDouble { negative: true, ..LongDouble::LARGEST };
    /// One.
    pub const ONE: LongDouble = LongDouble { negative: false, mantissa: 1 << 63, exponent: -63 };
    const INFINITE: LongDouble = LongDouble { negative: false, mantissa: 1 << 63, exponent: MOST + 1 };

    /// Whether it is an infinity.
    pub fn is_infinite(self) -> bool {
        self.exponent > MOST
    }

    /// Whether it is less than zero.
    pub fn is_negative(self) -> bool {
        self.negative && self.mantissa != 0
    }

    /// The same with the other sign.
    pub fn negated(self) -> LongDouble {
        LongDouble { negative: !self.negative, ..self }
    }

    /// Which of them is larger.
    pub fn compare(self, other: LongDouble) -> Ordering {
        // Both parts grow with the magnitude: only the smallest numbers lack the top bit of the mantissa.
        let magnitude = |number: LongDouble| (number.exponent, number.mantissa);
        match (self.is_negative(), other.is_negative()) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => magnitude(self).cmp(&magnitude(other)),
            (true, true) => magnitude(other).cmp(&magnitude(self)),
        }
    }

    /// Reads `text` as Redis' `string2ld` does: all that C's `strtold` takes, but no blanks, no NaN, nothing that
    /// vanishes or overflows.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.is_empty() || text.len() >= MAX_TEXT {
            return None;
        }
        let (negative, body) = match text {
            [b'-', body @ ..] => (true, body),
            [b'+', body @ ..] => (false, body),
            body => (false, body),
        };
        let magnitude = if body.eq_ignore_ascii_case(b"inf") || body.eq_ignore_ascii_case(b"infinity") {
            LongDouble::INFINITE
        } else if let [b'0', b'x' | b'X', digits @ ..] = body {
            scaled(Digits::read(digits, 16, b'p')?)?
        } else {
            scaled(Digits::read(body, 10, b'e')?)?
        };
        Some(LongDouble { negative, ..magnitude })
    }

    /// The sum. Infinities of both signs have none.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        if self.is_infinite() || other.is_infinite() {
            return None;
        }
        let (big, small) = if (self.exponent, self.mantissa) >= (other.exponent, other.mantissa) {
            (self, other)
        } else {
            (other, self)
        };
        // The larger one gets 62 bits of room below, one above for the carry. What the smaller one has below
        // that room only matters as "more than nothing".
        let distance = (big.exponent - small.exponent) as u32;
        let wide = u128::from(big.mantissa) << 62;
        let (part, lost) = match u128::from(small.mantissa) << 62 {
            whole if distance < 128 => (whole >> distance, whole & !(u128::MAX << distance) != 0),
            whole => (0, whole != 0),
        };
        let total = if big.negative == small.negative {
            (wide + part) | u128::from(lost)
        } else {
            let difference = wide - part;
            if lost { (difference - 1) | 1 } else { difference }
        };
        if total == 0 {
            return Some(LongDouble { negative: self.negative && other.negative, ..LongDouble::ZERO });
        }
        let sum = rounded(total, big.exponent - 62);
        (!sum.is_infinite()).then_some(LongDouble { negative: big.negative, ..sum })
    }

    /// A thousand times this number, rounded up to a whole one; `None` if that has no 64 bits.
    pub fn thousandfold(self) -> Option<i64> {
        if self.mantissa == 0 {
            return Some(0);
        }
        let product = rounded(u128::from(self.mantissa) * 1000, self.exponent);
        let (whole, more) = match product.exponent {
            0 => (product.mantissa, false),
            1.. => return None,
            -63.. => {
                let whole = product.mantissa >> -product.exponent;
                (whole, whole << -product.exponent != product.mantissa)
            }
            _ => (0, true),
        };
        let whole = i128::from(whole);
        let up = if self.negative { -whole } else { whole + i128::from(more) };
        i64::try_from(up).ok()
    }

    /// As C's `%.17Lf` writes it, without trailing zeros: Redis' "human" form. Must be finite.
    pub fn to_human(self) -> String {
        debug_assert!(!self.is_infinite());
        let sign = if self.negative { "-" } else { "" };
        if self.exponent >= 0 {
            let mut whole = Big::from(self.mantissa);
            whole.shift_left(self.exponent as u32);
            return format!("{sign}{}", whole.into_decimal());
        }
        const UNIT: u128 = 100_000_000_000_000_000;
        let shift = self.exponent.unsigned_abs();
        // 64 and 57 bits make 121.
        let wide = u128::from(self.mantissa) * UNIT;
        let (mut units, rest, half) = match shift {
            1..=127 => (wide >> shift, wide & !(u128::MAX << shift), 1u128 << (shift - 1)),
            _ => (0, 0, 1),
        };
        let up = match rest.cmp(&half) {
            Ordering::Greater => true,
            Ordering::Equal => units % 2 == 1,
            Ordering::Less => false,
        };
        units += u128::from(up);
        let text = format!("{sign}{}.{:017}", units / UNIT, units % UNIT);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if text == "-0" { "0".into() } else { text.into() }
    }
}

/// `mantissa * 2^exponent` rounded to 64 bits; infinite if it is too large. The lowest bit may stand for "and
/// something more below". The mantissa is not 0.
fn rounded(mantissa: u128, exponent: i32) -> LongDouble {
    let width = 128 - mantissa.leading_zeros() as i32;
    let lowest = (exponent + width - 64).max(LEAST);
    let shift = lowest - exponent;
    let (mut kept, mut lowest) = if shift <= 0 {
        ((mantissa << -shift) as u64, lowest)
    } else if shift > 127 {
        (0, lowest)
    } else {
        let kept = (mantissa >> shift) as u64;
        let rest = mantissa & !(u128::MAX << shift);
        let half = 1u128 << (shift - 1);
        let up = rest > half || (rest == half && kept % 2 == 1);
        match kept.checked_add(u64::from(up)) {
            Some(kept) => (kept, lowest),
            None => (1 << 63, lowest + 1),
        }
    };
    if lowest > MOST {
        return LongDouble::INFINITE;
    }
    if kept == 0 {
        (kept, lowest) = (0, LEAST);
    }
    LongDouble { negative: false, mantissa: kept, exponent: lowest }
}

/// A number as it is spelled: `digits * base^scale`, for base 16 `digits * 2^scale`.
struct Digits {
    digits: Big,
    base: u32,
    scale: i64,
}

impl Digits {
    fn read(text: &[u8], base: u32, mark: u8) -> Option<Digits> {
        let mut digits = Big::from(0);
        let (mut scale, mut count, mut dot, mut at) = (0i64, 0, false, 0);
        while let Some(&byte) = text.get(at) {
            match (byte as char).to_digit(base) {
                Some(digit) => {
                    digits.multiply_add(base, digit);
                    count += 1;
                    scale -= i64::from(dot);
                }
                None if byte == b'.' && !dot => dot = true,
                None => break,
            }
            at += 1;
        }
        if count == 0 {
            return None;
        }
        if base == 16 {
            scale *= 4;
        }
        if let Some(byte) = text.get(at) {
            if byte.to_ascii_lowercase() != mark {
                return None;
            }
            let (negative, power) = match &text[at + 1..] {
                [b'-', power @ ..] => (true, power),
                [b'+', power @ ..] => (false, power),
                power => (false, power),
            };
            if power.is_empty() || !power.iter().all(u8::is_ascii_digit) {
                return None;
            }
            // Beyond a million every number of this length is too large or vanishes.
            let power =
                power.iter().fold(0i64, |power, byte| (power * 10 + i64::from(byte - b'0')).min(1_000_000));
            scale += if negative { -power } else { power };
        }
        Some(Digits { digits, base, scale })
    }
}

/// The nearest number; `None` if it overflows or vanishes.
fn scaled(Digits { digits: mut over, base, scale }: Digits) -> Option<LongDouble> {
    if over.is_zero() {
        return Some(LongDouble::ZERO);
    }
    // Bounds far outside the range, so that no power below grows without limit.
    let bits_per_step = if base == 16 { 1 } else { 3 };
    let magnitude = over.bits() as i64 + scale * bits_per_step;
    if !(-70_000..70_000).contains(&magnitude) {
        return None;
    }
    let mut exponent = 0i32;
    let mut under = Big::from(1);
    match (base, scale) {
        (16, _) => exponent = scale as i32,
        (_, 0..) => over.multiply_power_of_ten(scale as u32),
        _ => under.multiply_power_of_ten(scale.unsigned_abs() as u32),
    }
    // Scaled so that the quotient has 66 or 67 bits; then a long division, bit by bit.
    let shift = 66 + under.bits() as i32 - over.bits() as i32;
    if shift >= 0 {
        over.shift_left(shift as u32)
    } else {
        under.shift_left(shift.unsigned_abs())
    }
    exponent -= shift;
    under.shift_left(67);
    let mut quotient = 0u128;
    for _ in 0..68 {
        quotient <<= 1;
        if over.compare(&under) != Ordering::Less {
            over.subtract(&under);
            quotient |= 1;
        }
        under.halve();
    }
    // Two more bits of room, so that the sticky bit is below the half.
    let value = rounded((quotient << 2) | u128::from(!over.is_zero()), exponent - 2);
    (value.mantissa != 0 && !value.is_infinite()).then_some(value)
}

/// A natural number, lowest limb first, without leading zero limbs.
struct Big(Vec<u32>);

impl Big {
    fn from(value: u64) -> Big {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.tidy();
        big
    }

    fn tidy(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_power_of_ten(&mut self, mut power: u32) {
        while power > 0 {
            let step = power.min(9);
            self.multiply_add(10u32.pow(step), 0);
            power -= step;
        }
    }

    fn shift_left(&mut self, bits: u32) {
        let (limbs, bits) = (bits as usize / 32, bits % 32);
        self.multiply_add(1 << bits, 0);
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
        self.tidy();
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            let next = *limb << 31;
            *limb = *limb >> 1 | carry;
            carry = next;
        }
        self.tidy();
    }

    fn compare(&self, other: &Big) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// `other` must not be larger.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (value, first) = limb.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (value, second) = value.overflowing_sub(u32::from(borrow));
            (*limb, borrow) = (value, first || second);
        }
        self.tidy();
    }

    fn into_decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0u64;
            for limb in self.0.iter_mut().rev() {
                rest = rest << 32 | u64::from(*limb);
                *limb = (rest / 1_000_000_000) as u32;
                rest %= 1_000_000_000;
            }
            groups.push(rest);
            self.tidy();
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text.push_str(&format!("{group:09}")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let (a, b) = (LongDouble::parse(a.as_bytes()).unwrap(), LongDouble::parse(b.as_bytes()).unwrap());
        a.checked_add(b).map_or("none".into(), LongDouble::to_human)
    }

    /// Every sum is from INCRBYFLOAT of redis-server 7.0.15 on x86-64.
    #[test]
    fn sums_as_redis_computes_them() {
        for (a, b, wanted) in [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("-0", "-0", "0"),
            ("0x10", "0x.8p1", "17"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("3", "1e-17", "3.00000000000000001"),
            ("1e4932", "1e4932", "none"),
            ("1e30", "0", "1000000000000000000024696061952"),
            ("-1e-18", "0", "0"),
        ] {
            assert_eq!(sum(a, b), wanted, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "1e",
            "e1",
            ".",
            "0x",
            "1e5000",
            "1e-5000",
            "1e99999999999999999999",
            "1.2.3",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert!(LongDouble::parse(b"-Infinity").unwrap().is_infinite());
    }
}
