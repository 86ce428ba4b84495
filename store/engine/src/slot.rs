//! CRC16, hash tags, slots: where a key lives. Same rule as Redis Cluster
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// Bytes that are taken in one step: a step waits for the one before it, whatever its size.
const STEP: usize = 4;

/// CRC16/XMODEM, polynomial 0x1021: of each byte, with so many bytes behind it.
const TABLES: [[u16; 256]; STEP] = {
    let mut tables = [[0u16; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut behind = 1;
    while behind < STEP {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[behind - 1][byte];
            tables[behind][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
};

fn crc16(bytes: &[u8]) -> u16 {
    let of = |behind: usize, byte: u8| TABLES[behind][usize::from(byte)];
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let crc = steps.iter().fold(0u16, |crc, &[first, second, third, fourth]| {
        let [high, low] = crc.to_be_bytes();
        of(3, first ^ high) ^ of(2, second ^ low) ^ of(1, third) ^ of(0, fourth)
    });
    rest.iter().fold(crc, |crc, &byte| (crc << 8) ^ of(0, (crc >> 8) as u8 ^ byte))
}

/// The slot of `key`: of the part between the first `{` and the next `}` if that part is not empty, else of
/// the whole key.
pub fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'{', key)?;
    let inner = &key[open + 1..];
    let close = memchr::memchr(b'}', inner)?;
    (close > 0).then(|| &inner[..close])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn steps_make_no_difference() {
        let bytes: Vec<u8> = (0..40u8).map(|at| at.wrapping_mul(37) ^ 0x5A).collect();
        let bit_by_bit = |bytes: &[u8]| {
            bytes.iter().fold(0u16, |crc, &byte| {
                (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                    if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 }
                })
            })
        };
        for len in 0..bytes.len() {
            assert_eq!(crc16(&bytes[..len]), bit_by_bit(&bytes[..len]), "{len}");
        }
    }

    #[test]
    fn slots_as_redis_cluster_computes_them() {
        // From `CLUSTER KEYSLOT` of redis-server 7.0.15.
        assert_eq!(slot(b"somekey"), 11058);
        assert_eq!(slot(b"foo{hash_tag}"), 2515);
        assert_eq!(slot(b"bar{hash_tag}"), 2515);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn an_empty_or_open_tag_is_no_tag() {
        assert_eq!(slot(b"a{}b"), crc16(b"a{}b") % SLOTS);
        assert_eq!(slot(b"a{b"), crc16(b"a{b") % SLOTS);
        assert_eq!(slot(b"{a}{b}"), slot(b"a"));
    }
}
