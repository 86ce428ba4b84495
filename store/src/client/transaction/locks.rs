//! Its locks: had on all nodes, or on none.

use proto::store::v1 as wire;
use store_engine::effect::Put;
use store_engine::{CommandError, Partition};
use wire::response::Body as Answer;
use wire::step_result::Outcome;

use super::bundle::{once_each, wire_lock};
use super::{COPIED_BYTES, DistributedTransaction, KeyLocation};
use crate::call::Call;
use crate::client::backoff::Backoff;
use crate::client::cluster::unexpected;
use crate::client::error::{TransactionError, conflict_of};
use crate::client::link::Pending;
use crate::client::lost::Lost;
use crate::lock::{LockRequest, Mode};
use crate::topology::NodeId;
use crate::txn::Conflict;

impl DistributedTransaction {
    /// Waits until everything is locked.
    pub async fn begin(&mut self) -> Result<(), TransactionError> {
        if self.begun {
            return Ok(());
        }
        let mut backoff = Backoff::default();
        while !self.try_begin().await? {
            self.abort();
            self.number = self.cluster.next_transaction();
            self.participants.clear();
            self.locations.clear();
            *self.copies = Partition::default();
            backoff.again().await.map_err(TransactionError::Lost)?;
        }
        (self.begun, self.keeps_time) = (true, self.now_ms > 0);
        Ok(())
    }

    /// Whether it has begun; not if slots had moved.
    pub(super) async fn try_begin(&mut self) -> Result<bool, TransactionError> {
        let nodes = self.nodes_wanted();
        if nodes.len() > 1 {
            self.check_clocks(nodes.iter().map(|(node, _)| *node))?;
        }
        if nodes.len() > 1 && !self.everything {
            // All at once, if no lock is held,
            let pending: Vec<_> =
                nodes.iter().map(|(node, locks)| self.ask_to_begin(*node, locks, false)).collect();
            let mut answers = Vec::new();
            for answer in pending {
                answers.push(answer.answer().await);
            }
            let is_busy = |answer: &Result<Answer, Lost>| matches!(answer, Ok(Answer::StepResult(stepped)) if stepped.outcome() == Outcome::Busy);
            if !answers.iter().any(is_busy) {
                for (answer, (_, locks)) in answers.into_iter().zip(&nodes) {
                    if !self.granted(answer, locks)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            self.abort();
            self.number = self.cluster.next_transaction();
            self.participants.clear();
        }
        // otherwise in one order for all, so that there is no deadlock.
        for (node, locks) in &nodes {
            let answer = self.ask_to_begin(*node, locks, true).answer().await;
            if !self.granted(answer, locks)? {
                return Ok(false);
            }
        }
        // By now the map is known as it stays, and may have others.
        let has = |node: &NodeId| self.participants.iter().any(|participant| participant.node == *node);
        Ok(!self.everything || self.cluster.map().owners().iter().all(has))
    }

    /// An error if the clocks of these nodes and those that take part are too far apart.
    fn check_clocks(&self, nodes: impl Iterator<Item = NodeId>) -> Result<(), TransactionError> {
        let participants = self.participants.iter().map(|participant| participant.node);
        self.cluster.check_clocks(nodes.chain(participants)).map_err(|reason| {
            TransactionError::Lost(CommandError::owned(format!("TRYAGAIN nothing was done: {reason}")))
        })
    }

    /// The nodes that are needed, ascending, with what is to be locked there.
    pub(super) fn nodes_wanted(&self) -> Vec<(NodeId, Vec<LockRequest>)> {
        let map = self.cluster.map();
        if self.everything {
            return map.owners().into_iter().map(|node| (node, Vec::new())).collect();
        }
        let mut by_node: std::collections::BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for request in &self.requests {
            by_node.entry(map.owner_of(&request.key)).or_default().push(request.clone());
        }
        for watch in &self.watches {
            by_node.entry(watch.node).or_default();
        }
        by_node.into_iter().collect()
    }

    pub(super) fn ask_to_begin(&mut self, node: NodeId, locks: &[LockRequest], wait: bool) -> Pending {
        let stream = self.participant(node, false).stream;
        let on_node = self.watches.iter().filter(|watch| watch.node == node);
        // A watch of another stream is unknown to the node: it is sent 0, which is unknown to all nodes.
        let watches = on_node.map(|watch| if watch.stream == stream { watch.number } else { 0 }).collect();
        let begin = wire::Begin {
            locks: locks.iter().map(wire_lock).collect(),
            everything: self.everything,
            wait,
            value_bytes: COPIED_BYTES,
            watches,
        };
        let step = wire::Step { begin: Some(begin), ..self.step() };
        self.participant(node, false).ask(step)
    }

    /// Takes the answer to a begin. Whether the locks are there; not if they are another node's.
    pub(super) fn granted(
        &mut self,
        answer: Result<Answer, Lost>,
        locks: &[LockRequest],
    ) -> Result<bool, TransactionError> {
        let Some(stepped) = self.stepped(answer, false)? else { return Ok(false) };
        match stepped.outcome() {
            Outcome::Ok => self.accept(&stepped, locks).map(|()| true),
            Outcome::WatchBroken => Err(TransactionError::WatchBroken),
            _ => Err(conflict_of(&stepped, locks)),
        }
    }

    /// Takes what came with locks that are had.
    pub(super) fn accept(
        &mut self,
        stepped: &wire::StepResult,
        locks: &[LockRequest],
    ) -> Result<(), TransactionError> {
        if !self.keeps_time {
            self.now_ms = self.now_ms.max(stepped.now_ms);
        }
        self.full |= stepped.memory_full;
        if let Some(map) = &stepped.map {
            self.cluster
                .learn(map)
                .map_err(|reason| TransactionError::Lost(CommandError::owned(format!("ERR {reason}"))))?;
        }
        if stepped.values.len() < locks.len() {
            return Err(TransactionError::Lost(unexpected()));
        }
        for (request, value) in locks.iter().zip(&stepped.values) {
            self.take_value(request, value)?;
        }
        Ok(())
    }

    /// Keeps a copy of a value, if there is one.
    pub(super) fn take_value(&mut self, request: &LockRequest, value: &[u8]) -> Result<(), TransactionError> {
        let LockRequest { db, key, mode } = request;
        let space = &mut self.copies.databases[*db];
        let location = match value.split_first() {
            Some((0, _)) => {
                space.remove(key);
                KeyLocation::Local
            }
            Some((1, entry)) => {
                let entry = Put::encoded(entry).entry().map_err(|_| TransactionError::Lost(unexpected()))?;
                space.insert(key, entry);
                KeyLocation::Local
            }
            _ => KeyLocation::Remote,
        };
        self.locations.insert((*db, key.clone()), (location, *mode));
        Ok(())
    }

    /// Locks the keys of calls that are not yet, if they are free: all at once.
    pub(super) async fn lock_more(&mut self, calls: &[Call<'_>], mode: Mode) -> Result<(), TransactionError> {
        if self.everything {
            return Ok(());
        }
        let mut by_node: std::collections::BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for call in calls {
            for (key, need) in call.keys() {
                if self.location_of(call.db, key).is_none() {
                    let mode = if mode.covers(need) { mode } else { need };
                    let request = LockRequest { db: call.db, key: key.into(), mode };
                    by_node.entry(self.cluster.node_of(key)).or_default().push(request);
                }
            }
        }
        self.check_clocks(by_node.keys().copied())?;
        let mut pending = Vec::new();
        for (node, locks) in by_node {
            let locks = once_each(locks);
            let answer = match self.participants.iter().find(|participant| participant.node == node) {
                None => self.ask_to_begin(node, &locks, false),
                Some(participant) => {
                    let locks = locks.iter().map(wire_lock).collect();
                    let begin = wire::Begin { locks, value_bytes: COPIED_BYTES, ..wire::Begin::default() };
                    participant.ask(wire::Step { begin: Some(begin), ..self.step() })
                }
            };
            pending.push((answer, locks));
        }
        for (answer, locks) in pending {
            if !self.granted(answer.answer().await, &locks)? {
                // It begins again with these, wherever they are now.
                return Err(locks.first().cloned().map_or(Conflict::Everything, Conflict::Key).into());
            }
            self.requests.extend(locks);
        }
        Ok(())
    }
}
