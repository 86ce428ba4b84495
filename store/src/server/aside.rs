//! Work on requests of many bytes. While a thread copies them, its other tasks do not run, and messages of other replicas among
//! them come too late: the group would lose its leader. So the other tasks are given to another thread before.

use std::future::poll_fn;
use std::pin::pin;

use tokio::task::block_in_place;

/// From here on a request is large. To give the tasks away takes much less time than a copy of so many bytes.
const LARGE_BYTES: usize = 4 << 20;

/// Does this for a request of so many bytes.
pub(super) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES { work() } else { block_in_place(work) }
}

/// The same where the work has to wait, too.
pub(super) async fn drive_aside<T>(bytes: usize, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| aside(bytes, || work.as_mut().poll(context))).await
}
