//! Frees what a transaction has replaced or removed, on a thread of its own where that takes long: a set of a million
//! members takes some 50 ms, for which an I/O thread would serve nobody.
//!
//! What waits to be freed is in no count of the data's memory, so it is bounded: beyond that it is freed by whoever has
//! replaced it, which slows those down that replace values faster than one thread can free them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;

use store_engine::UndoLog;

/// From this size on it is freed elsewhere. Less is freed faster than it is handed over.
const LARGE_BYTES: usize = 64 << 10;
/// So much may wait for the thread, beside one that is larger.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// Where large ones go, each with its size; `None` if there can be no thread.
static FREEING: LazyLock<Option<mpsc::Sender<(UndoLog, usize)>>> = LazyLock::new(|| {
    let (sender, logs) = mpsc::channel::<(UndoLog, usize)>();
    let free = move || {
        for (log, bytes) in logs {
            drop(log);
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

/// Bytes of values that are removed or replaced and wait to be freed.
pub fn bytes_to_free() -> usize {
    WAITING.0.load(Ordering::Relaxed)
}

/// Frees the records of a transaction whose changes stay.
pub(crate) fn discard(undo: UndoLog) {
    let bytes = undo.bytes();
    if bytes >= LARGE_BYTES
        && let Some(freeing) = &*FREEING
        && WAITING.enter(bytes)
    {
        // The thread never ends. If it did, the log would be freed here.
        let _ = freeing.send((undo, bytes));
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
