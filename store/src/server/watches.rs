//! Keys that a session watches.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

/// The watches of a session: keys, and whether they have changed.
pub(crate) type Watches = Mutex<HashMap<u64, Vec<Watched>>>;

/// A watched key.
pub(crate) struct Watched {
    pub db: usize,
    pub key: Vec<u8>,
    pub changed: Arc<AtomicBool>,
}
