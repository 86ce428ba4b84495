//! What one node is asked at once, in the begin or the end of a transaction.

use std::collections::BTreeMap;

use proto::store::v1 as wire;

use crate::lock::{LockRequest, Mode};
use crate::topology::NodeId;

/// What one node is asked at once.
#[derive(Default)]
pub(super) struct Bundle {
    /// Locks that are not had yet,
    pub locks: Vec<LockRequest>,
    /// and the calls that need them.
    pub calls: Vec<wire::Call>,
    pub writes: bool,
}

/// What goes with the end, by node.
#[derive(Default)]
pub(super) struct Late {
    pub bundles: BTreeMap<NodeId, Bundle>,
    pub shared: bool,
    pub spares_memory: bool,
}

impl Late {
    /// A step with what goes to this node.
    pub fn add_to(&mut self, node: NodeId, step: &mut wire::Step) {
        let Some(bundle) = self.bundles.remove(&node) else { return };
        (step.strict, step.ignore_maxmemory, step.shared) = (true, self.spares_memory, self.shared);
        bundle.add_to(step, 0);
    }
}

impl Bundle {
    /// Puts it into a step.
    pub fn add_to(self, step: &mut wire::Step, value_bytes: u32) {
        step.calls = self.calls;
        let locks: Vec<_> = once_each(self.locks).iter().map(wire_lock).collect();
        step.begin =
            (!locks.is_empty()).then(|| wire::Begin { locks, value_bytes, ..wire::Begin::default() });
    }
}

/// One request for each key: of several the exclusive one.
pub(super) fn once_each(mut requests: Vec<LockRequest>) -> Vec<LockRequest> {
    let is_shared = |request: &LockRequest| request.mode == Mode::Shared;
    requests.sort_unstable_by(|a, b| (a.db, &a.key, is_shared(a)).cmp(&(b.db, &b.key, is_shared(b))));
    requests.dedup_by(|b, a| a.db == b.db && a.key == b.key);
    requests
}

pub(super) fn wire_lock(request: &LockRequest) -> wire::Lock {
    let shared = request.mode == Mode::Shared;
    wire::Lock { db: request.db as u32, key: request.key.to_vec().into(), shared }
}
