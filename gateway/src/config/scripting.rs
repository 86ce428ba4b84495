//! Parameters of scripts: their budgets, how they run, and what is kept of them.

use script::{Compile, Instances};

use super::choice::{AutoAsync, Choice, ClientGone, OnError, UndeclaredKeys};
use super::kind::ParameterKind;
use super::parameter::{Fallback, MB, Parameter, SCRIPT_FLAGS};

/// `script-fuel`.
pub const SCRIPT_FUEL: Parameter = Parameter {
    name: "script-fuel",
    kind: ParameterKind::Integer(1..=i64::MAX, |c| &c.script_fuel),
    default: Fallback::Text("100000000000"),
    live: true,
    doc: "Fuel limit of one script run: about one unit per WebAssembly instruction, plus the cost of its \
          calls.",
};

/// `script-timeout-ms`.
pub const SCRIPT_TIMEOUT_MS: Parameter = Parameter {
    name: "script-timeout-ms",
    kind: ParameterKind::Integer(1..=86_400_000, |c| &c.script_timeout_ms),
    default: Fallback::Text("5000"),
    live: true,
    doc: "Milliseconds after which a script run is stopped.",
};

/// `script-memory`.
pub const SCRIPT_MEMORY: Parameter = Parameter {
    name: "script-memory",
    kind: ParameterKind::Bytes(MB..=4 << 30, |c| &c.script_memory),
    default: Fallback::Text("64mb"),
    live: false,
    doc: "Memory limit of one script run.",
};

/// `script-fuel-max`.
pub const SCRIPT_FUEL_MAX: Parameter = Parameter {
    name: "script-fuel-max",
    kind: ParameterKind::Integer(1..=i64::MAX, |c| &c.script_fuel_max),
    default: Fallback::Text("200000000000"),
    live: true,
    doc: "Maximum fuel that the header of a script can request.",
};

/// `script-timeout-max-ms`.
pub const SCRIPT_TIMEOUT_MAX_MS: Parameter = Parameter {
    name: "script-timeout-max-ms",
    kind: ParameterKind::Integer(1..=86_400_000, |c| &c.script_timeout_max_ms),
    default: Fallback::Text("60000"),
    live: true,
    doc: "Maximum timeout that the header of a script can request.",
};

/// `script-memory-max`.
pub const SCRIPT_MEMORY_MAX: Parameter = Parameter {
    name: "script-memory-max",
    kind: ParameterKind::Bytes(MB..=4 << 30, |c| &c.script_memory_max),
    default: Fallback::Text("256mb"),
    live: false,
    doc: "Maximum memory that the header of a script can request.",
};

/// `default-script-flags`.
pub const DEFAULT_SCRIPT_FLAGS: Parameter = Parameter {
    name: "default-script-flags",
    kind: ParameterKind::Words(SCRIPT_FLAGS, |c| &c.default_script_flags),
    default: Fallback::Text("none"),
    live: true,
    doc: "Flags of every script, in addition to those of its header and of SCRIPT FLAGS.",
};

/// `script-on-error`.
pub const SCRIPT_ON_ERROR: Parameter = Parameter {
    name: "script-on-error",
    kind: ParameterKind::Word(OnError::WORDS, |c| &c.script_on_error.place),
    default: Fallback::Text("keep"),
    live: true,
    doc: "What happens to the writes of an atomic script that ends with an error of its own: keep \
          commits them, as Redis does, rollback discards them.",
};

/// `undeclared-keys`.
pub const UNDECLARED_KEYS: Parameter = Parameter {
    name: "undeclared-keys",
    kind: ParameterKind::Word(UndeclaredKeys::WORDS, |c| &c.undeclared_keys.place),
    default: Fallback::Text("widen"),
    live: true,
    doc: "What happens when an atomic script accesses a key that is not among its KEYS: with widen the \
          key is locked, and the script is run again if necessary; with reject the call fails.",
};

/// `script-auto-async`.
pub const SCRIPT_AUTO_ASYNC: Parameter = Parameter {
    name: "script-auto-async",
    kind: ParameterKind::Word(AutoAsync::WORDS, |c| &c.script_auto_async.place),
    default: Fallback::Text("async"),
    live: true,
    doc: "Which scripts batch calls whose result they do not use: none, scripts without atomicity, or \
          all. always has no benefit while the data is in the same process.",
};

/// `script-queue-max`.
pub const SCRIPT_QUEUE_MAX: Parameter = Parameter {
    name: "script-queue-max",
    kind: ParameterKind::Bytes(0..=1 << 30, |c| &c.script_queue_max),
    default: Fallback::Text("64kb"),
    live: true,
    doc: "Size of the batched calls of a script at which they are sent.",
};

/// `script-client-gone`.
pub const SCRIPT_CLIENT_GONE: Parameter = Parameter {
    name: "script-client-gone",
    kind: ParameterKind::Word(ClientGone::WORDS, |c| &c.script_client_gone.place),
    default: Fallback::Text("rollback"),
    live: true,
    doc: "What happens to a script whose client disconnects: rollback stops it and discards its writes, \
          finish lets it run to its end.",
};

/// `script-reply-max`.
pub const SCRIPT_REPLY_MAX: Parameter = Parameter {
    name: "script-reply-max",
    kind: ParameterKind::Bytes(1024..=4 << 30, |c| &c.script_reply_max),
    default: Fallback::Text("64mb"),
    live: true,
    doc: "Maximum size of the reply of a script.",
};

/// `script-cache-max`.
pub const SCRIPT_CACHE_MAX: Parameter = Parameter {
    name: "script-cache-max",
    kind: ParameterKind::Integer(1..=1_000_000, |c| &c.script_cache_max),
    default: Fallback::Text("1000"),
    live: true,
    doc: "Maximum number of cached scripts that were run by EVAL; the least recently used are evicted. \
          Scripts of SCRIPT LOAD are not evicted.",
};

/// `script-cache-max-bytes`.
pub const SCRIPT_CACHE_MAX_BYTES: Parameter = Parameter {
    name: "script-cache-max-bytes",
    kind: ParameterKind::Bytes(64 << 10..=1 << 40, |c| &c.script_cache_max_bytes),
    default: Fallback::Text("64mb"),
    live: true,
    doc: "Maximum memory for the texts and compiled images of scripts, and the same amount for those of \
          libraries. Above it, the least recently used scripts of EVAL are evicted, then images; SCRIPT LOAD \
          and FUNCTION LOAD are refused.",
};

/// `library-memory-max`.
pub const LIBRARY_MEMORY_MAX: Parameter = Parameter {
    name: "library-memory-max",
    kind: ParameterKind::Bytes(64 << 10..=4 << 30, |c| &c.library_memory_max),
    default: Fallback::Text("8mb"),
    live: true,
    doc: "Maximum memory of a function library after it is loaded. Every call of its functions starts from a \
          copy of that memory.",
};

/// `transaction-memory-max`.
pub const TRANSACTION_MEMORY_MAX: Parameter = Parameter {
    name: "transaction-memory-max",
    kind: ParameterKind::Bytes(1 << 20..=1 << 40, |c| &c.transaction_memory_max),
    default: Fallback::Text("256mb"),
    live: true,
    doc: "Maximum memory that a MULTI transaction may use for its rollback data; a transaction that exceeds it \
          is rolled back. For a script, this data counts towards the memory limit of the script.",
};

/// `script-instances`.
pub const SCRIPT_INSTANCES: Parameter = Parameter {
    name: "script-instances",
    kind: ParameterKind::Word(Instances::WORDS, |c| &c.script_instances.place),
    default: Fallback::Text("rewind"),
    live: false,
    doc: "How the sandbox of a run is created: rewind reuses one after restoring its memory, fresh \
          creates a new one.",
};

/// `script-compile`.
pub const SCRIPT_COMPILE: Parameter = Parameter {
    name: "script-compile",
    kind: ParameterKind::Word(Compile::WORDS, |c| &c.script_compile.place),
    default: Fallback::Text("auto"),
    live: false,
    doc: "Which scripts are compiled to machine code: auto compiles those that have used much CPU time, in the \
          background; always compiles each script before its first run, for tests; never interprets all scripts. \
          Results are the same; a compiled script needs less time and fuel.",
};

/// `script-concurrency`.
pub const SCRIPT_CONCURRENCY: Parameter = Parameter {
    name: "script-concurrency",
    kind: ParameterKind::Integer(1..=4096, |c| &c.script_concurrency),
    default: Fallback::Text("64"),
    live: false,
    doc: "Maximum number of scripts that run at the same time, counted separately for atomic scripts and \
          scripts without atomicity. Further scripts are queued.",
};

/// `script-fuel-slice`.
pub const SCRIPT_FUEL_SLICE: Parameter = Parameter {
    name: "script-fuel-slice",
    kind: ParameterKind::Integer(1000..=1_000_000_000, |c| &c.script_fuel_slice),
    default: Fallback::Text("2000000"),
    live: false,
    doc: "Fuel after which a running script yields its thread to other tasks.",
};
