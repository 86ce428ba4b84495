//! Memory that scripts occupy.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of memory that the scripts of one cache occupy together: sources, images and machine code, as long as any of the
/// scripts lives.
#[derive(Debug, Default)]
pub struct Footprint(AtomicUsize);

impl Footprint {
    /// The bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
