//! What a script makes the host do is limited as what it computes itself: every command that a script may call, at its most
//! expensive, ends with the script, and other connections are served meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tests::{Client, SetOnDrop, TestServer, Value, notation};

/// Elements of a large collection, unless `MOONSHARD_WORK_ELEMENTS` says otherwise.
const ELEMENTS: usize = 60_000;
/// Bytes of a large string for each element of a large collection.
const BYTES_PER_ELEMENT: usize = 160;
/// Runs of a script within which another connection has to be answered.
const ATTEMPTS: usize = 20;
/// PINGs answered from the call of a script to its end, if the server does not answer meanwhile: one as it begins, one as
/// it ends.
const ANSWERED_AT_THE_ENDS: u64 = 2;

/// Between two PINGs: many fit into a script's time limit.
const PAUSE: Duration = Duration::from_millis(1);

/// Keys that all scripts declare. What their names say is in them; there is nothing in `new`, `d` and `e`.
const KEYS: [&str; 18] = [
    "text", "other", "number", "set", "set2", "hash", "list", "zset", "zset2", "stream", "geo", "hll",
    "hll2", "weights", "json", "new", "d", "e",
];

/// What scripts find before their loop: `c` calls, `many` are 7000 words, `id` a number in the middle of all elements, `megabyte`
/// that many bytes.
const PRELUDE: &str = "
    local c, many, n = redis.call, {}, tonumber(ARGV[1])
    for i = 1, 7000 do many[i] = tostring(i) end
    local function with(each) local t = {} for i = 1, 2000 do for _, w in ipairs(each(i)) do t[#t + 1] = w end end return t end
    local middle, megabyte, payload = tostring(n / 2), ('x'):rep(2 ^ 20), nil
    while true do\n";

/// The most expensive use of commands: what a script does in an endless loop.
const RECIPES: &[(&str, &str)] = &[
    // Strings.
    ("append", "c('APPEND', 'text', megabyte)"),
    ("decr", "c('DECR', 'number')"),
    ("decrby", "c('DECRBY', 'number', 7)"),
    ("get", "c('GET', 'text')"),
    ("delex", "c('DELEX', 'text', 'IFDEQ', '0000000000000000')"),
    ("delifeq", "c('DELIFEQ', 'text', megabyte)"),
    ("digest", "c('DIGEST', 'text')"),
    ("getdel", "c('COPY', 'text', 'd', 'REPLACE') c('GETDEL', 'd')"),
    ("getex", "c('GETEX', 'text', 'EX', 100)"),
    ("getrange", "c('GETRANGE', 'text', 1, -2)"),
    ("getset", "c('COPY', 'text', 'd', 'REPLACE') c('GETSET', 'd', 'x')"),
    ("incr", "c('INCR', 'number')"),
    ("incrby", "c('INCRBY', 'number', 7)"),
    ("incrbyfloat", "c('INCRBYFLOAT', 'number', 1.5)"),
    ("increx", "c('INCREX', 'number', 'BYFLOAT', 1.5, 'UBOUND', 1e9)"),
    (
        "lcs",
        "c('SETRANGE', 'd', 0, megabyte:sub(1, 8000)) c('SETRANGE', 'e', 0, ('y'):rep(8000)) c('LCS', 'd', 'e', 'LEN')",
    ),
    ("mget", "c('MGET', unpack(many))"),
    ("mset", "c('MSET', unpack(many))"),
    ("msetex", "c('MSETEX', 3500, unpack(many))"),
    ("msetnx", "c('MSETNX', unpack(many)) c('DEL', unpack(many))"),
    ("psetex", "c('PSETEX', 'd', 100000, megabyte)"),
    ("set", "c('SET', 'd', megabyte)"),
    ("setex", "c('SETEX', 'd', 100, megabyte)"),
    ("setnx", "c('SETNX', 'd', megabyte) c('DEL', 'd')"),
    ("setrange", "c('SETRANGE', 'd', 2 ^ 29 - 2, 'x') c('DEL', 'd')"),
    ("strlen", "c('STRLEN', 'text')"),
    ("substr", "c('SUBSTR', 'text', 1, -2)"),
    // Bitmaps.
    ("bitcount", "c('BITCOUNT', 'text')"),
    ("bitfield", "c('BITFIELD', 'd', 'SET', 'u8', 2 ^ 32 - 8, 1) c('DEL', 'd')"),
    ("bitfield_ro", "c('BITFIELD_RO', 'text', unpack(with(function(i) return {'GET', 'u8', i} end)))"),
    ("bitop", "c('BITOP', 'XOR', 'd', 'text', 'other')"),
    ("bitpos", "c('BITPOS', 'text', 1)"),
    ("getbit", "c('GETBIT', 'text', 1000)"),
    ("setbit", "c('SETBIT', 'd', 2 ^ 32 - 1, 1) c('DEL', 'd')"),
    // HyperLogLogs.
    ("pfadd", "c('PFADD', 'hll', unpack(many))"),
    ("pfcount", "c('PFCOUNT', 'hll', 'hll2')"),
    ("pfdebug", "c('PFDEBUG', 'GETREG', 'hll')"),
    ("pfmerge", "c('PFMERGE', 'd', 'hll', 'hll2')"),
    // Keys.
    ("copy", "c('COPY', 'zset', 'd', 'REPLACE')"),
    ("dbsize", "c('DBSIZE')"),
    ("del", "c('COPY', 'zset', 'd', 'REPLACE') c('DEL', 'd')"),
    ("dump", "c('DUMP', 'list')"),
    ("exists", "c('EXISTS', unpack(many))"),
    ("expire", "c('EXPIRE', 'zset', 100)"),
    ("expireat", "c('COPY', 'zset', 'd', 'REPLACE') c('EXPIREAT', 'd', 1)"),
    ("expiretime", "c('EXPIRETIME', 'zset')"),
    ("flushall", "c('FLUSHALL')"),
    ("flushdb", "c('COPY', 'zset', 'd') c('FLUSHDB', 'SYNC')"),
    ("keys", "c('KEYS', '*1*2*3*4*5*6*')"),
    ("memory|usage", "c('MEMORY', 'USAGE', 'zset', 'SAMPLES', 0)"),
    (
        "move",
        "c('COPY', 'zset', 'd', 'REPLACE') c('MOVE', 'd', 1) c('SELECT', 1) c('DEL', 'd') c('SELECT', 0)",
    ),
    ("object|encoding", "c('OBJECT', 'ENCODING', 'zset')"),
    ("object|idletime", "c('OBJECT', 'IDLETIME', 'zset')"),
    ("object|sticky", "c('OBJECT', 'STICKY', 'zset')"),
    ("object|refcount", "c('OBJECT', 'REFCOUNT', 'zset')"),
    ("persist", "c('EXPIRE', 'zset', 100) c('PERSIST', 'zset')"),
    ("pexpire", "c('PEXPIRE', 'zset', 100000)"),
    ("pexpireat", "c('COPY', 'zset', 'd', 'REPLACE') c('PEXPIREAT', 'd', 1)"),
    ("pexpiretime", "c('PEXPIRETIME', 'zset')"),
    ("pttl", "c('PTTL', 'zset')"),
    ("randomkey", "c('RANDOMKEY')"),
    ("rename", "c('COPY', 'zset', 'd', 'REPLACE') c('RENAME', 'd', 'e')"),
    ("renamenx", "c('COPY', 'zset', 'd', 'REPLACE') c('DEL', 'e') c('RENAMENX', 'd', 'e')"),
    ("restore", "payload = payload or c('DUMP', 'hash') c('RESTORE', 'd', 0, payload, 'REPLACE')"),
    (
        "restore-asking",
        "payload = payload or c('DUMP', 'hash') c('RESTORE-ASKING', 'd', 0, payload, 'REPLACE')",
    ),
    ("scan", "c('SCAN', 0, 'COUNT', 10000000, 'MATCH', 'x')"),
    ("sort", "c('SORT', 'weights', 'BY', 'w_*', 'GET', 'w_*', 'STORE', 'd')"),
    ("sort_ro", "c('SORT_RO', 'set', 'ALPHA', 'LIMIT', 0, 10)"),
    ("stick", "c('STICK', unpack(many))"),
    ("swapdb", "c('SWAPDB', 0, 1)"),
    ("touch", "c('TOUCH', unpack(many))"),
    ("ttl", "c('TTL', 'zset')"),
    ("type", "c('TYPE', 'zset')"),
    ("unlink", "c('COPY', 'zset', 'd', 'REPLACE') c('UNLINK', 'd')"),
    ("unstick", "c('UNSTICK', unpack(many))"),
    // Lists.
    ("blmpop", "c('COPY', 'list', 'd', 'REPLACE') c('BLMPOP', 0, 1, 'd', 'LEFT', 'COUNT', n - 1)"),
    ("lindex", "c('LINDEX', 'list', middle)"),
    ("linsert", "c('LINSERT', 'list', 'BEFORE', 'one:' .. middle, 'x')"),
    ("llen", "c('LLEN', 'list')"),
    ("lmove", "c('LMOVE', 'list', 'list', 'LEFT', 'RIGHT')"),
    ("lmpop", "c('COPY', 'list', 'd', 'REPLACE') c('LMPOP', 1, 'd', 'LEFT', 'COUNT', n - 1)"),
    ("lpop", "c('COPY', 'list', 'd', 'REPLACE') c('LPOP', 'd', n - 1)"),
    ("lpos", "c('LPOS', 'list', 'nothing', 'COUNT', 0)"),
    ("lpush", "c('LPUSH', 'list', unpack(many))"),
    ("lpushx", "c('LPUSHX', 'list', unpack(many))"),
    ("lrange", "c('LRANGE', 'list', 0, -1)"),
    ("lrem", "c('LREM', 'list', 0, 'nothing')"),
    ("lset", "c('LSET', 'list', middle, 'x')"),
    ("ltrim", "c('COPY', 'list', 'd', 'REPLACE') c('LTRIM', 'd', n - 2, -1)"),
    ("rpop", "c('COPY', 'list', 'd', 'REPLACE') c('RPOP', 'd', n - 1)"),
    ("rpoplpush", "c('RPOPLPUSH', 'list', 'list')"),
    ("rpush", "c('RPUSH', 'list', unpack(many))"),
    ("rpushx", "c('RPUSHX', 'list', unpack(many))"),
    // Hashes.
    ("hdel", "c('HSET', 'hash', unpack(many)) c('HDEL', 'hash', unpack(many))"),
    ("hexists", "c('HEXISTS', 'hash', 'one:' .. middle)"),
    (
        "hexpire",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HEXPIRE', 'd', 100, 'FIELDS', 7000, unpack(many))",
    ),
    (
        "hexpireat",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HEXPIREAT', 'd', 4e9, 'FIELDS', 7000, unpack(many))",
    ),
    ("hexpiretime", "c('HEXPIRETIME', 'hash', 'FIELDS', 7000, unpack(many))"),
    ("hget", "c('HGET', 'hash', 'one:' .. middle)"),
    ("hgetall", "c('HGETALL', 'hash')"),
    ("hgetdel", "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HGETDEL', 'd', 'FIELDS', 7000, unpack(many))"),
    (
        "hgetex",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HGETEX', 'd', 'EX', 100, 'FIELDS', 7000, unpack(many))",
    ),
    ("hincrby", "c('HINCRBY', 'hash', 'number', 1)"),
    ("hincrbyfloat", "c('HINCRBYFLOAT', 'hash', 'number', 1.5)"),
    ("hkeys", "c('HKEYS', 'hash')"),
    ("hlen", "c('HLEN', 'hash')"),
    ("hmget", "c('HMGET', 'hash', unpack(many))"),
    ("hmset", "c('HMSET', 'hash', unpack(many))"),
    (
        "hpersist",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HPERSIST', 'd', 'FIELDS', 7000, unpack(many))",
    ),
    (
        "hpexpire",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HPEXPIRE', 'd', 0, 'FIELDS', 7000, unpack(many))",
    ),
    (
        "hpexpireat",
        "c('DEL', 'd') c('HSET', 'd', unpack(many)) c('HPEXPIREAT', 'd', 4e12, 'FIELDS', 7000, unpack(many))",
    ),
    ("hpexpiretime", "c('HPEXPIRETIME', 'hash', 'FIELDS', 7000, unpack(many))"),
    ("hpttl", "c('HPTTL', 'hash', 'FIELDS', 7000, unpack(many))"),
    ("hrandfield", "c('HRANDFIELD', 'hash', -1000000, 'WITHVALUES')"),
    ("hscan", "c('HSCAN', 'hash', 0, 'COUNT', 10000000, 'MATCH', 'x')"),
    ("hset", "c('HSET', 'hash', unpack(many))"),
    ("hsetex", "c('DEL', 'd') c('HSETEX', 'd', 'EX', 100, 'FIELDS', 3500, unpack(many))"),
    ("hsetnx", "c('HSETNX', 'hash', 'new', megabyte) c('HDEL', 'hash', 'new')"),
    ("hstrlen", "c('HSTRLEN', 'hash', 'one:' .. middle)"),
    ("httl", "c('HTTL', 'hash', 'FIELDS', 7000, unpack(many))"),
    ("hvals", "c('HVALS', 'hash')"),
    // Sets.
    ("sadd", "c('SADD', 'set', unpack(many))"),
    ("scard", "c('SCARD', 'set')"),
    ("sdiff", "c('SDIFF', 'set', 'set2')"),
    ("sdiffstore", "c('SDIFFSTORE', 'd', 'set', 'set2')"),
    ("sinter", "c('SINTER', 'set', 'set')"),
    ("sintercard", "c('SINTERCARD', 2, 'set', 'set2')"),
    ("sinterstore", "c('SINTERSTORE', 'd', 'set', 'set')"),
    ("sismember", "c('SISMEMBER', 'set', 'one:' .. middle)"),
    ("smembers", "c('SMEMBERS', 'set')"),
    ("smismember", "c('SMISMEMBER', 'set', unpack(many))"),
    ("smove", "c('SMOVE', 'set', 'set2', 'one:1') c('SMOVE', 'set2', 'set', 'one:1')"),
    ("spop", "c('COPY', 'set', 'd', 'REPLACE') c('SPOP', 'd', n - 1)"),
    ("srandmember", "c('SRANDMEMBER', 'set', -1000000)"),
    ("srem", "c('SADD', 'set', unpack(many)) c('SREM', 'set', unpack(many))"),
    ("sscan", "c('SSCAN', 'set', 0, 'COUNT', 10000000, 'MATCH', 'x')"),
    ("sunion", "c('SUNION', 'set', 'set2')"),
    ("sunionstore", "c('SUNIONSTORE', 'd', 'set', 'set2')"),
    // Sorted sets.
    ("bzmpop", "c('COPY', 'zset', 'd', 'REPLACE') c('BZMPOP', 0, 1, 'd', 'MIN', 'COUNT', n - 1)"),
    ("zadd", "c('ZADD', 'zset', unpack(many))"),
    ("zcard", "c('ZCARD', 'zset')"),
    ("zcount", "c('ZCOUNT', 'zset', 0, middle)"),
    ("zdiff", "c('ZDIFF', 2, 'zset', 'zset2')"),
    ("zdiffstore", "c('ZDIFFSTORE', 'd', 2, 'zset', 'zset2')"),
    ("zincrby", "c('ZINCRBY', 'zset', n, 'one:1')"),
    ("zinter", "c('ZINTER', 2, 'zset', 'zset')"),
    ("zintercard", "c('ZINTERCARD', 2, 'zset', 'zset2')"),
    ("zinterstore", "c('ZINTERSTORE', 'd', 2, 'zset', 'zset')"),
    ("zlexcount", "c('ZLEXCOUNT', 'zset', '-', '+')"),
    ("zmpop", "c('COPY', 'zset', 'd', 'REPLACE') c('ZMPOP', 1, 'd', 'MAX', 'COUNT', n - 1)"),
    ("zmscore", "c('ZMSCORE', 'zset', unpack(many))"),
    ("zpopmax", "c('COPY', 'zset', 'd', 'REPLACE') c('ZPOPMAX', 'd', n - 1)"),
    ("zpopmin", "c('COPY', 'zset', 'd', 'REPLACE') c('ZPOPMIN', 'd', n - 1)"),
    ("zrandmember", "c('ZRANDMEMBER', 'zset', -1000000, 'WITHSCORES')"),
    ("zrange", "c('ZRANGE', 'zset', 0, -1, 'WITHSCORES')"),
    ("zrangebylex", "c('ZRANGEBYLEX', 'zset', '-', '+')"),
    ("zrangebyscore", "c('ZRANGEBYSCORE', 'zset', '-inf', '+inf', 'LIMIT', n - 1, 1)"),
    ("zrangestore", "c('ZRANGESTORE', 'd', 'zset', 0, -1)"),
    ("zrank", "c('ZRANK', 'zset', 'one:' .. middle)"),
    ("zrem", "c('ZADD', 'zset', unpack(many)) c('ZREM', 'zset', unpack(many))"),
    ("zremrangebylex", "c('COPY', 'zset', 'd', 'REPLACE') c('ZREMRANGEBYLEX', 'd', '-', '(one:' .. n - 1)"),
    ("zremrangebyrank", "c('COPY', 'zset', 'd', 'REPLACE') c('ZREMRANGEBYRANK', 'd', 1, -1)"),
    ("zremrangebyscore", "c('COPY', 'zset', 'd', 'REPLACE') c('ZREMRANGEBYSCORE', 'd', 1, '+inf')"),
    ("zrevrange", "c('ZREVRANGE', 'zset', 0, -1)"),
    ("zrevrangebylex", "c('ZREVRANGEBYLEX', 'zset', '+', '-')"),
    ("zrevrangebyscore", "c('ZREVRANGEBYSCORE', 'zset', '+inf', '-inf')"),
    ("zrevrank", "c('ZREVRANK', 'zset', 'one:' .. middle)"),
    ("zscan", "c('ZSCAN', 'zset', 0, 'COUNT', 10000000, 'MATCH', 'x')"),
    ("zscore", "c('ZSCORE', 'zset', 'one:' .. middle)"),
    ("zunion", "c('ZUNION', 2, 'zset', 'zset2')"),
    ("zunionstore", "c('ZUNIONSTORE', 'd', 2, 'zset', 'zset2')"),
    // Places.
    ("geoadd", "c('GEOADD', 'geo', unpack(with(function(i) return {1, 2, i} end)))"),
    ("geodist", "c('GEODIST', 'geo', 'one:1', 'one:2')"),
    ("geohash", "c('GEOHASH', 'geo', unpack(many))"),
    ("geopos", "c('GEOPOS', 'geo', unpack(many))"),
    ("georadius", "c('GEORADIUS', 'geo', 0, 0, 30000, 'km', 'STORE', 'd')"),
    ("georadius_ro", "c('GEORADIUS_RO', 'geo', 0, 0, 30000, 'km', 'ASC')"),
    ("georadiusbymember", "c('GEORADIUSBYMEMBER', 'geo', 'one:1', 30000, 'km', 'STOREDIST', 'd')"),
    ("georadiusbymember_ro", "c('GEORADIUSBYMEMBER_RO', 'geo', 'one:1', 30000, 'km', 'COUNT', 1)"),
    ("geosearch", "c('GEOSEARCH', 'geo', 'FROMLONLAT', 0, 0, 'BYBOX', 40000, 40000, 'km', 'WITHDIST')"),
    ("geosearchstore", "c('GEOSEARCHSTORE', 'd', 'geo', 'FROMLONLAT', 0, 0, 'BYRADIUS', 30000, 'km')"),
    // Streams.
    ("xackdel", "c('XACKDEL', 'stream', 'group', 'DELREF', 'IDS', 7000, unpack(many))"),
    ("xack", "c('XACK', 'stream', 'group', unpack(many))"),
    ("xadd", "c('XADD', 'stream', '*', unpack(many))"),
    ("xautoclaim", "c('XAUTOCLAIM', 'stream', 'group', 'two', 0, 0, 'COUNT', 1000000, 'JUSTID')"),
    ("xclaim", "c('XCLAIM', 'stream', 'group', 'two', 0, unpack(many))"),
    ("xdelex", "c('COPY', 'stream', 'd', 'REPLACE') c('XDELEX', 'd', 'DELREF', 'IDS', 7000, unpack(many))"),
    ("xdel", "c('COPY', 'stream', 'd', 'REPLACE') c('XDEL', 'd', unpack(many))"),
    (
        "xgroup|create",
        "c('XGROUP', 'DESTROY', 'stream', 'group') c('XGROUP', 'CREATE', 'stream', 'group', 0)",
    ),
    ("xgroup|createconsumer", "c('XGROUP', 'CREATECONSUMER', 'stream', 'group', 'three')"),
    (
        "xgroup|delconsumer",
        "c('XREADGROUP', 'GROUP', 'group', 'four', 'COUNT', 1, 'STREAMS', 'stream', 0) \
         c('XGROUP', 'DELCONSUMER', 'stream', 'group', 'one')",
    ),
    ("xgroup|destroy", "c('COPY', 'stream', 'd', 'REPLACE') c('XGROUP', 'DESTROY', 'd', 'group')"),
    ("xgroup|setid", "c('XGROUP', 'SETID', 'stream', 'group', middle)"),
    ("xinfo|consumers", "c('XINFO', 'CONSUMERS', 'stream', 'group')"),
    ("xinfo|groups", "c('XINFO', 'GROUPS', 'stream')"),
    ("xinfo|stream", "c('XINFO', 'STREAM', 'stream', 'FULL', 'COUNT', 0)"),
    ("xlen", "c('XLEN', 'stream')"),
    ("xpending", "c('XPENDING', 'stream', 'group', '-', '+', 1000000)"),
    ("xrange", "c('XRANGE', 'stream', '-', '+')"),
    ("xread", "c('XREAD', 'STREAMS', 'stream', 0)"),
    (
        "xreadgroup",
        "c('XGROUP', 'SETID', 'stream', 'group', 0) \
         c('XREADGROUP', 'GROUP', 'group', 'two', 'STREAMS', 'stream', '>')",
    ),
    ("xrevrange", "c('XREVRANGE', 'stream', '+', '-')"),
    ("xsetid", "c('XSETID', 'stream', 2 ^ 40)"),
    ("xtrim", "c('COPY', 'stream', 'd', 'REPLACE') c('XTRIM', 'd', 'MAXLEN', 1)"),
    // Documents.
    ("json.arrappend", "c('JSON.ARRAPPEND', 'json', '$.a[*]', 1)"),
    ("json.arrindex", "c('JSON.ARRINDEX', 'json', '$.a', '\"none\"')"),
    ("json.arrinsert", "c('JSON.ARRINSERT', 'json', '$.a', 0, 1)"),
    ("json.arrlen", "c('JSON.ARRLEN', 'json', '$.a[*]')"),
    ("json.arrpop", "c('JSON.ARRPOP', 'json', '$.a[*]', 0)"),
    ("json.arrtrim", "c('COPY', 'json', 'd', 'REPLACE') c('JSON.ARRTRIM', 'd', '$.a', 1, 2)"),
    ("json.clear", "c('COPY', 'json', 'd', 'REPLACE') c('JSON.CLEAR', 'd', '$.a[*]')"),
    ("json.debug|memory", "c('JSON.DEBUG', 'MEMORY', 'json', '$..*')"),
    ("json.del", "c('COPY', 'json', 'd', 'REPLACE') c('JSON.DEL', 'd', '$.a[?(@[0]>1)]')"),
    ("json.forget", "c('COPY', 'json', 'd', 'REPLACE') c('JSON.FORGET', 'd', '$..[1]')"),
    ("json.get", "c('JSON.GET', 'json', '$..[?(@==$..[?(@==7)])]')"),
    ("json.merge", "c('JSON.MERGE', 'json', '$.a[*]', '{\"x\":{\"y\":1}}')"),
    ("json.mget", "c('JSON.MGET', 'json', 'json', '$..*')"),
    ("json.mset", "c('JSON.MSET', 'json', '$.a[*]', '[1]', 'd', '$', '[]')"),
    ("json.numincrby", "c('JSON.NUMINCRBY', 'json', '$..*', 1)"),
    ("json.nummultby", "c('JSON.NUMMULTBY', 'json', '$..*', 1)"),
    ("json.objkeys", "c('JSON.OBJKEYS', 'json', '$..*')"),
    ("json.objlen", "c('JSON.OBJLEN', 'json', '$..*')"),
    ("json.resp", "c('JSON.RESP', 'json')"),
    ("json.set", "c('JSON.SET', 'json', '$.a[*]', '[1,[2],true]')"),
    ("json.strappend", "c('JSON.STRAPPEND', 'json', '$..*', '\"xyz\"')"),
    ("json.strlen", "c('JSON.STRLEN', 'json', '$..*')"),
    ("json.toggle", "c('JSON.TOGGLE', 'json', '$..*')"),
    ("json.type", "c('JSON.TYPE', 'json', '$..*')"),
    // Of no family.
    ("cluster|keyslot", "c('CLUSTER', 'KEYSLOT', megabyte)"),
    ("cluster|nodes", "c('CLUSTER', 'NODES')"),
    ("cluster|shards", "c('CLUSTER', 'SHARDS')"),
    ("cluster|slots", "c('CLUSTER', 'SLOTS')"),
    ("command|count", "c('COMMAND', 'COUNT')"),
    ("command|docs", "c('COMMAND', 'DOCS')"),
    ("command|getkeys", "c('COMMAND', 'GETKEYS', 'MGET', unpack(many))"),
    ("command|getkeysandflags", "c('COMMAND', 'GETKEYSANDFLAGS', 'MGET', unpack(many))"),
    ("command|info", "c('COMMAND', 'INFO')"),
    ("command|list", "c('COMMAND', 'LIST')"),
    ("echo", "c('ECHO', megabyte)"),
    ("info", "c('INFO', 'everything')"),
    ("lolwut", "c('LOLWUT')"),
    ("memory|doctor", "c('MEMORY', 'DOCTOR')"),
    ("memory|malloc-stats", "c('MEMORY', 'MALLOC-STATS')"),
    ("memory|purge", "c('MEMORY', 'PURGE')"),
    ("memory|stats", "c('MEMORY', 'STATS')"),
    ("ping", "c('PING', megabyte)"),
    ("pubsub|channels", "c('PUBSUB', 'CHANNELS', '*1*2*3*')"),
    ("pubsub|numpat", "c('PUBSUB', 'NUMPAT')"),
    ("pubsub|shardchannels", "c('PUBSUB', 'SHARDCHANNELS', '*1*2*3*')"),
    ("pubsub|shardnumsub", "c('PUBSUB', 'SHARDNUMSUB', unpack(many))"),
    ("pubsub|numsub", "c('PUBSUB', 'NUMSUB', unpack(many))"),
    ("publish", "c('PUBLISH', 'channel', 'x')"),
    ("spublish", "c('SPUBLISH', 'channel', 'x')"),
    ("select", "c('SELECT', 1)"),
    ("slowlog|get", "c('SLOWLOG', 'GET', -1)"),
    ("time", "c('TIME')"),
];

/// Commands that do the same small amount of work whatever there is and whatever they are called with, or only say that they
/// are not for scripts, or not for a server without slots.
const CONSTANT: &str = "
    acl|help asking client|help command|help config|help function|help json.debug|help latency|help memory|help module|help
    object|help pubsub|help script|help slowlog|help xgroup|help xinfo|help cluster|addslots cluster|addslotsrange
    cluster|bumpepoch cluster|count-failure-reports cluster|countkeysinslot cluster|delslots cluster|delslotsrange
    cluster|failover cluster|flushslots cluster|forget cluster|getkeysinslot cluster|help cluster|info cluster|links
    cluster|meet cluster|myid cluster|replicas cluster|replicate cluster|saveconfig cluster|set-config-epoch
    cluster|setslot cluster|slaves cluster|slot-stats lastsave migrate object|freq pfselftest readonly readwrite slowlog|len slowlog|reset";

/// The commands that a script may call, with their subcommands as COMMAND names these.
fn callable(client: &mut Client) -> BTreeSet<String> {
    fn add(row: &Value, all: &mut BTreeSet<String>) {
        let Value::Array(spec) = row else { panic!("no facts of a command: {row:?}") };
        let (Value::Array(flags) | Value::Set(flags)) = &spec[2] else { panic!("no flags: {row:?}") };
        let Value::Array(subcommands) = &spec[9] else { panic!("no subcommands: {row:?}") };
        if !flags.iter().any(|flag| flag.text() == Some(b"noscript")) && subcommands.is_empty() {
            all.insert(String::from_utf8_lossy(spec[0].text().expect("a name")).into_owned());
        }
        subcommands.iter().for_each(|row| add(row, all));
    }
    let Value::Array(rows) = client.run("COMMAND") else { panic!("no commands") };
    let mut all = BTreeSet::new();
    rows.iter().for_each(|row| add(row, &mut all));
    all
}

/// Fills the keys.
fn fill(client: &mut Client, elements: usize) {
    let each = |call: &str, words: &str| {
        let script = format!(
            "for from = 1, ARGV[1], 1000 do local t = {{}} \
             for i = from, math.min(from + 999, tonumber(ARGV[1])) do \
             for _, word in ipairs({{{words}}}) do t[#t + 1] = word end end redis.call({call}, unpack(t)) end"
        );
        (script, elements)
    };
    let calls = [
        each("'SADD', 'set'", "'one:' .. i"),
        each("'SADD', 'set2'", "'two:' .. i"),
        each("'HSET', 'hash'", "'one:' .. i, i"),
        each("'RPUSH', 'list'", "'one:' .. i"),
        each("'ZADD', 'zset'", "i, 'one:' .. i"),
        each("'ZADD', 'zset2'", "i, 'two:' .. i"),
        each("'GEOADD', 'geo'", "i % 360 - 180, i % 170 - 85, 'one:' .. i"),
        each("'PFADD', 'hll'", "i"),
        each("'PFADD', 'hll2'", "'x' .. i"),
        each("'SADD', 'weights'", "i"),
        each("'MSET'", "'w_' .. i, -i"),
        ("redis.call('JSON.SET', 'json', '$', '{\"a\":[]}')".to_owned(), elements),
        each("'JSON.ARRAPPEND', 'json', '$.a'", "'[' .. i .. ',true,\"x\"]'"),
        (
            "for i = 1, ARGV[1] do redis.call('XADD', 'stream', i .. '-0', 'field', i) end \
             redis.call('XGROUP', 'CREATE', 'stream', 'group', 0) \
             redis.call('XREADGROUP', 'GROUP', 'group', 'one', 'COUNT', ARGV[1] / 2, 'STREAMS', 'stream', '>')"
                .to_owned(),
            elements,
        ),
    ];
    for (script, elements) in calls {
        let reply = client.eval(&script, &KEYS, &[&elements.to_string()]);
        assert_eq!(reply, Value::Null, "{script}");
    }
    let last = (elements * BYTES_PER_ELEMENT - 1).to_string();
    for call in
        [["SETRANGE", "text", &last, "x"].as_slice(), &["COPY", "text", "other"], &["SET", "number", "1"]]
    {
        assert!(!matches!(client.call(call), Value::Error(_)), "{call:?}");
    }
}

/// A connection that sends PINGs, one at a time.
#[derive(Default)]
struct Pinging {
    answered: AtomicU64,
    longest_us: AtomicU64,
    ends: AtomicBool,
}

impl Pinging {
    fn run(&self, mut client: Client) {
        while !self.ends.load(Ordering::Relaxed) {
            let began = Instant::now();
            assert_eq!(notation::reply(&client.run("PING")), "+PONG");
            self.longest_us.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            self.answered.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
    }
}

/// What is printed of a command.
struct Figures {
    name: &'static str,
    took: Duration,
    longest: Duration,
    reply: String,
}

#[test]
fn no_command_outlives_its_script_or_holds_up_others() {
    let elements =
        std::env::var("MOONSHARD_WORK_ELEMENTS").map_or(ELEMENTS, |text| text.parse().expect("a number"));
    let server = TestServer::start(&[
        "--script-fuel",
        "1000000000000000",
        "--script-memory",
        "256mb",
        "--script-memory-max",
        "256mb",
    ]);
    let mut client = server.client();
    let named = RECIPES.iter().map(|(name, _)| *name).chain(CONSTANT.split_whitespace());
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    assert_eq!(named, callable(&mut client), "each command has a recipe, or is among the constant ones");
    assert_eq!(named.len(), RECIPES.len() + CONSTANT.split_whitespace().count(), "one of them");

    let channels: Vec<String> = (0..10_000).map(|at| format!("channel:{at}")).collect();
    let mut subscriber = server.client();
    subscriber.send(["SUBSCRIBE"].into_iter().chain(channels.iter().map(String::as_str)));
    channels.iter().for_each(|_| drop(subscriber.read()));
    fill(&mut client, elements);
    let keys = client.run("DBSIZE");
    assert_eq!(notation::reply(&client.run("CONFIG SET script-timeout-ms 50")), "+OK");
    let only = std::env::var("MOONSHARD_WORK_ONLY").unwrap_or_default();

    let pinging = Pinging::default();
    let mut figures = Vec::new();
    thread::scope(|scope| {
        let pinger = server.client();
        scope.spawn(|| pinging.run(pinger));
        let _ends = SetOnDrop(&pinging.ends);
        for (name, body) in RECIPES {
            if !only.is_empty() && !only.split(',').any(|word| word == *name) {
                continue;
            }
            let script = format!("{PRELUDE}{body} end");
            let mut attempt = 0;
            loop {
                attempt += 1;
                pinging.longest_us.store(0, Ordering::Relaxed);
                let (before, began) = (pinging.answered.load(Ordering::Relaxed), Instant::now());
                let reply = client.eval(&script, &KEYS, &[&elements.to_string()]);
                let took = began.elapsed();
                let answered = pinging.answered.load(Ordering::Relaxed) - before;
                let text = notation::reply(&reply);
                assert!(text.starts_with("-SCRIPTLIMIT "), "{name}: {text}");
                if answered > ANSWERED_AT_THE_ENDS {
                    let longest = Duration::from_micros(pinging.longest_us.load(Ordering::Relaxed));
                    figures.push(Figures { name, took, longest, reply: text });
                    break;
                }
                assert!(attempt < ATTEMPTS, "{name}: others were not answered during {took:?}");
            }
        }
    });
    // Shown on request.
    for Figures { name, took, longest, reply } in figures {
        println!("{name:24} ended after {took:10.1?}, longest PING {longest:10.1?} {reply:.60}");
    }
    assert_eq!(client.run("DBSIZE"), keys, "all was undone");
}
