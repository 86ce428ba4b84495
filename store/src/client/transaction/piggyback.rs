//! Calls that go with its begin or with its end, so that they take no round trip of their own. If that does not work out
//! nothing was done, and the caller does the same step by step.

use std::collections::BTreeMap;

use proto::store::v1 as wire;
use store_engine::{Protocol, Reply, Routing};
use wire::step_result::Outcome;

use super::bundle::{Bundle, Late, once_each};
use super::{COPIED_BYTES, DistributedTransaction, KeyLocation};
use crate::call::Call;
use crate::client::cluster::{unexpected, wire_call};
use crate::client::error::{TransactionError, conflict_of};
use crate::lock::{LockRequest, Mode};
use crate::topology::NodeId;

impl DistributedTransaction {
    /// Whether it has not begun and may do so with its first calls: [`DistributedTransaction::begin_with`].
    pub fn is_open(&self) -> bool {
        !self.begun && !self.everything && self.watches.is_empty()
    }

    /// Begins with these calls, of each of which is known whether it may fail. The reply to the last one is `out`, if
    /// that is given.
    pub async fn begin_with(
        &mut self,
        calls: &[(Call<'_>, bool)],
        mode: Mode,
        spares_memory: bool,
        seed: &mut u64,
        out: Option<&mut Reply>,
    ) -> Result<(), TransactionError> {
        let protocol = out.as_ref().map_or(Protocol::Resp2, |out| out.protocol);
        let mut bundles = self.bundles(calls, mode, protocol).ok_or(TransactionError::NotBatched)?;
        for request in &self.requests {
            bundles.entry(self.cluster.node_of(&request.key)).or_default().locks.push(request.clone());
        }
        for bundle in bundles.values_mut() {
            bundle.locks = once_each(std::mem::take(&mut bundle.locks));
        }
        self.requests = bundles.values().flat_map(|bundle| &bundle.locks).cloned().collect();
        let last =
            calls.last().and_then(|(call, _)| self.cluster.node_of_all(call.keys().map(|(key, _)| key)));
        let shared = mode == Mode::Shared;
        let mut pending = Vec::new();
        for (node, bundle) in bundles {
            let (locks, writes) = (bundle.locks.clone(), bundle.writes);
            let mut step = wire::Step {
                seed: *seed,
                shared,
                strict: true,
                ignore_maxmemory: spares_memory,
                ..self.step()
            };
            bundle.add_to(&mut step, COPIED_BYTES);
            let participant = self.participant(node, writes);
            pending.push((node, locks, participant.ask(step)));
        }
        let mut answers = Vec::new();
        for (node, locks, answer) in pending {
            answers.push((node, locks, answer.answer().await));
        }
        let mut reply = None;
        for (node, locks, answer) in answers {
            // Slots have moved: where they are now is found out step by step.
            let mut stepped = self.stepped(answer, false)?.ok_or(TransactionError::NotBatched)?;
            check_batch(&stepped)?;
            self.accept(&stepped, &locks)?;
            if last == Some(node) {
                (*seed, reply) = (stepped.seed, stepped.replies.pop());
            }
        }
        if let Some(out) = out {
            out.relay(&reply.ok_or_else(|| TransactionError::Lost(unexpected()))?);
        }
        (self.begun, self.keeps_time) = (true, true);
        Ok(())
    }

    /// Leaves calls whose replies are not read to the end, see [`DistributedTransaction::begin_with`]. Not if that cannot be: the caller
    /// has to do them before.
    pub fn leave_to_end(&mut self, calls: &[(Call<'_>, bool)], mode: Mode, spares_memory: bool) -> bool {
        let is_apart = self.everything || self.before.is_some() || !self.watches.is_empty();
        let bundles = if is_apart { None } else { self.bundles(calls, mode, Protocol::Resp2) };
        let Some(bundles) = bundles else { return false };
        let locks = bundles.values().flat_map(|bundle| &bundle.locks);
        self.requests.extend(locks.cloned());
        self.requests = once_each(std::mem::take(&mut self.requests));
        self.late = Late { bundles, shared: mode == Mode::Shared, spares_memory };
        true
    }

    /// The calls by the nodes that have their keys; none if one of them needs several nodes, or what is here.
    fn bundles(
        &self,
        calls: &[(Call<'_>, bool)],
        mode: Mode,
        last_protocol: Protocol,
    ) -> Option<BTreeMap<NodeId, Bundle>> {
        let mut bundles: BTreeMap<NodeId, Bundle> = BTreeMap::new();
        for (at, (call, may_fail)) in calls.iter().enumerate() {
            if call.command.routing.of(call.args) != Routing::ByKey || call.keys().next().is_none() {
                return None;
            }
            let node = self.cluster.node_of_all(call.keys().map(|(key, _)| key))?;
            let bundle = bundles.entry(node).or_default();
            for (key, need) in call.keys() {
                match self.location_of(call.db, key) {
                    None => {
                        let mode = if mode.covers(need) { mode } else { need };
                        bundle.locks.push(LockRequest { db: call.db, key: key.into(), mode });
                    }
                    Some((KeyLocation::Remote, held)) if held.covers(need) => {}
                    Some(_) => return None,
                }
            }
            bundle.writes |= call.command.is_write();
            let protocol = if at + 1 == calls.len() { last_protocol } else { Protocol::Resp2 };
            bundle.calls.push(wire::Call { may_fail: *may_fail, ..wire_call(call, protocol) });
        }
        Some(bundles)
    }
}

/// What a step came to that was to be done as a whole.
pub(super) fn check_batch(stepped: &wire::StepResult) -> Result<(), TransactionError> {
    match stepped.outcome() {
        Outcome::Ok => Ok(()),
        Outcome::Rejected => Err(TransactionError::BatchFailed),
        Outcome::LimitData | Outcome::LimitUndo => Err(conflict_of(stepped, &[])),
        _ => Err(TransactionError::NotBatched),
    }
}
