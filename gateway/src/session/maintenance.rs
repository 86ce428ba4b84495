//! CLIENT MAINT_NOTIFICATIONS: clients that learn that the server is about to stop, and connect to another one before it does.
//!
//! The message is that of Redis Software: `MOVING`, a number that grows, the seconds that are left, and where to connect. The
//! last one is null here: the client connects again to the address that it has been given, which may lead to another gateway.
//! Clients do so when half of the time is over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use store_engine::{Protocol, Reply};
use tokio::time::{Instant, sleep_until};

/// How long these clients are served after the server has begun to stop: less than what pending requests may take.
pub const NOTICE: Duration = Duration::from_secs(6);

/// What one client has asked for, and been sent.
#[derive(Default)]
pub struct Maintenance {
    wanted: AtomicBool,
    /// Until when it is served, once it knows.
    until: OnceLock<Instant>,
}

impl Maintenance {
    /// Says whether it wants to be notified.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether it wants that.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// It knows now that it has to move, and is served for [`NOTICE`]. There is one stop, and so one notice.
    pub fn begin(&self) {
        let _ = self.until.set(Instant::now() + NOTICE);
    }

    /// Whether it knows that it has to move, and is served until then.
    pub fn is_moving(&self) -> bool {
        self.until.get().is_some_and(|until| *until > Instant::now())
    }

    /// Waits until it is served no longer: at once, unless it was notified.
    pub async fn over(&self) {
        if let Some(until) = self.until.get() {
            sleep_until(*until).await;
        }
    }
}

/// The message that so much time is left. The number is that of a newer message than those before.
pub fn moving(number: u64, left: Duration) -> Bytes {
    let mut message = Reply::new(Protocol::Resp3);
    message.push(4);
    message.bulk(b"MOVING");
    message.integer(number as i64);
    message.integer(left.as_secs() as i64);
    message.null();
    message.buf.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_no_place() {
        let message = moving(7, Duration::from_secs(6));
        assert_eq!(&*message, b">4\r\n$6\r\nMOVING\r\n:7\r\n:6\r\n_\r\n");
    }
}
