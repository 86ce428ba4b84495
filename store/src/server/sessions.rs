//! All peers of a node, to tell them something.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto::store::v1 as wire;
use tokio::sync::Notify;
use wire::Response;
use wire::response::Body as Answer;

use super::outbox::Outbox;

/// All sessions of a node.
#[derive(Default)]
pub(crate) struct Sessions {
    last: AtomicU64,
    outboxes: Mutex<HashMap<u64, Weak<Outbox>>>,
    ending: AtomicBool,
    end: Notify,
}

impl Sessions {
    /// A number for a new session.
    pub fn enter(&self, outbox: &Arc<Outbox>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.outboxes.lock().insert(number, Arc::downgrade(outbox));
        number
    }

    /// A session has ended.
    pub fn leave(&self, number: u64) {
        self.outboxes.lock().remove(&number);
    }

    /// Done when all are to end.
    pub async fn ended(&self) {
        let mut end = pin!(self.end.notified());
        end.as_mut().enable();
        if !self.ending.load(Ordering::Relaxed) {
            end.await;
        }
    }

    /// Ends all.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.end.notify_waiters();
    }

    /// Tells all but one that the catalog has changed.
    pub fn tell_of_catalog(&self, but: u64) {
        for (session, outbox) in &*self.outboxes.lock() {
            if *session != but
                && let Some(outbox) = outbox.upgrade()
            {
                outbox.push([Response { id: 0, body: Some(Answer::Done(wire::Done {})) }]);
            }
        }
    }
}
