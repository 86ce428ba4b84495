//! Frees large values on a thread of its own: a set of a million members takes some 50 ms, for which a thread that serves
//! connections would not serve them.

use std::sync::{LazyLock, mpsc};
use std::thread;

use crate::Entry;

/// From this size on it is freed elsewhere. Less is freed faster than it is handed over.
pub const LARGE_BYTES: usize = 64 << 10;

type Garbage = Box<dyn Send>;

/// Where it goes; `None` if there can be no thread.
static FREEING: LazyLock<Option<mpsc::Sender<Garbage>>> = LazyLock::new(|| {
    let (sender, garbage) = mpsc::channel::<Garbage>();
    let thread = thread::Builder::new().name("free".into()).spawn(move || garbage.into_iter().for_each(drop));
    thread.is_ok().then_some(sender)
});

/// Frees something of so many bytes.
#[inline]
pub fn discard<T: Send + 'static>(garbage: T, bytes: usize) {
    if bytes >= LARGE_BYTES {
        hand_over(garbage);
    }
}

/// Frees an entry.
#[inline]
pub(crate) fn discard_entry(entry: Entry) {
    let bytes = entry.value.bytes();
    discard(entry, bytes);
}

#[cold]
fn hand_over<T: Send + 'static>(garbage: T) {
    if let Some(freeing) = &*FREEING {
        // The thread never ends. If it did, this would be freed here.
        let _ = freeing.send(Box::new(garbage));
    }
}
