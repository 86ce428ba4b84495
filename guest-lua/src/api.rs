//! What scripts see beside `KEYS` and `ARGV`, as the reference lists it. A test of crate `script` compares the names with
//! the globals of a script.

/// A function or a constant.
#[derive(Debug)]
pub struct Entry {
    /// Its name, such as `redis.call`.
    pub name: &'static str,
    /// How it is called; empty for a constant.
    pub call: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// A group of the reference.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What holds for all entries.
    pub intro: &'static str,
    /// Its functions and constants.
    pub entries: &'static [Entry],
    /// Names that are those of Lua 5.1, without an entry each.
    pub lua: &'static [&'static str],
}

const fn entry(name: &'static str, call: &'static str, doc: &'static str) -> Entry {
    Entry { name, call, doc }
}

/// Names that are visible inside of libraries only, while FUNCTION LOAD runs them.
pub const WHILE_LOADING: &[&str] = &["redis.register_function"];

/// Another name of the table `redis`, as in Valkey.
pub const ALIAS: &str = "server";

/// All of it.
#[rustfmt::skip]
pub static SECTIONS: &[Section] = &[
    Section {
        title: "Commands",
        intro: "Arguments of a command are strings or numbers. `server` is another name of the table `redis`, as in Valkey: `server.call` is `redis.call`.",
        entries: &[
            entry("redis.call", "redis.call(command, ...)", "Runs a command and returns its reply. An error of the command ends the script with that error, unless `pcall` catches it."),
            entry("redis.pcall", "redis.pcall(command, ...)", "Runs a command and returns its reply; an error is returned as a table with the field `err`."),
            entry("redis.acall", "redis.acall(command, ...)", "Runs a command without a result (Dragonfly's name): the call may be collected and sent with later ones. An error ends the script before its next call."),
            entry("redis.apcall", "redis.apcall(command, ...)", "The same, and an error is ignored."),
            entry("redis.acl_check_cmd", "redis.acl_check_cmd(command, ...)", "Whether the user of the script may run the command with these arguments: `true` or `false`. The command is not run."),
            entry("redis.setresp", "redis.setresp(version)", "Chooses the protocol in which later calls reply: 2 or 3. With 3, maps, sets, doubles, booleans and nulls keep their types."),
        ],
        lua: &[],
    },
    Section {
        title: "Replies",
        intro: "",
        entries: &[
            entry("redis.error_reply", "redis.error_reply(text)", "A table that, returned from the script, is the error `text`. The first word is the error code; a text without a leading dash gets one."),
            entry("redis.status_reply", "redis.status_reply(text)", "A table that, returned from the script, is the status `text`."),
        ],
        lua: &[],
    },
    Section {
        title: "Libraries of functions",
        intro: "While `FUNCTION LOAD` runs a library, `redis` has these members only: `register_function`, `log` with its levels, `REDIS_VERSION` and `REDIS_VERSION_NUM`. Functions are called with `FCALL`; they do not see `KEYS` and `ARGV` but get both as parameters.",
        entries: &[
            entry("redis.register_function", "redis.register_function(name, callback)", "Registers a function under a name. Called with one table instead, the table has `function_name`, `callback`, and may have `description` and `flags` (of `no-writes`, `allow-oom`, `allow-stale`, `no-cluster`, `allow-cross-slot-keys`)."),
        ],
        lua: &[],
    },
    Section {
        title: "Log, digests, versions",
        intro: "",
        entries: &[
            entry("redis.log", "redis.log(level, text, ...)", "Writes a line to the server's log."),
            entry("redis.LOG_DEBUG", "", "0: a level of `redis.log`."),
            entry("redis.LOG_VERBOSE", "", "1"),
            entry("redis.LOG_NOTICE", "", "2"),
            entry("redis.LOG_WARNING", "", "3"),
            entry("redis.sha1hex", "redis.sha1hex(text)", "The SHA-1 of a text as 40 hexadecimal digits."),
            entry("redis.REDIS_VERSION", "", "`7.0.15`: the version of Redis whose behaviour is implemented."),
            entry("redis.REDIS_VERSION_NUM", "", "The same as a number, `0x0007000f`."),
        ],
        lua: &[],
    },
    Section {
        title: "Without effect",
        intro: "These exist so that scripts written for Redis run. Effects are what is journaled here, and there are no replicas and no debugger.",
        entries: &[
            entry("redis.set_repl", "redis.set_repl(flags)", "Accepts the constants below."),
            entry("redis.REPL_ALL", "", "3"),
            entry("redis.REPL_AOF", "", "1"),
            entry("redis.REPL_REPLICA", "", "2"),
            entry("redis.REPL_SLAVE", "", "2"),
            entry("redis.REPL_NONE", "", "0"),
            entry("redis.replicate_commands", "redis.replicate_commands()", "Returns `true`. Not in functions."),
            entry("redis.breakpoint", "redis.breakpoint()", "Returns `false`. Not in functions."),
            entry("redis.debug", "redis.debug(...)", "Returns nothing. Not in functions."),
        ],
        lua: &[],
    },
    Section {
        title: "cjson",
        intro: "JSON, as Redis has it (lua-cjson 2.1.0).",
        entries: &[
            entry("cjson.encode", "cjson.encode(value)", "The value as JSON. A table with only positive integer keys is an array."),
            entry("cjson.decode", "cjson.decode(text)", "The value of a JSON text; `null` becomes `cjson.null`."),
            entry("cjson.null", "", "JSON's `null`."),
            entry("cjson.encode_sparse_array", "cjson.encode_sparse_array([convert[, ratio[, safe]]])", "What happens to arrays with gaps: an error, or an object."),
            entry("cjson.encode_max_depth", "cjson.encode_max_depth([depth])", "How deeply tables may be nested when they are encoded."),
            entry("cjson.decode_max_depth", "cjson.decode_max_depth([depth])", "The same for decoding; never more than 8,000."),
            entry("cjson.encode_number_precision", "cjson.encode_number_precision([digits])", "Significant digits of numbers, 1 to 14."),
            entry("cjson.encode_keep_buffer", "cjson.encode_keep_buffer([keep])", "Accepted without effect on results."),
            entry("cjson.encode_invalid_numbers", "cjson.encode_invalid_numbers([setting])", "Whether NaN and infinity are encoded: `true`, `false` or `\"null\"`."),
            entry("cjson.decode_invalid_numbers", "cjson.decode_invalid_numbers([setting])", "Whether numbers that are no JSON are accepted."),
            entry("cjson.new", "cjson.new()", "Another such table, with settings of its own."),
            entry("cjson._NAME", "", "`cjson`"),
            entry("cjson._VERSION", "", "`2.1.0`"),
        ],
        lua: &[],
    },
    Section {
        title: "cmsgpack",
        intro: "MessagePack, as Redis has it (lua-cmsgpack 0.4.0).",
        entries: &[
            entry("cmsgpack.pack", "cmsgpack.pack(value, ...)", "The values as MessagePack, one behind the other."),
            entry("cmsgpack.unpack", "cmsgpack.unpack(text)", "All values of a text."),
            entry("cmsgpack.unpack_one", "cmsgpack.unpack_one(text[, offset])", "The offset behind the first value at `offset`, or -1 at the end, and the value."),
            entry("cmsgpack.unpack_limit", "cmsgpack.unpack_limit(text, limit[, offset])", "The same for up to `limit` values."),
            entry("cmsgpack._NAME", "", "`cmsgpack`"),
            entry("cmsgpack._VERSION", "", "`lua-cmsgpack 0.4.0`"),
            entry("cmsgpack._COPYRIGHT", "", "As in Redis."),
            entry("cmsgpack._DESCRIPTION", "", "As in Redis."),
        ],
        lua: &[],
    },
    Section {
        title: "struct",
        intro: "Binary structures, as Redis has them.",
        entries: &[
            entry("struct.pack", "struct.pack(format, value, ...)", "The values in the binary form that `format` describes."),
            entry("struct.unpack", "struct.unpack(format, text[, position])", "The values of a binary text, and the position behind them."),
            entry("struct.size", "struct.size(format)", "How many bytes a format takes."),
        ],
        lua: &[],
    },
    Section {
        title: "bit",
        intro: "Operations on 32-bit integers, as Redis has them (Lua BitOp).",
        entries: &[
            entry("bit.tobit", "bit.tobit(x)", "`x` as a signed 32-bit integer."),
            entry("bit.tohex", "bit.tohex(x[, digits])", "`x` in hexadecimal digits, upper case for a negative number of digits."),
            entry("bit.bnot", "bit.bnot(x)", "All bits of `x` inverted."),
            entry("bit.band", "bit.band(x, ...)", "Bitwise and."),
            entry("bit.bor", "bit.bor(x, ...)", "Bitwise or."),
            entry("bit.bxor", "bit.bxor(x, ...)", "Bitwise exclusive or."),
            entry("bit.lshift", "bit.lshift(x, n)", "Shifted to the left."),
            entry("bit.rshift", "bit.rshift(x, n)", "Shifted to the right, with zeros."),
            entry("bit.arshift", "bit.arshift(x, n)", "Shifted to the right, with copies of the sign."),
            entry("bit.rol", "bit.rol(x, n)", "Rotated to the left."),
            entry("bit.ror", "bit.ror(x, n)", "Rotated to the right."),
            entry("bit.bswap", "bit.bswap(x)", "The bytes in reverse order."),
        ],
        lua: &[],
    },
    Section {
        title: "Lua 5.1",
        intro: "Globals and libraries are read-only: a script declares its variables with `local`, and reading a global that does not exist is an error. These functions are those of Lua 5.1, except as noted.",
        entries: &[
            entry("os.clock", "os.clock()", "Seconds, as a number that stands still during a run: with it a script cannot measure time, and a repeated run sees the same."),
            entry("math.random", "math.random([low[, high]])", "Pseudo-random numbers with the sequence of Redis. The server seeds each run, and repeats the seed when it repeats a run."),
            entry("math.randomseed", "math.randomseed(seed)", "Chooses the sequence."),
            entry("pcall", "pcall(function, ...)", "As in Lua; the error of a `redis.call` is returned as its text, not as a table, as in Redis 7."),
            entry("load", "load(function[, name])", "Text only: precompiled code is refused."),
            entry("loadstring", "loadstring(text[, name])", "Text only: precompiled code is refused."),
            entry("string.dump", "string.dump(function)", "Always fails."),
            entry("unpack", "unpack(list[, first[, last]])", "At most 8,000 results."),
            entry("__redis__err__handler", "__redis__err__handler(error)", "The handler that adds source and line to errors, visible as in Redis. Not in functions."),
            entry("_VERSION", "", "`Lua 5.1`"),
            entry("math.pi", "", "3.14159…"),
            entry("math.huge", "", "Infinity."),
        ],
        lua: &[
            "assert", "collectgarbage", "error", "gcinfo", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget",
            "rawset", "select", "setmetatable", "tonumber", "tostring", "type", "xpcall",
            "coroutine.create", "coroutine.resume", "coroutine.running", "coroutine.status", "coroutine.wrap", "coroutine.yield",
            "math.abs", "math.acos", "math.asin", "math.atan", "math.atan2", "math.ceil", "math.cos", "math.cosh", "math.deg",
            "math.exp", "math.floor", "math.fmod", "math.frexp", "math.ldexp", "math.log", "math.log10", "math.max", "math.min",
            "math.mod", "math.modf", "math.pow", "math.rad", "math.sin", "math.sinh", "math.sqrt", "math.tan", "math.tanh",
            "string.byte", "string.char", "string.find", "string.format", "string.gfind", "string.gmatch", "string.gsub",
            "string.len", "string.lower", "string.match", "string.rep", "string.reverse", "string.sub", "string.upper",
            "table.concat", "table.foreach", "table.foreachi", "table.getn", "table.insert", "table.maxn", "table.remove",
            "table.setn", "table.sort",
        ],
    },
];
