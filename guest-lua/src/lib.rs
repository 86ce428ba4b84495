//! The Lua side of Moonshard: Lua 5.1.5 and our libraries, compiled to one WebAssembly module.
//!
//! `build.rs` builds the module from the C sources in crate `lua-src` and in `c/`; this crate only carries the bytes and the
//! numbers both sides share ([`abi`]). The host (crate `script`) provides four imports and uses these exports:
//!
//! | import `moonshard.` | meaning |
//! |---|---|
//! | `call(argv, argc, reply, capacity, flags) -> i32` | run a command; `argv` points at `argc` pairs of `u32` pointer and length; the RESP reply goes to `reply`; returns its length. A length above `capacity` means nothing was written, a negative one that the host has to wait first: the guest then calls `fetch` |
//! | `fetch(reply, capacity) -> i32` | wait if need be, then copy the reply if it fits now; returns its length |
//! | `log(level, text, len)` | `redis.log` |
//!
//! | export | meaning |
//! |---|---|
//! | `init()` | create the Lua state; call it once, then keep memory and globals as the base image |
//! | `input(len) -> i32` | address of a buffer for the input of `compile`, `load` or `run`; 0 if memory is out |
//! | `compile(len) -> i64` | compile the source in the buffer; length 0 = fine, else Lua's message |
//! | `load(len) -> i64` | run the library in the buffer so that it registers its functions; a RESP3 reply: an array with the name, the description or null and the flags of each, or an error |
//! | `run(len) -> i64` | run the compiled script, or a function of the library, with the call in the buffer ([`abi::RUN_DATA`] has the layout); a RESP3 reply |
//! | `state() -> i32` | address of the Lua state, in whose objects the host finds the functions of a script |
//! | `tier_entry() -> i32` | the place in the table of functions that the host puts the entry of a compiled script into |
//! | `tier_*` | what compiled functions of a script call, see `c/tier.h` |
//! | `__indirect_function_table` | the table of functions |
//! | `memory` | linear memory, starts with the C stack ([`abi::STACK_SIZE`]) |
//! | `__stack_pointer` | the only mutable global: put it back together with memory after a trap |

pub mod abi;
pub mod api;

/// The compiled module.
pub const LUA_WASM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lua.wasm"));
