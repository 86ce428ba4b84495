//! Transactions: atomic scripts and EXEC.
//!
//! An atomic unit locks the keys it names and runs. If a call then needs a key that somebody else holds, the
//! unit is taken back, the key joins its lock set, and it runs again: with the same time, random seed and
//! arguments, so nobody can tell. After a few rounds the whole store is locked, which cannot fail.

mod exec;
mod host;
mod locks;
mod script;

pub use exec::{Step, exec, run_locked};
pub use script::{ScriptCall, compile_error, run_script};
