//! Frees large values on a thread of its own: a set of a million members takes some 50 ms, for which a thread that serves
//! connections would not serve them.
//!
//! Garbage is not part of the data's memory, so its bytes are limited: above the limit it is freed by the thread that made it,
//! which slows down clients that replace values faster than one thread can free them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;

/// From this size on it is freed elsewhere. Less is freed faster than it is handed over.
pub const LARGE_BYTES: usize = 64 << 10;

/// Bytes of garbage that may wait for the thread, beside one piece that is larger.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// Something to free, with its size.
type Garbage = (Box<dyn Send>, usize);

/// Where it goes; `None` if there can be no thread.
static FREEING: LazyLock<Option<mpsc::Sender<Garbage>>> = LazyLock::new(|| {
    let (sender, garbage) = mpsc::channel::<Garbage>();
    let free = move || {
        for (garbage, bytes) in garbage {
            drop(garbage);
            WAITING.leave(bytes);
        }
    };
    thread::Builder::new().name("free".into()).spawn(free).is_ok().then_some(sender)
});

static WAITING: Waiting = Waiting(AtomicUsize::new(0));

/// Bytes that wait to be freed.
struct Waiting(AtomicUsize);

impl Waiting {
    /// Counts so many more, if there is room for them.
    fn enter(&self, bytes: usize) -> bool {
        let room =
            |waiting: usize| (waiting == 0 || waiting + bytes <= MOST_WAITING_BYTES).then(|| waiting + bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn leave(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes of values that were removed or replaced and wait to be freed.
pub fn bytes_to_free() -> usize {
    WAITING.0.load(Ordering::Relaxed)
}

/// Frees something of so many bytes.
#[inline]
pub fn discard<T: Send + 'static>(garbage: T, bytes: usize) {
    if bytes >= LARGE_BYTES {
        hand_over(garbage, bytes);
    }
}

#[cold]
fn hand_over<T: Send + 'static>(garbage: T, bytes: usize) {
    if let Some(freeing) = &*FREEING
        && WAITING.enter(bytes)
    {
        // The thread never ends. If it did, this would be freed here.
        let _ = freeing.send((Box::new(garbage), bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded() {
        let waiting = Waiting(AtomicUsize::new(0));
        let huge = 10 * MOST_WAITING_BYTES;
        assert!(waiting.enter(huge), "one may be as large as it is");
        assert!(!waiting.enter(1));
        waiting.leave(huge);
        assert!(waiting.enter(MOST_WAITING_BYTES / 2) && waiting.enter(MOST_WAITING_BYTES / 2));
        assert!(!waiting.enter(1));
        waiting.leave(MOST_WAITING_BYTES / 2);
        assert!(waiting.enter(1));
    }
}
