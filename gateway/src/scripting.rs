//! Scripts and EXEC: which locks they take, and how often they run.
//!
//! An atomic unit locks the keys it names and runs. If a call then needs a key that another unit holds, the
//! unit is taken back, the key joins its lock set, and it runs again: with the same time, random seed and
//! arguments, so that is not visible. After a few rounds the whole store is locked, which cannot fail.
//!
//! A script that gave up atomicity takes no locks: each of its calls is like a client's.

mod answer;
mod atomic;
mod attempt;
mod call;
mod channels;
mod circumstances;
mod compile;
mod dry_run;
mod errors;
mod exec;
mod fuel_meter;
mod host;
mod inline;
mod limits;
mod locks;
mod outcome;
mod outgoing;
mod queue;
pub mod records;
mod sandbox;
mod script;
mod slices;
mod spans;
mod trace;
mod undeclared;
mod wait;

pub use call::{Program, ScriptCall};
pub use compile::{compile, load_library};
pub use exec::{Performer, Queued, QueuedStep, Stepping, Watches, error_of, exec};
pub use inline::reply_time;
pub use script::run_script;
pub use spans::report_queued;
pub use wait::{found_nothing, timed_out, wait};
