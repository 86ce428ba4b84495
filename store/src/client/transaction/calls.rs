//! Its calls: on copies where these are, else on the node of their keys, or on all.

use std::collections::BTreeMap;

use proto::store::v1 as wire;
use store_engine::command::sort;
use store_engine::keys::KeyAt;
use store_engine::spec::flags;
use store_engine::{Access, Args, DATABASES, Partition, Protocol, Reply, Routing, UndoLog};
use wire::step_result::Outcome;

use super::bundle::wire_lock;
use super::{DistributedTransaction, KeyLocation};
use crate::call::{Call, is_long_on};
use crate::client::cluster::{room_in, unexpected, wire_call};
use crate::client::error::{TransactionError, conflict_of};
use crate::client::merge;
use crate::lock::{LockRequest, Mode};
use crate::topology::NodeId;
use crate::txn::{Conflict, FULL, LimitReached, OnFull, TxnLimits};

impl DistributedTransaction {
    /// Runs a call if that needs no node. Whether its reply is no error.
    pub fn execute_local(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        match call.command.routing.of(call.args) {
            // What time it is says the first node that is asked.
            Routing::Anywhere if self.begun || self.keeps_time => return Ok(Some(self.run(call, seed, out))),
            Routing::ByKey if self.begun && !self.everything => {}
            _ => return Ok(None),
        }
        if self.refuse_beyond_limit(call, out)? {
            return Ok(Some(false));
        }
        let mut here = true;
        for (key, need) in call.keys() {
            match self.location_of(call.db, key) {
                Some((_, mode)) if !mode.covers(need) => {
                    return Err(Conflict::Key(LockRequest { db: call.db, key: key.into(), mode: need }));
                }
                Some((KeyLocation::Local, _)) => {}
                _ => here = false,
            }
        }
        // A node has threads for long calls.
        if !here || is_long_on(call, &self.copies) {
            return Ok(None);
        }
        let fine = self.run(call, seed, out);
        self.check_memory()?;
        Ok(Some(fine))
    }

    /// Runs a call. `mode`: how keys are locked that were not named beforehand. Whether its reply is no error.
    pub async fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        self.begin().await?;
        match call.command.routing.of(call.args) {
            Routing::Anywhere => return Ok(self.run(call, seed, out)),
            Routing::ByKey => {}
            _ if self.everything => return self.execute_everywhere(call, seed, out).await,
            _ => return Err(Conflict::Everything.into()),
        }
        self.lock_more(std::slice::from_ref(call), mode).await?;
        if let Some(fine) = self.execute_local(call, seed, out)? {
            return Ok(fine);
        }
        let node = self.cluster.node_of_all(call.keys().map(|(key, _)| key));
        match node {
            Some(node) if self.before.is_none() || self.everything => {
                self.execute_there(node, call, mode, seed, out).await
            }
            // Of several nodes, or to be taken back alone: on copies, however large they are.
            _ => {
                self.fetch(call).await?;
                let fine = self.run(call, seed, out);
                self.check_memory()?;
                if self.everything {
                    self.put_away().await?;
                }
                Ok(fine)
            }
        }
    }

    /// Runs calls whose replies are not read; those of one node go there together, in their order. The numbers of those
    /// that failed.
    pub async fn execute_all(
        &mut self,
        calls: &[Call<'_>],
        mode: Mode,
        seed: &mut u64,
    ) -> Result<Vec<usize>, TransactionError> {
        self.begin().await?;
        let is_by_key = |call: &Call<'_>| call.command.routing.of(call.args) == Routing::ByKey;
        if calls.iter().all(is_by_key) {
            self.lock_more(calls, mode).await?;
        }
        let (mut failed, mut unread) = (Vec::new(), Reply::new(Protocol::Resp2));
        let mut away = BTreeMap::new();
        for (at, call) in calls.iter().enumerate() {
            if let Some(node) = self.node_with(call) {
                away.entry(node).or_insert_with(Vec::new).push(at);
                continue;
            }
            self.send_all(calls, std::mem::take(&mut away), mode, *seed, &mut failed).await?;
            unread.buf.clear();
            if !self.execute(call, mode, seed, &mut unread).await? {
                failed.push(at);
            }
        }
        self.send_all(calls, away, mode, *seed, &mut failed).await?;
        Ok(failed)
    }

    /// Refuses a call that needs memory which its node did not have as of a second ago. Whether it has been answered.
    fn refuse_beyond_limit(&self, call: &Call<'_>, out: &mut Reply) -> Result<bool, Conflict> {
        let TxnLimits { on_full, slack_bytes, .. } = self.limits;
        if on_full == OnFull::Allow || slack_bytes > 0 || !call.command.has(flags::DENY_OOM) {
            return Ok(false);
        }
        if !self.full && !self.cluster.is_full() {
            return Ok(false);
        }
        if on_full == OnFull::RollBack {
            return Err(Conflict::Limit(LimitReached::Data));
        }
        out.error(&FULL);
        Ok(true)
    }

    /// The node that has all keys of a call, if they are locked for it and not here.
    fn node_with(&self, call: &Call<'_>) -> Option<NodeId> {
        let by_key = call.command.routing.of(call.args) == Routing::ByKey;
        let is_away = |(key, need)| {
            let location = self.location_of(call.db, key);
            matches!(location, Some((KeyLocation::Remote, mode)) if mode.covers(need))
        };
        if !by_key || self.everything || self.before.is_some() || !call.keys().all(is_away) {
            return None;
        }
        self.cluster.node_of_all(call.keys().map(|(key, _)| key))
    }

    async fn send_all(
        &mut self,
        calls: &[Call<'_>],
        away: BTreeMap<NodeId, Vec<usize>>,
        mode: Mode,
        seed: u64,
        failed: &mut Vec<usize>,
    ) -> Result<(), TransactionError> {
        let step = wire::Step { seed, shared: mode == Mode::Shared, ..self.step() };
        let mut pending = Vec::new();
        for (node, own) in away {
            let participant = self.participants.iter_mut().find(|participant| participant.node == node);
            let participant = participant.ok_or_else(|| TransactionError::Lost(unexpected()))?;
            participant.wrote |= own.iter().any(|at| calls[*at].command.is_write());
            let calls = own.iter().map(|at| wire_call(&calls[*at], Protocol::Resp2)).collect();
            pending.push((participant.ask(wire::Step { calls, ..step.clone() }), own));
        }
        for (answer, own) in pending {
            let stepped = self.stepped(answer.answer().await, false)?.ok_or(Conflict::Everything)?;
            if stepped.outcome() != Outcome::Ok {
                return Err(conflict_of(&stepped, &[]));
            }
            if stepped.replies.len() != own.len() {
                return Err(TransactionError::Lost(unexpected()));
            }
            let replies = own.into_iter().zip(&stepped.replies);
            failed.extend(replies.filter(|(_, reply)| reply.first() == Some(&b'-')).map(|(at, _)| at));
        }
        Ok(())
    }

    /// Brings the keys of a call here that are not.
    pub(super) async fn fetch(&mut self, call: &Call<'_>) -> Result<(), TransactionError> {
        let mut by_node: BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for (key, need) in call.keys() {
            let location = self.location_of(call.db, key);
            if !matches!(location, Some((KeyLocation::Local, _))) {
                let mode = location.map_or(need, |(_, mode)| mode);
                let wanted = by_node.entry(self.cluster.node_of(key)).or_default();
                wanted.push(LockRequest { db: call.db, key: key.into(), mode });
            }
        }
        let ask = |(node, locks): (NodeId, Vec<LockRequest>)| {
            let fetch = locks.iter().map(wire_lock).collect();
            let participant = self.participants.iter().find(|participant| participant.node == node);
            participant.map(|participant| (participant.ask(wire::Step { fetch, ..self.step() }), locks))
        };
        let pending: Option<Vec<_>> = by_node.into_iter().map(ask).collect();
        for (answer, locks) in pending.ok_or_else(|| TransactionError::Lost(unexpected()))? {
            let Some(stepped) = self.stepped(answer.answer().await, false)? else {
                return Err(TransactionError::Lost(unexpected()));
            };
            if stepped.values.len() != locks.len() {
                return Err(TransactionError::Lost(unexpected()));
            }
            for (request, value) in locks.iter().zip(&stepped.values) {
                self.take_value(request, value)?;
            }
        }
        Ok(())
    }

    /// Runs a call on the node that has all its keys.
    pub(super) async fn execute_there(
        &mut self,
        node: NodeId,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        let keys: Vec<(usize, Box<[u8]>)> = call.keys().map(|(key, _)| (call.db, key.into())).collect();
        let changes = self.changes(|db, key| keys.iter().any(|(held, named)| *held == db && **named == *key));
        for key in keys {
            self.copies.databases[key.0].remove(&key.1);
            if let Some((location, _)) = self.locations.get_mut(&key) {
                *location = KeyLocation::Remote;
            }
        }
        let changes = changes.into_values().next().unwrap_or_default();
        let step = wire::Step {
            changes: changes.as_bytes().to_vec().into(),
            calls: vec![wire_call(call, out.protocol)],
            max_reply_bytes: room_in(out),
            seed: *seed,
            shared: mode == Mode::Shared,
            ..self.step()
        };
        let wrote = call.command.is_write() || !step.changes.is_empty();
        let mut replies = self.ask_all(&[node], step, wrote).await?;
        let (reply, next) = replies.pop().ok_or_else(|| TransactionError::Lost(unexpected()))?;
        *seed = next;
        out.relay(&reply);
        Ok(reply.first() != Some(&b'-'))
    }

    /// Runs a call that concerns all nodes.
    pub(super) async fn execute_everywhere(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        let nodes: Vec<NodeId> = self.participants.iter().map(|participant| participant.node).collect();
        if call.command.name == "scan" {
            let digest = self.cluster.map_digest();
            let mut scan = merge::Scan::new(call, nodes, digest);
            loop {
                let (node, args) = scan.next();
                let calls = vec![wire_call(&Call { args: Args::new(&args), ..*call }, out.protocol)];
                let step = wire::Step { calls, max_reply_bytes: room_in(out), ..self.step() };
                let mut replies = self.ask_all(&[node], step, false).await?;
                let (reply, _) = replies.pop().ok_or_else(|| TransactionError::Lost(unexpected()))?;
                match scan.take(&reply, out) {
                    merge::ScanProgress::More => {}
                    merge::ScanProgress::Over => return Ok(reply.first() != Some(&b'-')),
                    merge::ScanProgress::Through => {
                        scan.finish(digest, out);
                        return Ok(true);
                    }
                }
            }
        }
        let plan = merge::plan(call, |key| self.cluster.node_of(key), seed);
        let targets = plan.nodes(&nodes);
        if targets.len() > 1 && call.keys().next().is_some() {
            return self.execute_on_copies(call, seed, out).await;
        }
        let calls = vec![wire_call(call, out.protocol)];
        let step = wire::Step { calls, seed: *seed, max_reply_bytes: room_in(out), ..self.step() };
        let replies = self.ask_all(&targets, step, call.command.is_write()).await?;
        if let Some((_, next)) = replies.last() {
            *seed = *next;
        }
        let start = out.buf.len();
        plan.merge(replies.into_iter().map(|(reply, _)| reply), out);
        Ok(out.buf.get(start) != Some(&b'-'))
    }

    /// Runs a call that names keys of several nodes and needs more than these: COPY to another database, and SORT by
    /// or with other keys.
    pub(super) async fn execute_on_copies(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, TransactionError> {
        self.fetch(call).await?;
        if let Some(db) = merge::other_database(call.args).filter(|db| *db < DATABASES) {
            self.fetch(&Call { db, ..*call }).await?;
        }
        let sorted = call.keys().next().filter(|_| call.command.name.starts_with("sort"));
        let entry = sorted.and_then(|(key, _)| self.copies.databases[call.db].peek(key, self.now_ms));
        let keys = entry.map_or_else(Vec::new, |entry| sort::other_keys(call.args, &entry.value));
        if !keys.is_empty() {
            let args: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            let at: Vec<KeyAt> = (0..args.len()).map(|at| (at, Access::Read)).collect();
            self.fetch(&Call { args: Args::new(&args), keys: &at, ..*call }).await?;
        }
        let fine = self.run(call, seed, out);
        self.put_away().await?;
        Ok(fine)
    }

    /// Lets nodes do a step with one call. The reply of each and the state of its random source.
    pub(super) async fn ask_all(
        &mut self,
        nodes: &[NodeId],
        step: wire::Step,
        wrote: bool,
    ) -> Result<Vec<(bytes::Bytes, u64)>, TransactionError> {
        let mut pending = Vec::new();
        for participant in
            self.participants.iter_mut().filter(|participant| nodes.contains(&participant.node))
        {
            participant.wrote |= wrote;
            pending.push(participant.ask(step.clone()));
        }
        let mut replies = Vec::new();
        for answer in pending {
            let stepped = self.stepped(answer.answer().await, false)?;
            // A slot of which all is locked, and whose new node does not know of it yet: as if it had begun earlier.
            let mut stepped = stepped.ok_or(Conflict::Everything)?;
            if stepped.outcome() != Outcome::Ok {
                return Err(conflict_of(&stepped, &[]));
            }
            let reply = stepped.replies.pop().ok_or_else(|| TransactionError::Lost(unexpected()))?;
            replies.push((reply, stepped.seed));
        }
        Ok(replies)
    }

    /// Where everything is locked: what was changed on copies goes to its nodes at once.
    pub(super) async fn put_away(&mut self) -> Result<(), TransactionError> {
        let changes = self.changes(|_, _| true);
        self.undo = UndoLog::default();
        self.locations.clear();
        *self.copies = Partition::default();
        let mut pending = Vec::new();
        let step = self.step();
        for participant in &mut self.participants {
            if let Some(changes) = changes.get(&participant.node) {
                participant.wrote = true;
                let changes = changes.as_bytes().to_vec().into();
                pending.push(participant.ask(wire::Step { changes, ..step.clone() }));
            }
        }
        for answer in pending {
            self.stepped(answer.answer().await, false)?;
        }
        Ok(())
    }
}
