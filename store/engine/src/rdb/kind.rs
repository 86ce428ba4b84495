//! The bytes that tell the kinds of values.

pub const STRING: u8 = 0;
pub const LIST: u8 = 1;
pub const SET: u8 = 2;
pub const ZSET: u8 = 3;
pub const HASH: u8 = 4;
pub const ZSET_2: u8 = 5;
pub const MODULE: u8 = 6;
pub const MODULE_2: u8 = 7;
pub const HASH_ZIPMAP: u8 = 9;
pub const LIST_ZIPLIST: u8 = 10;
pub const SET_INTSET: u8 = 11;
pub const ZSET_ZIPLIST: u8 = 12;
pub const HASH_ZIPLIST: u8 = 13;
pub const LIST_QUICKLIST: u8 = 14;
pub const STREAM_LISTPACKS: u8 = 15;
pub const HASH_LISTPACK: u8 = 16;
pub const ZSET_LISTPACK: u8 = 17;
pub const LIST_QUICKLIST_2: u8 = 18;
pub const STREAM_LISTPACKS_2: u8 = 19;
pub const SET_LISTPACK: u8 = 20;
pub const STREAM_LISTPACKS_3: u8 = 21;

/// Those that have this number or a higher one are of one dialect.
pub const FIRST_OF_ONE: u8 = 22;

/// A hash with the times of its fields, in Valkey since 9.0.
pub const HASH_2: u8 = 22;
/// A hash whose fields are paths, in Valkey since 9.2.
pub const PATH_HASH: u8 = 23;

/// Two of candidates of Redis 7.4 alone.
pub const HASH_METADATA_PRE_GA: u8 = 22;
pub const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
/// A hash with the times of its fields, in Redis since 7.4.
pub const HASH_METADATA: u8 = 24;
/// The same in a listpack.
pub const HASH_LISTPACK_EX: u8 = 25;
/// With what idempotent producers have sent, since Redis 8.6.
pub const STREAM_LISTPACKS_4: u8 = 26;
/// With pending entries that have no consumer, since Redis 8.8.
pub const STREAM_LISTPACKS_5: u8 = 27;
pub const ARRAY: u8 = 28;
/// Hashes that share the names of their fields, since Redis 8.10: with these names, or with the number of a template.
pub const HASH_TEMPLATE_LISTPACK: u8 = 29;
pub const HASH_TEMPLATE_LISTPACK_REF: u8 = 30;
pub const HASH_TEMPLATE_ARRAY: u8 = 31;
pub const HASH_TEMPLATE_ARRAY_REF: u8 = 32;
/// A rate limiter.
pub const GCRA: u8 = 33;
