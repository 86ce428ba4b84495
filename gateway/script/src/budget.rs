//! What a run may use, which limit ended it, and what it used.

use std::time::Duration;

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Units of work: one per WebAssembly instruction, one per byte of bulk copies, and what host calls charge.
    pub fuel: u64,
    /// The same for compiling the script first: it does not depend on what the run may use, as that one may find the script
    /// compiled.
    pub compile_fuel: u64,
    /// Wall-clock time.
    pub time: Duration,
    /// Bytes of linear memory.
    pub memory_bytes: usize,
    /// Bytes of the encoded reply.
    pub reply_bytes: usize,
    /// Fuel after which the run lets others have its thread.
    pub slice_fuel: u64,
}

/// Why a run was ended from outside. Nothing inside the guest can catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Out of fuel.
    Fuel,
    /// Out of time.
    Time,
    /// Wanted more memory.
    Memory,
    /// Returned more than allowed.
    Reply,
}

impl Limit {
    /// All of them, in the order of their counters.
    pub const ALL: [Limit; 4] = [Limit::Fuel, Limit::Time, Limit::Memory, Limit::Reply];

    /// The word for it in errors, INFO and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Fuel => "fuel",
            Limit::Time => "time",
            Limit::Memory => "memory",
            Limit::Reply => "reply",
        }
    }
}

/// What a run used.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Fuel of the run, its calls included: the same whether the script was compiled before or not.
    pub fuel: u64,
    /// Fuel for compiling the script, or for copying its image.
    pub compile_fuel: u64,
    /// Bytes of linear memory at the end.
    pub memory_bytes: usize,
    /// Calls into the host.
    pub calls: u64,
    /// Wall-clock time.
    pub time: Duration,
    /// The script was compiled to machine code when the run began.
    pub compiled: bool,
}

impl ResourceUsage {
    /// All fuel that was used.
    pub fn total_fuel(&self) -> u64 {
        self.fuel.saturating_add(self.compile_fuel)
    }
}
