//! Lua in WebAssembly behind one call.
//!
//! A [`Runtime`] owns the compiled guest and a pool of sandboxes. A run takes one sandbox, puts every byte of it
//! into the state of a pre-initialised [`image`], lets the guest run under a [`Budget`], and gives it back. What
//! the guest may ask for is the trait [`Host`]; it has no other way out.
//!
//! Architecture invariant: nothing that comes from the guest is believed. Pointers, lengths and counts are
//! checked in [`imports`]; the reply it leaves is plain bytes that the caller validates.

mod compiled;
mod footprint;
mod guard;
mod imports;

pub mod budget;
pub mod frames;
pub mod host;
pub mod image;
pub mod runtime;
mod sandbox;
mod script;
mod tier;

pub use guest_lua::api;

pub use budget::{Budget, Limit, ResourceUsage};
pub use footprint::Footprint;
pub use host::{AnyHost, CallFlags, Finishing, Host, HostCall, LogLevel};
pub use image::Image;
pub use runtime::{FUNCTION_FLAGS, Instances, Outcome, RunInput, Runtime, RuntimeConfig, precompile};
pub use script::{IMAGE_MAX_BYTES, Script};
pub use tier::{Compilation, Compile, Compiler, TierReport};
