//! How long a call waits, as it says.

use crate::long_double::LongDouble;
use crate::{CommandError, number};

/// Reads a timeout in milliseconds; 0: for ever.
pub fn whole_timeout_ms(text: &[u8]) -> Result<u64, CommandError> {
    let ms = number::parse_i64(text);
    let ms = ms.ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    u64::try_from(ms).map_err(|_| CommandError::new("ERR timeout is negative"))
}

/// Reads a timeout in seconds as milliseconds, rounded up; 0: for ever.
pub fn timeout_ms(text: &[u8]) -> Result<u64, CommandError> {
    let seconds = LongDouble::parse(text);
    let seconds = seconds.ok_or(CommandError::new("ERR timeout is not a float or out of range"))?;
    // In Redis what is too large overflows, and says the same.
    let ms = seconds.thousandfold().and_then(|ms| u64::try_from(ms).ok());
    ms.ok_or(CommandError::new("ERR timeout is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_as_redis_reads_them() {
        for (text, wanted) in [
            ("0", Ok(0)),
            ("1.5", Ok(1500)),
            ("0.0001", Ok(1)),
            ("0x10", Ok(16_000)),
            ("-0.0001", Ok(0)),
            ("-0.001", Ok(0)),
            ("9223372036854775.807", Ok(i64::MAX as u64)),
            ("-0.00101", Err("ERR timeout is negative")),
            ("-1", Err("ERR timeout is negative")),
            ("-inf", Err("ERR timeout is negative")),
            ("inf", Err("ERR timeout is negative")),
            ("1e300", Err("ERR timeout is negative")),
            ("9223372036854776", Err("ERR timeout is negative")),
            ("nan", Err("ERR timeout is not a float or out of range")),
            ("", Err("ERR timeout is not a float or out of range")),
            ("1x", Err("ERR timeout is not a float or out of range")),
        ] {
            let wanted = wanted.map_err(CommandError::new);
            assert_eq!(timeout_ms(text.as_bytes()), wanted, "{text}");
        }
    }
}
