//! Who is at the other end of a connection, as far as its calls have said it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::net::acceptor::ConnectionGuard;

/// Calls that an unauthenticated connection may make: a probe makes one. Each may cost 15 KB until the
/// connection ends.
const MAX_UNAUTHENTICATED_CALLS: u32 = 16;

/// A connection.
pub struct Caller {
    /// Its place in the list of clients.
    pub entry: Arc<ConnectionGuard>,
    /// A call has come that did not have to say who it is, or has said it.
    is_known: AtomicBool,
    /// Calls of others.
    strange: AtomicU32,
    /// There are too many of those.
    too_strange: Notify,
}

impl Caller {
    /// One that has not called yet.
    pub fn new(entry: Arc<ConnectionGuard>) -> Caller {
        Caller {
            entry,
            is_known: AtomicBool::new(false),
            strange: AtomicU32::new(0),
            too_strange: Notify::new(),
        }
    }

    /// One of its calls was authenticated.
    pub fn recognize(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// One of its calls is not authenticated; whether that may be answered.
    pub fn admit_unauthenticated(&self) -> bool {
        let fits = self.strange.fetch_add(1, Ordering::Relaxed) < MAX_UNAUTHENTICATED_CALLS;
        if !fits {
            self.too_strange.notify_one();
        }
        fits || self.is_known()
    }

    /// Ends if no call was authenticated when so much time has passed, or so many calls.
    pub async fn stays_unknown(&self, wait: Duration) {
        let _ = timeout(wait, self.too_strange.notified()).await;
        if self.is_known() {
            pending().await
        }
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }
}
