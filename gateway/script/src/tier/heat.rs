//! How hot a script is, and its machine code.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use wasmtime::Module;

use crate::footprint::Footprint;
use crate::image::Image;

/// Fuel that a script of any size uses before it is hot. Measured: an interpreted run uses 14 units in a nanosecond, and
/// compiling takes 0.7 ms at least.
const BASE_FUEL: u64 = 10_000_000;
/// Fuel more for each byte of source. Measured: compiling takes 3.5 us per byte.
const FUEL_PER_BYTE: u64 = 50_000;

/// How hot a script is, and its machine code.
pub(crate) struct Heat {
    /// Fuel that interpreted runs have used.
    fuel: AtomicU64,
    /// The fuel from which on it is hot.
    threshold: u64,
    /// It waits, or was compiled or refused.
    is_settled: AtomicBool,
    compiled: OnceLock<Arc<Compiled>>,
    footprint: Arc<Footprint>,
}

impl Heat {
    /// That of a script of this length that has not run.
    pub fn new(source_bytes: usize, footprint: &Arc<Footprint>) -> Heat {
        Heat {
            fuel: AtomicU64::new(0),
            threshold: BASE_FUEL + FUEL_PER_BYTE * source_bytes as u64,
            is_settled: AtomicBool::new(false),
            compiled: OnceLock::new(),
            footprint: footprint.clone(),
        }
    }

    /// The machine code, if there is some.
    pub fn compiled(&self) -> Option<&Arc<Compiled>> {
        self.compiled.get()
    }

    /// Notes the fuel of a run. Whether the script is hot now.
    pub fn add(&self, fuel: u64) -> bool {
        let before = self.fuel.fetch_add(fuel.min(self.threshold), Ordering::Relaxed);
        before.saturating_add(fuel) >= self.threshold
    }

    /// Settles the script; whether it was not settled before.
    pub fn settle(&self) -> bool {
        !self.is_settled.load(Ordering::Relaxed) && !self.is_settled.swap(true, Ordering::Relaxed)
    }

    /// It is looked at again after as much fuel as now.
    pub fn come_again(&self) {
        self.fuel.store(0, Ordering::Relaxed);
        self.is_settled.store(false, Ordering::Relaxed);
    }

    /// Adds the machine code.
    pub fn set_compiled(&self, compiled: Compiled) {
        let bytes = compiled.bytes();
        if self.compiled.set(Arc::new(compiled)).is_ok() {
            self.footprint.add(bytes);
        }
    }
}

impl Drop for Heat {
    fn drop(&mut self) {
        self.footprint.subtract(self.compiled.get().map_or(0, |compiled| compiled.bytes()));
    }
}

/// The machine code of a script.
pub(crate) struct Compiled {
    /// No other has it.
    pub number: u64,
    /// What is linked into sandboxes.
    pub code: Arc<Code>,
    /// The image of runs that use it: its functions know their numbers.
    pub image: Image,
}

impl Compiled {
    /// Bytes of code and image.
    pub fn bytes(&self) -> usize {
        self.code.bytes + self.image.bytes()
    }
}

/// A compiled module, counted as long as anyone holds it.
pub(crate) struct Code {
    pub module: Module,
    bytes: usize,
    /// The sum over all code that is held.
    held: Arc<AtomicUsize>,
}

impl Code {
    /// A module of this size, which is added to what is `held`.
    pub fn new(module: Module, bytes: usize, held: &Arc<AtomicUsize>) -> Code {
        held.fetch_add(bytes, Ordering::Relaxed);
        Code { module, bytes, held: held.clone() }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
