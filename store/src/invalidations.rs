//! Copies that clients keep of values: such clients are notified which keys have changed.
//!
//! They are notified when a shard is let go in which something has changed, be that a command, a commit, an undo, a key whose
//! time is over, or one that memory was short for. That may be before a transaction is committed, whose keys are
//! locked until then: a client that reads the key again waits for the end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use store_engine::Partition;
use store_engine::keyspace::Changed;

/// On whose behalf something is done: 0 is no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The session of a gateway elsewhere.
    pub peer: u64,
    /// A client of it, or of this process.
    pub client: u64,
}

/// The work on this thread: on behalf of which client, and what it has changed so far.
#[derive(Default)]
struct Act {
    origin: Origin,
    changed: Changed,
    invalidations: Option<Arc<Invalidations>>,
}

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

/// Ends an act, also one that panics: what it has changed is sent at once, so that a transaction is one message.
struct EndOrigin(Option<Act>);

impl Drop for EndOrigin {
    fn drop(&mut self) {
        let outer = self.0.take();
        if let Some(Act { origin, changed, invalidations: Some(invalidations) }) = ACT.replace(outer) {
            invalidations.say(origin, changed);
        }
    }
}

impl Origin {
    /// A client of this process.
    pub fn client(client: u64) -> Origin {
        Origin { peer: 0, client }
    }

    /// On whose behalf the present thread does what it does.
    pub fn present() -> Origin {
        ACT.with_borrow(|act| act.as_ref().map_or_else(Origin::default, |act| act.origin))
    }

    /// Does something on its behalf.
    pub fn act<T>(self, work: impl FnOnce() -> T) -> T {
        let _end = EndOrigin(ACT.replace(Some(Act { origin: self, ..Act::default() })));
        work()
    }

    /// The same for something that waits.
    pub async fn drive<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|context| self.act(|| work.as_mut().poll(context))).await
    }
}

/// Receives changes. It may be called while shards are locked, so it may neither wait nor read data.
pub type InvalidationListener = Box<dyn Fn(Origin, Changed) + Send + Sync>;

/// Whether a client keeps copies, and the listener.
#[derive(Default)]
pub(crate) struct Invalidations {
    pub kept: AtomicBool,
    pub listener: OnceLock<InvalidationListener>,
}

impl Invalidations {
    /// Whether any client keeps some.
    pub fn are_enabled(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Publishes what has changed in a partition since the last call; when the present act has ended, if there is one.
    pub fn publish(self: &Arc<Self>, partition: &mut Partition) {
        let mut all = Changed::default();
        for space in &mut partition.databases {
            all.append(space.take_changed());
        }
        if all.is_empty() {
            return;
        }
        let alone = ACT.with_borrow_mut(|act| match act {
            Some(Act { changed, invalidations, .. }) => {
                changed.append(std::mem::take(&mut all));
                invalidations.get_or_insert_with(|| self.clone());
                false
            }
            None => true,
        });
        if alone {
            self.say(Origin::default(), all);
        }
    }

    fn say(&self, origin: Origin, changed: Changed) {
        if let Some(listener) = self.listener.get() {
            listener(origin, changed);
        }
    }
}
