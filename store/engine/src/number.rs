//! Numbers as Redis reads and writes them.

/// A 64-bit integer in its one canonical spelling (as Redis' `string2ll`): no blanks, no plus sign, no leading
/// zeros, no `-0`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut value: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative {
        (value <= i64::MIN.unsigned_abs()).then(|| (value as i64).wrapping_neg())
    } else {
        i64::try_from(value).ok()
    }
}

/// A float as Redis' `getDoubleFromObject` takes it: what C's `strtod` reads, but without blanks, NaN, values too
/// large or too small, or anything behind it.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if text.len() < 16
        && let Some(whole) = parse_i64(text)
    {
        return Some(whole as f64); // exact: fewer than 2^53
    }
    let blank = text.first().is_none_or(|byte| is_blank(*byte));
    let (value, read) = strtod(text);
    if blank || read != text.len() || value.is_nan() {
        return None;
    }
    let digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E' | b'p' | b'P'));
    let hex = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    let mut digits = digits.filter(|byte| if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() });
    // The one spelled infinity has no digits.
    let overflows = value.is_infinite() && digits.clone().next().is_some();
    let underflows = value == 0.0 && digits.any(|byte| *byte != b'0');
    (!overflows && !underflows).then_some(value)
}

/// The number at the start of `text` as C's `strtod` reads it (blanks before it, `inf`, `nan` and hexadecimal
/// included), and how many bytes that took: none if there is no number.
pub fn strtod(text: &[u8]) -> (f64, usize) {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let signed = matches!(text.get(blanks), Some(b'+' | b'-'));
    let start = blanks + usize::from(signed);
    let body = &text[start..];
    let starts = |word: &str| body.get(..word.len()).is_some_and(|s| s.eq_ignore_ascii_case(word.as_bytes()));
    let (value, read) = if starts("infinity") {
        (f64::INFINITY, 8)
    } else if starts("inf") {
        (f64::INFINITY, 3)
    } else if starts("nan") {
        (f64::NAN, 3)
    } else if starts("0x")
        && let Some(found) = hex_float(&body[2..])
    {
        (found.0, found.1 + 2)
    } else {
        decimal_float(body)
    };
    match read {
        0 => (0.0, 0),
        _ if text[blanks] == b'-' => (-value, start + read),
        _ => (value, start + read),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn digits(text: &[u8], accepts: fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| accepts(byte)).count()
}

/// Length of an exponent (its mark, sign and digits) at the start of `text`; 0 if it is not complete.
fn exponent(text: &[u8], mark: u8) -> usize {
    if !text.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&mark)) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    match digits(&text[1 + sign..], u8::is_ascii_digit) {
        0 => 0,
        count => 1 + sign + count,
    }
}

fn decimal_float(text: &[u8]) -> (f64, usize) {
    let whole = digits(text, u8::is_ascii_digit);
    let mut read = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = digits(&text[whole + 1..], u8::is_ascii_digit);
        if whole + fraction == 0 {
            return (0.0, 0);
        }
        read += 1 + fraction;
    }
    if read > 0 {
        read += exponent(&text[read..], b'e');
    }
    let spelled = std::str::from_utf8(&text[..read]).ok().and_then(|text| text.parse().ok());
    spelled.map_or((0.0, 0), |value| (value, read))
}

/// The part behind `0x`: digits with a point somewhere, and a power of two.
fn hex_float(text: &[u8]) -> Option<(f64, usize)> {
    let whole = digits(text, u8::is_ascii_hexdigit);
    let mut read = whole;
    if text.get(whole) == Some(&b'.') {
        read += 1 + digits(&text[whole + 1..], u8::is_ascii_hexdigit);
    }
    let (mut mantissa, mut scale) = (0u64, 0i32);
    for &byte in text[..read].iter().filter(|byte| **byte != b'.') {
        let digit = char::from(byte).to_digit(16).unwrap_or_default();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
        } else {
            // Beyond what rounding looks at, but for being there.
            mantissa |= u64::from(digit != 0);
            scale = scale.saturating_add(4);
        }
    }
    let fraction = read.saturating_sub(whole + 1);
    if whole + fraction == 0 {
        return None;
    }
    let fraction = i32::try_from(fraction.saturating_mul(4)).unwrap_or(i32::MAX);
    let power = exponent(&text[read..], b'p');
    let given = match power {
        0 => 0,
        _ => {
            let spelled = std::str::from_utf8(&text[read + 1..read + power]).ok()?;
            let limit = if spelled.starts_with('-') { i32::MIN } else { i32::MAX };
            spelled.parse().unwrap_or(limit)
        }
    };
    let mut scale = scale.saturating_sub(fraction).saturating_add(given).clamp(-4000, 4000);
    let mut value = mantissa as f64;
    while scale != 0 {
        let step = scale.clamp(-1000, 1000);
        value *= 2f64.powi(step);
        scale -= step;
    }
    Some((value, read + power))
}

/// Appends `value` as C's `%.17g` writes it: what redis-server 7.0 sends for scores.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value == value.trunc() && value.abs() < 1e15 {
        if value == 0.0 && value.is_sign_negative() {
            out.extend_from_slice(b"-0");
        } else {
            out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
        }
    } else {
        push_g17(out, value);
    }
}

/// `%.17g` in general: 17 significant digits, trailing zeros dropped, exponent form outside 1e-5 .. 1e17.
fn push_g17(out: &mut Vec<u8>, value: f64) {
    let text = format!("{value:.16e}");
    let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    out.extend_from_slice(sign.as_bytes());
    if !(-4..17).contains(&exponent) {
        out.extend_from_slice(&digits.as_bytes()[..1]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[1..]);
        }
        let mark = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{mark}{:02}", exponent.abs()).as_bytes());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(digits.as_bytes());
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out.extend_from_slice(digits.as_bytes());
            out.resize(out.len() + whole - digits.len(), b'0');
        } else {
            out.extend_from_slice(&digits.as_bytes()[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[whole..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1.0", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn floats_as_redis_takes_them() {
        for (text, wanted) in [
            ("3.5", Some(3.5)),
            ("1e3", Some(1000.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+inf", Some(f64::INFINITY)),
            ("infinity", Some(f64::INFINITY)),
            ("0x10", Some(16.0)),
            ("-0X1.8p1", Some(-3.0)),
            ("0x1p-2000", None),
            ("0x", None),
            (".", None),
            ("1.", Some(1.0)),
            (".5e1", Some(5.0)),
            ("1e", None),
            ("5e-324", Some(5e-324)),
            ("123456789012345678", Some(123456789012345680.0)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn numbers_at_the_start_as_strtod_reads_them() {
        for (text, wanted) in [
            ("", (0.0, 0)),
            (" \t12x", (12.0, 4)),
            ("1e+", (1.0, 1)),
            ("1e400", (f64::INFINITY, 5)),
            ("-Infinit", (f64::NEG_INFINITY, 4)),
            ("0xg", (0.0, 1)),
            ("0x.8", (0.5, 4)),
            ("-", (0.0, 0)),
            ("+.", (0.0, 0)),
            ("(1", (0.0, 0)),
        ] {
            assert_eq!(strtod(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn floats_as_seventeen_digits() {
        for (value, wanted) in [
            (3.99, "3.9900000000000002"),
            (0.1, "0.10000000000000001"),
            (1e300, "1.0000000000000001e+300"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (123456789.125, "123456789.125"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (-0.0, "-0"),
            (5.0, "5"),
        ] {
            let mut out = Vec::new();
            push_f64(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
