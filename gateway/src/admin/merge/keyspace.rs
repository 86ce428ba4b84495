//! How many keys a server has, and what INFO says of it.

use std::collections::BTreeMap;

/// Keys by database.
pub type Keyspace = BTreeMap<usize, u64>;

/// Reads the reply of `INFO keyspace`. Databases without keys are missing.
pub fn parse(info: &[u8]) -> Keyspace {
    let text = String::from_utf8_lossy(info);
    let row = |line: &str| {
        let (db, fields) = line.strip_prefix("db")?.split_once(':')?;
        let keys = fields.split(',').find_map(|field| field.strip_prefix("keys="))?;
        Some((db.parse().ok()?, keys.parse().ok()?))
    };
    text.lines().filter_map(row).filter(|(_, keys)| *keys > 0).collect()
}

/// How a keyspace is said: `3 keys in database 0, 1 keys in database 7`.
pub fn shown(keyspace: &Keyspace) -> String {
    let rows = keyspace.iter().map(|(db, keys)| format!("{keys} keys in database {db}"));
    rows.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_redis_is_read() {
        let info = b"# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=5\r\ndb2:keys=0,expires=0\r\n\
            db7:keys=1,expires=0,avg_ttl=0,subexpiry=0\r\ndbx:keys=1\r\n";
        let keyspace = parse(info);
        assert_eq!(keyspace, Keyspace::from([(0, 3), (7, 1)]));
        assert_eq!(shown(&keyspace), "3 keys in database 0, 1 keys in database 7");
        assert!(parse(b"").is_empty());
    }
}
