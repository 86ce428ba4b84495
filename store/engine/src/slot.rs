//! CRC16, hash tags, slots: where a key lives. Same rule as Redis Cluster
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// CRC16/XMODEM, polynomial 0x1021, one table step per byte.
const TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ TABLE[((crc >> 8) as u8 ^ byte) as usize])
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
