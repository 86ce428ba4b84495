//! The checksum at the end of payloads and files: CRC-64 with the polynomial of Jones, bits reflected.

/// The sum of `bytes` behind those that gave `sum`; 0 to begin.
pub fn crc64(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    for word in words {
        let mixed = (sum ^ u64::from_le_bytes(*word)).to_le_bytes();
        sum = (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][usize::from(mixed[at])]);
    }
    rest.iter().fold(sum, |sum, byte| TABLES[0][usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

/// For eight bytes at once: `TABLES[n]` is what a byte adds that `n` others follow.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 256 {
        let mut sum = at as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][at] = sum;
        at += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut at = 0;
        while at < 256 {
            let sum = tables[behind - 1][at];
            tables[behind][at] = tables[0][sum as usize & 255] ^ sum >> 8;
            at += 1;
        }
        behind += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::crc64;

    #[test]
    fn the_sum_is_that_of_redis() {
        // The value in the comments of Redis' crc64.c.
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_come() {
        let bytes: Vec<u8> = (0..100u8).map(|byte| byte.wrapping_mul(37)).collect();
        let whole = crc64(0, &bytes);
        for at in 0..=bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..at]), &bytes[at..]), whole, "{at}");
        }
        assert_eq!(bytes.iter().fold(0, |sum, byte| crc64(sum, &[*byte])), whole);
    }
}
