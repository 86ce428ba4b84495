//! What a row of the table of parameters says.

use super::kind::ParameterKind;
use super::values::Config;

/// Range of what Redis keeps in a C `int`.
pub const INT_MAX: i64 = i32::MAX as i64;
/// Smallest limit for things a single command needs, as in Redis.
pub const MB: i64 = 1 << 20;

/// The value of a parameter that no source sets.
pub enum Fallback {
    /// As it would stand in a file.
    Text(&'static str),
    /// Computed from rows before it; described in words.
    Computed(&'static str, fn(&Config) -> u64),
}

/// A row.
pub struct Parameter {
    /// Name, as in redis.conf where it has one.
    pub name: &'static str,
    /// Type, range and cell.
    pub kind: ParameterKind,
    /// Value without any source.
    pub default: Fallback,
    /// Whether `CONFIG SET` may change it while the server runs.
    pub live: bool,
    /// One or two sentences.
    pub doc: &'static str,
}

/// The flags a script can have: those of Redis 7, then those of Dragonfly, then ours. Some say what is true of every script
/// here: there is no replica that could be stale, a script may touch any slot, and fractions of a result are cut
/// off as in Redis.
pub const SCRIPT_FLAGS: &str = "no-writes|allow-oom|allow-stale|no-cluster|allow-cross-slot-keys|\
                                disable-atomicity|allow-undeclared-keys|legacy-float|dry-run|trace";
