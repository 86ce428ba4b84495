//! Frees what a transaction has replaced or removed, on a thread of its own where that takes long: a set of a million
//! members takes some 50 ms, for which an I/O thread would serve nobody.

use std::sync::{LazyLock, mpsc};
use std::thread;

use store_engine::UndoLog;

/// From this size on it is freed elsewhere. Less is freed faster than it is handed over.
const LARGE_BYTES: usize = 64 << 10;

/// Where large ones go; `None` if there can be no thread.
static FREEING: LazyLock<Option<mpsc::Sender<UndoLog>>> = LazyLock::new(|| {
    let (sender, logs) = mpsc::channel::<UndoLog>();
    let thread = thread::Builder::new().name("free".into()).spawn(move || logs.into_iter().for_each(drop));
    thread.is_ok().then_some(sender)
});

/// Frees the records of a transaction whose changes stay.
pub(crate) fn discard(undo: UndoLog) {
    if undo.bytes() >= LARGE_BYTES
        && let Some(freeing) = &*FREEING
    {
        // The thread never ends. If it did, the log is freed here.
        let _ = freeing.send(undo);
    }
}
