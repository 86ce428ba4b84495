//! A script or library, and what is kept of it for its next runs.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::footprint::Footprint;
use crate::image::Image;
use crate::tier::{Compiled, Heat};

/// A script: its source, and once it has proved to be used again its image, in which it is compiled to Lua's bytecode. Or a
/// function library: then [`crate::Runtime::load`] makes the image, in which its functions are registered, before the first run.
/// What is hot is compiled to machine code besides.
pub struct Script {
    source: Box<[u8]>,
    image: OnceLock<Arc<Image>>,
    heat: Arc<Heat>,
    runs: AtomicU32,
    memory_bytes: AtomicUsize,
    footprint: Arc<Footprint>,
}

/// Largest image of a script that is kept. A script with a larger one is compiled for each run, which costs that run fuel
/// instead of costing all others memory.
pub const IMAGE_MAX_BYTES: usize = 8 << 20;

impl Script {
    /// A script that has not been compiled and belongs to no cache.
    pub fn new(source: &[u8]) -> Script {
        Script::counted(source, &Arc::default())
    }

    /// A script that has not been compiled, whose bytes are counted in `footprint` until it is dropped.
    pub fn counted(source: &[u8], footprint: &Arc<Footprint>) -> Script {
        footprint.add(source.len());
        Script {
            source: source.into(),
            image: OnceLock::new(),
            heat: Arc::new(Heat::new(source.len(), footprint)),
            runs: AtomicU32::new(0),
            memory_bytes: AtomicUsize::new(0),
            footprint: footprint.clone(),
        }
    }

    /// The image, if there is one.
    pub(crate) fn image(&self) -> Option<&Image> {
        self.image.get().map(|image| &**image)
    }

    pub(crate) fn shared_image(&self) -> Option<Arc<Image>> {
        self.image.get().cloned()
    }

    pub(crate) fn set_image(&self, image: Image) {
        let bytes = image.bytes();
        if self.image.set(Arc::new(image)).is_ok() {
            self.footprint.add(bytes);
        }
    }

    pub(crate) fn heat(&self) -> &Arc<Heat> {
        &self.heat
    }

    /// Its machine code, if it is compiled.
    pub(crate) fn compiled(&self) -> Option<&Arc<Compiled>> {
        self.heat.compiled()
    }

    /// Notes another run; whether it is not the first.
    pub(crate) fn runs_again(&self) -> bool {
        self.runs.fetch_add(1, Ordering::Relaxed) > 0
    }

    /// Linear memory that the last run needed.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_memory_bytes(&self, bytes: usize) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Its text.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Bytes held by source, image and machine code.
    pub fn bytes(&self) -> usize {
        self.source.len() + self.image_bytes()
    }

    /// Bytes of the image and of the machine code, as far as there are any.
    pub fn image_bytes(&self) -> usize {
        self.image().map_or(0, Image::bytes) + self.compiled_bytes()
    }

    /// Whether it is compiled to machine code.
    pub fn is_compiled(&self) -> bool {
        self.compiled().is_some()
    }

    /// Bytes that its machine code takes.
    pub fn compiled_bytes(&self) -> usize {
        self.compiled().map_or(0, |compiled| compiled.bytes())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Machine code is counted until the compiler has let it go, too.
        self.footprint.subtract(self.source.len() + self.image().map_or(0, Image::bytes));
    }
}
