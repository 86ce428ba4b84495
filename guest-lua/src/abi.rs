//! The numbers host and guest must agree on.
//!
//! `build.rs` turns every `pub const NAME: u32 = VALUE;` line of this file into a `#define` of `abi.h`, so this table is the
//! only one. Addresses and lengths cross the boundary as `u32`; an `i64` result is `(ptr << 32) | len`.

/// Module name of the imports `call`, `fetch`, `log` and `frames`.
pub const IMPORT_MODULE: &str = "moonshard";

// Flags of the import `call`.
/// The script said `redis.setresp(3)`: answer in RESP3.
pub const CALL_RESP3: u32 = 1;
/// Nobody reads the result. The host may answer with length 0 unless the command failed.
pub const CALL_UNUSED: u32 = 2;
/// Called through `redis.pcall` or `redis.apcall`: an error does not end the script.
pub const CALL_PROTECTED: u32 = 4;
/// Called through `redis.acall` or `redis.apcall`: the result is always nil.
pub const CALL_ASYNC: u32 = 8;
/// `redis.acl_check_cmd`: do not run the command; answer `:1`, `:0`, or an error if there is no such command.
pub const CALL_ACL_CHECK: u32 = 16;

// The buffer of inputs and replies, whose place never changes.
/// Inputs up to this many bytes use it; larger ones are allocated by `input`.
pub const INPUT_STATIC: u32 = 4096;
/// Replies up to this many bytes need no `fetch`.
pub const REPLY_STATIC: u32 = 16384;

// Layout of the input of `run`. Numbers are little-endian.
/// u32: [`RUN_FUNCTION`], [`RUN_FRAMES`] or 0.
pub const RUN_FLAGS: u32 = 0;
/// f64: what `os.clock()` returns during this run.
pub const RUN_CLOCK: u32 = 8;
/// u32: length of the script's name (its sha, or the function's name).
pub const RUN_NAME_LEN: u32 = 16;
/// u32: number of keys.
pub const RUN_NKEYS: u32 = 20;
/// u32: number of arguments.
pub const RUN_NARGS: u32 = 24;
/// i32: seed of `math.random`. Redis 7 goes on with one sequence from script to script; a run that is repeated must get the same seed.
pub const RUN_SEED: u32 = 28;
/// The name, then a u32 length and the bytes of each key and each argument, without padding.
pub const RUN_DATA: u32 = 32;

/// Bit of [`RUN_FLAGS`]: call the function of this name that the loaded library has registered, not the script.
pub const RUN_FUNCTION: u32 = 1;
/// Bit of [`RUN_FLAGS`]: before each call of a script, the import `frames` gets a description of the functions that lead to it. The import
/// answers with 0 if it wants no more of them.
pub const RUN_FRAMES: u32 = 2;

// A description of functions: of each a frame, the innermost first, and behind it its variables. Everything begins with a byte that is
// one of these. Numbers are u32 and little-endian, a text is its length and its bytes.
/// The current line, or 0 if the function is not a part of the script's text; the line that it begins in, which is 0 for a main chunk; its
/// name, which is empty if it has none.
pub const FRAMES_FRAME: u32 = 1;
/// A local variable: its name and its value.
pub const FRAMES_VARIABLE: u32 = 2;
/// The last byte, if more could have been said.
pub const FRAMES_OMITTED: u32 = 3;
/// A value: nil.
pub const FRAMES_NIL: u32 = 4;
/// A value: false.
pub const FRAMES_FALSE: u32 = 5;
/// A value: true.
pub const FRAMES_TRUE: u32 = 6;
/// A value: a number, as the text that Lua prints.
pub const FRAMES_NUMBER: u32 = 7;
/// A value: a string, as its whole length and the text that it begins with.
pub const FRAMES_STRING: u32 = 8;
/// A value: a table, as keys and values of the first entries and then [`FRAMES_END`].
pub const FRAMES_TABLE: u32 = 9;
/// The end of a table, and how many entries the table has.
pub const FRAMES_END: u32 = 10;
/// A value: a function.
pub const FRAMES_FUNCTION: u32 = 11;
/// A value: a coroutine.
pub const FRAMES_THREAD: u32 = 12;
/// A value: something else, such as `cjson.null`.
pub const FRAMES_USERDATA: u32 = 13;
/// The number of entries of a table that is too large to be counted.
pub const FRAMES_UNCOUNTED: u32 = 0xffffffff;
/// Functions that are described.
pub const FRAMES_MAX_FUNCTIONS: u32 = 16;
/// Variables of a function that are described.
pub const FRAMES_MAX_VARIABLES: u32 = 64;
/// Entries of a table that are described.
pub const FRAMES_MAX_ENTRIES: u32 = 16;
/// Places for entries up to which the entries of a table are counted.
pub const FRAMES_MAX_SLOTS: u32 = 4096;
/// Bytes of a text that are described.
pub const FRAMES_MAX_TEXT: u32 = 128;
/// Tables inside each other whose entries are described.
pub const FRAMES_MAX_DEPTH: u32 = 2;

// Flags of a registered function, as `load` tells them.
/// `no-writes`
pub const FUNCTION_NO_WRITES: u32 = 1;
/// `allow-oom`
pub const FUNCTION_ALLOW_OOM: u32 = 2;
/// `allow-stale`
pub const FUNCTION_ALLOW_STALE: u32 = 4;
/// `no-cluster`
pub const FUNCTION_NO_CLUSTER: u32 = 8;
/// `allow-cross-slot-keys`
pub const FUNCTION_ALLOW_CROSS_SLOT_KEYS: u32 = 16;

// Limits.
/// Tables nested deeper than this in a script's result become `-ERR reached lua stack limit`.
pub const MAX_REPLY_DEPTH: u32 = 127;
/// Bytes of the C stack, which lies at the bottom of memory so that an overflow traps.
pub const STACK_SIZE: u32 = 65536;
/// Bytes of a page of the host, which is what it puts back after a run.
pub const HOST_PAGE: u32 = 4096;
/// Bytes allocated after the script was compiled before the first garbage collection starts.
pub const GC_SLACK: u32 = 1 << 20;

// What a compiled function says when it comes back (c/tier.h).
/// It has ended, and its results are where the caller wants them.
pub const TIER_RETURNED: u32 = 0;
/// Its frame is still there: the interpreter goes on with it at its saved instruction.
pub const TIER_INTERPRET: u32 = 1;
/// It has done nothing: it is not compiled at this instruction, or for values like these.
pub const TIER_NOT_HERE: u32 = 2;
/// Compiled functions are entered while at most this many calls are active.
pub const TIER_DEPTH: u32 = 180;

// Where compiled functions and their compiler find what they need, in bytes from the start of Lua's structures.
/// `lua_State.top`
pub const STATE_TOP: u32 = 8;
/// `lua_State.base`
pub const STATE_BASE: u32 = 12;
/// `lua_State.l_G`
pub const STATE_GLOBAL: u32 = 16;
/// `lua_State.ci`
pub const STATE_CI: u32 = 20;
/// `lua_State.savedpc`
pub const STATE_SAVEDPC: u32 = 24;
/// `lua_State.stack_last`
pub const STATE_STACK_LAST: u32 = 28;
/// `lua_State.openupval`
pub const STATE_OPEN_UPVALUES: u32 = 104;
/// `lua_State.tier_ci`
pub const STATE_TIER_CI: u32 = 108;
/// `global_State.rootgc`
pub const GLOBAL_ROOTGC: u32 = 28;
/// `CallInfo.base`
pub const CALL_BASE: u32 = 0;
/// `CallInfo.top`
pub const CALL_TOP: u32 = 8;
/// `CallInfo.savedpc`
pub const CALL_SAVEDPC: u32 = 12;
/// `CallInfo.nresults`
pub const CALL_RESULTS: u32 = 16;
/// `CallInfo.tailcalls`
pub const CALL_TAILCALLS: u32 = 20;
/// Bytes of a `CallInfo`.
pub const CALL_SIZE: u32 = 24;
/// `CallInfo.func`
pub const CALL_FUNC: u32 = 4;
/// `GCheader.next`
pub const OBJECT_NEXT: u32 = 0;
/// `GCheader.tt`
pub const OBJECT_TYPE: u32 = 4;
/// `GCheader.marked`
pub const OBJECT_MARKED: u32 = 5;
/// `Proto.k`
pub const PROTO_CONSTANTS: u32 = 8;
/// `Proto.code`
pub const PROTO_CODE: u32 = 12;
/// `Proto.p`
pub const PROTO_NESTED: u32 = 16;
/// `Proto.sizek`
pub const PROTO_CONSTANT_COUNT: u32 = 40;
/// `Proto.sizecode`
pub const PROTO_CODE_COUNT: u32 = 44;
/// `Proto.sizep`
pub const PROTO_NESTED_COUNT: u32 = 52;
/// `Proto.linedefined`
pub const PROTO_LINE: u32 = 60;
/// `Proto.nups`
pub const PROTO_UPVALUES: u32 = 72;
/// `Proto.numparams`
pub const PROTO_PARAMETERS: u32 = 73;
/// `Proto.is_vararg`
pub const PROTO_VARARG: u32 = 74;
/// `Proto.maxstacksize`
pub const PROTO_STACK_SIZE: u32 = 75;
/// `Proto.compiled`
pub const PROTO_COMPILED: u32 = 76;
/// `Closure.isC`
pub const CLOSURE_IS_C: u32 = 6;
/// `LClosure.p`
pub const CLOSURE_PROTO: u32 = 16;
/// `LClosure.upvals`
pub const CLOSURE_UPVALUES: u32 = 20;
/// `UpVal.v`
pub const UPVALUE_VALUE: u32 = 8;
/// `TValue.tt`
pub const VALUE_TYPE: u32 = 8;
/// Bytes of a `TValue`.
pub const VALUE_SIZE: u32 = 16;
/// `Table.metatable`
pub const TABLE_METATABLE: u32 = 8;
/// `Table.array`
pub const TABLE_ARRAY: u32 = 12;
/// `Table.sizearray`
pub const TABLE_ARRAY_SIZE: u32 = 28;
/// Bit of `GCheader.marked`: the collector has been here.
pub const MARK_BLACK: u32 = 2;
/// Bit of `GCheader.marked`: the table is read-only.
pub const MARK_READONLY: u32 = 7;
