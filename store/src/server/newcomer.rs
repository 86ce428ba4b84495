//! What a node without a slot map waits for, see `founding`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::topology::{NodeId, SlotMap};

/// The state of a node without a slot map.
#[derive(Default)]
pub(crate) struct Newcomer {
    inquiry: Mutex<Option<Inquiry>>,
    /// Notified when the place of the node is known.
    pub settled: Notify,
}

/// The question to the other nodes of a list.
struct Inquiry {
    nodes: Vec<String>,
    me: NodeId,
    confirmed: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Newcomer {
    /// Begins to ask the other nodes of this map, unless that has begun. `ask` starts the task that asks them, and counts
    /// those that have confirmed. Returns how many have.
    pub fn inquire(
        &self,
        map: &SlotMap,
        me: NodeId,
        ask: impl FnOnce(Arc<AtomicUsize>) -> AbortHandle,
    ) -> usize {
        let mut inquiry = self.inquiry.lock();
        if inquiry.as_ref().is_none_or(|known| known.nodes != map.nodes() || known.me != me) {
            let confirmed = Arc::<AtomicUsize>::default();
            let task = ask(confirmed.clone());
            *inquiry = Some(Inquiry { nodes: map.nodes().to_vec(), me, confirmed, task });
        }
        inquiry.as_ref().map_or(0, |known| known.confirmed.load(Ordering::Relaxed))
    }
}
